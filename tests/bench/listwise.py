"""Weights of features by a listwise fit: of all candidates of a question, those that answer it
shall have the greatest shares of the softmax of scores, each alike (Cao and others, "Learning to
Rank: From Pairwise Approach to Listwise Approach", 2007). Every group of corpora counts alike, and
squared weights are penalised. There is no chance in it: the loss has one minimum.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from strandline.recall.features import EventScoreFeatures
from tests.bench.recall_service import LIMIT
from tests.bench.relevance_samples import DEPTH, Array, Sample, Scores

PENALTY = 0.03
"""Of half the squared weight of a feature that is scaled to a deviation of 1, where each group's
questions weigh 1 together."""
_FIXED: Mapping[str, float] = {
    "by_agent": -1.0,
    "by_tool": -1.0,
    "says_nothing": -20.0,
    "newness": 0.6,
}
"""Weights that are not fitted, for a cosine's weight of 1. How much of what answers was said by
agents differs from corpus to corpus, by how their questions were made: BEAM alone wants less than
-1.7, while in `coder` every step below -1 loses. Observations are too few in any corpus."""
_FIXED_WITHOUT_VECTORS: Mapping[str, float] = {"by_tool": 0.0, "says_nothing": -20.0}
"""The same for questions without a vector."""
_STEPS = 30
_COSINE = 3.0
"""The weight of the scaled cosine from which the fit begins."""


class Stack:
    """Questions with an answer as one block of numbers."""

    def __init__(self, samples: Sequence[Sample], extra: Sequence[Array] | None = None) -> None:
        """`extra` has one column more for the features of each sample."""
        self.samples = [*samples]
        count = len(EventScoreFeatures._fields) + (extra is not None)
        shape = len(samples), max(len(sample.features) for sample in samples)
        self._features = np.zeros((*shape, count))
        self._is_present = np.zeros(shape, dtype=bool)
        self._is_answer = np.zeros(shape, dtype=bool)
        for n, sample in enumerate(samples):
            size = len(sample.features)
            columns = [sample.features] if extra is None else [sample.features, extra[n][:, None]]
            self._features[n, :size] = np.hstack(columns)
            self._is_present[n, :size] = True
            self._is_answer[n, sample.answers] = True
        self._expected = np.array([sample.expected for sample in samples])
        self.groups = np.array([sample.group for sample in samples])

    def score(self, weights: Array) -> Array:
        """R@10, the reciprocal rank among the first LIMIT, and whether the first ten hold all that
        answers: a row each, a column for each question."""
        scores = np.where(self._is_present, self._features @ weights, -np.inf)
        order = np.argsort(-scores, axis=1, kind="stable")
        answers = np.take_along_axis(self._is_answer, order, 1)
        first = np.where(answers.any(1), answers.argmax(1), LIMIT)
        reciprocal = np.where(first < LIMIT, 1 / (1 + first), 0.0)
        recall = answers[:, :DEPTH].sum(1) / self._expected
        return np.array([recall, reciprocal, recall == 1])

    def by_group(self, scores: Array) -> dict[str, Scores]:
        """Means of R@10 and of reciprocal ranks."""
        return {
            str(group): Scores(*map(float, scores[:2, self.groups == group].mean(1)))
            for group in sorted(set(self.groups))
        }

    def fit(self, included: Array | None = None, without: int | None = None) -> Array:
        """The weights that rank the included questions best, all by default, but for those whose
        answers are no candidates. That of the feature `without` is 0."""
        answer_rows = self._is_answer.any(1)
        if included is not None:
            answer_rows = np.logical_and(answer_rows, included)
        features, present = self._features[answer_rows], self._is_present[answer_rows]
        fixed = _merge_fixed(features)
        spread = features[present].std(0)
        scale = np.where(spread > 0, 1 / np.where(spread > 0, spread, 1), 0.0)
        if without is not None:
            scale[without] = 0.0
        counts = Counter(self.groups[answer_rows])
        shares = np.array([1 / counts[group] for group in self.groups[answer_rows]])
        block = _Block(features * scale, present, self._is_answer[answer_rows], shares)
        start = np.zeros(len(scale))
        start[0] = _COSINE * (scale[0] > 0)
        weights = block.minimise(start) * scale
        return weights + fixed * weights[0]


def _merge_fixed(features: Array) -> Array:
    """Add the columns of fixed weights to that of the cosine, so that they move together. Returns
    the fixed weights."""
    fixed_weights = _FIXED if features[..., 0].any() else _FIXED_WITHOUT_VECTORS
    fixed = np.zeros(features.shape[-1])
    for name, weight in fixed_weights.items():
        place = EventScoreFeatures._fields.index(name)
        fixed[place] = weight
        features[..., 0] += weight * features[..., place]
        features[..., place] = 0.0
    return fixed


class _Block:
    """The loss of questions' candidates, and its minimum."""

    def __init__(self, features: Array, present: Array, answers: Array, shares: Array) -> None:
        self._features, self._shares = features, shares
        self._mask = np.where(present, 0.0, -np.inf)
        self._wanted = answers / answers.sum(1, keepdims=True)
        self._wanted_mean = np.einsum("qc,qcf->qf", self._wanted, features)

    def minimise(self, weights: Array) -> Array:
        """By Newton's method, with shorter steps where a whole one leads uphill."""
        loss, gradient, curvature = self._derive(weights)
        for _ in range(_STEPS):
            step, size = np.linalg.solve(curvature, gradient), 1.0
            trial = self._derive(weights - step)
            while trial[0] > loss and size > 1e-3:
                size /= 2
                trial = self._derive(weights - size * step)
            weights, fall = weights - size * step, loss - trial[0]
            loss, gradient, curvature = trial
            if abs(fall) < 1e-9:
                break
        return weights

    def _derive(self, weights: Array) -> tuple[float, Array, Array]:
        """The loss, its gradient, and its curvature."""
        scores = self._features @ weights
        log_all, of_all = _softmax(scores + self._mask)
        mean = np.einsum("qc,qcf->qf", of_all, self._features)
        log_wanted = np.einsum("qc,qc->q", self._wanted, scores)
        loss = self._shares @ (log_all - log_wanted) + PENALTY / 2 * weights @ weights
        weighted = self._features * (of_all * self._shares[:, None])[:, :, None]
        squares = np.tensordot(weighted, self._features, ((0, 1), (0, 1)))
        squares -= (mean * self._shares[:, None]).T @ mean
        return (
            float(loss),
            self._shares @ (mean - self._wanted_mean) + PENALTY * weights,
            squares + PENALTY * np.eye(len(weights)),
        )


def _softmax(scores: Array) -> tuple[Array, Array]:
    """The logarithm of the sum of a row's exponentials, and each one's share."""
    highest = scores.max(1, keepdims=True)
    shares = np.exp(scores - highest)
    total = shares.sum(1, keepdims=True)
    return (np.log(total) + highest)[:, 0], shares / total


def corpora_of(samples: Sequence[Sample]) -> list[tuple[str, str]]:
    """Names and groups of the corpora that samples are of, in order."""
    return list(Counter((s.candidates.asking.home.name, s.group) for s in samples))


def hold_out(
    stack: Stack, folds: Sequence[Collection[str]], fit: Callable[[Array], Array]
) -> tuple[Array, list[Array]]:
    """Each question's scores by the weights that `fit` chooses for its fold, which is told which
    questions are not of it; and the weights of each. A fold is names of corpora, and every corpus
    is in one."""
    homes = [sample.candidates.asking.home.name for sample in stack.samples]
    scores = np.zeros((3, len(stack.samples)))
    choices: list[Array] = []
    for fold in folds:
        included = np.array([home not in fold for home in homes])
        choices.append(fit(included))
        scores[:, ~included] = stack.score(choices[-1])[:, ~included]
    return scores, choices
