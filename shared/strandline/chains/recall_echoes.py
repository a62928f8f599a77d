"""Echoes: events that mostly repeat what a recall returned to their participants shortly before.
Recalled memory that is written back is not new evidence."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from strandline.chains.decisions import FoldDecision
from strandline.db.database import TenantDb
from strandline.participants import drop_agents

ECHO_WINDOW = timedelta(hours=24)
"""How long after a recall an event may count as an echo of its answer."""
MIN_TRIPLES = 4
"""A text with fewer distinct word triples than this is never an echo: it cannot be told apart from
chance."""
MIN_SHARE = 0.5
"""A text is an echo if more than this share of its triples was in recalled events."""
NO_USER = "*"
"""The writer of credentials that are not bound to a user."""
_WORD = re.compile(r"\w+")
_MAX_ANSWERS = 200
"""The maximum number of recall answers compared, per participant who asked: the latest ones."""
_MAX_EVENTS = 400
"""The maximum number of events of these answers."""
_MAX_CHARS = 8000
"""The maximum number of characters compared of a text."""


@dataclass(frozen=True)
class EventText:
    """An event to fold."""

    event_id: UUID
    seq: int
    writer: str
    recorded_at: datetime
    text: str


@dataclass(frozen=True)
class RecalledText:
    """An event that recalls returned to one writer, and the times."""

    event_id: UUID
    writer: str
    times: Sequence[datetime]
    text: str


def hash_word_trigrams(text: str) -> set[int]:
    """The hashes of all sequences of three words. They are valid only in this process."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return {hash(triple) for triple in zip(words, words[1:], words[2:], strict=False)}


def decide_which_events_are_echoes(
    texts: Sequence[EventText], sources: Sequence[RecalledText]
) -> dict[UUID, FoldDecision]:
    """Decide which events are echoes. Returns the decisions by event.

    The answer of a user's recall counts as given to this user and to unbound writers; that of an
    unbound writer's recall counts as given to everyone.
    """
    places: Mapping[int, list[int]] = defaultdict(list)
    for n, source in enumerate(sources):
        for triple in hash_word_trigrams(source.text):
            places[triple].append(n)
    decisions: dict[UUID, FoldDecision] = {}
    for item in texts:
        numbers = {n for n, source in enumerate(sources) if _was_given_to_writer(source, item)}
        own = hash_word_trigrams(item.text) if numbers else set[int]()
        if len(own) < MIN_TRIPLES:
            continue
        share = sum(any(n in numbers for n in places.get(triple, ())) for triple in own) / len(own)
        if share > MIN_SHARE:
            body = {"share": round(share, 4)}
            decisions[item.event_id] = FoldDecision(item.event_id, "echo", 0, item.seq, body)
    return decisions


def _was_given_to_writer(source: RecalledText, item: EventText) -> bool:
    if source.event_id == item.event_id:
        return False
    if source.writer != item.writer and NO_USER not in (source.writer, item.writer):
        return False
    return any(item.recorded_at - ECHO_WINDOW < at <= item.recorded_at for at in source.times)


def read_recalled_texts(
    access: TenantDb, participants: Sequence[str], first: datetime, last: datetime
) -> Sequence[RecalledText]:
    """Read the events that recalls on behalf of some of these participants returned, from the echo
    window before `first` until `last`. Only events visible to all of the participants are read (if
    the tenant's agents share, to all participants who are not agents), so that no decision reveals
    what others know."""
    return access.fetch(
        RecalledText,
        """
        with answers as materialized (
            select a.writer, a.event_ids, a.recalled_at
            from unnest(%(members)s::text[]) m (name)
            cross join lateral (  -- the latest of each: one agent may ask all day
                select * from recall_answers a
                where a.tenant_id = current_tenant() and a.asker = m.name
                    and a.recalled_at > %(since)s and a.recalled_at <= %(until)s
                order by a.recalled_at desc limit %(max_answers)s) a
            where a.participants <@ %(members)s::text[]),
        given as materialized (
            select g.event_id, a.writer, array_agg(a.recalled_at) as times
            from answers a cross join lateral unnest(a.event_ids) g (event_id)
            group by g.event_id, a.writer
            order by max(a.recalled_at) desc, g.event_id limit %(max_events)s)
        select g.event_id, g.writer, g.times, left(e.content, %(max_chars)s) as text
        from given g
        cross join lateral (  -- by key: the planner may read all events for a join
            select e.content from events e
            where e.event_id = g.event_id and e.erased_at is null and e.content is not null
                and e.participants @> (
                    select case when t.agents_share then %(users)s::text[]
                        else %(members)s::text[] end
                    from tenants t where t.tenant_id = current_tenant())
            offset 0) e
        """,
        {
            "members": list(participants),
            "users": drop_agents(participants),
            "since": first - ECHO_WINDOW,
            "until": last,
            "max_answers": _MAX_ANSWERS,
            "max_events": _MAX_EVENTS,
            "max_chars": _MAX_CHARS,
        },
    )


def read_event_texts(access: TenantDb, event_ids: Sequence[UUID]) -> Sequence[EventText]:
    """Read the texts of these events; erased events and payloads are left out."""
    return access.fetch(
        EventText,
        """
        select e.event_id, e.seq, e.writer, e.recorded_at, left(e.content, %(max_chars)s) as text
        from events e
        where e.event_id = any (%(event_ids)s) and e.erased_at is null and e.content is not null
        order by e.seq
        """,
        {"event_ids": list(event_ids), "max_chars": _MAX_CHARS},
    )
