"""SQL that finds nodes: by meaning, by words, by name, or by a part of their text."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.embeddings.vector_formats import pack_vector
from strandline.graph.nodes.node_types import NodeType
from strandline.log.fulltext_input import sanitize_for_parser

CANDIDATES = 200
"""How many nodes of each kind of match are compared."""
_MAX_WORDS = 20
"""How many of the longest words of a question are searched for."""
_WORD_WEIGHT = 0.6
"""The score of a node that has no vector and contains every word of a question."""
_NAME_WEIGHT = 0.2
"""Added to the score if the question contains a node's whole name."""


@dataclass(frozen=True)
class NodeFilter:
    """Which nodes a search may find."""

    types: Sequence[NodeType]
    as_of: datetime | None = None
    archived: bool = False
    combines_by_halving: bool = False
    """Whether confidences as of a time are combined by halving."""


@dataclass(frozen=True)
class NodeMatch:
    """A node that was found."""

    node_id: UUID
    score: float
    similarity: float | None
    """The cosine of its vector and the question's; None if either is missing."""
    is_named: bool
    """Whether the question contains its whole name."""
    has_words: bool
    """Whether it contains words of the question, or the text that was searched for."""


MATCHES: LiteralString = """
        words as materialized (
            select array(
                select fold_text(w) from unnest(question_words(%(question)s, %(max_words)s)) w
                where length(w) >= %(min_word_chars)s) as words),
        found as materialized (
            select n.node_id, 1 - n.distance as similarity, false as is_named,
                null::float8 as share
            from nearest_nodes(%(vector)s::halfvec, %(space)s, %(types)s, %(as_of)s, %(archived)s,
                %(candidates)s) n
            where %(vector)s::halfvec is not null and %(by_meaning)s::boolean
            union all
            (select g.node_id, null, true, null from graph_nodes g
            where g.tenant_id = current_tenant() and g.type = any (%(types)s)
                and g.identity = any (%(names)s)
                and may_hold(g.valid_from, g.valid_to, g.archived, %(as_of)s, %(archived)s)
            limit %(candidates)s)
            union all  -- by the names of what was merged, too
            (select g.node_id, null, true, null from graph_nodes g
            where g.tenant_id = current_tenant() and g.type = any (%(types)s)
                and g.name_hash = any (%(names)s) and g.identity <> g.name_hash
                and may_hold(g.valid_from, g.valid_to, g.archived, %(as_of)s, %(archived)s)
            limit %(candidates)s)
            union all
            select w.node_id, null, false, count(*) / cardinality(min(words.words))::float8
            from words
            cross join lateral unnest(words.words) word
            cross join lateral nodes_containing(word, %(types)s, %(as_of)s, %(archived)s,
                %(candidates)s) w
            group by w.node_id),
        candidates as (
            select f.node_id, max(f.similarity) as similarity, bool_or(f.is_named) as is_named,
                max(f.share) as share
            from found f group by f.node_id),
        scored as (
            select c.node_id, g.type, g.identity, case when g.valid_to is not null
                    or %(as_of)s::timestamptz is not null and g.identity <> g.name_hash
                    then c.node_id end as own_id,
                c.is_named, c.share is not null as has_words, c.share,
                coalesce(c.similarity, 1 - (node_vector(%(space)s, g.space, g.embedding,
                    g.next_space, g.next_embedding) <=> %(vector)s::halfvec)) as similarity
            from candidates c
            cross join lateral (
                select g.type, g.identity, g.name_hash, g.valid_to, g.space, g.embedding,
                    g.next_space, g.next_embedding
                from graph_nodes g
                where g.tenant_id = current_tenant() and g.node_id = c.node_id offset 0) g),
        best as (
            select distinct on (s.type, s.identity, s.own_id) s.*,
                coalesce(s.similarity, %(word_weight)s * coalesce(s.share, 0))
                    + case when s.is_named then %(name_weight)s else 0 end as score
            from scored s order by s.type, s.identity, s.own_id, score desc, s.node_id)
"""
"""Selects the visible nodes that a question may concern, one for each identity, as `best`. With an
`as_of`, merged nodes stay separate, because they may not have been merged then. A literal with
which SQL statements begin."""


@dataclass(frozen=True)
class NodeQuery:
    """A question, prepared for a search."""

    question: str
    name_hashes: Sequence[bytes]
    """The hashes of all names that it may contain."""
    vector: Sequence[float] | None
    space: str
    node_filter: NodeFilter
    by_meaning: bool = True
    """Whether nodes are also found by the vector. If not, the vector only scores nodes found
    otherwise."""
    min_word_chars: int = 3
    """Shorter words are not searched for."""

    def to_params(self) -> dict[str, object]:
        """The parameters of MATCHES."""
        return {
            "question": sanitize_for_parser(self.question),
            "max_words": _MAX_WORDS,
            "min_word_chars": self.min_word_chars,
            "names": list(self.name_hashes),
            "vector": None if self.vector is None else pack_vector(self.vector),
            "by_meaning": self.by_meaning,
            "space": self.space,
            "word_weight": _WORD_WEIGHT,
            "name_weight": _NAME_WEIGHT,
            **_make_filter_params(self.node_filter),
        }


def find_matching_nodes(access: TenantDb, query: NodeQuery) -> Sequence[NodeMatch]:
    """The visible nodes nearest in meaning to a question, those whose name it contains, and those
    that contain its words; best first, one for each identity. A node without a vector is found only
    by name and words."""
    return access.fetch(
        NodeMatch,
        "with"  # noqa: S608
        + MATCHES
        + """
        select b.node_id, b.score, b.similarity, b.is_named, b.has_words
        from best b order by b.score desc, b.node_id limit %(candidates)s
        """,
        query.to_params(),
    )


def find_nodes_containing_text(
    access: TenantDb, text: str, node_filter: NodeFilter
) -> Sequence[NodeMatch]:
    """The visible nodes whose text contains this text, regardless of case; the largest share of the
    node's text first, one for each identity."""
    return access.fetch(
        NodeMatch,
        """
        with found as (
            select c.node_id, c.share, g.type, g.identity, case when g.valid_to is not null
                    or %(as_of)s::timestamptz is not null and g.identity <> g.name_hash
                    then c.node_id end as own_id
            from nodes_containing(fold_text(%(text)s), %(types)s, %(as_of)s, %(archived)s,
                %(candidates)s) c
            cross join lateral (
                select g.type, g.identity, g.name_hash, g.valid_to from graph_nodes g
                where g.tenant_id = current_tenant() and g.node_id = c.node_id offset 0) g),
        best as (
            select distinct on (f.type, f.identity, f.own_id) f.* from found f
            order by f.type, f.identity, f.own_id, f.share desc, f.node_id)
        select b.node_id, b.share as score, null::float8 as similarity, b.share = 1 as is_named,
            true as has_words
        from best b order by b.share desc, b.node_id
        """,
        {"text": text, **_make_filter_params(node_filter)},
    )


def _make_filter_params(node_filter: NodeFilter) -> dict[str, object]:
    return {
        "types": list(node_filter.types),
        "as_of": node_filter.as_of,
        "archived": node_filter.archived,
        "candidates": CANDIDATES,
    }
