"""Sessions: begin, find, end and list them, and what is added to them."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline import participants
from strandline.auth.principals import Principal
from strandline.cursors import Cursors, Position
from strandline.db.database import NOBODY, Access
from strandline.errors import (
    BatchRefused,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    StateConflict,
    StrandlineError,
)
from strandline.log.append import SESSION_ENDED, Appended
from strandline.log.read import fitting
from strandline.sessions import store
from strandline.sessions.schemas import EndedOut, InteractionIn, SessionIn, SessionOut, SessionPage
from strandline.sessions.store import Session


def begin(access: Access, principal: Principal, asked: SessionIn) -> tuple[SessionOut, bool]:
    """Begin a session, and say whether it was there before, the same. Raises Forbidden, Invalid for
    a name that other participants have, StateConflict for one that has ended or has other metadata.
    """
    principal.require_own(asked.tenant_id, None)
    members = _members(principal, asked)
    scope_id = participants.scope_id(principal.tenant, members)
    name = asked.session_id or str(uuid7())
    with access.transaction():
        met = store.meeting(access, name, scope_id)
        if met is None:
            metadata = json.dumps(asked.metadata or {})
            made = store.begin(access, name, scope_id, members, metadata)
            return _shown(made), False
    if met.scope_id != scope_id:
        raise Invalid(
            "session_id: this session has other participants; with others it is another session",
            field="session_id",
        )
    require_open(met)
    if asked.metadata is not None and asked.metadata != met.metadata:
        raise StateConflict(
            "session_id: this session is there already, with other metadata; leave metadata out "
            "to go on with it, or name another",
            field="session_id",
        )
    return _shown(met), True


def _members(principal: Principal, asked: SessionIn) -> list[str]:
    named = asked.user_id is not None and asked.agent_id is not None
    if (asked.participants is None) != named:
        raise Invalid(
            "participants: give either participants, or user_id and agent_id", field="participants"
        )
    if asked.participants is not None:
        if asked.user_id is not None or asked.agent_id is not None:
            raise Invalid("user_id: goes with agent_id, instead of participants", field="user_id")
        members = participants.normalize_set(asked.participants)
    else:
        user, agent = _of_kind("user", asked.user_id or ""), _of_kind("agent", asked.agent_id or "")
        members = sorted({user, agent})
    if principal.user and principal.user not in members:
        raise Forbidden(
            "participants: this credential writes only where its own user takes part",
            field="participants",
        )
    return members


def _of_kind(kind: str, name: str) -> str:
    """A participant by its name alone, or in full."""
    full = name if name.strip().startswith(f"{kind}:") else f"{kind}:{name.strip()}"
    return participants.normalize(full, f"{kind}_id")


def find(access: Access, session_id: str, scope_id: UUID | None) -> Session:
    """The session in view of this name: the asker's own, else the only one (that has not ended). By
    its name alone a bound user is led to none that another user began: who writes there would be
    read by whom that user chose. Raises NotFound; StateConflict where the scope has to say which.
    """
    if not 1 <= len(session_id) <= 128 or "\0" in session_id:
        raise NotFound
    rows = store.named(access, session_id, scope_id)
    if not rows:
        raise NotFound
    own = [row for row in rows if row.writer == access.asker.writer]
    bound = access.asker.writer != NOBODY
    trusted = [row for row in rows if row.writer == NOBODY] if bound and not scope_id else rows
    lasting = [row for row in trusted if row.ended_at is None]
    for choice in (own, lasting, trusted):
        if len(choice) == 1:
            return choice[0]
    reason = (
        "several sessions here have this name; say which one"
        if trusted
        else "another user began what has this name here; say that you mean it"
    )
    raise StateConflict(
        f"session_id: {reason} by ?scope_id=",
        field="scope_id",
        scope_ids=sorted(str(row.scope_id) for row in rows),
    )


def require_shown(session: Session) -> Session:
    """The session, if it has not ended. Raises NotFound."""
    if session.ended_at is not None:
        raise NotFound(
            "This session has ended. Its events are kept: POST /api/v1/events/query with its "
            "session_id gives them."
        )
    return session


def require_open(session: Session) -> Session:
    """The session, if something may be added to it. Raises StateConflict."""
    if session.ended_at is not None:
        raise StateConflict(SESSION_ENDED, field="session_id")
    return session


def _shown(session: Session | store.ListedSession) -> SessionOut:
    return SessionOut.model_validate(vars(session))


def shown(session: Session) -> SessionOut:
    """A session as its readers see it. Raises NotFound for one that has ended."""
    return _shown(require_shown(session))


def end(access: Access, session: Session, now: datetime) -> EndedOut:
    """Hide a session; again changes nothing."""
    kept = store.end(access, session.session_id, session.scope_id, now)
    return EndedOut(events_kept=kept)


def listed(access: Access, limit: int, cursor: str | None) -> SessionPage:
    """Sessions in view that have not ended, newest first."""
    of = Cursors(access.sealer, access.asker.tenant, "sessions", access.asker.viewer)
    after = of.decode(cursor)
    seen = store.newest(access, after, limit)
    page = fitting(map(_shown, seen.rows[:limit]))
    following = None
    if len(page) < len(seen.rows):
        last = seen.rows[len(page) - 1]
        following = of.encode(
            Position(after.mark if after else seen.mark, last.created_at, last.place)
        )
    return SessionPage(sessions=page, next_cursor=following)


# adding to them ----------------------------------------------------------------------------------


def interaction(
    session: Session, asked: InteractionIn, key: str | None
) -> list[tuple[dict[str, Any], str | None]]:
    """The two events that an interaction is, each with its Idempotency-Key."""
    both = asked.model_dump(exclude_none=True, include={"tenant_id", "user_id"}) | {
        "participants": session.participants,
        "session_id": session.session_id,
        "channel": asked.channel,
        "metadata": asked.metadata,
        "occurred_at": asked.occurred_at,
    }
    said = (("user", asked.user_message, asked.user), ("agent", asked.agent_response, asked.agent))
    own = asked.source_event_key
    return [
        (
            both
            | {"role": role, "content": text, "speaker": speaker}
            | {"source_event_key": own and f"{own}#{role}"},
            key and f"{key}#{role}",
        )
        for role, text, speaker in said
    ]


_SAID = (
    {"content": "user_message", "speaker": "user"},
    {"content": "agent_response", "speaker": "agent"},
)
"""What an interaction calls the fields of its two events."""


def refused(results: list[Appended]) -> StrandlineError | None:
    """Why an interaction was not stored, in its own words."""
    found = [(n, result.error) for n, result in enumerate(results) if result.error is not None]
    for n, error in found:
        if not isinstance(error, BatchRefused):
            return _renamed(error, _SAID[n] | {"occurred_at": "timestamp"})
    return found[0][1] if found else None


def _renamed(error: StrandlineError, names: Mapping[str, str]) -> StrandlineError:
    """The error, with its fields called as the caller calls them. A message holds names alone."""
    words = re.compile(rf"\b({'|'.join(names)})\b")
    told = words.sub(lambda found: names[found[1]], error.message)
    details = dict(error.details)
    if "field" in details:
        details["field"] = names.get(str(details["field"]), details["field"])
    if isinstance(error, Conflict) and "fields" in details:
        differing = cast("list[str]", details["fields"])
        details["fields"] = [names.get(name, name) for name in differing]
    return type(error)(told, **details)
