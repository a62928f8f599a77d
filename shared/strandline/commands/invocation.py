"""What every command gets: the client, and how to print."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

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


def participant_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say who takes part, or on whose behalf to read."""
    for option in (
        click.option("--participant", "participants", multiple=True, metavar="KIND:NAME"),
        click.option("--agent", help="Short for --participant agent:NAME."),
        click.option("--user", help="Short for --participant user:NAME."),
    ):
        command = option(command)
    return command
