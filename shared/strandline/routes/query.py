"""Reading over HTTP: events, scopes, memories by CID, recall, and how the service feels."""

from datetime import UTC, datetime

from strandline import wire
from strandline.config import settings
from strandline.db import Asker
from strandline.errors import Forbidden, StrandlineError
from strandline.http import Answer, Media, Request, Route, answer, binary, text
from strandline.services import metrics, read
from strandline.services.recall import recall, record_use
from strandline.services.usage import list_model_calls, require_tenants_own, usage

# A block never changes, but who may see it can: caches may keep it for their own user only.
_IMMUTABLE = {"Cache-Control": "private, max-age=300, immutable"}
_BLOCK = Media("application/vnd.ipld.raw")
_METRICS = Media("text/plain; version=0.0.4")


def get_event(request: Request) -> Answer:
    """One event, by its id."""
    access = request.reader(request.query(wire.OnBehalf).participants)
    return answer(read.get_event(access, request.path_id("event_id")))


def query_events(request: Request) -> Answer:
    """Raw events as a rooted tree: the query, its scopes, their events by seq. A page is the newest
    that fit."""
    named = request.query(wire.OnBehalf).participants
    query = request.body(wire.EventQuery)
    return answer(read.query_events(request.reader(query.participants or named), query))


def list_events(request: Request) -> Answer:
    """Everything in view, newest first."""
    page = request.query(wire.Paging)
    return answer(read.list_events(request.reader(page.participants), page.limit, page.cursor))


def list_scopes(request: Request) -> Answer:
    """Scopes in view, newest first by when they were made."""
    page = request.query(wire.Paging)
    return answer(read.list_scopes(request.reader(page.participants), page.limit, page.cursor))


def get_scope(request: Request) -> Answer:
    """One scope, by its id: who took part, and how far its log goes."""
    access = request.reader(request.query(wire.OnBehalf).participants)
    return answer(read.get_scope(access, request.path_id("scope_id")))


def feed(request: Request) -> Answer:
    """A scope's events after a seq, in order: the only feed. Nothing is missed and nothing comes
    twice."""
    asked = request.query(wire.FeedQuery)
    access = request.reader(asked.participants)
    return answer(read.feed(access, request.path_id("scope_id"), asked.after_seq, asked.limit))


def get_memory(request: Request) -> Answer:
    """The earliest event in view with this CID."""
    access = request.reader(request.query(wire.OnBehalf).participants)
    return answer(read.get_memory(access, request.path("cid")))


def get_block(request: Request) -> Answer:
    """A memory's block as it is hashed: raw DAG-CBOR, for whoever wants to verify it."""
    access = request.reader(request.query(wire.OnBehalf).participants)
    cid = request.path("cid")
    headers = {"Etag": f'"{cid}"', "X-Content-Type-Options": "nosniff", **_IMMUTABLE}
    return binary(read.get_block(access, cid), _BLOCK.type, headers)


def get_file(request: Request) -> Answer:
    """A payload by its CID: a redirect to a presigned URL, which the body names too."""
    access = request.reader(request.query(wire.OnBehalf).participants)
    seconds = settings().presign_seconds
    file = read.get_file(access, request.service.blobs, request.path("cid"), seconds)
    return answer(file, 307, {"Location": file.url, "Cache-Control": "no-store"})


def post_recall(request: Request) -> Answer:
    """What do we know about this? Events in view by words and by meaning, best first, each with
    its score in parts. The chains of the best ten are warmed by it."""
    named = request.query(wire.OnBehalf).participants
    asked = request.body(wire.RecallRequest)
    access = request.reader(asked.participants or named)
    seconds = settings().query_vector_seconds
    found = recall(access, request.service.embedder, asked, seconds)
    recorded = record_use(access, found, request.service.embedder.space, datetime.now(UTC))
    request.counted |= {
        "Hits": len(found.hits),
        "RecallsDegraded": int(bool(found.degraded)),
        "RecallsNotRecorded": int(not recorded),
    }
    return answer(found)


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
    page = request.query(wire.ListQuery)
    access = request.service.database.access(
        Asker.background(request.principal.tenant), request.deadline
    )
    return answer(list_model_calls(access, page.limit, page.cursor))


def liveness(request: Request) -> Answer:
    """The process answers. Never touches the database: it would never rest."""
    del request
    return answer(wire.Liveness())


def health(request: Request) -> Answer:
    """What this service needs, and whether it answers: 200, or 503 when memory cannot be served.
    Takes a key that this deployment made, but no database to check it."""
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
    background = _background(request) if up else None
    fine = set(found.values()) == {"ok"} and not (background and background.scopes_stuck)
    status = "ok" if fine else "degraded" if up else "unavailable"
    headers = {} if up else {"Retry-After": "2"}
    language = wire.LanguageState(provider=service.reasoner.provider)
    told = wire.Health(
        status=status,
        dependencies=found,
        language=language,
        background=background,
        warnings=list(service.warnings),
    )
    return answer(told, 200 if up else 503, headers)


def _background(request: Request) -> wire.BackgroundState | None:
    """Of whoever's credential holds; None where it does not, or the database went away."""
    try:
        tenant = request.tenant()
        access = request.service.database.access(Asker.background(tenant), request.deadline)
        return wire.BackgroundState(**vars(metrics.trouble(access)))
    except StrandlineError:
        return None


def get_metrics(request: Request) -> Answer:
    """The tenant in numbers, as Prometheus scrapes them: what there is, and what waits. They are
    the whole tenant's, whoever the key is bound to."""
    service = request.service
    access = service.database.access(Asker.background(request.principal.tenant), request.deadline)
    return text(metrics.exposition(access, service.embedder.space), _METRICS)


ROUTES = {
    "GET /health": Route(liveness, None, {200: wire.Liveness}),
    "GET /api/v1/health": Route(health, "issued", {200: wire.Health, 503: wire.Health}),
    "GET /metrics": Route(get_metrics, "admin", {200: _METRICS}, numbers_only=True),
    "GET /api/v1/events/{event_id}": Route(
        get_event, "read", {200: wire.EventOut}, query=wire.OnBehalf
    ),
    "POST /api/v1/events/query": Route(
        query_events, "read", {200: wire.EventTree}, query=wire.OnBehalf, body=wire.EventQuery
    ),
    "GET /api/v1/scopes": Route(list_scopes, "read", {200: wire.ScopePage}, query=wire.Paging),
    "GET /api/v1/scopes/{scope_id}": Route(
        get_scope, "read", {200: wire.ScopeOut}, query=wire.OnBehalf
    ),
    "GET /api/v1/scopes/{scope_id}/events": Route(
        feed, "read", {200: wire.FeedPage}, query=wire.FeedQuery
    ),
    "POST /api/v1/recall": Route(
        post_recall, "read", {200: wire.RecallAnswer}, query=wire.OnBehalf, body=wire.RecallRequest
    ),
    "GET /api/v1/usage": Route(get_usage, "read", {200: wire.Usage}, errors=(Forbidden,)),
    "GET /api/v1/model-calls": Route(
        get_model_calls,
        "admin",
        {200: wire.ModelCallPage},
        query=wire.ListQuery,
        numbers_only=True,
    ),
    "GET /memories/list": Route(list_events, "read", {200: wire.EventPage}, query=wire.Paging),
    "GET /memory/{cid}": Route(get_memory, "read", {200: wire.EventOut}, query=wire.OnBehalf),
    "GET /ipfs/{cid}": Route(
        get_block,
        "read",
        {200: _BLOCK},
        query=wire.OnBehalf,
        gives={
            "Etag": "The CID.",
            "Cache-Control": "For this user's own cache only.",
            "X-Content-Type-Options": "`nosniff`.",
        },
    ),
    "GET /file/{cid}": Route(
        get_file,
        "read",
        {307: wire.FileOut},
        query=wire.OnBehalf,
        gives={"Location": "The presigned URL.", "Cache-Control": "`no-store`."},
    ),
}
