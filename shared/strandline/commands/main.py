"""`strandline`: the group of all commands, the service that they speak to, and what becomes of
errors.

Exit codes: 0 done, 1 refused, 2 a wrong command line, 3 the service cannot be reached, 130
interrupted.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from strandline import __version__
from strandline.client.clients import Strandline
from strandline.client.errors import ServiceError, UnavailableError
from strandline.client.retries import Retry
from strandline.commands import (
    administration,
    console,
    erasing,
    hook,
    mcp_stdio_bridge,
    memory,
    operating,
    simulate_and_verify,
    transfer,
)
from strandline.commands.invocation import (
    Endpoint,
    Invocation,
    RenamedCommandsGroup,
    import_service_module,
)
from strandline.commands.output import explain_error_for_cli, print_text
from strandline.errors import StrandlineError

_VALUES = {"--json": "", "--url": " URL", "--key": " KEY"}
"""The options that stand before the command, and what follows each."""
EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 1, 3, 130


def find_local_endpoint() -> Endpoint | None:
    """What the one-machine service left for this machine's tools, if it did."""
    file = Path(os.environ.get("STRANDLINE_DATA_DIR") or ".strandline") / "local.json"
    try:
        place = json.loads(file.read_text())
        return Endpoint(place["url"], place["key"])
    except (OSError, ValueError, KeyError):
        return None


@click.group(
    cls=RenamedCommandsGroup,
    new_words=operating.NEW_WORDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--url", envvar="STRANDLINE_URL", help="Address of the service [STRANDLINE_URL].")
@click.option("--key", envvar="STRANDLINE_API_KEY", help="API key [STRANDLINE_API_KEY].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.version_option(__version__, "-V", "--version", prog_name="strandline")
@click.pass_context
def cli(context: click.Context, url: str | None, key: str | None, as_json: bool) -> None:
    """Memory for AI agents: store events, ask, import and export.

    Without an address the commands speak to the service that `make run` started here.
    """

    def find_endpoint() -> Endpoint:
        place = None if url else find_local_endpoint()
        address = url or (place.url if place else None)
        if address is None:
            raise click.UsageError(
                "No service: give --url, set STRANDLINE_URL, or run this where `make run` runs."
            )
        return Endpoint(address, key or (place.key if place else None))

    def connect(retry: Retry) -> Strandline:
        endpoint = find_endpoint()
        try:
            client = Strandline(endpoint.url, endpoint.key, retry=retry)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        return context.with_resource(client)

    context.obj = Invocation(connect, find_endpoint, as_json)


@cli.command("run")
@click.option("--tls", is_flag=True, help="Serve HTTPS, with client certificates.")
def run_service(tls: bool) -> None:
    """Start the whole service on this machine; Ctrl-C stops it.

    It needs Python 3.13 and the service's distribution, and no Docker and no AWS account.
    Data lies in .strandline, or where STRANDLINE_DATA_DIR says.
    """
    command = import_service_module("strandline.local.run_interruptible")
    command.exit_at_once_on_signals()
    program = import_service_module("strandline.local.run")
    command.exit_without_waiting_for_threads(program.main(["--tls"] if tls else []))


@cli.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def print_completion_script(shell: str) -> None:
    """Print the script that completes commands: eval "$(strandline completion bash)"."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "strandline", "_STRANDLINE_COMPLETE").source())


for _command in (
    *(*memory.COMMANDS, *erasing.COMMANDS, *transfer.COMMANDS),
    *administration.COMMANDS,
    *operating.COMMANDS,
    *simulate_and_verify.COMMANDS,
    *mcp_stdio_bridge.COMMANDS,
    *console.COMMANDS,
    *hook.COMMANDS,
):
    cli.add_command(_command)


def _explain_misplaced_option(error: click.ClickException) -> click.ClickException:
    """The error, or for an option of `strandline` after the command one that says its place."""
    value = _VALUES.get(error.option_name) if isinstance(error, click.NoSuchOption) else None
    if not isinstance(error, click.NoSuchOption) or error.ctx is None or value is None:
        return error
    program, _, command = error.ctx.command_path.partition(" ")
    option = f"{error.option_name}{value}"
    return click.UsageError(
        f"{error.option_name} stands before the command: {program} {option} {command} ….", error.ctx
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. No traceback for a user's mistake."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result: Any = cli.main(args, "strandline", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        message = io.StringIO()
        _explain_misplaced_option(error).show(message)
        print_text(message.getvalue().rstrip("\n"), err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        print_text("strandline: interrupted", err=True)
        return EXIT_INTERRUPTED
    except ServiceError as error:
        print_text(f"strandline: {explain_error_for_cli(error)}", err=True)
        return EXIT_UNREACHABLE if isinstance(error, UnavailableError) else EXIT_REFUSED
    except StrandlineError as error:  # of the service itself: `operate`
        print_text(f"strandline: {error.message}", err=True)
        return EXIT_REFUSED
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except UnicodeError as error:
        print_text(f"strandline: a text is not UTF-8, or a key not ASCII ({error})", err=True)
        return EXIT_REFUSED
    except OSError as error:
        print_text(f"strandline: {error}", err=True)
        return EXIT_REFUSED


def run_and_exit() -> None:
    """The program: one command. What is done is not interrupted any more: Python would end by the
    signal, as if it had failed."""
    exit_code = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(exit_code)


if __name__ == "__main__":
    run_and_exit()
