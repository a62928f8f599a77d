"""What a call costs: Strandline through its handlers beside one plain table, block by block.

Inputs are made, and vectors known, before the clock runs: what is timed is the system's own work.
The sides take turns, so that a busy moment of the machine falls on both.
"""

import gc
import itertools
import sqlite3
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median, quantiles
from typing import Protocol

from strandline.embeddings.embedder import Embedder, Purpose
from tests.bench.locomo import Conversation, Turn

type Call = Callable[[], object]
"""One call, ready to be timed. Raises when the answer is not the one wanted."""

BATCH = 100
_BLOCK = 20
"""Calls of one side before it is the other's turn."""


class Side(Protocol):
    """One of the systems compared."""

    def writes(self, lane: str, turns: Sequence[Turn], size: int) -> list[Call]:
        """Calls that store these turns in a conversation `lane`, `size` at a time."""
        ...

    def searches(self, lane: str, conversation: Conversation) -> list[Call]:
        """Store a conversation with its vectors; gives calls that ask it its questions."""
        ...

    def analyze(self) -> None:
        """Let the planner know how large the tables are, as autovacuum does within a minute."""
        ...


def of_calls(
    sides: Mapping[str, Side], conversation: Conversation, *, singles: int, batches: int, asks: int
) -> dict[str, dict[str, float]]:
    """Milliseconds of a call, for each side: the median of single appends, of an event in batches
    of 100, and of searches; of these the 95th percentile too. Warm, after `analyze`."""
    turns = list(_first(BATCH * max(batches, singles // BATCH + 1), conversation.turns))
    query = {name: side.searches("search", conversation) for name, side in sides.items()}
    for name, side in sides.items():
        side.analyze()
        for call in [*side.writes("warm", turns[:_BLOCK], 1), *query[name][:_BLOCK]]:
            call()

    def writes(lane: str, count: int, size: int) -> dict[str, list[Call]]:
        return {name: side.writes(lane, turns[:count], size) for name, side in sides.items()}

    single = interleave(writes("single", singles, 1), _BLOCK)
    batch = interleave(writes("batch", BATCH * batches, BATCH), 1)
    search = interleave({name: list(_first(asks, query[name])) for name in sides}, _BLOCK)
    return {
        name: {
            "write_ms": _milliseconds(median(single[name])),
            "write_batch_ms": _milliseconds(median(batch[name]) / BATCH),
            "search_p50_ms": _milliseconds(median(search[name])),
            "search_p95_ms": _milliseconds(quantiles(search[name], n=20)[-1]),
        }
        for name in sides
    }


def _first[Item](count: int, items: Sequence[Item]) -> "itertools.islice[Item]":
    """So many, from the beginning again where they end."""
    return itertools.islice(itertools.cycle(items), count)


def interleave(calls: Mapping[str, Sequence[Call]], block: int) -> dict[str, list[float]]:
    """Seconds of each call. Sides take turns after `block` calls, and by turns begin."""
    took: dict[str, list[float]] = {name: [] for name in calls}
    blocks = {
        name: list(itertools.batched(of_side, block, strict=False))
        for name, of_side in calls.items()
    }
    for n in range(max(map(len, blocks.values()))):
        for name in sorted(blocks, reverse=n % 2 == 1):
            gc.collect()  # not while the other's clock runs
            for call in blocks[name][n]:
                began = time.perf_counter()
                call()
                took[name].append(time.perf_counter() - began)
    return took


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


_VECTORS = """
create table if not exists purposed_vectors (
    space text, purpose text, text text, vector blob, primary key (space, purpose, text))
"""


class RememberingEmbedder:
    """An embedder that remembers, in an SQLite file if there is one: a text costs nothing the
    second time."""

    def __init__(self, embedder: Embedder, path: Path | None = None) -> None:
        self._embedder = embedder
        self._path = path
        self._vectors: dict[tuple[str, str], list[float]] = {}
        if path:
            with closing(sqlite3.connect(path)) as file:
                file.execute(_VECTORS)
                rows = file.execute(
                    "select purpose, text, vector from purposed_vectors where space = ?",
                    [self.space],
                )
                self._vectors = {
                    (kept, text): array("f", vector).tolist() for kept, text, vector in rows
                }

    @property
    def space(self) -> str:
        """As the embedder's behind it."""
        return self._embedder.space

    @property
    def dimensions(self) -> int:
        """As the embedder's behind it."""
        return self._embedder.dimensions

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """Vectors, in order; only of new texts from the embedder."""
        new = [text for text in dict.fromkeys(texts) if (purpose, text) not in self._vectors]
        if new:
            vectors = self._embedder.embed(new, timeout=timeout, purpose=purpose)
            made = {(purpose, text): vector for text, vector in zip(new, vectors, strict=True)}
            self._vectors |= made
            if self._path:
                rows = [
                    (self.space, *key, array("f", vector).tobytes()) for key, vector in made.items()
                ]
                with closing(sqlite3.connect(self._path, timeout=60)) as file, file:
                    file.executemany(
                        "insert or ignore into purposed_vectors values (?, ?, ?, ?)", rows
                    )
        return [self._vectors[purpose, text] for text in texts]
