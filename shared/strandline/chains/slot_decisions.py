"""What people state of themselves in place of what they said before, as the fold decides it: where
they live and work, what they use, plan and prefer.

The decision outlives a refold, so that a replay ends the same facts, whatever release reads the
words then. Of events that are not folded yet, the words themselves are read.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from strandline.chains import store_slots
from strandline.chains.decisions import Decision
from strandline.chains.store_slots import SlotEvent
from strandline.db.database import TenantDb
from strandline.llm.heuristic.slots import SlotStatement, compare, read_slots
from strandline.llm.heuristic.statements import name_speaker

KIND = "slots"
"""The kind of the decision."""


class SaidStatement(NamedTuple):
    """A statement, and the event that makes it."""

    event: SlotEvent
    statement: SlotStatement

    @property
    def may_be_change(self) -> bool:
        """Whether it has a cue, but names no change."""
        return self.statement.is_change and not self.statement.is_explicit

    def is_after(self, said_at: datetime) -> bool:
        """Whether it was said after this time."""
        return self.event.said_at > said_at


def name_subject(speaker: str) -> str:
    """The compared form of a participant's name, as statements and facts have it."""
    return name_speaker(speaker).casefold()


def decide_slots(
    access: TenantDb, scope_id: UUID, event_ids: Sequence[UUID]
) -> Mapping[UUID, Decision]:
    """Decide what these user messages of a scope, never folded before, state of their speakers, by
    event. A message bears a change if it names one, or has a cue and fills a slot that the scope
    has seen filled otherwise."""
    statements = [
        SaidStatement(event, statement)
        for event in store_slots.read_spoken(access, event_ids)
        for statement in _read(event)
    ]
    unclear = {one.statement.subject for one in statements if one.may_be_change}
    earlier = [*list_said(access, unclear, scope_id), *statements] if unclear else []
    decisions: dict[UUID, Decision] = {}
    for event in {one.event.event_id: one.event for one in statements}.values():
        own = [one for one in statements if one.event is event]
        body = {
            "subject": name_subject(event.speaker),
            "is_change": any(_bears_change(one, earlier) for one in own),
            "statements": [one.statement._asdict() for one in own],
        }
        decisions[event.event_id] = Decision(event.event_id, KIND, 0, event.seq, body)
    return decisions


def _bears_change(statement: SaidStatement, earlier: Sequence[SaidStatement]) -> bool:
    if not statement.may_be_change:
        return statement.statement.is_explicit
    return any(
        statement.is_after(one.event.said_at)
        and compare(one.statement, statement.statement) in ("ends", "doubts")
        for one in earlier
    )


def list_said(
    access: TenantDb, subjects: Iterable[str], scope_id: UUID | None = None
) -> list[SaidStatement]:
    """What these people stated of themselves in view, newest first: by the folds' decisions, and in
    what is not folded yet. With `scope_id` only what is folded of this scope. One SQL statement."""
    names = sorted(set(subjects))
    if not names:
        return []
    statements = [
        SaidStatement(event, statement)
        for event in store_slots.list_events(access, names, scope_id)
        for statement in _read(event)
        if statement.subject in names
    ]
    return sorted(statements, key=lambda one: (one.event.said_at, one.event.seq), reverse=True)


def _read(event: SlotEvent) -> Sequence[SlotStatement]:
    if event.statements is None:
        return read_slots(event.text, name_speaker(event.speaker))
    return [SlotStatement(**fields) for fields in event.statements]
