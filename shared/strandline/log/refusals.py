"""The errors of items that the log refuses."""

from collections.abc import Mapping
from typing import Any

from strandline.errors import (
    Conflict,
    Gone,
    Invalid,
    StateConflict,
    StrandlineError,
    Unavailable,
)
from strandline.log.event_builder import NewEvent
from strandline.log.event_draft import EventDraft
from strandline.log.reused_key_differences import list_differences

_REFUSAL_MESSAGES = {
    "edge_not_found": (
        "edges",
        "edges: cite only events that every participant of this event may see",
    ),
    "blob_not_found": (
        "blob.cid",
        "blob.cid: there is no payload with this CID that you may cite. Upload it with POST "
        "/api/v1/uploads, and cite it before its cite_until",
    ),
    "session_mismatch": (
        "session_id",
        "session_id: this session has other participants; use another session_id, or send the "
        "session's own participants",
    ),
}
"""The field and the message of each refusal, by the database's code."""

SESSION_ENDED_MESSAGE = (
    "session_id: this session has ended; begin another under a new session_id, or leave it out: "
    "POST /api/v1/events accepts events without a session"
)


ERASED_KEY_MESSAGE = (
    "The event that was stored under this key was erased. Use a new key to store another event."
)


def make_refusal(
    outcome: str, draft: EventDraft, event: NewEvent, stored_request: Mapping[str, Any] | None
) -> StrandlineError:
    """The error of an item that the database refused with this outcome. `stored_request` is the
    event under the item's key, after a conflict. Raises Unavailable where a repetition of the whole
    request helps."""
    if outcome == "blob_not_found" and (
        draft.payload or (draft.cited_payload and draft.cited_payload.upload)
    ):
        # The payload was not uploaded because the key was in the log; now it no longer is.
        raise Unavailable("The event stored under this request's key just changed. Try again.")
    if outcome == "erased":
        return Gone(ERASED_KEY_MESSAGE)
    if outcome == "session_ended":
        return StateConflict(SESSION_ENDED_MESSAGE, field="session_id")
    if outcome != "conflict":
        name, message = _REFUSAL_MESSAGES[outcome]
        return Invalid(message, field=name, reason=outcome)
    if stored_request is None:
        return Conflict("This key was already used for a different request. Use a new key.")
    fields = list_differences(draft, stored_request, event.edges)
    return Conflict(
        f"This key was already used with a different {', '.join(fields)}. Repeat the first "
        "request unchanged, or use a new key.",
        fields=fields,
        event_id=stored_request["event_id"],
    )
