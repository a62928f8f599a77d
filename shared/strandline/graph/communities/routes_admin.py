"""HTTP routes for a tenant's admins: start the graph analytics, and read the communities of the
tenant's whole graph."""

from datetime import UTC, datetime

from strandline.db.database import Caller, TenantDb
from strandline.errors import Forbidden, StateConflict, Unavailable
from strandline.graph.communities import read_communities
from strandline.graph.communities.schemas import (
    CommunitiesPage,
    CommunityDetail,
    TenantCommunitiesQuery,
)
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.jobs import admin_verbs
from strandline.jobs.schemas import JobOut
from strandline.schemas import PagingQuery, ParticipantsQuery


def trigger_analytics(request: Request) -> Response:
    """Start the analytics of the graph in the credential's tenant. They run whether or not they are
    due, as with `POST /api/v1/admin/jobs/analytics`. If they are queued or running already, the
    answer is a 409 with their `job_id`."""
    caller = Caller.background(request.principal.tenant)
    job = admin_verbs.start_job(
        request.resources.database.connect_as(caller, request.deadline),
        request.audit_context,
        request.resources.job_queue,
        "analytics",
        datetime.now(UTC),
    )
    return json_response(job, 202)


def list_tenant_communities(request: Request) -> Response:
    """Communities of the tenant's whole graph, the largest first. It joins nodes that have the same
    name in several scopes. Needs a credential that is not bound to a user."""
    query = request.parse_query(TenantCommunitiesQuery)
    access = _connect_for_whole_tenant(request)
    page = read_communities.list_communities(
        access, "tenant", query.node_id, query.cursor, query.limit
    )
    return json_response(page)


def get_tenant_community(request: Request) -> Response:
    """One community of the tenant's whole graph, with its neighbours and its nodes. Needs a
    credential that is not bound to a user."""
    query = request.parse_query(PagingQuery)
    access, community_id = _connect_for_whole_tenant(request), request.path_id("community_id")
    detail = read_communities.get_community(
        access, "tenant", community_id, query.cursor, query.limit
    )
    return json_response(detail)


def _connect_for_whole_tenant(request: Request) -> TenantDb:
    """The database on behalf of the whole tenant: these communities contain names that no single
    user may see. Raises Forbidden."""
    if request.principal.user:
        raise Forbidden(
            "The communities of the whole tenant need an admin's credential that is not bound to a"
            " user. GET /api/v1/graph/communities has those of the scopes that the user can see."
        )
    return request.connect_reader(ParticipantsQuery(everybody=True))


_COMMUNITY = "/api/v1/admin/communities/{community_id}"

ROUTES = {
    "POST /api/v1/admin/analytics/trigger": Route(
        trigger_analytics,
        "admin",
        {202: JobOut},
        errors=(StateConflict, Unavailable),
        audits_in_transaction=True,
    ),
    "GET /api/v1/admin/communities": Route(
        list_tenant_communities,
        "admin",
        {200: CommunitiesPage},
        query=TenantCommunitiesQuery,
        errors=(Forbidden,),
    ),
    f"GET {_COMMUNITY}": Route(
        get_tenant_community,
        "admin",
        {200: CommunityDetail},
        query=PagingQuery,
        errors=(Forbidden,),
    ),
}
