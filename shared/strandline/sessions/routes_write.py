"""Writing sessions over HTTP: they begin, are added to, and end."""

from datetime import UTC, datetime

from strandline.errors import Conflict, Forbidden, StateConflict
from strandline.http.app import Answer, Request, Route, answer
from strandline.log.append import Appended, asker
from strandline.log.routes_write import append_all, idempotency_key
from strandline.log.schemas import AppendHeaders, Receipt
from strandline.schemas import AnswerModel
from strandline.sessions import sessions
from strandline.sessions.schemas import (
    EndedOut,
    InScope,
    InteractionIn,
    InteractionOut,
    SessionEventIn,
    SessionIn,
    SessionOut,
)
from strandline.sessions.store import Session

_REPLAYED = "Idempotent-Replayed"


def post_session(request: Request) -> Answer:
    """Begin a session: 201, and the same for one that is there already. Who takes part holds for
    all its events, which need not name them again. (Appending under a new session_id begins one as
    well.)"""
    access = request.service.database.access(asker(request.principal), request.deadline)
    body = request.body(SessionIn)
    begun, known = sessions.begin(access, request.principal, body)
    return answer(begun, 201, {_REPLAYED: "true"} if known else None)


def delete_session(request: Request) -> Answer:
    """End a session: it is hidden, and nothing can be added to it. Its events and what was made of
    them stay in the log, in recall and in its participants' context. Again changes nothing."""
    session = named(request, request.query(InScope))
    access = request.service.database.access(asker(request.principal), request.deadline)
    return answer(sessions.end(access, session, datetime.now(UTC)))


def post_interaction(request: Request) -> Answer:
    """Store what a user said and what an agent answered: two messages in one transaction, both or
    none. Under a key they are stored once, with the keys `<key>#user` and `<key>#agent`."""
    key = idempotency_key(request)
    session = named(request, request.query(InScope))  # the append says if it ended
    body = request.body(InteractionIn)
    results = append_all(request, sessions.interaction(session, body, key), atomic=True)
    refused = sessions.refused(results)
    if refused is not None:
        raise refused
    user, agent = (result.receipt for result in results)
    assert user is not None
    assert agent is not None
    stored = InteractionOut(session_id=session.session_id, user=user, agent=agent)
    return _stored(stored, results)


def post_session_event(request: Request) -> Answer:
    """Append one event to a session: a message, thought, action, observation or upload. As POST
    /api/v1/events, but that the session says who takes part."""
    key = idempotency_key(request)
    session = named(request, request.query(InScope))  # the append says if it ended
    request.body(SessionEventIn)
    members = {"participants": session.participants, "session_id": session.session_id}
    results = append_all(request, [(request.json() | members, key)], atomic=False)
    if results[0].error is not None:
        raise results[0].error
    assert results[0].receipt is not None
    return _stored(results[0].receipt, results)


def _stored(body: AnswerModel, results: list[Appended]) -> Answer:
    replayed = all(result.replayed for result in results)
    return answer(body, 201, {_REPLAYED: "true"} if replayed else None)


def named(request: Request, asked: InScope) -> Session:
    """The session of the path, for whoever may see it: a bound user who takes part, or any
    credential bound to none."""
    access = request.service.database.access(asker(request.principal), request.deadline)
    return sessions.find(access, request.path("session_id"), asked.scope_id)


SESSION = "/api/v1/sessions/{session_id}"
"""The resource of one."""
_GIVES = {_REPLAYED: "`true` when this was stored before."}
ROUTES = {
    "POST /api/v1/sessions": Route(
        post_session,
        "write",
        {201: SessionOut},
        body=SessionIn,
        gives=_GIVES,
        errors=(Forbidden, StateConflict),
    ),
    f"DELETE {SESSION}": Route(
        delete_session,
        "write",
        {200: EndedOut},
        query=InScope,
        errors=(StateConflict,),
    ),
    f"POST {SESSION}/interactions": Route(
        post_interaction,
        "write",
        {201: InteractionOut},
        query=InScope,
        body=InteractionIn,
        headers=AppendHeaders,
        gives=_GIVES,
        errors=(Forbidden, Conflict, StateConflict),
    ),
    f"POST {SESSION}/events": Route(
        post_session_event,
        "write",
        {201: Receipt},
        query=InScope,
        body=SessionEventIn,
        headers=AppendHeaders,
        gives=_GIVES,
        errors=(Forbidden, Conflict, StateConflict),
    ),
}
"""What changes the log: no model is needed."""
