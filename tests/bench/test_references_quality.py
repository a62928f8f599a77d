"""The bench of references: its measures are right."""

import pytest

from tests.bench.recall_corpora import Corpus, Question
from tests.bench.recall_service import Asking
from tests.bench.references_quality import (
    RECALL,
    REFERENCES,
    TEXTS,
    Row,
    Shown,
    count_tokens,
    summarize,
    table,
)

CORPUS = Corpus("a", "talks", [], [])


def row(kind: str, evidence: str, references: str, recall: str) -> Row:
    question = Question("?", kind, frozenset(evidence), ["user:alice"])
    shown = {REFERENCES: references, RECALL: recall, TEXTS: recall}
    return Row(
        Asking(question, CORPUS, CORPUS, question.participants),
        {way: Shown(frozenset(keys), 10) for way, keys in shown.items()},
    )


def test_the_share_of_the_evidence_is_counted_by_group_and_kind() -> None:
    rows = [
        row("keyword", "ab", "axy", "ab"),
        row("keyword", "c", "c", "x"),
        row("temporal", "de", "", "d"),
    ]
    found = summarize(rows)
    assert list(found) == ["talks", "talks: keyword", "talks: temporal"]
    assert found["talks"][REFERENCES]["recall"] == 0.5
    assert found["talks"][RECALL]["recall"] == 0.5
    assert (found["talks"]["more"], found["talks"]["fewer"]) == (1, 2)
    assert found["talks: keyword"][REFERENCES] == {
        "recall": 0.75,
        "complete": 0.5,
        "events": 2.0,
        "tokens": 10,
    }
    assert len(table(found)) == 5


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("é" * 2, 1)]
)
def test_tokens_are_counted_as_the_service_counts_them(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens
