"""SQL that reads nodes, joined over the scopes in view."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.graph.identity import NodeType


@dataclass(frozen=True)
class NodeName:
    """A node of one scope, by its name."""

    node_id: UUID
    scope_id: UUID
    type: NodeType
    name: str


def find_nodes(access: TenantDb, node_ids: Sequence[UUID]) -> Mapping[UUID, NodeName]:
    """The visible ones of these nodes, by id."""
    rows = access.fetch(
        NodeName,
        "select node_id, scope_id, type, name from graph_nodes where node_id = any (%(ids)s)",
        {"ids": list(node_ids)},
    )
    return {row.node_id: row for row in rows}


@dataclass(frozen=True)
class NodeRow:
    """A node as it is read: what all nodes of its identity in view say together."""

    node_id: UUID
    type: NodeType
    name: str
    properties: dict[str, Any]
    confidence: float
    weight: int
    trust: str
    valid_from: datetime
    valid_to: datetime | None
    created_at: datetime
    updated_at: datetime
    member_ids: list[UUID]


def get_node(access: TenantDb, node_id: UUID, as_of: datetime | None) -> NodeRow | None:
    """The node with this id, joined with those in view of the same identity that hold now, as it
    was observed up to `as_of`. None where it is not in view, or was not observed yet."""
    rows = access.fetch(
        NodeRow,
        """
        with named as (
            select type, identity, valid_to from graph_nodes where node_id = %(node_id)s),
        members as (
            select g.* from graph_nodes g, named
            where g.node_id = %(node_id)s
                or g.tenant_id = current_tenant() and g.type = named.type
                    and g.identity = named.identity and g.valid_to is null
                    and named.valid_to is null),
        states as (
            select m.node_id, m.type, m.name, s.*, m.node_id = %(node_id)s as leads
            from members m
            join observed_state(array(select node_id from members), %(as_of)s, false) s
                on s.target_id = m.node_id)
        select (array_agg(node_id) filter (where leads))[1] as node_id, min(type) as type,
            (array_agg(name) filter (where leads))[1] as name,
            merge_patches(properties order by last_at, node_id) as properties,
            sum(confidence * weight) / sum(weight) as confidence, sum(weight)::int as weight,
            (array_agg(trust order by trust_rank(trust)))[1] as trust,
            min(valid_from) as valid_from,
            (array_agg(valid_to) filter (where leads))[1] as valid_to,
            min(first_at) as created_at, max(last_at) as updated_at,
            array_agg(node_id order by node_id) as member_ids
        from states
        having bool_or(leads)
        """,
        {"node_id": node_id, "as_of": as_of},
    )
    return rows[0] if rows else None
