"""The verbs of memory: append, ask, read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict
from uuid import UUID, uuid4

from strandline.client import answers
from strandline.client.errors import UnexpectedAnswerError, make_error
from strandline.client.request_building import VerbGroup, join_participants, require_events
from strandline.client.verb_declarations import (
    MultiRequestVerb,
    Steps,
    operation,
    pages,
    yield_step,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

Role: TypeAlias = Literal["user", "agent", "assistant", "system"]
EventType: TypeAlias = Literal["message", "thought", "action", "observation", "upload"]
Fields: TypeAlias = Mapping[str, Any]


class EventFields(TypedDict, total=False):
    """Fields of an event besides those that every append names; docs/api.md describes each."""

    type: EventType | None
    speaker: str | None
    parts: Sequence[Fields] | None
    model: str | None
    blob: Fields | None
    mime_type: str | None
    name: str | None
    channel: str | None
    source_event_key: str | None
    occurred_at: datetime | float | str | None
    metadata: Fields | None
    edges: Sequence[Fields] | None
    stop_reason: str | None


@dataclass(frozen=True)
class TurnReceipts:
    """The receipts of a user's message and of the agent's."""

    user: answers.Receipt
    agent: answers.Receipt


def require_result_of_each_event(answer: answers.BatchAnswer, count: int) -> answers.BatchAnswer:
    """The answer to a batch of so many events: each has a receipt or a reason in it. Raises
    UnexpectedAnswerError."""
    results = answer.results
    if len(results) != count or any((i.event is None) == (i.error is None) for i in results):
        raise UnexpectedAnswerError("The answer does not say what became of each event.")
    return answer


class MemoryVerbs(VerbGroup):
    """Verbs that every client has. `user="alice"`, `agent="helper"` and
    `participants=["user:alice", …]`, alone or together, name the participants for whom a call
    reads, or who take part in an event; a credential that is bound to a user adds that user to
    reads automatically. An admin's credential that means all of the tenant says
    `everybody=True`."""

    # Append -----------------------------------------------------------------------------------

    @operation("POST /api/v1/events", more=EventFields)
    def add(
        self,
        content: str | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        role: Role = "user",
        session_id: str | None = None,
        idempotency_key: str | None = None,
        **more: Unpack[EventFields],
    ) -> answers.Receipt:
        """Append one event. It is stored once, however often the request is repeated. Raises
        KeyConflictError if your own key was used before with another event."""
        ...

    @operation("POST /api/v1/insert", more=EventFields)
    def insert(
        self,
        content: str | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        role: Role = "user",
        recall: Fields | None = None,
        session_id: str | None = None,
        idempotency_key: str | None = None,
        **more: Unpack[EventFields],
    ) -> answers.InsertReceipt:
        """Append one event, linked to what recall finds for its text."""
        ...

    @operation("POST /api/v1/events/batch")
    def post_batch(
        self, events: Sequence[Fields], *, atomic: bool | None = None
    ) -> answers.BatchAnswer:
        """The request that `add_batch` sends, which also gives each event its key."""
        ...

    @MultiRequestVerb
    def add_batch(
        self, events: Sequence[Fields], *, atomic: bool = False, key: str | None = None
    ) -> Steps[answers.BatchAnswer]:
        """Append up to 500 events in one transaction: mappings with `participants`, `role`,
        `content` and so on. Each succeeds or fails on its own, unless `atomic`. An event without
        a `source_event_key` gets one: `key`, by default a new one, and its position."""
        require_events(events)
        base = key or str(uuid4())
        items = [{"source_event_key": f"{base}#{n}", **event} for n, event in enumerate(events)]
        answer = yield from yield_step(MemoryVerbs.post_batch.call(self, items, atomic=atomic))
        return require_result_of_each_event(answer, len(items))

    @MultiRequestVerb
    def add_turn(
        self,
        user_message: str,
        agent_message: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        session_id: str | None = None,
        metadata: Fields | None = None,
        occurred_at: datetime | float | str | None = None,
        key: str | None = None,
    ) -> Steps[TurnReceipts]:
        """Append a user's message and the agent's answer, both or none. `key` is your own key of
        both, as an id of the turn."""
        base = key or str(uuid4())
        common = {
            "participants": join_participants(user, agent, participants),
            "session_id": session_id,
            "metadata": metadata,
            "occurred_at": occurred_at,
        }
        events = [
            {
                **{name: value for name, value in common.items() if value is not None},
                "role": role,
                "content": text,
                "source_event_key": f"{base}#{role}",
            }
            for role, text in (("user", user_message), ("agent", agent_message))
        ]
        answer = require_result_of_each_event(
            (yield from yield_step(MemoryVerbs.post_batch.call(self, events, atomic=True))),
            len(events),
        )
        receipts = [item.event for item in answer.results if item.event is not None]
        if len(receipts) < len(events):
            failures = [item for item in answer.results if item.error is not None]
            cause = min(failures, key=lambda item: item.status == 424)
            raise make_error(cause.status, cause.error.model_dump() if cause.error else None, None)
        return TurnReceipts(*receipts)

    # Ask ------------------------------------------------------------------------------------------

    @operation("POST /api/v1/recall")
    def recall(
        self,
        query: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        limit: int | None = None,
        min_relevance: float | None = None,
        expand: int | None = None,
        max_tokens: int | None = None,
        order: Literal["relevance", "time"] | None = None,
        breadth: bool | None = None,
        sona: UUID | str | None = None,
        weights: Fields | None = None,
        now: datetime | float | str | None = None,
        as_of: datetime | float | str | None = None,
        only_words: bool | None = None,
        explain: bool | None = None,
        include: Literal["full"] | None = None,
        session_id: str | None = None,
        channel: str | None = None,
        role: Role | None = None,
        type: EventType | Literal["statement"] | None = None,
        speaker: str | None = None,
        origin: str | None = None,
        since: datetime | float | str | None = None,
        until: datetime | float | str | None = None,
        metadata: Fields | None = None,
    ) -> answers.RecallAnswer:
        """The events that answer a question, best first, or, with breadth, by time; none where
        nothing relevant is known."""
        ...

    @operation("POST /api/v1/context")
    def context(
        self,
        query: str | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        session_id: str | None = None,
        scope_id: UUID | str | None = None,
        budget: int | None = None,
        limit: int | None = None,
        expand: int | None = None,
        breadth: bool | None = None,
        min_relevance: float | None = None,
        now: datetime | float | str | None = None,
        as_of: datetime | float | str | None = None,
    ) -> answers.ContextTextOut:
        """What memory holds for a prompt: put the answer's `text` into it as it is."""
        ...

    @operation("POST /api/v1/references/query")
    def references(
        self,
        query: str | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        format: Literal["json", "text"] | None = None,
        budget: int | None = None,
        limit: int | None = None,
        depth: int | None = None,
        width: int | None = None,
        walk: Literal["beam", "model"] | None = None,
        time_limit: float | None = None,
        min_relevance: float | None = None,
        now: datetime | float | str | None = None,
        read_token: str | None = None,
    ) -> answers.ReferencesOut:
        """A tree from topics down to the events that answer; without a question an outline of what
        is known."""
        ...

    @pages("GET /api/v1/topics", "TopicsPage.topics", names={"page_size": "limit"})
    def topics(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        version: int | None = None,
        scope_id: UUID | str | None = None,
        slot: UUID | str | None = None,
        node_id: Sequence[UUID | str] | None = None,
        page_size: int | None = None,
        cursor: str | None = None,
    ) -> answers.TopicOut:
        """The roots of the topic index, or with `scope_id` and `slot` the topics below one; those
        of the active snapshot, or of a `version`."""
        ...

    # Read back ------------------------------------------------------------------------------------

    @operation("GET /api/v1/events/{event_id}")
    def get(
        self,
        event_id: UUID | str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
    ) -> answers.EventOut:
        """One event. Raises NotFoundError."""
        ...

    @pages("GET /memories/list", "EventPage.events", names={"page_size": "limit"})
    def get_all(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        page_size: int | None = None,
        cursor: str | None = None,
    ) -> answers.EventOut:
        """Iterate over all visible events, newest first, as they were when the first was read."""
        ...

    @operation("POST /api/v1/events/query")
    def query(
        self,
        text: str | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        mode: Literal["words", "exact"] | None = None,
        scope_id: UUID | str | None = None,
        session_id: str | None = None,
        channel: str | None = None,
        role: Role | None = None,
        type: EventType | Literal["statement"] | None = None,
        speaker: str | None = None,
        origin: str | None = None,
        since: datetime | float | str | None = None,
        until: datetime | float | str | None = None,
        metadata: Fields | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> answers.EventTree:
        """Events by words, by an exact text or by filters, as a tree of scopes."""
        ...

    @operation("GET /api/v1/provenance/{row_id}")
    def history(
        self,
        row_id: UUID | str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> answers.ProvenanceOut:
        """The rows derived from an event, or the events that a chain, a topic, a snapshot, a node
        or an edge of the graph is derived from."""
        ...
