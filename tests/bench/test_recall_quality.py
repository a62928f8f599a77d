"""The bench of recall: its corpora are sound, and its measures are right."""

import pytest

from tests.bench import recall_corpora
from tests.bench.recall_corpora import NONE, Corpus, Question
from tests.bench.recall_quality import Row, Score, score, summarize
from tests.bench.recall_service import Asking
from tests.bench.recall_tables import tables
from tests.bench.relevance_samples import area_under_curve, calibration_error


def test_every_question_names_events_that_its_reader_may_see() -> None:
    corpora = recall_corpora.load(None)
    assert {corpus.group for corpus in corpora} == {"talks", "demo", "unseen", "corpus"}
    for corpus in corpora:
        events = {event["source_event_key"]: event for event in corpus.events}
        assert len(events) == len(corpus.events)
        for question in corpus.questions:
            assert question.participants
            assert bool(question.evidence) == (question.kind != NONE)
            for key in question.evidence:
                assert set(question.participants) <= set(events[key]["participants"])


def test_the_sets_have_questions_of_every_kind() -> None:
    for corpus in recall_corpora.load(None):
        kinds = [question.kind for question in corpus.questions]
        if corpus.group == "talks":
            assert len(kinds) == 36
            assert kinds.count("paraphrase") == 14
            assert 3 <= kinds.count(NONE) <= 5


@pytest.mark.parametrize(
    ("ranking", "expected"),
    [
        (["a", "b"], Score(1.0, 1.0, 1.0)),
        (["x", "b", "y"], Score(0.5, 0.5, 0.0)),
        ([*map(str, range(10)), "a"], Score(0.0, 1 / 11, 0.0)),
        ([], Score(0.0, 0.0, 0.0)),
    ],
)
def test_a_ranking_is_scored(ranking: list[str], expected: Score) -> None:
    assert score(frozenset({"a", "b"}), ranking) == expected


def test_the_area_under_the_curve_counts_pairs_in_order() -> None:
    assert area_under_curve([0.9, 0.8], [0.1, 0.2]) == 1.0
    assert area_under_curve([0.1], [0.9]) == 0.0
    assert area_under_curve([0.5, 0.9], [0.5, 0.1]) == pytest.approx(0.875)


def test_the_calibration_error_is_how_far_probabilities_are_off() -> None:
    fair = [(0.25, n == 0, 1.0) for n in range(4)]
    assert calibration_error(fair) == 0.0
    assert calibration_error([(0.9, False, 1.0), (0.9, False, 1.0)]) == pytest.approx(0.9)


def row(kind: str, hits: list[tuple[str, float]], *, samples: float, is_home: bool = True) -> Row:
    """A question of a corpus whose event `e1` answers it, unless of kind none."""
    home, other = (Corpus(name, "talks", (), ()) for name in ("a", "b"))
    evidence = frozenset[str]() if kind == NONE else frozenset({"e1"})
    asking = Asking(Question("q", kind, evidence, ()), home, home if is_home else other, ())
    return Row(asking, samples, samples < 0.1, hits, 1.0)


def test_a_corpus_is_summed_up_under_the_names_of_the_file() -> None:
    home = [
        row("keyword", [("e1", 0.9)], samples=0.9),
        row("temporal", [("x", 0.2), ("e1", 0.1)], samples=0.05),
        row(NONE, [("x", 0.1)], samples=0.02),
        row(NONE, [("x", 0.1)], samples=0.5),
    ]
    away = [row("keyword", [("y", 0.1)], samples=0.01, is_home=False)]
    summary = summarize(home, away, {"BM25": [Score(0.5, 0.5, 0.0)]})
    assert {name: summary[name] for name in ("R@10", "MRR", "all@10", "none_refused")} == {
        "R@10": 1.0,
        "MRR": 0.75,
        "all@10": 1.0,
        "none_refused": 0.5,
    }
    assert list(summary["by_kind"]) == ["keyword", "temporal"]
    assert summary["by_kind"]["temporal"] == {"R@10": 1.0, "MRR": 0.5, "all@10": 1.0}
    assert summary["elsewhere"]["refused_by_default"] == 1.0
    assert summary["elsewhere"]["lost_by_default"] == 0.5  # the second is refused by default
    summary["plain"]["BM25, by author"] = summary["plain"]["BM25"]
    summary["plain"]["cosine"] = {"R@10": 1.0, "MRR": 0.9, "all@10": 1.0}
    summary["held_out"] = {**summary, "held_out": summary}
    lines = "\n".join(tables({"a": summary, "all talks": summary}))
    assert "| Strandline | 1.000 / 0.750 / 1.000 |" in lines
    assert "Strandline: MRR; Strandline, held out: MRR |" in lines
    assert "all talks: of 2 questions of kind none, refused by default: 0.500" in lines
