"""SQL that finds facts similar enough to contradict each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from pgvector import HalfVector

from strandline.db.database import TenantDb

MAX_SCANNED = 500
"""How many facts are compared with each other."""
MAX_PAIRS = 200
"""How many pairs of similar facts are tested."""


@dataclass(frozen=True)
class SimilarFacts:
    """Two facts that hold, of different identities."""

    first_id: UUID | None
    """None: the text that was compared."""
    second_id: UUID
    similarity: float


def list_similar_pairs(
    access: TenantDb, space: str, threshold: float, category: str | None
) -> Sequence[SimilarFacts]:
    """Of the visible facts that changed last, those that are similar to each other; most similar
    first."""
    return access.fetch(
        SimilarFacts,
        """
        with facts as materialized (
            select distinct on (f.identity) f.node_id, f.identity, f.embedding
            from (
                select g.node_id, g.identity, g.embedding, g.updated_at from graph_nodes g
                where g.tenant_id = current_tenant() and g.type = 'fact' and g.space = %(space)s
                    and g.embedding is not null
                    and may_hold(g.valid_from, g.valid_to, g.archived, null, false)
                    and (%(category)s::text is null
                        or coalesce(g.category, 'general') = %(category)s)
                order by g.updated_at desc, g.node_id limit %(scanned)s) f
            order by f.identity, f.updated_at desc, f.node_id)
        select p.first_id, p.second_id, p.similarity
        from (
            select a.node_id as first_id, b.node_id as second_id,
                1 - (a.embedding <=> b.embedding) as similarity
            from facts a join facts b on a.node_id < b.node_id) p
        where p.similarity >= %(threshold)s
        order by p.similarity desc, p.first_id, p.second_id limit %(pairs)s
        """,
        {
            "space": space,
            "threshold": threshold,
            "category": category,
            "scanned": MAX_SCANNED,
            "pairs": MAX_PAIRS,
        },
    )


def list_similar_to(
    access: TenantDb,
    vector: Sequence[float],
    *,
    first_id: UUID | None,
    excluded_ids: Sequence[UUID],
    name_hash: bytes,
    space: str,
    threshold: float,
    category: str | None,
) -> Sequence[SimilarFacts]:
    """The visible facts that are similar to a vector, but those of this name and these; most
    similar first. `first_id` is the fact whose vector it is."""
    return access.fetch(
        SimilarFacts,
        """
        with near as (
            select distinct on (g.identity) g.node_id, 1 - n.distance as similarity
            from nearest_nodes(%(vector)s::halfvec, %(space)s, array['fact'], null, false,
                %(pairs)s) n
            cross join lateral (
                select g.identity, g.node_id, g.category from graph_nodes g
                where g.tenant_id = current_tenant() and g.node_id = n.node_id offset 0) g
            where g.identity <> %(name_hash)s and g.node_id <> all (%(excluded)s::uuid[])
                and (%(category)s::text is null or coalesce(g.category, 'general') = %(category)s)
            order by g.identity, n.distance, g.node_id)
        select %(first_id)s::uuid as first_id, s.node_id as second_id, s.similarity
        from near s where s.similarity >= %(threshold)s
        order by s.similarity desc, s.node_id
        """,
        {
            "vector": HalfVector(list(vector)).to_text(),
            "first_id": first_id,
            "excluded": list(excluded_ids),
            "name_hash": name_hash,
            "space": space,
            "threshold": threshold,
            "category": category,
            "pairs": MAX_PAIRS,
        },
    )
