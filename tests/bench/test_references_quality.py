"""The bench of references: its measures are right."""

from types import SimpleNamespace
from typing import cast

import pytest

from tests.bench.recall_corpora import Corpus, Question
from tests.bench.recall_service import Asking, RecallService
from tests.bench.references_quality import (
    RECALL,
    REFERENCES,
    TEXTS,
    Row,
    ShownEvents,
    count_tokens,
    fit_lines,
    summarize,
    table,
)

CORPUS = Corpus("a", "talks", [], [])


def row(kind: str, evidence: str, references: str, recall: str) -> Row:
    question = Question("?", kind, frozenset(evidence), ["user:alice"])
    ways = {REFERENCES: references, RECALL: recall, TEXTS: recall}
    return Row(
        Asking(question, CORPUS, CORPUS, question.participants),
        {way: ShownEvents(frozenset(keys), 10) for way, keys in ways.items()},
    )


def test_references_quality_counts_evidence_by_group_and_kind() -> None:
    rows = [
        row("keyword", "ab", "axy", "ab"),
        row("keyword", "c", "c", "x"),
        row("temporal", "de", "", "d"),
    ]
    result = summarize(rows)
    assert list(result) == ["talks", "talks: keyword", "talks: temporal"]
    assert result["talks"][REFERENCES]["recall"] == 0.5
    assert result["talks"][RECALL]["recall"] == 0.5
    assert (result["talks"]["more"], result["talks"]["fewer"]) == (1, 2)
    assert result["talks: keyword"][REFERENCES] == {
        "recall": 0.75,
        "complete": 0.5,
        "events": 2.0,
        "tokens": 10,
    }
    assert len(table(result)) == 5


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("é" * 2, 1)]
)
def test_references_quality_counts_tokens_like_service(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens


def test_references_quality_counts_speakerless_and_payload_lines() -> None:
    hits = [
        {"event_id": str(n), "occurred_at": "2026-03-02T09:14:00Z", "speaker": None, **fields}
        for n, fields in enumerate(
            [{"text": None, "name": "build.log"}, {"text": "Keel.", "name": None}]
        )
    ]
    service = cast("RecallService", SimpleNamespace(event_keys={"0": "a", "1": "b"}))
    text = fit_lines(service, hits)
    assert text.keys == {"a", "b"}
    lines = "[1] Mon 2 March 2026, user: build.log\n[2] Mon 2 March 2026, user: Keel.\n"
    assert text.tokens == count_tokens(lines)
