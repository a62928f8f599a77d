"""SQL for events whose text the embedding model refused."""

from collections.abc import Sequence
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.log.store_work import (
    SELECT_VECTORS,
    EventVector,
    UnembeddedEvent,
    make_vector_params,
)


def list_events_with_refused_vector(
    access: TenantDb, scope_id: UUID, space: str, limit: int
) -> Sequence[UnembeddedEvent]:
    """The events of a scope whose vector in this space was refused, by seq."""
    return access.fetch(
        UnembeddedEvent,
        """
        select e.event_id, e.scope_id, e.seq, e.participants, e.speaker,
            left(e.content, 10000) as content, e.blob_cid, e.mime_type, e.file_name,
            coalesce(e.occurred_at, e.recorded_at) as said_at, e.erased_at is not null as is_erased
        from event_vectors v
        join events e on e.tenant_id = v.tenant_id and e.event_id = v.event_id
        where v.space = %(space)s and v.scope_id = %(scope_id)s and v.refusal is not null
        order by e.seq limit %(limit)s
        """,
        {"scope_id": scope_id, "space": space, "limit": limit},
    )


def replace_refusals_by_vectors(
    access: TenantDb, space: str, vectors: Sequence[EventVector]
) -> int:
    """Replace refusals by vectors; returns how many. Call it in a transaction."""
    return access.execute(
        "update event_vectors v"  # noqa: S608
        """
        set embedding = r.embedding, passages = r.passages, refusal = null,
            embedded_at = now()
        from ("""
        + SELECT_VECTORS
        + """) r
        where v.space = %(space)s and v.scope_id = r.scope_id and v.event_id = r.event_id
            and v.refusal is not null and r.embedding is not null
        """,
        {"space": space, **make_vector_params(vectors)},
    )
