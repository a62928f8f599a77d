"""The bench of recall: its corpora are sound, and its measures are right."""

import pytest

from tests.bench import recall_corpora
from tests.bench.recall_corpora import NONE
from tests.bench.recall_quality import Score, score
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
    ("ranked", "expected"),
    [
        (["a", "b"], Score(1.0, 1.0, 1.0)),
        (["x", "b", "y"], Score(0.5, 0.5, 0.0)),
        ([*map(str, range(10)), "a"], Score(0.0, 1 / 11, 0.0)),
        ([], Score(0.0, 0.0, 0.0)),
    ],
)
def test_a_ranking_is_scored(ranked: list[str], expected: Score) -> None:
    assert score(frozenset({"a", "b"}), ranked) == expected


def test_the_area_under_the_curve_counts_pairs_in_order() -> None:
    assert area_under_curve([0.9, 0.8], [0.1, 0.2]) == 1.0
    assert area_under_curve([0.1], [0.9]) == 0.0
    assert area_under_curve([0.5, 0.9], [0.5, 0.1]) == pytest.approx(0.875)


def test_the_calibration_error_is_how_far_probabilities_are_off() -> None:
    fair = [(0.25, n == 0, 1.0) for n in range(4)]
    assert calibration_error(fair) == 0.0
    assert calibration_error([(0.9, False, 1.0), (0.9, False, 1.0)]) == pytest.approx(0.9)
