"""HTTP routes of provenance."""

from strandline.graph.nodes.identity import parse_node_id
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.provenance.schemas import ProvenanceOut, ProvenanceQuery
from strandline.provenance.trace import trace_provenance


def get_provenance(request: Request) -> Response:
    """Trace the provenance of an id. For an event: its chain, the topics above it in the active
    snapshot, the events whose edges cite it, its vectors, and the knowledge graph items derived
    from it. For a chain, a topic (by slot or by node), a snapshot, or a node or edge of the graph:
    what it is derived from, down to the events."""
    query = request.parse_query(ProvenanceQuery)
    access = request.connect_reader(query)
    row_id = request.path_parameter("row_id")
    node_id = parse_node_id(row_id)[1] if ":" in row_id else request.path_id("row_id")
    return json_response(trace_provenance(access, node_id, query.limit, query.cursor))


ROUTES = {
    "GET /api/v1/provenance/{row_id}": Route(
        get_provenance, "read", {200: ProvenanceOut}, query=ProvenanceQuery
    ),
}
