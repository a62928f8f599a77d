"""The parts of a context's text: which of their lines are shown, and how these are written."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.context.lines import (
    ChainSource,
    EventSource,
    KnowledgeSource,
    Line,
    choose_cited,
    format_day,
)

FOLLOWS = "↳"
"""Marks an event that directly follows the event of the line above in its session."""


@dataclass
class Part[Source: (EventSource, ChainSource, KnowledgeSource)]:
    """The lines of a part in order of preference; the first ones are shown."""

    lines: list[Line[Source]]
    count: int = 0

    @property
    def visible(self) -> Sequence[Line[Source]]:
        """The lines that are shown."""
        return self.lines[: self.count]

    @property
    def left_out_lines(self) -> Sequence[Line[Source]]:
        """The lines that are not shown."""
        return self.lines[self.count :]


class EventsPart(Part[EventSource]):
    """The lines of events."""

    @property
    def shown_ids(self) -> set[UUID]:
        """The events that are shown."""
        return {line.source.event_id for line in self.visible}

    def drop(self, event_ids: set[UUID]) -> None:
        """Drop lines that are not shown yet, because their events are shown elsewhere."""
        self.lines = [line for line in self.lines if line.source.event_id not in event_ids]

    def count_left_out(self, shown_ids: set[UUID]) -> int:
        """The number of its events that are not shown anywhere."""
        return sum(line.source.event_id not in shown_ids for line in self.left_out_lines)


type AnyPart = Part[EventSource] | Part[ChainSource] | Part[KnowledgeSource]


class Citations(dict[UUID, int]):
    """The citation numbers of events, in the order in which they are first cited."""

    def __missing__(self, event_id: UUID) -> int:
        self[event_id] = number = len(self) + 1
        return number


def render_events(
    part: Part[EventSource], citations: Citations, *, marks_replies: bool = False
) -> list[str]:
    """The lines of events; `marks_replies` marks each that directly follows the line above."""
    in_order = sorted(part.visible, key=lambda line: (line.source.said_at, line.source.place))
    above: EventSource | None = None
    lines: list[str] = []
    for line in in_order:
        number, start, mark = citations[line.source.event_id], line.start, ""
        if marks_replies and above and _follows(line.source, above):
            mark, day = FOLLOWS, format_day(line.source.said_at)
            start = start.removeprefix(f" {day}") if day == format_day(above.said_at) else start
        lines.append(f"[{number}]{mark}{start}{line.shown_text}")
        above = line.source
    return lines


def _follows(event: EventSource, earlier: EventSource) -> bool:
    (_, scope, seq), (_, earlier_scope, earlier_seq) = event.place, earlier.place
    is_same = (scope, event.session_id) == (earlier_scope, earlier.session_id)
    return is_same and seq == earlier_seq + 1


def render_topics(part: Part[ChainSource], citations: Citations) -> list[str]:
    """The lines of topics."""
    in_order = sorted(
        part.visible,
        key=lambda line: (line.source.started_at, line.source.last_event_at, line.source.chain_id),
    )
    return [_render_citing(line, citations) for line in in_order]


def render_knowledge(
    part: Part[KnowledgeSource], citations: Citations, *, is_stated: bool
) -> list[str]:
    """The lines of what was stated to the graph, or of what was drawn from what was said."""
    lines = [line for line in part.visible if line.source.is_stated == is_stated]
    in_order = sorted(lines, key=lambda line: (line.source.since, line.source.known_id))
    return [_render_citing(line, citations) for line in in_order]


def _render_citing(line: Line[ChainSource] | Line[KnowledgeSource], citations: Citations) -> str:
    """A line with its citations."""
    numbers = "".join(f"[{citations[one]}]" for one in choose_cited(line.source, citations))
    return " ".join(filter(None, [line.start, line.shown_text, numbers]))
