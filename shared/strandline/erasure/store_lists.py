"""SQL that lists erasures."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from strandline.cursors import Position
from strandline.db.database import TenantDb
from strandline.erasure.store_selections import Kind


@dataclass(frozen=True)
class ListedErasure:
    """An erasure on a page of a list."""

    erasure_id: UUID
    kind: Kind
    target: dict[str, Any]
    """Without the ids of events, because there may be a thousand."""
    asked_at: datetime
    asked_by: dict[str, Any]
    hidden_at: datetime
    vacuumed_at: datetime | None
    completed_at: datetime | None
    counts: dict[str, int]
    pg_snapshot: str
    """The database snapshot of the first page."""


def list_newest_erasures(
    access: TenantDb,
    state: Literal["hidden", "complete"] | None,
    after: Position | None,
    limit: int,
) -> Sequence[ListedErasure]:
    """The visible erasures, newest first. Later pages show the database snapshot of the first
    page."""
    viewer = access.caller.viewer
    return access.fetch(
        ListedErasure,
        """
        select e.erasure_id, e.kind, e.target - 'event_ids' as target, e.asked_at, e.asked_by,
            e.hidden_at, e.vacuumed_at, e.completed_at, e.counts,
            coalesce(%(pg_snapshot)s, pg_current_snapshot())::text as pg_snapshot
        from erasures e
        where e.tenant_id = current_tenant()
            and (%(pg_snapshot)s is null or is_in_snapshot(e.xid, %(pg_snapshot)s))
            and (%(after_id)s::uuid is null or e.erasure_id < %(after_id)s)
            and (%(asker)s::text is null or e.participants[1] = %(asker)s)
            and (%(is_complete)s::boolean is null
                or (e.completed_at is not null) = %(is_complete)s)
        order by e.erasure_id desc
        limit %(limit)s
        """,
        {
            "pg_snapshot": after and after.pg_snapshot,
            "after_id": after and after.row_id,
            "asker": viewer[0] if viewer else None,  # the policy alone would use no index
            "is_complete": None if state is None else state == "complete",
            "limit": limit,
        },
    )
