"""What every command gets: the client, and how to print."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypedDict

import click

from strandline.client.clients import Strandline
from strandline.client.retries import Retry

_SECONDS = 5.0


class Invocation:
    """One run of the command line."""

    def __init__(self, connect: Callable[[Retry], Strandline], as_json: bool) -> None:
        self._connect, self.as_json = connect, as_json

    @functools.cached_property
    def client(self) -> Strandline:
        """The client, made when a command first needs it. A person waits: it gives up soon."""
        return self._connect(Retry(seconds=_SECONDS))

    @functools.cached_property
    def patient_client(self) -> Strandline:
        """A client for long transfers, which waits until the service is back."""
        return self._connect(Retry())


class ParticipantArguments(TypedDict):
    """Who takes part, or on whose behalf to read, as the client's verbs take it."""

    user: str | None
    agent: str | None
    participants: tuple[str, ...]


class ReaderArguments(ParticipantArguments):
    """On whose behalf to read, as the client's reading verbs take it."""

    everybody: bool | None


def reader_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say on whose behalf to read; the command gets them as `people`."""

    @click.option("--everybody", is_flag=True, help="All of the tenant, with an admin's key.")
    @participant_options
    @functools.wraps(command)
    def gather(*args: Any, people: ParticipantArguments, everybody: bool, **more: Any) -> Any:
        readers = ReaderArguments(**people, everybody=everybody or None)
        return command(*args, people=readers, **more)

    return gather


def participant_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say who takes part; the command gets them as `people`."""

    @functools.wraps(command)
    def gather(
        *args: Any, user: str | None, agent: str | None, participants: tuple[str, ...], **more: Any
    ) -> Any:
        people = ParticipantArguments(user=user, agent=agent, participants=participants)
        return command(*args, people=people, **more)

    gathering: Callable[..., Any] = gather
    for option in (
        click.option("--participant", "participants", multiple=True, metavar="KIND:NAME"),
        click.option("--agent", help="Short for --participant agent:NAME."),
        click.option("--user", help="Short for --participant user:NAME."),
    ):
        gathering = option(gathering)
    return gathering
