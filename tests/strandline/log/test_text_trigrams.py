"""The trigrams by which substrings of texts are found."""

import pytest

from tests.support import ScratchDatabase

TEXTS = (
    "",
    "a",
    "ab",
    "abc",
    "aaaaa",
    "c++ -> c",
    "éåø",
    "港は七時に",
    "👩‍👩‍👧 ok",
    "a\nb\tc  d",
    "%_%",
)


@pytest.mark.integration
@pytest.mark.parametrize("text", TEXTS)
def test_text_trigrams_are_its_runs_of_three_characters(
    scratch_db: ScratchDatabase, text: str
) -> None:
    ((trigrams,),) = scratch_db.rows("select trigrams_of(%s)", text)
    assert sorted(trigrams) == sorted(text[n : n + 3] for n in range(len(text) - 2))
