"""SQL for the targets of edges, for events whose edges recall found, for events that rest on more
than they cite, and for the blocks that a block links to."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.db.database import TenantDb
from strandline.log.event_builder import NewEvent
from strandline.log.store import (
    AppendOutcome,
    Event,
    dump_append_items,
    parse_append_outcomes,
    to_append_item,
)


def append_linked_event(
    access: TenantDb, item: NewEvent, links: Mapping[str, object]
) -> Sequence[AppendOutcome]:
    """Store one item whose edges recall found, as `append_events` does, and with it how they were
    found."""
    rows = access.call_function(
        "select * from append_linked_event($1, $2, $3, $4, $5, $6)",
        dump_append_items([to_append_item(access, item)]),
        str(uuid7()),
        json.dumps(links),
    )
    return parse_append_outcomes(rows)


def append_event_with_sources(
    access: TenantDb, item: NewEvent, source_ids: Sequence[UUID]
) -> Sequence[AppendOutcome]:
    """Store one item that rests on these events, which the caller saw, as `append_events` does.
    Raises Unavailable, and stores nothing, where one of them is erased or being erased."""
    rows = access.call_function(
        "select * from append_resting_event($1, $2, $3, $4, $5)",
        dump_append_items([to_append_item(access, item)]),
        f"{{{','.join(map(str, source_ids))}}}",
    )
    return parse_append_outcomes(rows)


@dataclass(frozen=True)
class EdgesAndLinks:
    """An event's edges, and how recall found them."""

    edges: list[dict[str, Any]]
    links: dict[str, Any]


def read_edges_and_links(access: TenantDb, event_id: UUID) -> EdgesAndLinks | None:
    """The links of a visible event that `append_linked_event` stored; None once it is erased."""
    rows = access.fetch(
        EdgesAndLinks,
        """
        select e.edges, d.body as links
        from event_rows e
        join decisions d on d.tenant_id = current_tenant() and d.scope_id = e.scope_id
            and d.event_id = e.event_id and d.kind = 'links'
        where e.event_id = %(event_id)s
        """,
        {"event_id": event_id},
    )
    return rows[0] if rows else None


@dataclass(frozen=True)
class EdgeTarget:
    """The target of an edge, if every reader of the citing event may see it; else None. `place` is
    the edge's position in the query."""

    place: int
    event_id: UUID | None
    cid: str | None


def find_edge_targets(
    access: TenantDb, edges: Sequence[Mapping[str, object]]
) -> Sequence[EdgeTarget]:
    """Find the targets of edges, in their order. `edges` holds {event_id?, cid?, participants}. A
    CID alone means the earliest event with it that all participants may see."""
    return access.fetch(
        EdgeTarget,
        """
        select w.place, target.event_id, target.cid
        from jsonb_to_recordset(%(edges)s::jsonb)
            as w (place int, event_id uuid, cid text, participants text[])
        left join lateral (
            select e.event_id, e.cid from events e
            where e.event_id = w.event_id and e.cid = coalesce(w.cid, e.cid)
                and e.participants @> w.participants
            union all
            (select e.event_id, e.cid from events e
            where w.event_id is null and e.cid = w.cid and e.participants @> w.participants
            order by e.recorded_at, e.event_id limit 1)
        ) target on true
        order by w.place
        """,
        {"edges": json.dumps([{**edge, "place": n} for n, edge in enumerate(edges)])},
    )


def list_event_and_reachable(
    access: TenantDb, event_id: UUID, max_events: int, max_bytes: int
) -> Sequence[Event]:
    """A visible event and all visible events that it cites, directly or not. Empty where they are
    more than `max_events`, or their texts together longer than `max_bytes`."""
    return access.fetch(
        Event,
        """
        with recursive reach as (
            select %(event_id)s::uuid as event_id
            union
            select m.cited_id from reach r
            join memory_edges m on m.tenant_id = current_tenant() and m.event_id = r.event_id),
        reached as materialized (select event_id from reach limit %(max_events)s + 1),
        sized as materialized (
            select r.event_id, e.bytes from reached r
            cross join lateral (  -- by key: the planner may read all events for a join
                select coalesce(octet_length(e.content), 0) as bytes from events e
                where e.tenant_id = current_tenant() and e.event_id = r.event_id
                    and e.erased_at is null offset 0) e),
        total as materialized (
            select (select count(*) from reached) as events, sum(bytes) as bytes from sized)
        select e.*, null::text as source_event_key from total t cross join sized s
        cross join lateral (
            select * from event_rows e where e.event_id = s.event_id offset 0) e
        where t.events <= %(max_events)s and t.bytes <= %(max_bytes)s
        """,
        {"event_id": event_id, "max_events": max_events, "max_bytes": max_bytes},
    )


@dataclass(frozen=True)
class _IsErasedRow:
    is_erased: bool


def is_link_target_erased(access: TenantDb, event_id: UUID, cid: str) -> bool:
    """Whether a visible event links to this block, and the block's event is erased or being
    erased."""
    (row,) = access.fetch(
        _IsErasedRow,
        """
        with targets as materialized (
            select m.cited_id from memory_edges m
            where m.tenant_id = current_tenant() and m.event_id = %(event_id)s
                and m.cited_cid = %(cid)s)
        select exists (
                select from targets t
                join events e on e.tenant_id = current_tenant() and e.event_id = t.cited_id
                where e.erased_at is not null)
            or exists (select from events_marked(array(select t.cited_id from targets t)))
                as is_erased
        """,
        {"event_id": event_id, "cid": cid},
    )
    return row.is_erased
