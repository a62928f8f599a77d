"""The lines of a context's text: one for each event, topic and known fact, made from stored
text."""

import functools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple
from uuid import UUID

from strandline.context.fence import sanitize_label, sanitize_to_one_line
from strandline.log.indexed_text import format_utc_date_in_words
from strandline.participants import display_name
from strandline.recall.passages import Passages

EVENT_SHARE, _SUMMARY_SHARE, _KNOWN_SHARE = 1 / 4, 1 / 12, 1 / 24
"""The maximum share of a budget for the text of the best event, one topic and one known fact."""
FURTHER_SHARE, NEIGHBOUR_SHARE = 1 / 12, 1 / 16
"""That of any other event, and of one that is only shown beside another."""
BROAD_EVENT_SHARE = 1 / 24
"""That of one event, where many are asked for: a list, an order, a summary."""
TOOL_SHARE = 1 / 20
"""The maximum share for a tool's output that is not the best event: a log is long, and says what
came of it in its first and last lines."""
MAX_SOURCE_CHARS = 8192
"""The maximum characters read and shown of a text."""
_NAME_CHARS, _QUOTED_CHARS, _TOPIC_CHARS = 40, 60, 100
_SENTENCE_END = re.compile(r"(?<=[.!?…]) ")
REMEMBERED_LATER = "remembered later"
"""Marks an event that was added later than it happened: events in between could not refer to it.
Only in blocks for answers: in an imported conversation it is true of every line."""
_ROLES = ("user", "agent", "system")
_WORD = re.compile(r"\w+")
_KINDS = {"fact": "", "change": ", said since"}


class LaterStatementMark(NamedTuple):
    """A later statement, as the line of an earlier one names it."""

    said_at: datetime
    is_end: bool
    """Whether the earlier one surely holds no longer."""
    earlier_sentence: str | None = None
    """The only sentence of the earlier event that it is about; None: all of it."""


class EventLineSource(NamedTuple):
    """An event that may be shown."""

    event_id: UUID
    said_at: datetime
    place: tuple[datetime, UUID, int]
    """Its order among events of the same time: when it was recorded, its scope and `seq`."""
    speaker: str | None
    origin: str
    text: str
    stands_for: int = 1
    """The number of recent events that it represents, including itself."""
    session_id: str | None = None
    is_late: bool = False
    """Whether to mark it as added later than it happened."""
    is_ended: bool = False
    """Whether to mark it as a statement that holds no longer."""
    later: LaterStatementMark | None = None
    """The later statement in the text that may have changed what it states."""
    similar: int = 0
    """The number of its near-duplicates, which share its line."""
    passages: Passages | None = None
    """Which parts of its text match the question; None without a question."""
    is_neighbour: bool = False
    """Whether it is shown only because it stands beside an event that answers the question."""
    is_newest: bool = False
    """Whether it is the newest of the best events for a question about now."""
    file_name: str | None = None
    """The name of the payload that holds its text."""


class ChainLineSource(NamedTuple):
    """A chain that may be shown."""

    chain_id: UUID
    started_at: datetime
    last_event_at: datetime
    topic: str | None
    summary: str
    trust: str
    """The least trusted origin of its events."""
    participants: Sequence[str]
    event_ids: Sequence[UUID]
    """The first of its events, in order."""


class KnowledgeLineSource(NamedTuple):
    """A fact, a decision or a relation of the knowledge graph that may be shown, or a later
    statement with the one that it may have changed."""

    known_id: UUID
    since: datetime
    kind: Literal["fact", "decision", "relation", "change"]
    text: str
    trust: str
    """The least trusted origin of its events."""
    event_ids: Sequence[UUID]
    """The events that it cites, newest first."""
    is_stated: bool = False
    """Whether it was stated to the graph: what is drawn from what was said holds as of its date."""


@dataclass
class ContextLine[Source: (EventLineSource, ChainLineSource, KnowledgeLineSource)]:
    """The line of an event, a topic or a known fact."""

    source: Source
    start: str
    """The part of the line before its text."""
    text: str
    is_shortened: bool = False
    tail: str = ""
    """The end of a text that is shortened in its middle."""

    @property
    def shown_text(self) -> str:
        """Its text, with `…` where it is shortened."""
        return f"{self.text}…{self.tail}" if self.is_shortened else self.text

    def shorten(self, max_bytes: int) -> None:
        """Shorten a longer text to this size, `…` included: to the passages that match the
        question. Where none does, after a sentence or a word, or, if it has a tail, at most half of
        it before the `…` and the rest after it."""
        if count_bytes(self.shown_text) > max_bytes and not self._show_passages(max_bytes):
            room = max(0, max_bytes - count_bytes("…"))
            self.tail = _keep_end_that_fits(self.tail, room // 2)
            self.text = _keep_beginning_that_fits(self.text, room - count_bytes(self.tail))
            self.is_shortened = True

    def _show_passages(self, max_bytes: int) -> bool:
        """Show the passages that match the question. Returns whether some do, and fit."""
        passages = self.source.passages if isinstance(self.source, EventLineSource) else None
        limit = max_bytes
        while passages and limit > 0 and (passage := passages.excerpt(limit)):
            excerpt = sanitize_to_one_line(passage)
            excess = count_bytes(excerpt) - max_bytes
            if excess <= 0:
                self.text, _, self.tail = excerpt.rpartition("…")
                self.is_shortened = True
                return True
            limit -= excess  # what stands for a line break takes more bytes than it
        return False


def _keep_beginning_that_fits(text: str, max_bytes: int) -> str:
    """As much of a text as fits, up to the end of a sentence or a word."""
    cut = text.encode()[:max_bytes].decode(errors="ignore")
    end = max((match.start() for match in _SENTENCE_END.finditer(cut)), default=0)
    if end <= len(cut) // 2:
        end = cut.rfind(" ")
    return cut[:end] if end > len(cut) // 2 else cut


def _keep_end_that_fits(text: str, max_bytes: int) -> str:
    """As much of the end of a text as fits, from the beginning of a word."""
    if count_bytes(text) <= max_bytes:
        return text
    cut = text.encode()[len(text.encode()) - max_bytes :].decode(errors="ignore")
    return cut[cut.find(" ") + 1 :] if " " in cut[: len(cut) // 2] else cut


def choose_cited_event_ids(
    source: ChainLineSource | KnowledgeLineSource, shown_ids: Collection[UUID]
) -> list[UUID]:
    """The events that a line cites: the shown ones of its source, or else the first; of a change
    both of its sides in any case."""
    event_ids = source.event_ids
    is_change = isinstance(source, KnowledgeLineSource) and source.kind == "change"
    sides = list(event_ids[:2]) if is_change else []
    others = [event_id for event_id in event_ids if event_id in shown_ids and event_id not in sides]
    return sides + others or list(event_ids[:1])


@functools.lru_cache(maxsize=1024)  # a text is rendered many times until it fits
def format_weekday_and_date(moment: datetime) -> str:
    """The UTC date with the day of the week, as in `Mon 8 May 2023`. A reader needs the day to tell
    when "last Friday" was."""
    return f"{moment.astimezone(UTC):%a} {format_utc_date_in_words(moment)}"


def format_hour_and_minute(moment: datetime) -> str:
    """The UTC hour and minute, as in `14:05`."""
    return f"{moment.astimezone(UTC):%H:%M}"


def choose_event_share(event: EventLineSource, *, is_best: bool) -> float:
    """The maximum share of a text for an event that answers the question. The best one has the most
    room, as has the newest one for a question about now: the less the others take, the more of them
    there are."""
    if is_best:
        return EVENT_SHARE
    return NEIGHBOUR_SHARE if event.is_neighbour else FURTHER_SHARE


def make_event_line(
    event: EventLineSource,
    max_bytes: int,
    *,
    is_best: bool = False,
    has_minute: bool = False,
    share: float = EVENT_SHARE,
) -> ContextLine[EventLineSource]:
    """The line of an event without its citation, in a text of at most `max_bytes` bytes. A tool's
    output is shortened in its middle, and to less, unless it is the best event. `share` is the
    maximum share of the text for any event."""
    notes = [] if event.origin == "user" else [event.origin]
    if event.file_name:
        notes.append(f"file {_quote_label(event.file_name)}")
    if event.stands_for > 1:
        notes.append(f"newest of {event.stands_for}")
    if event.is_late:
        notes.append(REMEMBERED_LATER)
    if event.is_ended:
        notes.append("no longer so")
    if event.later:
        notes.append(_note_later_statement(event.later))
    if event.similar:
        notes.append(f"and {event.similar} more like it")
    name = sanitize_label(display_name(event.speaker), _NAME_CHARS) if event.speaker else ""
    who = " ".join(filter(None, [name, f"({', '.join(notes)})" if notes else ""])) or "user"
    minute = f" {format_hour_and_minute(event.said_at)}" if has_minute else ""
    start = f" {format_weekday_and_date(event.said_at)}{minute}, {who}: "
    line = ContextLine(event, start, *_sanitize_beginning(event.text))
    is_output = event.origin == "tool"
    max_text_bytes = int(max_bytes * (TOOL_SHARE if is_output and not is_best else share))
    if is_output and (line.is_shortened or count_bytes(line.text) > max_text_bytes):
        line.tail = sanitize_to_one_line(event.text[-MAX_SOURCE_CHARS:])
    line.shorten(max_text_bytes)
    return line


def _note_later_statement(later: LaterStatementMark) -> str:
    """The note that an event, or one sentence of it, holds no longer."""
    doubt = "" if later.is_end else "perhaps "
    part = f" {_quote_label(later.earlier_sentence)}" if later.earlier_sentence else ""
    return f"{doubt}no longer{part}: see {format_weekday_and_date(later.said_at)}"


def _quote_label(text: str) -> str:
    """Stored text within a note."""
    return f'"{sanitize_label(text.replace('"', "_"), _QUOTED_CHARS)}"'


def make_topic_line(topic: ChainLineSource, max_bytes: int) -> ContextLine[ChainLineSource]:
    """The line of a topic without its citations, in a text of at most `max_bytes` bytes."""
    dates = dict.fromkeys(map(format_weekday_and_date, (topic.started_at, topic.last_event_at)))
    origin = "" if topic.trust == "user" else f" ({topic.trust})"
    name = f", {sanitize_label(topic.topic, _TOPIC_CHARS)}" if topic.topic else ""
    start = f"- {' to '.join(dates)}{name}{origin}:"
    line = ContextLine(topic, start, *_sanitize_beginning(topic.summary))
    line.shorten(int(max_bytes * _SUMMARY_SHARE))
    return line


def make_knowledge_line(
    source: KnowledgeLineSource, max_bytes: int
) -> ContextLine[KnowledgeLineSource]:
    """The line of a known fact without its citations, in a text of at most `max_bytes` bytes."""
    kind = _KINDS.get(source.kind, f", {source.kind}")
    origin = "" if source.trust == "user" else f" ({source.trust})"
    start = f"- {format_weekday_and_date(source.since)}{kind}{origin}:"
    line = ContextLine(source, start, *_sanitize_beginning(source.text))
    share = 2 if source.kind == "change" else 1
    line.shorten(int(max_bytes * _KNOWN_SHARE * share))
    return line


def _sanitize_beginning(text: str) -> tuple[str, bool]:
    """The beginning of a text for a line, and whether the text is longer."""
    return sanitize_to_one_line(text[:MAX_SOURCE_CHARS]), len(text) > MAX_SOURCE_CHARS


def drop_repeated_sentences(summary: str, participants: Sequence[str], texts: Sequence[str]) -> str:
    """A summary without the sentences whose words are contained in one of the texts. A sentence
    whose speaker was named only in a dropped sentence is given that name."""
    names = {display_name(participant) for participant in participants}.union(_ROLES)
    sentences: list[str] = []
    speaker = shown_speaker = ""
    for sentence in _SENTENCE_END.split(summary):
        name, colon, statement = sentence.partition(": ")
        if colon and name in names:
            speaker = name
        else:
            statement = sentence
        said_words = join_lowercase_words(statement)
        if any(said_words in text for text in texts):
            continue
        sentences.append(statement if speaker == shown_speaker else f"{speaker}: {statement}")
        shown_speaker = speaker
    return " ".join(sentences)


def join_lowercase_words(text: str) -> str:
    """The words of a text in lower case, with spaces around each."""
    return f" {' '.join(_WORD.findall(text.lower()))} "


def count_bytes(text: str) -> int:
    """The bytes of a text in UTF-8."""
    return len(text.encode())
