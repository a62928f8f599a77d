"""HTTP routes that store, read and change nodes and edges. What changes them is a statement in the
log."""

from pydantic import BaseModel

from strandline.errors import Conflict, Forbidden, Gone, NotFound
from strandline.graph.changes.create import create_nodes
from strandline.graph.changes.invalidate_fact import invalidate_fact
from strandline.graph.changes.merge import merge_nodes, refuse_merge, undo_merge
from strandline.graph.changes.relate import end_edge, relate_nodes
from strandline.graph.changes.schemas import (
    EndedEdge,
    EndEdgeRequest,
    InvalidatedFact,
    InvalidationRequest,
    MergeRefusalRequest,
    MergeRequest,
    MergeUndoRequest,
    NodePatch,
    RefusedMerge,
    RelationsAnswer,
    RelationsRequest,
    StoredChange,
    StoredMerge,
    UndoneMerge,
)
from strandline.graph.changes.statement_writes import GraphChange
from strandline.graph.changes.update_node import update_node
from strandline.graph.nodes import store_read_nodes
from strandline.graph.nodes.answers import to_node_out
from strandline.graph.nodes.identity import parse_node_id
from strandline.graph.nodes.observations import combines_confidences_by_halving_by_default
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
    body = request.parse_body(CreateNodesRequest)
    return _respond_with_change(request, 201, create_nodes(request.writer, body, key))


def get_node(request: Request) -> Response:
    """A node of the graph by its id. It is joined with the nodes of the same name in all scopes in
    view. With `as_of`, the node as it was known then."""
    query = request.parse_query(GetNodeQuery)
    access = request.connect_reader(query)
    node_type, node_id = parse_node_id(request.path_parameter("node_id"))
    row = store_read_nodes.find_node_across_scopes(
        access,
        node_id,
        query.as_of,
        combines_by_halving=combines_confidences_by_halving_by_default(),
    )
    if row is None or row.type != node_type:
        raise NotFound("there is no such node in view")
    return json_response(to_node_out(row))


def patch_node(request: Request) -> Response:
    """Change the given fields of a node. The content of a fact, a title or a name cannot change:
    the answer says what to do instead. Lists leave out a node with `archived`. A replay returns the
    same."""
    key = request.idempotency_key
    body, node_id = request.parse_body(NodePatch), request.path_parameter("node_id")
    return _respond_with_change(request, 200, update_node(request.writer, node_id, body, key))


def post_node_invalidation(request: Request) -> Response:
    """End the valid time of a fact, with a reason. The fact is kept, and `as_of` still shows it. A
    replacement can be stated in the same request, or named by its id. A replay returns the same."""
    key = request.idempotency_key
    body, node_id = request.parse_body(InvalidationRequest), request.path_parameter("node_id")
    return _respond_with_change(request, 201, invalidate_fact(request.writer, node_id, body, key))


def post_edges(request: Request) -> Response:
    """Store up to 50 edges between existing nodes, all or none: 201 and their ids. An unknown type
    becomes RELATES_TO, and the answer says so. An edge that the scope already has gets one more
    observation. A replay returns the same."""
    key = request.idempotency_key
    return _respond_with_change(
        request, 201, relate_nodes(request.writer, request.parse_body(RelationsRequest), key)
    )


def post_edge_end(request: Request) -> Response:
    """End the valid time of an edge. The edge is kept, and holds again if it is stated again. A
    replay returns the same."""
    key = request.idempotency_key
    body = request.parse_body(EndEdgeRequest)
    return _respond_with_change(
        request, 201, end_edge(request.writer, request.path_id("edge_id"), body, key)
    )


def post_merge(request: Request) -> Response:
    """State that two nodes of a scope are the same. The first one, and all nodes merged into it,
    are read as the second one. A merge can be undone. A replay returns the same."""
    key = request.idempotency_key
    return _respond_with_change(
        request, 201, merge_nodes(request.writer, request.parse_body(MergeRequest), key)
    )


def post_merge_refusal(request: Request) -> Response:
    """State that two nodes of a scope are not the same: it is not proposed again to merge them.
    They can still be merged. A replay returns the same."""
    key = request.idempotency_key
    body = request.parse_body(MergeRefusalRequest)
    return _respond_with_change(request, 201, refuse_merge(request.writer, body, key))


def post_merge_undo(request: Request) -> Response:
    """Undo a merge: its nodes are read as they were before. A replay returns the same."""
    key = request.idempotency_key
    body = request.parse_body(MergeUndoRequest)
    return _respond_with_change(
        request, 201, undo_merge(request.writer, request.path_id("merge_id"), body, key)
    )


def _respond_with_change[Answer: BaseModel](
    request: Request, status: int, change: GraphChange[Answer]
) -> Response:
    request.metrics |= change.metrics
    return replayable_response(change.answer, status, is_replay=change.is_replay)


_REPLAY_HEADERS = {REPLAYED_HEADER: "`true` when it was already stored under the same key."}
_ERRORS = (Forbidden, Conflict, Gone)

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
        errors=(*_ERRORS, NotFound),
    ),
    "GET /api/v1/graph/nodes/{node_id}": Route(
        get_node, "read", {200: NodeOut}, query=GetNodeQuery
    ),
    "PATCH /api/v1/graph/nodes/{node_id}": Route(
        patch_node,
        "write",
        {200: StoredChange},
        body=NodePatch,
        headers=IdempotencyHeaders,
        response_headers=_REPLAY_HEADERS,
        errors=_ERRORS,
    ),
    "POST /api/v1/graph/nodes/{node_id}/invalidate": Route(
        post_node_invalidation,
        "write",
        {201: InvalidatedFact},
        body=InvalidationRequest,
        headers=IdempotencyHeaders,
        response_headers=_REPLAY_HEADERS,
        errors=_ERRORS,
    ),
    "POST /api/v1/graph/edges": Route(
        post_edges,
        "write",
        {201: RelationsAnswer},
        body=RelationsRequest,
        headers=IdempotencyHeaders,
        response_headers=_REPLAY_HEADERS,
        errors=(*_ERRORS, NotFound),
    ),
    "POST /api/v1/graph/edges/{edge_id}/end": Route(
        post_edge_end,
        "write",
        {201: EndedEdge},
        body=EndEdgeRequest,
        headers=IdempotencyHeaders,
        response_headers=_REPLAY_HEADERS,
        errors=_ERRORS,
    ),
    "POST /api/v1/graph/merges": Route(
        post_merge,
        "write",
        {201: StoredMerge},
        body=MergeRequest,
        headers=IdempotencyHeaders,
        response_headers=_REPLAY_HEADERS,
        errors=_ERRORS,
    ),
    "POST /api/v1/graph/merges/refusals": Route(
        post_merge_refusal,
        "write",
        {201: RefusedMerge},
        body=MergeRefusalRequest,
        headers=IdempotencyHeaders,
        response_headers=_REPLAY_HEADERS,
        errors=_ERRORS,
    ),
    "POST /api/v1/graph/merges/{merge_id}/undo": Route(
        post_merge_undo,
        "write",
        {201: UndoneMerge},
        body=MergeUndoRequest,
        headers=IdempotencyHeaders,
        response_headers=_REPLAY_HEADERS,
        errors=_ERRORS,
    ),
}
