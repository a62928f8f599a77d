"""Deferred answers, the turns of the API: a query or a chat that takes longer than a request waits
in the database until a worker, which has more time, answers it. The caller polls it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.auth.principals import Principal
from strandline.db.database import NOBODY, Caller, TenantDb
from strandline.errors import NotFound, Unavailable
from strandline.http.writer import WriterResources, make_caller
from strandline.llm.client import Fallback
from strandline.log.event_draft import HTTP_CHANNEL
from strandline.observability import logger
from strandline.personas import chats, store_deferred_answers
from strandline.personas.answer_generation import (
    QuestionToModel,
    list_source_events,
    make_model_call_context,
    recall_for_question,
)
from strandline.personas.chats import ChatParameters
from strandline.personas.question_answering import answer_question_from_memory, make_answer_out
from strandline.personas.schemas import ModelAnswerOut
from strandline.personas.store_deferred_answers import DeferredAnswer
from strandline.recall.schemas import RecallWeights
from strandline.resources import Resources
from strandline.tenants.store_spaces import read_space

_MAX_PRUNED = 100
_MAX_ATTEMPTS = 3
_PASSING = frozenset({"late", "out_of_time", "unavailable", "rate_limited", "breaker_open"})
"""Reasons for a missing answer that are temporary."""
_JOB = "turn"
_WHOLE_TENANT = ("the whole tenant",)
"""Stands for a caller who reads everything in a tenant. No participant has this name, so only a
caller who sees everything sees the turn."""


def defer_answer(
    access: TenantDb,
    resources: Resources,
    question: QuestionToModel,
    request: Mapping[str, object],
    participants: tuple[str, ...],
) -> ModelAnswerOut:
    """Store a turn to be answered later, and notify the worker. `participants` are those on whose
    behalf it is asked; an empty tuple means the whole tenant."""
    turn_id, now = uuid7(), datetime.now(UTC)
    with access.transaction():
        store_deferred_answers.prune_deferred_answers(
            access, now - store_deferred_answers.RETENTION, _MAX_PRUNED
        )
        store_deferred_answers.insert_deferred_answer(
            access,
            turn_id,
            question.kind,
            participants or _WHOLE_TENANT,
            request,
            question.input_id,
        )
    resources.work_queue.send_turn(access.caller.tenant, turn_id)
    return make_answer_out(question.kind, "waiting", turn_id=turn_id, input_id=question.input_id)


def encode_question(question: QuestionToModel, participants: tuple[str, ...]) -> dict[str, Any]:
    """The stored form of a query that waits for its answer."""
    return {
        "participants": list(participants),
        "text": question.text,
        "asked_at": question.asked_at.isoformat(),
        "budget": question.budget,
        "min_relevance": question.min_relevance,
        "persona": question.persona,
        "sona_id": None if question.sona_id is None else str(question.sona_id),
        "weights": question.weights and question.weights.model_dump(),
    }


def read_deferred_answer(
    access: TenantDb, resources: Resources, turn_id: UUID, deadline: float
) -> ModelAnswerOut:
    """The progress of a turn. If no worker has it, notifies the worker again, because the first
    message may be lost. Raises NotFound."""
    turn = store_deferred_answers.get_deferred_answer(access, turn_id)
    if turn is None:
        raise NotFound
    if turn.state == "waiting" and not turn.is_leased:
        resources.work_queue.send_turn(access.caller.tenant, turn_id)
    if turn.state == "done" and turn.kind == "query":
        return ModelAnswerOut.model_validate({**(turn.answer or {}), "turn_id": turn_id})
    if turn.state == "done" and turn.input_id is not None:
        caller = make_caller(_make_principal_of_asker(access.caller.tenant, turn))
        chat = ChatParameters.from_json(turn.request)
        owner = resources.database.connect_as(caller, deadline)
        reply = chats.find_stored_reply(owner, chat, turn.input_id)
        if reply is None:  # erased in the meantime
            raise NotFound
        return reply.model_copy(update={"turn_id": turn_id})
    return make_unanswered_out(turn)


def make_unanswered_out(turn: DeferredAnswer) -> ModelAnswerOut:
    """A turn without an answer."""
    return make_answer_out(
        turn.kind, turn.state, turn_id=turn.turn_id, reason=turn.reason, input_id=turn.input_id
    )


def answer_deferred_question(
    resources: Resources, tenant: str, turn_id: UUID, deadline: float
) -> None:
    """Answer a turn that is waiting, unless another worker does. A turn whose failure is permanent,
    or that fails for the third time, is recorded as failed. Raises Unavailable if it should be
    tried again."""
    access = resources.database.connect_as(Caller.background(tenant), deadline)
    turn = store_deferred_answers.lease_deferred_answer(access, turn_id)
    if turn is None:
        return
    if turn.attempts > _MAX_ATTEMPTS:  # each of the earlier attempts ended its worker
        _release_or_fail_turn(access, turn, "worker_lost", may_retry=False)
        return
    try:
        if turn.kind == "query":
            _answer_query_turn(access, resources, turn, deadline)
        else:
            _answer_chat_turn(access, resources, turn, deadline)
    except Fallback as failure:
        _release_or_fail_turn(access, turn, failure.reason, may_retry=failure.reason in _PASSING)
    except Unavailable as error:
        _release_or_fail_turn(access, turn, error.code, may_retry=True)
    except Exception as error:
        logger.warning("turn failed", extra={"turn": turn_id, "error": type(error).__name__})
        _release_or_fail_turn(access, turn, "internal_error", may_retry=True)


def _release_or_fail_turn(
    access: TenantDb, turn: DeferredAnswer, reason: str, *, may_retry: bool
) -> None:
    if may_retry and turn.attempts < _MAX_ATTEMPTS:
        with access.transaction():
            store_deferred_answers.release_deferred_answer(access, turn.turn_id)
        raise Unavailable("A turn waits for the language model.")
    with access.transaction():
        store_deferred_answers.finish_deferred_answer(access, turn, reason=reason)


def _answer_query_turn(
    access: TenantDb, resources: Resources, turn: DeferredAnswer, deadline: float
) -> None:
    question = _decode_question(turn.request)
    viewer = tuple(turn.request["participants"])
    caller = Caller(access.caller.tenant, viewer, turn.asked_by)
    reader, now = resources.database.connect_as(caller, deadline), datetime.now(UTC)
    embedder = resources.embedder_of(read_space(access).reading_space)
    recollection = recall_for_question(reader, embedder, resources.blobs, question, now)
    source_ids = list_source_events(reader, recollection)  # before the model
    task = make_model_call_context(
        caller.tenant, _choose_rate_limit_subject(turn), caller.viewer, deadline, job=_JOB
    )
    answer = answer_question_from_memory(reader, resources.llm, task, question, recollection, now)
    answer = answer.model_copy(update={"sona": question.sona_id})
    with access.transaction():
        store_deferred_answers.finish_deferred_answer(
            access,
            turn,
            answer=answer.model_dump(mode="json"),
            source_ids=source_ids,
        )


def _decode_question(request: Mapping[str, Any]) -> QuestionToModel:
    """Read a query that `encode_question` stored. Older code stored no weights."""
    sona_id, weights = request.get("sona_id"), request.get("weights")
    return QuestionToModel(
        "query",
        request["text"],
        datetime.fromisoformat(request["asked_at"]),
        request["budget"],
        request["min_relevance"],
        persona=request["persona"],
        sona_id=None if sona_id is None else UUID(sona_id),
        weights=None if weights is None else RecallWeights.model_validate(weights),
    )


def _answer_chat_turn(
    access: TenantDb, resources: Resources, turn: DeferredAnswer, deadline: float
) -> None:
    chat, tenant = ChatParameters.from_json(turn.request), access.caller.tenant
    writer = WriterResources.from_resources(
        resources, _make_principal_of_asker(tenant, turn), deadline
    )
    own = resources.database.connect_as(Caller(tenant, (), turn.asked_by), deadline)
    message = store_deferred_answers.find_event_by_key(own, HTTP_CHANNEL, f"{chat.key}#input")
    if message is None or message.content is None:  # erased: nothing is left to answer
        with access.transaction():
            store_deferred_answers.finish_deferred_answer(access, turn, reason="input_gone")
        return
    reply = chats.find_stored_reply(writer.connect(), chat, message.event_id)
    if reply is None:
        readers = chats.connect_as_reply_readers(resources, tenant, turn.asked_by, chat, deadline)
        session = chats.find_chat_session(readers, chat, message.scope_id)
        question = chats.make_chat_question(
            chat, message.content, message.said_at, message.speaker, session
        )
        question = replace(question, input_id=message.event_id)
        embedder = resources.embedder_of(read_space(access).reading_space)
        recollection = recall_for_question(
            readers, embedder, resources.blobs, question, datetime.now(UTC)
        )
        task = make_model_call_context(
            tenant,
            _choose_rate_limit_subject(turn),
            chat.participants,
            deadline,
            scope_id=message.scope_id,
            job=_JOB,
        )
        reply = chats.generate_and_store_reply(
            writer, resources.llm, readers, chat, task, question, recollection
        )
    with access.transaction():
        store_deferred_answers.finish_deferred_answer(access, turn, answer_id=reply.answer_id)


def _choose_rate_limit_subject(turn: DeferredAnswer) -> str:
    """Whose rate of model calls counts: the user's, or the turn's own."""
    return str(turn.turn_id) if turn.asked_by == NOBODY else turn.asked_by


def _make_principal_of_asker(tenant: str, turn: DeferredAnswer) -> Principal:
    """The principal who asked: the worker stores the reply in that name."""
    user = None if turn.asked_by == NOBODY else turn.asked_by
    return Principal(tenant, user, frozenset({"read", "write"}))
