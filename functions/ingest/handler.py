"""Append over HTTPS."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.http import serve
from strandline.routes import ingest, sessions
from strandline.service import Service

ROUTES = ingest.ROUTES | sessions.ROUTES

service = Service(api=True)


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Serve one API Gateway proxy event."""
    return serve(ROUTES, service, event, context)
