"""Words: how common they are, and which are ordinary."""

import random
from pathlib import Path

import pytest

from strandline.llm.heuristic import words
from strandline.llm.heuristic.words import get_stem_frequency_band, is_ordinary, stem_english_word


@pytest.mark.parametrize(
    ("word", "common"),
    [
        ("about", 10),
        ("About", 10),
        ("house's", 10),
        ("closing", 10),  # as close is
        ("flies", 10),  # as flying is
        ("dying", 10),  # as die is
        ("aardvarks", 20),
        ("abacus", 35),
        ("colour", 10),
        ("color", 10),
        ("abashing", 40),
        ("velmo", None),
        ("Grüße", None),
        ("", None),
        ("7", None),
    ],
)
def test_words_have_frequency_bands(word: str, common: int | None) -> None:
    assert get_stem_frequency_band(word) == common


def test_words_are_found_by_stem() -> None:
    """What is looked up by beginnings is what stemming all the words would give."""
    text = (Path(words.__file__).parent / "words.txt").read_text()
    lowest: dict[str, int] = {}
    band_now, every = 0, list[str]()
    for word in " ".join(line for line in text.splitlines() if line[:1] != "#").split():
        if word.endswith(":"):
            band_now = int(word[:-1])
            continue
        every.append(word)
        lowest.setdefault(stem_english_word(word), band_now)
    some = random.Random(1).sample(sorted(every), 1500)
    assert [get_stem_frequency_band(word) for word in some] == [
        lowest[stem_english_word(word)] for word in some
    ]


def test_words_list_is_separate_from_licence() -> None:
    text = (Path(words.__file__).parent / "words.txt").read_text(encoding="ascii")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    bands = [line.split(":")[0] for line in lines if not line.startswith(" ")]
    assert bands == ["10", "20", "35", "40"]
    for notice in ("Kevin Atkinson", "Princeton", "Benjamin Titze", "Geoff Kuenning"):
        assert f"by {notice}" in text or f", {notice}" in text


@pytest.mark.parametrize(
    "word", ["rope", "Ropes", "re-opening", "abacuses", "wrecker's", "webhook"]
)
def test_words_of_daily_use_are_ordinary(word: str) -> None:
    assert is_ordinary(word)


@pytest.mark.parametrize("word", ["Dominic", "velmo", "Okthorpe", "tolverne"])
def test_words_of_names_are_not_ordinary(word: str) -> None:
    assert not is_ordinary(word)
