"""Build an event from a draft: its id, its CID, and its pieces for the index. Without I/O."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.errors import Invalid
from strandline.log import indexed_text
from strandline.log.cid import Edge, EventColumns, compute_block_cid, encode_block
from strandline.log.event_draft import EventDraft
from strandline.log.fulltext_words import to_indexed_text
from strandline.participants import display_name

_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass
class NewEvent(EventColumns):
    """An event to be stored: the fields of the SQL type `append_item`."""

    n: int
    event_id: UUID
    scope_id: UUID
    blob_stored: bool
    cid: str
    key_channel: str | None
    source_event_key: str | None
    fingerprint: str | None
    edges: list[dict[str, object]]
    label: str | None
    pieces: list[dict[str, object]]
    bytes: int
    """The bytes it adds to its scope: content and metadata, and a payload if this request itself
    uploads it."""

    def as_json(self) -> dict[str, object]:
        """The event as JSON values for the SQL function `append_events`."""
        return {
            **vars(self),
            "event_id": str(self.event_id),
            "scope_id": str(self.scope_id),
            "parts": [part._asdict() for part in self.parts],
            "occurred_at": self.occurred_at and self.occurred_at.isoformat(),
        }


def build_event(
    draft: EventDraft, n: int, targets: Sequence[tuple[UUID | None, str | None]]
) -> NewEvent:
    """Build the event of a draft.

    `targets` are the resolved edges as (id, CID), in the order of the draft's edges; (None, None)
    where no event is visible to all participants. Raises Invalid when two of the request's edges
    resolve to the same event.
    """
    resolved_edges = _merge_request_and_recalled_edges(draft, targets)
    columns = draft.columns()
    event = NewEvent(
        **columns,
        n=n,
        event_id=uuid7(),
        scope_id=draft.scope_id,
        blob_stored=draft.brings_payload,
        cid="",
        key_channel=draft.key and draft.key[0],
        source_event_key=draft.key and draft.key[1],
        fingerprint=draft.key and draft.compute_fingerprint(),
        edges=[edge._asdict() for edge in resolved_edges],
        label=display_name(draft.speaker) if draft.speaker else None,
        pieces=_make_index_pieces_of_draft(draft, columns["file_name"]),
        bytes=0,
    )
    edges = [Edge(edge.cid, edge.weight) for edge in resolved_edges if edge.cid]
    event.cid = compute_block_cid(encode_block(event, edges))
    event.bytes = _count_stored_bytes(event)
    return event


class _EdgeRow(NamedTuple):
    """An edge as the database takes it; no id and no CID where its target was not found."""

    event_id: str | None
    cid: str | None
    weight: float


def _merge_request_and_recalled_edges(
    draft: EventDraft, targets: Sequence[tuple[UUID | None, str | None]]
) -> list[_EdgeRow]:
    """The edges of the request, then those that recall found and that cite none of the same events
    and no event that has gone since."""
    resolved_edges = [
        _EdgeRow(event_id and str(event_id), cid, edge.weight)
        for edge, (event_id, cid) in zip(draft.edges, targets, strict=True)
    ]
    count = len(draft.request.edges)
    own_edges = resolved_edges[:count]
    own_ids = [edge.event_id for edge in own_edges if edge.event_id is not None]
    if len(set(own_ids)) < len(own_ids):
        raise Invalid("edges: two edges cite the same event; send one of them", field="edges")
    links = [e for e in resolved_edges[count:] if e.event_id and e.event_id not in own_ids]
    return own_edges + links


def _count_stored_bytes(event: NewEvent) -> int:
    return len((event.content or "").encode()) + len(_COMPACT.encode(event.metadata).encode())


def _make_index_pieces_of_draft(
    draft: EventDraft, file_name: str | None
) -> list[dict[str, object]]:
    """The index pieces of a draft. The file name of a cited payload is searchable too, though not
    part of its text."""
    if draft.text is not None:
        return _split_into_index_pieces(draft.text)
    return _split_into_index_pieces(
        (draft.cited_payload and draft.cited_payload.text) or "", file_name
    )


def _split_into_index_pieces(text: str, name: str | None = None) -> list[dict[str, object]]:
    """`name` is a part of the first piece: a comment may open in it."""
    return [
        {
            "start": start,
            "end": end,
            "text": to_indexed_text(
                f"{name}\n{text[start:end]}" if name and not start else text[start:end]
            ),
        }
        for start, end in indexed_text.split_into_index_spans(text)
    ]
