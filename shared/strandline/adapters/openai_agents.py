"""The OpenAI Agents SDK: a session whose items are events of a session of the service.

session = StrandlineSession("support-7", user="alice", agent="helper")
result = await Runner.run(agent, "When does the buoy go out?", session=session)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from agents import TResponseInputItem
from agents.memory import SessionABC, SessionSettings
from agents.memory.session_settings import coerce_session_settings

from strandline.adapters.client_pairs import ClientPair, join_participants_and_require_user
from strandline.adapters.session_records import NewRecord, RetryKeys, SessionRecords, TextPath
from strandline.adapters.step_runners import run_steps_async
from strandline.client.clients import AsyncStrandline
from strandline.client.memory import EventType

_ROLES: Mapping[str, Literal["user", "agent", "system"]] = {
    "user": "user",
    "assistant": "agent",
    "system": "system",
    "developer": "system",
}


class StrandlineSession(SessionABC):
    """A `Session` that keeps its items in the service, exactly as they were, in order.

    `session_id` is the name of the service's session, which belongs to these participants alone:
    give conversations of several users different ones. Messages, calls of tools and their results
    are events, which recall and contexts find. `url` and `key` are by default STRANDLINE_URL and
    STRANDLINE_API_KEY; a client of your own may be given instead. `session_settings` may limit how
    many items a run reads. Safe for tasks.

    What is added is stored once, and all or none of what a request holds: where the SDK adds the
    same again after an error, it is stored under the key of the attempt before. `pop_item` and
    `clear_session` erase where the key has the right `erase`; without it items are hidden, and a
    warning says so once. Raises ValueError where no user is named, and ServiceError.
    """

    def __init__(
        self,
        session_id: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        url: str | None = None,
        key: str | None = None,
        async_client: AsyncStrandline | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        self._participants = join_participants_and_require_user(user, agent, participants)
        self._clients = ClientPair(url, key, async_client=async_client)
        self._records = SessionRecords("openai_agents")
        self._keys = RetryKeys()

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The items in order: all, or the newest `limit`, by default that of the settings."""
        most = limit
        if most is None and self.session_settings is not None:
            most = self.session_settings.limit
        if most is not None and most <= 0:
            return []
        records = await self._run(
            self._records.read(self._participants, self.session_id, limit=most)
        )
        return [cast("TResponseInputItem", record.body) for record in records]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items at the end."""
        if not items:
            return
        bodies = [cast("Mapping[str, Any]", item) for item in items]
        records = [_make_record(body) for body in bodies]
        with self._keys.attempt([bodies]) as (key,):
            await self._run(self._records.append(self._participants, self.session_id, records, key))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item and give it; None if there is none."""
        records = await self._run(self._records.read(self._participants, self.session_id, limit=1))
        if not records:
            return None
        await self._run(
            self._records.remove(self._participants, self.session_id, [records[0].event_id])
        )
        return cast("TResponseInputItem", records[0].body)

    async def clear_session(self) -> None:
        """Remove all items."""
        records = await self._run(self._records.read(self._participants, self.session_id))
        ids = [record.event_id for record in records]
        if ids:
            await self._run(
                self._records.remove(self._participants, self.session_id, ids, is_all=True)
            )

    async def aclose(self) -> None:
        """Close the connections of the client that this session made."""
        await self._clients.aclose()

    async def _run(self, steps: Any) -> Any:
        return await run_steps_async(self._clients.asynchronous, steps)


def _make_record(item: Mapping[str, Any]) -> NewRecord:
    """An item as a record: its kind decides who says it, and what of it is text."""
    kind = str(item.get("type") or "message")
    role = _ROLES.get(str(item.get("role", "")), "agent")
    event_type: EventType = "message"
    text_at: TextPath | None = None
    if kind == "message":
        text_at = _find_path_of_longest_text(item.get("content"), ["content"])
    elif kind == "reasoning":
        event_type = "thought"
        text_at = _find_path_of_longest_text(item.get("summary"), ["summary"])
    elif kind.endswith("_output"):
        event_type = "observation"
        text_at = _find_path_of_longest_text(item.get("output"), ["output"])
    else:
        event_type = "action"
    call_text = (
        " ".join(str(item[name]) for name in ("name", "arguments") if item.get(name)) or kind
    )
    return NewRecord(item, text_at, role, event_type, call_text)


def _find_path_of_longest_text(value: object, path: Sequence[str | int]) -> TextPath | None:
    """Where the longest text of a content stands: the content itself, or a part's `text`."""
    if isinstance(value, str):
        return path
    best: tuple[int, TextPath] | None = None
    for place, part in enumerate(cast("list[Any]", value) if isinstance(value, list) else []):
        text = cast("Mapping[str, Any]", part).get("text") if isinstance(part, Mapping) else None
        if isinstance(text, str) and (best is None or len(text) > best[0]):
            best = (len(text), [*path, place, "text"])
    return best and best[1]
