"""Reading over HTTP: events, scopes, memories by CID, recall, and how the service feels."""

from pydantic import TypeAdapter

from strandline import wire
from strandline.config import settings
from strandline.errors import StrandlineError
from strandline.http import Answer, Request, Route, answer, binary
from strandline.services import read
from strandline.services.recall import recall

_QUERY = TypeAdapter(wire.EventQuery)
_RECALL = TypeAdapter(wire.RecallRequest)
_MOST = 500
# A block never changes, but who may see it can: caches may keep it for their own user only.
_IMMUTABLE = {"Cache-Control": "private, max-age=300, immutable"}


def get_event(request: Request) -> Answer:
    """One event."""
    return answer(read.get_event(request.reader(), request.path_id("event_id")))


def query_events(request: Request) -> Answer:
    """Raw events as a rooted tree."""
    request.principal("read")  # before the body: strangers are told nothing of it
    query = request.body(_QUERY)
    return answer(read.query_events(request.reader(query.participants), query))


def list_events(request: Request) -> Answer:
    """Everything in view, newest first."""
    limit = request.integer("limit", 50, 1, _MOST)
    return answer(read.list_events(request.reader(), limit, request.parameter("cursor")))


def list_scopes(request: Request) -> Answer:
    """Scopes in view, newest first."""
    limit = request.integer("limit", 50, 1, _MOST)
    return answer(read.list_scopes(request.reader(), limit, request.parameter("cursor")))


def get_scope(request: Request) -> Answer:
    """One scope."""
    return answer(read.get_scope(request.reader(), request.path_id("scope_id")))


def feed(request: Request) -> Answer:
    """A scope's events after a seq: the only feed."""
    after = request.integer("after_seq", 0, 0, 2**63 - 1)
    limit = request.integer("limit", 100, 1, _MOST)
    return answer(read.feed(request.reader(), request.path_id("scope_id"), after, limit))


def get_memory(request: Request) -> Answer:
    """The earliest event in view with this CID."""
    return answer(read.get_memory(request.reader(), request.path("cid")))


def get_block(request: Request) -> Answer:
    """A memory's block as it is hashed: raw DAG-CBOR, for whoever wants to verify it."""
    cid = request.path("cid")
    block = read.get_block(request.reader(), cid)
    headers = {"Etag": f'"{cid}"', "X-Content-Type-Options": "nosniff", **_IMMUTABLE}
    return binary(block, "application/vnd.ipld.raw", headers)


def get_file(request: Request) -> Answer:
    """A payload: 307 to a presigned URL, which the body names too."""
    service, cid = request.service, request.path("cid")
    file = read.get_file(request.reader(), service.blobs, cid, settings().presign_seconds)
    return answer(file, 307, {"Location": file.url, "Cache-Control": "no-store"})


def post_recall(request: Request) -> Answer:
    """What do we know about this?"""
    request.principal("read")
    asked = request.body(_RECALL)
    access = request.reader(asked.participants)
    seconds = settings().query_vector_seconds
    return answer(recall(access, request.service.embedder, asked, seconds))


def liveness(request: Request) -> Answer:
    """The process answers. Never touches the database: it would never rest."""
    del request
    return answer({"status": "ok"})


def health(request: Request) -> Answer:
    """What this service needs, and whether it answers: 200, or 503 when memory cannot be served.
    Takes a key that this deployment made, but no database to check it."""
    request.service.authenticator.issued_by_us(request.headers)
    service = request.service
    checks = {
        "database": lambda: service.database.connection(request.deadline),
        "blobs": service.blobs.check,
        "queue": service.hints.check,
        "embedding": lambda: service.embedder.embed(["health"], timeout=2.0),
    }
    found: dict[str, str] = {}
    for name, check in checks.items():
        try:
            check()
            found[name] = "ok"
        except StrandlineError as error:
            found[name] = error.code
        except Exception as error:  # what a dependency does is told, not suffered
            found[name] = type(error).__name__
    up = found["database"] == "ok"
    status = "ok" if set(found.values()) == {"ok"} else "degraded" if up else "unavailable"
    headers = {} if up else {"Retry-After": "2"}
    return answer({"status": status, "dependencies": found}, 200 if up else 503, headers)


ROUTES: dict[str, Route] = {
    "GET /health": liveness,
    "GET /api/v1/health": health,
    "GET /api/v1/events/{event_id}": get_event,
    "POST /api/v1/events/query": query_events,
    "GET /api/v1/scopes": list_scopes,
    "GET /api/v1/scopes/{scope_id}": get_scope,
    "GET /api/v1/scopes/{scope_id}/events": feed,
    "POST /api/v1/recall": post_recall,
    "GET /memories/list": list_events,
    "GET /memory/{cid}": get_memory,
    "GET /ipfs/{cid}": get_block,
    "GET /file/{cid}": get_file,
}
