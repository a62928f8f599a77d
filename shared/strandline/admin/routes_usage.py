"""HTTP routes of a tenant's usage and its model calls."""

from strandline.admin.schemas import TenantUsage
from strandline.admin.usage import list_model_calls, read_tenant_usage, require_unbound_or_admin
from strandline.db.database import Caller
from strandline.errors import Forbidden
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.llm.schemas_model_calls import ModelCallPage
from strandline.schemas import PagingQuery


def get_usage(request: Request) -> Response:
    """Get the tenant's current use of each quota. For admins and credentials bound to no user."""
    require_unbound_or_admin(request.principal)
    access = request.resources.database.connect_as(
        Caller.background(request.principal.tenant), request.deadline
    )
    return json_response(read_tenant_usage(access, request.resources.quotas))


def get_model_calls(request: Request) -> Response:
    """List the tenant's calls of language models, newest first: numbers and ids, no text. Calls are
    kept for 30 days, their monthly costs for good."""
    page = request.parse_query(PagingQuery)
    access = request.resources.database.connect_as(
        Caller.background(request.principal.tenant), request.deadline
    )
    return json_response(list_model_calls(access, page.limit, page.cursor))


ROUTES = {
    "GET /api/v1/usage": Route(get_usage, "read", {200: TenantUsage}, errors=(Forbidden,)),
    "GET /api/v1/model-calls": Route(
        get_model_calls,
        "admin",
        {200: ModelCallPage},
        query=PagingQuery,
        audits_refusals_only=True,
    ),
}
