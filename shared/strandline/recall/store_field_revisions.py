"""SQL for the statements of topics' fields: which of them a later one has replaced."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb


@dataclass(frozen=True)
class _StatementId:
    event_id: UUID


def list_replaced_revisions(
    access: TenantDb, event_ids: Sequence[UUID], until: str | None
) -> set[UUID]:
    """Those of these visible statements that state a field's value which a later revision has
    replaced, by now or, as was known then, before `until`, a time in RFC 3339."""
    if not event_ids:
        return set()
    rows = access.fetch(
        _StatementId,
        """
        select r.event_id
        from topic_field_revisions r
        where r.tenant_id = current_tenant() and r.event_id = any (%(event_ids)s)
            and exists (
                select from topic_field_revisions n
                where n.tenant_id = r.tenant_id and n.node_id = r.node_id and n.field = r.field
                    and n.revision > r.revision
                    and (%(until)s::timestamptz is null or n.recorded_at < %(until)s)
                    and n.valid_from
                        <= greatest(coalesce(%(until)s::timestamptz, now()), n.recorded_at))
        """,
        {"event_ids": list(event_ids), "until": until},
    )
    return {row.event_id for row in rows}
