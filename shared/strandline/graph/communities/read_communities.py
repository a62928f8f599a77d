"""Read communities, of the scopes in view or of the whole tenant: list them, and read one with its
nodes and neighbours."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from strandline.cursors import Cursors, Position
from strandline.db.database import TenantDb
from strandline.errors import Invalid, NotFound
from strandline.graph.communities.schemas import (
    CommunitiesPage,
    CommunityDetail,
    CommunityNode,
    CommunityOut,
    NeighbourCommunityOut,
)
from strandline.graph.nodes.identity import format_node_id, parse_node_id
from strandline.graph.nodes.node_types import NodeType
from strandline.llm.heuristic.words import WORD, normalize_without_genitive, stem_english_word

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


_PG_SNAPSHOT = "1:1:"
"""Pages of communities show the last analysis and not one database snapshot."""
_MAX_NAMES = 3
"""How many nodes name a community."""
_PART = re.compile(r"[^\W_]+")
_NO_NAME = "(no longer there)"
"""The name of a community whose first nodes no longer exist."""


def list_communities(
    access: TenantDb,
    kind: CommunityKind,
    node: str | None,
    cursor: str | None,
    limit: int,
) -> CommunitiesPage:
    """A page of communities, the largest first; with `node`, those that contain this node. Raises
    Invalid for a malformed node id, and Malformed for a cursor of another list."""
    node_id = None if node is None else _parse_node_id_filter(node)
    cursors = _make_cursors(access, kind, "list", node)
    position = cursors.decode(cursor)
    after = position and (position.seq, position.row_id)
    rows = list_largest_communities(access, kind, node_id, after, limit)
    last = rows[-1] if len(rows) == limit else None
    position = last and Position(_PG_SNAPSHOT, last.analysed_at, last.community_id, last.size)
    return CommunitiesPage(
        communities=[CommunityOut.model_validate(_to_community_fields(row)) for row in rows],
        next_cursor=position and cursors.encode(position),
    )


def get_community(
    access: TenantDb, kind: CommunityKind, community_id: UUID, cursor: str | None, limit: int
) -> CommunityDetail:
    """One community in view, with its neighbours and a page of its nodes. Raises NotFound, and
    Malformed for a cursor of another list."""
    matches = list_communities_by_id(access, kind, [community_id])
    if not matches:
        raise NotFound("There is no such community in view. Each analysis may replace communities.")
    (community,) = matches
    cursors = _make_cursors(access, kind, str(community_id), None)
    position = cursors.decode(cursor)
    after_rank = position.seq if position else 0
    rows = list_community_nodes(access, kind, community_id, after_rank, limit)
    last = rows[-1] if len(rows) == limit else None
    position = last and Position(_PG_SNAPSHOT, community.analysed_at, community_id, last.rank)
    return CommunityDetail.model_validate(
        {
            **_to_community_fields(community),
            "neighbours": _list_named_neighbours(access, kind, community),
            "nodes": [_to_community_node(row) for row in rows],
            "next_cursor": position and cursors.encode(position),
        }
    )


def _parse_node_id_filter(node: str) -> UUID:
    try:
        return parse_node_id(node)[1]
    except NotFound:
        raise Invalid(
            "node_id: must be the id of a node, such as ent:f09cbabb-8abb-806b-9b57-b2aed7a1de29",
            field="node_id",
        ) from None


def _make_cursors(access: TenantDb, kind: CommunityKind, name: str, node: str | None) -> Cursors:
    caller = access.caller
    list_name = f"{kind} communities {name}"
    return Cursors(access.sealer, caller.tenant, list_name, caller.viewer, caller.writer, node)


def _to_community_fields(community: StoredCommunity) -> dict[str, object]:
    fields = {name: value for name, value in vars(community).items() if name != "neighbours"}
    return {**fields, "name": name_community(community.names)}


def name_community(names: Sequence[str]) -> str:
    """The first three of these names that have no word in common, regardless of case and
    inflection."""
    first_names: list[str] = []
    their_words: set[str] = set()
    for name in names:
        parts = (
            part
            for word in WORD.findall(name)
            for part in _PART.findall(normalize_without_genitive(word))
        )
        words = set(map(stem_english_word, parts)) or {name.casefold()}
        if their_words.isdisjoint(words):
            first_names.append(name)
            their_words |= words
    return ", ".join(first_names[:_MAX_NAMES]) or _NO_NAME


def _list_named_neighbours(
    access: TenantDb, kind: CommunityKind, community: StoredCommunity
) -> Sequence[NeighbourCommunityOut]:
    neighbours = [(UUID(other), weight) for other, weight in community.neighbours]
    names = {
        row.community_id: name_community(row.names)
        for row in list_communities_by_id(access, kind, [other for other, _ in neighbours])
    }
    return [
        NeighbourCommunityOut(community_id=other, name=names[other], weight=weight)
        for other, weight in neighbours
        if other in names
    ]


def _to_community_node(row: MemberNode) -> CommunityNode:
    return CommunityNode.model_validate(
        {
            **vars(row),
            "id": format_node_id(row.type, row.node_id),
            "members": [format_node_id(row.type, member) for member in row.member_ids],
        }
    )
