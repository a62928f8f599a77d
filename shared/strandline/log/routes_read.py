"""Reading events, scopes and memories by CID over HTTP."""

from strandline.config import get_settings
from strandline.http.app import MediaType, Request, Response, Route, binary_response, json_response
from strandline.log import read
from strandline.log.schemas import (
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
from strandline.schemas import PagingQuery, ParticipantsQuery

# A block never changes, but who may see it can: caches may keep it for their own user only.
_IMMUTABLE = {"Cache-Control": "private, max-age=300, immutable"}
_BLOCK_TYPE = MediaType("application/vnd.ipld.raw")


def get_event(request: Request) -> Response:
    """One event, by its id."""
    access = request.connect_reader(request.parse_query(ParticipantsQuery).participants)
    return json_response(read.get_event(access, request.path_id("event_id")))


def query_events(request: Request) -> Response:
    """Raw events as a rooted tree: the query, its scopes, their events by seq. A page is the newest
    that fit."""
    participants = request.parse_query(ParticipantsQuery).participants
    body = request.parse_body(EventQuery)
    return json_response(
        read.query_events(request.connect_reader(body.participants or participants), body)
    )


def list_events(request: Request) -> Response:
    """Everything in view, newest first."""
    page = request.parse_query(PagingQuery)
    return json_response(
        read.list_events(request.connect_reader(page.participants), page.limit, page.cursor)
    )


def list_scopes(request: Request) -> Response:
    """Scopes in view, newest first by when they were made."""
    page = request.parse_query(PagingQuery)
    return json_response(
        read.list_scopes(request.connect_reader(page.participants), page.limit, page.cursor)
    )


def get_scope(request: Request) -> Response:
    """One scope, by its id: who took part, and how far its log goes."""
    access = request.connect_reader(request.parse_query(ParticipantsQuery).participants)
    return json_response(read.get_scope(access, request.path_id("scope_id")))


def feed(request: Request) -> Response:
    """A scope's events after a seq, in order: the only feed. Nothing is missed and nothing comes
    twice."""
    query = request.parse_query(FeedQuery)
    access = request.connect_reader(query.participants)
    return json_response(
        read.read_feed(access, request.path_id("scope_id"), query.after_seq, query.limit)
    )


def get_memory(request: Request) -> Response:
    """The earliest event in view with this CID."""
    access = request.connect_reader(request.parse_query(ParticipantsQuery).participants)
    return json_response(read.get_memory(access, request.path_parameter("cid")))


def get_block(request: Request) -> Response:
    """A memory's block as it is hashed: raw DAG-CBOR, for whoever wants to verify it."""
    access = request.connect_reader(request.parse_query(ParticipantsQuery).participants)
    cid = request.path_parameter("cid")
    headers = {"Etag": f'"{cid}"', "X-Content-Type-Options": "nosniff", **_IMMUTABLE}
    return binary_response(read.get_block(access, cid), _BLOCK_TYPE.type, headers)


def get_file(request: Request) -> Response:
    """A payload by its CID: a redirect to a presigned URL, which the body names too."""
    access = request.connect_reader(request.parse_query(ParticipantsQuery).participants)
    seconds = get_settings().presign_seconds
    file = read.get_file(access, request.resources.blobs, request.path_parameter("cid"), seconds)
    return json_response(file, 307, {"Location": file.url, "Cache-Control": "no-store"})


ROUTES = {
    "GET /api/v1/events/{event_id}": Route(
        get_event, "read", {200: EventOut}, query=ParticipantsQuery
    ),
    "POST /api/v1/events/query": Route(
        query_events, "read", {200: EventTree}, query=ParticipantsQuery, body=EventQuery
    ),
    "GET /api/v1/scopes": Route(list_scopes, "read", {200: ScopePage}, query=PagingQuery),
    "GET /api/v1/scopes/{scope_id}": Route(
        get_scope, "read", {200: ScopeOut}, query=ParticipantsQuery
    ),
    "GET /api/v1/scopes/{scope_id}/events": Route(feed, "read", {200: FeedPage}, query=FeedQuery),
    "GET /memories/list": Route(list_events, "read", {200: EventPage}, query=PagingQuery),
    "GET /memory/{cid}": Route(get_memory, "read", {200: EventOut}, query=ParticipantsQuery),
    "GET /ipfs/{cid}": Route(
        get_block,
        "read",
        {200: _BLOCK_TYPE},
        query=ParticipantsQuery,
        response_headers={
            "Etag": "The CID.",
            "Cache-Control": "For this user's own cache only.",
            "X-Content-Type-Options": "`nosniff`.",
        },
    ),
    "GET /file/{cid}": Route(
        get_file,
        "read",
        {307: FileOut},
        query=ParticipantsQuery,
        response_headers={"Location": "The presigned URL.", "Cache-Control": "`no-store`."},
    ),
}
