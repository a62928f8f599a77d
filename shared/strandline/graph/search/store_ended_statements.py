"""SQL for statements whose facts have ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb


@dataclass(frozen=True)
class _StatementId:
    event_id: UUID


def list_ended_statements(access: TenantDb, event_ids: Sequence[UUID]) -> set[UUID]:
    """Those of these statements that state a fact which holds no longer, as far as visible."""
    if not event_ids:
        return set()
    rows = access.fetch(
        _StatementId,
        """
        select o.source_id as event_id
        from graph_observations o
        cross join lateral (
            select g.valid_to from graph_nodes g
            where g.tenant_id = o.tenant_id and g.node_id = o.target_id and g.type = 'fact'
            offset 0) g
        where o.tenant_id = current_tenant() and o.source_id = any (%(event_ids)s)
            and o.source_version is null and not o.patch ? 'upkeep' and g.valid_to <= now()
        """,
        {"event_ids": list(event_ids)},
    )
    return {row.event_id for row in rows}
