"""HTTP routes of queries and chats: answers of the language model from memory, within the request's
time or later."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID, uuid4

from strandline.auth.principals import Principal
from strandline.db.database import NOBODY, TenantDb
from strandline.errors import Conflict, Forbidden, QuotaExceeded, StateConflict, Unavailable
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response, replayable_response
from strandline.http.schemas_idempotency import REPLAYED_HEADER, IdempotencyHeaders
from strandline.http.writer import WriterResources
from strandline.llm.client import Fallback
from strandline.log.schemas_append import Receipt
from strandline.participants import derive_scope_id
from strandline.personas import chats, deferred_answers, sonas, store_deferred_answers
from strandline.personas.answer_generation import (
    LATE_REASONS,
    QuestionToModel,
    make_model_call_context,
    make_model_unavailable_error,
    recall_for_question,
    require_configured_model,
)
from strandline.personas.chats import ChatParameters
from strandline.personas.question_answering import answer_question_from_memory
from strandline.personas.routes_sonas import connect_as_sona_owner, make_name_match_settings
from strandline.personas.schemas import AnswerRequest, ChatRequest, ModelAnswerOut
from strandline.recall.sona_lookup import find_sona_by_id_or_name
from strandline.resources import Resources
from strandline.schemas import ParticipantsQuery


class ChatRequester(NamedTuple):
    """The caller of a chat."""

    principal: Principal
    subject: str
    """Whose rate of model calls counts."""
    deadline: float
    """The request's, in time.monotonic() seconds."""

    def connect_as_reply_readers(self, resources: Resources, chat: ChatParameters) -> TenantDb:
        """The database on behalf of all who will read the reply."""
        principal = self.principal
        return chats.connect_as_reply_readers(
            resources, principal.tenant, principal.user or NOBODY, chat, self.deadline
        )


class ChatOutcome(NamedTuple):
    """The result of a chat request."""

    turn: ModelAnswerOut
    is_replay: bool
    """Whether an earlier request had the same reply, or waits for it."""
    is_new_message: bool


def refuse_without_model(
    resources: Resources, requester: ChatRequester, request: ChatRequest, chat: ChatParameters
) -> None:
    """Raise StateConflict, because no model is configured, before anything is stored."""
    readers = requester.connect_as_reply_readers(resources, chat)
    scope_id = derive_scope_id(requester.principal.tenant, list(chat.participants))
    session = chats.find_chat_session(readers, chat, scope_id)
    now = datetime.now(UTC)
    said_at = request.occurred_at or now
    speaker = chats.find_message_speaker(requester.principal, request, chat)
    question = chats.make_chat_question(chat, request.message, said_at, speaker, session)
    embedder = resources.embedder_of(requester.principal.reading_space)
    recollection = recall_for_question(readers, embedder, resources.blobs, question, now)
    require_configured_model(resources.llm, recollection.context)


def run_chat(
    resources: Resources, requester: ChatRequester, request: ChatRequest, chat: ChatParameters
) -> ChatOutcome:
    """Store the message of a chat and reply to it, within the request or as a turn for later. A
    request with the key of an earlier one gets its reply. Raises the errors of an append, and
    Unavailable or QuotaExceeded if the model, the database or a quota fails once the message is
    stored; its details then have the message's id as `input_id`, and the `idempotency_key` with
    which to ask for the reply."""
    writer = WriterResources.from_resources(resources, requester.principal, requester.deadline)
    receipt, is_replay = chats.store_message(writer, request, chat)
    try:
        return _reply_to_message(
            resources, requester, writer, request, chat, receipt, is_replay=is_replay
        )
    except (Unavailable, QuotaExceeded) as error:
        error.args = (
            f"{error.message} The message is stored; send the request again with the"
            " Idempotency-Key of `details` for an answer.",
        )
        error.details |= {"input_id": str(receipt.event_id), "idempotency_key": chat.key}
        raise


def _reply_to_message(
    resources: Resources,
    requester: ChatRequester,
    writer: WriterResources,
    request: ChatRequest,
    chat: ChatParameters,
    receipt: Receipt,
    *,
    is_replay: bool,
) -> ChatOutcome:
    principal = requester.principal
    if is_replay:
        earlier_turn = _find_earlier_reply(writer, chat, receipt.event_id)
        if earlier_turn is not None:
            return ChatOutcome(earlier_turn, is_replay=True, is_new_message=False)
    readers = requester.connect_as_reply_readers(resources, chat)
    session = chats.find_chat_session(readers, chat, receipt.scope_id)
    said_at = request.occurred_at or receipt.recorded_at
    speaker = chats.find_message_speaker(principal, request, chat)
    question = replace(
        chats.make_chat_question(chat, request.message, said_at, speaker, session),
        input_id=receipt.event_id,
    )
    turn = _reply_or_defer(resources, requester, writer, chat, question, readers, receipt.scope_id)
    return ChatOutcome(turn, is_replay=False, is_new_message=not is_replay)


def _reply_or_defer(
    resources: Resources,
    requester: ChatRequester,
    writer: WriterResources,
    chat: ChatParameters,
    question: QuestionToModel,
    readers: TenantDb,
    scope_id: UUID,
) -> ModelAnswerOut:
    principal, deadline = requester.principal, requester.deadline
    embedder = resources.embedder_of(principal.reading_space)
    recollection = recall_for_question(
        readers, embedder, resources.blobs, question, datetime.now(UTC)
    )
    task = make_model_call_context(
        principal.tenant, requester.subject, chat.participants, deadline, scope_id=scope_id
    )
    try:
        return chats.generate_and_store_reply(
            writer, resources.llm, readers, chat, task, question, recollection
        )
    except Fallback as failure:
        if failure.reason not in LATE_REASONS:
            raise make_model_unavailable_error(failure) from None
    return deferred_answers.defer_answer(
        writer.connect(), resources, question, chat.to_json(), chat.participants
    )


def _find_earlier_reply(
    writer: WriterResources, chat: ChatParameters, input_id: UUID
) -> ModelAnswerOut | None:
    """The reply of an earlier request, or its pending turn; None if a new reply is needed."""
    owner = writer.connect()
    earlier_turn = chats.find_stored_reply(owner, chat, input_id)
    if earlier_turn is not None:
        return earlier_turn
    turn = store_deferred_answers.find_deferred_answer_to_event(owner, input_id)
    if turn is None or turn.state != "waiting":
        return None
    writer.work_queue.send_turn(writer.principal.tenant, turn.turn_id)
    return deferred_answers.make_unanswered_out(turn)


def answer_question(request: Request) -> Response:
    """Have the language model answer a question from memory, and store nothing. The answer cites
    the memories that it rests on. If there are none, it says that it does not remember. An answer
    that takes longer than a request is a 202 with a `turn_id` to poll, and is kept for a day.
    Without a model the answer is a 409 that says what to configure, and has the block that would
    have been sent. The model is shown only that block and the question, and is offered no tools."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(AnswerRequest)
    access = request.connect_reader(query, body.participants)
    resources, now = request.resources, datetime.now(UTC)
    question = _make_model_question(request, body, now)
    recollection = recall_for_question(
        access, request.embedder, request.resources.blobs, question, now
    )
    require_configured_model(resources.llm, recollection.context)
    viewer = access.caller.viewer
    task = make_model_call_context(
        access.caller.tenant, _choose_rate_limit_subject(request), viewer, request.deadline
    )
    try:
        turn = answer_question_from_memory(access, resources.llm, task, question, recollection, now)
    except Fallback as failure:
        if failure.reason not in LATE_REASONS:
            _count_failed_answer(request)
            raise make_model_unavailable_error(failure) from None
        turn_request = deferred_answers.encode_question(question, viewer)
        turn = deferred_answers.defer_answer(access, resources, question, turn_request, viewer)
    return _respond_with_answer(request, turn.model_copy(update={"sona": question.sona_id}))


def _make_model_question(request: Request, body: AnswerRequest, now: datetime) -> QuestionToModel:
    """The question for the model."""
    sona_id, name = (
        _resolve_sona_id_and_name(request, body.sona, makes=False)
        if body.sona is not None
        else (None, None)
    )
    return QuestionToModel(
        "query",
        body.query,
        body.now or now,
        body.budget,
        body.min_relevance,
        persona=name,
        sona_id=sona_id,
        weights=body.weights,
    )


def chat(request: Request) -> Response:
    """Store a message, and have the language model reply to it from memory. The message is stored
    first. Then memory is recalled on behalf of all participants, and the reply is stored with edges
    to the message and to what it rests on. The same `Idempotency-Key` gives one message and one
    reply. If the model fails, the message is stored, and the answer is a 503 that says why. A reply
    that takes longer than a request is a 202 with a `turn_id` to poll. Without a model the answer
    is a 409 as for a query, and nothing is stored. Also needs the right to read."""
    request.principal.require_right("read")
    body = request.parse_body(ChatRequest)
    key = request.idempotency_key or str(uuid4())
    requester = ChatRequester(
        request.principal, _choose_rate_limit_subject(request), request.deadline
    )
    dialogue = chats.make_chat_parameters(request.principal, body, key, None)
    if not request.resources.llm.has_model:  # nothing is stored, not even a new sona
        sona_id = _find_sona_id(request, body.sona) if body.sona else None
        dialogue = replace(dialogue, sona_id=sona_id)
        refuse_without_model(request.resources, requester, body, dialogue)
    if body.sona:
        sona = _resolve_sona_id_and_name(request, body.sona, makes=True)
        dialogue = chats.make_chat_parameters(request.principal, body, key, sona)
    try:
        outcome = run_chat(request.resources, requester, body, dialogue)
    except (Unavailable, QuotaExceeded) as error:
        _count_failed_answer(request)
        if "input_id" in error.details and request.idempotency_key is None:
            error.retryable = False  # as it stands it would store the message again
        raise
    request.metrics["EventsAppended"] = int(outcome.is_new_message) + int(
        outcome.turn.answer_id is not None and not outcome.is_replay
    )
    return _respond_with_answer(request, outcome.turn, is_replay=outcome.is_replay)


def get_turn(request: Request) -> Response:
    """Get the answer of a turn, or its progress. Only the caller who asked can read it, for a day
    after it is finished."""
    query = request.parse_query(ParticipantsQuery)
    access = request.connect_reader(query)
    turn_id = request.path_id("turn_id")
    return json_response(
        deferred_answers.read_deferred_answer(access, request.resources, turn_id, request.deadline)
    )


def _resolve_sona_id_and_name(request: Request, sona: str, *, makes: bool) -> tuple[UUID, str]:
    """The id and the first name of the sona that a request names. Raises Invalid for an id that is
    not one of the caller's sonas, and for an unknown name unless `makes` is set."""
    return sonas.resolve_sona(
        connect_as_sona_owner(request), sona, make_name_match_settings(request), makes=makes
    )


def _find_sona_id(request: Request, sona: str) -> UUID | None:
    """The id of the sona that a request names; None if there is none."""
    embedder, min_cosine, timeout = make_name_match_settings(request)
    owner = connect_as_sona_owner(request)
    return find_sona_by_id_or_name(owner, embedder, sona, min_cosine=min_cosine, timeout=timeout)


def _choose_rate_limit_subject(request: Request) -> str:
    """Whose rate of model calls counts. It is not the scope's, which the scope's fold needs."""
    return request.principal.user or f"key:{request.principal.key_id}"


def _respond_with_answer(
    request: Request, turn: ModelAnswerOut, *, is_replay: bool = False
) -> Response:
    request.metrics |= request.resources.llm.take_metrics()
    request.metrics |= {
        "AnswersGiven": int(turn.state == "done" and not is_replay),
        "AnswersDeferred": int(turn.state == "waiting" and not is_replay),
        "SearchHits": len(turn.citations),
        "RecallsDegraded": int(bool(turn.degraded)),
    }
    status = 202 if turn.state == "waiting" else 200
    return replayable_response(turn, status, is_replay=is_replay)


def _count_failed_answer(request: Request) -> None:
    request.metrics |= request.resources.llm.take_metrics()
    request.metrics["AnswersFailed"] = 1


ROUTES = {
    "POST /api/v1/query": Route(
        answer_question,
        "read",
        {200: ModelAnswerOut, 202: ModelAnswerOut},
        query=ParticipantsQuery,
        body=AnswerRequest,
        errors=(StateConflict,),
    ),
    "POST /api/v1/chat": Route(
        chat,
        "write",
        {200: ModelAnswerOut, 202: ModelAnswerOut},
        body=ChatRequest,
        headers=IdempotencyHeaders,
        response_headers={REPLAYED_HEADER: "`true` when an earlier request had this reply."},
        errors=(Forbidden, Conflict, StateConflict),
    ),
    "GET /api/v1/turns/{turn_id}": Route(
        get_turn, "read", {200: ModelAnswerOut}, query=ParticipantsQuery
    ),
}
