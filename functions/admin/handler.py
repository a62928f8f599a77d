"""Tenants, keys, the audit trail and jobs over HTTPS; the API's document, for all."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.http import serve
from strandline.routes import admin, docs, jobs_admin
from strandline.service import Service

ROUTES = admin.ROUTES | jobs_admin.ROUTES | docs.ROUTES

service = Service()


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Serve one API Gateway proxy event."""
    return serve(ROUTES, service, event, context)
