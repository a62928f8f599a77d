"""Chat: store a message, recall for it, have the model reply, and store the reply with edges to
what it rests on.

The keys of the message and the reply are derived from one request key. So a request that is
repeated, by its caller or by a worker, stores one of each.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

from pydantic import ValidationError

from strandline import participants
from strandline.auth.principals import Principal
from strandline.context.used_sources import record_used_sources
from strandline.db.database import Caller, TenantDb
from strandline.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    StateConflict,
    StrandlineError,
    Unavailable,
)
from strandline.http.writer import WriterResources
from strandline.llm.tasks import LlmTasks
from strandline.llm.types import MemoryAnswer, ModelResult, TaskContext
from strandline.log.append import append
from strandline.log.event_draft import HTTP_CHANNEL
from strandline.log.schemas_append import MAX_EDGES, Receipt
from strandline.personas import store_deferred_answers
from strandline.personas.answer_generation import (
    QuestionToModel,
    RecalledContext,
    ask_model,
    list_source_events,
)
from strandline.personas.question_answering import make_answer_out, make_answer_out_from_result
from strandline.personas.schemas import ChatRequest, ModelAnswerOut
from strandline.personas.store_deferred_answers import StoredEvent
from strandline.recall.schemas import RecallWeights
from strandline.resources import Resources
from strandline.sessions import sessions
from strandline.sessions.store import Session

_NOTE = "chat"
"""The member of a reply's metadata that names what it rests on."""
_NOTE_FIELDS = ("remembers", "citations", "known", "degraded", "model", "prompt")


@dataclass(frozen=True)
class ChatParameters:
    """The parameters of a chat, from its request or as they were stored: all that a reply needs,
    except for the text."""

    key: str
    """The key of the request."""
    participants: tuple[str, ...]
    """The participants of both events, and of the recall: readers of the reply may see what it
    rests on."""
    agent: str
    session_id: str | None
    budget: int
    min_relevance: float | None
    sona_id: UUID | None
    persona: str | None
    weights: RecallWeights | None = None

    def to_json(self) -> dict[str, Any]:
        """The stored form. Older code, which does not know weights, can read a chat without
        them."""
        fields = {
            **vars(self),
            "participants": list(self.participants),
            "sona_id": None if self.sona_id is None else str(self.sona_id),
            "weights": self.weights and self.weights.model_dump(),
        }
        return fields if self.weights else {n: v for n, v in fields.items() if n != "weights"}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "ChatParameters":
        """Read the stored form."""
        sona_id: str | None = fields["sona_id"]
        weights: object = fields.get("weights")
        values: dict[str, Any] = {
            "weights": None if weights is None else RecallWeights.model_validate(weights),
            "participants": tuple(fields["participants"]),
            "sona_id": None if sona_id is None else UUID(sona_id),
        }
        return cls(**{**fields, **values})


def make_chat_parameters(
    principal: Principal, request: ChatRequest, key: str, sona: tuple[UUID, str] | None
) -> ChatParameters:
    """The chat of a request. Raises Invalid if it is not clear which agent replies, and Forbidden
    if the credential's own user is not a participant."""
    members = participants.normalize_participant_set(request.participants)
    if principal.user and principal.user not in members:  # it would read on behalf of others
        raise Forbidden(
            "participants: must include this credential's own user", field="participants"
        )
    agents = [name for name in members if name.startswith("agent:")]
    if request.reply_as is not None:
        agent = participants.normalize_participant(request.reply_as, "reply_as")
        agents = [name for name in agents if name == agent]
    if len(agents) != 1:
        raise Invalid(
            "reply_as: name the agent among the participants that replies", field="reply_as"
        )
    return ChatParameters(
        key=key,
        participants=tuple(members),
        agent=agents[0],
        session_id=request.session_id,
        budget=request.budget,
        min_relevance=request.min_relevance,
        sona_id=sona[0] if sona else None,
        persona=sona[1] if sona else None,
        weights=request.weights,
    )


def find_message_speaker(
    principal: Principal, request: ChatRequest, chat: ChatParameters
) -> str | None:
    """The speaker of the message, if it is clear, as an append determines it."""
    users = [name for name in chat.participants if name.startswith("user:")]
    return request.speaker or principal.user or (users[0] if len(users) == 1 else None)


def connect_as_reply_readers(
    resources: Resources, tenant: str, writer: str, chat: ChatParameters, deadline: float
) -> TenantDb:
    """The database on behalf of all who will read the reply. `writer` is the caller who asks for it
    and owns the sona."""
    readers = Caller(tenant, chat.participants, writer)
    return resources.database.connect_as(readers, deadline)


def store_message(
    writer: WriterResources, request: ChatRequest, chat: ChatParameters
) -> tuple[Receipt, bool]:
    """Store the message. Returns its receipt, and whether an earlier request stored it. Raises the
    errors of an append."""
    body: dict[str, object] = {
        "participants": list(chat.participants),
        "role": "user",
        "content": request.message,
        "speaker": request.speaker,
        "session_id": chat.session_id,
        "occurred_at": request.occurred_at,
        "metadata": {**request.metadata, **_make_sona_metadata(chat)},
    }
    return _append_event(writer, body, f"{chat.key}#input")


def find_stored_reply(
    owner: TenantDb, chat: ChatParameters, input_id: UUID
) -> ModelAnswerOut | None:
    """The reply if it is stored already, else None. `owner` is the database on behalf of the caller
    who asked for it."""
    event = store_deferred_answers.find_event_by_key(owner, HTTP_CHANNEL, f"{chat.key}#answer")
    return None if event is None else _read_stored_reply(event, chat, input_id)


def find_chat_session(access: TenantDb, chat: ChatParameters, scope_id: UUID) -> Session | None:
    """The session of a chat; None if it has none, or it does not exist yet."""
    if chat.session_id is None:
        return None
    try:
        return sessions.find_session(access, chat.session_id, scope_id)
    except NotFound:
        return None


def make_chat_question(
    chat: ChatParameters, text: str, said_at: datetime, speaker: str | None, session: Session | None
) -> QuestionToModel:
    """The question for the model."""
    return QuestionToModel(
        "chat",
        text,
        said_at,
        chat.budget,
        chat.min_relevance,
        persona=chat.persona,
        sona_id=chat.sona_id,
        weights=chat.weights,
        session=session,
        speaker=speaker,
        agent=chat.agent,
    )


def generate_and_store_reply(
    writer: WriterResources,
    llm: LlmTasks,
    access: TenantDb,
    chat: ChatParameters,
    task: TaskContext,
    question: QuestionToModel,
    recollection: RecalledContext,
) -> ModelAnswerOut:
    """Have the model reply, and store its reply. The memories of the answer count as used. Raises
    Fallback if the model gives no answer; the errors of an append; and Unavailable if anything that
    the model saw is erased before its reply is stored."""
    assert question.input_id is not None, "a chat's message is stored before it is answered"
    source_ids = [*list_source_events(access, recollection), question.input_id]
    try:
        result = ask_model(llm, task, question, recollection.context)
    finally:
        llm.store_call_records(access)
    turn = make_answer_out_from_result(
        "chat", recollection, result, input_id=question.input_id, sona=chat.sona_id
    )
    body = _make_reply_event(chat, question.input_id, turn, result)
    try:
        key = f"{chat.key}#answer"
        receipt, is_replay = _append_event(writer, body, key, source_ids)
    except StateConflict:
        raise
    except Conflict:  # another worker, or a repeated request, was first
        is_replay, receipt = True, None
    except Invalid as error:
        if error.details.get("reason") != "edge_not_found":
            raise
        raise Unavailable(
            "A memory that this answer rests on was just erased. Try again."
        ) from None
    if receipt is None or is_replay:
        earlier_turn = find_stored_reply(writer.connect(), chat, question.input_id)
        if earlier_turn is None:
            raise Unavailable("The stored answer just changed. Try again.")
        return earlier_turn
    record_used_sources(access, recollection.use, datetime.now(UTC))
    return turn.model_copy(update={"answer_id": receipt.event_id})


def _make_reply_event(
    chat: ChatParameters, input_id: UUID, turn: ModelAnswerOut, result: ModelResult[MemoryAnswer]
) -> dict[str, object]:
    """The event of a reply. It cites the message, and the memories that the model says it rests
    on."""
    event_ids = dict.fromkeys([input_id, *(citation.event_id for citation in turn.citations)])
    note = turn.model_dump(mode="json", include={*_NOTE_FIELDS})
    return {
        "participants": list(chat.participants),
        "role": "agent",
        "speaker": chat.agent,
        "content": result.value.text,
        "model": result.model[:200],
        "session_id": chat.session_id,
        "edges": [{"event_id": str(event_id)} for event_id in [*event_ids][:MAX_EDGES]],
        "metadata": {_NOTE: note, **_make_sona_metadata(chat)},
    }


def _make_sona_metadata(chat: ChatParameters) -> dict[str, object]:
    return {} if chat.sona_id is None else {"sona": str(chat.sona_id)}


def _read_stored_reply(event: StoredEvent, chat: ChatParameters, input_id: UUID) -> ModelAnswerOut:
    """The stored reply as it was first returned. Raises Conflict if the key belongs to another
    event that its writer appended."""
    note = event.metadata.get(_NOTE)
    if isinstance(note, dict):
        note_fields = cast("dict[str, Any]", note)
        turn_fields = {name: note_fields.get(name) for name in _NOTE_FIELDS}
        with contextlib.suppress(ValidationError):
            return make_answer_out(
                "chat",
                "done",
                text=event.content,
                input_id=input_id,
                answer_id=event.event_id,
                sona=chat.sona_id,
                **turn_fields,
            )
    raise Conflict("Another event was stored under the key of this request's reply. Use a new key.")


def _append_event(
    writer: WriterResources,
    body: Mapping[str, object],
    key: str,
    source_ids: Sequence[UUID] = (),
) -> tuple[Receipt, bool]:
    """Append one event. Returns its receipt, and whether it is a replay."""
    fields = {name: value for name, value in body.items() if value is not None}
    (result,) = append(writer, [(fields, key)], source_ids=source_ids)
    if result.receipt is None:
        raise result.error or StrandlineError()
    return result.receipt, result.is_replay
