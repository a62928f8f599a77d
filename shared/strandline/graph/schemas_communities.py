"""Requests and answers about communities of the graph."""

from datetime import datetime
from uuid import UUID

from pydantic import Field

from strandline.graph.identity import NodeType
from strandline.schemas import ListQuery, PagingQuery, ResponseModel


class CommunitiesQuery(PagingQuery):
    """Query string of the list of communities."""

    node_id: str | None = Field(default=None, max_length=100)
    """Only communities that this node is in, in any scope in view: a node's id, as `ent:018f…`."""


class CommunityQuery(PagingQuery):
    """Query string of a community, whose nodes are paged."""


class TenantCommunitiesQuery(ListQuery):
    """Query string of the tenant's communities."""

    node_id: str | None = Field(default=None, max_length=100)
    """Only communities that this node is in: a node's id, as `ent:018f…`."""


class CommunityName(ResponseModel):
    """A community, by its name."""

    community_id: UUID
    """The same from one analysis to the next, while the same node is its first."""
    name: str
    """The beginnings of the names of its first three nodes, of those that have no word in
    common."""


class CommunityOut(CommunityName):
    """A group of nodes that have more to do with each other than with others."""

    scope_id: UUID | None
    """The scope whose graph it is part of; null: the tenant's whole graph."""
    size: int
    """How many nodes it had when it was found."""
    bridges: int
    """How many of these are bridges."""
    analysed_at: datetime


class CommunitiesPage(ResponseModel):
    """Communities, the largest first."""

    communities: list[CommunityOut]
    next_cursor: str | None


class NeighbourOut(CommunityName):
    """Another community that edges lead to."""

    weight: int
    """Of the edges between: each one's confidence in percent, as often as it was observed."""


class CommunityNode(ResponseModel):
    """A node of a community, joined over the scopes in view."""

    id: str
    type: NodeType
    name: str
    """Of a fact its content, of a decision or an event its title."""
    members: list[str]
    """The nodes of this name in each scope in view, and those merged with it."""
    rank: int
    """Its place by the weight of its edges within the community; 1 is the first."""
    is_bridge: bool
    """Whether it joins this community to others."""
    bridge_score: float
    """How its edges are spread over communities: 0 where all stay in one, near 1 where they lead to
    many."""


class CommunityDetail(CommunityOut):
    """A community, its neighbours and a page of its nodes."""

    neighbours: list[NeighbourOut]
    """The communities that most weight leads to, at most 20."""
    nodes: list[CommunityNode]
    """Those that hold now, the first first."""
    next_cursor: str | None
    """For the next page of its nodes."""
