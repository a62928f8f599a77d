"""HTTP routes of sonas."""

from strandline.config import get_settings
from strandline.db.database import NOBODY, Caller, TenantDb
from strandline.embeddings.store_space_figures import read_thresholds
from strandline.errors import Forbidden, StateConflict
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.http.writer import make_caller
from strandline.personas import sonas
from strandline.personas.schemas import (
    FindOrMakeSonaRequest,
    RecordedSonaMemories,
    SonaDetail,
    SonaFound,
    SonaMemoriesRequest,
    SonaMergeRequest,
    SonaNamesPatch,
    SonaOut,
    SonaPage,
    SonaQuery,
    SonasQuery,
)

SONA = "/api/v1/sonas/{uuid}"
"""The path of one sona."""


def post_sona(request: Request) -> Response:
    """Look up a sona by its name, or make one. If the name is exactly the same: 200, `found_by` is
    `name`. Else the sona whose name is nearest in meaning, if it is as near as the embedding space
    requires: 200, `meaning`. Else a new one: 201, `new`. Two concurrent calls make one sona. A sona
    belongs to its writer: a bound user, or all unbound credentials together. Also needs the right
    to read, as the answer tells names."""
    request.principal.require_right("read")
    body = request.parse_body(FindOrMakeSonaRequest)
    sona = sonas.find_or_make_sona(
        connect_as_sona_owner(request), body.name, make_name_match_settings(request)
    )
    return json_response(sona, 201 if sona.found_by == "new" else 200)


def get_sona(request: Request) -> Response:
    """Get a sona by its id. Its centroid is the mean of the vectors of the events in view in which
    it was active. For a sona that was merged, returns the sona that it was merged into."""
    query = request.parse_query(SonaQuery)
    access = request.connect_reader(query)
    space = request.embedder.space
    with_centroid = query.include == "centroid"
    return json_response(
        sonas.get_sona(access, request.path_id("uuid"), space, with_centroid=with_centroid)
    )


def list_sonas(request: Request) -> Response:
    """List the writer's sonas, newest first. Those that were merged into others are left out."""
    query = request.parse_query(SonasQuery)
    return json_response(
        sonas.list_sonas(connect_as_sona_owner(request), query.limit, query.cursor)
    )


def patch_sona(request: Request) -> Response:
    """Replace all names of a sona. A name that another sona of yours has is a 409. Also needs the
    right to read."""
    request.principal.require_right("read")
    body = request.parse_body(SonaNamesPatch)
    return json_response(
        sonas.rename_sona(connect_as_sona_owner(request), request.path_id("uuid"), body.names)
    )


def merge_sona(request: Request) -> Response:
    """Merge a sona into another one. Its names then lead to the other one, and its memories count
    there, each once. Its thread of acts ends, but can still be read under its own id. Returns the
    other sona. A repeated request changes nothing. A merge cannot be undone. Also needs the right
    to read."""
    request.principal.require_right("read")
    body = request.parse_body(SonaMergeRequest)
    caller = make_caller(request.principal)
    return json_response(
        sonas.merge_sonas(
            request.resources.database,
            caller,
            request.deadline,
            request.path_id("uuid"),
            body.into,
        )
    )


def add_sona_memories(request: Request) -> Response:
    """Record that a sona was active in up to 500 visible events. Repeating an event changes
    nothing. An event with the sona's id as `metadata.sona` is recorded automatically."""
    body = request.parse_body(SonaMemoriesRequest)
    access = request.connect_writer()
    space = request.embedder.space
    return json_response(
        sonas.record_sona_memories(access, request.path_id("uuid"), body.event_ids, space)
    )


def connect_as_sona_owner(request: Request) -> TenantDb:
    """The database on behalf of the request's writer, with its sonas but no memory in view."""
    principal = request.principal
    caller = Caller(principal.tenant, (NOBODY,), principal.user or NOBODY)
    return request.resources.database.connect_as(caller, request.deadline)


def make_name_match_settings(request: Request) -> sonas.NameMatchSettings:
    """How this deployment compares names by meaning."""
    settings, embedder = get_settings(), request.embedder
    access = connect_as_sona_owner(request)
    threshold = read_thresholds(access, embedder.space, settings.tuning).merge
    return sonas.NameMatchSettings(embedder, threshold, settings.query_vector_seconds)


ROUTES = {
    "POST /api/v1/sonas": Route(
        post_sona,
        "write",
        {200: SonaFound, 201: SonaFound},
        body=FindOrMakeSonaRequest,
        errors=(Forbidden,),
    ),
    "GET /sona/{uuid}": Route(get_sona, "read", {200: SonaDetail}, query=SonaQuery),
    "GET /sonas/list": Route(list_sonas, "read", {200: SonaPage}, query=SonasQuery),
    f"PATCH {SONA}": Route(
        patch_sona, "write", {200: SonaOut}, body=SonaNamesPatch, errors=(Forbidden, StateConflict)
    ),
    f"POST {SONA}/merge": Route(
        merge_sona, "write", {200: SonaOut}, body=SonaMergeRequest, errors=(Forbidden,)
    ),
    f"POST {SONA}/memories": Route(
        add_sona_memories, "write", {200: RecordedSonaMemories}, body=SonaMemoriesRequest
    ),
}
