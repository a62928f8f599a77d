"""Read communities, of the scopes in view or of the whole tenant: list them, and read one with its
nodes and neighbours."""

import re
from collections.abc import Sequence
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
from strandline.graph.communities.store_communities import (
    CommunityKind,
    MemberNode,
    StoredCommunity,
    list_communities_by_id,
    list_community_nodes,
    list_largest_communities,
)
from strandline.graph.nodes.identity import format_node_id, parse_node_id
from strandline.llm.heuristic.words import WORD, lowercase_without_genitive, stem_english_word

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
            for part in _PART.findall(lowercase_without_genitive(word))
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
