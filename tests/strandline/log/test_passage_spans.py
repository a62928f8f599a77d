"""How long texts are taken apart into passages that are embedded."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.log.passage_spans import (
    LONG_CHARS,
    MAX_PASSAGES,
    PASSAGE_CHARS,
    split_into_passages,
    split_into_segments,
)


def test_passage_spans_of_short_text_are_none() -> None:
    assert split_into_passages("") == []
    assert split_into_passages("word " * (LONG_CHARS // 5)) == []
    assert split_into_passages("word " * (LONG_CHARS // 5) + "!") != []


def test_passage_spans_are_pinned() -> None:
    """Vectors are stored by the numbers of passages: the same text must always give the same."""
    text = "\n".join(f"Line {n}. It goes on; and on: to {n * n}." for n in range(30))
    assert split_into_passages(text) == [
        (0, 295), (296, 596), (597, 892), (893, 1085),
    ]  # fmt: skip


def test_passage_spans_of_endless_text_are_the_first() -> None:
    spans = split_into_passages("x" * 100_000)
    assert spans == [(n * 300, (n + 1) * 300) for n in range(MAX_PASSAGES)]


@given(st.text(st.sampled_from("ab .!?\n\u3002\uff1fé"), min_size=LONG_CHARS + 1, max_size=3000))
def test_passage_spans_hold_every_character(text: str) -> None:
    spans = split_into_passages(text)
    assert all(0 < end - start <= PASSAGE_CHARS for start, end in spans)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
    held = "".join(text[start:end] for start, end in spans)
    assert "".join(held.split()) == "".join(text[: spans[-1][1]].split() if spans else [])
    if len(spans) < MAX_PASSAGES:
        assert "".join(held.split()) == "".join(text.split())
    segments = split_into_segments(text)
    assert all(any(s <= a and b <= e for s, e in spans) for a, b in segments[: len(spans)])


@pytest.mark.parametrize("text", ["\n" * 500, " . " * 300])
def test_passage_spans_of_blanks_hold_no_blank_passage(text: str) -> None:
    assert all(text[start:end].strip() for start, end in split_into_passages(text))
