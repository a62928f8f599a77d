"""The lines of an answer's topics and events. Each is made once, on first use."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from uuid import UUID

from strandline.context.lines import (
    ChainLineSource,
    ContextLine,
    EventLineSource,
    count_bytes,
    format_weekday_and_date,
    make_event_line,
    make_topic_line,
)
from strandline.llm.heuristic.overview import format_date_range

BYTES_PER_TOKEN = 4
INDENT = "  "
CITATION_BYTES = len("[99]")


@dataclass(frozen=True)
class AnswerTexts:
    """The texts that the lines of a plan are rendered from."""

    topics: Mapping[UUID, ChainLineSource]
    """By slot."""
    events: Mapping[UUID, EventLineSource]
    """By event."""
    participants: Mapping[UUID, Sequence[str]]
    """By scope."""
    keeps_summaries: bool
    """Whether a summary keeps sentences that are also in a shown event or earlier in its own
    line."""


@dataclass
class AnswerLines:
    """The lines of these texts, for an outline with this token budget."""

    texts: AnswerTexts
    budget: int
    _topics: dict[tuple[UUID, bool], ContextLine[ChainLineSource]] = field(
        default_factory=dict[tuple[UUID, bool], ContextLine[ChainLineSource]]
    )
    _events: dict[UUID, ContextLine[EventLineSource]] = field(
        default_factory=dict[UUID, ContextLine[EventLineSource]]
    )

    @property
    def budget_bytes(self) -> int:
        """The budget in bytes."""
        return self.budget * BYTES_PER_TOKEN

    def get_topic_line(
        self, slot: UUID, *, has_summary: bool = True
    ) -> ContextLine[ChainLineSource]:
        """A copy of a topic's line, with or without its summary."""
        key = slot, has_summary
        if key not in self._topics:
            topic = self.texts.topics[slot]
            if not has_summary:
                topic = topic._replace(summary="")
            elif not self.texts.keeps_summaries:
                topic = _drop_repeated_name_and_dates(topic)
            self._topics[key] = make_topic_line(topic, self.budget_bytes)
        return copy(self._topics[key])

    def get_event_line(self, event_id: UUID) -> ContextLine[EventLineSource]:
        """A copy of an event's line."""
        if event_id not in self._events:
            self._events[event_id] = make_event_line(self.texts.events[event_id], self.budget_bytes)
        return copy(self._events[event_id])

    def find_day_of_all_events(self, slot: UUID | None) -> str | None:
        """The day of a topic whose events are all of one day; the lines of its events omit that
        day."""
        if slot is None:
            return None
        topic = self.texts.topics[slot]
        days = {
            format_weekday_and_date(topic.started_at),
            format_weekday_and_date(topic.last_event_at),
        }
        return days.pop() if len(days) == 1 else None


def _drop_repeated_name_and_dates(topic: ChainLineSource) -> ChainLineSource:
    """Remove repetition from a topic's line: the summary of an inner topic begins with the name of
    one of its children and ends with the dates."""
    dates = format_date_range(topic.started_at, topic.last_event_at)
    summary = topic.summary.removesuffix(f" ({dates})")
    name = topic.topic or ""
    if name and (summary == name or summary.startswith(f"{name}; ")):
        return topic._replace(topic=None, summary=summary)
    return topic._replace(summary=summary)


def format_event_prefix(line: ContextLine[EventLineSource], day: str | None) -> str:
    """The text between an event's citation and its content, without the day of its topic. A name
    with a comma could be mistaken for a date, so the date stays before such a name."""
    date_prefix = f" {day}, "
    if day is None or not line.start.startswith(date_prefix):
        return line.start
    who = line.start.removeprefix(date_prefix)
    return line.start if "," in who else f" {who}"


def count_event_line_bytes(line: ContextLine[EventLineSource], depth: int, day: str | None) -> int:
    """The size of an event's line in bytes."""
    start = format_event_prefix(line, day)
    return (
        depth * len(INDENT) + CITATION_BYTES + count_bytes(start) + count_bytes(line.shown_text) + 1
    )


def count_heading_bytes(line: ContextLine[ChainLineSource], depth: int) -> int:
    """The size of a topic's line in bytes, without its summary."""
    return depth * len(INDENT) + count_bytes(line.start) + 1
