"""SQL for echoes: what recalls gave to a scope's participants, and what is said in it."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from strandline.chains.echoes import ECHO_WINDOW, EventText, RecalledText
from strandline.db.database import TenantDb
from strandline.participants import drop_agents

_MAX_ANSWERS = 200
"""How many answers are compared with that somebody asked for: the latest."""
_MAX_EVENTS = 400
"""How many of their events."""
_MAX_CHARS = 8000
"""How many characters of a text are compared."""


def read_given(
    access: TenantDb, participants: Sequence[str], first: datetime, last: datetime
) -> Sequence[RecalledText]:
    """The events that recalls on behalf of some of these participants gave, from the window before
    `first` until `last`. Of these only those that all of the participants may see, or where the
    tenant's agents share, all who are no agents: what others know must not show in a decision."""
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


def read_said(access: TenantDb, event_ids: Sequence[UUID]) -> Sequence[EventText]:
    """The texts of these events; erased ones and payloads are left out."""
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
