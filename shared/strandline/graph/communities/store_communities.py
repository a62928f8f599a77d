"""SQL that reads communities and their nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.graph.nodes.node_types import NodeType

_NAME_CHARACTERS = 60
"""How many characters of a node's name are used in a community's name."""
_NAMING_RANKS = 12
"""How many nodes, by rank, are considered for a community's name."""
_NAMING: dict[str, object] = {"characters": _NAME_CHARACTERS, "ranks": _NAMING_RANKS}


type CommunityKind = Literal["scopes", "tenant"]
"""Communities of the scopes in view, or of the tenant's whole graph. The latter are visible only
without a viewer."""


@dataclass(frozen=True)
class StoredCommunity:
    """A community, with the names of its first nodes."""

    community_id: UUID
    scope_id: UUID | None
    """None: the tenant's whole graph."""
    names: list[str]
    """The beginnings of the names of its first nodes."""
    size: int
    bridges: int
    neighbours: list[tuple[str, int]]
    """(community id as text, weight of the edges to it), the heaviest first."""
    analysed_at: datetime


def list_largest_communities(
    access: TenantDb,
    kind: CommunityKind,
    node_id: UUID | None,
    after: tuple[int, UUID] | None,
    limit: int,
) -> Sequence[StoredCommunity]:
    """The communities, the largest first; with `node_id`, those of that node's members. `after` is
    the size and the id of the last community of the previous page."""
    return access.fetch(
        StoredCommunity,
        """
        with page as (
            select c.* from graph_all_communities c
            where c.of_tenant = %(of_tenant)s and (%(size)s::int is null
                    or c.size < %(size)s or c.size = %(size)s and c.community_id > %(id)s::uuid)
                and (%(node_id)s::uuid is null or c.community_id in (
                    select m.community_id from graph_nodes n
                    join graph_nodes o on o.tenant_id = current_tenant() and o.type = n.type
                        and o.identity = n.identity
                    join graph_all_members m on m.node_id = o.node_id
                        and m.of_tenant = %(of_tenant)s
                    where n.node_id = %(node_id)s))
            order by c.size desc, c.community_id limit %(limit)s)
        select c.community_id, c.scope_id, coalesce((
                select array_agg(f.name order by f.rank) from (
                    select distinct on (m.rank) m.rank, left(n.name, %(characters)s) as name
                    from graph_all_members m join graph_nodes n using (tenant_id, node_id)
                    where m.of_tenant = c.of_tenant and m.community_id = c.community_id
                        and m.rank <= %(ranks)s
                    order by m.rank, n.name_hash = n.identity desc, n.node_id) f), '{}') as names,
            c.size, c.bridges, c.neighbours, c.analysed_at
        from page c order by c.size desc, c.community_id
        """,
        {
            "of_tenant": kind == "tenant",
            "node_id": node_id,
            "size": after and after[0],
            "id": after and after[1],
            "limit": limit,
            **_NAMING,
        },
    )


def list_communities_by_id(
    access: TenantDb, kind: CommunityKind, community_ids: Sequence[UUID]
) -> Sequence[StoredCommunity]:
    """Those of these communities that are in view."""
    return access.fetch(
        StoredCommunity,
        """
        select c.community_id, c.scope_id, coalesce((
                select array_agg(f.name order by f.rank) from (
                    select distinct on (m.rank) m.rank, left(n.name, %(characters)s) as name
                    from graph_all_members m join graph_nodes n using (tenant_id, node_id)
                    where m.of_tenant = c.of_tenant and m.community_id = c.community_id
                        and m.rank <= %(ranks)s
                    order by m.rank, n.name_hash = n.identity desc, n.node_id) f), '{}') as names,
            c.size, c.bridges, c.neighbours, c.analysed_at
        from graph_all_communities c
        where c.of_tenant = %(of_tenant)s and c.community_id = any (%(ids)s)
        """,
        {"of_tenant": kind == "tenant", "ids": list(community_ids), **_NAMING},
    )


@dataclass(frozen=True)
class MemberNode:
    """A node of a community, joined over the scopes in view."""

    node_id: UUID
    type: NodeType
    name: str
    member_ids: list[UUID]
    """The nodes of its type and name in all scopes in view."""
    rank: int
    bridge_score: float
    is_bridge: bool


def list_community_nodes(
    access: TenantDb, kind: CommunityKind, community_id: UUID, after_rank: int, limit: int
) -> Sequence[MemberNode]:
    """The nodes of a community that still hold, by rank."""
    return access.fetch(
        MemberNode,
        """
        with page as (
            select distinct on (m.rank) m.rank, n.node_id, n.type, n.name, n.identity,
                m.bridge_score, m.is_bridge
            from graph_all_members m join graph_nodes n using (tenant_id, node_id)
            where m.of_tenant = %(of_tenant)s and m.community_id = %(id)s and m.rank > %(after)s
                and n.valid_to is null and not n.archived
            order by m.rank, n.name_hash = n.identity desc, n.node_id limit %(limit)s)
        select p.node_id, p.type, p.name, array(
                select o.node_id from graph_nodes o
                where o.tenant_id = current_tenant() and o.type = p.type
                    and o.identity = p.identity and o.valid_to is null
                order by o.node_id) as member_ids,
            p.rank, p.bridge_score, p.is_bridge
        from page p order by p.rank
        """,
        {
            "of_tenant": kind == "tenant",
            "id": community_id,
            "after": after_rank,
            "limit": limit,
        },
    )
