"""Names in the lines of people who write no capitals: words that are none of every day, and those
beside them that belong to them."""

import re
from collections.abc import Iterator, Sequence

from strandline.llm.heuristic.lines import Line
from strandline.llm.heuristic.spans import is_number_of
from strandline.llm.heuristic.spelling import derived, misspelt
from strandline.llm.heuristic.words import GENITIVE, listed, ordinary

_MODEL = re.compile(r"(?!v)[a-z]{1,2}\d{1,4}")
"""Of a make; not its version: orvig v4."""
_IS = frozenset({"a", "an", "been", "fine", "gone", "got", "just", "not", "so", "still", "there"})
"""Behind a name with a last s they say that it is short for is: femkes still there."""
_OWNED = frozenset(
    {"best", "first", "last", "little", "new", "next", "old", "other", "own", "whole"}
)
"""Behind a name with a last s, before what somebody has: nunos last day."""
_SOUND = re.compile(
    r"(?=.*[aeiouyà-ÿ])\w{4}|[^aeiou][aeiou][^aeiou]$|[^aeiou][aeiou]{2}$|[^aeiou]{2}[aeiou]$|[aeiou][^aeiou][aeiou]$"
)
"""Four letters, or three that can be said: leo, ida, tom; not btw."""
_OWNERS = frozenset({"her", "his", "its", "my", "our", "their", "your"})
"""Before a title they say that it is somebody's: my doctor velmo."""
_SHORT = 3
"""Letters of a speaker's short form."""
_OWN_S = re.compile(r"(?:[iu]|s)s$")
"""A last s that is rather the name's own than of who has what follows: Marcus, Doris, Kloss."""


def small(lines: Sequence[Line], speakers: set[str], capitals: set[str]) -> Iterator[str]:
    """Names of the small lines. Of `capitals`, which are other names' words, none is a slip."""
    for line in lines:
        if line.small:
            yield from _Strangers(line.words, speakers, capitals).names()
        else:
            yield from (word for word in line.words if word in speakers and not ordinary(word))


class _Strangers:
    """What is strange in a sentence."""

    def __init__(self, words: Sequence[str], speakers: set[str], capitals: set[str]) -> None:
        self._words = words
        self._speakers = speakers
        self._capitals = capitals

    def names(self) -> Iterator[str]:
        """Runs of strange words, each with the title, the heads and the number beside it."""
        place = 0
        while place < len(self._words):
            end = place + 2 * self._is_titled(place)  # whatever is behind a title: mrs long
            while end < len(self._words) and self._is_name(end):
                end += 1
            if end > place:
                first = place - self._has_head_before(place)
                yield self._name(first, end)
            place = max(end, place + 1)

    def _is_titled(self, place: int) -> bool:
        """A title opens a name, whatever word follows; one that is a common noun too, only of what
        is strange: judge rehling."""
        words = self._words
        title = words[place].rstrip(".").lower()
        if place + 1 >= len(words) or not (title in listed("hails") or title in listed("offices")):
            return False
        after = words[place + 1]
        if not (after.islower() and after.replace("-", "").isalpha()):
            return False
        if after in listed("stop") or after in listed("does"):
            return False
        if title in listed("hails"):
            return True
        own = place > 0 and words[place - 1] in _OWNERS  # my doctor velmo
        return not own and self._is_name(place + 1)

    def _has_head_before(self, place: int) -> bool:
        """What kind of thing it is, before it: studio velmo, loch orvig."""
        words = self._words
        return (
            place > 0 and words[place - 1].rstrip(".") in listed("leads") and self._is_name(place)
        )

    def _name(self, start: int, end: int) -> str:
        """Without the ending of who has what follows, which such people write without its mark:
        nunos key; with what kind of thing it is, or its number, behind it."""
        words = self._words
        name = [GENITIVE.sub("", word) for word in words[start:end]]
        after = words[end] if end < len(words) else ""
        behind = words[end + 1] if end + 1 < len(words) else ""
        if after in listed("auxiliaries"):
            name[-1] = words[end - 1]  # orvig's could
        if after in listed("heads") and name[-1] == words[end - 1]:
            name.append(after)
        elif behind in listed("firms") and after.isalpha() and not _is_said_of(after):
            name += (after, behind)  # orvig savings bank
        elif after == "&" and {*words[end + 1 : end + 2]} & listed("partners"):
            name += words[end : end + 2]
        elif self._has_what_follows(name[-1], after):
            name[-1] = name[-1].removesuffix("s")
        elif self._has_number(start, end):
            name.append(after)
        return " ".join(name)

    def _has_what_follows(self, last: str, after: str) -> bool:
        """The last s is of who has it, or short for is: nunos key, nunos new key, nunos 22."""
        owner = last.removesuffix("s")
        if owner != last and (owner in self._speakers or owner in self._capitals):
            return True
        if owner == last or _OWN_S.search(last):
            return False
        if after in _IS or after in _OWNED or after.isdecimal():
            return True
        return after.isalpha() and not _is_said_of(after) and (ordinary(after) or misspelt(after))

    def _has_number(self, start: int, end: int) -> bool:
        """A model's behind it: velmo r5. Nobody with a title has one; what comes twice counts."""
        words = self._words
        if words[start].rstrip(".") in listed("titles") or end == len(words):
            return False
        if words[end].isdecimal() and list(words).count(words[end]) > 1:
            return False
        return is_number_of(words, start, end) or bool(_MODEL.fullmatch(words[end]))

    def _is_name(self, place: int) -> bool:
        """No word of every day; or a short form of who speaks."""
        word = GENITIVE.sub("", self._words[place])
        if not (word.islower() and word.replace("-", "").isalpha()):
            return False
        if self._is_speakers(word):
            return True
        if not _SOUND.match(word) or ordinary(word) or derived(word):
            return False
        if any(word in listed(those) for those in ("peoples", "standards", "shouted")):
            return False  # orvig wifi
        return word in self._capitals or not misspelt(word)

    def _is_speakers(self, word: str) -> bool:
        """Who speaks, or a short form of that: the is none of Theo, nor art of Arthur."""
        if word in self._speakers:
            return word not in listed("stop")
        started = len(word) == _SHORT and any(one.startswith(word) for one in self._speakers)
        return started and not ordinary(word)


def _is_said_of(word: str) -> bool:
    return any(word in listed(those) for those in ("stop", "does", "behind"))
