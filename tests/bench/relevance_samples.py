"""Questions of several corpora as arrays, and how well weights rank them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression, pstdev
from typing import Any, NamedTuple

import numpy as np

from strandline.embeddings.space_figures import SpaceFigures
from strandline.recall.calibrations import WITHOUT_VECTOR, calibration_for
from strandline.recall.cosine_scale import CosineDistribution, estimate_cosine_distribution
from strandline.recall.features import (
    EventScoreFeatures,
    compute_score_features,
    find_highest_standardized_cosine,
)
from tests.bench.recall_service import Candidates

type Array = np.ndarray[Any, np.dtype[np.float64]]
DEPTH = 10
FLOORS: Mapping[str, tuple[float, float]] = {
    "talks": (0.85, 0.60),
    "demo": (0.82, 0.72),
    "unseen": (0.40, 0.24),
    "locomo": (0.79, 0.59),
    "coder": (0.74, 0.55),
    "polyglot": (0.62, 0.45),
    "beam": (0.54, 0.49),
}
"""R@10 and MRR that are promised, by group."""


@dataclass(frozen=True)
class Sample:
    """A question in a view, as arrays."""

    group: str
    candidates: Candidates
    features: Array
    """A row for each candidate, a column for each of EventScoreFeatures."""
    answers: Sequence[int]
    """The rows that answer."""
    expected: int
    """How many events answer the question, candidates or not."""
    highest_cosine: float = 0.0
    """On the space's usual scale."""


class Scores(NamedTuple):
    """R@10 and MRR."""

    recall: float
    rank: float


def make_sample(candidates: Candidates, figures: SpaceFigures | None) -> Sample:
    """Compute the features of a question's candidates in a space with these figures; None for
    questions without a vector."""
    question = candidates.asking.question.text
    calibration = calibration_for("", figures, question) if figures else WITHOUT_VECTOR
    rows = compute_score_features(
        candidates.question,
        candidates.words,
        candidates.rows,
        candidates.events_in_view,
        estimate_cosine_distribution(candidates.sampled_cosines, calibration.usual),
        calibration.cosine_by_words,
        estimate_cosine_distribution(candidates.sampled_tool_cosines, calibration.usual),
    )
    return Sample(
        candidates.asking.home.group,
        candidates,
        np.array(rows, dtype=np.float64).reshape(len(rows), len(EventScoreFeatures._fields)),
        [n for n, answers in enumerate(candidates.answers) if answers],
        len(candidates.asking.evidence),
        find_highest_standardized_cosine(candidates.rows, rows, calibration.usual) if rows else 0.0,
    )


def measure_scales(samples: Sequence[Sample]) -> dict[str, tuple[float, float, float]]:
    """By group, the mean and deviation of a question's cosines with whole views, and how much the
    cosine of a candidate, in deviations, rises with the share of the question's words that it
    holds: the slope of the line that fits best."""
    scales: dict[str, list[CosineDistribution]] = defaultdict(list)
    rows: dict[str, list[tuple[float, float]]] = defaultdict(list)
    place = EventScoreFeatures._fields.index("words")
    for sample in samples:
        if sample.candidates.sampled_cosines:
            cosines = sample.candidates.sampled_cosines
            scales[sample.group].append(CosineDistribution(fmean(cosines), pstdev(cosines)))
        rows[sample.group] += [
            (float(features[place]), float(features[0]))
            for features, row in zip(sample.features, sample.candidates.rows, strict=True)
            if row.cosine is not None
        ]
    return {
        group: (
            round(fmean(scale.mean for scale in scales[group]), 3),
            round(fmean(scale.deviation for scale in scales[group]), 3),
            round(linear_regression(*zip(*pairs, strict=True)).slope, 2),
        )
        for group, pairs in sorted(rows.items())
        if scales[group] and pairs
    }


def score(sample: Sample, weights: Array) -> Scores:
    """How well the weights rank a sample's answers."""
    if not sample.answers:
        return Scores(0.0, 0.0)
    scores = sample.features @ weights
    ranks = [
        int((scores > scores[n]).sum() + (scores[:n] == scores[n]).sum()) for n in sample.answers
    ]
    return Scores(sum(rank < DEPTH for rank in ranks) / sample.expected, 1 / (1 + min(ranks)))


def by_group(samples: Sequence[Sample], weights: Array) -> dict[str, Scores]:
    """Mean scores of each group."""
    groups: dict[str, list[Scores]] = defaultdict(list)
    for sample in samples:
        groups[sample.group].append(score(sample, weights))
    return {
        group: Scores(fmean(s.recall for s in scores), fmean(s.rank for s in scores))
        for group, scores in sorted(groups.items())
    }


def area_under_curve(right: Sequence[float], wrong: Sequence[float]) -> float:
    """How often one with an answer is above one without."""
    high, low = np.sort(np.array(right)), np.array(wrong)
    below = np.searchsorted(high, low, "left"), np.searchsorted(high, low, "right")
    above = len(high) - below[1] + 0.5 * (below[1] - below[0])
    return float(above.mean() / len(high))


def calibration_error(pairs: Sequence[tuple[float, bool, float]]) -> float:
    """The expected error over ten equal bins of (probability, whether right, weight)."""
    bins: dict[int, float] = defaultdict(float)
    for value, right, weight in pairs:
        bins[min(int(value * 10), 9)] += weight * (right - value)
    return sum(map(abs, bins.values())) / sum(weight for _, _, weight in pairs)
