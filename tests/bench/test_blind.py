"""The blind reading of `tests/bench/blind`: frozen before the first text was read."""

import hashlib
import json
from collections import Counter

import pytest

from tests.bench import blind

FROZEN = {
    "builder": "ec895238d42a592c49dd630d1205963bcb0d9bac115271e6b30133a006dbe64e",
    "twotongues": "aefccfb07df1ff67b7356af8d5840e991b58831ac06fa007a45b42dafb136852",
    "longform": "8a18ccaf0575f15fa04a9d32fa58ecd62d0934e1c113a35f1aec1ef73c58d14b",
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


def test_bench_blind_answers_are_as_reported() -> None:
    """docs/recall.md gives these counts."""
    lines = (blind.FOLDER / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines if json.loads(line)["kind"] != "none"]
    right = Counter(
        commit
        for row in rows
        for commit, reading in row["read"].items()
        if reading["grade"] == "right"
    )
    assert (len(rows), right) == (55, {"ad8a1b59": 21, "0ee1347c": 38})
