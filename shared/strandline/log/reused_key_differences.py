"""Compare a request with the event that is stored under its key. Without I/O."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from strandline.log.event_draft import REQUEST_COLUMNS, TEXT_TYPE, EventDraft, normalize_json
from strandline.log.schemas_append import AppendRequest


def list_differences(
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
        "metadata": normalize_json(stored_row["metadata"]),
    }
    if stored_row["mime_type"] in (None, TEXT_TYPE) and (draft.payload is None) != (
        stored_fields["blob"] is None
    ):
        # They differ only because the text moved to or from the payload store.
        stored_fields["mime_type"] = draft.mime_type
    request_fields = draft.comparable_fields()
    if draft.request.content is not None and [m for _, m in draft.parts] == _list_part_models(
        stored_row
    ):
        stored_fields["parts"] = request_fields["parts"]  # only their lengths differ
    caller_names = _map_field_names(draft.request, stored_row)
    names = [
        caller_names.get(name, name)
        for name in dict.fromkeys([*request_fields, *REQUEST_COLUMNS])
        if _canonical_json(request_fields.get(name)) != _canonical_json(stored_fields[name])
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
    return list(dict.fromkeys(names)) or ["edges"]  # same targets, written in another way


def _list_part_models(stored_row: Mapping[str, Any]) -> list[str | None]:
    return [part["model"] for part in stored_row["parts"]]


def _map_field_names(request: AppendRequest, stored_row: Mapping[str, Any]) -> Mapping[str, str]:
    """The request's field names by canonical names: the caller sent `content`, whether or not it
    was stored as a blob."""
    if request.parts is not None:
        return {"content": "parts", "blob": "parts"}
    if request.content is not None:
        return {"blob": "content"} | ({"parts": "model"} if len(stored_row["parts"]) < 2 else {})
    return {"content": "blob", "parts": "blob"}


def _canonical_json(value: object) -> str:
    """Encode for comparison: in Python, True == 1."""
    return json.dumps(value, sort_keys=True)


def _to_utc_text(text: str) -> str:
    return datetime.fromisoformat(text).astimezone(UTC).isoformat()
