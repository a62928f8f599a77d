"""SQL for the facts of a scope that a change may end."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.db.database import TenantDb

_MAX_FACTS = 500
"""How many of the newest facts about one person are read."""


@dataclass(frozen=True)
class SlotFactRow:
    """A fact that holds, and that chains alone have stated."""

    node_id: UUID
    name: str
    event_ids: list[UUID]
    """The events that it cites."""
    said_at: datetime
    """When the last of them was said."""
    trust: str


def list_facts(access: TenantDb, scope_id: UUID, subjects: Sequence[str]) -> Sequence[SlotFactRow]:
    """The facts of a scope about these people that hold and that no caller has stated, by the
    compared forms of their names."""
    return access.fetch(
        SlotFactRow,
        """
        select g.node_id, g.name, cited.event_ids, cited.said_at, g.trust
        from unnest(%(subjects)s::text[]) s (name)
        cross join lateral (
            select g.node_id, g.name, g.trust from graph_nodes g
            where g.tenant_id = current_tenant() and g.scope_id = %(scope_id)s and g.type = 'fact'
                and g.valid_to is null and not g.archived
                and (starts_with(lower(g.name), s.name || ' ')
                    or starts_with(lower(g.name), s.name || '''s '))
            order by g.updated_at desc limit %(max_facts)s) g
        cross join lateral (
            select array_agg(distinct e.event_id) as event_ids,
                max(coalesce(e.occurred_at, e.recorded_at)) as said_at,
                bool_and(o.source_version is not null) as is_derived
            from graph_observations o
            join graph_sources c on c.tenant_id = o.tenant_id and c.target_id = o.target_id
                and c.source_id = o.source_id
            cross join lateral (
                select e.event_id, e.occurred_at, e.recorded_at from events e
                where e.tenant_id = c.tenant_id and e.event_id = c.event_id offset 0) e
            where o.tenant_id = current_tenant() and o.target_id = g.node_id
                and not o.patch ? 'upkeep') cited
        where cited.is_derived
        """,
        {"scope_id": scope_id, "subjects": list(subjects), "max_facts": _MAX_FACTS},
    )
