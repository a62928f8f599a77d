"""Recognises ordinary words that no list has: derived from listed ones, or misspelt."""

import re
from collections.abc import Iterator

from strandline.llm.heuristic.words import (
    exact_frequency_band,
    is_ordinary,
    is_prefix_of_listed_word,
)

_SUFFIX = re.compile(
    r"(?:ing|ed|ly|ions?|ments?|ness|ity|ance|ence|ery|ure|age|ism|able|ful|ous|est|ies)$"
)
_PREFIX = re.compile(
    r"(?:re|un|non|pre|mis|de|dis|sub|over|inter|counter|anti|multi|semi|micro|mega|auto)-?"
    r"(?=\w{4})"
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MIN_ROOT_LETTERS = 4
"""Fewest letters before an ending: Aldous has only three."""
_MAX_BAND_BY_LENGTH = {4: 10, 5: 20}
"""By length of the misspelt word: the highest band of a word with one letter more that may be
meant. For longer words any band may be; shorter words are too similar to each other."""
_VOWELS = "aeiou"
_MAX_COMMON_BAND = 20
"""The highest band of words that count as common."""
_RARE_BAND = 99
_MAX_LETTERS = 64
"""No listed word, and no misspelling of one, has more letters."""


def is_derived_from_listed_word(word: str) -> bool:
    """Whether a word is built from the beginning of a listed one, as rebooking and tweetable are,
    or is no word at all: aaaah."""
    word = word.lower()
    if re.search(r"(.)\1\1", word):
        return True
    if (prefix := _PREFIX.match(word)) and is_ordinary(word[prefix.end() :]):
        return True
    ending = _SUFFIX.search(word)
    return (
        bool(ending)
        and ending.start() >= _MIN_ROOT_LETTERS
        and is_prefix_of_listed_word(word[: ending.start()])
    )


def is_misspelt_common_word(word: str) -> bool:
    """Whether a lower-case word is a common one with a letter omitted, doubled or cut off (goin),
    or with two letters swapped."""
    if not min(_MAX_BAND_BY_LENGTH) <= len(word) <= _MAX_LETTERS:
        return False
    if not (word.isascii() and word.isalpha() and word.islower()):
        return False
    if any(map(_is_common_word, _list_doubling_candidates(word))):
        return True
    bands = map(exact_frequency_band, _list_typing_slip_candidates(word))
    return any(band and band <= _MAX_BAND_BY_LENGTH.get(len(word), band) for band in bands)


def _is_common_word(word: str) -> bool:
    return (exact_frequency_band(word) or _RARE_BAND) <= _MAX_COMMON_BAND


def _list_doubling_candidates(word: str) -> Iterator[str]:
    """The words without a doubled letter, with one, or with the missing g of -ing."""
    for index in range(1, len(word)):
        if word[index] == word[index - 1]:
            yield word[:index] + word[index + 1 :]
        elif word[index] not in _VOWELS:
            yield word[:index] + word[index] + word[index:]
    if word.endswith("in"):
        yield word + "g"


def _list_typing_slip_candidates(word: str) -> Iterator[str]:
    """The words without the slip. A last letter is seldom forgotten, and names often look as if one
    were: Meridia. In words of four letters only a vowel is restored: Hans is not "hand"."""
    for index in range(len(word) - 1):
        yield word[:index] + word[index + 1] + word[index] + word[index + 2 :]
    for index in range(1, len(word)):
        for letter in _LETTERS if len(word) > min(_MAX_BAND_BY_LENGTH) else _VOWELS:
            yield word[:index] + letter + word[index:]
