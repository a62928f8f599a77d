"""HTTP routes of queries and chats: answers of the language model from memory."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

from strandline.errors import Conflict, Forbidden, StateConflict, Unavailable
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response, replayable_response
from strandline.http.schemas_idempotency import REPLAYED_HEADER, IdempotencyHeaders
from strandline.llm.client import Fallback
from strandline.personas import chats, deferred_turns, run_chat, sonas
from strandline.personas.answer_generation import (
    LATE_REASONS,
    QuestionToModel,
    make_failure,
    make_task_context,
    recall_for,
    require_model,
)
from strandline.personas.question_answering import answer_query
from strandline.personas.routes_sonas import connect_as_sona_owner, make_name_match_settings
from strandline.personas.run_chat import Requester
from strandline.personas.schemas_chat import AnswerRequest, ChatRequest, TurnOut
from strandline.recall.sona_lookup import find_sona
from strandline.schemas import ParticipantsQuery


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
    question = _make_question(request, body, now)
    recollection = recall_for(access, resources.embedder, question, now)
    require_model(resources.llm, recollection.context)
    viewer = access.caller.viewer
    task = make_task_context(access.caller.tenant, _rate_subject(request), viewer, request.deadline)
    try:
        turn = answer_query(access, resources.llm, task, question, recollection, now)
    except Fallback as failure:
        if failure.reason not in LATE_REASONS:
            _count_failed_answer(request)
            raise make_failure(failure, None, None) from None
        turn_request = deferred_turns.question_to_json(question, viewer)
        turn = deferred_turns.defer(access, resources, question, turn_request, viewer)
    return _respond(request, turn.model_copy(update={"sona": question.sona_id}))


def _make_question(request: Request, body: AnswerRequest, now: datetime) -> QuestionToModel:
    """The question for the model."""
    sona_id, name = (
        _resolve_sona(request, body.sona, makes=False) if body.sona is not None else (None, None)
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
    requester = Requester(request.principal, _rate_subject(request), request.deadline)
    dialogue = chats.make_chat(request.principal, body, key, None)
    if not request.resources.llm.has_model:  # nothing is stored, not even a new sona
        sona_id = _find_sona(request, body.sona) if body.sona else None
        dialogue = replace(dialogue, sona_id=sona_id)
        run_chat.refuse_without_model(request.resources, requester, body, dialogue)
    if body.sona:
        sona = _resolve_sona(request, body.sona, makes=True)
        dialogue = chats.make_chat(request.principal, body, key, sona)
    try:
        outcome = run_chat.run_chat(request.resources, requester, body, dialogue)
    except Unavailable:
        _count_failed_answer(request)
        raise
    request.metrics["EventsAppended"] = int(outcome.is_new_message) + int(
        outcome.turn.answer_id is not None and not outcome.is_replay
    )
    return _respond(request, outcome.turn, is_replay=outcome.is_replay)


def get_turn(request: Request) -> Response:
    """Get the answer of a turn, or its progress. Only the caller who asked can read it, for a day
    after it is finished."""
    query = request.parse_query(ParticipantsQuery)
    access = request.connect_reader(query)
    turn_id = request.path_id("turn_id")
    return json_response(
        deferred_turns.read_turn(access, request.resources, turn_id, request.deadline)
    )


def _resolve_sona(request: Request, sona: str, *, makes: bool) -> tuple[UUID, str]:
    """The id and the first name of the sona that a request names. Raises Invalid for an id that is
    not one of the caller's sonas, and for an unknown name unless `makes` is set."""
    return sonas.resolve(
        connect_as_sona_owner(request), sona, make_name_match_settings(request), makes=makes
    )


def _find_sona(request: Request, sona: str) -> UUID | None:
    """The id of the sona that a request names; None if there is none."""
    embedder, min_cosine, timeout = make_name_match_settings(request)
    owner = connect_as_sona_owner(request)
    return find_sona(owner, embedder, sona, min_cosine=min_cosine, timeout=timeout)


def _rate_subject(request: Request) -> str:
    """Whose rate of model calls counts. It is not the scope's, which the scope's fold needs."""
    return request.principal.user or f"key:{request.principal.key_id}"


def _respond(request: Request, turn: TurnOut, *, is_replay: bool = False) -> Response:
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
        {200: TurnOut, 202: TurnOut},
        query=ParticipantsQuery,
        body=AnswerRequest,
        errors=(StateConflict,),
    ),
    "POST /api/v1/chat": Route(
        chat,
        "write",
        {200: TurnOut, 202: TurnOut},
        body=ChatRequest,
        headers=IdempotencyHeaders,
        response_headers={REPLAYED_HEADER: "`true` when an earlier request had this reply."},
        errors=(Forbidden, Conflict, StateConflict),
    ),
    "GET /api/v1/turns/{turn_id}": Route(get_turn, "read", {200: TurnOut}, query=ParticipantsQuery),
}
