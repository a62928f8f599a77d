"""The model's part of an answer: what is recalled for it, what it is shown, and what it says.

The model sees one fenced block of recalled data and the question. It is offered no tools, so an
instruction in the data can affect nothing but the answer.
"""

import math
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from strandline.aws.blobs import BlobStore
from strandline.config import PREFIX, get_settings
from strandline.context.build import build_context_text
from strandline.context.event_selection import AnswerTextOptions
from strandline.context.layout import BYTES_PER_TOKEN
from strandline.context.schemas import MIN_BUDGET, ContextTextOut, ContextTextRequest
from strandline.context.used_sources import UsedSources
from strandline.db.database import TenantDb
from strandline.embeddings.embedder import Embedder
from strandline.errors import ModelMisconfigured, ModelUnavailable, StateConflict
from strandline.llm.client import Fallback
from strandline.llm.tasks import LlmTasks
from strandline.llm.types import MemoryAnswer, MessageToAnswer, ModelResult, TaskContext
from strandline.participants import display_name
from strandline.personas import store_deferred_answers
from strandline.recall.importance import SonaInEmbeddingSpace
from strandline.recall.schemas import RecallWeights
from strandline.sessions.store import Session
from strandline.tenants.store_tuning import read_tuning

RESERVE_SECONDS = 4.0
"""How much of a request's time is reserved for storing the model's answer, or a turn to answer
later."""
NO_MEMORY_ANSWER = "I don't remember."
"""The answer to a question about which memory holds nothing. No model is asked."""
LATE_REASONS = frozenset({"out_of_time", "late"})
"""Reasons for a missing answer that more time may remedy."""
_LASTING_REASONS = {
    "refused": "Asked again it would refuse again: ask in other words, or with a smaller `budget`.",
    "budget_spent": "The budget for language models is spent until the month (UTC) ends, unless an"
    " operator raises the tenant's model_usd_per_month.",
}
"""Reasons for a missing answer that the same request meets again, and what to do instead."""


@dataclass(frozen=True)
class QuestionToModel:
    """A question, and the settings for its answer."""

    kind: Literal["query", "chat"]
    text: str
    asked_at: datetime
    budget: int
    min_relevance: float | None = None
    persona: str | None = None
    """The name of the sona that answers."""
    sona_id: UUID | None = None
    weights: RecallWeights | None = None
    """Additional weights for the order of the memories that are shown."""
    session: Session | None = None
    speaker: str | None = None
    agent: str | None = None
    input_id: UUID | None = None
    """The event that holds the text."""


class RecalledContext(NamedTuple):
    """The block that the model is shown, and the use to record once it has answered."""

    context: ContextTextOut
    use: UsedSources


def recall_for_question(
    access: TenantDb,
    embedder: Embedder,
    blobs: BlobStore,
    question: QuestionToModel,
    now: datetime,
) -> RecalledContext:
    """Recall what is in view about a question, without the question itself. Raises Invalid as for a
    context."""
    settings = get_settings()
    if question.session is None:
        tuning = read_tuning(access, settings.tuning)
    else:
        tuning = settings.tuning.with_overrides(question.session.tuning)
    # the model is never shown more memory than this
    budget = min(question.budget, settings.llm_characters // BYTES_PER_TOKEN)
    request = ContextTextRequest(
        query=question.text,
        budget=max(budget, MIN_BUDGET),
        min_relevance=question.min_relevance,
        now=question.asked_at,
    )
    context, use = build_context_text(
        access,
        embedder,
        blobs,
        request,
        session=question.session,
        tuning=tuning,
        now=now,
        vector_timeout=settings.query_vector_seconds,
        answering=AnswerTextOptions(
            exclude={question.input_id} if question.input_id else (),
            weights=question.weights,
            sona=SonaInEmbeddingSpace(question.sona_id, embedder.space)
            if question.sona_id
            else None,
        ),
    )
    return RecalledContext(context, use)


def list_source_events(access: TenantDb, recollection: RecalledContext) -> list[UUID]:
    """The events that an answer from this block rests on, whether or not the model cites them: all
    events that it is shown, and all events of the chains that it is shown."""
    citation_ids = [citation.event_id for citation in recollection.context.citations]
    source_ids = recollection.use.source_ids
    chain_event_ids = (
        store_deferred_answers.list_events_of_same_chains(access, source_ids) if source_ids else ()
    )
    return list(dict.fromkeys([*citation_ids, *source_ids, *chain_event_ids]))


def require_configured_model(llm: LlmTasks, context: ContextTextOut) -> None:
    """Raise StateConflict if no language model is configured. The error says what to configure, and
    has the block that would have been sent, for the caller's own model."""
    if llm.has_model:
        return
    raise StateConflict(
        f"No language model is configured. Set {PREFIX}LLM_PROVIDER and {PREFIX}LLM_MODEL, or put "
        "`block` into the prompt of your own model and store what it says.",
        settings=[f"{PREFIX}LLM_PROVIDER", f"{PREFIX}LLM_MODEL", f"{PREFIX}LLM_API_KEY"],
        block=context.text,
    )


def make_model_call_context(
    tenant: str,
    subject: str,
    participants: tuple[str, ...],
    deadline: float,
    *,
    scope_id: UUID | None = None,
    job: str | None = None,
) -> TaskContext:
    """The context of a model call: on whose behalf it is made. `deadline` is the request's or the
    worker's, in time.monotonic() seconds."""
    return TaskContext(
        tenant=tenant,
        subject=subject,
        participants=participants,
        scope_id=None if scope_id is None else str(scope_id),
        job=job,
        deadline=max(deadline - RESERVE_SECONDS, time.monotonic()),
    )


def ask_model(
    llm: LlmTasks, task: TaskContext, question: QuestionToModel, context: ContextTextOut
) -> ModelResult[MemoryAnswer]:
    """Ask the model for an answer. Raises Fallback if it gives none."""
    return llm.answer(
        task,
        "reply" if question.kind == "chat" else "answer",
        context.text,
        len(context.citations),
        MessageToAnswer(
            question.text,
            "message" if question.kind == "chat" else "question",
            question.asked_at,
            speaker=display_name(question.speaker) if question.speaker else None,
            agent=display_name(question.agent) if question.agent else None,
            persona=question.persona,
        ),
    )


def make_model_unavailable_error(failure: Fallback) -> ModelUnavailable:
    """Build the error that says why the model gave no answer."""
    failed = ModelMisconfigured if failure.reason == "misconfigured" else ModelUnavailable
    way_out = _LASTING_REASONS.get(failure.reason)
    sentences = [f"The language model gave no answer ({failure.reason}).", failure.text, way_out]
    error = failed(" ".join(filter(None, sentences)), reason=failure.reason)
    error.retryable = failed.retryable and way_out is None
    if seconds := failure.retry_after or failure.tried_again_in:
        error.retry_after = math.ceil(seconds)
    return error
