"""Model prompts of the fold: their context, the events of a run and what a prompt shows of them,
and the question whether a topic continues."""

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.aws.payload_texts import is_text_type
from strandline.db.database import TenantDb
from strandline.jobs.worker_resources import WorkerResources, read_payload_text_head
from strandline.llm.types import ModelResult, PromptEvent, TaskContext, TopicContinuation

_MAX_TEXT_BYTES = 4000
"""The maximum number of bytes read of a text payload."""
_MAX_CACHED_EVENTS = 2000
"""The maximum number of event texts that a fold caches for its model prompts: the open events of a
lane are part of many prompts."""
_MARGIN_SECONDS = 2.0
"""Seconds of the worker's time that are reserved for the commit after a model's answer."""


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
    vector: bytes | None
    """In the format of `halfvec_send`."""
    is_echo: bool
    """Whether a stored decision marks it as an echo."""
    bears_change: bool
    """Whether by a stored decision it says that something of its speaker has changed."""


def read_run_events(access: TenantDb, space: str, event_ids: Sequence[UUID]) -> Sequence[RunEvent]:
    """Read these events by seq, with their vectors in `space`; erased events are left out."""
    # Ids in a sub-select: the planner does not count them, so that one plan serves any number.
    return access.fetch(
        RunEvent,
        """
        select e.event_id, e.seq, e.speaker, e.role, e.type, left(e.content, 8000) as content,
            coalesce(length(e.content), e.blob_size, 0) as chars, e.blob_cid, e.mime_type,
            e.file_name, (select count(*) from jsonb_object_keys(e.metadata)) as metadata_keys,
            coalesce(e.occurred_at, e.recorded_at) as said_at, e.recorded_at,
            halfvec_send(v.embedding) as vector,
            -- Offset and order: by key, or the planner reads all decisions of the tenant. Not by
            -- is_echo(): a call for each event costs more than the rest.
            exists (
                select from decisions d
                where d.tenant_id = e.tenant_id and d.scope_id = e.scope_id
                    and d.event_id = e.event_id and d.kind = 'echo'
                order by d.attempt offset 0) as is_echo,
            exists (
                select from decisions d
                where d.tenant_id = e.tenant_id and d.scope_id = e.scope_id
                    and d.event_id = e.event_id and d.kind = 'slots'
                    and (d.body ->> 'is_change')::boolean
                order by d.attempt offset 0) as bears_change
        from unnest((select %(event_ids)s::uuid[])) i (event_id)
        cross join lateral (  -- by key: the planner may read all events or vectors for a join
            select * from events e
            where e.event_id = i.event_id and e.erased_at is null offset 0) e
        left join lateral (
            select v.embedding from event_vectors v
            where v.tenant_id = e.tenant_id and v.space = %(space)s
                and v.scope_id = e.scope_id and v.event_id = e.event_id offset 0) v on true
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
    # Ids in sub-selects, as in `read_run_events`.
    rows = access.fetch(
        PromptEventRow,
        """
        select e.event_id, e.seq, e.speaker, e.role, e.type, left(e.content, 8000) as content,
            e.blob_cid, e.mime_type, e.file_name,
            coalesce(e.occurred_at, e.recorded_at) as said_at, e.erased_at is not null as is_erased
        from unnest((select %(unread_ids)s::uuid[])) i (event_id)
        cross join lateral (
            select * from events e where e.event_id = i.event_id offset 0) e
        union all
        select e.event_id, e.seq, e.speaker, e.role, e.type, null, null, null, null,
            e.recorded_at, true
        from unnest((select %(cached_ids)s::uuid[])) i (event_id)
        cross join lateral (
            select * from events e
            where e.event_id = i.event_id and e.erased_at is not null offset 0) e
        """,
        {"unread_ids": list(unread_ids), "cached_ids": list(cached_ids)},
    )
    present = [row for row in rows if not row.is_erased]
    return present, {row.event_id for row in rows if row.is_erased}


def make_model_task_context(
    worker: WorkerResources, access: TenantDb, scope_id: UUID, participants: Sequence[str]
) -> TaskContext:
    """The context of model calls that a scope's fold makes."""
    return TaskContext(
        tenant=access.caller.tenant,
        subject=str(scope_id),
        participants=tuple(participants),
        scope_id=str(scope_id),
        job=worker.job,
        deadline=worker.deadline - _MARGIN_SECONDS,
    )


def to_prompt_event(
    worker: WorkerResources, tenant: str, row: RunEvent | PromptEventRow
) -> PromptEvent:
    """An event as shown to the model. A text payload is represented by its beginning, any other
    payload by its file name or MIME type."""
    body = row.content
    if body is None and row.blob_cid and is_text_type(row.mime_type):
        body = read_payload_text_head(worker, tenant, row.blob_cid, _MAX_TEXT_BYTES, row.mime_type)
    return PromptEvent(
        seq=row.seq,
        speaker=row.speaker,
        role=row.role,
        type=row.type,
        text=body if body is not None else row.file_name or row.mime_type or "",
        said_at=row.said_at,
    )


def ask_if_topic_continues(
    worker: WorkerResources,
    access: TenantDb,
    task: TaskContext,
    before: Sequence[UUID],
    message: UUID,
    after: Sequence[UUID],
    event_cache: MutableMapping[UUID, PromptEvent],
    *,
    next_ids: Sequence[UUID],
    waits_for_model: bool,
) -> ModelResult[TopicContinuation] | None:
    """Ask whether `message` continues the topic of the events before it, given the events after it.
    None if the message, or all events before it, were erased.

    Texts that are in `event_cache` are not read again; texts that are read are added to it, and
    with them those of `next_ids`, which later questions will need. Raises WorkDeferred under the
    same conditions as `decide_content_and_merge_target`.
    """
    prompt_events = _load_prompt_events(
        worker, access, task, [*before, message, *after], event_cache, next_ids
    )
    earlier_events = [prompt_events[event_id] for event_id in before if event_id in prompt_events]
    if message not in prompt_events or not earlier_events:
        return None
    later_events = [prompt_events[event_id] for event_id in after if event_id in prompt_events]
    result = worker.llm.continues(task, earlier_events, prompt_events[message], later_events)
    worker.require_final_results((result,), waits_for_model=waits_for_model)
    return result


def _load_prompt_events(
    worker: WorkerResources,
    access: TenantDb,
    task: TaskContext,
    event_ids: Sequence[UUID],
    event_cache: MutableMapping[UUID, PromptEvent],
    next_ids: Sequence[UUID],
) -> dict[UUID, PromptEvent]:
    """Load these events from the cache or the database, without those that were erased meanwhile:
    a text may wait in the cache for as long as a model takes. Without a language model nobody is
    shown it."""
    cached_ids = [item for item in event_ids if item in event_cache]
    missing_ids = [item for item in event_ids if item not in event_cache]
    prompt_events = {item: event_cache[item] for item in cached_ids}
    if not missing_ids and not worker.llm.has_model:
        return prompt_events
    ahead_ids = set(next_ids).difference(event_ids, event_cache) if missing_ids else ()
    rows, erased_ids = read_prompt_events(access, [*missing_ids, *ahead_ids], cached_ids)
    new_events = {
        row.event_id: to_prompt_event(worker, task.tenant, row)
        for row in rows
        if row.event_id not in ahead_ids or row.blob_cid is None  # a payload is not read in advance
    }
    if len(event_cache) > _MAX_CACHED_EVENTS:
        event_cache.clear()
    event_cache.update(prompt_events | new_events)
    for item in erased_ids:
        event_cache.pop(item, None)
    return {item: event_cache[item] for item in event_ids if item in event_cache}
