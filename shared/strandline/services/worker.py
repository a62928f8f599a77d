"""What background work on the log needs, and what it counts."""

import time
from collections import Counter
from dataclasses import dataclass, field

from strandline.blobs import Blobs
from strandline.db import Database
from strandline.errors import StrandlineError
from strandline.models.embedding import Embedder
from strandline.reasoner import Reasoner
from strandline.store import metrics
from strandline.tuning import DEFAULTS, Tuning

EMBED_SECONDS = 15.0
"""What a call to the embedding model may take."""


@dataclass
class Tally:
    """What a job did, for its metrics."""

    events: int = 0
    calls: list[float] = field(default_factory=list[float])
    """Milliseconds of each call to the embedding model."""
    failures: int = 0
    """Scopes put off, tenants not swept, a message or a sweep broken off."""
    due: list[metrics.Due] = field(default_factory=list[metrics.Due])
    """Of each tenant that a sweep found work in, before it began."""
    folds: list[float] = field(default_factory=list[float])
    """Milliseconds of each scope's fold."""
    counts: Counter[str] = field(default_factory=Counter[str])
    """What the folds did and what their model's calls came to, by the metrics' names."""


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

    def out_of_time(self) -> bool:
        """A batch more might not be finished in time."""
        return time.monotonic() > self.deadline - EMBED_SECONDS


def reason_of(error: Exception) -> str:
    """Why something failed, without memory content: a fault's own words may quote a row."""
    if isinstance(error, StrandlineError):
        return f"{error.code}: {error.message}"
    return f"internal_error: {type(error).__name__}"
