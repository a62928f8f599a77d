"""What the texts of payloads say where they match a question: read from the payload store for an
answer, outside of any transaction."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from strandline.aws.blobs import BlobStore
from strandline.aws.payload_texts import is_text_type
from strandline.errors import PayloadMissing, Unavailable
from strandline.log.indexed_text import INDEXED_CHARS, PIECE_CHARS, split_into_index_spans
from strandline.log.passage_spans import split_into_segments
from strandline.log.store import Event
from strandline.observability import logger
from strandline.recall.passages import Passages, WordMatcher
from strandline.recall.schemas import TextRange
from strandline.recall.search import SearchResult

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

PAYLOADS_UNREAD = "payloads_unread"
"""The code for `degraded` where the payload store did not answer in time."""
MAX_EXCERPT_CHARS = 600
"""The maximum characters of an excerpt, unless it is one sentence."""
_MAX_PAYLOADS = 8
"""How many payloads are read for one answer, the first."""
_SECONDS = 2.0
"""How long an answer waits for the payload store."""


class PayloadPart(NamedTuple):
    """The indexed part of a payload's text that matches a question; else its beginning."""

    start_char: int
    text: str
    is_last: bool
    cosines: Sequence[float] = ()
    """The question's cosines with those of its passages that have vectors, the first."""

    @property
    def marked_text(self) -> str:
        """The text, with `…` for what comes before and after it."""
        return f"{'… ' if self.start_char else ''}{self.text}{'' if self.is_last else ' …'}"


class PayloadParts(NamedTuple):
    """Parts of payloads' texts, by event."""

    by_event: Mapping[UUID, PayloadPart]
    degradations: Sequence[str] = ()


NO_PAYLOADS = PayloadParts({})


def read_payload_parts(
    blobs: BlobStore,
    tenant: str,
    events: Iterable[Event | None],
    search: SearchResult | None,
) -> PayloadParts:
    """Read what the first of these events that are payloads of text say where a question matches,
    without one how they begin, all at the same time. What the store does not hold, or not in time,
    is left out."""
    text_payloads = [
        event for event in events if event and event.blob_cid and is_text_type(event.mime_type)
    ]
    if not text_payloads:
        return NO_PAYLOADS
    from concurrent.futures import wait  # few answers have payloads

    reads = {
        event.event_id: _get_pool().submit(_read_part, blobs, tenant, event, search)
        for event in text_payloads[:_MAX_PAYLOADS]
    }
    in_time, late = wait(reads.values(), timeout=_SECONDS)
    for read in late:
        read.cancel()  # one that has begun ends by the store's own timeout
    failures = [read.exception() for read in in_time]
    faults = [error for error in failures if error and not isinstance(error, Unavailable)]
    if faults:
        raise faults[0]
    parts = {
        event_id: part
        for event_id, read in reads.items()
        if read in in_time and not read.exception() and (part := read.result())
    }
    return PayloadParts(parts, [PAYLOADS_UNREAD] if late or any(failures) else [])


@functools.cache
def _get_pool() -> "ThreadPoolExecutor":
    """The process's threads that read payloads: no more, however many answers wait."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(_MAX_PAYLOADS, "payloads")


def _read_part(
    blobs: BlobStore, tenant: str, event: Event, search: SearchResult | None
) -> PayloadPart | None:
    """The part of a payload that matches; None if the store does not hold it, or it is blank.
    Raises Unavailable."""
    row = search.candidates.get(event.event_id) if search else None
    start, end = (row and row.start_char) or 0, (row and row.end_char) or 0
    size = 4 * end if start else INDEXED_CHARS if row else PIECE_CHARS
    try:
        text = blobs.read_text_prefix(tenant, event.blob_cid or "", size, event.mime_type)
    except PayloadMissing:
        logger.warning("payload missing", extra={"cid": event.blob_cid})
        return None
    if not start:  # The first part is found by the name and by the event before it, too.
        spans = split_into_index_spans(text)
        matcher = search.matcher if search else WordMatcher([])
        start, end = max(spans, key=lambda span: matcher.weigh(text[slice(*span)]))
    part = text[start:end]
    is_last = len(text) <= end and (event.blob_size or 0) <= size
    cosines = (row and row.passage_cosines) or () if start == 0 else ()
    return PayloadPart(start, part, is_last, cosines) if part.strip() else None


def choose_excerpt(part: PayloadPart, matcher: WordMatcher) -> tuple[TextRange, str]:
    """The range of a payload's text that matches best, and what it says; where only its name or
    meaning matches, how the part begins."""
    passages = Passages(part.text, matcher, part.cosines)
    first, last = passages.find_best(MAX_EXCERPT_CHARS) or (_find_beginning(part.text))
    place = TextRange(start_char=part.start_char + first, end_char=part.start_char + last)
    return place, part.text[first:last]


def _find_beginning(text: str) -> tuple[int, int]:
    """The range of the first sentences that fit an excerpt."""
    (start, first_end), *others = split_into_segments(text)
    ends = (end for _, end in others if end - start <= MAX_EXCERPT_CHARS)
    return start, max(ends, default=first_end)
