"""Serves appends over HTTPS."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.http.app import serve
from strandline.log import routes_write as log_routes_write
from strandline.resources import Resources
from strandline.sessions import routes_write as sessions_routes_write

ROUTES = log_routes_write.ROUTES | sessions_routes_write.ROUTES

resources = Resources(load_auth=True)


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Serve one API Gateway proxy event."""
    return serve(ROUTES, resources, event, context)
