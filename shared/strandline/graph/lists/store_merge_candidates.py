"""SQL that finds the nodes which may be the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.graph.nodes.node_types import NodeType
from strandline.graph.nodes.observations import MERGE_REFUSAL


@dataclass(frozen=True)
class MergeCandidate:
    """A node that may be the same as another node of its scope and type."""

    node_id: UUID
    scope_id: UUID
    participants: list[str]
    type: NodeType
    name: str
    identity: bytes
    weight: int
    created_at: datetime
    place: int
    """The position among the nodes of its scope and type, the newest first, from 1."""


def list_nodes_to_compare(
    access: TenantDb, scope_id: UUID | None, *, archived: bool, per_type: int, limit: int
) -> Sequence[MergeCandidate]:
    """The nodes to compare, without facts: the newest `per_type` of each scope and type, and one
    more if it exists, at most `limit` in all."""
    return access.fetch(
        MergeCandidate,
        """
        select * from (
            select node_id, scope_id, participants, type, name, identity, weight, created_at,
                row_number() over (
                    partition by scope_id, type order by updated_at desc, node_id)::int as place
            from graph_nodes
            where tenant_id = current_tenant() and type <> 'fact' and valid_to is null
                and (%(scope_id)s::uuid is null or scope_id = %(scope_id)s)
                and (%(archived)s::boolean or not archived)) n
        where place <= %(per_type)s + 1
        order by place, scope_id, type limit %(limit)s
        """,
        {"scope_id": scope_id, "archived": archived, "per_type": per_type, "limit": limit},
    )


@dataclass(frozen=True)
class PairCosine:
    """The cosine of two nodes' vectors in one space."""

    first_id: UUID
    second_id: UUID
    cosine: float


def list_node_pairs_by_cosine(
    access: TenantDb, node_ids: Sequence[UUID], space: str, min_cosine: float
) -> Sequence[PairCosine]:
    """The pairs of these nodes, within one scope and type, whose vectors have at least this
    cosine."""
    return access.fetch(
        PairCosine,
        """
        with vectors as materialized (
            select g.node_id, g.scope_id, g.type, g.identity, node_vector(%(space)s, g.space,
                g.embedding, g.next_space, g.next_embedding) as embedding
            from graph_nodes g
            where g.tenant_id = current_tenant() and g.node_id = any (%(ids)s)
                and %(space)s in (g.space, g.next_space))
        select * from (
            select a.node_id as first_id, b.node_id as second_id,
                1 - (a.embedding <=> b.embedding) as cosine
            from vectors a join vectors b on a.scope_id = b.scope_id and a.type = b.type
                and a.node_id < b.node_id and a.identity <> b.identity) pairs
        where cosine >= %(min_cosine)s
        """,
        {"ids": list(node_ids), "space": space, "min_cosine": min_cosine},
    )


@dataclass(frozen=True)
class RefusedPair:
    """Two nodes that a statement says are not the same."""

    first_id: UUID
    second_id: UUID


def list_refused_pairs(access: TenantDb, node_ids: Sequence[UUID]) -> Sequence[RefusedPair]:
    """The pairs of these nodes that a statement in view says are not the same."""
    return access.fetch(
        RefusedPair,
        """
        select distinct a.target_id as first_id, b.target_id as second_id
        from graph_observations a
        join events e on e.tenant_id = a.tenant_id and e.event_id = a.source_id
        join graph_observations b on b.tenant_id = a.tenant_id and b.source_id = a.source_id
            and a.target_id < b.target_id
        where a.tenant_id = current_tenant() and a.source_version is null
            and a.target_id = any (%(ids)s) and b.target_id = any (%(ids)s)
            and e.metadata -> 'graph' -> %(operation)s is not null
        """,
        {"ids": list(node_ids), "operation": MERGE_REFUSAL},
    )
