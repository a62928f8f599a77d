"""The errors of items that the log refuses; of a reused key, with what differs from the event that
is stored under it. Without I/O."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
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
from strandline.log.event_draft import (
    REQUEST_COLUMNS,
    TEXT_TYPE,
    EventDraft,
    normalize_json_numbers,
)
from strandline.log.schemas_append import AppendRequest

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


def make_append_refusal_error(
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
    fields = list_differing_fields(draft, stored_request, event.edges)
    return Conflict(
        f"This key was already used with a different {', '.join(fields)}. Repeat the first "
        "request unchanged, or use a new key.",
        fields=fields,
        event_id=stored_request["event_id"],
    )


def list_differing_fields(
    draft: EventDraft, stored_row: Mapping[str, Any], edges: Sequence[Mapping[str, object]]
) -> list[str]:
    """The names of the fields in which a request differs from the event stored under its key.

    `stored_row` is the event's row as JSON; `edges` are the request's, resolved by `build_event`.
    """
    stored_fields: dict[str, object] = {
        **stored_row,
        "parts": [[part["chars"], part["model"]] for part in stored_row["parts"]],
        "blob": stored_row["blob_cid"],
        "name": stored_row["file_name"],
        "session_id": stored_row["session_id"] or None,
        "occurred_at": stored_row["occurred_at"] and _to_utc_text(stored_row["occurred_at"]),
        "metadata": normalize_json_numbers(stored_row["metadata"]),
    }
    if stored_row["mime_type"] in (None, TEXT_TYPE) and (draft.payload is None) != (
        stored_fields["blob"] is None
    ):
        # They differ only because the text moved to or from the payload store.
        stored_fields["mime_type"] = draft.mime_type
    if draft.payload is not None and stored_row["mime_type"] == draft.columns()["mime_type"]:
        stored_fields["mime_type"] = draft.mime_type  # what it names its text to be is not stored
    request_fields = draft.canonical_request_fields()
    if draft.request.content is not None and [m for _, m in draft.parts] == _list_part_models(
        stored_row
    ):
        stored_fields["parts"] = request_fields["parts"]  # only their lengths differ
    caller_names = _map_canonical_to_request_names(draft.request, stored_row)
    names = [
        caller_names.get(name, name)
        for name in dict.fromkeys([*request_fields, *REQUEST_COLUMNS])
        if _encode_for_comparison(request_fields.get(name))
        != _encode_for_comparison(stored_fields[name])
    ]
    if draft.request.blob is not None:  # fields left out may be the upload's
        unset = {n for n in ("mime_type", "name") if request_fields[n] is None}
        names = [name for name in names if name not in unset] or names

    def edge_set(links: Sequence[Mapping[str, object]]) -> set[tuple[object, object]]:
        return {(link["event_id"], link["weight"]) for link in links}

    if draft.links is not None:  # what recall found differs from time to time
        own_edges = edges[: len(draft.request.edges)]
        return list(dict.fromkeys(names)) or (
            ["recall"] if edge_set(own_edges) <= edge_set(stored_row["edges"]) else ["edges"]
        )
    if edge_set(edges) != edge_set(stored_row["edges"]):
        names.append("edges")
    # The same targets, written in another way; or the character set that is not stored.
    return list(dict.fromkeys(names)) or [
        "edges" if draft.payload is None or edges else "mime_type"
    ]


def _list_part_models(stored_row: Mapping[str, Any]) -> list[str | None]:
    return [part["model"] for part in stored_row["parts"]]


def _map_canonical_to_request_names(
    request: AppendRequest, stored_row: Mapping[str, Any]
) -> Mapping[str, str]:
    """The request's field names by canonical names: the caller sent `content`, whether or not it
    was stored as a blob."""
    if request.parts is not None:
        return {"content": "parts", "blob": "parts"}
    if request.content is not None:
        return {"blob": "content"} | ({"parts": "model"} if len(stored_row["parts"]) < 2 else {})
    return {"content": "blob", "parts": "blob"}


def _encode_for_comparison(value: object) -> str:
    """Encode for comparison: in Python, True == 1."""
    return json.dumps(value, sort_keys=True)


def _to_utc_text(text: str) -> str:
    return datetime.fromisoformat(text).astimezone(UTC).isoformat()
