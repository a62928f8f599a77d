"""What an agent remembers: the block of its prompt, and what was said, each text stored once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypeVar

from typing_extensions import TypedDict

from strandline.adapters.client_pairs import ClientPair, ParticipantChoice
from strandline.adapters.event_batches import clean_text, list_batches, post_events
from strandline.adapters.session_records import (
    RetryKeys,
    list_newest_first,
    read_event_text,
)
from strandline.adapters.step_runners import ask, read_items, run_steps, run_steps_async
from strandline.client.clients import AsyncStrandline, Strandline
from strandline.client.errors import KeyConflictError, make_error
from strandline.client.memory import MemoryVerbs
from strandline.client.request_building import VerbGroup
from strandline.client.verb_declarations import Steps

T = TypeVar("T")

DEFAULT_BUDGET = 1000
"""Tokens of a block."""

_NOBODY = VerbGroup()
_MAX_QUESTION_CHARS = 8000
_PAGE = 500
_ERASED = 410


class AsyncMemoryOptions(TypedDict, total=False):
    """Whose memory it is, and where: the options that asynchronous adapters have in common."""

    user: str | None
    agent: str | None
    participants: Iterable[str] | Callable[..., Iterable[str]] | None
    """Everybody, or a function of a run that names them."""
    url: str | None
    key: str | None
    async_client: AsyncStrandline | None


class MemoryOptions(AsyncMemoryOptions, total=False):
    """Those of adapters that block, too."""

    client: Strandline | None


@dataclass(frozen=True)
class SaidText:
    """A text of a conversation."""

    role: Literal["user", "agent", "system"]
    text: str
    key: str | None = None
    """Its idempotency key, from what the framework calls it. None: it gets one, and where it was
    not stored the same text has the same key when it is stored again."""
    occurred_at: datetime | None = None
    metadata: Mapping[str, Any] | None = None
    speaker: str | None = None
    """Who of the participants says it, where several fit the role."""


class AgentMemory:
    """Whose memory an adapter reads and writes, by which clients. Raises ValueError where no user
    is named, and ServiceError. Safe for threads and tasks."""

    def __init__(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | Callable[..., Iterable[str]] | None = None,
        url: str | None = None,
        key: str | None = None,
        client: Strandline | None = None,
        async_client: AsyncStrandline | None = None,
    ) -> None:
        self._choice = ParticipantChoice(user, agent, participants)
        self.clients = ClientPair(url, key, client, async_client)
        self._keys = RetryKeys()

    def list_participants(self, *run: Any) -> list[str]:
        """Whose memory a run is about."""
        return self._choice.list_participants(*run)

    def read_block(
        self, participants: Sequence[str], question: str | None, budget: int = DEFAULT_BUDGET
    ) -> Steps[str]:
        """What memory holds about a question, as a text for a prompt; what is newest without one.
        `budget` is in tokens, from 100 to 8,000."""
        asked = (
            clean_text(question[:_MAX_QUESTION_CHARS]) if question and question.strip() else None
        )
        call = MemoryVerbs.context.call(_NOBODY, asked, participants=participants, budget=budget)
        return (yield from ask(call)).text

    def read_said(
        self, participants: Sequence[str], session_id: str
    ) -> Steps[list[tuple[str, str]]]:
        """Who said what in a session, `user` or `agent`, in order."""
        query = partial(
            MemoryVerbs.query.call,
            _NOBODY,
            participants=participants,
            session_id=session_id,
            limit=_PAGE,
        )
        events_newest_first = yield from read_items(
            query, partial(list_newest_first, participants=participants)
        )
        texts: list[tuple[str, str]] = []
        for event in reversed(events_newest_first):
            if event.role in ("user", "agent"):
                texts.append((event.role, (yield from read_event_text(event, participants))))
        return texts

    def store_texts(
        self,
        participants: Sequence[str],
        session_id: str | None,
        texts: Sequence[SaidText],
        post: Callable[[Sequence[Mapping[str, Any]]], Steps[Any]] = post_events,
    ) -> Steps[None]:
        """Store texts in order, each once; all or none of what a request holds, or as `post` does
        it. Blank ones are left out."""
        full_texts = [replace(one, text=clean_text(one.text)) for one in texts if one.text.strip()]
        people = list(participants)
        contents = [[people, session_id, one.role, one.text] for one in full_texts]
        with self._keys.attempt(contents, [one.key for one in full_texts]) as keys:
            yield from post(
                [
                    {
                        "participants": people,
                        "role": one.role,
                        "content": one.text,
                        "source_event_key": key,
                        **_list_given(
                            session_id=session_id,
                            occurred_at=one.occurred_at and one.occurred_at.isoformat(),
                            metadata=one.metadata and dict(one.metadata),
                            speaker=one.speaker if one.speaker in participants else None,
                        ),
                    }
                    for one, key in zip(full_texts, keys, strict=True)
                ]
            )

    def run(self, steps: Steps[T]) -> T:
        """The result of a procedure, by the blocking client."""
        return run_steps(self.clients.blocking, steps)

    async def run_async(self, steps: Steps[T]) -> T:
        """The result of a procedure, by the asynchronous client."""
        return await run_steps_async(self.clients.asynchronous, steps)


def post_unerased_events(events: Sequence[Mapping[str, Any]]) -> Steps[None]:
    """Store events in order, each on its own; one that was stored and erased stays so, and one that
    was stored with other metadata or at another time stays as it was. Raises the first other error
    of an event."""
    for batch in list_batches(events):
        answer = yield from ask(MemoryVerbs.post_batch.call(_NOBODY, batch, atomic=False))
        for item in answer.results:
            if item.error is None or item.status == _ERASED:
                continue
            error = make_error(item.status, item.error.model_dump(), None)
            if not (isinstance(error, KeyConflictError) and _is_said_before(error)):
                raise error


def _is_said_before(conflict: KeyConflictError) -> bool:
    """Whether an event differs from the one under its key only in what stands beside its text."""
    fields = conflict.details.get("fields")
    return bool(fields) and {"metadata", "occurred_at"}.issuperset(fields)


def _list_given(**fields: object) -> dict[str, object]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value}
