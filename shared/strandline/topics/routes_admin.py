"""Admin routes for a tenant's topic index. They return ids, numbers and times, but no texts."""

from datetime import UTC, datetime

from strandline.config import get_settings
from strandline.db.database import Caller, TenantDb
from strandline.errors import NotFound, StateConflict
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.schemas import PagingQuery
from strandline.topics import snapshot_admin
from strandline.topics.schemas_admin import (
    DifferencePage,
    SnapshotDetail,
    SnapshotDifferenceQuery,
    SnapshotOut,
    SnapshotsPage,
    TopicIndexState,
)


def list_snapshots(request: Request) -> Response:
    """List the tenant's snapshots of the topic index, newest first. An inactive snapshot is kept
    for 30 days after its publication."""
    query = request.parse_query(PagingQuery)
    page = snapshot_admin.list_snapshots(
        _connect_as_background(request), query.cursor, query.limit, _now()
    )
    return json_response(page)


def get_snapshot(request: Request) -> Response:
    """Get one snapshot by its version."""
    return json_response(
        snapshot_admin.get_snapshot_with_size(
            _connect_as_background(request), _parse_version(request), _now()
        )
    )


def compare_snapshots(request: Request) -> Response:
    """List the differences between two snapshots: the nodes that only this version has, those that
    only `from` has, and those whose content or place differs."""
    query = request.parse_query(SnapshotDifferenceQuery)
    return json_response(
        snapshot_admin.compare_snapshots(
            _connect_as_background(request), _parse_version(request), query
        )
    )


def activate_snapshot(request: Request) -> Response:
    """Make an older snapshot active again. This publishes a new version with the same trees. The
    next build of a scope continues from there."""
    snapshot = snapshot_admin.republish_old_snapshot(
        _connect_as_background(request), request.audit_context, _parse_version(request), _now()
    )
    return json_response(snapshot, 201)


def get_state(request: Request) -> Response:
    """Show the pending work of the topic index. Includes when the next build is due, and what it
    would do."""
    has_model = get_settings().llm_provider != "none"
    state = snapshot_admin.describe_index_state(
        _connect_as_background(request), _now(), has_model=has_model
    )
    return json_response(state)


def _parse_version(request: Request) -> int:
    """Parse the version in the path. Raises NotFound for a text that is not a version."""
    text = request.path_parameter("version")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise NotFound("There is no snapshot with this version; old ones are collected.")
    return int(text)


def _connect_as_background(request: Request) -> TenantDb:
    """Connect on behalf of the whole tenant, even if the key is bound to a user."""
    caller = Caller.background(request.principal.tenant)
    return request.resources.database.connect_as(caller, request.deadline)


def _now() -> datetime:
    return datetime.now(UTC)


_SNAPSHOT = "/api/v1/admin/snapshots/{version}"

ROUTES = {
    "GET /api/v1/admin/topics": Route(get_state, "admin", {200: TopicIndexState}),
    "GET /api/v1/admin/snapshots": Route(
        list_snapshots, "admin", {200: SnapshotsPage}, query=PagingQuery
    ),
    f"GET {_SNAPSHOT}": Route(get_snapshot, "admin", {200: SnapshotDetail}),
    f"GET {_SNAPSHOT}/difference": Route(
        compare_snapshots, "admin", {200: DifferencePage}, query=SnapshotDifferenceQuery
    ),
    f"POST {_SNAPSHOT}/activate": Route(
        activate_snapshot,
        "admin",
        {201: SnapshotOut},
        errors=(StateConflict,),
        audits_in_transaction=True,
    ),
}
