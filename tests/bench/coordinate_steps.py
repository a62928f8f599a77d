"""Weights by coordinate steps: one weight at a time, up or down, from coarse to fine, while the
objective rises. There is no chance in it, and every weight begins at 0 but that of the cosine."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from strandline.recall.features import Features
from tests.bench.recall_service import LIMIT
from tests.bench.relevance_samples import DEPTH, Array, Sample, Scores, judge

type Steps = tuple[int, ...]
"""Weights as whole numbers of units."""

UNITS: Mapping[str, float] = {"words": 0.0005, "words_nearby": 0.0005}
UNIT = 0.01
"""Of every other weight."""
SIZES = (16, 8, 4, 2, 1)
"""Of a step, in units."""


class Stack:
    """Questions with an answer as one block of numbers; what weights give is kept."""

    def __init__(
        self,
        samples: Sequence[Sample],
        extra: Sequence[Array] | None = None,
        *,
        has_floors: bool = True,
    ) -> None:
        """`extra` has one column more for the features of each sample. Without floors the objective
        is the mean of R@10 and MRR over the groups, each alike."""
        self._has_floors = has_floors
        self.samples = [*samples]
        count = len(Features._fields) + (extra is not None)
        width = max(len(sample.features) for sample in samples)
        block = np.zeros((count, len(samples), width), dtype=np.float32)
        present = np.zeros((len(samples), width), dtype=bool)
        for n, sample in enumerate(samples):
            size = len(sample.features)
            columns = sample.features.T
            block[:, n, :size] = columns if extra is None else [*columns, extra[n]]
            present[n, :size] = True
        pairs = [(n, place) for n, sample in enumerate(samples) for place in sample.answers]
        self._questions = np.array([n for n, _ in pairs])
        places = np.array([place for _, place in pairs])
        own = block[:, self._questions, places][:, :, None]
        # how far the features of all candidates are above those of each answer
        self._ahead = block[:, self._questions] - own
        self._present = present[self._questions]
        self._ties = self._present & (np.arange(width) < places[:, None])
        self._expected = np.array([sample.expected for sample in samples])
        groups = [sample.group for sample in samples]
        self._groups = {
            group: np.array([name == group for name in groups]) for group in sorted(set(groups))
        }
        names = [*Features._fields, *["extra"] * (extra is not None)]
        self.units = np.array([UNITS.get(name, UNIT) for name in names])
        self._known: dict[Steps, Array] = {}

    def start(self) -> Steps:
        """The cosine alone."""
        return (round(1 / UNIT), *[0] * (len(self.units) - 1))

    def weights(self, steps: Steps) -> Array:
        """As numbers that features are multiplied by."""
        return np.array(steps) * self.units

    def score(self, steps: Steps) -> Array:
        """R@10, the reciprocal rank among the first LIMIT, and whether the first hit answers: a row
        each, a column for each question."""
        if steps not in self._known:
            self._known[steps] = self.score_weights(self.weights(steps))
        return self._known[steps]

    def score_weights(self, weights: Array) -> Array:
        """The same of any weights."""
        ahead = np.tensordot(weights.astype(np.float32), self._ahead, 1)
        ranks = ((ahead > 0) & self._present).sum(1) + ((ahead == 0) & self._ties).sum(1)
        count = len(self.samples)
        first = np.full(count, np.inf)
        np.minimum.at(first, self._questions, ranks)
        in_depth = np.zeros(count)
        np.add.at(in_depth, self._questions, ranks < DEPTH)
        reciprocal: Array = np.where(first < LIMIT, 1 / (1 + first), 0.0)
        return np.array([in_depth / self._expected, reciprocal, first == 0])

    def by_group(self, scores: Array, included: Array) -> dict[str, Scores]:
        """Means over those questions that are included."""
        means: dict[str, Scores] = {}
        for group, members in self._groups.items():
            of_group = included & members
            if of_group.any():
                recall, rank = scores[:2, of_group].mean(1)
                means[group] = Scores(float(recall), float(rank))
        return means

    def objective(self, steps: Steps, included: Array) -> float:
        """What is raised, over the included questions."""
        return judge(self.by_group(self.score(steps), included), has_floors=self._has_floors)


def climb(
    stack: Stack, included: Array, start: Steps, sizes: Sequence[int] = SIZES, without: int = 0
) -> Steps:
    """The steps that no single further one improves, for the included questions. The weight of the
    cosine stays: it sets the scale; so does that of the feature `without`."""
    best: Steps = start
    value = stack.objective(start, included)
    free = [place for place in range(1, len(start)) if place != without]
    for size in sizes:
        is_rising = True
        while is_rising:
            is_rising = False
            for place in free:
                for step in (size, -size):
                    trial: Steps = (*best[:place], best[place] + step, *best[place + 1 :])
                    if (found := stack.objective(trial, included)) > value + 1e-9:
                        best, value, is_rising = trial, found, True
                        break
    return best


def corpora_of(samples: Sequence[Sample]) -> list[tuple[str, str]]:
    """Names and groups of the corpora that samples are of, in order."""
    return list(Counter((s.candidates.asking.home.name, s.group) for s in samples))


def hold_out(
    stack: Stack, folds: Sequence[Collection[str]], climb_from: Callable[[int, Array], Steps]
) -> tuple[Array, list[Steps]]:
    """Each question's scores by the steps that `climb_from` chooses for its fold, of which it is
    told the number and which questions are not of it; and the steps of each. A fold is names of
    corpora, and every corpus is in one."""
    homes = [sample.candidates.asking.home.name for sample in stack.samples]
    scores = np.zeros((3, len(stack.samples)))
    chosen: list[Steps] = []
    for n, fold in enumerate(folds):
        included = np.array([home not in fold for home in homes])
        chosen.append(climb_from(n, included))
        scores[:, ~included] = stack.score(chosen[-1])[:, ~included]
    return scores, chosen
