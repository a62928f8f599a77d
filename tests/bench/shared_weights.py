"""Whether one set of weights and curves serves an embedding space: beside those of the product
stand weights and a curve of `known` fitted to the space itself.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.shared_weights --model e5 --locomo FILE
    [--talks FOLDER] [--beam FOLDER]
"""

import argparse
import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from strandline.background.calibrate_space import measure_space
from strandline.embeddings.space_figures import SpaceFigures
from strandline.recall.calibrations import CALIBRATION
from strandline.recall.relevance import LogisticCurve
from tests.bench import recall_corpora, recall_inputs
from tests.bench.fit_relevance import (
    Answer,
    fit_known,
    fit_weights,
    probability,
    rank_sample,
    shrink,
)
from tests.bench.recall_service import Candidates, candidates_of, list_askings, serve
from tests.bench.relevance_samples import (
    DEPTH,
    Scores,
    area_under_curve,
    by_group,
    make_sample,
)


class GroupRow(NamedTuple):
    """A group of corpora by the product's weights and curve, and by those of the space."""

    group: str
    shared: Scores
    own: Scores
    shared_area: float
    """How well `known` tells questions with an answer from the same asked elsewhere."""
    own_area: float
    recall_loss: float
    """R@10 that the default threshold costs."""
    refusal_share: float
    """The share of questions asked elsewhere that it refuses."""

    def __str__(self) -> str:
        return (
            f"| {self.group} | {self.shared.recall:.3f} / {self.shared.rank:.3f}"
            f" | {self.own.recall:.3f} / {self.own.rank:.3f}"
            f" | {self.shared_area:.3f} | {self.own_area:.3f}"
            f" | {self.recall_loss:.3f} | {self.refusal_share:.3f} |"
        )


def compare(collected: Sequence[Candidates], figures: SpaceFigures) -> list[GroupRow]:
    """A row for each group."""
    chance = random.Random(2)
    questions = [c for c in collected if c.asking.question.kind != recall_corpora.NONE]
    whole = [make_sample(candidates, figures) for candidates in questions]
    small = [make_sample(shrink(candidates, chance), figures) for candidates in questions]
    home = [sample for sample in whole if sample.expected]
    weights = np.array(CALIBRATION.features)
    shared, own = by_group(home, weights), by_group(home, fit_weights(whole))
    answers = [answer for sample in whole if (answer := rank_sample(sample, weights))]
    more = [answer for sample in small if (answer := rank_sample(sample, weights))]
    own_curve = fit_known([*answers, *more])
    return [
        _describe(
            [answer for answer in answers if answer.sample.group == group],
            own_curve,
            GroupRow(group, shared[group], own[group], 0, 0, 0, 0),
        )
        for group in shared
    ]


def _describe(answers: Sequence[Answer], own_curve: LogisticCurve, row: GroupRow) -> GroupRow:
    """A row with what is told apart in whole views."""
    with_answer = [answer for answer in answers if answer.has_answer]
    without = [answer for answer in answers if not answer.has_answer]

    def area(curve: LogisticCurve) -> float:
        sides = [[curve.logit(a.features) for a in side] for side in (with_answer, without)]
        return area_under_curve(*sides)

    def is_refused(answer: Answer) -> bool:
        return probability(CALIBRATION.known.logit(answer.features)) < CALIBRATION.min_known

    missing = [
        sum(answer.right[:DEPTH]) / answer.sample.expected * is_refused(answer)
        for answer in with_answer
    ]
    return row._replace(
        shared_area=area(CALIBRATION.known),
        own_area=area(own_curve),
        recall_loss=sum(missing) / len(missing),
        refusal_share=sum(map(is_refused, without)) / len(without),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.shared_weights")
    recall_inputs.add_arguments(parser)
    arguments = parser.parse_args()
    corpora = recall_inputs.load_corpora(arguments)
    embedder = recall_inputs.make_embedder(arguments)
    with serve(corpora, embedder) as service:
        collected = list(candidates_of(service, list_askings(corpora), with_vector=True))
    print(embedder.space, measure_space(embedder))
    print("| R@10 / MRR | shared | of its own | area, shared | of its own | lost | refused |")
    print("|---" * 7 + "|")
    print(*compare(collected, measure_space(embedder)), sep="\n")


if __name__ == "__main__":
    main()
