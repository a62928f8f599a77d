"""HTTP routes that read events, scopes, memories by CID, and payloads."""

from strandline.config import get_settings
from strandline.errors import Gone
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.log import read, routes_blocks
from strandline.log.schemas_read import (
    EventOut,
    EventPage,
    EventQuery,
    EventTree,
    FeedPage,
    FeedQuery,
    FileOut,
    ScopeOut,
    ScopePage,
)
from strandline.schemas import ParticipantsPagingQuery, ParticipantsQuery


def get_event(request: Request) -> Response:
    """Get one event by its id."""
    access = request.connect_reader(request.parse_query(ParticipantsQuery))
    return json_response(read.get_event(access, request.path_id("event_id")))


def query_events(request: Request) -> Response:
    """Query raw events: a tree of the query, its scopes, and their events by seq. A page holds the
    newest events that fit."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(EventQuery)
    access = request.connect_reader(query, body.participants)
    return json_response(read.query_events(access, body))


def list_events(request: Request) -> Response:
    """List all visible events, newest first."""
    page = request.parse_query(ParticipantsPagingQuery)
    return json_response(read.list_events(request.connect_reader(page), page.limit, page.cursor))


def list_scopes(request: Request) -> Response:
    """List the visible scopes, newest first by creation time."""
    page = request.parse_query(ParticipantsPagingQuery)
    return json_response(read.list_scopes(request.connect_reader(page), page.limit, page.cursor))


def get_scope(request: Request) -> Response:
    """Get one scope by its id: its participants and the last seq of its log."""
    access = request.connect_reader(request.parse_query(ParticipantsQuery))
    return json_response(read.get_scope(access, request.path_id("scope_id")))


def feed(request: Request) -> Response:
    """Read a scope's events after a seq, in order. This is the only feed: no event is missed or
    returned twice."""
    query = request.parse_query(FeedQuery)
    access = request.connect_reader(query)
    return json_response(
        read.read_feed(access, request.path_id("scope_id"), query.after_seq, query.limit)
    )


def get_memory(request: Request) -> Response:
    """Get the earliest visible event with this CID."""
    access = request.connect_reader(request.parse_query(ParticipantsQuery))
    return json_response(read.get_memory(access, request.path_parameter("cid")))


def get_file(request: Request) -> Response:
    """Get a payload by its CID: a redirect to a presigned URL, which the body contains too."""
    access = request.connect_reader(request.parse_query(ParticipantsQuery))
    seconds = get_settings().presign_seconds
    file = read.get_file(access, request.resources.blobs, request.path_parameter("cid"), seconds)
    return json_response(file, 307, {"Location": file.url, "Cache-Control": "no-store"})


ROUTES = {
    "GET /api/v1/events/{event_id}": Route(
        get_event, "read", {200: EventOut}, query=ParticipantsQuery, errors=(Gone,)
    ),
    "POST /api/v1/events/query": Route(
        query_events,
        "read",
        {200: EventTree},
        query=ParticipantsQuery,
        body=EventQuery,
        errors=(Gone,),
    ),
    "GET /api/v1/scopes": Route(
        list_scopes, "read", {200: ScopePage}, query=ParticipantsPagingQuery
    ),
    "GET /api/v1/scopes/{scope_id}": Route(
        get_scope, "read", {200: ScopeOut}, query=ParticipantsQuery
    ),
    "GET /api/v1/scopes/{scope_id}/events": Route(feed, "read", {200: FeedPage}, query=FeedQuery),
    "GET /memories/list": Route(
        list_events, "read", {200: EventPage}, query=ParticipantsPagingQuery, errors=(Gone,)
    ),
    "GET /memory/{cid}": Route(get_memory, "read", {200: EventOut}, query=ParticipantsQuery),
    "GET /file/{cid}": Route(
        get_file,
        "read",
        {307: FileOut},
        query=ParticipantsQuery,
        response_headers={"Location": "The presigned URL.", "Cache-Control": "`no-store`."},
    ),
} | routes_blocks.ROUTES
