"""The recency of an event, its importance (how much recalls have used it), and its similarity to a
sona. None of them affects the order of an answer unless the request weights it.

All come from source R: "newer memories score higher and more important memories decay slower"; "an
EWMA weighting of a memory's past impact", which is "backpropagated through edges"; "sona
similarity".
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import exp
from typing import NamedTuple
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.recall import store_importance, store_sonas
from strandline.recall.relevance import ScoredEvent
from strandline.recall.schemas import RecallWeights
from strandline.recall.store_importance import FoldedAnswer

WINDOW_DAYS = 30
"""For how many days a use counts: as long as the records of recalled events are kept."""
DECAY = 0.9
"""The factor by which the weight of a day's use falls per day."""
RECENCY_DAYS = 30.0
"""The recency of an unimportant event falls to 1/e after this many days."""
SLOWING = 9.0
"""An event of importance 1 fades slower by a factor of this plus 1."""
WEIGHT_DEVIATIONS = 8.0
"""A weight of 1 counts as much as a cosine of so many deviations, which is the distance of an event
that answers from one of any other matter."""
_DAY = timedelta(days=1)


class ExtraRankingSignals(NamedTuple):
    """The quantities that weights apply to, in addition to the score."""

    recency: float
    importance: float
    sona: float | None = None
    """How much the event belongs to the requested sona; None if none was requested."""

    def to_values_by_name(self) -> dict[str, float]:
        """The known quantities, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None}


class SonaInEmbeddingSpace(NamedTuple):
    """A sona, in the embedding space that is searched."""

    sona_id: UUID
    space: str


def compute_importance_from_daily_use(uses: Iterable[tuple[int, float]]) -> float:
    """0..1: the exponentially weighted moving average (Roberts, "Control Chart Tests Based on
    Geometric Moving Averages", 1959) of an event's daily use over the last 30 days. `uses` are
    pairs of days ago, from 0, and the use on that day, 0..1; each day occurs at most once. A day
    without a pair counts as 0. An event used every day has importance 1, one used only today
    0.104."""
    total = sum(impact * DECAY**days_ago for days_ago, impact in uses)
    return min(1.0, total * (1 - DECAY) / (1 - DECAY**WINDOW_DAYS))


def compute_recency(age: timedelta, importance: float) -> float:
    """0..1: e^(-age / τ), an exponential decay like that of retention after Ebbinghaus, with a τ of
    30 days for an event that was never used, up to 300 days for one that is used every day. A
    future event counts as one of now."""
    return exp(-max(0.0, age / _DAY) / (RECENCY_DAYS * (1 + SLOWING * importance)))


def can_change_order(weights: RecallWeights | None, sona: SonaInEmbeddingSpace | None) -> bool:
    """Whether the weights count anything: the weight of a sona counts only where there is one."""
    return weights is not None and bool(
        weights.recency or weights.importance or (weights.sona and sona)
    )


def rerank_by_weights(
    access: TenantDb,
    events: Sequence[ScoredEvent],
    weights: RecallWeights | None,
    asked_at: datetime,
    now: datetime,
    sona: SonaInEmbeddingSpace | None = None,
) -> tuple[list[ScoredEvent], Mapping[UUID, ExtraRankingSignals]]:
    """Order the events, best first, by their score plus the weighted recency, importance and
    belonging to `sona`, and return the quantities used. Without weights, the events are returned
    unchanged. `asked_at` is the question's time, from which the age of events is measured; the age
    of uses is measured from the server's time, `now`."""
    if weights is None or not can_change_order(weights, sona):
        return list(events), {}
    sona = sona if weights.sona else None
    places = [(event.candidate.event_id, event.candidate.scope_id) for event in events]
    uses = store_importance.read_daily_event_uses(access, places, now, WINDOW_DAYS)
    belonging: Mapping[UUID, float] = {}
    if sona:
        belonging = store_sonas.read_event_sona_affinities(access, sona.sona_id, places, sona.space)
    traits: dict[UUID, ExtraRankingSignals] = {}
    for event in events:
        event_id = event.candidate.event_id
        importance = compute_importance_from_daily_use(uses.get(event_id, ()))
        recency = compute_recency(asked_at - event.candidate.said_at, importance)
        belongs = round(belonging.get(event_id, 0.0), 6) if sona else None
        traits[event_id] = ExtraRankingSignals(round(recency, 6), round(importance, 6), belongs)

    def compute_weighted_score(event: ScoredEvent) -> float:
        recency, importance, belongs = traits[event.candidate.event_id]
        extra = weights.recency * recency + weights.importance * importance
        return event.score + WEIGHT_DEVIATIONS * (extra + weights.sona * (belongs or 0.0))

    return sorted(events, key=compute_weighted_score, reverse=True), traits


def list_extra_weights(weights: RecallWeights | None) -> dict[str, float]:
    """The weights of a request as those of a score, by the name of the quantity; none without."""
    given = weights.model_dump().items() if weights else ()
    return {name: WEIGHT_DEVIATIONS * weight for name, weight in given if weight}


def fold_answers_into_event_uses(
    access: TenantDb,
    now: datetime,
    limit: int,
    fold_more: Callable[[TenantDb, Sequence[FoldedAnswer]], None] | None = None,
) -> int:
    """Fold the use of at most `limit` answers of the caller's tenant, in one transaction: the use
    of their events, and, by edge weight, of the events that these cite in the same scope.
    `fold_more` folds further results of these answers in the same transaction. Returns how many
    answers. The result does not depend on the order or on the division into batches."""
    with access.transaction():
        answers = store_importance.fold_answers_into_event_uses(access, now, limit)
        if fold_more and answers:
            fold_more(access, answers)
    return len(answers)


def delete_expired_event_uses(access: TenantDb, now: datetime, limit: int) -> int:
    """Remove at most `limit` uses that no longer count. Returns how many."""
    with access.transaction():
        return store_importance.delete_event_uses_before(
            access, now - timedelta(days=WINDOW_DAYS), limit
        )
