"""How well recall ranks a conversation by weights chosen without it.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.held_out --locomo FILE [--talks FOLDER]
    [--beam FOLDER]

For each conversation of every corpus, weights are fitted to all others (listwise), and rank its
questions; so are the curves of `known` and `relevance` and the default
threshold, which judge its questions at home and asked of other tenants. Beside it stand weights
fitted without the conversation's whole group, and those of the product, fitted with everything.
What is held out are weights and curves: which features there are was decided by people who had seen
all these corpora.
"""

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from strandline.background.calibrate_space import measure_space
from strandline.embeddings.space_figures import SpaceFigures
from strandline.recall.calibrations import CALIBRATION
from strandline.recall.features import EventScoreFeatures
from tests.bench import recall_corpora, recall_inputs
from tests.bench.fit_relevance import (
    LOSS,
    Answer,
    choose_threshold,
    fit_known,
    fit_relevance,
    probability,
    rank_sample,
    relevance_rows,
    shrink,
)
from tests.bench.listwise import Stack, corpora_of, hold_out
from tests.bench.recall_service import Candidates, candidates_of, list_askings, serve
from tests.bench.recall_tables import ALL, MEASURES
from tests.bench.relevance_samples import DEPTH, FLOORS, Array, Sample, make_sample
from tests.bench.told_apart import Verdict, none_table, tell_apart

_PRODUCT = "the product"


@dataclass(frozen=True)
class Views:
    """Every question in whole views, and the same in small ones."""

    whole: Sequence[Sample]
    small: Sequence[Sample]

    @property
    def home(self) -> list[Sample]:
        """Those that something answers."""
        return [sample for sample in self.whole if sample.expected]


def read_views(collected: Sequence[Candidates], figures: SpaceFigures) -> Views:
    """Samples of all questions but those of kind `none`, as fit_relevance takes them."""
    questions = [c for c in collected if c.asking.question.kind != recall_corpora.NONE]
    chance = random.Random(2)
    return Views(
        [make_sample(candidates, figures) for candidates in questions],
        [make_sample(shrink(candidates, chance), figures) for candidates in questions],
    )


def _touches(sample: Sample, corpus: str) -> bool:
    asking = sample.candidates.asking
    return corpus in (asking.home.name, asking.tenant.name)


def judge_corpus(views: Views, corpus: str, weights: Array) -> list[Verdict]:
    """A corpus's questions, at home and away, by curves and a threshold fitted to what neither asks
    it nor is asked in it."""
    rest = [sample for sample in views.whole if not _touches(sample, corpus)]
    small = [sample for sample in views.small if not _touches(sample, corpus)]
    whole = [answer for sample in rest if (answer := rank_sample(sample, weights))]
    answers = [*whole, *(a for sample in small if (a := rank_sample(sample, weights)))]
    known_curve = fit_known(answers)
    relevance = fit_relevance(answers, known_curve)
    threshold = choose_threshold(whole, known_curve, LOSS)

    def verdict(sample: Sample, answer: Answer | None) -> Verdict:
        has_answer = bool(sample.expected)
        if answer is None:
            return Verdict(0.0, has_answer, True, 0.0, ())
        value = probability(known_curve.logit(answer.features))
        rows = relevance_rows(answer, known_curve)
        hits = [
            (probability(relevance.logit(row)), right)
            for row, right in zip(rows, answer.right, strict=True)
        ]
        recall = sum(answer.right[:DEPTH]) / sample.expected if has_answer else 0.0
        return Verdict(value, has_answer, value < threshold, recall, hits)

    mine = [s for s in views.whole if s.candidates.asking.home.name == corpus]
    return [verdict(sample, rank_sample(sample, weights)) for sample in mine]


def _means(scores: Array) -> dict[str, float]:
    return {name: round(float(row.mean()), 3) for name, row in zip(MEASURES, scores, strict=True)}


@dataclass(frozen=True)
class Choices:
    """What each way to choose weights gives: a row for each of MEASURES, a column for each
    question."""

    sides: Mapping[str, Array]
    weights: Mapping[str, Array]
    """Those chosen without each corpus, by its name; and those of the product."""


def choose(samples: Sequence[Sample]) -> Choices:
    """Weights without each corpus, without each group, and those of the product."""
    stack = Stack(samples)
    corpora = corpora_of(samples)
    names = [name for name, _ in corpora]
    groups = [
        [n for n, of in corpora if of == group] for group in dict.fromkeys(dict(corpora).values())
    ]

    held_out, choice = hold_out(stack, [[name] for name in names], stack.fit)
    group_out, _ = hold_out(stack, groups, stack.fit)
    product = np.array(CALIBRATION.features)
    return Choices(
        {
            "held_out": held_out,
            "group_out": group_out,
            "product": stack.score(product),
        },
        dict(zip([*names, _PRODUCT], [*(w / w[0] for w in choice), product], strict=True)),
    )


def measure(candidates: Sequence[Candidates], figures: SpaceFigures) -> dict[str, Any]:
    """For each corpus and group (`all GROUP`): the scores held out, those without the whole group,
    those of the product's weights, and what is told apart; and the weights chosen."""
    views = read_views(candidates, figures)
    home = views.home
    choices = choose(home)
    of_names: dict[str, list[str]] = defaultdict(list)
    for corpus, group in corpora_of(home):
        of_names[corpus].append(corpus)
        of_names[f"{ALL}{group}"].append(corpus)
    verdicts = {
        name: judge_corpus(views, name, choices.weights[name])
        for name in of_names
        if not name.startswith(ALL)
    }
    homes = np.array([sample.candidates.asking.home.name for sample in home])
    kinds = np.array([sample.candidates.asking.question.kind for sample in home])
    held_out = choices.sides["held_out"]
    corpora: dict[str, Any] = {}
    for name, members in sorted(of_names.items()):
        mine = np.isin(homes, members)
        means = [held_out[:, homes == member].mean(1) for member in members]
        judgements = [verdict for member in members for verdict in verdicts[member]]
        corpora[name] = {
            **{side: _means(scores[:, mine]) for side, scores in choices.sides.items()},
            "mean_of_conversations": _means(np.array(means).T),
            "by_kind": {
                str(kind): _means(held_out[:, mine & (kinds == kind)])
                for kind in sorted(set(kinds[mine]))
            },
            "elsewhere": tell_apart(
                [verdict for verdict in judgements if verdict.has_answer],
                [verdict for verdict in judgements if not verdict.has_answer],
            ),
        }
    weights = {name: _weights(values) for name, values in choices.weights.items()}
    return {"corpora": corpora, "weights": weights}


def _weights(values: Array) -> dict[str, float]:
    return {
        name: round(float(value), 4)
        for name, value in zip(EventScoreFeatures._fields, values, strict=True)
    }


_SIDES = {
    "held_out": "held out",
    "mean_of_conversations": "held out, mean of conversations",
    "group_out": "whole group held out",
    "product": "the product's weights",
}


def table(result: Mapping[str, Any]) -> list[str]:
    """As Markdown: every corpus and group, and the weights' range."""
    lines = [
        f"| R@10 / MRR | {' | '.join(_SIDES.values())} | floor |",
        "|---" * (len(_SIDES) + 2) + "|",
    ]
    corpora = result["corpora"]
    for name, results in corpora.items():
        sides = " | ".join(
            f"{results[side]['R@10']:.3f} / {results[side]['MRR']:.3f}" for side in _SIDES
        )
        floor = FLOORS.get(name.removeprefix(ALL)) if name.startswith(ALL) else None
        lines.append(f"| {name} | {sides} | {' / '.join(map(str, floor or ()))} |")
    kinds = corpora.get(f"{ALL}talks", {}).get("by_kind", {})
    lines += [
        "",
        "talks by kind, held out: "
        + ", ".join(
            f"{kind} {body['R@10']:.3f} / {body['MRR']:.3f}" for kind, body in kinds.items()
        ),
    ]
    figures = [(name, row["elsewhere"]) for name, row in corpora.items() if name.startswith(ALL)]
    lines += [
        "",
        *none_table(figures),
        "",
        "| weight | the product's | lowest | highest |",
        "|---|---|---|---|",
    ]
    product = result["weights"][_PRODUCT]
    for feature in EventScoreFeatures._fields:
        values = [row[feature] for name, row in result["weights"].items() if name != _PRODUCT]
        lines.append(f"| `{feature}` | {product[feature]:g} | {min(values):g} | {max(values):g} |")
    return lines


def main() -> None:
    """Measure and print; write build/held_out.json."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.held_out")
    recall_inputs.add_arguments(parser)
    parser.add_argument("--out", type=Path, default=Path("build/held_out.json"))
    arguments = parser.parse_args()
    corpora = recall_inputs.load_corpora(arguments)
    embedder = recall_inputs.make_embedder(arguments)
    with serve(corpora, embedder) as service:
        candidates = list(candidates_of(service, list_askings(corpora), with_vector=True))
    result = measure(candidates, measure_space(embedder))
    print(*table(result), sep="\n")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
