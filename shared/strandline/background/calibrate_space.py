"""Measure an embedding space once, with texts that ship, so that recall, topics and the graph mean
the same by a cosine in every space. No text of a tenant is read."""

import importlib.resources
import json
import math
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import batched
from typing import NamedTuple
from weakref import WeakKeyDictionary

from strandline.db.database import TenantDb
from strandline.embeddings.embedder import Embedder, Purpose
from strandline.embeddings.space_figures import PairCosines, SpaceFigures
from strandline.embeddings.store_space_figures import read_figures, store_figures
from strandline.errors import EmbeddingUnavailable, StrandlineError
from strandline.log.indexed_text import format_event_for_model
from strandline.observability import logger

_BATCH = 64
_EMBED_SECONDS = 15.0
_FIRST_DAY = datetime(2026, 1, 5, tzinfo=UTC)
_DAYS_BETWEEN = 3
_SPEAKERS = ("user:anna", "user:ben", "agent:helper", "user:noor")
_measured_figures: WeakKeyDictionary[Embedder, SpaceFigures] = WeakKeyDictionary()
"""What this process has measured: it is the same for every tenant."""


class CalibrationTextGroup(NamedTuple):
    """A matter of the texts that ship, which no other of them is about."""

    language: str
    question: str
    text: str
    """Answers the question."""
    next: str
    """Goes on after it."""
    reworded: str
    """Says the same as `text`."""


def ensure_calibrated(access: TenantDb, embedder: Embedder, deadline: float) -> SpaceFigures:
    """The figures of the embedder's space, measured and stored for the tenant if they are not yet.
    The first process that stores them decides; one that ends before it leaves nothing. Not in a
    transaction: it may call the model, with some 330 short texts in all, until `deadline`, in
    time.monotonic() seconds.

    Raises EmbeddingUnavailable and EmbeddingRefused.
    """
    existing = read_figures(access, embedder.space)
    if existing is not None:
        return existing
    figures = _measured_figures.get(embedder)
    if figures is None:
        figures = _measured_figures[embedder] = measure_space(embedder, deadline)
    with access.transaction():
        is_new = store_figures(access, embedder.space, figures)
    if is_new:
        logger.info("embedding space measured", extra={"is_usable": figures.is_usable})
    return read_figures(access, embedder.space) or figures


def calibrate_if_possible(access: TenantDb, embedder: Embedder, deadline: float) -> None:
    """Like `ensure_calibrated`, for work that does not wait for it: whatever fails here, an event
    of the tenant's is embedded and folded. The sweeper tries again, and says so if it fails."""
    try:
        ensure_calibrated(access, embedder, deadline)
    except Exception as error:
        reason = error.code if isinstance(error, StrandlineError) else type(error).__name__
        logger.warning("embedding space not measured", extra={"reason": reason})


def measure_space(embedder: Embedder, deadline: float = math.inf) -> SpaceFigures:
    """Measure a space by the texts that ship. Raises EmbeddingUnavailable and EmbeddingRefused."""
    embed = partial(_embed, embedder, deadline)
    texts = read_calibration_text_groups()
    questions = embed([text.question for text in texts], "question")
    events = embed(_format_events([text.text for text in texts]))
    following = embed(_format_events([text.next for text in texts]))
    statements = embed([text.text for text in texts])
    reworded = embed([text.reworded for text in texts])
    english = [n for n, text in enumerate(texts) if text.language == "en"]
    other = [n for n, text in enumerate(texts) if text.language != "en"]
    return SpaceFigures(
        questions=_measure_pairs(questions, events, english),
        other_questions=_measure_pairs(questions, events, other),
        statements=_measure_pairs(statements, reworded, english),
        other_statements=_measure_pairs(statements, reworded, other),
        messages=_measure_pairs(events, following, english),
    )


def read_calibration_text_groups() -> list[CalibrationTextGroup]:
    """The texts that ship."""
    file = importlib.resources.files("strandline") / "embeddings" / "calibration_texts.jsonl"
    lines = file.read_text("utf-8").splitlines()
    return [CalibrationTextGroup(**json.loads(line)) for line in lines]


def _format_events(texts: Sequence[str]) -> list[str]:
    """Texts as events are embedded, with dates and speakers that vary."""
    return [
        format_event_for_model(
            _FIRST_DAY + timedelta(days=_DAYS_BETWEEN * n), _SPEAKERS[n % len(_SPEAKERS)], text
        )
        for n, text in enumerate(texts)
    ]


def _embed(
    embedder: Embedder, deadline: float, texts: Sequence[str], purpose: Purpose = "text"
) -> list[list[float]]:
    vectors: list[list[float]] = []
    for batch in batched(texts, _BATCH, strict=False):
        seconds = min(_EMBED_SECONDS, deadline - time.monotonic())
        if seconds <= 0:
            raise EmbeddingUnavailable("There was no time left to measure the embedding space.")
        vectors += embedder.embed(batch, timeout=seconds, purpose=purpose)
    return vectors


def _measure_pairs(
    first: Sequence[Sequence[float]], second: Sequence[Sequence[float]], places: Sequence[int]
) -> PairCosines:
    """The cosines of the texts at these places: of each with all others, and with its own."""
    cosines = [math.sumprod(first[a], second[b]) for a in places for b in places if a != b]
    mean = math.fsum(cosines) / len(cosines)
    variance = math.fsum((cosine - mean) ** 2 for cosine in cosines) / len(cosines)
    related = math.fsum(math.sumprod(first[n], second[n]) for n in places) / len(places)
    return PairCosines(round(mean, 4), round(math.sqrt(variance), 4), round(related, 4))
