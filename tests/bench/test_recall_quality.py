"""The bench of recall: its corpora are sound, and its measures are right."""

import json
from pathlib import Path

import pytest

from tests.bench import beam, recall_corpora
from tests.bench.recall_corpora import NONE, Corpus, Question
from tests.bench.recall_quality import Row, Score, score, summarize
from tests.bench.recall_service import Asking
from tests.bench.recall_tables import tables
from tests.bench.relevance_samples import area_under_curve, calibration_error


def test_recall_quality_questions_name_visible_events() -> None:
    corpora = recall_corpora.load(None, recall_corpora.LATER_SETS)
    shipped, later = {"talks", "demo", "unseen", "corpus"}, {"research", "ops", "family", "tongues"}
    assert {corpus.group for corpus in corpora} == shipped | later
    for corpus in corpora:
        events = {event["source_event_key"]: event for event in corpus.events}
        assert len(events) == len(corpus.events)
        for question in corpus.questions:
            assert question.participants
            assert bool(question.evidence) == (question.kind != NONE)
            for key in question.evidence:
                assert set(question.participants) <= set(events[key]["participants"])


def test_recall_quality_sets_have_every_question_kind() -> None:
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
def test_recall_quality_scores_ranking(ranking: list[str], expected: Score) -> None:
    assert score(frozenset({"a", "b"}), ranking) == expected


def test_recall_quality_area_under_curve_counts_ordered_pairs() -> None:
    assert area_under_curve([0.9, 0.8], [0.1, 0.2]) == 1.0
    assert area_under_curve([0.1], [0.9]) == 0.0
    assert area_under_curve([0.5, 0.9], [0.5, 0.1]) == pytest.approx(0.875)


def test_recall_quality_calibration_error_is_mean_deviation() -> None:
    fair = [(0.25, n == 0, 1.0) for n in range(4)]
    assert calibration_error(fair) == 0.0
    assert calibration_error([(0.9, False, 1.0), (0.9, False, 1.0)]) == pytest.approx(0.9)


def row(kind: str, hits: list[tuple[str, float]], *, samples: float, is_home: bool = True) -> Row:
    """A question of a corpus whose event `e1` answers it, unless of kind none."""
    home, other = (Corpus(name, "talks", (), ()) for name in ("a", "b"))
    evidence = frozenset[str]() if kind == NONE else frozenset({"e1"})
    asking = Asking(Question("q", kind, evidence, ()), home, home if is_home else other, ())
    return Row(asking, samples, samples < 0.1, hits, 1.0)


def test_recall_quality_summary_uses_names_of_file() -> None:
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


def test_recall_quality_reads_beam_as_published(tmp_path: Path) -> None:
    """A batch is a session from the day that it names; messages bear no marks of their making."""
    turns = [
        {"role": "user", "id": 0, "time_anchor": "March-15-2024", "content": "I plan. ->-> 1,1"},
        {"role": "assistant", "id": 1, "content": "Well."},
    ]
    asked = {"question": "What do I do?", "source_chat_ids": {"first": [0], "second": [7]}}
    for number in beam.TALKS:
        folder = tmp_path / "chats" / "100K" / str(number)
        (folder / "probing_questions").mkdir(parents=True)
        batches = [{"batch_number": "1", "turns": [turns]}]
        (folder / "chat.json").write_text(json.dumps(batches))
        questions = {"knowledge_update": [asked], "abstention": [{"question": "Why?"}]}
        path = folder / "probing_questions" / "probing_questions.json"
        path.write_text(json.dumps(questions))
    talks = beam.load(tmp_path)
    assert [talk.name for talk in talks] == [f"beam-{number}" for number in range(1, 11)]
    assert [(e["content"], e["role"], e["occurred_at"]) for e in talks[0].events] == [
        ("I plan.", "user", "2024-03-15T09:00:00+00:00"),
        ("Well.", "agent", "2024-03-15T09:01:00+00:00"),
    ]
    assert [(q.kind, set(q.evidence)) for q in talks[0].questions] == [
        ("knowledge_update", {"m0"}),
        (NONE, set()),
    ]


def test_recall_quality_groups_further_sets(tmp_path: Path) -> None:
    """Those that ship are not read twice; those whose names differ by a number are one group."""
    shipped = sorted(recall_corpora.SETS.glob("*.json"))[0].read_text()
    (tmp_path / "copy.json").write_text(shipped)
    talk = json.loads(shipped)
    talk["events"][0]["text"] = "Something else."
    for name in ("held1", "held2", "coder"):
        (tmp_path / f"{name}.json").write_text(json.dumps(talk))
    more = recall_corpora.load(None, tmp_path)
    assert len(more) == len(recall_corpora.load(None)) + 3
    groups = {corpus.name: corpus.group for corpus in more}
    assert (groups["held1"], groups["held2"], groups["coder"]) == ("held", "held", "coder")
    assert "copy" not in groups
