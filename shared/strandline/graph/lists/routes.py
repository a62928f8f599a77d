"""HTTP routes that list nodes, return their history and propose merges."""

from strandline.config import get_settings
from strandline.embeddings.store_space_figures import read_thresholds
from strandline.errors import Gone
from strandline.graph.changes.schemas import MergeProposals, MergeProposalsQuery
from strandline.graph.lists.nodes_and_history import list_node_page, read_node_history
from strandline.graph.lists.propose_merges import propose_merges
from strandline.graph.lists.schemas import NodeHistory, NodeHistoryQuery, NodePage, NodesQuery
from strandline.graph.nodes.identity import parse_node_id
from strandline.graph.nodes.observations import combines_confidences_by_halving_by_default
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.tenants.store_tuning import read_tuning


def get_nodes(request: Request) -> Response:
    """The nodes of the graph in view, joined over its scopes: filtered, sorted, in pages. Nodes
    that are archived or do not hold are left out by default. With `as_of`, the nodes as they were
    known then."""
    query = request.parse_query(NodesQuery)
    access = request.connect_reader(query)
    page = list_node_page(
        access, query, combines_by_halving=combines_confidences_by_halving_by_default()
    )
    request.metrics["GraphNodesRead"] = len(page.nodes)
    return json_response(page)


def get_node_history(request: Request) -> Response:
    """The observations about a node, oldest first: who said it, when, and the events it cites. For
    a fact, also the facts that it replaced and that replaced it."""
    query = request.parse_query(NodeHistoryQuery)
    access = request.connect_reader(query)
    node_type, node_id = parse_node_id(request.path_parameter("node_id"))
    return json_response(read_node_history(access, node_type, node_id, query))


def get_merge_proposals(request: Request) -> Response:
    """Pairs of nodes of one scope and type that may be the same. Their names or their vectors are
    similar. Facts are not proposed, and neither is a pair of which a statement says that both are
    not the same. Nothing is merged without a request."""
    query = request.parse_query(MergeProposalsQuery)
    access = request.connect_reader(query)
    space = request.embedder.space
    thresholds = read_thresholds(access, space, read_tuning(access, get_settings().tuning))
    return json_response(propose_merges(access, query, space, thresholds.merge))


ROUTES = {
    "GET /api/v1/graph/nodes": Route(
        get_nodes, "read", {200: NodePage}, query=NodesQuery, errors=(Gone,)
    ),
    "GET /api/v1/graph/nodes/{node_id}/history": Route(
        get_node_history, "read", {200: NodeHistory}, query=NodeHistoryQuery, errors=(Gone,)
    ),
    "GET /api/v1/graph/merges/proposals": Route(
        get_merge_proposals, "read", {200: MergeProposals}, query=MergeProposalsQuery
    ),
}
