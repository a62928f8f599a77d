"""The features of events that may answer a question, from the words and cosines of each and its
neighbours."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import NamedTuple
from uuid import UUID

from strandline.participants import display_name
from strandline.recall.question import Question

WINDOW = 4
"""So many events of its session before and after an event are its neighbours."""
_COSINE_WINDOW = 2
"""Of these many each the cosines count."""
_MIN_EVENTS = 500
"""A small view counts as one of so many events, or its every word would be common."""


class Word(NamedTuple):
    """A word of the question, in the index's form, and how many events in view hold it."""

    text: str
    events: int

    def weight(self, events_in_view: int) -> float:
        """How much it tells: the inverse document frequency of Robertson and Zaragoza ("The
        Probabilistic Relevance Framework", 2009), as `inverse_frequency` in the database."""
        total = max(events_in_view, self.events, _MIN_EVENTS)
        return math.log(1 + (total - self.events + 0.5) / (self.events + 0.5))


@dataclass(frozen=True)
class Candidate:
    """An event that may answer a question."""

    event_id: UUID
    scope_id: UUID
    session_id: str
    """Of a statement its own id: it is in no lane, and nothing is near it."""
    seq: int
    place: int
    """Its place among the events of its session in this scope, from any beginning. A gap of more
    than WINDOW events counts as one of WINDOW + 1."""
    speaker: str | None
    said_at: datetime
    said_on: date
    """The day on which it was said, in the tenant's time zone."""
    is_question: bool
    word_bits: int
    """Bit n is set if the event holds word n of the question."""
    cosine: float | None
    """With the question; None without a vector of both."""


class Features(NamedTuple):
    """What an event's score is the weighted sum of; or the weights."""

    cosine: float
    """Of the question and the event with its date and speaker."""
    words: float
    """The weights of the question's words that the event holds."""
    words_nearby: float
    """The same, of the event together with four events before and four after it."""
    cosine_before: float
    """The cosine of the event before it in its session."""
    cosine_after: float
    """The cosine of the event after it."""
    cosine_nearby: float
    """The mean cosine of two events before and two after it."""
    other_speaker: float
    """1 if the question names a speaker, and not this one."""
    is_question: float
    """1 if the event is itself a question."""
    date: float
    """1 if its month, 2 if its day is one that the question names."""


def compute_features(
    question: Question,
    words: Sequence[Word],
    candidates: Sequence[Candidate],
    events_in_view: int,
    missing_cosine: float,
) -> list[Features]:
    """The features of each candidate. Only candidates count as neighbours: of an event that is
    none, neither words nor cosine are known. `missing_cosine` stands for that of an event without
    a vector."""
    weights = [word.weight(events_in_view) for word in words]
    speakers = {candidate.speaker for candidate in candidates}
    names = {speaker: _speaker_name(speaker) for speaker in speakers}
    named = question.named(set(names.values()))
    lanes: dict[tuple[UUID, str], dict[int, Candidate]] = defaultdict(dict)
    for candidate in candidates:
        lanes[candidate.scope_id, candidate.session_id][candidate.place] = candidate
    weight_of_bits = _WeightOfBits(weights)

    def features_of(candidate: Candidate) -> Features:
        lane, place = lanes[candidate.scope_id, candidate.session_id], candidate.place
        bits = candidate.word_bits
        for near in range(place - WINDOW, place + WINDOW + 1):
            if neighbour := lane.get(near):
                bits |= neighbour.word_bits
        before, after = (
            [_cosine(lane.get(place + side * n), missing_cosine) for n in (1, _COSINE_WINDOW)]
            for side in (-1, 1)
        )
        return Features(
            cosine=_cosine(candidate, missing_cosine),
            words=weight_of_bits[candidate.word_bits],
            words_nearby=weight_of_bits[bits],
            cosine_before=before[0],
            cosine_after=after[0],
            cosine_nearby=sum(before + after) / 4,
            other_speaker=float(bool(named) and names[candidate.speaker] not in named),
            is_question=float(candidate.is_question),
            date=question.match_time(candidate.said_on),
        )

    return [features_of(candidate) for candidate in candidates]


class _WeightOfBits(dict[int, float]):
    """The summed weights of a set of words; few sets occur, and each is summed once."""

    def __init__(self, weights: Sequence[float]) -> None:
        self._weights = weights

    def __missing__(self, bits: int) -> float:
        weight = sum(weight for n, weight in enumerate(self._weights) if bits >> n & 1)
        self[bits] = weight
        return weight


def _cosine(candidate: Candidate | None, missing_cosine: float) -> float:
    """0 where there is no event: a session's first has no context that could speak for it."""
    if candidate is None:
        return 0.0
    return missing_cosine if candidate.cosine is None else candidate.cosine


def _speaker_name(speaker: str | None) -> str:
    return display_name(speaker).lower() if speaker else ""


class AnswerFeatures(NamedTuple):
    """What tells whether a view holds an answer at all."""

    score: float
    """The best candidate's."""
    cosine: float
    """The highest."""
    words_absent: float
    """The share of the question's words, by weight, that no event in view holds."""
    words_nearby: float
    """The highest share that one of the best five holds together with its neighbours."""
    words: float
    """The highest share that one of the best five holds."""
    log_events: float
    """The logarithm of the number of events searched: the more there are, the nearer is the nearest
    by chance."""
    spread: float
    """How far the best score is above the twentieth; 0 with fewer candidates."""


_SPREAD_PLACE = 20
_MAX_FITTED_EVENTS = 1000
"""Larger views were not fitted, and count as one of so many events."""


def compute_answer_features(
    scores: Sequence[float],
    features: Sequence[Features],
    words: Sequence[Word],
    events_in_view: int,
    events_searched: int,
) -> AnswerFeatures:
    """The features of an answer whose candidates come best first; there is at least one. Without
    filters all events in view are searched."""
    total = sum(word.weight(events_in_view) for word in words) or 1.0
    absent = sum(word.weight(events_in_view) for word in words if not word.events)
    is_long = len(scores) >= _SPREAD_PLACE
    return AnswerFeatures(
        score=scores[0],
        cosine=max(candidate.cosine for candidate in features),
        words_absent=absent / total,
        words_nearby=max(candidate.words_nearby for candidate in features[:5]) / total,
        words=max(candidate.words for candidate in features[:5]) / total,
        log_events=math.log(min(max(events_searched, 1), _MAX_FITTED_EVENTS)),
        spread=scores[0] - scores[_SPREAD_PLACE - 1] if is_long else 0.0,
    )
