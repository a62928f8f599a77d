"""What background work on the log needs, and what it counts."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from strandline.aws.blobs import BlobStore
from strandline.clock import Clock, utc_now
from strandline.db.database import Database
from strandline.embeddings.embedder import Embedder
from strandline.errors import (
    EmbeddingRefused,
    EmbeddingUnavailable,
    Interrupted,
    PayloadMissing,
    StrandlineError,
)
from strandline.failures import is_permanent_failure
from strandline.llm.tasks import LlmTasks
from strandline.llm.types import ModelResult
from strandline.log import store_counts
from strandline.observability import logger
from strandline.tuning import DEFAULTS, Tuning

EMBED_SECONDS = 15.0
"""What a call to the embedding model may take."""
_PROBE_TEXT = "probe"
"""A text that every embedding model takes."""
_MAX_RESERVED_SECONDS = 90.0
"""Kept for a closed run at most, however long a model may take: a worker has 118 s for all."""


SLICE_EVENTS = 1000
"""Events of a scope that are embedded, and folded, before the next scope has its turn: some seconds
of work, for which a tenant's hint waits at most behind each that is before it."""


SLICE_SECONDS = 5.0
"""A turn of long texts is over sooner: after so many seconds, at the end of a batch."""


class ConcurrentUpdate(Interrupted):
    """Somebody else moved the scope's mark: read it again."""


class Deferred(Interrupted):
    """The fold stops here, and goes on in `seconds`: nothing has failed, nothing is decided."""

    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason)
        self.reason = reason
        self.seconds = seconds

    @property
    def is_out_of_time(self) -> bool:
        """Only this worker has to stop: another may go on at once."""
        return self.reason == _OUT_OF_TIME


_OUT_OF_TIME = "out_of_time"


@dataclass
class Tally:
    """What a job did, for its metrics."""

    embedded_events: int = 0
    embedding_ms: list[float] = field(default_factory=list[float])
    """Milliseconds of each call to the embedding model."""
    failures: int = 0
    """Scopes put off, tenants not swept, a message or a sweep broken off."""
    due_work: list[store_counts.DueWork] = field(default_factory=list[store_counts.DueWork])
    """Of each tenant that a sweep found work in, before it began."""
    fold_ms: list[float] = field(default_factory=list[float])
    """Milliseconds of each scope's fold."""
    cosines: list[float] = field(default_factory=list[float])
    """Of every two user messages that were compared."""
    counters: Counter[str] = field(default_factory=Counter[str])
    """What the folds did and what their model's calls came to, by the metrics' names."""
    deferrals: dict[UUID, Deferred] = field(default_factory=dict[UUID, Deferred])
    """Scopes whose last fold stopped for a model's sake, and what they wait for."""
    retry_delays: dict[UUID, float] = field(default_factory=dict[UUID, float])
    """Of these the ones that were given back, to be gone on with in so many seconds."""
    unfinished_scopes: set[UUID] = field(default_factory=set[UUID])
    """Scopes whose turn was over before their work was: they queue up behind everybody else's."""


@dataclass(frozen=True)
class Worker:
    """What embedding and folding need, and until when (time.monotonic() seconds) they may take."""

    database: Database
    blobs: BlobStore
    embedder: Embedder
    deadline: float
    tally: Tally
    llm: LlmTasks
    tuning: Tuning = DEFAULTS
    """The deployment's; a tenant's own goes before."""
    job: str = "fold"
    """On whose behalf models are asked: a sweep's job by its id."""
    clock: Clock = utc_now
    renew: Callable[[], bool] = lambda: True
    """Says that we are still at it, to whoever else might take it up; False once somebody has. Not
    in a transaction."""
    slice_events: int = SLICE_EVENTS
    """Events of one scope embedded, and folded, before others have theirs."""
    slice_seconds: float = SLICE_SECONDS
    """Or so long, each."""

    def is_out_of_time(self) -> bool:
        """A batch more might not be finished in time, or is somebody else's. Asked between commits:
        it renews."""
        return time.monotonic() > self.deadline - EMBED_SECONDS or not self.renew()

    def require_time(self, seconds: float = EMBED_SECONDS) -> None:
        """Raises NotYet with less time left than that."""
        seconds_left = self.deadline - time.monotonic()
        if seconds_left < seconds:
            raise Deferred(_OUT_OF_TIME, seconds_left)

    def require_time_for_run(self) -> None:
        """Raises NotYet where a model might not be done with a closed run in time."""
        if self.llm.has_model:
            self.require_time(min(self.llm.max_run_seconds + EMBED_SECONDS, _MAX_RESERVED_SECONDS))

    def require_final(self, results: Iterable[ModelResult[Any]], *, waits_for_model: bool) -> None:
        """Raises NotYet where the twin answered only because our time was over, or, while one is
        `waits_for_model`, because the model may be asked again soon."""
        for result in results:
            if result.fallback_reason == _OUT_OF_TIME:
                raise Deferred(_OUT_OF_TIME, self.deadline - time.monotonic())
            if result.retry_after is not None and waits_for_model:
                raise Deferred(str(result.fallback_reason), result.retry_after)


def require_embedding(worker: Worker) -> None:
    """Raise EmbeddingUnavailable unless the model takes a harmless text now. One that takes none
    (a wrong key or model may be a 400, a shortage fails like a fault) refuses nobody's text."""
    worker.renew()
    try:
        worker.embedder.embed([_PROBE_TEXT], timeout=EMBED_SECONDS)
    except EmbeddingRefused as error:
        fault = error.message
    except Exception as error:
        if not is_permanent_failure(error):
            raise
        fault = type(error).__name__
    else:
        return
    raise EmbeddingUnavailable(f"The embedding model takes no text at all: {fault}")


def read_text_head(worker: Worker, tenant: str, cid: str, size: int) -> str | None:
    """The first `size` bytes of a text payload; None, and a line in the log, where the store does
    not hold it: its event goes by its file name then. Raises Unavailable."""
    try:
        return worker.blobs.read_text_prefix(tenant, cid, size)
    except PayloadMissing:
        logger.warning("payload missing", extra={"cid": cid})
        return None


def describe_error(error: Exception) -> str:
    """Why something failed, without memory content: a fault's own words may quote a row."""
    if isinstance(error, StrandlineError):
        return f"{error.code}: {error.message}"
    return f"internal_error: {type(error).__name__}"
