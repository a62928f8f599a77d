"""SQL that reads what the graph has from the time of a file's statements."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.db.database import TenantDb


@dataclass(frozen=True)
class KnownObservation:
    """A source's observation of a node or an edge."""

    source_id: UUID
    is_statement: bool
    """True if the source is a statement, False if it is a chain."""
    target_id: UUID
    said_at: datetime
    trust: str
    patch: dict[str, Any]
    confidence: float | None
    heat: float | None
    valid_from: datetime


def list_observations(
    access: TenantDb, target_ids: Sequence[UUID], first: datetime, last: datetime
) -> Sequence[KnownObservation]:
    """The observations of these nodes and edges that were said between these
    moments."""
    return access.fetch(
        KnownObservation,
        """
        select o.source_id, o.source_version is null as is_statement, o.target_id,
            coalesce(e.occurred_at, o.observed_at) as said_at, o.trust, o.patch, o.confidence,
            o.heat, o.valid_from
        from graph_observations o
        left join events e on e.tenant_id = o.tenant_id and e.event_id = o.source_id
            and o.source_version is null
        where o.tenant_id = current_tenant() and o.target_id = any (%(ids)s::uuid[])
            and (o.source_version is not null or e.event_id is not null)
            and coalesce(e.occurred_at, o.observed_at) between %(first)s and %(last)s
        """,
        {"ids": list(target_ids), "first": first, "last": last},
    )


@dataclass(frozen=True)
class StatedRevision:
    """A revision of a topic's field."""

    source_id: UUID
    """Its statement."""
    node_id: UUID
    said_at: datetime
    trust: str
    field: str
    value: Any
    valid_from: datetime
    why_changed: str
    impact_expected: str
    ref_id: UUID | None


def list_revisions(
    access: TenantDb, node_ids: Sequence[UUID], first: datetime, last: datetime
) -> Sequence[StatedRevision]:
    """The revisions of the fields of these topics that were said between these
    moments."""
    return access.fetch(
        StatedRevision,
        """
        select r.event_id as source_id, r.node_id,
            coalesce(e.occurred_at, r.recorded_at) as said_at, e.origin as trust, r.field, r.value,
            r.valid_from, r.why_changed, r.impact_expected, r.ref_id
        from topic_field_revisions r
        join events e on e.tenant_id = r.tenant_id and e.event_id = r.event_id
        where r.tenant_id = current_tenant() and r.node_id = any (%(ids)s::uuid[])
            and coalesce(e.occurred_at, r.recorded_at) between %(first)s and %(last)s
        """,
        {"ids": list(node_ids), "first": first, "last": last},
    )


@dataclass(frozen=True)
class KnownStatementEvent:
    """The event of a statement."""

    event_id: UUID
    role: str
    speaker: str | None
    content: str | None


def list_statement_events(
    access: TenantDb, event_ids: Sequence[UUID]
) -> Sequence[KnownStatementEvent]:
    """The events of these ids. An id of a chain has none."""
    return access.fetch(
        KnownStatementEvent,
        """
        select e.event_id, e.role, e.speaker, e.content from events e
        where e.tenant_id = current_tenant() and e.event_id = any (%(ids)s::uuid[])
        """,
        {"ids": list(event_ids)},
    )
