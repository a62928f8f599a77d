"""Requests and answers about communities of the graph."""

from datetime import datetime
from uuid import UUID

from pydantic import Field

from strandline.graph.nodes.node_types import NodeType
from strandline.schemas import PagedReadQuery, PagingQuery, ResponseModel


class CommunitiesQuery(PagedReadQuery):
    """Query string of the list of communities."""

    node_id: str | None = Field(default=None, max_length=100)
    """Only communities that contain this node, in any scope in view: a node's id, such as
    `ent:018f…`."""


class CommunityQuery(PagedReadQuery):
    """Query string of a community, whose nodes are paged."""


class TenantCommunitiesQuery(PagingQuery):
    """Query string of the tenant's communities."""

    node_id: str | None = Field(default=None, max_length=100)
    """Only communities that contain this node: a node's id, such as `ent:018f…`."""


class CommunityIdAndName(ResponseModel):
    """The id and the name of a community."""

    community_id: UUID
    """Stable from one analysis to the next, as long as the same node has the first rank."""
    name: str
    """The beginnings of the names of its first three nodes, among those that have no word in
    common."""


class CommunityOut(CommunityIdAndName):
    """A group of nodes that are linked more strongly to each other than to others."""

    scope_id: UUID | None
    """The scope whose graph it belongs to; null: the tenant's whole graph."""
    size: int
    """How many nodes it had when it was analysed."""
    bridges: int
    """How many of these nodes are bridges."""
    analysed_at: datetime


class CommunitiesPage(ResponseModel):
    """Communities, the largest first."""

    communities: list[CommunityOut]
    next_cursor: str | None


class NeighbourCommunityOut(CommunityIdAndName):
    """Another community that is joined to this one by edges."""

    weight: int
    """The weight of the edges between them: the sum of each edge's confidence in percent,
    multiplied by its number of observations."""


class CommunityNode(ResponseModel):
    """A node of a community, joined over the scopes in view."""

    id: str
    type: NodeType
    name: str
    """The content of a fact, the title of a decision or an event, or the name of an entity or a
    topic."""
    members: list[str]
    """The nodes of this name in each scope in view, and those merged with it."""
    rank: int
    """Its rank by the weight of its edges within the community, from 1."""
    is_bridge: bool
    """Whether it joins this community to others."""
    bridge_score: float
    """How its edges are spread over communities: 0 if all stay in one, near 1 if they lead to
    many."""


class CommunityDetail(CommunityOut):
    """A community, its neighbours and a page of its nodes."""

    neighbours: list[NeighbourCommunityOut]
    """The communities with the most weight of edges to this one, at most 20."""
    nodes: list[CommunityNode]
    """The nodes that still hold, by rank."""
    next_cursor: str | None
    """The cursor of the next page of its nodes."""
