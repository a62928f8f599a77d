"""HTTP routes that erase events, and `DELETE` on a session, which erases or only ends it."""

from datetime import UTC, datetime

from strandline import participants
from strandline.config import get_settings
from strandline.cursors import Cursors, Position
from strandline.db.database import TenantDb
from strandline.erasure import erase_events, receipts, store, store_lists, store_selections
from strandline.erasure.schemas import (
    DeleteSessionQuery,
    ErasedEventOut,
    ErasureFeed,
    ErasureFeedQuery,
    ErasureHeaders,
    ErasureItem,
    ErasureOut,
    ErasurePage,
    ErasurePreview,
    ErasureRequest,
    ErasuresQuery,
    ErasureState,
)
from strandline.erasure.store import Erasure, RequestKey
from strandline.erasure.store_lists import ListedErasure
from strandline.erasure.store_selections import EventSelection, Kind
from strandline.errors import Conflict, Forbidden, Gone, NotFound, StateConflict
from strandline.http.request import Request
from strandline.http.routes_and_responses import (
    Response,
    Route,
    json_response,
    replayable_response,
)
from strandline.http.schemas_idempotency import REPLAYED_HEADER
from strandline.log.store_erasure_marks import has_events_being_erased
from strandline.log.store_scopes import get_scope
from strandline.schemas import ParticipantsQuery
from strandline.sessions.routes_write import SESSION, end_session, find_session
from strandline.sessions.schemas import EndedSession


def delete_event(request: Request) -> Response:
    """Erase one event. When this answers, no call can read its content. Its id, scope, seq and
    times stay. A repeated request returns the same erasure."""
    event_id, access = request.path_id("event_id"), request.connect_writer()
    earlier = store.find_erasure_of_event(access, event_id)
    if earlier is not None:
        return _respond_with_erasure(earlier)
    try:
        erase_events.require_may_erase_events(access, request.principal, [event_id])
        return _erase_and_start_job(request, access, EventSelection("event", event_ids=[event_id]))
    except (NotFound, Gone):  # another erasure may have been first
        earlier = store.find_erasure_of_event(access, event_id)
        if earlier is None:
            erase_events.require_may_erase_events(
                access, request.principal, [event_id]
            )  # raises the present error
            raise
        return _respond_with_erasure(earlier)


def post_erasure(request: Request) -> Response:
    """Erase events, a session, what a participant said, a scope or the tenant (202). With `dry_run`
    it only counts (200). A request that is repeated with the same `Idempotency-Key` returns the
    same erasure. Events that were erased before cause a 410 that names their erasures."""
    body, access, key = _parse_erasure_request(request), request.connect_writer(), None
    selection, header = _make_selection(body), request.idempotency_key
    if header is not None and not body.dry_run:
        key = erase_events.make_request_key(
            access, header, body.model_dump(mode="json", exclude_none=True)
        )
        earlier = erase_events.find_repeated_erasure(access, key)
        if earlier is not None:
            return _respond_with_erasure(earlier, 202, is_replay=True)
    if body.event_ids is not None:
        erase_events.require_may_erase_events(access, request.principal, body.event_ids)
    selection = erase_events.restrict_selection_to_caller(request.principal, selection)
    if body.dry_run:
        return json_response(store_selections.preview_erasure(access, selection))
    try:
        return _erase_and_start_job(request, access, selection, 202, key)
    except NotFound:
        if body.event_ids is not None:  # names the erasure that was first
            erase_events.require_may_erase_events(access, request.principal, body.event_ids)
        raise


def delete_session(request: Request) -> Response:
    """End a session. It is hidden, and nothing can be appended to it. Its events and what was
    derived from them stay in the log, in recall and in its participants' context. A repeated
    request changes nothing. With `erase` the session and its events are erased instead (202); the
    credential then also needs the right `erase`. If nothing is left of the session, this returns
    its last erasure."""
    query = request.parse_query(DeleteSessionQuery)
    if not query.erase:
        return end_session(request, query)
    access = request.connect_writer()
    request.principal.require_right("erase")
    key = erase_events.make_session_request_key(access, request.path_parameter("session_id"))
    try:
        session = find_session(request, query)
        selection = EventSelection(
            "session", scope_id=session.scope_id, session_id=session.session_id
        )
        selection = erase_events.restrict_selection_to_caller(request.principal, selection)
        return _erase_and_start_job(request, access, selection, 202, key)
    except NotFound:
        earlier = erase_events.find_repeated_erasure(access, key, query.scope_id)
        if earlier is None:
            raise
        return _respond_with_erasure(earlier, 202, is_replay=True)


def get_erasure(request: Request) -> Response:
    """Get an erasure, with its receipt once it is complete. An erasure by a user is visible to that
    user and to admins. An erasure by an unbound credential is visible to such credentials."""
    access = _connect_erasure_reader(request, request.parse_query(ParticipantsQuery))
    erasure = store.get_erasure(access, request.path_id("erasure_id"))
    if erasure is None:
        raise NotFound
    return _respond_with_erasure(erasure)


def list_erasures(request: Request) -> Response:
    """List erasures, newest first: all that `GET /api/v1/erasures/{erasure_id}` would return. The
    list names no events and has no receipts."""
    query = request.parse_query(ErasuresQuery)
    access = _connect_erasure_reader(request, query)
    caller = access.caller
    cursors = Cursors(access.sealer, caller.tenant, "erasures", caller.viewer, query.state)
    after = cursors.decode(query.cursor)
    rows = store_lists.list_newest_erasures(access, query.state, after, query.limit)
    last = rows[-1] if len(rows) == query.limit else None
    position = last and Position(last.pg_snapshot, last.asked_at, last.erasure_id)
    return json_response(
        ErasurePage(
            erasures=[_to_erasure_item(row) for row in rows],
            next_cursor=position and cursors.encode(position),
        )
    )


def _to_erasure_item(row: ListedErasure) -> ErasureItem:
    return ErasureItem(
        erasure_id=row.erasure_id,
        kind=row.kind,
        target=row.target,
        state=_name_erasure_state(row.completed_at),
        asked_at=row.asked_at,
        asked_by=row.asked_by,
        unreadable_at=row.hidden_at,
        vacuumed_at=row.vacuumed_at,
        complete_at=row.completed_at,
        counts=row.counts,
    )


def _name_erasure_state(completed_at: datetime | None) -> ErasureState:
    return "hidden" if completed_at is None else "complete"


def feed_erasures(request: Request) -> Response:
    """Read a scope's erasures after a position, in order. A client that keeps a copy of the scope's
    events must delete these."""
    query = request.parse_query(ErasureFeedQuery)
    access = request.connect_reader(query)
    scope_id = request.path_id("scope_id")
    if get_scope(access, scope_id) is None:
        raise NotFound
    is_erasing = has_events_being_erased(access, scope_id)  # before the feed is read
    rows = store.list_erased_events_after(access, scope_id, query.after, query.limit)
    return json_response(
        ErasureFeed(
            scope_id=scope_id,
            erasures=[
                ErasedEventOut.model_validate(_select_fields_without_scope(row)) for row in rows
            ],
            next_after=rows[-1].n if rows else query.after,
            erasing=is_erasing,
        )
    )


def _select_fields_without_scope(row: store.ErasedEvent) -> dict[str, object]:
    return {name: value for name, value in vars(row).items() if name != "scope_id"}


def _connect_erasure_reader(request: Request, query: ParticipantsQuery) -> TenantDb:
    """The database on behalf of the caller who reads erasures. An unbound credential with the right
    to erase sees all erasures without naming participants."""
    principal = request.principal
    is_bound = principal.user is not None
    may_see_all = not is_bound and not query.participants and "erase" in principal.rights
    return request.connect_writer() if may_see_all else request.connect_reader(query)


def _parse_erasure_request(request: Request) -> ErasureRequest:
    """Parse what to erase. The participant's name is in canonical form and each id occurs once.
    Raises Invalid."""
    body = request.parse_body(ErasureRequest)
    if body.participant is not None:
        name = participants.normalize_participant(body.participant, "participant")
        body = body.model_copy(update={"participant": name})
    if body.event_ids is not None:
        body = body.model_copy(update={"event_ids": list(dict.fromkeys(body.event_ids))})
    return body


def _make_selection(body: ErasureRequest) -> EventSelection:
    kind: Kind = "tenant"
    if body.event_ids is not None:
        kind = "events"
    elif body.session_id is not None:
        kind = "session"
    elif body.participant is not None:
        kind = "participant"
    elif body.scope_id is not None:
        kind = "scope"
    return EventSelection(kind, body.event_ids, body.scope_id, body.session_id, body.participant)


def _erase_and_start_job(
    request: Request,
    access: TenantDb,
    selection: EventSelection,
    status: int = 200,
    key: RequestKey | None = None,
) -> Response:
    """Erase a selection, and start the job that completes the erasure."""
    now = datetime.now(UTC)
    erasure = erase_events.erase_selection(
        access, request.principal, request.audit_context, selection, now, key
    )
    request.metrics["EventsErased"] = erasure.counts.get("events", 0)
    clock_now = request.resources.clock()
    request.resources.job_queue.request_run("eraser", clock_now, clock_now)
    return _respond_with_erasure(erasure, status)


def _respond_with_erasure(
    erasure: Erasure, status: int = 200, *, is_replay: bool = False
) -> Response:
    out = ErasureOut(
        erasure_id=erasure.erasure_id,
        kind=erasure.kind,
        target=erasure.target,
        state=_name_erasure_state(erasure.completed_at),
        asked_at=erasure.asked_at,
        asked_by=erasure.asked_by,
        unreadable_at=erasure.hidden_at,
        complete_at=erasure.completed_at,
        counts=erasure.counts,
        receipt=erasure.receipt,
        signature=erasure.signature,
        public_key=receipts.derive_public_key(get_settings().sealing_secret),
    )
    return replayable_response(out, status, is_replay=is_replay)


_REPLAY_HEADERS = {REPLAYED_HEADER: "`true` when an earlier request asked for this erasure."}
ROUTES = {
    "DELETE /api/v1/events/{event_id}": Route(
        delete_event,
        "erase",
        {200: ErasureOut},
        errors=(Forbidden, Gone),
        audits_in_transaction=True,
    ),
    "POST /api/v1/erasures": Route(
        post_erasure,
        "erase",
        {200: ErasurePreview, 202: ErasureOut},
        body=ErasureRequest,
        headers=ErasureHeaders,
        response_headers=_REPLAY_HEADERS,
        errors=(Forbidden, NotFound, Conflict, Gone),
        audits_in_transaction=True,
    ),
    "GET /api/v1/erasures": Route(list_erasures, "read", {200: ErasurePage}, query=ErasuresQuery),
    "GET /api/v1/erasures/{erasure_id}": Route(
        get_erasure, "read", {200: ErasureOut}, query=ParticipantsQuery
    ),
    "GET /api/v1/scopes/{scope_id}/erasures": Route(
        feed_erasures, "read", {200: ErasureFeed}, query=ErasureFeedQuery
    ),
    f"DELETE {SESSION}": Route(
        delete_session,
        "write",
        {200: EndedSession, 202: ErasureOut},
        query=DeleteSessionQuery,
        response_headers=_REPLAY_HEADERS,
        errors=(Forbidden, StateConflict),
    ),
}
