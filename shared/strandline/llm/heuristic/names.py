"""Who and what a run of events names, told by how names are written: capitals, codes, paths, lists.

A capital inside a sentence is a name. One that opens a sentence is a name only if something else
says so: the same capital where none is due, a list of capitals, a genitive, an address, a verb that
people do. Where every noun has a capital, as in German, only names of several words count.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from strandline.llm.heuristic.aliases import aliases
from strandline.llm.heuristic.codes import acronym, codes
from strandline.llm.heuristic.lines import Line, lines, whole
from strandline.llm.heuristic.lowercase_names import small
from strandline.llm.heuristic.spans import name_like, spans
from strandline.llm.heuristic.spelling import derived
from strandline.llm.heuristic.words import listed, ordinary
from strandline.llm.types import Entity, EntityKind, Said

_MOST = 40
"""Entities given of a run."""
_HEAVY = 0.3
"""Share of words inside sentences with a capital from which capitals say nothing."""
_FEW = 8
"""Of so few nothing is concluded."""


def named(said: Sequence[Said]) -> list[Entity]:
    """Entities of a run, the most mentioned first, each once under its longest name."""
    parts = lines(said)
    speakers = {one.speaker.split(":", 1)[-1].lower() for one in said if one.speaker}
    counts: Counter[str] = Counter()
    kinds: dict[str, EntityKind] = {}
    for name, kind in _mentions(said, parts, speakers):
        counts[name] += 1
        if kinds.get(name, "other") == "other":
            kinds[name] = kind
    for short, whole_name in aliases(kinds).items():
        times, kind = counts.pop(short), kinds[short]
        if whole_name is not None:  # of several it is one of them, and nobody else
            counts[whole_name] += times
            kinds[whole_name] = kind if kinds[whole_name] == "other" else kinds[whole_name]
    return [Entity(name=name[:200], kind=kinds[name]) for name, _ in counts.most_common(_MOST)]


def _mentions(
    said: Sequence[Said], parts: Sequence[Line], speakers: set[str]
) -> Iterator[tuple[str, EntityKind]]:
    for name in whole(said):
        yield name, "other"
    yield from codes([line.words for line in parts])
    written = list(_capitals(parts, speakers))
    yield from written
    told = {word.lower() for name, _ in written for word in name.split()}
    for name in small(parts, speakers, told):
        yield name, "other"


def _capitals(parts: Sequence[Line], speakers: set[str]) -> Iterator[tuple[str, EntityKind]]:
    found = [(span, line) for line in parts for span in spans(line.words)]
    lower = {
        word
        for line in parts
        for word in line.words
        if word.islower() and (not line.small or ordinary(word))
    }
    inside = {word.lower() for span, _ in found if not span.opens for word in span.words}
    inside |= speakers
    heavy = _capitals_say_nothing(parts)
    for span, line in found:
        words = span.words
        first = words[0].lower()
        if span.opens and len(words) > 1 and _is_due(words, lower, inside):
            words = words[2:] if words[1] in listed("links") else words[1:]
            first = ""
        name = re.sub(r" (?=['’] )", "", " ".join(words))  # noqa: RUF001
        told = not first or first in inside or _strange(name, lower)
        told = told or (span.marked and first not in lower and not _many(first))
        if _is_loud(name, lower, line) or name.lower() in listed("peoples"):
            continue
        if name.lower() in speakers:
            yield name, "person"
        elif len(words) > 1 or (told and not heavy):
            yield name, "technology" if acronym(name) else span.kind


def _is_loud(name: str, lower: set[str], line: Line) -> bool:
    """A word of every day in capitals, of which short ones may be an abbreviation, unless they are
    of somebody who has no other use for capitals."""
    word = name.lower()
    long = len(name) > 3 or line.small
    return name.isupper() and (word in lower or (long and ordinary(name)))


def _many(word: str) -> bool:
    """Ordinary things, more than one: Reminders went out; Sixty-six came."""
    return (word.endswith("s") or "-" in word) and ordinary(word)


def _strange(name: str, lower: set[str]) -> bool:
    """No word of every day, nor made like one: its capital is its own."""
    word = name.lower()
    return not (word in lower or ordinary(word) or derived(word))


def _is_due(words: Sequence[str], lower: set[str], inside: set[str]) -> bool:
    """The first capital is the sentence's, not the name's: Invoice Halberg."""
    first, second = words[0].lower(), words[1].lower()
    if first in inside or any(
        first in listed(heads) for heads in ("titles", "places", "companies", "ventures")
    ):
        return False
    if second == "&" or second in listed("stop"):
        return False
    if first in lower or first in listed("does") or first in listed("fond"):
        return True
    return ordinary(first) and (second in listed("links") or not ordinary(second))


def _capitals_say_nothing(parts: Sequence[Line]) -> bool:
    inner = [word for line in parts for word in line.words[1:] if word[0].isalpha()]
    return sum(name_like(word) for word in inner) > max(_FEW, _HEAVY * len(inner))
