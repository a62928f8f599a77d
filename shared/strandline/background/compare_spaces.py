"""Compare a tenant's answers in two embedding spaces, on the questions that it asked last."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from strandline.background import store_switches
from strandline.background.store_switches import RecentQuestion
from strandline.db.database import Caller, TenantDb
from strandline.embeddings.embedder import Embedder
from strandline.errors import EmbeddingUnavailable
from strandline.jobs.worker_resources import WorkerResources
from strandline.recall.search import search

_MAX_QUESTIONS = 50
_SCANNED_EVENTS = 5_000
"""The questions are looked for among so many of the newest events."""
_HITS = 10
_VECTOR_SECONDS = 5.0
"""How long a question's vector may take."""


class Comparison(NamedTuple):
    """How the answers in two spaces compare."""

    questions: int
    overlap: float | None
    """The share of the first ten hits that both spaces have, over all questions; None without
    questions."""
    same_first: float | None
    """The share of the questions with the same first hit."""


def compare_spaces(
    worker: WorkerResources, tenant: str, old: Embedder, new: Embedder, now: datetime
) -> Comparison:
    """Ask the tenant's latest questions in both spaces, each on behalf of those who heard it. A
    question is not among its own hits, nor is one that nothing answers counted; without more time
    it is those that were asked. Raises EmbeddingUnavailable."""
    access = worker.database.connect_as(Caller.background(tenant))
    questions = store_switches.list_recent_questions(access, _SCANNED_EVENTS, _MAX_QUESTIONS)
    overlaps: list[float] = []
    same_first_count = 0
    for question in questions:
        if worker.is_out_of_time():
            break
        reader = worker.database.connect_as(Caller(tenant, tuple(sorted(question.participants))))
        first, second = (
            _search_event_ids(reader, embedder, question, now) for embedder in (old, new)
        )
        if first or second:
            shared_count = len(set(first) & set(second))
            overlaps.append(shared_count / max(len(first), len(second)))
            same_first_count += first[:1] == second[:1]
    if not overlaps:
        return Comparison(0, None, None)
    count = len(overlaps)
    return Comparison(count, round(sum(overlaps) / count, 4), round(same_first_count / count, 4))


def _search_event_ids(
    access: TenantDb, embedder: Embedder, question: RecentQuestion, now: datetime
) -> Sequence[UUID]:
    result = search(
        access,
        embedder,
        question.text,
        now=now,
        vector_timeout=_VECTOR_SECONDS,
        filters={},
        min_known=0.0,
        exclude={question.event_id},
    )
    if result.vector is None:
        raise EmbeddingUnavailable("A question was not embedded in time.")
    return [event.candidate.event_id for event in result.ranking.events[:_HITS]]
