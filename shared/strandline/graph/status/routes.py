"""The HTTP route of the graph's state."""

from datetime import UTC, datetime

from strandline.graph.status.read_status import read_status
from strandline.graph.status.schemas import GraphStatus
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.schemas import ParticipantsQuery


def get_graph_status(request: Request) -> Response:
    """The state of the graph in view: its counts by type, its size, the progress of promotion and
    analysis, and its use."""
    query = request.parse_query(ParticipantsQuery)
    access = request.connect_reader(query)
    return json_response(read_status(access, datetime.now(UTC)))


ROUTES = {
    "GET /api/v1/graph/status": Route(
        get_graph_status, "read", {200: GraphStatus}, query=ParticipantsQuery
    ),
}
