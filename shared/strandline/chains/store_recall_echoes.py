"""SQL for echoes: events that recalls returned to a scope's participants, and the scope's own
texts."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from strandline.chains.recall_echoes import ECHO_WINDOW, EventText, RecalledText
from strandline.db.database import TenantDb
from strandline.participants import drop_agents

_MAX_ANSWERS = 200
"""The maximum number of recall answers compared, per participant who asked: the latest ones."""
_MAX_EVENTS = 400
"""The maximum number of events of these answers."""
_MAX_CHARS = 8000
"""The maximum number of characters compared of a text."""


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
