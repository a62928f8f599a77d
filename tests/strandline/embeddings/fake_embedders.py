"""Embedders that do what a test needs and no model does on demand."""

import functools
import hashlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from strandline.aws.blobs import BlobStore
from strandline.background.calibrate_space import measure_space
from strandline.background.process_events import embed_and_fold_due_scopes
from strandline.db.database import Database
from strandline.embeddings.embedder import Embedder, Purpose
from strandline.embeddings.reachable import ReachableEmbedders
from strandline.errors import EmbeddingRefused, EmbeddingUnavailable
from strandline.jobs.worker_resources import SLICE_EVENTS, JobMetrics, WorkerResources
from strandline.llm.tasks import LlmTasks
from strandline.log import store_work
from tests.support import NO_LIMITS_SETTINGS


@functools.cache
def _shipped_texts() -> frozenset[str]:
    """The texts by which a space is measured."""
    recorder = _Recorder()
    measure_space(recorder)
    return frozenset(recorder.texts)


class _Recorder:
    """An embedder to which everything is alike, and that keeps the texts."""

    space = "recorder/1"
    dimensions = 1

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """As the protocol says."""
        self.texts += texts
        return [[1.0] for _ in texts]


class WordEmbedder:
    """A vector per text from its words alone: quick, the same every time, counted."""

    def __init__(self, space: str = "words/16", dimensions: int = 16) -> None:
        self.space = space
        self.dimensions = dimensions
        self.embedded_texts: list[str] = []
        """Every text that was embedded, in order, but for those by which a space is measured."""
        self.before_embed: Callable[[Sequence[str]], None] = lambda texts: None
        """Called first; may raise, wait, or write."""
        self._lock = threading.Lock()

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """As the protocol says."""
        del timeout
        self.before_embed(texts)
        with self._lock:
            self.embedded_texts += [text for text in texts if text not in _shipped_texts()]
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [0.001] * self.dimensions
        for word in text.lower().split():
            vector[hashlib.sha256(word.encode()).digest()[0] % self.dimensions] += 1.0
        length = math.sqrt(sum(x * x for x in vector))
        return [x / length for x in vector]


class KnownEmbedders(ReachableEmbedders):
    """Just these models, each by its space."""

    def __init__(self, *embedders: Embedder) -> None:
        super().__init__(None)
        self._by_space = {embedder.space: embedder for embedder in embedders}

    def find(self, configured_embedder: Embedder, space: str | None) -> Embedder | None:
        """As `ReachableEmbedders`."""
        return super().find(configured_embedder, space) or self._by_space.get(space or "")


def make_worker(
    database: Database,
    blobs: BlobStore,
    embedder: Embedder,
    llm: object | None = None,
    *,
    seconds: float = 60.0,
    slice_events: int = SLICE_EVENTS,
) -> WorkerResources:
    """A worker with so much time, all of it for one turn, whose language model is the heuristic
    model, or what a test gives it."""
    tasks = cast("LlmTasks", llm) if llm else LlmTasks(database, NO_LIMITS_SETTINGS, None)
    worker = WorkerResources(
        database, blobs, embedder, time.monotonic() + seconds, JobMetrics(), tasks
    )
    return replace(worker, slice_events=slice_events, slice_seconds=seconds)


def process_due(worker: WorkerResources) -> int:
    """Embed whatever is due anywhere, as a sweep does tenant by tenant; gives how many scopes were
    finished. One tenant's failure holds up no other."""
    finished_count = 0
    for tenant in store_work.list_tenants_with_work(
        worker.database.connection(), worker.embedder.space
    ):
        try:
            finished_count += embed_and_fold_due_scopes(worker, tenant).finished_count
        except Exception:
            worker.tally.failures += 1
    return finished_count


def refuse_texts(word: str) -> Callable[[Sequence[str]], None]:
    """Refuse every call that holds the word."""

    def before(texts: Sequence[str]) -> None:
        if any(word in text for text in texts):
            raise EmbeddingRefused("the model does not take this text")

    return before


def fail_texts(word: str = "") -> Callable[[Sequence[str]], None]:
    """Be away for every call that holds the word."""

    def before(texts: Sequence[str]) -> None:
        if any(word in text for text in texts):
            raise EmbeddingUnavailable("the endpoint does not answer")

    return before


def delay(seconds: float) -> Callable[[Sequence[str]], None]:
    """Take this long."""
    return lambda texts: time.sleep(seconds)
