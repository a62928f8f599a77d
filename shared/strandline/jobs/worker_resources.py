"""The dependencies of embedding and folding, their counts, and the log line with these."""

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from strandline.aws.blobs import BlobStore
from strandline.clock import Clock, utc_now
from strandline.db.database import Database
from strandline.embeddings.embedder import Embedder
from strandline.embeddings.reachable import ReachableEmbedders
from strandline.errors import (
    EmbeddingRefused,
    EmbeddingUnavailable,
    Interrupted,
    PayloadMissing,
    StrandlineError,
)
from strandline.llm.tasks import LlmTasks
from strandline.llm.types import ModelResult
from strandline.log import store_tenant_counts
from strandline.observability import downsample_to_quantiles, logger, make_emf_fields, trace_context
from strandline.permanent_failures import is_permanent_failure
from strandline.tuning import DEFAULTS, Tuning

EMBED_SECONDS = 15.0
"""The time limit of a call to the embedding model, in seconds."""
_PROBE_TEXT = "probe"
"""A text that every working embedding model accepts."""
_MAX_RESERVED_SECONDS = 90.0
"""At most this much time is reserved for a closed run, however long a model may take: a worker has
118 s in all."""


SLICE_EVENTS = 1000
"""How many events of a scope are embedded, and folded, before the next scope's turn: some seconds
of work. A message of another tenant waits at most this long behind each scope before it."""


SLICE_SECONDS = 5.0
"""A scope's turn also ends after this many seconds, at the end of a batch: long texts take
longer."""


class ConcurrentUpdate(Interrupted):
    """Another worker has moved the scope's `folded_seq`: read the state again."""


class Deferral(NamedTuple):
    """Why work has to wait: nothing has failed and nothing is decided."""

    reason: str
    seconds: float
    """How long it waits."""

    @property
    def is_out_of_time(self) -> bool:
        """Whether only this worker has to stop: another one may continue at once."""
        return self.reason == _OUT_OF_TIME


class WorkDeferred(Interrupted):
    """The fold stops here and continues in `seconds`."""

    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason)
        self.deferral = Deferral(reason, seconds)


_OUT_OF_TIME = "out_of_time"


@dataclass
class JobMetrics:
    """Counts and times of a job's work, for its metrics."""

    embedded_events: int = 0
    embedding_ms: list[float] = field(default_factory=list[float])
    """Milliseconds of each call to the embedding model."""
    failures: int = 0
    """Scopes postponed, tenants not swept, messages or sweeps that failed."""
    due_work: list[store_tenant_counts.DueWork] = field(
        default_factory=list[store_tenant_counts.DueWork]
    )
    """The due work of each swept tenant, before the sweep began."""
    fold_ms: list[float] = field(default_factory=list[float])
    """Milliseconds of each scope's fold."""
    cosines: list[float] = field(default_factory=list[float])
    """The cosine of each comparison of two user messages."""
    counters: Counter[str] = field(default_factory=Counter[str])
    """Counts of folds and of their model calls, by metric name."""
    samples: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Values of which the distribution is recorded, by metric name."""


NO_OTHER_EMBEDDERS = ReachableEmbedders(None)
"""Where the configured embedding model is the only one."""


@dataclass(frozen=True)
class WorkerResources:
    """The dependencies of embedding and folding. `deadline` is in time.monotonic() seconds."""

    database: Database
    blobs: BlobStore
    embedder: Embedder
    deadline: float
    tally: JobMetrics
    llm: LlmTasks
    tuning: Tuning = DEFAULTS
    """The deployment's; a tenant's own overrides it."""
    job: str = "fold"
    """The name under which model calls are recorded; for a sweep its job's id."""
    clock: Clock = utc_now
    renew: Callable[[], bool] = lambda: True
    """Renews the lease of the current work. Returns False once another worker has taken it over.
    Must not be called in a transaction."""
    slice_events: int = SLICE_EVENTS
    """See SLICE_EVENTS."""
    slice_seconds: float = SLICE_SECONDS
    """See SLICE_SECONDS."""
    embedders: ReachableEmbedders = NO_OTHER_EMBEDDERS
    """The models of tenants that read another space than that of `embedder`."""

    def for_reader_of(self, reading_space: str | None) -> "WorkerResources":
        """These, with the model of a tenant that reads this space: see
        `ReachableEmbedders.choose`."""
        return replace(self, embedder=self.embedders.choose(self.embedder, reading_space))

    def is_out_of_time(self) -> bool:
        """Whether to stop: another batch might not finish in time, or the work now belongs to
        another worker. Call it between commits only, as it renews the lease."""
        return time.monotonic() > self.deadline - EMBED_SECONDS or not self.renew()

    def require_seconds_left(self, seconds: float = EMBED_SECONDS) -> None:
        """Raise WorkDeferred if less than `seconds` are left."""
        seconds_left = self.deadline - time.monotonic()
        if seconds_left < seconds:
            raise WorkDeferred(_OUT_OF_TIME, seconds_left)

    def require_time_for_closed_run(self) -> None:
        """Raise WorkDeferred if a model might not finish a closed run in time."""
        if self.llm.has_model:
            self.require_seconds_left(
                min(self.llm.max_run_seconds + EMBED_SECONDS, _MAX_RESERVED_SECONDS)
            )

    def require_final_results(
        self, results: Iterable[ModelResult[Any]], *, waits_for_model: bool
    ) -> None:
        """Raise WorkDeferred if one of the results is a fallback that need not stand: the heuristic
        model answered because the worker's time was up, or, with `waits_for_model`, because the
        model is expected back soon."""
        for result in results:
            if result.fallback_reason == _OUT_OF_TIME:
                raise WorkDeferred(_OUT_OF_TIME, self.deadline - time.monotonic())
            if result.retry_after is not None and waits_for_model:
                raise WorkDeferred(str(result.fallback_reason), result.retry_after)


def probe_embedding_model(worker: WorkerResources) -> None:
    """Raise EmbeddingUnavailable unless the model accepts a harmless text now. A model that accepts
    no text at all (a wrong key or model name may be a 400, a shortage may look like a permanent
    failure) has not refused a particular text."""
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
    raise EmbeddingUnavailable(f"The embedding model accepts no text at all: {fault}")


def read_payload_text_head(
    worker: WorkerResources, tenant: str, cid: str, size: int, mime_type: str | None
) -> str | None:
    """The first `size` bytes of a text payload, as text. If the payload is missing in the store:
    None, and a warning in the log; its event is then represented by its file name. Raises
    Unavailable."""
    try:
        return worker.blobs.read_text_prefix(tenant, cid, size, mime_type)
    except PayloadMissing:
        logger.warning("payload missing", extra={"cid": cid})
        return None


def describe_error(error: Exception) -> str:
    """An error's code and message, without memory content: an unexpected error's own text may quote
    a row, so only its type is named."""
    if isinstance(error, StrandlineError):
        return f"{error.code}: {error.message}"
    return f"internal_error: {type(error).__name__}"


@contextmanager
def job_log_context(
    tally: JobMetrics, function: str, kind: str, trace: str, tenant: str
) -> Generator[None]:
    """Log a job's lines with one trace id; the last line holds its metrics, and names the tenant
    whose work it was, if there is one."""
    start = time.monotonic()
    with trace_context(trace):
        try:
            yield
        except Exception:
            tally.failures = max(tally.failures, 1)
            raise
        finally:
            metrics: dict[str, float | list[float]] = {
                "DurationMilliseconds": round((time.monotonic() - start) * 1000, 1),
                "EventsEmbedded": tally.embedded_events,
                "EmbeddingMilliseconds": tally.embedding_ms,
                "WorkFailures": tally.failures,
                "FoldMilliseconds": tally.fold_ms,
                "SimilarityCosine": downsample_to_quantiles(tally.cosines),
                **{name: downsample_to_quantiles(values) for name, values in tally.samples.items()},
                **tally.counters,
            }
            if tally.due_work:
                metrics["ScopesDue"] = sum(due.scopes for due in tally.due_work)
                metrics["OldestDueSeconds"] = max(due.seconds for due in tally.due_work)
            whose = {"tenant": tenant} if tenant else {}
            dimensions = {"function": function, "job": kind}
            logger.info("job", extra=whose | make_emf_fields(dimensions, metrics))
