"""Convert stored events and chains to the sources of lines."""

from collections.abc import Collection, Mapping
from datetime import timedelta
from types import MappingProxyType
from uuid import UUID

from strandline.chains.slot_decisions import StatementInMessage
from strandline.context.lines import ChainLineSource, EventLineSource, LaterStatementMark
from strandline.log.store import Event
from strandline.recall.passages import Passages
from strandline.recall.payload_excerpts import PayloadPart
from strandline.recall.search import SearchResult
from strandline.sessions.store_chains import MatchedChain

_LATE = timedelta(days=1)
"""The minimum delay at which an event counts as added later than it happened."""


def to_event_line_source(
    event: Event,
    stands_for: int = 1,
    *,
    ended: Collection[UUID] = (),
    later: Mapping[UUID, StatementInMessage] = MappingProxyType({}),
    similar: Mapping[UUID, Collection[UUID]] = MappingProxyType({}),
    notes_late: bool = False,
    search: SearchResult | None = None,
    payload_parts: Mapping[UUID, PayloadPart] = MappingProxyType({}),
    beside: Collection[UUID] = (),
    newest_id: UUID | None = None,
) -> EventLineSource:
    """Convert an event that represents `stands_for` recent events. Its line says whether it is one
    of `ended`, the statements that hold no longer, which `later` statement may have changed it,
    how many near-duplicates it has in `similar`, and, with `notes_late`, whether it was added later
    than it happened. A long text is shortened to the passages that match the question of `search`,
    and a payload shows what was read of its text, `payload_parts`.
    `beside` are the events that are shown only beside others, `newest_id` is the newest of the best
    for a question about now."""
    changed_by, part = later.get(event.event_id), payload_parts.get(event.event_id)
    text = part.marked_text if part else event.content
    said_at = event.occurred_at or event.recorded_at
    return EventLineSource(
        event_id=event.event_id,
        said_at=said_at,
        place=(event.recorded_at, event.scope_id, event.seq),
        speaker=event.speaker,
        origin=event.origin,
        text=text if text and text.strip() else _describe_payload(event),
        file_name=event.file_name if part else None,
        stands_for=stands_for,
        session_id=event.session_id,
        is_ended=event.event_id in ended,
        later=LaterStatementMark(
            changed_by.event.said_at, changed_by.is_end, changed_by.earlier_sentence
        )
        if changed_by
        else None,
        similar=len(similar.get(event.event_id, ())),
        is_late=notes_late and event.recorded_at - said_at >= _LATE,
        passages=_make_passages(event, part, search) if search else None,
        is_neighbour=event.event_id in beside,
        is_newest=event.event_id == newest_id,
    )


def _make_passages(event: Event, part: PayloadPart | None, search: SearchResult) -> Passages | None:
    if part:
        return Passages(part.marked_text, search.matcher, part.cosines)
    return search.make_passages(event.event_id, event.content) if event.content else None


def _describe_payload(event: Event) -> str:
    """The text in place of the content of an event whose content is a payload, or empty."""
    if event.blob_cid is None:
        return "(no text)"
    name = f'"{event.file_name}", ' if event.file_name else ""
    return f"(a file: {name}{event.blob_size or 0:,} bytes)"


def to_chain_line_source(chain: MatchedChain) -> ChainLineSource:
    """Convert a chain."""
    return ChainLineSource(
        chain_id=chain.chain_id,
        started_at=chain.started_at,
        last_event_at=chain.last_event_at,
        topic=chain.topic,
        summary=chain.summary,
        trust=chain.trust,
        participants=chain.participants,
        event_ids=chain.event_ids,
    )
