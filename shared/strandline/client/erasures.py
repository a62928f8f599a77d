"""The verbs of forgetting: erase, and what an erasure did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal
from uuid import UUID

from strandline.client import answers
from strandline.client.request_building import VerbGroup
from strandline.client.verb_declarations import operation, pages


class ErasureVerbs(VerbGroup):
    """Verbs that need a credential with the right `erase`. What a verb erased can be read by nobody
    once it has returned; the receipt follows, see `erasure`."""

    @operation("DELETE /api/v1/events/{event_id}")
    def erase_event(self, event_id: UUID | str) -> answers.ErasureOut:
        """Erase one event. Repeating it gives the same erasure. Raises NotFoundError."""
        ...

    @operation("POST /api/v1/erasures", constants={"dry_run": False})
    def erase(
        self,
        *,
        event_ids: Sequence[UUID | str] | None = None,
        session_id: str | None = None,
        participant: str | None = None,
        scope_id: UUID | str | None = None,
        tenant: Literal[True] | None = None,
        idempotency_key: str | None = None,
    ) -> answers.ErasureOut:
        """Erase events, a session, all that a participant said, a scope, or all of the tenant:
        one of them. A `scope_id` narrows a session or a participant. The same `idempotency_key`
        gives the same erasure. Raises NotFoundError where there is nothing."""
        ...

    @operation("POST /api/v1/erasures", constants={"dry_run": True})
    def preview_erasure(
        self,
        *,
        event_ids: Sequence[UUID | str] | None = None,
        session_id: str | None = None,
        participant: str | None = None,
        scope_id: UUID | str | None = None,
        tenant: Literal[True] | None = None,
    ) -> answers.ErasurePreview:
        """Count what `erase` would concern, and erase nothing."""
        ...

    @pages("GET /api/v1/erasures", "ErasurePage.erasures", names={"page_size": "limit"})
    def list_erasures(
        self,
        *,
        state: Literal["hidden", "complete"] | None = None,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        page_size: int | None = None,
        cursor: str | None = None,
    ) -> answers.ErasureItem:
        """Erasures, newest first, without their receipts. `erasures` is a scope's feed of what was
        erased."""
        ...

    @operation("GET /api/v1/erasures/{erasure_id}")
    def erasure(
        self,
        erasure_id: UUID | str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
    ) -> answers.ErasureOut:
        """An erasure, with its signed receipt once it is complete. Raises NotFoundError."""
        ...

    @operation("GET /api/v1/scopes/{scope_id}/erasures")
    def erasures(
        self,
        scope_id: UUID | str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        after: int | None = None,
        limit: int | None = None,
    ) -> answers.ErasureFeed:
        """The erased events of a scope after a place, in order. A program that keeps a copy must
        delete these."""
        ...
