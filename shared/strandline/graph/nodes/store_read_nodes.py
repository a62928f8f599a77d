"""SQL that reads nodes, joined over the scopes in view."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.graph.nodes.node_types import NodeType


@dataclass(frozen=True)
class ScopeNode:
    """A node of one scope, with its name."""

    node_id: UUID
    scope_id: UUID
    type: NodeType
    name: str


def map_visible_nodes_by_id(access: TenantDb, node_ids: Sequence[UUID]) -> Mapping[UUID, ScopeNode]:
    """The visible ones of these nodes, by id."""
    rows = access.fetch(
        ScopeNode,
        "select node_id, scope_id, type, name from graph_nodes where node_id = any (%(ids)s)",
        {"ids": list(node_ids)},
    )
    return {row.node_id: row for row in rows}


@dataclass(frozen=True)
class BasicNodeAcrossScopes:
    """A node joined from all nodes of its identity in view."""

    node_id: UUID
    type: NodeType
    name: str
    properties: dict[str, Any]
    confidence: float
    weight: int
    trust: str
    valid_from: datetime
    valid_to: datetime | None
    archived: bool
    created_at: datetime
    updated_at: datetime
    member_ids: list[UUID]


def find_node_across_scopes(
    access: TenantDb, node_id: UUID, as_of: datetime | None, *, combines_by_halving: bool = False
) -> BasicNodeAcrossScopes | None:
    """The node with this id, joined with the nodes in view that have the same identity and hold, as
    they were observed up to `as_of`. None if it is not in view, or was not observed yet."""
    rows = access.fetch(
        BasicNodeAcrossScopes,
        """
        with states as materialized (
            select * from joined_at(array[%(node_id)s]::uuid[], %(as_of)s, %(halves)s))
        select l.target_id as node_id, l.type, l.name,
            merge_patches(m.properties order by m.last_at, m.target_id) as properties,
            sum(m.confidence * greatest(m.weight, 1)) / sum(greatest(m.weight, 1)) as confidence,
            sum(m.weight)::int as weight,
            (array_agg(m.trust order by trust_rank(m.trust)))[1] as trust,
            min(m.valid_from) as valid_from, l.valid_to, bool_and(m.archived) as archived,
            min(m.first_at) as created_at, max(m.last_at) as updated_at,
            array_agg(m.target_id order by m.target_id) as member_ids
        from states l
        join states m on m.type = l.type and m.identity = l.identity
            and (m.target_id = l.target_id or l.holds and m.holds)
        where l.target_id = %(node_id)s
        group by l.target_id, l.type, l.name, l.valid_to
        """,
        {"node_id": node_id, "as_of": as_of, "halves": combines_by_halving},
    )
    return rows[0] if rows else None
