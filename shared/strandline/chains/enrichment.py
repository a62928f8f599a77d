"""Turn a closed run into a chain's content: summary, topic, entities, quality, and the earlier
chain that it is merged into. All of it is decided once and stored as a decision."""

import json
import time
from collections.abc import MutableMapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from strandline.aws.blobs import is_text
from strandline.chains import quality, store, store_events
from strandline.chains.parallel import run_in_parallel
from strandline.chains.segmentation import SegmentationRules
from strandline.chains.store import ChainHead
from strandline.chains.store_events import RunEvent, TopicEvent
from strandline.db.database import TenantDb
from strandline.embeddings import spaces
from strandline.errors import EmbeddingRefused, EmbeddingUnavailable
from strandline.failures import is_permanent_failure
from strandline.jobs.context import EMBED_SECONDS, Worker, read_text_head, require_embedding
from strandline.llm.plain import UNTITLED
from strandline.llm.types import Continues, ModelResult, PromptEvent, Summary, TaskContext
from strandline.log import store_work
from strandline.observability import logger
from strandline.tuning import Tuning

_MAX_TEXT_BYTES = 4000
"""How many bytes of a text payload are read."""
_MAX_CACHED_EVENTS = 2000
"""How many events' texts a fold caches for its questions to the model: the open events of a lane
are part of one question after another."""
_MARGIN_SECONDS = 2.0
"""Seconds of the worker's time that are reserved for the commit after a model's answer."""


class FoldSettings(BaseModel):
    """The settings by which a scope's events are segmented, judged and merged. A change is stored
    as a new decision."""

    model_config = ConfigDict(frozen=True)

    space: str
    """The embedding space in which cosines are computed."""
    low: float
    high: float
    merge: float
    gap_minutes: float
    flush_events: int
    ahead_events: int = 0
    """The default stands for decisions of before this setting existed: messages were judged at
    once."""
    merged_events: int
    vector_hours: float
    quality: quality.Mode

    @classmethod
    def from_tuning(cls, space: str, tuning: Tuning) -> "FoldSettings":
        """Build the settings from a tenant's tuning, for one embedding space."""
        low, high, merge, _ = spaces.thresholds_for(space, tuning)
        return cls(
            space=space,
            low=low,
            high=high,
            merge=merge,
            gap_minutes=tuning.gap_minutes,
            flush_events=tuning.flush_events,
            ahead_events=tuning.ahead_events,
            merged_events=tuning.merged_events,
            vector_hours=tuning.vector_hours,
            quality=tuning.quality,
        )

    @property
    def rules(self) -> SegmentationRules:
        """The part of the settings that segmentation uses."""
        gap = timedelta(minutes=self.gap_minutes)
        return SegmentationRules(self.low, self.high, gap, self.flush_events, self.ahead_events)


class ChainContent(BaseModel):
    """The content of one chain version, as it was decided."""

    model_config = ConfigDict(frozen=True)

    at: datetime
    """By the server's clock: heat starts here."""
    topic: str
    summary: str
    entities: list[dict[str, str]]
    importance: float
    density: float
    coherence: float | None
    quality: float
    rejected: str | None
    joins: UUID | None = None
    """The chain that the run is merged into, if any; all fields above then describe the merged
    chain."""
    models: dict[str, dict[str, str | None]]
    """By task: the model, the prompt, and why the heuristic model answered instead of the
    configured one."""

    @property
    def fallback_reason(self) -> str | None:
        """Why a retry is worth it; None where no task fell back."""
        return next((m["fell_back"] for m in self.models.values() if m["fell_back"]), None)


FOLD_FAILED = "fold_failed"
"""The reason of a run or a message that was not judged because judging it failed and would fail
again on the same input."""


class RunEnrichment(NamedTuple):
    """A run's decided content, and its summary's vector as Postgres writes it. A rejected run has
    no vector."""

    content: ChainContent
    vector: str | None
    is_new: bool = False
    """True where it was just decided, False in a replay."""


def enrich_run(
    worker: Worker,
    access: TenantDb,
    task: TaskContext,
    settings: FoldSettings,
    event_ids: Sequence[UUID],
    now: datetime,
    *,
    patience: timedelta,
    may_merge: bool,
) -> RunEnrichment | None:
    """Decide the content of the chain that these events become; None where all of them were erased.
    With `may_merge` it may be merged into an earlier chain.

    Must be called outside of any transaction. Raises EmbeddingUnavailable while waiting for the
    summary's vector is worth it. Raises Deferred while waiting for the model is worth it (for
    `patience` since the newest of the events), or where too little time is left.
    """
    worker.require_time_for_run()
    run_events = store_events.read_run_events(access, settings.space, event_ids)
    if not run_events:
        return None
    age = now - max(text.recorded_at for text in run_events)
    waits_for_vector = age < timedelta(hours=settings.vector_hours)
    content = _describe_run(worker, task, settings, run_events, now, age < patience)
    vector = embed_summary(worker, content, waits_for_model=waits_for_vector)
    merge_target = None
    if may_merge and vector is not None and settings.space == worker.embedder.space:
        max_events = settings.merged_events - len(run_events)
        scope_id = UUID(task.subject)
        merge_target = store.find_nearest(
            access, scope_id, settings.space, vector, settings.merge, max_events
        )
    if merge_target is not None:
        content = _merge_content(
            worker, task, settings, merge_target, content, len(run_events), age < patience
        )
        vector = embed_summary(worker, content, waits_for_model=waits_for_vector)
    return RunEnrichment(content, vector, is_new=True)


def _describe_run(
    worker: Worker,
    task: TaskContext,
    settings: FoldSettings,
    run_events: Sequence[RunEvent],
    now: datetime,
    waits_for_model: bool,
) -> ChainContent:
    """The content of these events on their own, including the quality gate's verdict."""
    prompt_events = [_to_prompt_event(worker, task.tenant, text) for text in run_events]
    summary, topic, entities = run_in_parallel(
        worker,
        lambda: worker.llm.summarise(task, prompt_events),
        lambda: worker.llm.topic(task, prompt_events),
        lambda: worker.llm.entities(task, prompt_events),
    )
    worker.require_final((summary, topic, entities), waits_for_model=waits_for_model)
    density = quality.compute_density([_to_trait(text) for text in run_events])
    coherence = quality.compute_coherence(
        [json.loads(text.vector) for text in run_events if text.vector]
    )
    verdict = quality.judge_quality(
        settings.quality,
        density=density,
        coherence=coherence,
        importance=summary.value.importance,
        events=len(run_events),
    )
    return ChainContent(
        at=now,
        topic=topic.value.topic,
        summary=summary.value.summary,
        entities=[entity.model_dump() for entity in entities.value.entities],
        importance=summary.value.importance,
        density=density,
        coherence=coherence,
        quality=verdict.quality,
        rejected=verdict.rejection_reason,
        models={
            "summarise": _model_provenance(summary),
            "topic": _model_provenance(topic),
            "entities": _model_provenance(entities),
        },
    )


def make_placeholder_content(now: datetime, event_count: int, error: Exception) -> ChainContent:
    """The content of a run on which every other step failed: it says only how many events there
    are. Listings leave such a chain out, and a retry of its job replaces the content."""
    return ChainContent(
        at=now,
        topic=UNTITLED,
        summary=f"{event_count} events.",
        entities=[],
        importance=0.0,
        density=0.0,
        coherence=None,
        quality=0.0,
        rejected=FOLD_FAILED,
        models={"all": {"model": "none", "prompt": type(error).__name__, "fell_back": FOLD_FAILED}},
    )


def embed_summary(worker: Worker, content: ChainContent, *, waits_for_model: bool) -> str | None:
    """Embed a summary; None where the quality gate rejected the chain or the model refuses the
    text. While the model is unavailable: raises EmbeddingUnavailable if `waits_for_model`, else
    returns None (the model is then unavailable for the chain's events too)."""
    if content.rejected is not None:
        return None
    start = time.monotonic()
    try:
        (vector,) = worker.embedder.embed([content.summary], timeout=EMBED_SECONDS)
    except EmbeddingUnavailable:
        if waits_for_model:
            raise
        return None
    except Exception as error:
        if not (isinstance(error, EmbeddingRefused) or is_permanent_failure(error)):
            raise
        logger.warning("summary not embedded", extra={"error": type(error).__name__})
        if waits_for_model:
            require_embedding(worker)
        return None
    worker.tally.embedding_ms.append(round((time.monotonic() - start) * 1000, 1))
    return store_work.vector_to_text(vector)


def make_task_context(
    worker: Worker, access: TenantDb, scope_id: UUID, participants: Sequence[str]
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


def ask_if_topic_continues(
    worker: Worker,
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
    None where the message, or all events before it, were erased.

    Texts that are in `event_cache` are not read again; texts that are read are added to it. Raises
    Deferred as `enrich_run` does.
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
    worker: Worker,
    access: TenantDb,
    task: TaskContext,
    event_ids: Sequence[UUID],
    event_cache: MutableMapping[UUID, PromptEvent],
) -> dict[UUID, PromptEvent]:
    """Load these events, from the cache or the database, without those that are erased by now."""
    cached_ids = [item for item in event_ids if item in event_cache]
    missing_ids = [item for item in event_ids if item not in event_cache]
    rows, erased_ids = store_events.read_topic_events(access, missing_ids, cached_ids)
    prompt_events = {item: event_cache[item] for item in cached_ids}
    prompt_events |= {item.event_id: _to_prompt_event(worker, task.tenant, item) for item in rows}
    if len(event_cache) > _MAX_CACHED_EVENTS:
        event_cache.clear()
    event_cache.update(prompt_events)
    for item in erased_ids:
        event_cache.pop(item, None)
    return {item: text for item, text in prompt_events.items() if item not in erased_ids}


def _merge_content(
    worker: Worker,
    task: TaskContext,
    settings: FoldSettings,
    target: ChainHead,
    later: ChainContent,
    event_count: int,
    waits_for_model: bool,
) -> ChainContent:
    """The content of both chains as one: one summary, the earlier chain's topic, the entities of
    both, and the measures averaged by number of events. Both have passed the quality gate before.
    """
    merge_result = worker.llm.merge(
        task,
        Summary(summary=target.summary, importance=target.importance),
        Summary(summary=later.summary, importance=later.importance),
    )
    worker.require_final((merge_result,), waits_for_model=waits_for_model)
    event_counts = target.event_count, event_count
    density = _weighted_mean((target.density, later.density), event_counts)
    coherence = _weighted_mean((target.coherence, later.coherence), event_counts)
    assert density is not None, "both chains have a density"
    verdict = quality.judge_quality(
        settings.quality,
        density=density,
        coherence=coherence,
        importance=merge_result.value.importance,
        events=sum(event_counts),
    )
    entity_by_key = {
        (entity["name"], entity["kind"]): entity for entity in (*target.entities, *later.entities)
    }
    return later.model_copy(
        update={
            "topic": target.topic,
            "summary": merge_result.value.summary,
            "importance": merge_result.value.importance,
            "entities": list(entity_by_key.values()),
            "density": density,
            "coherence": coherence,
            "quality": verdict.quality,
            "joins": target.chain_id,
            "models": {**later.models, "merge": _model_provenance(merge_result)},
        }
    )


def _weighted_mean(values: Sequence[float | None], weights: Sequence[int]) -> float | None:
    pairs = [(v, w) for v, w in zip(values, weights, strict=True) if v is not None]
    return sum(v * w for v, w in pairs) / sum(w for _, w in pairs) if pairs else None


def _to_prompt_event(worker: Worker, tenant: str, row: RunEvent | TopicEvent) -> PromptEvent:
    """An event as the model gets it. A text payload is represented by its beginning, any other
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


def _to_trait(text: RunEvent) -> quality.EventTraits:
    return quality.EventTraits(
        text.type, text.role, text.chars, text.metadata_keys, text.blob_cid is not None
    )


def _model_provenance(result: ModelResult[Any]) -> dict[str, str | None]:
    return {"model": result.model, "prompt": result.prompt, "fell_back": result.fallback_reason}
