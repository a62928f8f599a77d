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
    archived: bool
    created_at: datetime
    updated_at: datetime
    member_ids: list[UUID]


def get_node(
    access: TenantDb, node_id: UUID, as_of: datetime | None, *, halves_confidence: bool = False
) -> NodeRow | None:
    """The node with this id, joined with those in view of the same identity that hold, as it was
    observed up to `as_of`. None where it is not in view, or was not observed yet."""
    rows = access.fetch(
        NodeRow,
        """
        with lead as (
            select n.node_id, n.type, n.identity, n.name_hash,
                coalesce(s.identity, n.name_hash) as then_identity,
                coalesce(s.valid_to > coalesce(%(as_of)s, now()), true) as holds
            from graph_nodes n
            join observed_state(array[%(node_id)s]::uuid[], %(as_of)s, %(halves)s) s
                on s.target_id = n.node_id
            where n.tenant_id = current_tenant() and n.node_id = %(node_id)s),
        candidates as (
            select g.node_id, g.type, g.name, g.name_hash, l.node_id as lead_id, l.then_identity,
                l.holds
            from lead l join graph_nodes g on g.tenant_id = current_tenant() and g.type = l.type
                and g.identity = any (array[l.identity, l.then_identity, l.name_hash])),
        states as (
            select c.node_id, c.type, c.name, s.*, c.node_id = c.lead_id as leads
            from candidates c
            join observed_state(array(select node_id from candidates), %(as_of)s, %(halves)s) s
                on s.target_id = c.node_id
            where c.node_id = c.lead_id
                or c.holds and coalesce(s.valid_to > coalesce(%(as_of)s, now()), true)
                    and coalesce(s.identity, c.name_hash) = c.then_identity)
        select (array_agg(node_id) filter (where leads))[1] as node_id, min(type) as type,
            (array_agg(name) filter (where leads))[1] as name,
            merge_patches(properties order by last_at, node_id) as properties,
            sum(confidence * greatest(weight, 1)) / sum(greatest(weight, 1)) as confidence,
            sum(weight)::int as weight,
            (array_agg(trust order by trust_rank(trust)))[1] as trust,
            min(valid_from) as valid_from, bool_and(archived) as archived,
            (array_agg(valid_to) filter (where leads))[1] as valid_to,
            min(first_at) as created_at, max(last_at) as updated_at,
            array_agg(node_id order by node_id) as member_ids
        from states
        having bool_or(leads)
        """,
        {"node_id": node_id, "as_of": as_of, "halves": halves_confidence},
    )
    return rows[0] if rows else None
