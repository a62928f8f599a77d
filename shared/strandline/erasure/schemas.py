"""Requests and responses of erasure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self, TypeAliasType

from strandline.http.schemas_idempotency import IdempotencyKey
from strandline.log.schemas_fields import SessionId
from strandline.schemas import (
    Count,
    PagedReadQuery,
    Participant,
    ParticipantsQuery,
    RequestModel,
    ResponseModel,
    Switch,
)
from strandline.sessions.schemas import ScopeIdQuery

MAX_EVENT_IDS = 1000
ErasureState = TypeAliasType("ErasureState", Literal["hidden", "complete"])
ErasureKind = TypeAliasType(
    "ErasureKind", Literal["event", "events", "session", "participant", "scope", "tenant"]
)


def _check_true(value: object) -> object:
    """Refuse 1, which Python treats as equal to True. Raises ValueError."""
    if value is not True:
        raise ValueError("must be true")
    return value


class ErasureRequest(RequestModel):
    """What to erase: exactly one of `event_ids`, `session_id`, `participant`, `scope_id` and
    `tenant`. `scope_id` may also be sent with `session_id` or `participant`, which it narrows."""

    event_ids: list[UUID] | None = Field(default=None, min_length=1, max_length=MAX_EVENT_IDS)
    """These events."""
    session_id: SessionId | None = None
    """All events of this session, and the session."""
    participant: Participant | None = None
    """Everything that this participant said."""
    scope_id: UUID | None = None
    """All events of this scope."""
    tenant: Annotated[Literal[True], BeforeValidator(_check_true)] | None = None
    """All events of the credential's tenant."""
    dry_run: bool = Field(default=False, strict=True)
    """Only count what would be erased."""

    @model_validator(mode="after")
    def _check_one_selector(self) -> Self:
        given = [
            name
            for name in ("event_ids", "session_id", "participant", "tenant")
            if getattr(self, name) is not None
        ]
        if len(given) > 1 or (not given and self.scope_id is None):
            raise ValueError(
                "send exactly one of event_ids, session_id, participant, scope_id and tenant"
            )
        if self.scope_id is not None and given and given[0] in ("event_ids", "tenant"):
            raise ValueError(f"scope_id cannot be combined with {given[0]}; leave one of them out")
        return self


class ErasureHeaders(RequestModel):
    """Headers of an erasure."""

    idempotency_key: IdempotencyKey | None = Field(default=None, alias="Idempotency-Key")
    """A request that is repeated with this key returns the erasure of the first one."""


class ErasurePreview(ResponseModel):
    """What an erasure would affect. Nothing was erased."""

    events: int
    scopes: int
    chains: int
    """Chains that would lose events. They would be rebuilt, or deleted if no event is left."""
    payloads: int
    """Payloads that the events cite. Other events may cite them too."""


class ErasureOut(ResponseModel):
    """An erasure. None of its events can be read. Its `state` is `hidden` until all stores are
    cleared, then `complete`. A complete erasure has a receipt."""

    erasure_id: UUID
    kind: ErasureKind
    target: Mapping[str, Any]
    """What the request named: ids and participants. The name of a session is not kept."""
    state: ErasureState
    asked_at: datetime
    asked_by: Mapping[str, Any]
    """The credential: the `key_id` of its API key or certificate, and the `user` that it is bound
    to. A JWT always has a user."""
    unreadable_at: datetime
    """The time from which no call can read its events."""
    complete_at: datetime | None
    """When all stores were cleared."""
    counts: Mapping[str, int]
    """Rows by table and objects by store (`s3_…`) so far. An erasure by a bound user also clears
    records of what others asked, and in which sonas, but does not count them."""
    receipt: Mapping[str, Any] | None
    """The signed receipt."""
    signature: str | None
    """Ed25519 over the receipt as JSON with sorted names and without spaces, in hex."""
    public_key: str
    """The deployment's public key that verifies the signature, in hex."""


class ErasuresQuery(PagedReadQuery):
    """The query string of the list of erasures."""

    state: ErasureState | None = None
    """Only erasures in this state; `hidden` ones are not complete yet."""


class ErasureItem(ResponseModel):
    """An erasure on a page of the list; `GET /api/v1/erasures/{erasure_id}` has its receipt."""

    erasure_id: UUID
    kind: ErasureKind
    target: Mapping[str, Any]
    """What the request named, without the ids of events."""
    state: ErasureState
    asked_at: datetime
    asked_by: Mapping[str, Any]
    """The credential: its `key_id`, and the `user` that it is bound to."""
    unreadable_at: datetime
    """The time from which no call can read its events."""
    vacuumed_at: datetime | None
    """When the vacuum began that removed the rows this erasure cleared. Null in a complete erasure:
    no vacuum removed them."""
    complete_at: datetime | None
    """When all stores were cleared."""
    counts: Mapping[str, int]
    """Rows by table and objects by store, so far."""


class ErasurePage(ResponseModel):
    """Erasures, newest first."""

    erasures: list[ErasureItem]
    next_cursor: str | None


class DeleteSessionQuery(ScopeIdQuery):
    """The query string of DELETE on a session."""

    erase: Switch = False
    """Erase the session and its events instead of ending it. Needs the right `erase`."""


class ErasureFeedQuery(ParticipantsQuery):
    """The query string of a scope's feed of erasures."""

    after: Count = Field(default=0, ge=0, lt=2**63)
    """The `n` of the last erased event that was read; 0 to start from the beginning."""
    limit: Count = Field(default=100, ge=1, le=1000)
    """The maximum number of erased events."""


class ErasedEventOut(ResponseModel):
    """An erased event."""

    n: int
    """Its number among the scope's erased events, from 1 without gaps."""
    event_id: UUID
    seq: int
    erasure_id: UUID
    erased_at: datetime


class ErasureFeed(ResponseModel):
    """The erased events of a scope, in order. A client that keeps a copy of the scope's events must
    delete these."""

    scope_id: UUID
    erasures: list[ErasedEventOut]
    next_after: int
    """The `after` of the next call."""
    erasing: bool
    """Whether more events are being erased. They are already hidden, and appear in this feed within
    minutes."""
