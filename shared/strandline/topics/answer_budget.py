"""Choose the contents of an answer: as many events, topics and summaries as its token budget
holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from uuid import UUID

from strandline.context.lines import (
    ContextLine,
    EventLineSource,
    count_bytes,
    drop_repeated_sentences,
    join_lowercase_words,
)
from strandline.topics import outline_text
from strandline.topics.answer_lines import (
    CITATION_BYTES,
    INDENT,
    AnswerLines,
    AnswerTexts,
    count_event_line_bytes,
    count_heading_bytes,
)
from strandline.topics.answer_plan import ManifestEvent, ManifestNode

_EVENTS_SHARE = 7 / 8
"""The maximum share of the budget for the events of a question, before the summaries above them."""
_TAIL_SHARE = 1 / 2
"""The maximum share of the budget for the fresh tail, in an outline without a question."""
_MIN_SHOWN_BYTES = 60
"""The minimum length of a shortened text: less is not worth a line."""


@dataclass(frozen=True)
class AnswerPartCandidates:
    """What may be shown. Each part is in order of preference."""

    events: Sequence[ManifestEvent]
    nodes: Mapping[UUID, ManifestNode]
    """With a question, the slots above its events; without one, all slots."""
    has_question: bool


@dataclass
class AnswerLayout:
    """The parts of an answer that are chosen so far, and their size in bytes."""

    candidates: AnswerPartCandidates
    lines: AnswerLines
    events: list[ManifestEvent] = field(default_factory=list[ManifestEvent])
    headings: set[UUID] = field(default_factory=set[UUID])
    """Slots with a line."""
    summaries: set[UUID] = field(default_factory=set[UUID])
    """Slots with a summary."""
    shortened_count: int = 0

    def __post_init__(self) -> None:
        self._max_bytes = self.lines.budget_bytes
        self._bytes = outline_text.count_frame_bytes()
        self._parts: set[tuple[str, UUID]] = set()
        self._words: dict[UUID, str] = {}
        self._paths: dict[UUID, Sequence[UUID]] = {}

    @property
    def texts(self) -> AnswerTexts:
        """The texts that the lines are rendered from."""
        return self.lines.texts

    def fill_budget(self) -> None:
        """Choose the parts that fit the budget."""
        if self.candidates.has_question:
            self._fill_events(_EVENTS_SHARE)
            self._fill_summaries(self._list_slots_above_events())
        else:
            self._fill_events(_TAIL_SHARE)
            self._fill_summaries(list(self.candidates.nodes))
        self._fill_events(1.0, shorten=True)
        if self.candidates.has_question:
            self._fill_summaries(self._list_slots_above_events())

    # events --------------------------------------------------------------------------------------

    def _fill_events(self, share: float, *, shorten: bool = False) -> None:
        limit = int(self._max_bytes * share)
        while len(self.events) < len(self.candidates.events):
            event = self.candidates.events[len(self.events)]
            line, day = (
                self.lines.get_event_line(event.event_id),
                self.lines.find_day_of_all_events(event.slot),
            )
            depth = 1 if event.slot is None else 1 + self._count_shown_ancestors(event.slot)
            above = self._count_missing_heading_bytes(event)
            room = limit - self._bytes - above
            cost = count_event_line_bytes(line, depth, day)
            if cost > room:
                room -= cost - count_bytes(line.shown_text)
                if not shorten or room < _MIN_SHOWN_BYTES:
                    return
                line.shorten(room)
                event = event.model_copy(update={"text_bytes": room})
                cost = count_event_line_bytes(line, depth, day)
            self._bytes += above + cost
            self.shortened_count += line.is_shortened
            self._add_event(event, line)

    def _count_missing_heading_bytes(self, event: ManifestEvent) -> int:
        """The bytes of the headings that an event needs and that are not shown yet."""
        missing = 0
        if ("scope", event.scope_id) not in self._parts:
            missing += outline_text.count_scope_heading_bytes(
                self.texts.participants[event.scope_id]
            )
        if event.slot is None:
            missing += outline_text.TAIL_BYTES * (("tail", event.scope_id) not in self._parts)
        elif event.slot not in self.headings:
            missing += self._count_heading_bytes(event.slot)
        return missing

    def _add_event(self, event: ManifestEvent, line: ContextLine[EventLineSource]) -> None:
        self.events.append(event)
        self._words[event.event_id] = join_lowercase_words(line.text)
        self._parts.add(("scope", event.scope_id))
        if event.slot is None:
            self._parts.add(("tail", event.scope_id))
        else:
            self.headings.add(event.slot)

    # topics --------------------------------------------------------------------------------------

    def _list_slots_above_events(self) -> list[UUID]:
        """The slots above shown events: first their direct parents, then the ancestors where two
        branches join. The most relevant come first in each group."""
        below: dict[UUID, set[UUID]] = {}
        for event in self.events:
            path = self._path_to_root(event.slot) if event.slot is not None else ()
            for slot, parent in pairwise(path):
                below.setdefault(parent, set()).add(slot)
        joins = [slot for slot, children in below.items() if len(children) > 1]
        joins.sort(
            key=lambda slot: (
                -(self.candidates.nodes[slot].relevance or 0.0),
                -self._depth(slot),
                slot,
            )
        )
        leaves = [event.slot for event in self.events if event.slot is not None]
        return list(dict.fromkeys([*leaves, *joins]))

    def _fill_summaries(self, slots: Sequence[UUID]) -> None:
        texts = list(self._words.values())
        for slot in slots:
            if slot in self.summaries or not self._can_be_shown(slot):
                continue
            line, node = self.lines.get_topic_line(slot), self.candidates.nodes[slot]
            text = line.shown_text
            if not self.texts.keeps_summaries:
                text = drop_repeated_sentences(line.text, line.source.participants, texts)
            cost = count_bytes(text) + 1 + count_bytes("…")
            if not self.candidates.has_question:
                cost += 1 + CITATION_BYTES
            if slot not in self.headings:
                cost += self._count_heading_bytes(slot) + len(INDENT) * self._count_lines_below(
                    slot
                )
            if ("scope", node.scope_id) not in self._parts:
                cost += outline_text.count_scope_heading_bytes(
                    self.texts.participants[node.scope_id]
                )
            if self._bytes + cost > self._max_bytes:
                if self.candidates.has_question:
                    continue
                return
            self._bytes += cost
            self._parts.add(("scope", node.scope_id))
            self.headings.add(slot)
            self.summaries.add(slot)
            self.shortened_count += line.is_shortened

    def _can_be_shown(self, slot: UUID) -> bool:
        """Whether a slot may be shown: in an outline without a question, only below a shown
        parent."""
        parent = self.candidates.nodes[slot].parent
        return self.candidates.has_question or parent is None or parent in self.headings

    def _count_heading_bytes(self, slot: UUID) -> int:
        return count_heading_bytes(
            self.lines.get_topic_line(slot, has_summary=False), self._count_shown_ancestors(slot)
        )

    def _count_shown_ancestors(self, slot: UUID) -> int:
        """How many ancestors of this slot have a line."""
        return sum(above in self.headings for above in self._path_to_root(slot)[1:])

    def _count_lines_below(self, slot: UUID) -> int:
        """How many shown lines a line of this slot would indent."""
        slots = [event.slot for event in self.events if event.slot is not None]
        return sum(slot in self._path_to_root(below) for below in (*slots, *self.headings))

    def _path_to_root(self, slot: UUID) -> Sequence[UUID]:
        """A slot and its ancestors, up to the root."""
        if slot not in self._paths:
            parent = self.candidates.nodes[slot].parent
            self._paths[slot] = (slot,) if parent is None else (slot, *self._path_to_root(parent))
        return self._paths[slot]

    def _depth(self, slot: UUID) -> int:
        return len(self._path_to_root(slot)) - 1

    # result --------------------------------------------------------------------------------------

    def list_shown_nodes_and_ancestors(self) -> list[ManifestNode]:
        """The shown slots and all of their ancestors, each after its parent."""
        slots = {above for slot in self.headings for above in self._path_to_root(slot)}
        in_order = sorted(slots, key=lambda slot: (self._depth(slot), slot))
        return [
            self.candidates.nodes[slot].model_copy(update={"has_summary": slot in self.summaries})
            for slot in in_order
        ]

    def drop_last_event_or_summary(self) -> bool:
        """Leave out the last event, or the last summary if there is no event. Returns False if
        nothing is left."""
        if self.events:
            self.events.pop()
        elif self.headings:
            slot = max(self.headings, key=lambda slot: (self._depth(slot), slot))
            self.headings.remove(slot)
            self.summaries.discard(slot)
        else:
            return False
        if self.candidates.has_question:
            self.headings = {event.slot for event in self.events if event.slot} | {
                slot for slot in self.headings if self._has_event_below(slot)
            }
        return True

    def _has_event_below(self, slot: UUID) -> bool:
        return any(
            slot in self._path_to_root(event.slot)
            for event in self.events
            if event.slot is not None
        )
