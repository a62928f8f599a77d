"""Fit recall's calibration to several corpora, and print what to write into
strandline/recall/calibrations.py.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.fit_relevance --locomo FILE [--talks FOLDER]
    [--beam FOLDER]

Weights are fitted to the questions of all groups of corpora, each group alike (listwise). The two
curves are logistic regressions over the same questions and over the same questions asked of other
tenants, where nothing answers them, on whole views and on small ones. held_out says what weights
and curves reach where they were fitted without a conversation.
"""

import argparse
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from strandline.background.calibrate_space import measure_space
from strandline.embeddings.space_figures import SpaceFigures
from strandline.recall.calibrations import CALIBRATION, WITHOUT_VECTOR
from strandline.recall.features import (
    AnswerabilityFeatures,
    EventScoreFeatures,
    QuestionWord,
    compute_answerability_features,
)
from strandline.recall.relevance import Calibration, LogisticCurve
from tests.bench import recall_corpora, recall_inputs
from tests.bench.listwise import Stack
from tests.bench.recall_service import Candidates, candidates_of, list_askings, serve
from tests.bench.relevance_samples import (
    DEPTH,
    Array,
    Sample,
    Scores,
    area_under_curve,
    by_group,
    calibration_error,
    make_sample,
    measure_scales,
)

LOSS = 0.02
"""So much R@10 the default threshold may cost any group."""
_SMALL = (0, 1, 2, 4, 8, 15, 30)
"""Sizes of small views, besides what answers the question."""
_TAIL = 20
"""Of so many candidates relevance is fitted."""


# probabilities ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """A sample's ranking: what `known` and `relevance` are fitted to."""

    sample: Sample
    features: AnswerabilityFeatures
    scores: Array
    """Of the best candidates, best first."""
    right: Sequence[bool]
    """Which of them answer."""

    @property
    def has_answer(self) -> bool:
        """Whether the view holds one."""
        return bool(self.sample.expected)


def rank_sample(sample: Sample, weights: Array) -> Answer | None:
    """Rank a sample; None where there is no candidate."""
    if not len(sample.features):
        return None
    scores = sample.features @ weights
    order = np.argsort(-scores, kind="stable")
    rows = [EventScoreFeatures(*sample.features[n]) for n in order[:_TAIL]]
    features = compute_answerability_features(
        rows,
        sample.highest_cosine,
        sample.candidates.words,
        sample.candidates.events_in_view,
        sample.candidates.events_in_view,
    )
    answers = set(sample.answers)
    return Answer(
        sample, features, scores[order[:_TAIL]], [int(n) in answers for n in order[:_TAIL]]
    )


def shrink(candidates: Candidates, chance: random.Random) -> Candidates:
    """The same question in a view of few events: those that answer it, and some others."""
    right = [n for n, answers in enumerate(candidates.answers) if answers]
    others = [n for n, answers in enumerate(candidates.answers) if not answers]
    size = min(len(others), chance.choice(_SMALL) or (0 if right else 1))
    remaining = sorted(right + chance.sample(others, size))
    rows = [candidates.rows[n] for n in remaining]
    words = [
        QuestionWord(word.text, sum(row.word_bits >> n & 1 for row in rows))
        for n, word in enumerate(candidates.words)
    ]
    return replace(
        candidates,
        rows=rows,
        words=words,
        events_in_view=len(rows),
        sampled_cosines=[r.cosine for r in rows if r.cosine is not None and r.author != "tool"],
        sampled_tool_cosines=[
            r.cosine for r in rows if r.cosine is not None and r.author == "tool"
        ],
        answers=[candidates.answers[n] for n in remaining],
    )


def fit_curve(
    rows: Sequence[Sequence[float]], labels: Sequence[bool], weights: Array
) -> LogisticCurve:
    """A weighted logistic regression, by Newton's method."""
    values = np.array(rows, dtype=np.float64)
    mean, spread = values.mean(0), values.std(0) + 1e-9
    design = np.column_stack([(values - mean) / spread, np.ones(len(values))])
    result, target = np.zeros(design.shape[1]), np.array(labels, dtype=np.float64)
    for _ in range(40):
        probability = 1 / (1 + np.exp(-np.clip(design @ result, -30, 30)))
        gradient = design.T @ (weights * (probability - target)) + 0.01 * result
        curvature = weights * probability * (1 - probability)
        hessian = (design * curvature[:, None]).T @ design + 0.01 * np.eye(len(result))
        result -= np.linalg.solve(hessian, gradient)
    slopes = result[:-1] / spread
    return LogisticCurve(float(result[-1] - slopes @ mean), tuple(float(slope) for slope in slopes))


def balance(answers: Sequence[Answer]) -> Array:
    """Weights that make every group count alike, with and without an answer."""
    kinds = [(answer.sample.group, answer.has_answer) for answer in answers]
    counts = Counter(kinds)
    weights = np.array([1 / counts[kind] for kind in kinds])
    return weights * len(weights) / weights.sum()


def fit_known(answers: Sequence[Answer]) -> LogisticCurve:
    """The probability that a view holds an answer."""
    return fit_curve(
        [answer.features for answer in answers],
        [answer.has_answer for answer in answers],
        balance(answers),
    )


def relevance_rows(answer: Answer, curve: LogisticCurve) -> list[tuple[float, float]]:
    """What the curve of relevance is over, for the best candidates."""
    best = float(answer.scores[0])
    logit = curve.logit(answer.features)
    return [(best - float(value), logit) for value in answer.scores]


def fit_relevance(answers: Sequence[Answer], curve: LogisticCurve) -> LogisticCurve:
    """The probability that a candidate answers."""
    weights = np.concatenate(
        [
            np.full(len(answer.scores), weight)
            for answer, weight in zip(answers, balance(answers), strict=True)
        ]
    )
    rows = [row for answer in answers for row in relevance_rows(answer, curve)]
    return fit_curve(rows, [right for answer in answers for right in answer.right], weights)


def probability(logit: float) -> float:
    """Of the logarithm of its odds."""
    return float(1 / (1 + np.exp(-np.clip(logit, -60, 60))))


def choose_threshold(answers: Sequence[Answer], curve: LogisticCurve, loss: float) -> float:
    """The highest threshold of `known` that costs no group more than `loss` of R@10."""
    groups: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        if answer.has_answer:
            groups[answer.sample.group].append(answer)
    return min(_threshold_of(group, curve, loss) for group in groups.values())


def _threshold_of(answers: Sequence[Answer], curve: LogisticCurve, loss: float) -> float:
    pairs = sorted(
        (
            probability(curve.logit(answer.features)),
            sum(answer.right[:DEPTH]) / answer.sample.expected / len(answers),
        )
        for answer in answers
    )
    missing = 0.0
    for value, share in pairs:
        missing += share
        if missing > loss:
            return value
    return pairs[-1][0]


# measures -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """Weights and curves."""

    weights: Array
    known: LogisticCurve
    relevance: LogisticCurve

    def calibration(self, start: Calibration, min_known: float) -> Calibration:
        """As the product has it; what is not fitted stays as at the start."""
        return start._replace(
            features=EventScoreFeatures(*(float(value) for value in self.weights)),
            known=self.known,
            relevance=self.relevance,
            min_known=min_known,
        )


def fit_weights(samples: Sequence[Sample]) -> Array:
    """To the questions at home. That of the cosine is 1; without vectors those of words are
    together what they are in the product."""
    weights = Stack([sample for sample in samples if sample.expected]).fit()
    product = CALIBRATION.features
    scale = weights[0] or (weights[1] + weights[2]) / (product.words + product.words_nearby)
    return np.array([round(float(weight / scale), 4) for weight in weights])


def fit_all(samples: Sequence[Sample], views: Sequence[Sample]) -> Fit:
    """Weights by the questions at home, then the curves over all views."""
    weights = fit_weights(samples)
    answers = [answer for view in views if (answer := rank_sample(view, weights))]
    known_curve = fit_known(answers)
    return Fit(weights, known_curve, fit_relevance(answers, known_curve))


def describe(fit: Fit, views: Sequence[Sample], whole: Callable[[Sample], bool]) -> dict[str, Any]:
    """How well `known` and `relevance` tell answers apart."""
    answers = [answer for view in views if (answer := rank_sample(view, fit.weights))]
    known_ids = [(answer, probability(fit.known.logit(answer.features))) for answer in answers]
    areas: list[float] = []
    for group in sorted({answer.sample.group for answer in answers}):
        mine = [(a, p) for a, p in known_ids if a.sample.group == group and whole(a.sample)]
        right = [p for a, p in mine if a.has_answer]
        wrong = [p for a, p in mine if not a.has_answer]
        areas.append(area_under_curve(right, wrong))
    weights = balance(answers)
    known_pairs = [
        (p, a.has_answer, float(w)) for (a, p), w in zip(known_ids, weights, strict=True)
    ]
    relevance_pairs = [
        (probability(fit.relevance.logit(row)), right, float(weight))
        for answer, weight in zip(answers, weights, strict=True)
        for row, right in zip(relevance_rows(answer, fit.known), answer.right, strict=True)
    ]
    away = [answer for answer in answers if not answer.has_answer and whole(answer.sample)]
    refusals: dict[str, float] = {}
    big = [answer for answer in answers if whole(answer.sample)]
    for loss in (LOSS, 0.05, 0.1):
        threshold = choose_threshold(big, fit.known, loss)
        below = [probability(fit.known.logit(answer.features)) < threshold for answer in away]
        refusals[f"{loss:.0%} lost"] = round(float(np.average(below, weights=balance(away))), 3)
    return {
        "auc": round(fmean(areas), 3),
        "auc_worst": round(min(areas), 3),
        "refused": refusals,
        "ece_known": round(calibration_error(known_pairs), 3),
        "ece_relevance": round(calibration_error(relevance_pairs), 3),
    }


def main() -> None:
    """Collect, fit and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fit_relevance")
    recall_inputs.add_arguments(parser)
    parser.add_argument(
        "--beside",
        nargs="*",
        choices=recall_inputs.MODELS,
        default=["english", "multilingual", "e5"],
        help="models in whose spaces the questions count as well",
    )
    arguments = parser.parse_args()
    corpora = recall_inputs.load_corpora(arguments)
    askings, samples, small = list_askings(corpora), list[Sample](), list[Sample]()
    for name in dict.fromkeys([arguments.model, *arguments.beside]):
        embedder = recall_inputs.make_embedder(arguments, name)
        figures = measure_space(embedder)
        with serve(corpora, embedder) as service:
            of_space = read_samples(candidates_of(service, askings, with_vector=True), figures)
            samples += of_space[0]
            small += of_space[1]
            if name == arguments.model:
                wordless = list(candidates_of(service, askings, with_vector=False))
                report("WITHOUT_VECTOR", *read_samples(wordless, None), WITHOUT_VECTOR)
    report("every space", samples, small, CALIBRATION)


def read_samples(
    collected: Iterable[Candidates], figures: SpaceFigures | None
) -> tuple[list[Sample], list[Sample]]:
    """Samples of all questions but those of kind `none`, and the same in small views."""
    chance = random.Random(2)
    questions = [c for c in collected if c.asking.question.kind != recall_corpora.NONE]
    small = [make_sample(shrink(candidates, chance), figures) for candidates in questions]
    return [make_sample(candidates, figures) for candidates in questions], small


def report(
    name: str, samples: Sequence[Sample], small: Sequence[Sample], start: Calibration
) -> None:
    """Fit one calibration and print it."""
    whole = {id(sample) for sample in samples}
    views = [*samples, *small]
    fit = fit_all(samples, views)
    home = [sample for sample in samples if sample.expected]
    answers = [a for s in samples if (a := rank_sample(s, fit.weights))]
    threshold = choose_threshold(answers, fit.known, LOSS)
    print(name, fit.calibration(start, threshold), sep="\n")
    print("cosines' mean and deviation, and their rise by words:", measure_scales(home))
    print(_line(by_group(home, fit.weights)), *ablate(home, fit.weights), sep="\n")
    print(describe(fit, views, lambda sample: id(sample) in whole))


def ablate(samples: Sequence[Sample], weights: Array) -> list[str]:
    """What each feature earns, as Markdown: the groups' R@10 and MRR without it, less those with
    all."""
    whole = by_group(samples, weights)
    lines = [f"| without | {' | '.join(whole)} |", "|---" * (len(whole) + 1) + "|"]
    for place, name in enumerate(EventScoreFeatures._fields):
        if weights[place]:
            rest = by_group(samples, np.where(np.arange(len(weights)) == place, 0.0, weights))
            parts = (
                f"{_signed(rest[group].recall - s.recall)} / {_signed(rest[group].rank - s.rank)}"
                for group, s in whole.items()
            )
            lines.append(f"| `{name}` | {' | '.join(parts)} |")
    return lines


def _signed(difference: float) -> str:
    """As in docs/recall.md: without the 0, and with the sign for minus."""
    copy = f"{difference:+.3f}".replace("0.", ".", 1)
    return ".000" if copy[1:] == ".000" else copy.replace("-", "\N{MINUS SIGN}")


def _line(scores: Mapping[str, Scores]) -> str:
    return " | ".join(f"{group} {s.recall:.3f} / {s.rank:.3f}" for group, s in scores.items())


if __name__ == "__main__":
    main()
