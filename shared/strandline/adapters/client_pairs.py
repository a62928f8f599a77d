"""The clients of an adapter, and on whose behalf it reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

from strandline.client.clients import AsyncStrandline, Strandline
from strandline.client.request_building import join_participants

_USER = "user:"


class ClientPair:
    """A blocking and an asynchronous client of one service, each made when it is first used.

    `url` and `key` are by default STRANDLINE_URL and STRANDLINE_API_KEY. Clients that are given
    instead stay their owner's to close. Raises ValueError for an address or a credential that
    cannot be used, and where the kind of client is needed that was not given."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        client: Strandline | None = None,
        async_client: AsyncStrandline | None = None,
    ) -> None:
        self._url, self._key = url, key
        self._client, self._async_client = client, async_client
        if client is None and async_client is None:
            self.blocking  # noqa: B018 -- wrong settings are told at once

    @cached_property
    def blocking(self) -> Strandline:
        """The blocking client."""
        if self._client is None and self._async_client is not None:
            raise ValueError("only an `async_client` was given: give a `client`, too")
        return self._client or Strandline(self._url, self._key)

    @cached_property
    def asynchronous(self) -> AsyncStrandline:
        """The asynchronous client; each event loop has connections of its own."""
        if self._async_client is None and self._client is not None:
            raise ValueError("only a `client` was given: give an `async_client`, too")
        return self._async_client or AsyncStrandline(self._url, self._key)

    def close(self) -> None:
        """Close the connections of the blocking client, unless it was given."""
        if self._client is None and "blocking" in vars(self):
            self.blocking.close()

    async def aclose(self) -> None:
        """Close the connections of both clients, unless they were given."""
        self.close()
        if self._async_client is None and "asynchronous" in vars(self):
            await self.asynchronous.close()


def require_user(participants: Iterable[str] | None) -> list[str]:
    """These participants in order, each once. Raises ValueError unless a user is among them: what
    belongs to no user would be read for all."""
    names = sorted(dict.fromkeys(participants or ()))
    if not any(name.startswith(_USER) and len(name) > len(_USER) for name in names):
        raise ValueError(
            "name the user whose memory this is, as user='alice' or"
            f" participants=['user:alice', 'agent:helper']; here are {names}"
        )
    return names


def join_participants_and_require_user(
    user: str | None, agent: str | None, participants: Iterable[str] | None
) -> list[str]:
    """Everybody that the three arguments of an adapter name. Raises ValueError without a user."""
    return require_user(join_participants(user, agent, participants))


class ParticipantChoice:
    """Whose memory an adapter reads and writes: always the same, or what a function of a run names.
    Raises ValueError without a user, and where a function is given beside names."""

    def __init__(
        self,
        user: str | None,
        agent: str | None,
        participants: Iterable[str] | Callable[..., Iterable[str]] | None,
    ) -> None:
        self._choose: Callable[..., Iterable[str]] | None = None
        self._participants: list[str] = []
        if callable(participants):
            if user or agent:
                raise ValueError("a function of participants names the user and the agent, too")
            self._choose = participants
        else:
            self._participants = join_participants_and_require_user(user, agent, participants)

    def list_participants(self, *run: Any) -> list[str]:
        """Everybody, of a run. Raises ValueError where the function names no user."""
        return self._participants if self._choose is None else require_user(self._choose(*run))
