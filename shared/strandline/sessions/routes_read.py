"""HTTP routes that read sessions and their chains.

They are separate from the writing routes, so that a first append does not import all reading code.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from strandline.config import get_settings
from strandline.errors import Gone, StateConflict
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.schemas import PagedReadQuery
from strandline.sessions import chains_view, sessions
from strandline.sessions.chains_view import SessionReadContext
from strandline.sessions.routes_write import SESSION, find_session
from strandline.sessions.schemas import (
    ChainHeatPage,
    ChainsPageQuery,
    ScopeIdQuery,
    SegmentPage,
    SegmentsQuery,
    SessionOut,
    SessionPage,
)


def list_sessions(request: Request) -> Response:
    """List the visible sessions that have not ended, newest first by when they began."""
    page = request.parse_query(PagedReadQuery)
    return json_response(
        sessions.list_sessions(request.connect_reader(page), page.limit, page.cursor)
    )


def get_session(request: Request) -> Response:
    """Get one session: its participants and when it began. An ended session is not found."""
    return json_response(
        sessions.to_open_session_out(find_session(request, request.parse_query(ScopeIdQuery)))
    )


def get_heat(request: Request) -> Response:
    """List the heat of a session's chains, newest first, with all factors: heat = base · e^(-hours
    since access / (tau · strength))."""
    query = request.parse_query(ChainsPageQuery)
    return json_response(
        chains_view.list_chain_heat(open_session_for_reading(request, query), query)
    )


def get_segments(request: Request) -> Response:
    """List the chains with events of a session, newest first by their last event."""
    query = request.parse_query(SegmentsQuery)
    return json_response(
        chains_view.list_chain_segments(open_session_for_reading(request, query), query)
    )


def open_session_for_reading(
    request: Request,
    query: ScopeIdQuery,
    participants: Sequence[str] | None = None,
    *,
    only_session: bool = True,
) -> SessionReadContext:
    """Open the session for reading on behalf of some of its participants, by default of all. Raises
    NotFound or StateConflict as `find_session`; Invalid for a participant who is not in the
    session."""
    session = sessions.require_readable_session(find_session(request, query))
    access = request.connect_reader(
        None, sessions.resolve_reading_participants(session, participants)
    )
    tuning = get_settings().tuning.with_overrides(session.tuning)
    return SessionReadContext(access, session, tuning, datetime.now(UTC), only_session)


ROUTES = {
    "GET /api/v1/sessions": Route(
        list_sessions, "read", {200: SessionPage}, query=PagedReadQuery, errors=(Gone,)
    ),
    f"GET {SESSION}": Route(
        get_session,
        "read",
        {200: SessionOut},
        query=ScopeIdQuery,
        errors=(StateConflict,),
    ),
    f"GET {SESSION}/analysis/heat": Route(
        get_heat,
        "read",
        {200: ChainHeatPage},
        query=ChainsPageQuery,
        errors=(StateConflict, Gone),
    ),
    f"GET {SESSION}/segments": Route(
        get_segments,
        "read",
        {200: SegmentPage},
        query=SegmentsQuery,
        errors=(StateConflict, Gone),
    ),
}
