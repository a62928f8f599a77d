"""The service on one machine, from what is installed. Its modules are imported here and nowhere
else in the command line, and by name: a client does without them."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

_PYTHON = (3, 13)
"""What the service is written for."""


def run(arguments: Sequence[str]) -> NoReturn:
    """Start it and wait for a signal; ends the process. Raises ClickException on another Python,
    and where the service is not installed."""
    if sys.version_info[:2] != _PYTHON:
        raise click.ClickException(
            "The service runs on Python 3.13, and this is Python "
            f"{sys.version_info[0]}.{sys.version_info[1]}: install it in an environment of 3.13; "
            "the client works in this one."
        )
    try:
        command = import_module("strandline.local.run_interruptible")
        command.exit_at_once_on_signals()
        program = import_module("strandline.local.run")
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"The service is not installed ({error.name} is missing): in a clone of the repository "
            "use `make run`, or pip install . './shared[all]'"
        ) from None
    command.exit_now(program.main(arguments))
    raise AssertionError("the process has ended")
