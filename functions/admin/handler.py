"""Tenants, keys, certificates, the audit trail and jobs over HTTPS; the API's document, for all."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.http import serve
from strandline.routes import admin, certificates_admin, docs, jobs_admin
from strandline.service import Service

ROUTES = admin.ROUTES | certificates_admin.ROUTES | jobs_admin.ROUTES | docs.ROUTES

service = Service(api=True)


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Serve one API Gateway proxy event."""
    return serve(ROUTES, service, event, context)
