"""The verbs of personas: sonas, their acts, and answers in their name."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from strandline.client import answers
from strandline.client.memory import Fields
from strandline.client.request_building import VerbGroup
from strandline.client.verb_declarations import (
    MultiRequestVerb,
    Steps,
    operation,
    pages,
    yield_pause,
    yield_step,
)

_SONA = "/api/v1/sonas/{uuid}"
_ID = {"sona_id": "uuid"}


class PersonaVerbs(VerbGroup):
    """Verbs that every client has besides those of memory. A sona belongs to its writer: to a bound
    user, or to all unbound credentials of the tenant together."""

    @operation("POST /api/v1/sonas")
    def find_sona(self, name: str) -> answers.SonaFound:
        """The sona of this name, or of one of nearly the same meaning, else a new one."""
        ...

    @operation("GET /sona/{uuid}", names=_ID)
    def sona(
        self,
        sona_id: UUID | str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        include: Literal["centroid"] | None = None,
    ) -> answers.SonaDetail:
        """A sona, with the number and, on request, the centroid of its memories in view. Raises
        NotFoundError."""
        ...

    @pages("GET /sonas/list", "SonaPage.sonas", names={"page_size": "limit"})
    def sonas(self, *, page_size: int | None = None, cursor: str | None = None) -> answers.SonaOut:
        """All sonas, newest first."""
        ...

    @operation(f"PATCH {_SONA}", names=_ID)
    def rename_sona(self, sona_id: UUID | str, names: Sequence[str]) -> answers.SonaOut:
        """Give a sona these names and no others. Raises StateConflictError where another one has
        one of them."""
        ...

    @operation(f"POST {_SONA}/merge", names=_ID)
    def merge_sona(self, sona_id: UUID | str, into: UUID | str) -> answers.SonaOut:
        """Merge a sona into another one, which is returned. It cannot be undone."""
        ...

    @operation(f"POST {_SONA}/memories", names=_ID)
    def add_sona_memories(
        self, sona_id: UUID | str, event_ids: Sequence[UUID | str]
    ) -> answers.RecordedSonaMemories:
        """Record that a sona was active in these events."""
        ...

    # Acts -----------------------------------------------------------------------------------------

    @operation(f"POST {_SONA}/acts", names=_ID)
    def push_act(
        self, sona_id: UUID | str, event_id: UUID | str, after: UUID | str | None = None
    ) -> answers.ActOut:
        """Continue a sona's thread after its head. Raises StateConflictError, whose details name
        the head, where another act is."""
        ...

    @operation(f"GET {_SONA}/acts/next", names=_ID)
    def next_act(
        self,
        sona_id: UUID | str,
        *,
        after: UUID | str | None = None,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
    ) -> answers.NextAct:
        """The act after another one, or the first."""
        ...

    @operation(f"GET {_SONA}/acts", names=_ID)
    def _fetch_acts_page(
        self,
        sona_id: UUID | str,
        *,
        cursor: str | None = None,
        wait: float | None = None,
        limit: int | None = None,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
    ) -> answers.ActsPage:
        """One request of `acts`."""
        ...

    @MultiRequestVerb
    def acts(
        self,
        sona_id: UUID | str,
        *,
        cursor: str | None = None,
        wait: float | None = None,
        limit: int | None = None,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
    ) -> Steps[answers.ActsPage]:
        """The acts after a cursor, in order; waits `wait` seconds for one. Where the service lets
        no more requests wait, it is asked again when it says so. Go on with the answer's
        `cursor`."""
        readers: dict[str, Any] = {
            "user": user,
            "agent": agent,
            "participants": participants,
            "everybody": everybody,
        }
        end, seconds = time.monotonic() + (wait or 0.0), wait
        while True:
            page = yield from yield_step(
                PersonaVerbs._fetch_acts_page.call(
                    self, sona_id, cursor=cursor, wait=seconds, limit=limit, **readers
                )
            )
            seconds_left = end - time.monotonic()
            if page.retry_after is None or seconds_left <= 0:
                return page
            spread = random.uniform(1.0, 1.5)  # noqa: S311 - spreads clients, hides nothing
            yield from yield_pause(min(page.retry_after * spread, seconds_left))
            seconds = max(0.0, end - time.monotonic())

    # Answers --------------------------------------------------------------------------------------

    @operation("POST /api/v1/query")
    def answer(
        self,
        query: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        sona: UUID | str | None = None,
        budget: int | None = None,
        min_relevance: float | None = None,
        weights: Fields | None = None,
        now: datetime | float | str | None = None,
    ) -> answers.ModelAnswerOut:
        """The language model's answer from memory; nothing is stored. Where its `state` is
        `waiting`, `turn` has it later."""
        ...

    @operation("POST /api/v1/chat")
    def chat(
        self,
        message: str,
        *,
        user: str | None = None,
        participants: Iterable[str] | None = None,
        agent: str | None = None,
        reply_as: str | None = None,
        speaker: str | None = None,
        session_id: str | None = None,
        sona: UUID | str | None = None,
        metadata: Fields | None = None,
        budget: int | None = None,
        min_relevance: float | None = None,
        weights: Fields | None = None,
        occurred_at: datetime | float | str | None = None,
        idempotency_key: str | None = None,
    ) -> answers.ModelAnswerOut:
        """Store a message and the language model's reply. Where its `state` is `waiting`, `turn`
        has it later. Raises UnavailableError where the model fails; the message is stored then,
        and the same `idempotency_key` asks again."""
        ...

    @operation("GET /api/v1/turns/{turn_id}")
    def turn(
        self,
        turn_id: UUID | str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
    ) -> answers.ModelAnswerOut:
        """An answer that a request did not wait for, or how far it is."""
        ...
