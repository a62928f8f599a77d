"""What a closed run says as a chain: summary, topic and entities, whether it is good enough, and
which earlier chain it belongs to. All of it is decided here once, and kept as a decision."""

import json
import time
from collections.abc import MutableMapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from strandline.aws.blobs import is_text
from strandline.chains import quality, store
from strandline.chains.parallel import at_once
from strandline.chains.segmentation import Rules
from strandline.chains.store import Head, Spoken, Text
from strandline.db.database import Access
from strandline.embeddings import spaces
from strandline.errors import EmbeddingRefused, EmbeddingUnavailable
from strandline.failures import recurs
from strandline.jobs.context import EMBED_SECONDS, Worker, head_text, require_embedding
from strandline.llm.plain import UNTITLED
from strandline.llm.types import Continues, Done, Said, Summary, Task
from strandline.log import store_work
from strandline.observability import logger
from strandline.tuning import Tuning

_SHOWN_BYTES = 4000
"""What is read of a payload that is text."""
_REMEMBERED = 2000
"""Events whose texts a fold keeps to ask by: what is open in a lane is asked by again and again."""
_MARGIN_SECONDS = 2.0
"""Kept of the worker's time for the commit after an answer."""


class Settings(BaseModel):
    """What a scope's events are cut, judged and merged by; decided anew when it changes."""

    model_config = ConfigDict(frozen=True)

    space: str
    """The embedding space that the cosines are of."""
    low: float
    high: float
    merge: float
    gap_minutes: float
    flush_events: int
    ahead_events: int = 0
    """Where an earlier decision does not say it, messages were judged at once."""
    merged_events: int
    vector_hours: float
    quality: quality.Mode

    @classmethod
    def of(cls, space: str, tuning: Tuning) -> "Settings":
        """A tenant's, in an embedding space."""
        low, high, merge, _ = spaces.thresholds(space, tuning)
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
    def rules(self) -> Rules:
        """What the fold's step goes by."""
        gap = timedelta(minutes=self.gap_minutes)
        return Rules(self.low, self.high, gap, self.flush_events, self.ahead_events)


class Formed(BaseModel):
    """What a chain's version says, as it was decided."""

    model_config = ConfigDict(frozen=True)

    at: datetime
    """By our clock: heat starts here."""
    topic: str
    summary: str
    entities: list[dict[str, str]]
    importance: float
    density: float
    coherence: float | None
    quality: float
    rejected: str | None
    joins: UUID | None = None
    """The chain that the run became part of; all of the above is then of both."""
    models: dict[str, dict[str, str | None]]
    """By task: model, prompt, and why the twin answered in a model's place."""

    @property
    def fell_back(self) -> str | None:
        """Why it should be tried again, if it should."""
        return next((m["fell_back"] for m in self.models.values() if m["fell_back"]), None)


FOLD_FAILED = "fold_failed"
"""Why nothing judged a run or a message: what should have failed on it, and would again."""


class Enriched(NamedTuple):
    """A decision, and the summary's vector as Postgres writes it; none of a rejected run."""

    formed: Formed
    vector: str | None
    fresh: bool = False
    """Decided just now; else in a replay."""


def enrich(
    worker: Worker,
    access: Access,
    task: Task,
    settings: Settings,
    event_ids: Sequence[UUID],
    now: datetime,
    *,
    patience: timedelta,
    merge: bool,
) -> Enriched | None:
    """What these events say as a chain; nothing where all of them were erased. `merge`: it may
    become part of an earlier one. Outside of any transaction. Raises EmbeddingUnavailable while it
    is worth waiting for the summary's vector, NotYet while (for `patience` since the last of them)
    it is for the model, or where there is not time enough."""
    worker.require_run()
    found = store.texts(access, settings.space, event_ids)
    if not found:
        return None
    age = now - max(text.recorded_at for text in found)
    patient = age < timedelta(hours=settings.vector_hours)
    formed = _formed(worker, task, settings, found, now, age < patience)
    vector = vector_of(worker, formed, patient=patient)
    near = None
    if merge and vector is not None and settings.space == worker.embedder.space:
        most = settings.merged_events - len(found)
        scope_id = UUID(task.subject)
        near = store.nearest(access, scope_id, settings.space, vector, settings.merge, most)
    if near is not None:
        formed = _joined(worker, task, settings, near, formed, len(found), age < patience)
        vector = vector_of(worker, formed, patient=patient)
    return Enriched(formed, vector, fresh=True)


def _formed(
    worker: Worker,
    task: Task,
    settings: Settings,
    found: Sequence[Text],
    now: datetime,
    patient: bool,
) -> Formed:
    """What these events say by themselves, and whether they pass the gate."""
    said = [_said(worker, task.tenant, text) for text in found]
    summary, topic, entities = at_once(
        worker,
        lambda: worker.reasoner.summarise(task, said),
        lambda: worker.reasoner.topic(task, said),
        lambda: worker.reasoner.entities(task, said),
    )
    worker.require_answers((summary, topic, entities), patient=patient)
    density = quality.density([_trait(text) for text in found])
    coherence = quality.coherence([json.loads(text.vector) for text in found if text.vector])
    judged = quality.judge(
        settings.quality,
        density=density,
        coherence=coherence,
        importance=summary.value.importance,
        events=len(found),
    )
    return Formed(
        at=now,
        topic=topic.value.topic,
        summary=summary.value.summary,
        entities=[entity.model_dump() for entity in entities.value.entities],
        importance=summary.value.importance,
        density=density,
        coherence=coherence,
        quality=judged.quality,
        rejected=judged.rejected,
        models={"summarise": _by(summary), "topic": _by(topic), "entities": _by(entities)},
    )


def formed_without_model(now: datetime, events: int, error: Exception) -> Formed:
    """What is decided of a run on which everything else failed: that it is there. It is kept out of
    listings, and a retry of its job says it anew."""
    return Formed(
        at=now,
        topic=UNTITLED,
        summary=f"{events} events.",
        entities=[],
        importance=0.0,
        density=0.0,
        coherence=None,
        quality=0.0,
        rejected=FOLD_FAILED,
        models={"all": {"model": "none", "prompt": type(error).__name__, "fell_back": FOLD_FAILED}},
    )


def vector_of(worker: Worker, formed: Formed, *, patient: bool) -> str | None:
    """A summary's vector; none for what the gate rejected or the model refuses, nor, unless
    `patient`, while the model is away (which is the same for its events by then)."""
    if formed.rejected is not None:
        return None
    started = time.monotonic()
    try:
        (vector,) = worker.embedder.embed([formed.summary], timeout=EMBED_SECONDS)
    except EmbeddingUnavailable:
        if patient:
            raise
        return None
    except Exception as error:
        if not (isinstance(error, EmbeddingRefused) or recurs(error)):
            raise
        logger.warning("summary not embedded", extra={"error": type(error).__name__})
        if patient:
            require_embedding(worker)
        return None
    worker.tally.calls.append(round((time.monotonic() - started) * 1000, 1))
    return store_work.as_text(vector)


def task_of(worker: Worker, access: Access, scope_id: UUID, participants: Sequence[str]) -> Task:
    """On whose behalf a model is asked in a scope's fold."""
    return Task(
        tenant=access.asker.tenant,
        subject=str(scope_id),
        participants=tuple(participants),
        scope_id=str(scope_id),
        job=worker.job,
        deadline=worker.deadline - _MARGIN_SECONDS,
    )


def ask_continues(
    worker: Worker,
    access: Access,
    task: Task,
    before: Sequence[UUID],
    message: UUID,
    after: Sequence[UUID],
    remembered: MutableMapping[UUID, Said],
    *,
    patient: bool,
) -> Done[Continues] | None:
    """Whether a message goes on with the topic of the events before it, as those after it show;
    nothing where all before it, or itself, was erased. Texts that are `remembered` are not read
    again; what is read is added. Raises NotYet as `enrich` does."""
    said = _spoken(worker, access, task, [*before, message, *after], remembered)
    earlier = [said[one] for one in before if one in said]
    if message not in said or not earlier:
        return None
    later = [said[one] for one in after if one in said]
    done = worker.reasoner.continues(task, earlier, said[message], later)
    worker.require_answers((done,), patient=patient)
    return done


def _spoken(
    worker: Worker,
    access: Access,
    task: Task,
    event_ids: Sequence[UUID],
    remembered: MutableMapping[UUID, Said],
) -> dict[UUID, Said]:
    """These events but for those that are erased by now."""
    known = [one for one in event_ids if one in remembered]
    unread = [one for one in event_ids if one not in remembered]
    found, erased = store.spoken(access, unread, known)
    said = {one: remembered[one] for one in known}
    said |= {one.event_id: _said(worker, task.tenant, one) for one in found}
    if len(remembered) > _REMEMBERED:
        remembered.clear()
    remembered.update(said)
    for one in erased:
        remembered.pop(one, None)
    return {one: text for one, text in said.items() if one not in erased}


def _joined(
    worker: Worker,
    task: Task,
    settings: Settings,
    near: Head,
    later: Formed,
    events: int,
    patient: bool,
) -> Formed:
    """Both as one chain: one summary, the earlier's topic, everybody named, and what was measured
    weighted by the number of events. The gate has let both pass."""
    merged = worker.reasoner.merge(
        task,
        Summary(summary=near.summary, importance=near.importance),
        Summary(summary=later.summary, importance=later.importance),
    )
    worker.require_answers((merged,), patient=patient)
    parts = near.event_count, events
    density = _mean((near.density, later.density), parts)
    coherence = _mean((near.coherence, later.coherence), parts)
    assert density is not None, "both have one"
    judged = quality.judge(
        settings.quality,
        density=density,
        coherence=coherence,
        importance=merged.value.importance,
        events=sum(parts),
    )
    named = {(e["name"], e["kind"]): e for e in (*near.entities, *later.entities)}
    return later.model_copy(
        update={
            "topic": near.topic,
            "summary": merged.value.summary,
            "importance": merged.value.importance,
            "entities": list(named.values()),
            "density": density,
            "coherence": coherence,
            "quality": judged.quality,
            "joins": near.chain_id,
            "models": {**later.models, "merge": _by(merged)},
        }
    )


def _mean(values: Sequence[float | None], weights: Sequence[int]) -> float | None:
    known = [(v, w) for v, w in zip(values, weights, strict=True) if v is not None]
    return sum(v * w for v, w in known) / sum(w for _, w in known) if known else None


def _said(worker: Worker, tenant: str, text: Text | Spoken) -> Said:
    """Of a payload the beginning, if it is text; else what it is called."""
    shown = text.content
    if shown is None and text.blob_cid and is_text(text.mime_type):
        shown = head_text(worker, tenant, text.blob_cid, _SHOWN_BYTES)
    return Said(
        seq=text.seq,
        speaker=text.speaker,
        role=text.role,
        type=text.type,
        text=shown if shown is not None else text.file_name or text.mime_type or "",
        at=text.said_at,
    )


def _trait(text: Text) -> quality.Trait:
    return quality.Trait(
        text.type, text.role, text.chars, text.metadata_keys, text.blob_cid is not None
    )


def _by(done: Done[Any]) -> dict[str, str | None]:
    return {"model": done.model, "prompt": done.prompt, "fell_back": done.fell_back}
