"""Describes parts of a topic tree together: what they are about, and from when to when."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from strandline.llm.types import TopicTreePart, TopicTreePartsSummary

OVERVIEW_CHARACTERS = 240
_MAX_NAMES = 6
"""How many parts are named at most."""
_NAME_CHARACTERS = 60
"""The most characters of a part's name; a longer topic or summary is cut."""


@dataclass
class _PartLabel:
    """What one or more parts are about."""

    text: str
    is_topic: bool
    event_count: int


def describe_topic_tree_parts(parts: Sequence[TopicTreePart]) -> TopicTreePartsSummary:
    """The names of the parts, those of most events first, and their dates, in at most
    OVERVIEW_CHARACTERS. The topic is that of most events."""
    names = _sort_labels_by_events(parts)
    started_at = min(part.started_at for part in parts)
    dates = format_date_range(started_at, max(part.last_event_at for part in parts))
    if not names:
        count = sum(part.event_count for part in parts)
        return TopicTreePartsSummary(
            summary=f"{count} events without a topic ({dates})", topic=None
        )
    listing = _choose_labels_that_fit(
        names, OVERVIEW_CHARACTERS - len(f"; and {len(names)} more ({dates})")
    )
    hidden_count = len(names) - len(listing)
    more = f"; and {hidden_count} more" if hidden_count else ""
    topic = next((name.text for name in names if name.is_topic), None)
    return TopicTreePartsSummary(summary=f"{'; '.join(listing)}{more} ({dates})", topic=topic)


def _sort_labels_by_events(parts: Sequence[TopicTreePart]) -> list[_PartLabel]:
    """The different names of the parts, those of most events first; of equals, the earliest."""
    names: dict[str, _PartLabel] = {}
    for part in sorted(parts, key=lambda part: (part.started_at, part.last_event_at)):
        text = _shorten_label(part.topic or part.summary or "")
        if text:
            name = names.setdefault(text.casefold(), _PartLabel(text, bool(part.topic), 0))
            name.event_count += part.event_count
    return sorted(names.values(), key=lambda name: -name.event_count)


def _choose_labels_that_fit(names: Sequence[_PartLabel], characters: int) -> list[str]:
    """As many of the first names as fit, at least one."""
    return list(_take_labels_that_fit(names[:_MAX_NAMES], characters)) or [names[0].text]


def _take_labels_that_fit(names: Sequence[_PartLabel], characters: int) -> Iterator[str]:
    for name in names:
        characters -= len(name.text) + 2
        if characters < 0:
            return
        yield name.text


def format_date_range(started_at: datetime, last_event_at: datetime) -> str:
    """Dates in ISO 8601, in the zone of the times."""
    start, end = started_at.date().isoformat(), last_event_at.date().isoformat()
    return start if start == end else f"{start} to {end}"


def _shorten_label(text: str) -> str:
    """The text in one line of at most _NAME_CHARACTERS, cut at a word where it has words, without
    a full stop at its end."""
    line = " ".join(text.split())
    if len(line) > _NAME_CHARACTERS:
        head = line[: _NAME_CHARACTERS - 1]
        return f"{head.rpartition(' ')[0] or head}…"
    return line.removesuffix(".")
