"""Serves reads and recall over HTTPS, and the append that needs recall."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.admin import routes_usage as usage
from strandline.console import routes as console
from strandline.context import routes as session_context
from strandline.erasure import routes as erasure
from strandline.graph import routes as graph
from strandline.http.app import serve
from strandline.log import routes_read as log
from strandline.personas import routes as personas
from strandline.provenance import routes as provenance
from strandline.recall import routes as recall
from strandline.resources import Resources
from strandline.sessions import routes_read as sessions
from strandline.status import routes as status
from strandline.topics import routes_read as topics

READS = (log, recall, usage, status, sessions, topics, session_context, provenance)
ROOMS = (*READS, graph, personas, erasure, console)
ROUTES = {name: route for room in ROOMS for name, route in room.ROUTES.items()}
resources = Resources(load_model=True, load_auth=True)


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Serve one API Gateway proxy event."""
    return serve(ROUTES, resources, event, context)
