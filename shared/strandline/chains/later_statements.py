"""Find what people said later in the same slot of their lives as what they said before."""

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from strandline.chains.slot_decisions import SaidStatement, list_said
from strandline.db.database import TenantDb
from strandline.llm.heuristic.slots import SlotStatement, judge, read_fact, read_slots
from strandline.llm.heuristic.statements import name_speaker


class EarlierText(NamedTuple):
    """A text that may be out of date: an event's, or a fact's."""

    text_id: UUID
    speaker: str | None
    """The participant who speaks in it of themselves; None: it speaks of somebody by name."""
    said_at: datetime
    text: str


def find_later_statements(
    access: TenantDb, texts: Iterable[EarlierText]
) -> Mapping[UUID, SaidStatement]:
    """The newest visible statement that ends or puts in doubt what a text states, by text. One SQL
    statement, and none if no text fills a slot."""
    slots = [(text, slot) for text in texts for slot in _read(text) if slot.value]
    statements = list_said(access, {slot.subject for _, slot in slots})
    found: dict[UUID, SaidStatement] = {}
    for text, slot in slots:
        later = [one for one in statements if one.is_after(text.said_at)]
        verdict, place = judge(slot, [one.statement for one in later]) or ("restates", 0)
        if verdict != "restates":
            first = found.get(text.text_id)
            newest = max(filter(None, (first, later[place])), key=lambda one: one.event.said_at)
            found[text.text_id] = newest
    return found


def put_later_first(
    text_ids: Iterable[UUID], later: Mapping[UUID, UUID], visible: Container[UUID]
) -> list[UUID]:
    """The texts, each once and directly after the visible one that may have changed what it
    states."""
    ordered = (
        one
        for text_id in text_ids
        for one in (later.get(text_id), text_id)
        if one is not None and one in visible
    )
    return list(dict.fromkeys(ordered))


def _read(text: EarlierText) -> Sequence[SlotStatement]:
    if text.speaker is not None and text.speaker.startswith("user:"):
        return read_slots(text.text, name_speaker(text.speaker))
    fact = read_fact(text.text)
    return [fact] if fact else []
