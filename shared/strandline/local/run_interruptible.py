"""`python -m strandline.local.run_interruptible MODULE ARGUMENTS...`: runs a program's `main` so
that Ctrl-C and SIGTERM end it with one line at any moment, even during its imports.

Nothing is cleaned up then: the next start recovers from the data, and the database's guard stops
the server once this process is gone. This module must not import anything slow.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable

GRACE_SECONDS = 3.5
"""How long a requested stop may take before it is cut off."""
EXIT_INTERRUPTED = 130


def main() -> int:
    """Run the module that the command line names."""
    module = sys.argv[1]
    exit_at_once_on_signals()
    sys.argv[0:2] = [f"strandline {module.rpartition('.')[2]}"]
    from importlib import import_module

    program = import_module(module)
    try:
        code: int = program.main()
    except Exception as error:
        from psycopg import Error

        from strandline.errors import StrandlineError
        from strandline.local.postgres_installation import PostgresUnusable

        if not isinstance(error, (StrandlineError, PostgresUnusable, Error, OSError)):
            raise
        print(f"strandline: {error}", file=sys.stderr)
        return 1
    return code


def exit_at_once_on_signals() -> None:
    """From now on SIGINT and SIGTERM end this process at once, with one line."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _exit_interrupted)


def stop_on_first_signal(stop: Callable[[], None]) -> None:
    """From now on the first of them calls `stop` and ends the process GRACE_SECONDS later, whatever
    it is doing. Later ones change nothing."""

    def on_signal(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            # Not SIG_IGN: Python reports a signal as lost that is pending when it becomes ignored.
            signal.signal(number, _ignore_signal)
        stop()
        start_exit_timer()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)


def _ignore_signal(*_: object) -> None:
    """Do nothing."""


def start_exit_timer(code: int = 0) -> None:
    """End the process with `code` after GRACE_SECONDS, whatever it is doing then."""
    timer = threading.Timer(GRACE_SECONDS, _exit_after_grace, (code,))
    timer.daemon = True
    timer.start()


def exit_without_waiting_for_threads(code: int) -> None:
    """End the process without waiting for its threads: a request may take half a minute."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _exit_interrupted(*_: object) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal's Ctrl-C may send both
        signal.signal(number, signal.SIG_IGN)
    os.write(2, b"\nstrandline: interrupted\n")
    os._exit(EXIT_INTERRUPTED)


def _exit_after_grace(code: int) -> None:
    if not code:
        os.write(
            1,
            b"Stopped; unfinished work was cut off. Everything that was acknowledged is kept.\n",
        )
    os._exit(code)


if __name__ == "__main__":
    exit_without_waiting_for_threads(main())
