"""The parts of a context's text: which of their lines are shown, and how these are written."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.context.lines import (
    ChainLineSource,
    ContextLine,
    EventLineSource,
    KnowledgeLineSource,
    choose_cited_event_ids,
    format_weekday_and_date,
)

FOLLOWS = "↳"
"""Marks an event that directly follows the event of the line above in its session."""


@dataclass
class TextPart[Source: (EventLineSource, ChainLineSource, KnowledgeLineSource)]:
    """The lines of a part in order of preference; the first ones are shown."""

    lines: list[ContextLine[Source]]
    count: int = 0

    @property
    def shown_lines(self) -> Sequence[ContextLine[Source]]:
        """The lines that are shown."""
        return self.lines[: self.count]

    @property
    def left_out_lines(self) -> Sequence[ContextLine[Source]]:
        """The lines that are not shown."""
        return self.lines[self.count :]


class EventsTextPart(TextPart[EventLineSource]):
    """The lines of events."""

    @property
    def shown_event_ids(self) -> set[UUID]:
        """The events that are shown."""
        return {line.source.event_id for line in self.shown_lines}

    def drop_lines_of_events(self, event_ids: set[UUID]) -> None:
        """Drop lines that are not shown yet, because their events are shown elsewhere."""
        self.lines = [line for line in self.lines if line.source.event_id not in event_ids]

    def count_left_out(self, shown_event_ids: set[UUID]) -> int:
        """The number of its events that are not shown anywhere."""
        return sum(line.source.event_id not in shown_event_ids for line in self.left_out_lines)


type AnyPart = TextPart[EventLineSource] | TextPart[ChainLineSource] | TextPart[KnowledgeLineSource]


class CitationNumbers(dict[UUID, int]):
    """The citation numbers of events, in the order in which they are first cited."""

    def __missing__(self, event_id: UUID) -> int:
        self[event_id] = number = len(self) + 1
        return number


def render_events(
    part: TextPart[EventLineSource], citations: CitationNumbers, *, marks_replies: bool = False
) -> list[str]:
    """The lines of events; `marks_replies` marks each that directly follows the line above."""
    in_order = sorted(part.shown_lines, key=lambda line: (line.source.said_at, line.source.place))
    above: EventLineSource | None = None
    lines: list[str] = []
    for line in in_order:
        number, start, mark = citations[line.source.event_id], line.start, ""
        if marks_replies and above and _directly_follows(line.source, above):
            mark, day = FOLLOWS, format_weekday_and_date(line.source.said_at)
            start = (
                start.removeprefix(f" {day}")
                if day == format_weekday_and_date(above.said_at)
                else start
            )
        lines.append(f"[{number}]{mark}{start}{line.shown_text}")
        above = line.source
    return lines


def _directly_follows(event: EventLineSource, earlier: EventLineSource) -> bool:
    (_, scope, seq), (_, earlier_scope, earlier_seq) = event.place, earlier.place
    is_same = (scope, event.session_id) == (earlier_scope, earlier.session_id)
    return is_same and seq == earlier_seq + 1


def render_topics(part: TextPart[ChainLineSource], citations: CitationNumbers) -> list[str]:
    """The lines of topics."""
    in_order = sorted(
        part.shown_lines,
        key=lambda line: (line.source.started_at, line.source.last_event_at, line.source.chain_id),
    )
    return [_render_line_with_citations(line, citations) for line in in_order]


def render_knowledge(
    part: TextPart[KnowledgeLineSource], citations: CitationNumbers, *, is_stated: bool
) -> list[str]:
    """The lines of what was stated to the graph, or of what was drawn from what was said."""
    lines = [line for line in part.shown_lines if line.source.is_stated == is_stated]
    in_order = sorted(lines, key=lambda line: (line.source.since, line.source.known_id))
    return [_render_line_with_citations(line, citations) for line in in_order]


def _render_line_with_citations(
    line: ContextLine[ChainLineSource] | ContextLine[KnowledgeLineSource],
    citations: CitationNumbers,
) -> str:
    """A line with its citations."""
    numbers = "".join(
        f"[{citations[one]}]" for one in choose_cited_event_ids(line.source, citations)
    )
    return " ".join(filter(None, [line.start, line.shown_text, numbers]))
