"""Reading sessions over HTTP: conversations with their short-term memory and their chains.

Beside the writing and not with it: that would import all that reads for each append's first.
"""

from datetime import UTC, datetime

from strandline.config import settings
from strandline.db.database import NOBODY, Asker
from strandline.errors import StateConflict
from strandline.http.app import Answer, Request, Route, answer
from strandline.schemas import Paging
from strandline.sessions import chains_view, context, sessions
from strandline.sessions.chains_view import Reading
from strandline.sessions.routes_write import SESSION, named
from strandline.sessions.schemas import (
    ContextOut,
    ContextQuery,
    HeatPage,
    InScope,
    PageQuery,
    SearchOut,
    SearchRequest,
    SegmentPage,
    SegmentsQuery,
    SessionOut,
    SessionPage,
    TopicsOut,
)
from strandline.sessions.store_chains import FoundChain


def list_sessions(request: Request) -> Answer:
    """Sessions in view that have not ended, newest first by when they began."""
    page = request.query(Paging)
    return answer(sessions.listed(request.reader(page.participants), page.limit, page.cursor))


def get_session(request: Request) -> Answer:
    """One session: who takes part, and since when it is. An ended one is not found."""
    return answer(sessions.shown(named(request, request.query(InScope))))


def get_context(request: Request) -> Answer:
    """What the agent should have in mind: the session's short-term memory, and chains of its
    participants, nearest to `query`, else the latest. Short-term memory is the newest 10 events of
    the last hour (as tuned); of events of one type that share a workflow_id or an execution_id only
    the newest is shown, with their count. Chains that answer a query are warmed by it."""
    asked = request.query(ContextQuery)
    reading, embedder = _read(request, asked), request.service.embedder
    found, given = context.context(reading, embedder, asked, settings().query_vector_seconds)
    if asked.query is not None:
        _record(request, reading, given, found.degraded)
    return answer(found)


def search_context(request: Request) -> Answer:
    """Search the chains of a session's participants by meaning, best first. Each is cited with its
    events; those that are an answer are warmed by it."""
    reading = _read(request, request.query(InScope))
    asked, embedder = request.body(SearchRequest), request.service.embedder
    found, given = context.search(reading, embedder, asked, settings().query_vector_seconds)
    _record(request, reading, given, found.degraded)
    return answer(found)


def get_topics(request: Request) -> Answer:
    """Name the topics of a session's short-term memory. Says which model did."""
    reading = _read(request, request.query(InScope))
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
    asked = request.query(PageQuery)
    return answer(chains_view.heat_metrics(_read(request, asked), asked))


def get_segments(request: Request) -> Answer:
    """List the chains that hold events of a session, newest first by their last event."""
    asked = request.query(SegmentsQuery)
    return answer(chains_view.segments(_read(request, asked), asked))


def _read(request: Request, asked: InScope) -> Reading:
    """The session, read on behalf of all who take part in it."""
    session = sessions.require_shown(named(request, asked))
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


ROUTES = {
    "GET /api/v1/sessions": Route(list_sessions, "read", {200: SessionPage}, query=Paging),
    f"GET {SESSION}": Route(
        get_session,
        "read",
        {200: SessionOut},
        query=InScope,
        errors=(StateConflict,),
    ),
    f"GET {SESSION}/context": Route(
        get_context,
        "read",
        {200: ContextOut},
        query=ContextQuery,
        errors=(StateConflict,),
    ),
    f"POST {SESSION}/context/search": Route(
        search_context,
        "read",
        {200: SearchOut},
        query=InScope,
        body=SearchRequest,
        errors=(StateConflict,),
    ),
    f"GET {SESSION}/analysis/topics": Route(
        get_topics,
        "read",
        {200: TopicsOut},
        query=InScope,
        errors=(StateConflict,),
    ),
    f"GET {SESSION}/analysis/heat": Route(
        get_heat,
        "read",
        {200: HeatPage},
        query=PageQuery,
        errors=(StateConflict,),
    ),
    f"GET {SESSION}/segments": Route(
        get_segments,
        "read",
        {200: SegmentPage},
        query=SegmentsQuery,
        errors=(StateConflict,),
    ),
}
"""What asks the model too."""
