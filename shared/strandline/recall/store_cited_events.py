"""SQL for the events that others cite, along memory edges."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb

_MAX_DEPTH = 3
"""The maximum number of consecutive edges followed."""
_EDGES_PER_EVENT = 5
"""The maximum number of edges followed from one event: those with the greatest weight."""


@dataclass(frozen=True)
class _EventId:
    event_id: UUID


def list_cited_events(
    access: TenantDb,
    seeds: Sequence[tuple[UUID, float]],
    exclude_ids: Sequence[UUID],
    filters: Mapping[str, object],
    limit: int,
) -> list[UUID]:
    """The visible events that match the filters and are cited by the seeds, directly or through
    others, ordered by the product of the seed's weight and the edge weights, greatest first. Events
    in `exclude_ids` are left out. An edge leads only to events visible to all readers of its
    event."""
    rows = access.fetch(
        _EventId,
        """
        with recursive walk as (
            select s.event_id, s.weight, 0 as depth
            from jsonb_to_recordset(%(seeds)s::jsonb) s (event_id uuid, weight float8)
            union all
            select m.cited_id, heat_term(w.weight, m.weight), w.depth + 1  -- without underflow
            from walk w
            cross join lateral (
                select m.cited_id, m.weight from memory_edges m
                where m.tenant_id = current_tenant() and m.event_id = w.event_id
                order by m.weight desc, m.cited_id limit %(edges_per_event)s) m
            where w.depth < %(max_depth)s),
        reached as materialized (
            select w.event_id, max(w.weight) as weight from walk w
            where w.depth > 0 and w.event_id <> all (%(exclude_ids)s::uuid[])
            group by w.event_id)
        select r.event_id
        from reached r
        cross join lateral (  -- by key: the planner may read all events for a join
            select from events e
            where e.tenant_id = current_tenant() and e.event_id = r.event_id
                and e.erased_at is null and matches_filter(e, %(filter)s::jsonb) offset 0) e
        order by r.weight desc, r.event_id desc limit %(limit)s
        """,
        {
            "seeds": json.dumps([{"event_id": str(i), "weight": weight} for i, weight in seeds]),
            "exclude_ids": list(exclude_ids),
            "filter": json.dumps(filters),
            "edges_per_event": _EDGES_PER_EVENT,
            "max_depth": _MAX_DEPTH,
            "limit": limit,
        },
    )
    return [row.event_id for row in rows]
