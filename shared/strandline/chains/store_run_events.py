"""SQL for the events that a chain's content is made from."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.db.database import TenantDb


@dataclass(frozen=True)
class RunEvent:
    """An event of a run, with the columns that its chain is made from."""

    event_id: UUID
    seq: int
    speaker: str | None
    role: str
    type: str
    content: str | None
    """Its first 8,000 characters."""
    chars: int
    """Length of the whole content in characters; of a payload in bytes."""
    blob_cid: str | None
    mime_type: str | None
    file_name: str | None
    metadata_keys: int
    said_at: datetime
    recorded_at: datetime
    vector: str | None
    is_echo: bool
    """Whether a stored decision marks it as an echo."""
    bears_change: bool
    """Whether by a stored decision it says that something of its speaker has changed."""


def read_run_events(access: TenantDb, space: str, event_ids: Sequence[UUID]) -> Sequence[RunEvent]:
    """Read these events by seq, with their vectors in `space`; erased events are left out."""
    return access.fetch(
        RunEvent,
        """
        select e.event_id, e.seq, e.speaker, e.role, e.type, left(e.content, 8000) as content,
            coalesce(length(e.content), e.blob_size, 0) as chars, e.blob_cid, e.mime_type,
            e.file_name, (select count(*) from jsonb_object_keys(e.metadata)) as metadata_keys,
            coalesce(e.occurred_at, e.recorded_at) as said_at, e.recorded_at,
            v.embedding::text as vector, is_echo(e.scope_id, e.event_id) as is_echo, exists (
                select from decisions d
                where d.tenant_id = e.tenant_id and d.scope_id = e.scope_id
                    and d.event_id = e.event_id and d.kind = 'slots'
                    and (d.body ->> 'is_change')::boolean) as bears_change
        from events e
        left join event_vectors v on v.tenant_id = e.tenant_id and v.space = %(space)s
            and v.scope_id = e.scope_id and v.event_id = e.event_id
        where e.event_id = any (%(event_ids)s) and e.erased_at is null
        order by e.seq
        """,
        {"space": space, "event_ids": list(event_ids)},
    )


@dataclass(frozen=True)
class PromptEventRow:
    """An event, with the columns that a model prompt about its topic needs."""

    event_id: UUID
    seq: int
    speaker: str | None
    role: str
    type: str
    content: str | None
    """Its first 8,000 characters."""
    blob_cid: str | None
    mime_type: str | None
    file_name: str | None
    said_at: datetime
    is_erased: bool


def read_prompt_events(
    access: TenantDb, unread_ids: Sequence[UUID], cached_ids: Sequence[UUID]
) -> tuple[Sequence[PromptEventRow], set[UUID]]:
    """Read the events of `unread_ids`. Returns those that are not erased, and the ids of all
    erased ones among `unread_ids` and `cached_ids`."""
    rows = access.fetch(
        PromptEventRow,
        """
        select e.event_id, e.seq, e.speaker, e.role, e.type, left(e.content, 8000) as content,
            e.blob_cid, e.mime_type, e.file_name,
            coalesce(e.occurred_at, e.recorded_at) as said_at, e.erased_at is not null as is_erased
        from events e where e.event_id = any (%(unread_ids)s)
        union all
        select e.event_id, e.seq, e.speaker, e.role, e.type, null, null, null, null,
            e.recorded_at, true
        from events e where e.event_id = any (%(cached_ids)s) and e.erased_at is not null
        """,
        {"unread_ids": list(unread_ids), "cached_ids": list(cached_ids)},
    )
    present = [row for row in rows if not row.is_erased]
    return present, {row.event_id for row in rows if row.is_erased}
