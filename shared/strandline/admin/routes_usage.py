"""A tenant's usage and its model calls over HTTP."""

from strandline.admin.schemas_tenants import Usage
from strandline.admin.usage import list_model_calls, require_tenants_own, usage
from strandline.db.database import Asker
from strandline.errors import Forbidden
from strandline.http.app import Answer, Request, Route, answer
from strandline.llm.schemas import ModelCallPage
from strandline.schemas import ListQuery


def get_usage(request: Request) -> Answer:
    """What the tenant uses of each quota, now: for admins, and credentials bound to no user."""
    require_tenants_own(request.principal)
    access = request.service.database.access(
        Asker.background(request.principal.tenant), request.deadline
    )
    return answer(usage(access, request.service.quotas))


def get_model_calls(request: Request) -> Answer:
    """The tenant's calls of language models, newest first: numbers and ids, no text. They are kept
    for 30 days; what a month cost stays."""
    page = request.query(ListQuery)
    access = request.service.database.access(
        Asker.background(request.principal.tenant), request.deadline
    )
    return answer(list_model_calls(access, page.limit, page.cursor))


ROUTES = {
    "GET /api/v1/usage": Route(get_usage, "read", {200: Usage}, errors=(Forbidden,)),
    "GET /api/v1/model-calls": Route(
        get_model_calls,
        "admin",
        {200: ModelCallPage},
        query=ListQuery,
        numbers_only=True,
    ),
}
