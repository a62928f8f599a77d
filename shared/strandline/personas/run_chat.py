"""Handle a chat request: store the message, and reply within the request's time or later."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from strandline.auth.principals import Principal
from strandline.db.database import NOBODY, TenantDb
from strandline.http.writer import Writer
from strandline.llm.client import Fallback
from strandline.participants import derive_scope_id
from strandline.personas import chats, deferred_turns, store_deferred_turns
from strandline.personas.answer_generation import (
    LATE_REASONS,
    QuestionToModel,
    make_failure,
    make_task_context,
    recall_for,
    require_model,
)
from strandline.personas.chats import ChatParameters
from strandline.personas.schemas_chat import ChatRequest, TurnOut
from strandline.resources import Resources


class Requester(NamedTuple):
    """The caller of a chat."""

    principal: Principal
    subject: str
    """Whose rate of model calls counts."""
    deadline: float
    """The request's, in time.monotonic() seconds."""

    def connect_readers(self, resources: Resources, chat: ChatParameters) -> TenantDb:
        """The database on behalf of all who will read the reply."""
        principal = self.principal
        return chats.connect_as_readers(
            resources, principal.tenant, principal.user or NOBODY, chat, self.deadline
        )


class Outcome(NamedTuple):
    """The result of a chat request."""

    turn: TurnOut
    is_replay: bool
    """Whether an earlier request had the same reply, or waits for it."""
    is_new_message: bool


def refuse_without_model(
    resources: Resources, requester: Requester, request: ChatRequest, chat: ChatParameters
) -> None:
    """Raise StateConflict, because no model is configured, before anything is stored."""
    readers = requester.connect_readers(resources, chat)
    scope_id = derive_scope_id(requester.principal.tenant, list(chat.participants))
    session = chats.find_session(readers, chat, scope_id)
    now = datetime.now(UTC)
    said_at = request.occurred_at or now
    speaker = chats.find_speaker(requester.principal, request, chat)
    question = chats.make_question(chat, request.message, said_at, speaker, session)
    recollection = recall_for(readers, resources.embedder, question, now)
    require_model(resources.llm, recollection.context)


def run_chat(
    resources: Resources, requester: Requester, request: ChatRequest, chat: ChatParameters
) -> Outcome:
    """Store the message of a chat and reply to it, within the request or as a turn for later. A
    request with the key of an earlier one gets its reply. Raises the errors of an append, and
    ModelUnavailable if the model fails; the message is then stored."""
    principal, deadline = requester.principal, requester.deadline
    writer = Writer.from_resources(resources, principal, deadline)
    receipt, is_replay = chats.store_message(writer, request, chat)
    if is_replay:
        earlier_turn = _find_earlier_reply(writer, chat, receipt.event_id)
        if earlier_turn is not None:
            return Outcome(earlier_turn, is_replay=True, is_new_message=False)
    readers = requester.connect_readers(resources, chat)
    session = chats.find_session(readers, chat, receipt.scope_id)
    said_at = request.occurred_at or receipt.recorded_at
    speaker = chats.find_speaker(principal, request, chat)
    question = replace(
        chats.make_question(chat, request.message, said_at, speaker, session),
        input_id=receipt.event_id,
    )
    turn = _reply(resources, requester, writer, chat, question, readers, receipt.scope_id)
    return Outcome(turn, is_replay=False, is_new_message=not is_replay)


def _reply(
    resources: Resources,
    requester: Requester,
    writer: Writer,
    chat: ChatParameters,
    question: QuestionToModel,
    readers: TenantDb,
    scope_id: UUID,
) -> TurnOut:
    recollection = recall_for(readers, resources.embedder, question, datetime.now(UTC))
    principal, deadline = requester.principal, requester.deadline
    task = make_task_context(
        principal.tenant, requester.subject, chat.participants, deadline, scope_id=scope_id
    )
    try:
        return chats.reply(writer, resources.llm, readers, chat, task, question, recollection)
    except Fallback as failure:
        if failure.reason not in LATE_REASONS:
            raise make_failure(failure, chat.key, question.input_id) from None
    return deferred_turns.defer(
        writer.connect(), resources, question, chat.to_json(), chat.participants
    )


def _find_earlier_reply(writer: Writer, chat: ChatParameters, input_id: UUID) -> TurnOut | None:
    """The reply of an earlier request, or its pending turn; None if a new reply is needed."""
    owner = writer.connect()
    earlier_turn = chats.find_reply(owner, chat, input_id)
    if earlier_turn is not None:
        return earlier_turn
    turn = store_deferred_turns.find_turn_of(owner, input_id)
    if turn is None or turn.state != "waiting":
        return None
    writer.work_queue.send_turn(writer.principal.tenant, turn.turn_id)
    return deferred_turns.to_unanswered_turn(turn)
