"""HTTP routes that store and read nodes of the graph."""

from strandline.errors import Conflict, Forbidden, Gone, NotFound
from strandline.graph.changes.create import create_nodes
from strandline.graph.nodes import store_read_nodes
from strandline.graph.nodes.answers import to_node_out
from strandline.graph.nodes.confidence_combination import combines_by_halving_by_default
from strandline.graph.nodes.identity import parse_node_id
from strandline.graph.nodes.schemas import (
    CreateNodesAnswer,
    CreateNodesRequest,
    GetNodeQuery,
    NodeOut,
)
from strandline.http.request import Request
from strandline.http.routes_and_responses import (
    Response,
    Route,
    json_response,
    replayable_response,
)
from strandline.http.schemas_idempotency import REPLAYED_HEADER, IdempotencyHeaders


def post_nodes(request: Request) -> Response:
    """Store up to 50 nodes of the graph with their edges, all or none: 201 and their ids. Each node
    (a fact, decision, entity, event or topic) rests on a statement in the log, which recall finds.
    A node that the scope already has gets one more observation. A replay returns the same."""
    key = request.idempotency_key
    change = create_nodes(request.writer, request.parse_body(CreateNodesRequest), key)
    request.metrics |= change.metrics
    return replayable_response(change.answer, 201, is_replay=change.is_replay)


def get_node(request: Request) -> Response:
    """A node of the graph by its id. It is joined with the nodes of the same name in all scopes in
    view. With `as_of`, the node as it was known then."""
    query = request.parse_query(GetNodeQuery)
    access = request.connect_reader(query)
    node_type, node_id = parse_node_id(request.path_parameter("node_id"))
    row = store_read_nodes.find_joined_node(
        access, node_id, query.as_of, combines_by_halving=combines_by_halving_by_default()
    )
    if row is None or row.type != node_type:
        raise NotFound("there is no such node in view")
    return json_response(to_node_out(row))


ROUTES = {
    "POST /api/v1/graph/nodes": Route(
        post_nodes,
        "write",
        {201: CreateNodesAnswer},
        body=CreateNodesRequest,
        headers=IdempotencyHeaders,
        response_headers={
            REPLAYED_HEADER: "`true` when all of it was already stored under the same key."
        },
        errors=(Forbidden, Conflict, Gone),
    ),
    "GET /api/v1/graph/nodes/{node_id}": Route(
        get_node, "read", {200: NodeOut}, query=GetNodeQuery
    ),
}
