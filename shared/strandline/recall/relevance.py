"""The probability that each event answers a question.

An event's score is the weighted sum of its features. Two logistic curves turn scores into
probabilities: `known`, that the visible events contain an answer at all, and `relevance`, that this
event is an answer. They are calibrated for questions of which half have an answer. docs/recall.md
describes how the weights were chosen and how much each feature contributes.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from strandline.recall.cosine_scale import CosineDistribution, estimate_cosine_distribution
from strandline.recall.features import (
    CandidateEvent,
    EventScoreFeatures,
    QuestionWord,
    compute_answerability_features,
    compute_score_features,
    find_highest_standardized_cosine,
    is_short_message_of_person,
)
from strandline.recall.question_mentions import QuestionNamesAndDates

_SIMILAR_DEVIATIONS = 1.5
"""The minimum cosine, in deviations, for describing an event as similar in meaning."""

_MIN_PROBABILITY = 1e-12
"""A smaller probability has no logarithm of its odds that could be computed with."""


_NEWNESS_EVENTS = 10
"""So many of the best short messages are ordered by time for a question about now."""


class LogisticCurve(NamedTuple):
    """A logistic curve: the probability is 1 / (1 + e^-(bias + Σ weight · feature))."""

    bias: float
    weights: Sequence[float]

    def logit(self, features: Sequence[float]) -> float:
        """The logarithm of the odds."""
        return self.bias + math.sumprod(self.weights, features)


class Calibration(NamedTuple):
    """The weights and curves for one embedding space."""

    features: EventScoreFeatures
    """The weight of each feature in an event's score."""
    usual: CosineDistribution
    """The mean and deviation of the space's cosines, for views of few events."""
    cosine_by_words: float
    """The assumed cosine, in deviations, of an event without a vector that contains all words of
    the question."""
    known: LogisticCurve
    """Computes `known` from AnswerabilityFeatures."""
    relevance: LogisticCurve
    """Computes `relevance` from the difference of an event's score to the best one and the logit of
    `known`."""
    min_known: float
    """The threshold of `known` below which an answer has no hits by default; 0 if hits are never
    left out."""
    is_calibrated: bool = True
    """Whether the curves give probabilities; if not, they only order events."""


class ScoredEvent(NamedTuple):
    """A candidate with its score and the features behind it."""

    candidate: CandidateEvent
    features: EventScoreFeatures
    score: float
    relevance: float

    @property
    def is_similar_to_question(self) -> bool:
        """Whether its vector is similar to the question's, in any embedding space."""
        return self.candidate.cosine is not None and self.features.cosine >= _SIMILAR_DEVIATIONS


@dataclass(frozen=True)
class RankedEvents:
    """The candidates, best first, and the probability that any of them answers the question."""

    answer_probability: float
    events: Sequence[ScoredEvent]


def rank_candidates(
    question: QuestionNamesAndDates,
    words: Sequence[QuestionWord],
    candidates: Sequence[CandidateEvent],
    events_in_view: int,
    calibration: Calibration,
    events_searched: int | None = None,
    sampled_cosines: Sequence[float] = (),
    sampled_tool_cosines: Sequence[float] = (),
) -> RankedEvents:
    """Score the candidates and sort them, best first; ties go to the newer event. `events_searched`
    is the number of events that pass the filters; None: all visible ones. `sampled_cosines` are
    those of the question with a sample of the events in view, without tools' output, and
    `sampled_tool_cosines` those with this."""
    if not candidates:
        return RankedEvents(0.0, ())
    scale = estimate_cosine_distribution(sampled_cosines, calibration.usual)
    features = compute_score_features(
        question,
        words,
        candidates,
        events_in_view,
        scale,
        calibration.cosine_by_words,
        estimate_cosine_distribution(sampled_tool_cosines, calibration.usual),
    )
    scored_positions = sorted(
        (
            (math.sumprod(calibration.features, event_features), candidate.event_id.int, n)
            for n, (candidate, event_features) in enumerate(zip(candidates, features, strict=True))
        ),
        reverse=True,
    )
    scores, order = [item[0] for item in scored_positions], [item[2] for item in scored_positions]
    answer = compute_answerability_features(
        [features[n] for n in order],
        find_highest_standardized_cosine(candidates, features, calibration.usual),
        words,
        events_in_view,
        events_in_view if events_searched is None else events_searched,
    )
    known, relevance = calibration.known.logit(answer), calibration.relevance.logit
    events = [
        ScoredEvent(
            candidates[n], features[n], score, _sigmoid(relevance((scores[0] - score, known)))
        )
        for score, n in zip(scores, order, strict=True)
    ]
    if question.is_about_now:
        events = _put_newer_first(events, calibration.features.newness)
    return RankedEvents(_sigmoid(known), events)


def _put_newer_first(events: Sequence[ScoredEvent], weight: float) -> list[ScoredEvent]:
    """The events, best first, once the best short messages of people have their newness. Their
    scores and relevance stay: that one is newer makes no other less likely to answer, and weights
    of the request count without it."""
    messages = [event for event in events if is_short_message_of_person(event.candidate)]
    times = sorted({event.candidate.said_at for event in messages[:_NEWNESS_EVENTS]})
    if len(times) < 2 or not weight:
        return list(events)
    newness = {
        event.candidate.event_id: times.index(event.candidate.said_at) / (len(times) - 1)
        for event in messages[:_NEWNESS_EVENTS]
    }

    def add_newness(event: ScoredEvent) -> ScoredEvent:
        own = newness.get(event.candidate.event_id)
        if own is None:
            return event
        return event._replace(features=event.features._replace(newness=own))

    def compute_place(event: ScoredEvent) -> tuple[float, int]:
        return event.score + weight * event.features.newness, event.candidate.event_id.int

    return sorted(map(add_newness, events), key=compute_place, reverse=True)


def compute_odds(relevance: float) -> float:
    """The odds that an event answers, for its relevance: 1 for 0.5."""
    return relevance / max(1 - relevance, 1e-9)


def merge_further(
    ranking: RankedEvents,
    further: Sequence[CandidateEvent],
    question: QuestionNamesAndDates,
    words: Sequence[QuestionWord],
    events_in_view: int,
    calibration: Calibration,
    sampled_cosines: Sequence[float],
    sampled_tool_cosines: Sequence[float],
) -> RankedEvents:
    """The ranking with further candidates, which were not found but go with those that were. They
    are scored without neighbours, and change no other's score; nor do they change the probability
    of an answer, which rests on what was found. The other arguments as in `rank_candidates`."""
    if not further or not ranking.events:
        return ranking
    alone = [replace(candidate, session_id=str(candidate.event_id)) for candidate in further]
    scale = estimate_cosine_distribution(sampled_cosines, calibration.usual)
    features = compute_score_features(
        question,
        words,
        alone,
        events_in_view,
        scale,
        calibration.cosine_by_words,
        estimate_cosine_distribution(sampled_tool_cosines, calibration.usual),
    )
    best_score, known = ranking.events[0].score, ranking.answer_probability
    odds = max(known, _MIN_PROBABILITY) / max(1 - known, _MIN_PROBABILITY)
    scored_events = [
        ScoredEvent(
            candidate,
            event_features,
            score := math.sumprod(calibration.features, event_features),
            _sigmoid(calibration.relevance.logit((best_score - score, math.log(odds)))),
        )
        for candidate, event_features in zip(further, features, strict=True)
    ]
    scored_events.sort(key=lambda event: (event.score, event.candidate.event_id.int), reverse=True)
    by_score = heapq.merge(ranking.events, scored_events, key=lambda event: -event.score)
    return RankedEvents(known, list(by_score))


def _sigmoid(logit: float) -> float:
    """The probability for the logarithm of its odds, without overflow."""
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, logit))))
