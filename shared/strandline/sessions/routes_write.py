"""HTTP routes that begin sessions and append to them, and what ends them. `DELETE` on a session is
a route of `erasure`, which lies above: it ends the session here, or erases it there."""

from datetime import UTC, datetime
from uuid import UUID

from strandline.errors import Conflict, Forbidden, Gone, StateConflict
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response, replayable_response
from strandline.http.schemas_idempotency import REPLAYED_HEADER, IdempotencyHeaders
from strandline.log.append import append
from strandline.log.append_state import AppendResult
from strandline.log.schemas_append import Receipt
from strandline.schemas import ResponseModel
from strandline.sessions import sessions
from strandline.sessions.schemas import (
    InteractionIn,
    InteractionReceipts,
    ScopeIdQuery,
    SessionEventIn,
    SessionIn,
    SessionOut,
)
from strandline.sessions.store import Session


def post_session(request: Request) -> Response:
    """Begin a session: 201, also if the same session already exists. Its participants apply to all
    its events, which need not name them. (An append with a new session_id begins a session too.)"""
    access = request.connect_writer()
    body = request.parse_body(SessionIn)
    session, is_existing = sessions.begin_session(access, request.principal, body)
    return replayable_response(session, 201, is_replay=is_existing)


def post_interaction(request: Request) -> Response:
    """Store a user's message and an agent's answer. The two messages are stored in one transaction,
    both or none. With a key they are stored only once, under the keys `<key>#user` and
    `<key>#agent`."""
    key = request.idempotency_key
    session = find_session(request, request.parse_query(ScopeIdQuery))  # append checks if it ended
    body = request.parse_body(InteractionIn)
    bodies = sessions.split_interaction_into_events(session, body, key)
    results = append(request.writer, bodies, atomic=True)
    request.metrics["EventsAppended"] = sum(result.is_new for result in results)
    error = sessions.find_interaction_error(results)
    if error is not None:
        raise error
    user, agent = (result.receipt for result in results)
    assert user is not None
    assert agent is not None
    response = InteractionReceipts(session_id=session.session_id, user=user, agent=agent)
    return _make_created_response(response, results)


def post_session_event(request: Request) -> Response:
    """Append one event to a session: a message, thought, action, observation or upload. Works like
    POST /api/v1/events, but the session determines the participants."""
    key = request.idempotency_key
    session = find_session(request, request.parse_query(ScopeIdQuery))  # append checks if it ended
    request.parse_body(SessionEventIn)
    members = {"participants": session.participants, "session_id": session.session_id}
    results = append(request.writer, [(request.parse_json() | members, key)])
    request.metrics["EventsAppended"] = sum(result.is_new for result in results)
    if results[0].error is not None:
        raise results[0].error
    assert results[0].receipt is not None
    return _make_created_response(results[0].receipt, results)


def end_session(request: Request, query: ScopeIdQuery) -> Response:
    """End the session that the path names: it is hidden, nothing can be appended to it, and its
    events stay. A repeated request changes nothing. Raises NotFound and StateConflict."""
    session = find_session(request, query)
    return json_response(sessions.end_session(request.connect_writer(), session, datetime.now(UTC)))


def _make_created_response(body: ResponseModel, results: list[AppendResult]) -> Response:
    is_replay = all(result.is_replay for result in results)
    return replayable_response(body, 201, is_replay=is_replay)


def find_session(request: Request, query: ScopeIdQuery) -> Session:
    """Find the session that the path names; otherwise like `find_named_session`."""
    return find_named_session(request, request.path_parameter("session_id"), query.scope_id)


def find_named_session(request: Request, session_id: str, scope_id: UUID | None) -> Session:
    """Find a session, if the caller may see it: a bound user who takes part, or any unbound
    credential. Raises NotFound; StateConflict if the name is ambiguous."""
    return sessions.find_session(request.connect_writer(), session_id, scope_id)


SESSION = "/api/v1/sessions/{session_id}"
"""The path of one session. Its DELETE is in erasure/routes.py."""
_REPLAY_HEADERS = {REPLAYED_HEADER: "`true` when this was already stored."}
ROUTES = {
    "POST /api/v1/sessions": Route(
        post_session,
        "write",
        {201: SessionOut},
        body=SessionIn,
        response_headers=_REPLAY_HEADERS,
        errors=(Forbidden, StateConflict),
    ),
    f"POST {SESSION}/interactions": Route(
        post_interaction,
        "write",
        {201: InteractionReceipts},
        query=ScopeIdQuery,
        body=InteractionIn,
        headers=IdempotencyHeaders,
        response_headers=_REPLAY_HEADERS,
        errors=(Forbidden, Conflict, Gone, StateConflict),
    ),
    f"POST {SESSION}/events": Route(
        post_session_event,
        "write",
        {201: Receipt},
        query=ScopeIdQuery,
        body=SessionEventIn,
        headers=IdempotencyHeaders,
        response_headers=_REPLAY_HEADERS,
        errors=(Forbidden, Conflict, Gone, StateConflict),
    ),
}
"""Routes that change the log. None of them needs a model."""
