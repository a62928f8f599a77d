"""Serves reads and recall over HTTPS, and the append that needs recall."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.admin import routes_usage
from strandline.context import routes as context_routes
from strandline.graph import routes as graph_routes
from strandline.http.app import serve
from strandline.log import routes_read as log_routes_read
from strandline.personas import routes as personas_routes
from strandline.recall import routes as recall_routes
from strandline.resources import Resources
from strandline.sessions import routes_read as sessions_routes_read
from strandline.status import routes as status_routes
from strandline.topics import routes_read as topics_routes_read

ROUTES = (
    (log_routes_read.ROUTES | recall_routes.ROUTES | personas_routes.ROUTES)
    | (routes_usage.ROUTES | status_routes.ROUTES | sessions_routes_read.ROUTES)
    | (context_routes.ROUTES | topics_routes_read.ROUTES | graph_routes.ROUTES)
)

resources = Resources(load_model=True, load_auth=True)


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Serve one API Gateway proxy event."""
    return serve(ROUTES, resources, event, context)
