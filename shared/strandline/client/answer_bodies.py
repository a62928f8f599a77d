"""The body of an answer as it comes: no more bytes than an answer of the service has, in no more
time than the caller waits. What is counted is what was decompressed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from strandline.client.errors import ConnectionFailedError, UnexpectedAnswerError

MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""The most bytes of an answer; the service's pages end below 5 MiB."""


class BodyCollector:
    """Collects an answer in memory or, with `file`, on the disk. Used in a `with` block."""

    def __init__(
        self,
        place: str,
        seconds: float | None,
        *,
        file: Path | None = None,
        max_bytes: int = MAX_ANSWER_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place, self._clock, self._max_bytes = place, clock, max_bytes
        self._deadline = None if seconds is None else clock() + seconds
        self._path = file
        self._file: BinaryIO | None = None
        self._pieces = bytearray()
        self._size = 0

    @property
    def writes_to_file(self) -> bool:
        """Whether a piece is written to the disk."""
        return self._path is not None

    @property
    def content(self) -> bytes:
        """The bytes; none of a file."""
        return bytes(self._pieces)

    def append_piece(self, piece: bytes) -> None:
        """Take the next piece. Raises UnexpectedAnswerError and ConnectionFailedError."""
        self._size += len(piece)
        if self._size > self._max_bytes:
            raise UnexpectedAnswerError(
                f"The answer of {self._place} goes on after {self._max_bytes:,} bytes."
            )
        if self._deadline is not None and self._clock() > self._deadline:
            raise ConnectionFailedError(
                f"{self._place} did not answer in time.",
                details={"sent": True, "reason": "ReadTimeout"},
                retryable=True,
            )
        if self._file is None:
            self._pieces += piece
        else:
            self._file.write(piece)

    def __enter__(self) -> BodyCollector:
        self._file = None if self._path is None else self._path.open("wb")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
