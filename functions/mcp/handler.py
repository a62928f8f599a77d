"""Serves the Model Context Protocol: memory as tools for agents."""

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.admin import routes_usage
from strandline.context import routes as context_routes
from strandline.graph import routes as graph_routes
from strandline.jobs import routes as jobs_routes
from strandline.log import routes_read, routes_write
from strandline.mcp.routes import serve_mcp
from strandline.personas import routes as personas_routes
from strandline.provenance import routes as provenance
from strandline.recall import routes as recall_routes
from strandline.resources import Resources
from strandline.status import routes as status_routes
from strandline.topics import routes_admin
from strandline.topics import routes_read as topics_routes_read

OPERATIONS = (
    (routes_read.ROUTES | routes_write.ROUTES | recall_routes.ROUTES | personas_routes.ROUTES)
    | (context_routes.ROUTES | topics_routes_read.ROUTES | graph_routes.ROUTES | provenance.ROUTES)
    | (routes_usage.ROUTES | status_routes.ROUTES | jobs_routes.ROUTES | routes_admin.ROUTES)
)
resources = Resources(load_model=True, load_auth=True)


def lambda_handler(event: dict[str, object], context: LambdaContext) -> dict[str, object]:
    """Serve one API Gateway proxy event."""
    return serve_mcp(OPERATIONS, resources, event, context)
