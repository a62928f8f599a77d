"""HTTP routes that list and explore the communities of the scopes in view."""

from strandline.graph.communities import read_communities
from strandline.graph.communities.schemas import (
    CommunitiesPage,
    CommunitiesQuery,
    CommunityDetail,
    CommunityQuery,
)
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response


def list_communities(request: Request) -> Response:
    """Communities of the graph, the largest first: groups of nodes that are linked more strongly to
    each other than to others. Each belongs to one scope's graph and shows its last analysis. A
    graph that changes is analysed at the next 03:00 UTC."""
    query = request.parse_query(CommunitiesQuery)
    access = request.connect_reader(query)
    page = read_communities.list_communities(
        access, "scopes", query.node_id, query.cursor, query.limit
    )
    return json_response(page)


def get_community(request: Request) -> Response:
    """One community: its nodes by the weight of their edges within it, the nodes that bridge it to
    others, and its neighbouring communities."""
    query = request.parse_query(CommunityQuery)
    access = request.connect_reader(query)
    community_id = request.path_id("community_id")
    detail = read_communities.get_community(
        access, "scopes", community_id, query.cursor, query.limit
    )
    return json_response(detail)


ROUTES = {
    "GET /api/v1/graph/communities": Route(
        list_communities, "read", {200: CommunitiesPage}, query=CommunitiesQuery
    ),
    "GET /api/v1/graph/communities/{community_id}": Route(
        get_community, "read", {200: CommunityDetail}, query=CommunityQuery
    ),
}
