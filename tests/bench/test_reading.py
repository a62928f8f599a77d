"""What readers are given: no answer but in the key, the same questions every time."""

import json
from pathlib import Path

from tests.bench import reading, recall_corpora
from tests.bench.reading import GROUPS, QUESTIONS, Reading


def test_bench_reading_questions_are_same_and_of_every_kind() -> None:
    corpora = recall_corpora.load(None)
    choice = reading.choose(corpora, 1)
    assert [name for name, _ in choice] == [
        f"{group}-{n}" for group in GROUPS if group != "locomo" for n in range(1, QUESTIONS + 1)
    ]
    assert [asking for _, asking in reading.choose(corpora, 1)] == [asking for _, asking in choice]
    assert [asking for _, asking in reading.choose(corpora, 2)] != [asking for _, asking in choice]
    assert all(asking.question.evidence for _, asking in choice)
    kinds = {asking.question.kind for name, asking in choice if name.startswith("talks")}
    assert len(kinds) == QUESTIONS


def test_bench_reading_shows_question_and_one_text_only(tmp_path: Path) -> None:
    one = Reading("demo-1", "Where?", "demo", "the block", "the turns", ["the answer"])
    reading.write(tmp_path, [one])
    context, turns = ((tmp_path / kind / "demo-1.txt").read_text() for kind in ("context", "turns"))
    assert "Question: Where?\n\nthe block\n" in context
    assert "Question: Where?\n\nthe turns\n" in turns
    assert "the answer" not in context + turns
    assert "demo" not in context + turns
    key = json.loads((tmp_path / "key.json").read_text())
    assert key["demo-1"]["evidence"] == ["the answer"]
    assert key["demo-1"]["tokens"] == {"context": 3, "turns": 3}
