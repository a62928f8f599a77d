"""Reading events, scopes and memories by CID over HTTP."""

from strandline.config import settings
from strandline.http.app import Answer, Media, Request, Route, answer, binary
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
from strandline.schemas import OnBehalf, Paging

# A block never changes, but who may see it can: caches may keep it for their own user only.
_IMMUTABLE = {"Cache-Control": "private, max-age=300, immutable"}
_BLOCK = Media("application/vnd.ipld.raw")


def get_event(request: Request) -> Answer:
    """One event, by its id."""
    access = request.reader(request.query(OnBehalf).participants)
    return answer(read.get_event(access, request.path_id("event_id")))


def query_events(request: Request) -> Answer:
    """Raw events as a rooted tree: the query, its scopes, their events by seq. A page is the newest
    that fit."""
    named = request.query(OnBehalf).participants
    query = request.body(EventQuery)
    return answer(read.query_events(request.reader(query.participants or named), query))


def list_events(request: Request) -> Answer:
    """Everything in view, newest first."""
    page = request.query(Paging)
    return answer(read.list_events(request.reader(page.participants), page.limit, page.cursor))


def list_scopes(request: Request) -> Answer:
    """Scopes in view, newest first by when they were made."""
    page = request.query(Paging)
    return answer(read.list_scopes(request.reader(page.participants), page.limit, page.cursor))


def get_scope(request: Request) -> Answer:
    """One scope, by its id: who took part, and how far its log goes."""
    access = request.reader(request.query(OnBehalf).participants)
    return answer(read.get_scope(access, request.path_id("scope_id")))


def feed(request: Request) -> Answer:
    """A scope's events after a seq, in order: the only feed. Nothing is missed and nothing comes
    twice."""
    asked = request.query(FeedQuery)
    access = request.reader(asked.participants)
    return answer(read.feed(access, request.path_id("scope_id"), asked.after_seq, asked.limit))


def get_memory(request: Request) -> Answer:
    """The earliest event in view with this CID."""
    access = request.reader(request.query(OnBehalf).participants)
    return answer(read.get_memory(access, request.path("cid")))


def get_block(request: Request) -> Answer:
    """A memory's block as it is hashed: raw DAG-CBOR, for whoever wants to verify it."""
    access = request.reader(request.query(OnBehalf).participants)
    cid = request.path("cid")
    headers = {"Etag": f'"{cid}"', "X-Content-Type-Options": "nosniff", **_IMMUTABLE}
    return binary(read.get_block(access, cid), _BLOCK.type, headers)


def get_file(request: Request) -> Answer:
    """A payload by its CID: a redirect to a presigned URL, which the body names too."""
    access = request.reader(request.query(OnBehalf).participants)
    seconds = settings().presign_seconds
    file = read.get_file(access, request.service.blobs, request.path("cid"), seconds)
    return answer(file, 307, {"Location": file.url, "Cache-Control": "no-store"})


ROUTES = {
    "GET /api/v1/events/{event_id}": Route(get_event, "read", {200: EventOut}, query=OnBehalf),
    "POST /api/v1/events/query": Route(
        query_events, "read", {200: EventTree}, query=OnBehalf, body=EventQuery
    ),
    "GET /api/v1/scopes": Route(list_scopes, "read", {200: ScopePage}, query=Paging),
    "GET /api/v1/scopes/{scope_id}": Route(get_scope, "read", {200: ScopeOut}, query=OnBehalf),
    "GET /api/v1/scopes/{scope_id}/events": Route(feed, "read", {200: FeedPage}, query=FeedQuery),
    "GET /memories/list": Route(list_events, "read", {200: EventPage}, query=Paging),
    "GET /memory/{cid}": Route(get_memory, "read", {200: EventOut}, query=OnBehalf),
    "GET /ipfs/{cid}": Route(
        get_block,
        "read",
        {200: _BLOCK},
        query=OnBehalf,
        gives={
            "Etag": "The CID.",
            "Cache-Control": "For this user's own cache only.",
            "X-Content-Type-Options": "`nosniff`.",
        },
    ),
    "GET /file/{cid}": Route(
        get_file,
        "read",
        {307: FileOut},
        query=OnBehalf,
        gives={"Location": "The presigned URL.", "Cache-Control": "`no-store`."},
    ),
}
