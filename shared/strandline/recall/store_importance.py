"""SQL for the use of events: folded from the records of recalled events, and read by searches that
weight importance."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.db.database import TenantDb

_MAX_DEPTH = 3
"""The maximum number of consecutive edges followed, the same as for `expand`."""
_EDGES_PER_EVENT = 5
"""The maximum number of edges followed from one event: those with the greatest weight."""
_MIN_IMPACT = 0.01
"""A smaller impact is ignored."""


@dataclass(frozen=True)
class _DailyEventUse:
    event_id: UUID
    days_ago: list[int]
    impacts: list[float]


def read_daily_event_uses(
    access: TenantDb, events: Sequence[tuple[UUID, UUID]], now: datetime, days: int
) -> Mapping[UUID, list[tuple[int, float]]]:
    """How much each of these visible events (given with its scope) was used by recalls for
    participants that include the caller's, on each of the last `days` days: pairs of (days ago,
    0..1). Echoes and their use are ignored."""
    rows = access.fetch(
        _DailyEventUse,
        """
        with wanted as materialized (
            select w.* from jsonb_to_recordset(%(events)s::jsonb) w (event_id uuid, scope_id uuid)),
        today as (select (%(now)s::timestamptz at time zone 'UTC')::date as day),
        used as (
            select w.event_id, w.scope_id, u.event_id as given_id, today.day - u.day as days_ago,
                u.impact
            from today, wanted w
            cross join lateral (  -- by key: the planner may read all uses for a join
                select u.event_id, u.day, u.impact from event_uses u
                where u.tenant_id = current_tenant() and u.cited_id = w.event_id
                    and today.day - u.day between 0 and %(days)s::int - 1 offset 0) u),
        counted as materialized (
            select given.given_id from (select distinct scope_id, given_id from used) given
            cross join lateral (
                select from events e
                where e.tenant_id = current_tenant() and e.event_id = given.given_id
                    and e.erased_at is null offset 0) e
            where not is_echo(given.scope_id, given.given_id))
        select d.event_id, array_agg(d.days_ago order by d.days_ago) as days_ago,
            array_agg(d.impact order by d.days_ago) as impacts
        from (
            select used.event_id, used.days_ago, max(used.impact) as impact from used
            join counted using (given_id)
            where not exists (
                select from decisions x
                where x.tenant_id = current_tenant() and x.scope_id = used.scope_id
                    and x.event_id = used.event_id and x.kind = 'echo')
            group by used.event_id, used.days_ago) d
        group by d.event_id
        """,
        {
            "events": json.dumps(
                [{"event_id": str(event_id), "scope_id": str(scope)} for event_id, scope in events]
            ),
            "now": now,
            "days": days,
        },
    )
    return {row.event_id: list(zip(row.days_ago, row.impacts, strict=True)) for row in rows}


@dataclass(frozen=True)
class FoldedAnswer:
    """A recall's answer whose use is folded."""

    recall_id: UUID
    event_ids: list[UUID]
    """The events that it used."""


def fold_answers_into_event_uses(
    access: TenantDb, now: datetime, limit: int
) -> Sequence[FoldedAnswer]:
    """Fold the use of at most `limit` answers, in any order, in a transaction. Returns these
    answers. Concurrent folds take different answers."""
    return access.fetch(
        FoldedAnswer,
        """
        with recursive due as (
            select a.recall_id from recall_answers a
            where a.tenant_id = current_tenant() and a.folded_at is null and a.used > 0
            limit %(limit)s for no key update skip locked),
        answers as (
            update recall_answers a set folded_at = %(now)s from due
            where a.tenant_id = current_tenant() and a.recall_id = due.recall_id
            returning a.recall_id, a.participants, a.event_ids[:a.used] as event_ids,
                (a.recalled_at at time zone 'UTC')::date as day),
        given as materialized (
            select distinct a.participants, a.day, g.event_id
            from answers a cross join lateral unnest(a.event_ids) g (event_id)),
        walk as (
            select e.event_id, e.event_id as cited_id, e.scope_id, 1::float8 as impact, 0 as depth
            from (select distinct event_id from given) g
            cross join lateral (  -- by key: the planner may read all events for a join
                select e.event_id, e.scope_id from events e
                where e.tenant_id = current_tenant() and e.event_id = g.event_id
                    and e.erased_at is null offset 0) e
            union all
            select w.event_id, m.cited_id, w.scope_id, w.impact * m.weight, w.depth + 1
            from walk w
            cross join lateral (
                select m.cited_id, m.weight from memory_edges m
                where m.tenant_id = current_tenant() and m.event_id = w.cited_id
                    and m.weight >= %(min_impact)s / w.impact
                order by m.weight desc, m.cited_id limit %(edges_per_event)s) m
            cross join lateral (
                select from events e
                where e.tenant_id = current_tenant() and e.event_id = m.cited_id
                    and e.scope_id = w.scope_id and e.erased_at is null offset 0) e
            where w.depth < %(max_depth)s),
        impacts as materialized (
            select w.event_id, w.cited_id, max(w.impact) as impact from walk w
            group by w.event_id, w.cited_id),
        inserted as (
            insert into event_uses
                (tenant_id, cited_id, asker_id, event_id, day, participants, impact)
            select current_tenant(), i.cited_id,
                left(encode(sha256(convert_to(to_jsonb(given.participants)::text, 'UTF8')),
                    'hex'), 32)::uuid,
                i.event_id, given.day, given.participants, i.impact
            from given join impacts i using (event_id)
            order by i.cited_id, i.event_id, given.day  -- one order: two folds do not deadlock
            on conflict do nothing)
        select recall_id, event_ids from answers
        """,
        {
            "now": now,
            "limit": limit,
            "min_impact": _MIN_IMPACT,
            "edges_per_event": _EDGES_PER_EVENT,
            "max_depth": _MAX_DEPTH,
        },
    )


def delete_event_uses_before(access: TenantDb, before: datetime, limit: int) -> int:
    """Remove at most `limit` uses of days before this moment's day. Returns how many."""
    return access.execute(
        """
        delete from event_uses u where u.ctid = any (array(
            select u.ctid from event_uses u
            where u.tenant_id = current_tenant()
                and u.day < (%(before)s::timestamptz at time zone 'UTC')::date
            limit %(limit)s))
        """,
        {"before": before, "limit": limit},
    )
