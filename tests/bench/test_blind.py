"""The blind reading of `tests/bench/blind`: frozen before the first text was read."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.bench import blind

FROZEN = {
    "builder": "ec895238d42a592c49dd630d1205963bcb0d9bac115271e6b30133a006dbe64e",
    "twotongues": "aefccfb07df1ff67b7356af8d5840e991b58831ac06fa007a45b42dafb136852",
    "longform": "8a18ccaf0575f15fa04a9d32fa58ecd62d0934e1c113a35f1aec1ef73c58d14b",
    "foundry": "ee61c6e3273ae67a395e34d102e59201c6186f30257030b72597df5022d43a03",
    "zweisprachig": "0def8f11e8ffa4a6ece21343fdb709d2b151f2b19d9e6cd195c6aad208655f94",
    "expedition": "6aa33f0eda020b72f89b5c9ac753782c2beeb8ff45535bc89afddfdcb33a08f0",
}


@pytest.mark.parametrize("name", blind.SETS)
def test_bench_blind_set_is_the_one_that_was_frozen(name: str) -> None:
    content = (blind.FOLDER / f"{name}.json").read_bytes()
    assert hashlib.sha256(content).hexdigest() == FROZEN[name]


@pytest.mark.parametrize("name", blind.SETS)
def test_bench_blind_questions_need_events_that_are_there(name: str) -> None:
    corpus = blind.to_corpus(blind.read_set(name))
    keys = {event["source_event_key"] for event in corpus.events}
    assert len(corpus.questions) == 20
    assert all(question.evidence <= keys for question in corpus.questions)


@pytest.mark.parametrize("name", blind.SETS)
def test_bench_blind_asker_sees_what_answers(name: str) -> None:
    """Else nobody could answer from the text."""
    corpus = blind.to_corpus(blind.read_set(name))
    present = {event["source_event_key"]: event["participants"] for event in corpus.events}
    for question in corpus.questions:
        (asker,) = question.participants
        assert all(asker in present[key] for key in question.evidence)


@pytest.mark.parametrize(
    ("sets", "count", "expected"),
    [
        (blind.SETS[:3], 55, {"ad8a1b59": 21, "4e277218": 41, "1a16c0af": 39}),
        (blind.SETS[3:], 54, {"ad8a1b59": 22, "4e277218": 37, "1a16c0af": 38}),
    ],
)
def test_bench_blind_answers_are_as_reported(
    sets: Sequence[str], count: int, expected: dict[str, int]
) -> None:
    """docs/recall.md gives these counts."""
    lines = (blind.FOLDER / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for line in lines if (row := json.loads(line))["set"] in sets]
    answerable = [row for row in rows if row["kind"] != "none"]
    right = Counter(
        commit
        for row in answerable
        for commit, reading in row["read"].items()
        if reading["grade"] == "right"
    )
    assert (len(answerable), right) == (count, expected)


def test_bench_blind_told_counts_words_of_the_answer_alone() -> None:
    question, answer = "How often do we poll?", "every 40 seconds (earlier 30 seconds)"
    evidence = ["From today we poll every 40 seconds."]
    assert blind.measure_answer_share("We poll every 40 seconds.", question, answer, evidence) == 1
    share = blind.measure_answer_share("We poll every 30 seconds.", question, answer, evidence)
    assert 0 < share < blind.TELLING_SHARE
    assert blind.measure_answer_share("How often do we poll?", question, answer, evidence) == 0


def test_bench_blind_told_agrees_with_readers() -> None:
    """Of the graded readings of texts: what the words tell, and whether the reader was right."""
    lines = (blind.FOLDER / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    events = {
        (name, event["id"]): event["text"]
        for name in blind.SETS
        for event in blind.read_set(name)["events"]
    }
    questions = {
        (name, question["id"]): question
        for name in blind.SETS
        for question in blind.read_set(name)["questions"]
    }
    counts = Counter[tuple[bool, bool]]()
    for row in map(json.loads, lines):
        asked = questions[row["set"], row["id"]]
        evidence = [events[row["set"], key] for key in asked["evidence"]]
        for reading in row["read"].values() if evidence else ():
            share = blind.measure_answer_share(
                reading["block"], asked["q"], asked["answer"], evidence
            )
            counts[share >= blind.TELLING_SHARE, reading["grade"] == "right"] += 1
    assert counts == {(True, True): 189, (True, False): 19, (False, True): 9, (False, False): 110}
