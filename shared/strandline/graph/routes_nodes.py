"""HTTP routes that store and read nodes of the graph."""

from strandline.errors import Conflict, Forbidden, NotFound
from strandline.graph import store_read
from strandline.graph.create import create_nodes
from strandline.graph.identity import format_node_id, parse_node_id
from strandline.graph.schemas_nodes import (
    CreateNodesAnswer,
    CreateNodesRequest,
    NodeOut,
    NodeQuery,
)
from strandline.graph.store_read import NodeRow
from strandline.http.request import Request
from strandline.http.routing import Response, Route, json_response
from strandline.log.routes_write import REPLAYED_HEADER, idempotency_key
from strandline.log.schemas_append import AppendHeaders


def post_nodes(request: Request) -> Response:
    """Store up to 50 nodes of the graph with their edges, all or none: 201 and their ids. Each
    node (a fact, decision, entity, event or topic) becomes a statement in the log, which recall
    finds, and rests on it. A node that the scope has already gets one more observation. A replay
    returns the same."""
    key = idempotency_key(request)
    answer, is_replay = create_nodes(request, request.parse_body(CreateNodesRequest), key)
    return json_response(answer, 201, {REPLAYED_HEADER: "true"} if is_replay else None)


def get_node(request: Request) -> Response:
    """A node of the graph by its id, joined over all scopes in view: with the nodes of its name
    there. With `as_of` it is told as it was known then."""
    query = request.parse_query(NodeQuery)
    access = request.connect_reader(query.participants)
    node_type, node_id = parse_node_id(request.path_parameter("node_id"))
    row = store_read.get_node(access, node_id, query.as_of)
    if row is None or row.type != node_type:
        raise NotFound("there is no such node in view")
    return json_response(_to_node(row))


def _to_node(row: NodeRow) -> NodeOut:
    properties = dict(row.properties)
    if row.type == "entity" and "category" in properties:
        properties["kind"] = properties.pop("category")
    return NodeOut.model_validate(
        {
            **vars(row),
            "id": format_node_id(row.type, row.node_id),
            "properties": properties,
            "members": [format_node_id(row.type, member) for member in row.member_ids],
        }
    )


ROUTES = {
    "POST /api/v1/graph/nodes": Route(
        post_nodes,
        "write",
        {201: CreateNodesAnswer},
        body=CreateNodesRequest,
        headers=AppendHeaders,
        response_headers={
            REPLAYED_HEADER: "`true` when all of it was already stored under the same key."
        },
        errors=(Forbidden, Conflict),
    ),
    "GET /api/v1/graph/nodes/{node_id}": Route(get_node, "read", {200: NodeOut}, query=NodeQuery),
}
