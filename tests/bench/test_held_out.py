"""Weights chosen without a conversation know nothing of it, and what is told apart is counted."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from strandline.recall.features import EventScoreFeatures
from tests.bench.listwise import PENALTY, Stack, corpora_of, hold_out
from tests.bench.plain_rankings import fuse, score_bm25
from tests.bench.recall_corpora import Corpus, Question
from tests.bench.recall_service import Asking, Candidates
from tests.bench.recall_tables import below
from tests.bench.relevance_samples import Array, Sample, score
from tests.bench.told_apart import Verdict, refused_at, tell_apart

_DATE = EventScoreFeatures._fields.index("date")
_SAYS_NOTHING = EventScoreFeatures._fields.index("says_nothing")
_FITTED = EventScoreFeatures._fields.index("by_agent")
"""The features from here on have fixed weights."""


def sample_of(name: str, features: Array, answers: Sequence[int], expected: int = 1) -> Sample:
    """A question of the corpus `name`."""
    corpus = Corpus(name, "talks", (), ())
    asking = Asking(Question("q", "keyword", frozenset("e"), ()), corpus, corpus, ())
    candidates = cast("Candidates", type("Asked", (), {"asking": asking}))
    return Sample("talks", candidates, features, answers, expected)


def random_samples(count: int) -> list[Sample]:
    """Of four corpora; some candidates are alike, and some questions have none."""
    chance = np.random.default_rng(7)
    samples: list[Sample] = []
    for n in range(count):
        rows = np.round(
            chance.random((int(chance.integers(0, 30)), len(EventScoreFeatures._fields))), 0
        )
        answers = sorted({int(a) for a in chance.integers(0, 30, 2) if a < len(rows)})
        samples.append(sample_of(f"c{n % 4}", rows, answers, 2))
    return samples


def test_held_out_stack_scores_match_single_questions() -> None:
    samples = random_samples(40)
    stack = Stack(samples)
    for weights in (
        (1, *[0] * 13),
        (1, 0.4, 0.2, 0, 0, -0.16, 0, 0.08, 0, 0.1, -1, 0.5, -2, 0.3),
    ):
        recall, rank, whole = stack.score(np.array(weights))
        for n, sample in enumerate(samples):
            expected = score(sample, np.array(weights))
            assert recall[n] == pytest.approx(expected.recall)
            assert rank[n] == pytest.approx(expected.rank if expected.rank > 1 / 21 else 0.0)
            assert whole[n] == (expected.recall == 1.0)


def dated_samples(name: str, sign: float) -> list[Sample]:
    """Ten questions whose answer has the lowest cosine of three; its date tells it if `sign` is 1,
    and speaks against it if -1."""
    rows = np.zeros((3, len(EventScoreFeatures._fields)))
    rows[:, 0] = (0.4, 0.5, 0.6)
    rows[:, _DATE] = (sign, 0.0, 0.0)
    return [sample_of(name, rows, [0]) for _ in range(10)]


def test_held_out_weights_ignore_their_conversation() -> None:
    others = dated_samples("a", 1.0) + dated_samples("b", 1.0)
    samples = [*others, *dated_samples("odd", -1.0)]
    stack = Stack(samples)
    folds = [[name] for name, _ in corpora_of(samples)]
    assert folds == [["a"], ["b"], ["odd"]]
    scores, choice = hold_out(stack, folds, stack.fit)
    assert choice[2][_DATE] > 0.2  # by the other two, whatever the third would need
    assert scores[1, 20:] == pytest.approx(np.full(10, 1 / 3))
    assert Stack(others).fit() == pytest.approx(choice[2])


def test_held_out_fit_gives_omitted_feature_no_weight() -> None:
    stack = Stack(dated_samples("a", 1.0))
    assert stack.fit(without=_DATE)[_DATE] == 0
    assert stack.fit()[_DATE] > 0.2


def test_held_out_fit_fixes_agent_and_tool_weights() -> None:
    """Whatever they would be fitted to; without vectors a tool's text weighs nothing."""
    samples = [sample for sample in random_samples(60) if sample.answers]
    for sample in samples:
        # of events that say nothing, whose weight decides all else
        sample.features[:, _SAYS_NOTHING] = 0.0
    weights = Stack(samples).fit()
    assert abs(weights[0]) > 0.01
    expected = [-weights[0], -weights[0], -20 * weights[0], 0.6 * weights[0]]
    assert weights[_FITTED:] == pytest.approx(expected)
    for sample in samples:
        sample.features[:, 0] = 0.0
    weights = Stack(samples).fit()
    assert weights[0] == 0.0
    assert abs(weights[_FITTED]) > 0.001
    assert weights[_FITTED + 1] == 0.0


def test_held_out_fit_counts_groups_alike() -> None:
    """Many questions of one group say the opposite of few of another: neither wins by number."""
    few, many = dated_samples("a", -1.0)[:2], [*dated_samples("b", 1.0), *dated_samples("b", 1.0)]
    mixture = [*many, *(replace(sample, group="demo") for sample in few)]
    assert Stack([*many, *few]).fit()[_DATE] > 0.1
    assert Stack(mixture).fit()[_DATE] < Stack([*many, *few]).fit()[_DATE] / 2


def test_held_out_fit_minimises_loss() -> None:
    """From there no step in any direction leads down, by a loss that is counted again."""
    samples = [sample for sample in random_samples(60) if sample.answers]
    for sample in samples:
        sample.features[:, _FITTED:] = 0.0
    spread = np.vstack([sample.features for sample in samples]).std(0)

    def loss(weights: Array) -> float:
        total = PENALTY / 2 * float(((weights * spread) ** 2).sum())
        for sample in samples:
            shares = np.exp(sample.features @ weights)
            logs = np.log(shares[sample.answers] / shares.sum())
            total -= float(logs.mean()) / len(samples)
        return total

    weights = Stack(samples).fit()
    for place in range(_FITTED):
        for step in (-0.05, 0.05):
            trial = weights + np.where(np.arange(len(weights)) == place, step, 0.0)
            assert loss(trial) > loss(weights)


def verdict(samples: float, recall: float | None) -> Verdict:
    """Of a question with an answer, unless `recall` is None."""
    has_answer = recall is not None
    return Verdict(samples, has_answer, samples < 0.3, recall or 0.0, [(samples, has_answer)])


def test_held_out_refusal_costs_no_more_than_allowed() -> None:
    home = [verdict(0.1, 0.0), verdict(0.2, 0.1), *(verdict(0.9, 1.0) for _ in range(8))]
    away = [verdict(samples, None) for samples in (0.05, 0.15, 0.5, 0.95)]
    assert refused_at(home, away, 0.5) == 0.5  # the threshold is .2, which would cost a point
    assert refused_at(home, away, 2) == 0.75
    assert tell_apart(home, away) == {
        "auc": (8 * 3 + 2 + 1) / 40,
        "refused_by_default": 0.5,
        "lost_by_default": 0.01,
        "refused_at_2_points": 0.75,
        "refused_at_5_points": 0.75,
        "refused_at_10_points": 0.75,
        "calibration_error_known": 0.214,
        "calibration_error_relevance": 0.214,
    }


def test_held_out_comparison_takes_better_of_two() -> None:
    words = {"R@10": 0.5, "MRR": 0.4}
    ways = {"BM25": words, "BM25, by author": words, "cosine": {"R@10": 0.6, "MRR": 0.3}}
    assert below({"R@10": 0.6, "MRR": 0.4}, ways) == []
    assert below({"R@10": 0.55, "MRR": 0.35}, ways) == ["R@10", "MRR"]


def test_held_out_baselines_fuse_ranks_and_score_words() -> None:
    assert fuse([(1.0, ["a", "b"]), (1.0, ["b", "c"])], 60) == ["b", "a", "c"]
    scores = score_bm25([{"buoy": 1, "tide": 9}, {"buoy": 1}, {"tide": 1}], {"buoy": 1})
    assert scores[1] > scores[0] > scores[2] == 0.0
