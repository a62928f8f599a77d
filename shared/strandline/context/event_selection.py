"""Which of the events that answer a question a context's text takes, and its limits."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from strandline.aws.payload_texts import is_text_type
from strandline.context.layout import BYTES_PER_TOKEN, FRAME_BYTES, RECENT_SHARE
from strandline.context.lines import (
    BROAD_EVENT_SHARE,
    EVENT_SHARE,
    FURTHER_SHARE,
    MAX_SOURCE_CHARS,
    TOOL_SHARE,
)
from strandline.db.database import TenantDb
from strandline.log.store import Event
from strandline.recall.importance import SonaInEmbeddingSpace, can_change_order
from strandline.recall.near_duplicates import DeduplicatedEvents, collapse_near_duplicates
from strandline.recall.relevance import ScoredEvent, compute_odds
from strandline.recall.schemas import RecallWeights
from strandline.recall.search import SearchResult

_TOKENS_PER_NEIGHBOURHOOD, _MAX_NEIGHBOURHOODS = 700, 4
"""For each so many tokens of the budget, one of the best events is shown with its neighbours."""
_MAX_WEAK_EVENTS = 3
"""The number of the nearest events that are shown, marked as weak, where none is relevant. A reader
judges them better than a threshold does."""
_MIN_LINE_TOKENS = 20
"""Hardly any line takes fewer tokens."""
_RELEVANT_ODDS, _MIN_RELEVANT_EVENTS = 1 / 50, 8
"""A text ends after the last event whose odds to answer are at least this share of the best one's,
but not before so many events: what follows takes room and holds next to nothing."""
_DATED_SHARE = 1 / 2
"""The share of the budget within which the events of a named time come before all others."""
_NEWEST_OF = 8
"""The newest of so many of the best events may hold what replaced what the others say."""
_LINE_BYTES = 20
"""The minimum bytes of an event's line in addition to its text."""


@dataclass(frozen=True)
class AnswerTextOptions:
    """The options of a text that is made for an answer, as opposed to one that a caller
    requests."""

    exclude: Collection[UUID] = ()
    """Events to leave out: the message that is answered."""
    recent_share: float = 0.4
    """The maximum share of the budget for short-term memory."""
    weights: RecallWeights | None = None
    """Additional weights for the order of the events that answer the question, as in recall."""
    sona: SonaInEmbeddingSpace | None = None
    """The sona that gives the answer."""


@dataclass(frozen=True)
class ContextTextOptions:
    """The limits of a text."""

    min_relevance: float | None
    limit: int | None
    """The maximum number of events that answer the question."""
    budget: int
    answering: AnswerTextOptions | None = None
    is_one_session: bool = False
    """Whether the text shows the events of one session alone."""
    expand: int = 0
    """The maximum number of events to add because the best ones cite them."""
    today: datetime | None = None
    """The day of the question."""
    as_of: datetime | None = None
    """The time for which it is asked: nothing later is shown."""
    question: str = ""
    needs_breadth: bool = False
    """Whether the question needs a list, an order or a summary."""

    @property
    def excluded_ids(self) -> Collection[UUID]:
        """Events that are not shown."""
        return self.answering.exclude if self.answering else ()

    @property
    def event_share(self) -> float | None:
        """The maximum share of the text for any event; None: by its place."""
        return BROAD_EVENT_SHARE if self.needs_breadth else None

    @property
    def count_of_events_with_neighbours(self) -> int:
        """The number of events that are shown with their neighbours."""
        if self.limit is not None or self.needs_breadth:
            return 0
        return min(self.budget // _TOKENS_PER_NEIGHBOURHOOD, _MAX_NEIGHBOURHOODS)


def choose_answer_events(
    access: TenantDb, search: SearchResult, request: ContextTextOptions
) -> tuple[DeduplicatedEvents, bool, UUID | None]:
    """The events for a question, best first, near-duplicates in one place, whether they are only
    the nearest ones, and the newest of the best, which stands second. Those of a time that the
    question names come first, also where it is not known whether they answer it. Events that say
    nothing are among them only if no other is, or with a `min_relevance` of 0."""
    wants_all = request.min_relevance == 0
    events = search.select_relevant_events(request.min_relevance)
    if is_weak := not events and request.min_relevance is None:
        events = list(search.ranking.events)
    if not wants_all:
        events = [event for event in events if not event.candidate.says_nothing] or events
    dated_events = _take_events_of_named_date(events, search, request)
    spread = search.topics.spread(events)
    in_order = {event.candidate.event_id: event for event in (*dated_events, *spread)}
    events = list(in_order.values())
    weak_count = len(dated_events) + _MAX_WEAK_EVENTS
    limit = weak_count if is_weak else request.budget // _MIN_LINE_TOKENS
    groups = collapse_near_duplicates(access, events, search.words, request.question, limit)
    leaders = groups.list_events(with_duplicates=wants_all)
    leaders = leaders[:weak_count] if is_weak else leaders
    ends_early = request.min_relevance is None and not request.needs_breadth
    if ends_early and search.calibration.is_calibrated:
        leaders = _end_with_relevance(leaders)
    newest_id = None if is_weak else _find_newest_event(leaders, search, request)
    leaders = _put_second(leaders, newest_id)
    return replace(groups, events=leaders[: request.limit]), is_weak, newest_id


def _find_newest_event(
    events: Sequence[ScoredEvent], search: SearchResult, request: ContextTextOptions
) -> UUID | None:
    """For a question about now the newest of what people said in the best events, best first; None
    for another question, if only the best ones are asked for, or if weights say what counts."""
    answering = request.answering
    is_weighted = answering is not None and can_change_order(answering.weights, answering.sona)
    best = [event.candidate for event in events[:_NEWEST_OF] if event.candidate.author is None]
    wants_best = request.needs_breadth or request.limit is not None or is_weighted
    if not best or not search.is_about_now or wants_best:
        return None
    return max(best, key=lambda candidate: candidate.said_at).event_id


def _put_second(events: Sequence[ScoredEvent], event_id: UUID | None) -> Sequence[ScoredEvent]:
    """The events with this one directly after the best, so that a budget has room for it."""
    place = next((n for n, event in enumerate(events) if event.candidate.event_id == event_id), 0)
    return [*events[:1], events[place], *events[1:place], *events[place + 1 :]] if place else events


def _end_with_relevance(events: Sequence[ScoredEvent]) -> Sequence[ScoredEvent]:
    """The events up to the last that is relevant beside the best. The relevance of one without a
    vector that holds a word of the question is uncertain, so it counts as relevant."""
    best = max((compute_odds(event.relevance) for event in events), default=0.0)
    end = max(
        (
            n
            for n, event in enumerate(events, 1)
            if compute_odds(event.relevance) >= _RELEVANT_ODDS * best - 1e-9
            or (event.candidate.cosine is None and event.candidate.word_bits)
        ),
        default=0,
    )
    return events[: max(end, _MIN_RELEVANT_EVENTS)]


def _take_events_of_named_date(
    events: Sequence[ScoredEvent], search: SearchResult, request: ContextTextOptions
) -> Sequence[ScoredEvent]:
    """The best events of the day that the question names, else of its month or period, as many as
    half of the budget holds: a day may hold more than the question is about."""
    closest = max((event.features.date for event in events), default=0.0)
    dated_events = [event for event in events if closest and event.features.date == closest]
    count = len(take_events_to_fill_budget(dated_events, search, {}, request, _DATED_SHARE))
    return dated_events[:count]


def take_events_to_fill_budget(
    events: Sequence[ScoredEvent],
    search: SearchResult,
    recent: Mapping[UUID, int],
    request: ContextTextOptions,
    share: float = 2.0,
) -> list[UUID]:
    """The best of the selected events, at least as many as a share of this token budget holds: by
    default twice what a text holds, so that no further events need be read. White space counts
    here, although less of it is shown."""
    max_bytes = request.budget * BYTES_PER_TOKEN
    max_event_bytes = int(max_bytes * (request.event_share or FURTHER_SHARE))
    room = share * max_bytes
    event_ids: list[UUID] = []
    for event in events:
        if room <= 0:
            break
        event_id = event.candidate.event_id
        event_ids.append(event_id)
        if event_id not in recent:
            room -= _LINE_BYTES + min(search.candidates[event_id].text_bytes, max_event_bytes)
    return event_ids


def take_recent_events_to_fill_budget(
    recent: Iterable[Event], request: ContextTextOptions, *, has_question: bool
) -> list[Event]:
    """The newest events of short-term memory, about as many as its room in this token budget holds,
    so that no payload of a further one need be read. Each counts half of the bytes that it may
    take, so that only texts of mostly white space, which is cut, leave room for a further one."""
    max_bytes = request.budget * BYTES_PER_TOKEN
    room = float(max_bytes - FRAME_BYTES)
    if has_question:
        share = request.answering.recent_share if request.answering else RECENT_SHARE
        room = min(room, max_bytes * share)
    taken: list[Event] = []
    for event in recent:
        if room <= 0:
            break
        taken.append(event)
        text_bytes = len(event.content or "")
        if event.blob_cid and is_text_type(event.mime_type):
            text_bytes = event.blob_size or 0
        share = TOOL_SHARE if event.origin == "tool" else EVENT_SHARE
        room -= _LINE_BYTES + min(text_bytes, max_bytes * share, MAX_SOURCE_CHARS) / 2
    return taken
