"""What background work on the log needs, and what it counts."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from strandline.aws.blobs import Blobs
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
from strandline.failures import recurs
from strandline.llm.tasks import Reasoner
from strandline.llm.types import Done
from strandline.log import store_counts
from strandline.observability import logger
from strandline.tuning import DEFAULTS, Tuning

EMBED_SECONDS = 15.0
"""What a call to the embedding model may take."""
_HARMLESS = "probe"
"""A text that every embedding model takes."""
_MOST_RESERVED = 90.0
"""Kept for a closed run at most, however long a model may take: a worker has 118 s for all."""


TURN = 1000
"""Events of a scope that are embedded, and folded, before the next scope has its turn: some seconds
of work, for which a tenant's hint waits at most behind each that is before it."""


TURN_SECONDS = 5.0
"""A turn of long texts is over sooner: after so many seconds, at the end of a batch."""


class Overtaken(Interrupted):
    """Somebody else moved the scope's mark: read it again."""


class NotYet(Interrupted):
    """The fold stops here, and goes on in `seconds`: nothing has failed, nothing is decided."""

    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason)
        self.reason = reason
        self.seconds = seconds

    @property
    def out_of_time(self) -> bool:
        """Only this worker has to stop: another may go on at once."""
        return self.reason == _OUT_OF_TIME


_OUT_OF_TIME = "out_of_time"


@dataclass
class Tally:
    """What a job did, for its metrics."""

    events: int = 0
    calls: list[float] = field(default_factory=list[float])
    """Milliseconds of each call to the embedding model."""
    failures: int = 0
    """Scopes put off, tenants not swept, a message or a sweep broken off."""
    due: list[store_counts.Due] = field(default_factory=list[store_counts.Due])
    """Of each tenant that a sweep found work in, before it began."""
    folds: list[float] = field(default_factory=list[float])
    """Milliseconds of each scope's fold."""
    cosines: list[float] = field(default_factory=list[float])
    """Of every two user messages that were compared."""
    counts: Counter[str] = field(default_factory=Counter[str])
    """What the folds did and what their model's calls came to, by the metrics' names."""
    waits: dict[UUID, NotYet] = field(default_factory=dict[UUID, NotYet])
    """Scopes whose last fold stopped for a model's sake, and what they wait for."""
    later: dict[UUID, float] = field(default_factory=dict[UUID, float])
    """Of these the ones that were given back, to be gone on with in so many seconds."""
    more: set[UUID] = field(default_factory=set[UUID])
    """Scopes whose turn was over before their work was: they queue up behind everybody else's."""


@dataclass(frozen=True)
class Worker:
    """What embedding and folding need, and until when (time.monotonic() seconds) they may take."""

    database: Database
    blobs: Blobs
    embedder: Embedder
    deadline: float
    tally: Tally
    reasoner: Reasoner
    tuning: Tuning = DEFAULTS
    """The deployment's; a tenant's own goes before."""
    job: str = "fold"
    """On whose behalf models are asked: a sweep's job by its id."""
    clock: Clock = utc_now
    renew: Callable[[], bool] = lambda: True
    """Says that we are still at it, to whoever else might take it up; False once somebody has. Not
    in a transaction."""
    turn: int = TURN
    """Events of one scope embedded, and folded, before others have theirs."""
    turn_seconds: float = TURN_SECONDS
    """Or so long, each."""

    def out_of_time(self) -> bool:
        """A batch more might not be finished in time, or is somebody else's. Asked between commits:
        it renews."""
        return time.monotonic() > self.deadline - EMBED_SECONDS or not self.renew()

    def require(self, seconds: float = EMBED_SECONDS) -> None:
        """Raises NotYet with less time left than that."""
        left = self.deadline - time.monotonic()
        if left < seconds:
            raise NotYet(_OUT_OF_TIME, left)

    def require_run(self) -> None:
        """Raises NotYet where a model might not be done with a closed run in time."""
        if self.reasoner.asks:
            self.require(min(self.reasoner.run_seconds + EMBED_SECONDS, _MOST_RESERVED))

    def require_answers(self, answers: Iterable[Done[Any]], *, patient: bool) -> None:
        """Raises NotYet where the twin answered only because our time was over, or, while one is
        `patient`, because the model may be asked again soon."""
        for done in answers:
            if done.fell_back == _OUT_OF_TIME:
                raise NotYet(_OUT_OF_TIME, self.deadline - time.monotonic())
            if done.again_in is not None and patient:
                raise NotYet(str(done.fell_back), done.again_in)


def require_embedding(worker: Worker) -> None:
    """Raise EmbeddingUnavailable unless the model takes a harmless text now. One that takes none
    (a wrong key or model may be a 400, a shortage fails like a fault) refuses nobody's text."""
    worker.renew()
    try:
        worker.embedder.embed([_HARMLESS], timeout=EMBED_SECONDS)
    except EmbeddingRefused as error:
        fault = error.message
    except Exception as error:
        if not recurs(error):
            raise
        fault = type(error).__name__
    else:
        return
    raise EmbeddingUnavailable(f"The embedding model takes no text at all: {fault}")


def head_text(worker: Worker, tenant: str, cid: str, size: int) -> str | None:
    """The first `size` bytes of a text payload; None, and a line in the log, where the store does
    not hold it: its event goes by its file name then. Raises Unavailable."""
    try:
        return worker.blobs.head_text(tenant, cid, size)
    except PayloadMissing:
        logger.warning("payload missing", extra={"cid": cid})
        return None


def reason_of(error: Exception) -> str:
    """Why something failed, without memory content: a fault's own words may quote a row."""
    if isinstance(error, StrandlineError):
        return f"{error.code}: {error.message}"
    return f"internal_error: {type(error).__name__}"
