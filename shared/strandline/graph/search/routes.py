"""HTTP routes that search the graph and follow its edges."""

from collections.abc import Sequence

from strandline.config import get_settings
from strandline.errors import NotFound
from strandline.graph.nodes.confidence_combination import combines_by_halving_by_default
from strandline.graph.search.schemas import (
    GraphOut,
    GraphSearchRequest,
    NearestTopicsRequest,
    TraverseRequest,
)
from strandline.graph.search.search import Finder, find_nearest_topics, search_nodes
from strandline.graph.search.traverse import traverse
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.schemas import ParticipantsQuery


def post_search(request: Request) -> Response:
    """Search the graph: by the meaning and words of a question, by a part of a text, or along the
    edges of the nodes that a question names. A node is joined over all scopes in view. A new node
    is found by its name and words at once, and by its meaning once a worker has embedded it."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(GraphSearchRequest)
    finder = make_finder(request, query, body.participants)
    return _answer(request, search_nodes(finder, body))


def post_nearest_topics(request: Request) -> Response:
    """The topics most similar to a text, nearest first. Archived topics are left out by default."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(NearestTopicsRequest)
    finder = make_finder(request, query, body.participants)
    return _answer(request, find_nearest_topics(finder, body))


def post_traverse(request: Request) -> Response:
    """Follow edges from a node, up to three in a row. Returns the node, the nodes that it leads to,
    and the edges between them. Nodes are joined over all scopes in view."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(TraverseRequest)
    access = request.connect_reader(query, body.participants)
    return _answer(
        request, traverse(access, body, combines_by_halving=combines_by_halving_by_default())
    )


def make_finder(
    request: Request, query: ParticipantsQuery, participants: Sequence[str] | None
) -> Finder:
    """Build the finder for a request, on behalf of its caller and the participants of its query
    string and body."""
    return Finder(
        request.connect_reader(query, participants),
        request.resources.embedder,
        get_settings().query_vector_seconds,
        combines_by_halving_by_default(),
    )


def _answer(request: Request, answer: GraphOut) -> Response:
    request.metrics |= {
        "GraphNodesRead": len(answer.nodes),
        "GraphEdgesRead": len(answer.edges),
        "GraphReadsEmpty": int(not answer.nodes),
    }
    return json_response(answer)


ROUTES = {
    "POST /api/v1/graph/search": Route(
        post_search,
        "read",
        {200: GraphOut},
        query=ParticipantsQuery,
        body=GraphSearchRequest,
        errors=(NotFound,),
    ),
    "POST /api/v1/graph/topics/nearest": Route(
        post_nearest_topics,
        "read",
        {200: GraphOut},
        query=ParticipantsQuery,
        body=NearestTopicsRequest,
    ),
    "POST /api/v1/graph/traverse": Route(
        post_traverse,
        "read",
        {200: GraphOut},
        query=ParticipantsQuery,
        body=TraverseRequest,
        errors=(NotFound,),
    ),
}
