"""Sessions: begin, find, end and list them, and turn interactions into events."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline import participants
from strandline.auth.principals import Principal
from strandline.cursors import Cursors, Position
from strandline.db.database import NOBODY, TenantDb
from strandline.errors import (
    BatchRefused,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    StateConflict,
    StrandlineError,
)
from strandline.log.append_state import AppendResult
from strandline.log.read import take_models_fitting_response
from strandline.log.refusals import SESSION_ENDED_MESSAGE
from strandline.log.store_erasure_marks import decode_cursor_unless_erased_since
from strandline.sessions import store
from strandline.sessions.schemas import (
    EndedSession,
    InteractionIn,
    SessionIn,
    SessionOut,
    SessionPage,
)
from strandline.sessions.store import Session


def begin_session(
    access: TenantDb, principal: Principal, request: SessionIn
) -> tuple[SessionOut, bool]:
    """Begin a session. Returns it, and whether the same session already existed.

    Raises Forbidden; Invalid for invalid participants, or for a name that a session with other
    participants has; StateConflict for a session that has ended or has other metadata.
    """
    principal.require_own_ids(request.tenant_id, None)
    members = _resolve_participants(principal, request)
    scope_id = participants.derive_scope_id(principal.tenant, members)
    name = request.session_id or str(uuid7())
    with access.transaction():
        existing_session = store.lock_name_and_find_collision(access, name, scope_id)
        if existing_session is None:
            metadata = json.dumps(request.metadata or {})
            session = store.insert_session_and_scope(access, name, scope_id, members, metadata)
            return _to_session_out(session), False
    if existing_session.scope_id != scope_id:
        raise Invalid(
            "session_id: this session has other participants; use another session_id, or send the "
            "session's own participants",
            field="session_id",
        )
    require_appendable_session(existing_session)
    if request.metadata is not None and request.metadata != existing_session.metadata:
        raise StateConflict(
            "session_id: this session already exists with other metadata; leave metadata out to "
            "continue it, or use another session_id",
            field="session_id",
        )
    return _to_session_out(existing_session), True


def _resolve_participants(principal: Principal, request: SessionIn) -> list[str]:
    has_names = request.user_id is not None and request.agent_id is not None
    if (request.participants is None) != has_names:
        raise Invalid("participants: send them, or user_id and agent_id", field="participants")
    if request.participants is not None:
        if request.user_id is not None or request.agent_id is not None:
            raise Invalid(
                "user_id: send user_id and agent_id, or participants, not both", field="user_id"
            )
        members = participants.normalize_participant_set(request.participants)
    else:
        user, agent = (
            _to_participant("user", request.user_id or ""),
            _to_participant("agent", request.agent_id or ""),
        )
        members = sorted({user, agent})
    if principal.user and principal.user not in members:
        raise Forbidden(
            "participants: must include this credential's own user",
            field="participants",
        )
    return members


def _to_participant(kind: str, name: str) -> str:
    """A participant of this kind, given as `NAME` or `KIND:NAME`. Raises Invalid."""
    full = name if name.strip().startswith(f"{kind}:") else f"{kind}:{name.strip()}"
    return participants.normalize_participant(full, f"{kind}_id")


def find_session(access: TenantDb, session_id: str, scope_id: UUID | None) -> Session:
    """Find a visible session by name: the caller's own, else the only open one, else the only one.

    By name alone, a bound user never gets a session that another user began, because its messages
    would be visible to the participants whom that user chose. Raises NotFound; StateConflict if
    only `scope_id` can identify the session.
    """
    if not 1 <= len(session_id) <= 128 or "\0" in session_id:
        raise NotFound
    rows = store.list_sessions_by_name(access, session_id, scope_id)
    if not rows:
        raise NotFound
    own_rows = [row for row in rows if row.writer == access.caller.writer]
    is_bound = access.caller.writer != NOBODY
    trusted_rows = (
        [row for row in rows if row.writer == NOBODY] if is_bound and not scope_id else rows
    )
    open_rows = [row for row in trusted_rows if row.ended_at is None]
    for candidates in (own_rows, open_rows, trusted_rows):
        if len(candidates) == 1:
            return candidates[0]
    reason = (
        "several sessions have this name; select one"
        if trusted_rows
        else "another user began the session of this name; select it explicitly"
    )
    raise StateConflict(
        f"session_id: {reason} with ?scope_id=, one of scope_ids",
        field="scope_id",
        scope_ids=sorted(str(row.scope_id) for row in rows),
    )


def require_readable_session(session: Session) -> Session:
    """Return the session for reading. Raises NotFound if it has ended or is being erased."""
    if session.is_marked:
        raise NotFound
    if session.ended_at is not None:
        raise NotFound(
            "This session has ended. Its events are kept: POST /api/v1/events/query with its "
            "session_id returns them."
        )
    return session


def require_appendable_session(session: Session) -> Session:
    """Return the session. Raises StateConflict if it has ended: nothing can be appended to it."""
    if session.ended_at is not None:
        raise StateConflict(SESSION_ENDED_MESSAGE, field="session_id")
    return session


def resolve_reading_participants(session: Session, names: Sequence[str] | None) -> Sequence[str]:
    """The participants on whose behalf to read a session: the named ones, or all. Raises Invalid
    for one who is not in the session, because the session itself would not be visible."""
    if names is None:
        return session.participants
    members = participants.normalize_participant_set(names)
    if not set(members) <= set(session.participants):
        raise Invalid(
            "participants: name some of the session's own participants, or leave them out",
            field="participants",
        )
    return members


def _to_session_out(session: Session | store.OpenSessionRow) -> SessionOut:
    return SessionOut.model_validate(vars(session))


def to_open_session_out(session: Session) -> SessionOut:
    """Convert a session for a response. Raises NotFound if it has ended."""
    return _to_session_out(require_readable_session(session))


def end_session(access: TenantDb, session: Session, now: datetime) -> EndedSession:
    """End a session, which hides it. Idempotent."""
    event_count = store.end_session(access, session.session_id, session.scope_id, now)
    return EndedSession(events_kept=event_count)


def list_sessions(access: TenantDb, limit: int, cursor: str | None) -> SessionPage:
    """List visible sessions that have not ended, newest first. Raises Malformed for an invalid
    cursor, Gone for one from before an erasure."""
    cursors = Cursors(access.sealer, access.caller.tenant, "sessions", access.caller.viewer)
    after = decode_cursor_unless_erased_since(access, cursors, cursor)
    result = store.list_newest_open_sessions(access, after, limit)
    page = take_models_fitting_response(map(_to_session_out, result.rows[:limit]))
    next_cursor = None
    if len(page) < len(result.rows):
        last = result.rows[len(page) - 1]
        next_cursor = cursors.encode(
            Position(
                after.pg_snapshot if after else result.pg_snapshot, last.created_at, last.place
            )
        )
    return SessionPage(sessions=page, next_cursor=next_cursor)


# appending to them ------------------------------------------------------------------------------


def split_interaction_into_events(
    session: Session, request: InteractionIn, key: str | None
) -> list[tuple[dict[str, Any], str | None]]:
    """Split an interaction into its two events, each with its Idempotency-Key."""
    common_fields = request.model_dump(exclude_none=True, include={"tenant_id", "user_id"}) | {
        "participants": session.participants,
        "session_id": session.session_id,
        "channel": request.channel,
        "metadata": request.metadata,
        "occurred_at": request.occurred_at,
    }
    messages = (
        ("user", request.user_message, request.user),
        ("agent", request.agent_response, request.agent),
    )
    source_key = request.source_event_key
    return [
        (
            common_fields
            | {"role": role, "content": text, "speaker": speaker}
            | {"source_event_key": source_key and f"{source_key}#{role}"},
            key and f"{key}#{role}",
        )
        for role, text, speaker in messages
    ]


_INTERACTION_FIELDS = (
    {"content": "user_message", "speaker": "user"},
    {"content": "agent_response", "speaker": "agent"},
)
"""The interaction's field names for the fields of its two events."""


def find_interaction_error(results: list[AppendResult]) -> StrandlineError | None:
    """The error that refused an interaction, with the interaction's field names; None if it was
    stored."""
    errors = [(n, result.error) for n, result in enumerate(results) if result.error is not None]
    for n, error in errors:
        if not isinstance(error, BatchRefused):
            return _rename_error_fields(
                error, _INTERACTION_FIELDS[n] | {"occurred_at": "timestamp"}
            )
    return errors[0][1] if errors else None


def _rename_error_fields(error: StrandlineError, names: Mapping[str, str]) -> StrandlineError:
    """The error with its fields renamed, in the message and the details. This is safe because
    messages contain field names, but no text from the caller."""
    field_pattern = re.compile(rf"\b({'|'.join(names)})\b")
    message = field_pattern.sub(lambda match: names[match[1]], error.message)
    details = dict(error.details)
    if "field" in details:
        details["field"] = names.get(str(details["field"]), details["field"])
    if isinstance(error, Conflict) and "fields" in details:
        conflicting_fields = cast("list[str]", details["fields"])
        details["fields"] = [names.get(name, name) for name in conflicting_fields]
    return type(error)(message, **details)
