"""Serves operator calls (tenants, keys, certificates, audit trail, jobs) and the API document."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.admin import routes as admin_routes
from strandline.apidocs import routes as apidocs_routes
from strandline.graph.communities import routes_admin as graph_routes_admin
from strandline.http.app import serve
from strandline.jobs import routes as jobs_routes
from strandline.resources import Resources
from strandline.topics import routes_admin as topics_routes_admin

ROUTES = (
    admin_routes.ROUTES
    | jobs_routes.ROUTES
    | topics_routes_admin.ROUTES
    | graph_routes_admin.ROUTES
    | apidocs_routes.ROUTES
)

resources = Resources(load_auth=True)


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Serve one API Gateway proxy event."""
    return serve(ROUTES, resources, event, context)
