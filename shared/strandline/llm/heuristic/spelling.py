"""Words that no list has and that are ordinary all the same: derived from listed ones, misspelt."""

import re
from collections.abc import Iterator

from strandline.llm.heuristic.words import exact_frequency_band, is_ordinary, is_word_beginning

_SUFFIX = re.compile(
    r"(?:ing|ed|ly|ions?|ments?|ness|ity|ance|ence|ery|ure|age|ism|able|ful|ous|est|ies)$"
)
_PREFIX = re.compile(
    r"(?:re|un|non|pre|mis|de|dis|sub|over|inter|counter|anti|multi|semi|micro|mega|auto)-?"
    r"(?=\w{4})"
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MIN_ROOT_LETTERS = 4
"""Letters that an ending needs before it: Aldous has three."""
_MAX_BAND_BY_LENGTH = {4: 10, 5: 20}
"""The band up to which a word of so many letters and one more is common enough to be meant; longer
ones of any band are, shorter ones are all alike."""
_VOWELS = "aeiou"
_MAX_COMMON_BAND = 20
"""The band up to which a word is common enough to be written in haste."""
_RARE_BAND = 99
_MAX_LETTERS = 64
"""Letters that no listed word has, nor any that is a slip away from one."""


def is_derived(word: str) -> bool:
    """Made like words of every day from a listed one's beginning: rebooking, tweetable; and what is
    no word at all: aaaah."""
    word = word.lower()
    if re.search(r"(.)\1\1", word):
        return True
    if (prefix := _PREFIX.match(word)) and is_ordinary(word[prefix.end() :]):
        return True
    ending = _SUFFIX.search(word)
    return (
        bool(ending)
        and ending.start() >= _MIN_ROOT_LETTERS
        and is_word_beginning(word[: ending.start()])
    )


def is_misspelt(word: str) -> bool:
    """A small word that a common one becomes by a letter left out, said twice or cut off (goin), or
    by two that changed places."""
    if not min(_MAX_BAND_BY_LENGTH) <= len(word) <= _MAX_LETTERS:
        return False
    if not (word.isascii() and word.isalpha() and word.islower()):
        return False
    if any(map(_is_common, _undo_doubling(word))):
        return True
    bands = map(exact_frequency_band, _undo_slip(word))
    return any(band and band <= _MAX_BAND_BY_LENGTH.get(len(word), band) for band in bands)


def _is_common(word: str) -> bool:
    return (exact_frequency_band(word) or _RARE_BAND) <= _MAX_COMMON_BAND


def _undo_doubling(word: str) -> Iterator[str]:
    """Words of which a letter is not doubled, or is, and whose ending lacks its last."""
    for index in range(1, len(word)):
        if word[index] == word[index - 1]:
            yield word[:index] + word[index + 1 :]
        elif word[index] not in _VOWELS:
            yield word[:index] + word[index] + word[index:]
    if word.endswith("in"):
        yield word + "g"


def _undo_slip(word: str) -> Iterator[str]:
    """Words without the slip. The last letter is seldom forgotten, and is what names lack: Meridia.
    Of four letters only a vowel is: Hans is no hand."""
    for index in range(len(word) - 1):
        yield word[:index] + word[index + 1] + word[index] + word[index + 2 :]
    for index in range(1, len(word)):
        for letter in _LETTERS if len(word) > min(_MAX_BAND_BY_LENGTH) else _VOWELS:
            yield word[:index] + letter + word[index:]
