"""Model prompts of the fold: their context, the events as shown to the model, and the question
whether a topic continues."""

from collections.abc import MutableMapping, Sequence
from uuid import UUID

from strandline.aws.blobs import is_text
from strandline.chains import store_run_events
from strandline.chains.store_run_events import PromptEventRow, RunEvent
from strandline.db.database import TenantDb
from strandline.jobs.worker_resources import WorkerResources, read_text_head
from strandline.llm.types import Continues, ModelResult, PromptEvent, TaskContext

_MAX_TEXT_BYTES = 4000
"""The maximum number of bytes read of a text payload."""
_MAX_CACHED_EVENTS = 2000
"""The maximum number of event texts that a fold caches for its model prompts: the open events of a
lane are part of many prompts."""
_MARGIN_SECONDS = 2.0
"""Seconds of the worker's time that are reserved for the commit after a model's answer."""


def make_task_context(
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
    if body is None and row.blob_cid and is_text(row.mime_type):
        body = read_text_head(worker, tenant, row.blob_cid, _MAX_TEXT_BYTES)
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
    waits_for_model: bool,
) -> ModelResult[Continues] | None:
    """Ask whether `message` continues the topic of the events before it, given the events after it.
    None if the message, or all events before it, were erased.

    Texts that are in `event_cache` are not read again; texts that are read are added to it. Raises
    WorkDeferred under the same conditions as `enrich_run`.
    """
    prompt_events = _load_prompt_events(
        worker, access, task, [*before, message, *after], event_cache
    )
    earlier_events = [prompt_events[event_id] for event_id in before if event_id in prompt_events]
    if message not in prompt_events or not earlier_events:
        return None
    later_events = [prompt_events[event_id] for event_id in after if event_id in prompt_events]
    result = worker.llm.continues(task, earlier_events, prompt_events[message], later_events)
    worker.require_final((result,), waits_for_model=waits_for_model)
    return result


def _load_prompt_events(
    worker: WorkerResources,
    access: TenantDb,
    task: TaskContext,
    event_ids: Sequence[UUID],
    event_cache: MutableMapping[UUID, PromptEvent],
) -> dict[UUID, PromptEvent]:
    """Load these events from the cache or the database, without those that were erased
    meanwhile."""
    cached_ids = [item for item in event_ids if item in event_cache]
    missing_ids = [item for item in event_ids if item not in event_cache]
    rows, erased_ids = store_run_events.read_prompt_events(access, missing_ids, cached_ids)
    prompt_events = {item: event_cache[item] for item in cached_ids}
    prompt_events |= {item.event_id: to_prompt_event(worker, task.tenant, item) for item in rows}
    if len(event_cache) > _MAX_CACHED_EVENTS:
        event_cache.clear()
    event_cache.update(prompt_events)
    for item in erased_ids:
        event_cache.pop(item, None)
    return {item: text for item, text in prompt_events.items() if item not in erased_ids}
