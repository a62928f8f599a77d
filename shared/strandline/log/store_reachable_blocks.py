"""SQL for the blocks that a block links to."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.log.store import Event


def list_reachable(
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
class _ErasedFlag:
    is_erased: bool


def is_target_erased(access: TenantDb, event_id: UUID, cid: str) -> bool:
    """Whether a visible event links to this block, and the block's event is erased or being
    erased."""
    (row,) = access.fetch(
        _ErasedFlag,
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
