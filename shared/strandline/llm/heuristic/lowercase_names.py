"""Finds names in the lines of people who write no capitals: words that are not ordinary, and
neighbours that belong to them."""

import re
from collections.abc import Iterator, Sequence

from strandline.llm.heuristic.name_spans import is_number_of_name
from strandline.llm.heuristic.sentences import TokenizedSentence
from strandline.llm.heuristic.unlisted_words import (
    is_derived_from_listed_word,
    is_misspelt_common_word,
)
from strandline.llm.heuristic.words import GENITIVE, is_ordinary, word_list

_MODEL = re.compile(r"(?!v)[a-z]{1,2}\d{1,4}")
"""A model after a make, but not a version: orvig v4."""
_AFTER_SHORT_IS = frozenset(
    {"a", "an", "been", "fine", "gone", "got", "just", "not", "so", "still", "there"}
)
"""After a name that ends in s, these show that the s is short for "is": femkes still there."""
_AFTER_OWNER = frozenset(
    {"best", "first", "last", "little", "new", "next", "old", "other", "own", "whole"}
)
"""After a name that ends in s, these show a genitive: nunos last day."""
_PRONOUNCEABLE = re.compile(
    r"(?=.*[aeiouyà-ÿ])\w{4}|[^aeiou][aeiou][^aeiou]$|[^aeiou][aeiou]{2}$|[^aeiou]{2}[aeiou]$|[aeiou][^aeiou][aeiou]$"
)
"""Four letters, or three that can be pronounced: leo, ida, tom; not btw."""
_POSSESSIVES = frozenset({"her", "his", "its", "my", "our", "their", "your"})
"""Before a title, these show that it is a common noun: my doctor velmo."""
_NICKNAME_LENGTH = 3
"""Letters of a short form of a speaker's name."""
_NAME_ENDS_IN_S = re.compile(r"(?:[iu]|s)s$")
"""A final s that is probably part of the name and no genitive: Marcus, Doris, Kloss."""


def find_lower_case_names(
    lines: Sequence[TokenizedSentence], speakers: set[str], capital_words: set[str]
) -> Iterator[str]:
    """Names in the lines without capitals. `capital_words` are words of other names: none of them
    counts as misspelt."""
    for line in lines:
        if line.is_lower_case:
            yield from _LowerCaseNameFinder(line.words, speakers, capital_words).find()
        else:
            yield from (word for word in line.words if word in speakers and not is_ordinary(word))


class _LowerCaseNameFinder:
    """Finds unknown words in a sentence."""

    def __init__(self, words: Sequence[str], speakers: set[str], capital_words: set[str]) -> None:
        self._words = words
        self._speakers = speakers
        self._capital_words = capital_words

    def find(self) -> Iterator[str]:
        """Runs of unknown words, each with the title, the head noun and the number beside it."""
        index = 0
        while index < len(self._words):
            end = index + 2 * self._opens_with_title(index)  # any word after a title: mrs long
            while end < len(self._words) and self._may_be_name_at(end):
                end += 1
            if end > index:
                first = index - self._has_kind_word_before(index)
                yield self._build_name(first, end)
            index = max(end, index + 1)

    def _opens_with_title(self, index: int) -> bool:
        """Whether a title opens a name here. Any word may follow; after a title that is also a
        common noun, only an unknown word: judge rehling."""
        words = self._words
        title = words[index].rstrip(".").lower()
        if index + 1 >= len(words) or not (
            title in word_list("hails") or title in word_list("offices")
        ):
            return False
        next_word = words[index + 1]
        if not (next_word.islower() and next_word.replace("-", "").isalpha()):
            return False
        if next_word in word_list("stop") or next_word in word_list("does"):
            return False
        if title in word_list("hails"):
            return True
        is_owned = index > 0 and words[index - 1] in _POSSESSIVES  # my doctor velmo
        return not is_owned and self._may_be_name_at(index + 1)

    def _has_kind_word_before(self, index: int) -> bool:
        """Whether the word before names the kind of thing: studio velmo, loch orvig."""
        words = self._words
        return (
            index > 0
            and words[index - 1].rstrip(".") in word_list("leads")
            and self._may_be_name_at(index)
        )

    def _build_name(self, start: int, end: int) -> str:
        """The name without a genitive s, which these writers put without apostrophe (nunos key),
        and with the kind of thing or the number that follows it."""
        words = self._words
        name = [GENITIVE.sub("", word) for word in words[start:end]]
        next_word = words[end] if end < len(words) else ""
        second_next = words[end + 1] if end + 1 < len(words) else ""
        if next_word in word_list("auxiliaries"):
            name[-1] = words[end - 1]  # orvig's could
        if next_word in word_list("heads") and name[-1] == words[end - 1]:
            name.append(next_word)
        elif (
            second_next in word_list("firms")
            and next_word.isalpha()
            and not _is_predicate_word(next_word)
        ):
            name += (next_word, second_next)  # orvig savings bank
        elif next_word == "&" and {*words[end + 1 : end + 2]} & word_list("partners"):
            name += words[end : end + 2]
        elif self._is_genitive(name[-1], next_word):
            name[-1] = name[-1].removesuffix("s")
        elif self._has_model_number_after(start, end):
            name.append(next_word)
        return " ".join(name)

    def _is_genitive(self, word: str, next_word: str) -> bool:
        """Whether the last s is a genitive or short for "is": nunos key, nunos new key, nunos
        22."""
        owner = word.removesuffix("s")
        if owner != word and (owner in self._speakers or owner in self._capital_words):
            return True
        if owner == word or _NAME_ENDS_IN_S.search(word):
            return False
        if next_word in _AFTER_SHORT_IS or next_word in _AFTER_OWNER or next_word.isdecimal():
            return True
        return (
            next_word.isalpha()
            and not _is_predicate_word(next_word)
            and (is_ordinary(next_word) or is_misspelt_common_word(next_word))
        )

    def _has_model_number_after(self, start: int, end: int) -> bool:
        """Whether a model number follows: velmo r5. A person with a title has none, and a number
        that occurs twice counts something."""
        words = self._words
        if words[start].rstrip(".") in word_list("titles") or end == len(words):
            return False
        if words[end].isdecimal() and list(words).count(words[end]) > 1:
            return False
        return is_number_of_name(words, start, end) or bool(_MODEL.fullmatch(words[end]))

    def _may_be_name_at(self, index: int) -> bool:
        """Whether the word is not ordinary, or is a short form of a speaker."""
        word = GENITIVE.sub("", self._words[index])
        if not (word.islower() and word.replace("-", "").isalpha()):
            return False
        if self._is_speaker_or_short_form(word):
            return True
        if not _PRONOUNCEABLE.match(word) or is_ordinary(word) or is_derived_from_listed_word(word):
            return False
        if any(word in word_list(list_name) for list_name in ("peoples", "standards", "shouted")):
            return False  # orvig wifi
        return word in self._capital_words or not is_misspelt_common_word(word)

    def _is_speaker_or_short_form(self, word: str) -> bool:
        """Whether it is a speaker or a short form of one. An ordinary word is not: "the" does not
        stand for Theo, nor "art" for Arthur."""
        if word in self._speakers:
            return word not in word_list("stop")
        is_prefix = len(word) == _NICKNAME_LENGTH and any(
            speaker.startswith(word) for speaker in self._speakers
        )
        return is_prefix and not is_ordinary(word)


def _is_predicate_word(word: str) -> bool:
    return any(word in word_list(list_name) for list_name in ("stop", "does", "behind"))
