"""One conversation: `with client.session(user="alice", agent="helper") as session: ...`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from strandline.client import answers
from strandline.client.memory import EventFields, Fields, Role
from strandline.client.request_building import Call, VerbGroup
from strandline.client.scopes_and_payloads import ScopeAndPayloadVerbs
from strandline.client.transport import AsyncCaller, AsyncConnection, SyncCaller, SyncConnection
from strandline.client.verb_declarations import operation, pages

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

_SESSION = "/api/v1/sessions/{session_id}"
_SCOPE = ("scope_id",)


class SessionVerbs(VerbGroup):
    """Verbs of a session. Its participants apply to all of them."""

    @operation(f"POST {_SESSION}/events", in_query=_SCOPE, more=EventFields)
    def add(
        self,
        content: str | None = None,
        *,
        role: Role = "user",
        idempotency_key: str | None = None,
        **more: Unpack[EventFields],
    ) -> answers.Receipt:
        """Append one event to the session. It is stored once, however often the request is
        repeated."""
        ...

    @operation(
        f"POST {_SESSION}/interactions",
        in_query=_SCOPE,
        names={"agent_message": "agent_response"},
    )
    def add_turn(
        self,
        user_message: str,
        agent_message: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        channel: str | None = None,
        source_event_key: str | None = None,
        occurred_at: datetime | float | str | None = None,
        metadata: Fields | None = None,
        idempotency_key: str | None = None,
    ) -> answers.InteractionReceipts:
        """Append a user's message and the agent's answer, both or none. `user` and `agent` say who
        speaks, where several could."""
        ...

    @operation(f"GET {_SESSION}/context", constants={"format": "text"})
    def context(
        self,
        query: str | None = None,
        *,
        participants: Iterable[str] | None = None,
        only_session: bool | None = None,
        budget: int | None = None,
        limit: int | None = None,
        chains: int | None = None,
        min_relevance: float | None = None,
        breadth: bool | None = None,
    ) -> answers.ContextTextOut:
        """What memory holds for the session's next prompt: put the answer's `text` into it."""
        ...

    @operation(f"GET {_SESSION}/context", constants={"format": "json"})
    def working_memory(
        self,
        query: str | None = None,
        *,
        participants: Iterable[str] | None = None,
        only_session: bool | None = None,
        limit: int | None = None,
        chains: int | None = None,
        min_relevance: float | None = None,
        breadth: bool | None = None,
    ) -> answers.ContextOut:
        """The session's recent events and chains, as data."""
        ...

    @operation(f"POST {_SESSION}/context/search", in_query=_SCOPE)
    def search(
        self,
        query: str,
        *,
        participants: Iterable[str] | None = None,
        only_session: bool | None = None,
        limit: int | None = None,
        min_relevance: float | None = None,
        similarity_threshold: float | None = None,
    ) -> answers.SearchOut:
        """The chains that answer a question, best first."""
        ...

    @pages(f"GET {_SESSION}/segments", "SegmentPage.segments", names={"page_size": "limit"})
    def chains(
        self,
        *,
        include: Literal["rejected", "archived", "all"] | None = None,
        page_size: int | None = None,
        cursor: str | None = None,
    ) -> answers.ChainOut:
        """The session's chains, newest first."""
        ...

    @operation(f"GET {_SESSION}/analysis/topics")
    def topics(self) -> answers.TopicsOut:
        """The recent topics of the session."""
        ...

    @pages(f"GET {_SESSION}/analysis/heat", "ChainHeatPage.chains", names={"page_size": "limit"})
    def heat(
        self, *, page_size: int | None = None, cursor: str | None = None
    ) -> answers.ChainHeatOut:
        """The heat of each chain, and the values that it is computed from."""
        ...

    @operation(f"GET {_SESSION}")
    def get(self) -> answers.SessionOut:
        """The session itself. Raises NotFoundError."""
        ...

    @operation(f"DELETE {_SESSION}", constants={"erase": False})
    def end(self) -> answers.EndedSession:
        """End the session: lists hide it and nothing can be appended. Its events stay."""
        ...

    @operation(f"DELETE {_SESSION}", constants={"erase": True})
    def erase(self) -> answers.ErasureOut:
        """Erase the session and its events; it takes the right `erase`."""
        ...


@dataclass(frozen=True)
class SessionPlan:
    """What `with client.session(...)` does when the block begins and ends."""

    session_id: str
    participants: list[str] | None
    """None: it has begun already."""
    scope_id: str | None
    metadata: Mapping[str, Any] | None
    ends: bool
    """Whether leaving the block ends the session."""

    @property
    def bound_parameters(self) -> dict[str, str]:
        """The parameters that every call of the session has."""
        scope = {} if self.scope_id is None else {"scope_id": self.scope_id}
        return {"session_id": self.session_id, **scope}

    def make_begin_or_get_call(self, caller: VerbGroup) -> Call[answers.SessionOut]:
        """The first call."""
        if self.participants is None:
            return SessionVerbs.get.call(caller)
        return ScopeAndPayloadVerbs.begin_session.call(
            _NOBODY,
            session_id=self.session_id,
            participants=self.participants,
            metadata=self.metadata,
        )


_NOBODY = VerbGroup()


class _SessionBase(SessionVerbs):
    @property
    def session_id(self) -> str:
        """The session's name."""
        return self.bound["session_id"]

    @property
    def scope_id(self) -> str | None:
        """The id of its scope; None before it has begun."""
        return self.bound.get("scope_id")


class Session(_SessionBase, SyncCaller):
    """A session of a synchronous client."""

    def __init__(self, connection: SyncConnection, plan: SessionPlan) -> None:
        SyncCaller.__init__(self, connection, plan.bound_parameters)
        self._plan = plan

    def __enter__(self) -> Self:
        session = self.perform(self._plan.make_begin_or_get_call(self))
        self.bound = {**self.bound, "scope_id": str(session.scope_id)}
        return self

    def __exit__(self, *_: object) -> None:
        if self._plan.ends:
            self.end()


class AsyncSession(_SessionBase, AsyncCaller):
    """A session of an asynchronous client."""

    def __init__(self, connection: AsyncConnection, plan: SessionPlan) -> None:
        AsyncCaller.__init__(self, connection, plan.bound_parameters)
        self._plan = plan

    async def __aenter__(self) -> Self:
        session = await self.perform(self._plan.make_begin_or_get_call(self))
        self.bound = {**self.bound, "scope_id": str(session.scope_id)}
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._plan.ends:
            await self.end()
