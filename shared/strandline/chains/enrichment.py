"""Turn a closed run into a chain's content: summary, topic, entities, quality, and the earlier
chain that it is merged into. All of it is decided once and stored as a decision."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from strandline.chains import model_questions, quality, store
from strandline.chains.decisions import ChainContent, RunContentAndVector
from strandline.chains.fold_settings import FoldSettings
from strandline.chains.model_questions import RunEvent, to_prompt_event
from strandline.chains.parallel_model_calls import describe_run_with_one_model
from strandline.chains.store import ChainHead, MergeTarget
from strandline.db.database import TenantDb
from strandline.db.packed_vectors import PackedVector
from strandline.embeddings.vector_formats import pack_vector, unpack_vector
from strandline.errors import EmbeddingRefused, EmbeddingUnavailable
from strandline.jobs.worker_resources import EMBED_SECONDS, WorkerResources, probe_embedding_model
from strandline.llm.types import ModelResult, RunSummary, TaskContext
from strandline.observability import logger
from strandline.permanent_failures import is_permanent_failure


def decide_content_and_merge_target(
    worker: WorkerResources,
    access: TenantDb,
    task: TaskContext,
    settings: FoldSettings,
    event_ids: Sequence[UUID],
    now: datetime,
    *,
    patience: timedelta,
    may_merge: bool,
    new_echoes: Collection[UUID] = (),
    new_changes: Collection[UUID] = (),
) -> RunContentAndVector | None:
    """Decide the content of the chain that these events become; None if all of them were erased.
    With `may_merge`, it may be merged into an earlier chain. Echoes, both stored ones and
    `new_echoes`, are not evidence: a run of echoes alone has no importance and is never merged. A
    run that bears a change, by stored decisions or `new_changes`, is never rejected.

    Must be called outside of any transaction. Raises EmbeddingUnavailable while the summary's
    vector should still be waited for. Raises WorkDeferred while the model should still be waited
    for (for `patience` since the newest event), or if too little time is left.
    """
    worker.require_time_for_closed_run()
    run_events = model_questions.read_run_events(access, settings.space, event_ids)
    if not run_events:
        return None
    age = now - max(text.recorded_at for text in run_events)
    waits_for_vector = age < timedelta(hours=settings.vector_hours)
    evidence = [e for e in run_events if not e.is_echo and e.event_id not in new_echoes]
    bears_change = any(e.bears_change or e.event_id in new_changes for e in evidence)
    content = _describe_and_judge_run(
        worker, task, settings, run_events, evidence, now, age < patience, bears_change=bears_change
    )
    vector = embed_summary(worker, content, waits_for_model=waits_for_vector)
    merge_target = None
    may_merge = may_merge and content.fallback_reason is None
    if may_merge and evidence and vector is not None and settings.space == worker.embedder.space:
        max_events = settings.merged_events - len(run_events)
        scope_id = UUID(task.subject)
        merge_target = store.find_merge_target(
            access, scope_id, settings.space, vector, settings.merge, max_events
        )
    merged_content = None
    if merge_target is not None:
        join = _RunToMergeIntoChain(content, run_events, evidence, now, age < patience)
        merged_content = _try_merge_run_into_chain(
            worker, access, task, settings, merge_target, join
        )
    if merged_content is not None:
        content, vector = (
            merged_content,
            embed_summary(worker, merged_content, waits_for_model=waits_for_vector),
        )
        if bears_change:
            content = content.model_copy(update={"rejected": None})
    return RunContentAndVector(content, vector, is_new=True)


@dataclass(frozen=True)
class _RunToMergeIntoChain:
    """A run that may join an earlier chain."""

    content: ChainContent
    events: Sequence[RunEvent]
    evidence: Sequence[RunEvent]
    now: datetime
    waits_for_model: bool


def _try_merge_run_into_chain(
    worker: WorkerResources,
    access: TenantDb,
    task: TaskContext,
    settings: FoldSettings,
    target: MergeTarget,
    run: _RunToMergeIntoChain,
) -> ChainContent | None:
    """The content of an earlier chain and a run as one, all of it by the model that described the
    run. None if that model fails now, or the whole is rejected: then the run stays a chain of its
    own."""
    if target.described_by == run.content.models["summarise"]["model"]:
        merged_content = _merge_summaries_and_measures(
            worker, task, settings, target, run.content, len(run.evidence), run.waits_for_model
        )
        return merged_content if merged_content.fallback_reason is None else None
    earlier_ids = store.list_event_ids(access, target.chain_id)
    earlier = model_questions.read_run_events(access, settings.space, earlier_ids)
    run_events = [*earlier, *run.events]
    evidence = [*(event for event in earlier if not event.is_echo), *run.evidence]
    whole = _describe_and_judge_run(
        worker,
        task,
        settings,
        run_events,
        evidence,
        run.now,
        run.waits_for_model,
        bears_change=any(event.bears_change for event in evidence),
    )
    if whole.fallback_reason is not None or whole.rejected is not None:
        return None
    return whole.model_copy(update={"joins": target.chain_id})


def _describe_and_judge_run(
    worker: WorkerResources,
    task: TaskContext,
    settings: FoldSettings,
    run_events: Sequence[RunEvent],
    evidence: Sequence[RunEvent],
    now: datetime,
    waits_for_model: bool,
    *,
    bears_change: bool = False,
) -> ChainContent:
    """The content of these events on their own, including the quality gate's verdict. Only events
    that are evidence count. If none is, all events are described, and the importance, the density
    and the number of events are 0."""
    subject_events = evidence or run_events
    prompt_events = [to_prompt_event(worker, task.tenant, text) for text in subject_events]
    summary, topic, entities = describe_run_with_one_model(
        worker, task, prompt_events, waits_for_model=waits_for_model
    )
    density = quality.compute_density([_to_density_traits(text) for text in evidence])
    coherence = quality.compute_coherence([unpack_vector(t.vector) for t in run_events if t.vector])
    importance = summary.value.importance if evidence else 0.0
    verdict = quality.judge_quality(
        settings.quality,
        density=density,
        coherence=coherence,
        importance=importance,
        events=len(evidence),
        bears_change=bears_change,
    )
    return ChainContent(
        at=now,
        topic=topic.value.topic,
        summary=summary.value.summary,
        entities=[entity.model_dump() for entity in entities.value.entities],
        importance=importance,
        density=density,
        coherence=coherence,
        quality=verdict.quality,
        rejected=verdict.rejection_reason,
        models={
            "summarise": _to_model_prompt_and_fallback(summary),
            "topic": _to_model_prompt_and_fallback(topic),
            "entities": _to_model_prompt_and_fallback(entities),
        },
    )


def embed_summary(
    worker: WorkerResources, content: ChainContent, *, waits_for_model: bool
) -> PackedVector | None:
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
            probe_embedding_model(worker)
        return None
    worker.tally.embedding_ms.append(round((time.monotonic() - start) * 1000, 1))
    return pack_vector(vector)


def _merge_summaries_and_measures(
    worker: WorkerResources,
    task: TaskContext,
    settings: FoldSettings,
    target: ChainHead,
    later: ChainContent,
    event_count: int,
    waits_for_model: bool,
) -> ChainContent:
    """The content of both chains as one: one summary, the earlier chain's topic (the later one's if
    it has none), the entities of both, and the measures averaged by number of events. Both chains
    have passed the quality gate before."""
    merge_result = worker.llm.merge(
        task,
        RunSummary(summary=target.summary, importance=target.importance),
        RunSummary(summary=later.summary, importance=later.importance),
    )
    worker.require_final_results((merge_result,), waits_for_model=waits_for_model)
    event_counts = target.event_count, event_count
    density = _weighted_mean_without_none((target.density, later.density), event_counts)
    coherence = _weighted_mean_without_none((target.coherence, later.coherence), event_counts)
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
            "topic": target.topic or later.topic,
            "summary": merge_result.value.summary,
            "importance": merge_result.value.importance,
            "entities": list(entity_by_key.values()),
            "density": density,
            "coherence": coherence,
            "quality": verdict.quality,
            "joins": target.chain_id,
            "models": {**later.models, "merge": _to_model_prompt_and_fallback(merge_result)},
        }
    )


def _weighted_mean_without_none(
    values: Sequence[float | None], weights: Sequence[int]
) -> float | None:
    pairs = [(v, w) for v, w in zip(values, weights, strict=True) if v is not None]
    return sum(v * w for v, w in pairs) / sum(w for _, w in pairs) if pairs else None


def _to_density_traits(text: RunEvent) -> quality.EventDensityTraits:
    return quality.EventDensityTraits(
        text.type, text.role, text.chars, text.metadata_keys, text.blob_cid is not None
    )


def _to_model_prompt_and_fallback(result: ModelResult[Any]) -> dict[str, str | None]:
    return {"model": result.model, "prompt": result.prompt, "fell_back": result.fallback_reason}
