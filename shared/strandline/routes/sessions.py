"""Sessions over HTTP: conversations with their short-term memory and their chains."""

from datetime import UTC, datetime

from strandline import wire, wire_sessions
from strandline.config import settings
from strandline.db import NOBODY, Asker
from strandline.errors import Conflict, Forbidden, StateConflict
from strandline.http import Answer, Request, Route, answer
from strandline.routes.ingest import append_all, idempotency_key
from strandline.services import context, segments, sessions
from strandline.services.append import Appended, asker
from strandline.services.segments import Reading
from strandline.store.segments import FoundChain
from strandline.store.sessions import Session

_REPLAYED = "Idempotent-Replayed"


def post_session(request: Request) -> Answer:
    """Begin a session: 201, and the same for one that is there already. Who takes part holds for
    all its events, which need not name them again. (Appending under a new session_id begins one as
    well.)"""
    access = request.service.database.access(asker(request.principal), request.deadline)
    body = request.body(wire_sessions.SessionIn)
    begun, known = sessions.begin(access, request.principal, body)
    return answer(begun, 201, {_REPLAYED: "true"} if known else None)


def delete_session(request: Request) -> Answer:
    """End a session: it is hidden, and nothing can be added to it. Its events and what was made of
    them stay in the log, in recall and in its participants' context. Again changes nothing."""
    session = _named(request, request.query(wire_sessions.InScope))
    access = request.service.database.access(asker(request.principal), request.deadline)
    return answer(sessions.end(access, session, datetime.now(UTC)))


def post_interaction(request: Request) -> Answer:
    """Store what a user said and what an agent answered: two messages in one transaction, both or
    none. Under a key they are stored once, with the keys `<key>#user` and `<key>#agent`."""
    key = idempotency_key(request)
    session = _named(request, request.query(wire_sessions.InScope))  # the append says if it ended
    body = request.body(wire_sessions.InteractionIn)
    results = append_all(request, sessions.interaction(session, body, key), atomic=True)
    refused = sessions.refused(results)
    if refused is not None:
        raise refused
    user, agent = (result.receipt for result in results)
    assert user is not None
    assert agent is not None
    stored = wire_sessions.InteractionOut(session_id=session.session_id, user=user, agent=agent)
    return _stored(stored, results)


def post_session_event(request: Request) -> Answer:
    """Append one event to a session: a message, thought, action, observation or upload. As POST
    /api/v1/events, but that the session says who takes part."""
    key = idempotency_key(request)
    session = _named(request, request.query(wire_sessions.InScope))  # the append says if it ended
    request.body(wire_sessions.SessionEventIn)
    members = {"participants": session.participants, "session_id": session.session_id}
    results = append_all(request, [(request.json() | members, key)], atomic=False)
    if results[0].error is not None:
        raise results[0].error
    assert results[0].receipt is not None
    return _stored(results[0].receipt, results)


def _stored(body: wire.AnswerModel, results: list[Appended]) -> Answer:
    replayed = all(result.replayed for result in results)
    return answer(body, 201, {_REPLAYED: "true"} if replayed else None)


def list_sessions(request: Request) -> Answer:
    """Sessions in view that have not ended, newest first by when they began."""
    page = request.query(wire.Paging)
    return answer(sessions.listed(request.reader(page.participants), page.limit, page.cursor))


def get_session(request: Request) -> Answer:
    """One session: who takes part, and since when it is. An ended one is not found."""
    return answer(sessions.shown(_named(request, request.query(wire_sessions.InScope))))


def get_context(request: Request) -> Answer:
    """What the agent should have in mind: the session's short-term memory, and chains of its
    participants, nearest to `query`, else the latest. Short-term memory is the newest 10 events of
    the last hour (as tuned); of events of one type that share a workflow_id or an execution_id only
    the newest is shown, with their count. Chains that answer a query are warmed by it."""
    asked = request.query(wire_sessions.ContextQuery)
    reading, embedder = _read(request, asked), request.service.embedder
    found, given = context.context(reading, embedder, asked, settings().query_vector_seconds)
    if asked.query is not None:
        _record(request, reading, given, found.degraded)
    return answer(found)


def search_context(request: Request) -> Answer:
    """Search the chains of a session's participants by meaning, best first. Each is cited with its
    events; those that are an answer are warmed by it."""
    reading = _read(request, request.query(wire_sessions.InScope))
    asked, embedder = request.body(wire_sessions.SearchRequest), request.service.embedder
    found, given = context.search(reading, embedder, asked, settings().query_vector_seconds)
    _record(request, reading, given, found.degraded)
    return answer(found)


def get_topics(request: Request) -> Answer:
    """Name the topics of a session's short-term memory. Says which model did."""
    reading = _read(request, request.query(wire_sessions.InScope))
    reasoner = request.service.reasoner
    # Not the scope's: who asks here takes nothing from what its fold may ask.
    subject = request.principal.user or f"key:{request.principal.key_id}"
    found = context.topics(reading, reasoner, subject=subject, deadline=request.deadline)
    reasoner.flush(reading.access)
    request.counted |= reasoner.counted()
    return answer(found)


def get_heat(request: Request) -> Answer:
    """How warm a session's chains are, newest first, with all that heat is made of:
    heat = base · e^(-hours since access / (tau · strength))."""
    asked = request.query(wire_sessions.PageQuery)
    return answer(segments.heat_metrics(_read(request, asked), asked))


def get_segments(request: Request) -> Answer:
    """List the chains that hold events of a session, newest first by their last event."""
    asked = request.query(wire_sessions.SegmentsQuery)
    return answer(segments.segments(_read(request, asked), asked))


def _named(request: Request, asked: wire_sessions.InScope) -> Session:
    """The session of the path, for whoever may see it: a bound user who takes part, or any
    credential bound to none."""
    access = request.service.database.access(asker(request.principal), request.deadline)
    return sessions.find(access, request.path("session_id"), asked.scope_id)


def _read(request: Request, asked: wire_sessions.InScope) -> Reading:
    """The session, read on behalf of all who take part in it."""
    session = sessions.require_shown(_named(request, asked))
    principal = request.principal
    viewer = tuple(sorted(session.participants))
    reader = Asker(principal.tenant, viewer, principal.user or NOBODY)
    access = request.service.database.access(reader, request.deadline)
    tuning = settings().tuning.with_overrides(session.tuning)
    return Reading(access, session, tuning, datetime.now(UTC))


def _record(
    request: Request, reading: Reading, given: list[FoundChain], degraded: list[str]
) -> None:
    recorded = context.record_use(reading, given, request.service.embedder.space)
    request.counted |= {
        "Hits": len(given),
        "RecallsDegraded": int(bool(degraded)),
        "RecallsNotRecorded": int(not recorded),
    }


_ONE = "/api/v1/sessions/{session_id}"
_GIVES = {_REPLAYED: "`true` when this was stored before."}
WRITES = {
    "POST /api/v1/sessions": Route(
        post_session,
        "write",
        {201: wire_sessions.SessionOut},
        body=wire_sessions.SessionIn,
        gives=_GIVES,
        errors=(Forbidden, StateConflict),
    ),
    f"DELETE {_ONE}": Route(
        delete_session,
        "write",
        {200: wire_sessions.EndedOut},
        query=wire_sessions.InScope,
        errors=(StateConflict,),
    ),
    f"POST {_ONE}/interactions": Route(
        post_interaction,
        "write",
        {201: wire_sessions.InteractionOut},
        query=wire_sessions.InScope,
        body=wire_sessions.InteractionIn,
        headers=wire.AppendHeaders,
        gives=_GIVES,
        errors=(Forbidden, Conflict, StateConflict),
    ),
    f"POST {_ONE}/events": Route(
        post_session_event,
        "write",
        {201: wire.Receipt},
        query=wire_sessions.InScope,
        body=wire_sessions.SessionEventIn,
        headers=wire.AppendHeaders,
        gives=_GIVES,
        errors=(Forbidden, Conflict, StateConflict),
    ),
}
"""What changes the log: no model is needed."""

READS = {
    "GET /api/v1/sessions": Route(
        list_sessions, "read", {200: wire_sessions.SessionPage}, query=wire.Paging
    ),
    f"GET {_ONE}": Route(
        get_session,
        "read",
        {200: wire_sessions.SessionOut},
        query=wire_sessions.InScope,
        errors=(StateConflict,),
    ),
    f"GET {_ONE}/context": Route(
        get_context,
        "read",
        {200: wire_sessions.ContextOut},
        query=wire_sessions.ContextQuery,
        errors=(StateConflict,),
    ),
    f"POST {_ONE}/context/search": Route(
        search_context,
        "read",
        {200: wire_sessions.SearchOut},
        query=wire_sessions.InScope,
        body=wire_sessions.SearchRequest,
        errors=(StateConflict,),
    ),
    f"GET {_ONE}/analysis/topics": Route(
        get_topics,
        "read",
        {200: wire_sessions.TopicsOut},
        query=wire_sessions.InScope,
        errors=(StateConflict,),
    ),
    f"GET {_ONE}/analysis/heat": Route(
        get_heat,
        "read",
        {200: wire_sessions.HeatPage},
        query=wire_sessions.PageQuery,
        errors=(StateConflict,),
    ),
    f"GET {_ONE}/segments": Route(
        get_segments,
        "read",
        {200: wire_sessions.SegmentPage},
        query=wire_sessions.SegmentsQuery,
        errors=(StateConflict,),
    ),
}
"""What asks the model too."""
