"""The log of the one-machine service: a file that only its owner can read."""

import logging
import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from strandline.observability import logger

_LOG_BYTES = 16 * 1024 * 1024
_REMINDER_SECONDS = 60.0


def make_log_path(directory: Path) -> Path:
    """The log file: a line for each request and job."""
    return directory / "log.jsonl"


class _PrivateLogHandler(RotatingFileHandler):
    """A log that only its owner can read: it names tenants and scopes."""

    _last_reminder = -_REMINDER_SECONDS

    def _open(self) -> TextIOWrapper:
        stream = super()._open()
        os.fchmod(stream.fileno(), 0o600)
        return stream

    def handleError(self, record: logging.LogRecord) -> None:
        """Report a line that could not be written once a minute, without a traceback for each."""
        error = sys.exception()
        if not isinstance(error, OSError):
            super().handleError(record)
        elif time.monotonic() - self._last_reminder >= _REMINDER_SECONDS:
            self._last_reminder = time.monotonic()
            sys.stderr.write(
                f"strandline: {self.baseFilename} cannot be written: {error.strerror}\n"
            )


@contextmanager
def log_to_file(file: Path) -> Generator[None]:
    """Write every line to `file`, with one older file; the terminal gets only warnings."""
    file_handler = _PrivateLogHandler(file, maxBytes=_LOG_BYTES, backupCount=1)
    file_handler.setFormatter(logger.registered_formatter)
    terminal_handler, level = logger.registered_handler, logger.registered_handler.level
    service_logger = logging.getLogger(logger.name)
    service_logger.addHandler(file_handler)
    terminal_handler.setLevel(logging.WARNING)
    try:
        yield
    finally:
        terminal_handler.setLevel(level)
        service_logger.removeHandler(file_handler)
        file_handler.close()
