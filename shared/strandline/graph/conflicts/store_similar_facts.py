"""SQL that finds facts similar enough to contradict each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.embeddings.vector_formats import pack_vector

MAX_SCANNED = 500
"""How many facts are compared with each other."""
MAX_PAIRS = 200
"""How many pairs of similar facts are tested."""


@dataclass(frozen=True)
class SimilarPair:
    """Two facts that hold and have different identities."""

    first_id: UUID | None
    """None: the compared text, which is not stored."""
    second_id: UUID
    similarity: float


@dataclass(frozen=True)
class FactFilter:
    """Which facts are compared."""

    space: str
    """The embedding space of their vectors."""
    threshold: float
    """The least cosine at which two facts are similar."""
    category: str | None = None
    """None: all categories."""


@dataclass(frozen=True)
class SimilarPairs:
    """The similar pairs among some facts, the most similar first."""

    pairs: Sequence[SimilarPair]
    facts_cut: bool = False
    """Whether there are more facts than were compared."""
    pairs_cut: bool = False
    """Whether there are more similar pairs than these."""


@dataclass(frozen=True)
class _PairRow:
    """A similar pair. A row without a pair still has the flags that say what was cut."""

    facts_cut: bool
    pairs_cut: bool
    first_id: UUID | None
    second_id: UUID | None
    similarity: float | None


def _to_similar_pairs(rows: Sequence[_PairRow]) -> SimilarPairs:
    pairs = [
        SimilarPair(row.first_id, row.second_id, row.similarity)
        for row in rows
        if row.second_id is not None and row.similarity is not None
    ]
    return SimilarPairs(pairs, rows[0].facts_cut, rows[0].pairs_cut)


def find_similar_among_newest(access: TenantDb, fact_filter: FactFilter) -> SimilarPairs:
    """The similar pairs among the MAX_SCANNED visible facts that changed last."""
    rows = access.fetch(
        _PairRow,
        """
        with newest as materialized (
            select g.node_id, g.identity, g.updated_at, node_vector(%(space)s, g.space,
                g.embedding, g.next_space, g.next_embedding) as embedding
            from graph_nodes g
            where g.tenant_id = current_tenant() and g.type = 'fact'
                and node_vector(%(space)s, g.space, g.embedding, g.next_space, g.next_embedding)
                    is not null
                and may_hold(g.valid_from, g.valid_to, g.archived, null, false)
                and (%(category)s::text is null or coalesce(g.category, 'general') = %(category)s)
            order by g.updated_at desc, g.node_id limit %(scanned)s + 1),
        facts as materialized (
            select distinct on (f.identity) f.node_id, f.embedding
            from (select * from newest n order by n.updated_at desc, n.node_id limit %(scanned)s) f
            order by f.identity, f.updated_at desc, f.node_id),
        alike as materialized (
            select p.* from (
                select a.node_id as first_id, b.node_id as second_id,
                    1 - (a.embedding <=> b.embedding) as similarity
                from facts a join facts b on a.node_id < b.node_id) p
            where p.similarity >= %(threshold)s
            order by p.similarity desc, p.first_id, p.second_id limit %(pairs)s + 1)
        select c.facts_cut, c.pairs_cut, s.first_id, s.second_id, s.similarity
        from (
            select (select count(*) from newest) > %(scanned)s as facts_cut,
                (select count(*) from alike) > %(pairs)s as pairs_cut) c
        left join alike s on true
        order by s.similarity desc, s.first_id, s.second_id limit %(pairs)s
        """,
        {**vars(fact_filter), "scanned": MAX_SCANNED, "pairs": MAX_PAIRS},
    )
    return _to_similar_pairs(rows)


def find_facts_similar_to(
    access: TenantDb,
    vector: Sequence[float],
    fact_filter: FactFilter,
    *,
    first_id: UUID | None,
    excluded_ids: Sequence[UUID],
    name_hash: bytes,
) -> SimilarPairs:
    """The visible facts that are similar to a vector, except those with this name hash or in
    `excluded_ids`. `first_id` is the fact that the vector belongs to, if any."""
    rows = access.fetch(
        _PairRow,
        """
        with nearest as materialized (
            select n.node_id, 1 - n.distance as similarity
            from nearest_nodes(%(vector)s::halfvec, %(space)s, array['fact'], null, false,
                %(pairs)s + 1) n
            where 1 - n.distance >= %(threshold)s),
        alike as (
            select distinct on (g.identity) g.node_id, n.similarity
            from nearest n
            cross join lateral (
                select g.identity, g.node_id, g.category from graph_nodes g
                where g.tenant_id = current_tenant() and g.node_id = n.node_id offset 0) g
            where g.identity <> %(name_hash)s and g.node_id <> all (%(excluded)s::uuid[])
                and (%(category)s::text is null or coalesce(g.category, 'general') = %(category)s)
            order by g.identity, n.similarity desc, g.node_id)
        select false as facts_cut, c.pairs_cut, %(first_id)s::uuid as first_id,
            s.node_id as second_id, s.similarity
        from (select (select count(*) from nearest) > %(pairs)s as pairs_cut) c
        left join alike s on true
        order by s.similarity desc, s.node_id limit %(pairs)s
        """,
        {
            **vars(fact_filter),
            "vector": pack_vector(vector),
            "first_id": first_id,
            "excluded": list(excluded_ids),
            "name_hash": name_hash,
            "pairs": MAX_PAIRS,
        },
    )
    return _to_similar_pairs(rows)
