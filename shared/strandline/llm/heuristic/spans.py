"""Runs of words with capitals in a sentence, and what around them belongs to them or says that
they are names."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from strandline.llm.heuristic.codes import VERSION, acronym
from strandline.llm.heuristic.spelling import derived
from strandline.llm.heuristic.words import GENITIVE, bare, listed, ordinary, plain
from strandline.llm.types import EntityKind

_SAINTS = frozenset({"st", "saint"})
"""A genitive goes on to what is called after them: St Olaf's Church."""
_MODEL = re.compile(r"[A-Z]{1,3}\d{1,4}|\d[xX]\d")
"""Of a make: Velmo R5, Halden TX300, Velmo 4x4."""
_LETTERED = re.compile(r"[1-9]\d{0,3}[a-eA-Z]")
"""A model's number with a letter, not of a unit: Petrel 7a, Halden 30S."""
_PART = re.compile(r"\d+\.\d+")
_HOUSE = re.compile(r"[1-9]\d{0,2}[a-eA-E]?")
_CLEAR = frozenset({"a", "an", "and", "this", "these", "to"})
"""Behind a figure they say that it counts nothing."""
_PRESSED = frozenset({"click", "clicked", "hit", "press", "select", "tap", "under"})
"""Before a word that is on a screen: under Settings."""
_NO_NAMES = ("stop", "openers", "calendar", "units")


class Span(NamedTuple):
    """A run of words with capitals."""

    words: tuple[str, ...]
    opens: bool
    """It opens a sentence, a quotation or what follows a colon: the capital may be due there."""
    marked: bool
    """What follows says that it is a name."""
    kind: EntityKind


def spans(words: Sequence[str]) -> Iterator[Span]:
    """A sentence's runs of names' words, and what stands around them."""
    place = 0
    while place < len(words):
        if words[place][0].islower():
            place += 1
            continue
        end = place + _opens_street(words, place) + _is_unfinished_title(words, place)
        end = max(end + _is_prefix(words, end), _end_of_title(words, place))
        while end < len(words) and (name_like(words[end]) or _is_last(words, place, end)):
            end += 1
            if GENITIVE.search(words[end - 1]) and not _is_theirs(words, place, end):
                break
            end += _is_link(words, end)
        if end > place and is_number_of(words, place, end):
            end += 1
        if end > place and not _is_common(words, place, end):
            yield _span(words, place, end)
        place = max(end, place + 1)


def _is_common(words: Sequence[str], start: int, end: int) -> bool:
    """An ordinary word by itself on a screen, or an institution without its name: the Trust."""
    if end - start > 1 or not start or not ordinary(words[start]):
        return False
    before, word = words[start - 1].lower(), words[start].lower()
    return before in _PRESSED or (before == "the" and word in listed("companies"))


def _opens_street(words: Sequence[str], place: int) -> bool:
    """A house's number before its street: 4 Cooper Cottages. Behind a name it is that one's."""
    if not _HOUSE.fullmatch(words[place]) or (place and words[place - 1][0].isupper()):
        return False
    end = place + 1
    while end < len(words) and (name_like(words[end]) or words[end].istitle()):
        end += 1
    return end > place + 2 and words[end - 1].lower() in listed("streets")


def _is_unfinished_title(words: Sequence[str], place: int) -> bool:
    """The first word of a title that goes on with one that has no other use for its capital:
    While They Sleep."""
    if place + 2 >= len(words) or not words[place].istitle():
        return False
    first, second, third = words[place : place + 3]
    inner = second.istitle() and bare(second) in listed("stop") - listed("articles")
    dated = {bare(first), bare(second)} & listed("calendar")
    return inner and len(second) > 1 and not dated and third[0].isupper() and first.isalpha()


def _end_of_title(words: Sequence[str], start: int) -> int:
    """Behind a run of capitals inside a sentence that opens with words that are no names by
    themselves: Up With The Larks, the What's On; `start` where there is none."""
    if start == 0 or not words[start - 1].islower():
        return start
    end = start
    while end < len(words) and _is_of_title(words[end]):
        end += 1
    small = [word for word in words[start:end] if not name_like(word)]
    return end if end - start > 1 and small and not name_like(words[start]) else start


def _is_of_title(word: str) -> bool:
    """Not of a date or a feast: the New Year."""
    return (
        word[0].isupper() and word[1:].islower() and bare(word) not in listed("calendar") | {"year"}
    )


def _is_theirs(words: Sequence[str], start: int, place: int) -> bool:
    """Behind a genitive, what is called after somebody: St Olaf's Church, Fenna's Bakery. A capital
    that is no word of every day is another name: Fenna's Calorix."""
    if plain(words[start]).rstrip(".") in _SAINTS:
        return True
    return place < len(words) and words[place].istitle() and ordinary(words[place])


def _is_last(words: Sequence[str], start: int, place: int) -> bool:
    """A noun that is no name by itself and has a capital as the end of one: Perigee Night."""
    last = words[place]
    if place > start and last in listed("forms"):
        return not words[place - 1].isupper()  # Velmo AS; not VELMO AS EVER
    if place == start or not last.istitle() or len(last) == 1:
        return False
    return plain(last) in listed("lasts") | listed("units")


def _is_link(words: Sequence[str], place: int) -> bool:
    """What joins two parts of a name: & and von; of, behind an ordinary word, as in Isle of Torrin;
    and the mark of many owners, as in Drivers' Union; a day, as in Hollis Wednesday Choir."""
    if place + 1 >= len(words) or not name_like(words[place + 1]):
        return False
    link, before, after = words[place], words[place - 1], words[place + 1]
    if link == "of":
        return ordinary(before) and not _is_firm(words, place + 1)
    if link == "and":  # of people both would be no words; of two words on each side, two are named
        both = place > 1 and ordinary(before) and ordinary(after)
        return both and not (name_like(words[place - 2]) and _is_firm(words, place + 1, ()))
    if link.istitle() and link.lower() in listed("calendar"):
        return ordinary(after)
    many = link in {"'", "’"} and before.endswith("s")  # noqa: RUF001
    return link == "&" or link in listed("links") or many


def _is_firm(words: Sequence[str], start: int, lists: Sequence[str] = ("companies",)) -> bool:
    """A name of several words by itself, the last of which says so where lists are given."""
    end = start
    while end < len(words) and name_like(words[end]):
        end += 1
    last = words[end - 1].lower()
    return end - start > 1 and (not lists or any(last in listed(one) for one in lists))


def is_number_of(words: Sequence[str], start: int, place: int) -> bool:
    """A model's, a version's or a house's number behind a name, as in Orion R5, Lantern 4.1.2, the
    Orion 60, DIN 5008 or Mill Lane 9."""
    if place == len(words):
        return False
    word, before = words[place], words[place - 1]
    if _MODEL.fullmatch(word) or _is_lettered(words, start, place):
        return True
    if VERSION.fullmatch(word) or _LETTERED.fullmatch(word):
        own = not ordinary(before) or _is_inside(words, start, ",;&")
        return own and before.lower() not in listed("numbered")
    after = plain(words[place + 1]) if place + 1 < len(words) else "."
    counts = after[0].isalnum() and after not in listed("behind")
    if _PART.fullmatch(word):  # of a standard
        return acronym(before) and (not counts or after in listed("does"))
    if not re.fullmatch(r"[1-9]\d{0,4}", word) or _goes_on_in_figures(words, place):
        return False
    if acronym(before):
        return not counts or len(word) > 2
    return _is_called_by_figures(words, start, place, after if counts else "")


def _is_lettered(words: Sequence[str], start: int, place: int) -> bool:
    """A gate or a block, by its letter: Gate F. Before a dot it is an initial's."""
    after = words[place + 1] if place + 1 < len(words) else ""
    kind = place == start + 1 and ordinary(words[start])
    apart = not after or after[0].islower() or after in ",;:!?)"
    return kind and apart and bool(re.fullmatch(r"[B-HJ-Z]", words[place]))


def _is_called_by_figures(words: Sequence[str], start: int, place: int, counted: str) -> bool:
    """Other figures count something, are part of an amount, or are readings of what is named, one
    after the other. Behind an article one thing is called so: the Orion 60 manual."""
    article = start > 0 and plain(words[start - 1]) in listed("articles")
    before = words[place - 1]
    street = before.lower() in listed("places") and place - start > 1
    if counted:
        clear = counted in _CLEAR
        one = ordinary(counted) and not _is_many(counted)
        one = one and not (place - start > 1 and ordinary(before) and counted in listed("stop"))
        return (article and one) or (street and clear)
    if ordinary(before):
        return street or _is_inside(words, start)
    return article or _with_figures(tuple(words)) <= 1


@lru_cache(maxsize=8)
def _with_figures(words: tuple[str, ...]) -> int:
    """How many names of a sentence have figures behind them; asked at each of them."""
    return len({a for a, b in pairwise(words) if b.isdecimal() and name_like(a)})


def _is_many(counted: str) -> bool:
    return counted.endswith("s") and counted not in listed("stop")


def _is_inside(words: Sequence[str], start: int, marks: str = "") -> bool:
    """Within a sentence, so that the capital is the word's own."""
    return start > 0 and (words[start - 1][0].isalnum() or words[start - 1] in marks)


def _goes_on_in_figures(words: Sequence[str], place: int) -> bool:
    """As 2,000 does, 11:30 and 3-4."""
    return place + 2 < len(words) and words[place + 2][0].isdigit() and words[place + 1] in ",.:-–"  # noqa: RUF001


def _is_prefix(words: Sequence[str], place: int) -> bool:
    """A word that is no name by itself, and part of the one behind it: a title, or any whose
    capital is not due, as in The Silver Ebb and Two Herons."""
    if place == len(words) - 1 or not name_like(words[place + 1]):
        return False
    word = words[place]
    if re.fullmatch(r"[A-Z]\.", word):
        return not ordinary(words[place + 1])  # an initial
    if not word[0].isupper() or word.isupper() or bare(word) in listed("calendar"):
        return False
    if GENITIVE.search(word):
        return False
    return plain(word) in listed("titles") or (
        place > 0 and (words[place - 1][0].isalnum() or words[place - 1] == ",")
    )


def _span(words: Sequence[str], start: int, end: int) -> Span:
    before = words[start - 1] if start else ""
    after = [word.lower() for word in words[end : end + 2]]
    last = words[end - 1]
    saint = end - start > 1 and plain(words[start]).rstrip(".") in _SAINTS
    shop = bool(after) and GENITIVE.search(last) and after[0] in listed("auxiliaries")
    name = (*words[start : end - 1], last if saint or shop else GENITIVE.sub("", last))
    in_list = len(after) > 1 and after[0] in {",", "and", "or", "&"} and name_like(words[end + 1])
    addressed = len(after) > 1 and after[0] == "," and after[1] in listed("addressed")
    verb = after[-1] if after and after[0].endswith("ly") else "".join(after[:1])
    does = verb in listed("does") and not derived(name[-1])
    kind = _kind(name, before.lower(), does or addressed)
    opens = _is_due(words, start, end)
    return Span(name, opens, in_list or addressed or does or name[-1] != last, kind)


def _is_due(words: Sequence[str], start: int, end: int) -> bool:
    """A sentence or what is quoted opens here. Behind a colon one may, and several capitals are a
    name; what is alone between brackets is one: one cat (Velmo)."""
    if not start:
        return True
    before = words[start - 1]
    if before == "(" and start > 1 and "".join(words[end : end + 1]) == ")":
        return False
    several = before == ":" and end - start > 1
    return not (several or before[0].isalnum() or before in ",;&/-'’")  # noqa: RUF001


def _kind(name: Sequence[str], before: str, person: bool) -> EntityKind:
    words = {word.lower() for word in name}
    if before in listed("titles") or name[0].lower() in listed("titles"):
        return "person"
    if len(name) > 1 and words & listed("companies"):
        return "company"
    if words & listed("places") and len(name) > 1:
        return "place"
    return "person" if person else "place" if before in listed("where") else "other"


def name_like(word: str) -> bool:
    """A word with a capital that is no ordinary word, date or code."""
    if not word[:1].isupper():
        return False
    name, low, without = GENITIVE.sub("", word), plain(word), bare(word)
    if any(low in listed(words) or without in listed(words) for words in _NO_NAMES):
        return False
    if name.isupper() and len(name) > 1:
        return acronym(name)
    return len(name) > 1 and not re.search(r"\d|^\w-[a-z]", name)
