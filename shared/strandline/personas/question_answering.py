"""Query: answer a question from memory, and store nothing. Without a language model there is no
answer: rules could add nothing to what was recalled, which the refusal gives to the caller."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.context.used_sources import record_used_sources
from strandline.db.database import TenantDb
from strandline.llm.tasks import LlmTasks
from strandline.llm.types import MemoryAnswer, ModelResult, TaskContext
from strandline.personas.answer_generation import (
    NO_MEMORY_ANSWER,
    QuestionToModel,
    RecalledContext,
    ask_model,
)
from strandline.personas.schemas import AnswerCitation, ModelAnswerOut


def answer_question_from_memory(
    access: TenantDb,
    llm: LlmTasks,
    task: TaskContext,
    question: QuestionToModel,
    recollection: RecalledContext,
    now: datetime,
) -> ModelAnswerOut:
    """The model's answer from what was recalled, or a fixed answer if nothing was. The memories of
    the answer count as used. Raises Fallback if the model gives none."""
    if not recollection.context.citations:
        return make_answer_out_from_result("query", recollection, None)
    try:
        result = ask_model(llm, task, question, recollection.context)
    finally:
        llm.store_call_records(access)
    record_used_sources(access, recollection.use, now)
    return make_answer_out_from_result("query", recollection, result)


def make_answer_out_from_result(
    kind: str,
    recollection: RecalledContext,
    result: ModelResult[MemoryAnswer] | None,
    **ids: UUID | None,
) -> ModelAnswerOut:
    """The answer in the form of the API. Without a result it says that nothing is remembered."""
    context = recollection.context
    answer = (
        result.value
        if result
        else MemoryAnswer(text=NO_MEMORY_ANSWER, remembers=False, citations=[])
    )
    event_by_number = {citation.n: citation.event_id for citation in context.citations}
    return make_answer_out(
        kind,
        "done",
        text=answer.text,
        remembers=answer.remembers,
        citations=[
            AnswerCitation(n=n, event_id=event_by_number[n]) for n in sorted({*answer.citations})
        ],
        known=context.known,
        degraded=context.degraded,
        model=result.model if result else None,
        prompt=result.prompt if result else None,
        **ids,
    )


def make_answer_out(kind: str, state: str, **values: Any) -> ModelAnswerOut:
    """A turn with only these values."""
    fields: Mapping[str, Any] = {
        "turn_id": None,
        "reason": "",
        "text": None,
        "remembers": None,
        "citations": [],
        "known": None,
        "degraded": [],
        "model": None,
        "prompt": None,
        "input_id": None,
        "answer_id": None,
        "sona": None,
    }
    return ModelAnswerOut.model_validate({**fields, "kind": kind, "state": state, **values})
