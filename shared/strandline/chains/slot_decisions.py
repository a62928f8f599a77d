"""What people state of themselves in place of what they said before, as the fold decides it: where
they live and work, what they use, plan and prefer; and what they said later in the same slot.

The decision outlives a refold, so that a replay ends the same facts, whatever release reads the
words then. Of events that are not folded yet, the words themselves are read.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from strandline.chains.decisions import FoldDecision
from strandline.db.database import TenantDb
from strandline.llm.heuristic.slots import (
    MAX_CHARACTERS,
    SlotStatement,
    compare_slot_statements,
    judge_by_later_statements,
    read_slot_of_fact,
    read_slot_statements,
)
from strandline.llm.heuristic.statements import capitalize_display_name
from strandline.llm.heuristic.words import split_sentences

KIND = "slots"
"""The kind of the decision."""
_MAX_DECISIONS = 200
"""How many of the newest decisions about one person are read."""
_MAX_TAIL_SCOPES, _MAX_TAIL_EVENTS = 100, 200
"""How many scopes with events that are not folded yet, and of these events, are read: the
newest."""


@dataclass(frozen=True)
class UserMessageWithStatements:
    """A user message."""

    event_id: UUID
    scope_id: UUID
    seq: int
    speaker: str
    origin: str
    said_at: datetime
    recorded_at: datetime
    text: str
    statements: list[dict[str, Any]] | None
    """What it states, as the fold decided; None if it is not folded yet."""


def read_user_messages(
    access: TenantDb, event_ids: Sequence[UUID]
) -> Sequence[UserMessageWithStatements]:
    """Those of these events that are messages of users with a text, by seq."""
    if not event_ids:
        return []
    return access.fetch(
        UserMessageWithStatements,
        """
        select e.event_id, e.scope_id, e.seq, e.speaker, e.origin,
            coalesce(e.occurred_at, e.recorded_at) as said_at, e.recorded_at,
            left(e.content, %(max_chars)s) as text, null::jsonb as statements
        from events e
        where e.event_id = any (%(event_ids)s) and e.role = 'user' and e.type = 'message'
            and starts_with(e.speaker, 'user:') and e.content is not null
            and e.erased_at is null
        order by e.seq
        """,
        {"event_ids": list(event_ids), "max_chars": MAX_CHARACTERS},
    )


def list_messages_with_self_statements(
    access: TenantDb, subjects: Sequence[str], scope_id: UUID | None
) -> Sequence[UserMessageWithStatements]:
    """The visible messages in which these people state something of themselves, in no order; and
    the newest messages of anybody that are not folded yet. With `scope_id` only the folded ones of
    this scope."""
    # Values in sub-selects: the planner does not look into them, so that one plan serves them all.
    return access.fetch(
        UserMessageWithStatements,
        """
        with told as (
            select d.event_id, d.body -> 'statements' as statements
            from unnest((select %(subjects)s::text[])) s (name)
            cross join lateral (
                select d.event_id, d.body from decisions d
                where d.tenant_id = current_tenant() and d.subject = s.name
                    and ((select %(scope_id)s::uuid) is null or d.scope_id = %(scope_id)s)
                order by d.decided_at desc limit (select %(max_decisions)s::bigint)) d),
        tail as (
            select e.event_id from (
                select w.scope_id from scope_work w
                where w.tenant_id = current_tenant() and (select %(scope_id)s::uuid) is null
                order by w.due_at desc limit (select %(max_scopes)s::bigint)) w
            cross join lateral (
                select s.max_folded_seq from scopes s
                where s.tenant_id = current_tenant() and s.scope_id = w.scope_id offset 0) s
            cross join lateral (
                select e.event_id, e.recorded_at from events e
                where e.tenant_id = current_tenant() and e.scope_id = w.scope_id
                    and e.seq > s.max_folded_seq and e.role = 'user' and e.type = 'message'
                order by e.seq desc limit (select %(max_events)s::bigint)) e
            order by e.recorded_at desc limit (select %(max_events)s::bigint))
        select e.event_id, e.scope_id, e.seq, e.speaker, e.origin,
            coalesce(e.occurred_at, e.recorded_at) as said_at, e.recorded_at,
            left(e.content, %(max_chars)s) as text, t.statements
        from (
            select event_id, statements from told
            union all
            select event_id, null::jsonb from tail) t
        cross join lateral (
            select * from events e
            where e.tenant_id = current_tenant() and e.event_id = t.event_id
                and starts_with(e.speaker, 'user:') and e.content is not null
                and e.erased_at is null offset 0) e
        """,
        {
            "subjects": list(subjects),
            "scope_id": scope_id,
            "max_decisions": _MAX_DECISIONS,
            "max_scopes": _MAX_TAIL_SCOPES,
            "max_events": _MAX_TAIL_EVENTS,
            "max_chars": MAX_CHARACTERS,
        },
    )


class StatementInMessage(NamedTuple):
    """A statement, and the event that makes it."""

    event: UserMessageWithStatements
    statement: SlotStatement
    is_end: bool = False
    """Whether what it is later than surely holds no longer, rather than perhaps."""
    earlier_sentence: str | None = None
    """The only sentence of the earlier text that it is about; None if that says nothing else, or if
    several of its sentences may be out of date."""

    @property
    def is_possible_change(self) -> bool:
        """Whether it has a cue, but names no change."""
        return self.statement.is_change and not self.statement.is_explicit

    def was_said_after(self, said_at: datetime) -> bool:
        """Whether it was said after this time."""
        return self.event.said_at > said_at


def normalize_subject_name(speaker: str) -> str:
    """The compared form of a participant's name, as statements and facts have it."""
    return capitalize_display_name(speaker).casefold()


def decide_self_statements(
    access: TenantDb, scope_id: UUID, event_ids: Sequence[UUID]
) -> Mapping[UUID, FoldDecision]:
    """Decide what these user messages of a scope, never folded before, state of their speakers, by
    event. A message bears a change if it names one, or has a cue and fills a slot that the scope
    has seen filled otherwise."""
    statements = [
        StatementInMessage(event, statement)
        for event in read_user_messages(access, event_ids)
        for statement in _read_statements_of_message(event)
    ]
    unclear = {one.statement.subject for one in statements if one.is_possible_change}
    earlier = [*list_self_statements(access, unclear, scope_id), *statements] if unclear else []
    decisions: dict[UUID, FoldDecision] = {}
    for event in {one.event.event_id: one.event for one in statements}.values():
        own = [one for one in statements if one.event is event]
        body = {
            "subject": normalize_subject_name(event.speaker),
            "is_change": any(_bears_change(one, earlier) for one in own),
            "statements": [one.statement._asdict() for one in own],
        }
        decisions[event.event_id] = FoldDecision(event.event_id, KIND, 0, event.seq, body)
    return decisions


def _bears_change(statement: StatementInMessage, earlier: Sequence[StatementInMessage]) -> bool:
    if not statement.is_possible_change:
        return statement.statement.is_explicit
    return any(
        statement.was_said_after(one.event.said_at)
        and compare_slot_statements(one.statement, statement.statement) in ("ends", "doubts")
        for one in earlier
    )


def list_self_statements(
    access: TenantDb, subjects: Iterable[str], scope_id: UUID | None = None
) -> list[StatementInMessage]:
    """What these people stated of themselves in view, newest first: by the folds' decisions, and in
    what is not folded yet. With `scope_id` only what is folded of this scope. One SQL statement."""
    names = sorted(set(subjects))
    if not names:
        return []
    statements = [
        StatementInMessage(event, statement)
        for event in list_messages_with_self_statements(access, names, scope_id)
        for statement in _read_statements_of_message(event)
        if statement.subject in names
    ]
    return sorted(statements, key=lambda one: (one.event.said_at, one.event.seq), reverse=True)


def _read_statements_of_message(event: UserMessageWithStatements) -> Sequence[SlotStatement]:
    if event.statements is None:
        return read_slot_statements(event.text, capitalize_display_name(event.speaker))
    return [SlotStatement(**fields) for fields in event.statements]


class EarlierText(NamedTuple):
    """A text that may be out of date: an event's, or a fact's."""

    text_id: UUID
    speaker: str | None
    """The participant who speaks in it of themselves; None: it speaks of somebody by name."""
    said_at: datetime
    text: str


def find_later_statements(
    access: TenantDb, texts: Iterable[EarlierText], as_of: datetime | None = None
) -> Mapping[UUID, StatementInMessage]:
    """The newest visible statement that ends or puts in doubt what a text states, by text, also for
    the events of such statements; with `as_of`, the newest that was said by then. One SQL
    statement, and none if no text fills a slot."""
    slots = [
        (text, slot) for text in texts for slot in _read_statements_of_text(text) if slot.value
    ]
    statements = [
        one
        for one in list_self_statements(access, {slot.subject for _, slot in slots})
        if as_of is None or not one.was_said_after(as_of)
    ]
    later_statements: dict[UUID, StatementInMessage] = {}
    sentences_by_text: dict[UUID, tuple[str, set[str]]] = {}  # the texts, and their sentences
    text_ids = {text.text_id for text, _ in slots}
    for text, slot in slots:  # grows: what is found may have been changed again
        later = [one for one in statements if one.was_said_after(text.said_at)]
        verdict, place = judge_by_later_statements(slot, [one.statement for one in later]) or (
            "restates",
            0,
        )
        if verdict != "restates":
            first = later_statements.get(text.text_id)
            deciding = later[place]._replace(is_end=verdict == "ends")
            newest = max(filter(None, (first, deciding)), key=lambda one: one.event.said_at)
            later_statements[text.text_id] = newest
            sentences_by_text.setdefault(text.text_id, (text.text, set()))[1].add(slot.sentence)
            if newest.event.event_id not in text_ids:
                text_ids.add(newest.event.event_id)
                slots += _list_slot_statements_of_message(newest.event, statements)
    return {
        text_id: statement._replace(
            earlier_sentence=_find_only_sentence(*sentences_by_text[text_id])
        )
        for text_id, statement in later_statements.items()
    }


def _find_only_sentence(text: str, sentences: Iterable[str]) -> str | None:
    """The only one of these sentences of a text, if the text says more than that and a greeting."""
    sentence, *more = {sentence.strip() for sentence in sentences}
    plain_text = text[:MAX_CHARACTERS].replace("’", "'")  # noqa: RUF001
    others = [one for one in split_sentences(plain_text) if one != sentence and " " in one]
    return None if more or not others else sentence


def _list_slot_statements_of_message(
    event: UserMessageWithStatements, statements: Iterable[StatementInMessage]
) -> list[tuple[EarlierText, SlotStatement]]:
    """What an event states that fills a slot."""
    text = EarlierText(event.event_id, event.speaker, event.said_at, event.text)
    own = (one.statement for one in statements if one.event.event_id == event.event_id)
    return [(text, statement) for statement in own if statement.value]


def put_each_after_its_change(
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


def _read_statements_of_text(text: EarlierText) -> Sequence[SlotStatement]:
    if text.speaker is not None and text.speaker.startswith("user:"):
        return read_slot_statements(text.text, capitalize_display_name(text.speaker))
    fact = read_slot_of_fact(text.text)
    return [fact] if fact else []
