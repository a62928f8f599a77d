"""Words that no list has and that are ordinary all the same: derived from listed ones, misspelt."""

import re
from collections.abc import Iterator

from strandline.llm.heuristic.words import band_as_spelt, begins, ordinary

_ABSTRACT = re.compile(
    r"(?:ing|ed|ly|ions?|ments?|ness|ity|ance|ence|ery|ure|age|ism|able|ful|ous|est|ies)$"
)
_BEFORE = re.compile(
    r"(?:re|un|non|pre|mis|de|dis|sub|over|inter|counter|anti|multi|semi|micro|mega|auto)-?"
    r"(?=\w{4})"
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ROOT = 4
"""Letters that an ending needs before it: Aldous has three."""
_COMMON = {4: 10, 5: 20}
"""The band up to which a word of so many letters and one more is common enough to be meant; longer
ones of any band are, shorter ones are all alike."""
_VOWELS = "aeiou"
_KNOWN = 20
"""The band up to which a word is common enough to be written in haste."""
_RARE = 99
_LONGEST = 64
"""Letters that no listed word has, nor any that is a slip away from one."""


def derived(word: str) -> bool:
    """Made like words of every day from a listed one's beginning: rebooking, tweetable; and what is
    no word at all: aaaah."""
    word = word.lower()
    if re.search(r"(.)\1\1", word):
        return True
    if (before := _BEFORE.match(word)) and ordinary(word[before.end() :]):
        return True
    ending = _ABSTRACT.search(word)
    return bool(ending) and ending.start() >= _ROOT and begins(word[: ending.start()])


def misspelt(word: str) -> bool:
    """A small word that a common one becomes by a letter left out, said twice or cut off (goin), or
    by two that changed places."""
    if not min(_COMMON) <= len(word) <= _LONGEST:
        return False
    if not (word.isascii() and word.isalpha() and word.islower()):
        return False
    if any(map(_is_common, _undone(word))):
        return True
    bands = map(band_as_spelt, _meant(word))
    return any(band and band <= _COMMON.get(len(word), band) for band in bands)


def _is_common(word: str) -> bool:
    return (band_as_spelt(word) or _RARE) <= _KNOWN


def _undone(word: str) -> Iterator[str]:
    """Words of which a letter is not doubled, or is, and whose ending lacks its last."""
    for at in range(1, len(word)):
        if word[at] == word[at - 1]:
            yield word[:at] + word[at + 1 :]
        elif word[at] not in _VOWELS:
            yield word[:at] + word[at] + word[at:]
    if word.endswith("in"):
        yield word + "g"


def _meant(word: str) -> Iterator[str]:
    """Words without the slip. The last letter is seldom forgotten, and is what names lack: Meridia.
    Of four letters only a vowel is: Hans is no hand."""
    for at in range(len(word) - 1):
        yield word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    for at in range(1, len(word)):
        for letter in _LETTERS if len(word) > min(_COMMON) else _VOWELS:
            yield word[:at] + letter + word[at:]
