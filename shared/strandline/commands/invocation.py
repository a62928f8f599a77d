"""What every command gets: the client, how to print, its options, and the service's modules."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypedDict

import click

from strandline.client.clients import Strandline
from strandline.client.retries import Retry
from strandline.commands.output import print_json, print_text

_SECONDS = 5.0
_PYTHON = (3, 13)
"""What the service is written for."""


@dataclass(frozen=True)
class Endpoint:
    """Address and key of the service that the commands speak to."""

    url: str
    key: str | None = field(repr=False)


class Invocation:
    """One run of the command line."""

    def __init__(
        self,
        connect: Callable[[Retry], Strandline],
        find_endpoint: Callable[[], Endpoint],
        as_json: bool,
    ) -> None:
        self._connect, self.as_json = connect, as_json
        self.find_endpoint = find_endpoint
        """The service's address and key, without a client. Raises UsageError if there is none."""

    @functools.cached_property
    def client(self) -> Strandline:
        """The client, made when a command first needs it. A person waits: it gives up soon."""
        return self._connect(Retry(seconds=_SECONDS))

    @functools.cached_property
    def patient_client(self) -> Strandline:
        """A client for long transfers, which waits until the service is back."""
        return self._connect(Retry())

    def print_answer(self, answer: object, text: str) -> None:
        """Print an answer as JSON if that was asked for, else as this text."""
        if self.as_json:
            print_json(answer)
        else:
            print_text(text)


class ParticipantArguments(TypedDict):
    """Who takes part, or on whose behalf to read, as the client's verbs take it."""

    user: str | None
    agent: str | None
    participants: tuple[str, ...]


class ReaderArguments(ParticipantArguments):
    """On whose behalf to read, as the client's reading verbs take it."""

    everybody: bool | None


def add_reader_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say on whose behalf to read; the command gets them as `people`."""

    @click.option("--everybody", is_flag=True, help="All of the tenant, with an admin's key.")
    @add_participant_options
    @functools.wraps(command)
    def gather(*args: Any, people: ParticipantArguments, everybody: bool, **more: Any) -> Any:
        readers = ReaderArguments(**people, everybody=everybody or None)
        return command(*args, people=readers, **more)

    return gather


def add_participant_options(command: Callable[..., Any]) -> Callable[..., Any]:
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


def refuse_former_option(old: str, new: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds an option that is spelled otherwise today, to refuse it and name the new spelling."""

    def refuse(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        del parameter
        if value is not None:
            raise click.UsageError(f"{old} is no option any more: give {new}.", context)

    # A name of its own: an option of today may store its value under the same one.
    name = f"earlier_{old.strip('-')}"
    return click.option(old, name, hidden=True, expose_value=False, callback=refuse)


class RenamedCommandsGroup(click.Group):
    """A group that refuses the earlier words of its commands and names those of today."""

    def __init__(self, *args: Any, new_words: Mapping[str, str], **more: Any) -> None:
        super().__init__(*args, **more)
        self._new_words = new_words

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the words name. Raises UsageError for one that is named otherwise."""
        if new := self._new_words.get(args[0]):
            raise click.UsageError(f"{args[0]!r} is no command any more: use `{new}`.", ctx)
        return super().resolve_command(ctx, args)


def import_service_module(name: str) -> Any:
    """A module of the service, which a client does without: it is imported here and nowhere else in
    the command line, and by name. Raises ClickException on another Python, and where the service is
    not installed."""
    if sys.version_info[:2] != _PYTHON:
        raise click.ClickException(
            "The service runs on Python 3.13, and this is Python "
            f"{sys.version_info[0]}.{sys.version_info[1]}: install it in an environment of 3.13; "
            "the client works in this one."
        )
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"The service is not installed ({error.name} is missing): in a clone of the repository "
            "use `make run` and `make key`, or pip install . './shared[all]'"
        ) from None
