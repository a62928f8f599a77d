"""The service on one machine, from what is installed. Its packages are imported here and nowhere
else in the command line, and by name: a client does without them."""

from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click


def run(arguments: Sequence[str]) -> NoReturn:
    """Start it and wait for a signal; ends the process. Raises ClickException where the service's
    packages are not installed."""
    command = import_module("strandline.local.run_interruptible")
    command.exit_at_once_on_signals()
    try:
        program = import_module("strandline.local.run")
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"The service needs packages that are not installed ({error.name}): "
            "pip install 'strandline[service]'"
        ) from None
    command.exit_now(program.main(arguments))
    raise AssertionError("the process has ended")
