"""Who and what a run of events names, told by how names are written: capitals, codes, paths, lists.

A capital inside a sentence is a name. One that opens a sentence is a name only if something else
says so: the same capital where none is due, a list of capitals, a genitive, an address, a verb that
people do. Where every noun has a capital, as in German, only names of several words count.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from strandline.models.language import Entity, EntityKind, Said
from strandline.models.words import bare, listed, plain, sentences

_MOST = 40
"""Entities given of a run."""
_PROSE = 4000
"""Characters of an event that are looked at."""
_TABLE_LINES = 20
"""A text of more lines is a log or a table: what it names is not talked about."""
_HEAVY = 0.3
"""Share of words inside sentences with a capital from which capitals say nothing."""
_FEW = 8
"""Of so few nothing is concluded."""

_TOKEN = re.compile(  # a title keeps its dot
    r"(?:Dr|Mrs?|Ms|Prof|St)\.(?=\s)|#\d{2,}|[^\W_]\w*(?:[-'’./&@+]\w+)*|[^\w\s]"  # noqa: RUF001
)
_GENITIVE = re.compile(r"['’]s?$")  # noqa: RUF001
_VERSION = re.compile(r"v?\d+\.\d+\.\d+(?:[-+]\w+)?|v\d+\.\d+")
_PATH = re.compile(r"(?:[\w.-]+/)*[\w-]{2,}\.[a-z][a-z0-9]{0,5}")
_CODE = re.compile(
    r"#\d{2,}|[A-Z]+-?\d{2,}\w*|[A-Za-z]+(?:-\w+)*-\d\w*|\d{3,}-[A-Z]\w*|\d{2,3}-\d{4,}|[a-z]{3,}\d+"
    r"|[a-z]+(?:_[a-z0-9]+){2,}|[A-Z]{2,}-[A-Z]+\d+|[A-Z][a-z]{2,}\d+"
    r"|(?=[a-f]*\d[\da-f]*[a-f])(?=(?:\d*[a-f]){2})[\da-f]{7,40}"  # a commit's
)
_MODEL = re.compile(r"[A-Z]{2,}-[1-9]\d{0,2}")
_SAINTS = frozenset({"st", "saint"})
"""A genitive goes on to what is called after them: St Olaf's Church."""
_DATE = re.compile(
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*-?\d+|\w+-\d\d?(?:st|nd|rd|th)"
)
_NO_NAMES = ("stop", "openers", "calendar", "units")
_ABSTRACT = re.compile(
    r"(?:ing|ed|ly|ions?|ments?|ness|ity|ance|ence|ery|ure|age|ism|able|ful|ous|est|ies)$"
)


class _Span(NamedTuple):
    """A run of words with capitals."""

    words: tuple[str, ...]
    opens: bool
    """It opens a sentence, a quotation or what follows a colon: the capital may be due there."""
    marked: bool
    """What follows says that it is a name."""
    kind: EntityKind


def named(said: Sequence[Said]) -> list[Entity]:
    """Entities of a run, the most mentioned first, each once under its longest name."""
    parts = [_TOKEN.findall(part) for one in said for part in sentences(_prose(one))]
    speakers = {one.speaker.split(":", 1)[-1].lower() for one in said if one.speaker}
    counts: Counter[str] = Counter()
    kinds: dict[str, EntityKind] = {}
    for name, kind in [*_codes(parts), *_capitals(parts, speakers)]:
        counts[name] += 1
        if kinds.get(name, "other") == "other":
            kinds[name] = kind
    for short, whole in _aliases(list(counts)):
        counts[whole] += counts.pop(short)
        if kinds[whole] == "other":
            kinds[whole] = kinds[short]
    return [Entity(name=name[:200], kind=kinds[name]) for name, _ in counts.most_common(_MOST)]


def _prose(said: Said) -> str:
    """What is said; of logs and tables nothing."""
    table = said.type == "upload" or said.text.count("\n") > _TABLE_LINES
    return "" if table else said.text[:_PROSE]


def _codes(parts: Sequence[Sequence[str]]) -> Iterator[tuple[str, EntityKind]]:
    """Versions, paths, order numbers and the like."""
    for words in parts:
        for place, word in enumerate(words):
            word = _GENITIVE.sub("", word)
            if _VERSION.fullmatch(word):
                yield word, "product"
            elif _CODE.fullmatch(word) and not _DATE.fullmatch(word):
                before = words[place - 1] if place and word[0].isdigit() else ""
                name = f"{before} {word}" if _acronym(before) else word
                yield name, "product" if _MODEL.fullmatch(word) else "other"
            elif _PATH.fullmatch(word) and not word[0].isdigit():
                yield word, "other"


def _acronym(word: str) -> bool:
    return (
        2 <= len(word) <= 6
        and word.isalpha()
        and word.isupper()
        and word.lower() not in listed("shouted")
    )


def _capitals(
    parts: Sequence[Sequence[str]], speakers: set[str]
) -> Iterator[tuple[str, EntityKind]]:
    spans = [span for words in parts for span in _spans(words)]
    lower = {word for words in parts for word in words if word.islower()}
    inside = {word.lower() for span in spans if not span.opens for word in span.words} | speakers
    inside |= {word for word, times in _openers(spans).items() if times > 1 and word not in lower}
    heavy = _capitals_say_nothing(parts)
    for span in spans:
        words = span.words
        first = words[0].lower()
        due = span.opens and len(words) > 1 and _ordinary(words, lower, inside)
        if due and first not in listed("titles"):
            words = words[1:]  # "Invoice Halberg": the sentence's capital, not the name's
            first = ""
        name = " ".join(words)
        told = not first or first in inside or (span.marked and first not in lower)
        if name.isupper() and name.lower() in lower:
            continue  # said loudly
        if name.lower() in speakers:
            yield name, "person"
        elif len(words) > 1 or (told and not heavy):
            yield name, "technology" if _acronym(name) else span.kind


def _openers(spans: Sequence[_Span]) -> Counter[str]:
    """How often a word opens a sentence: more than once, a name does rather than another."""
    return Counter(span.words[0].lower() for span in spans if span.opens)


def _ordinary(words: Sequence[str], lower: set[str], inside: set[str]) -> bool:
    first, second = words[0].lower(), words[1].lower()
    known = first in lower or first in listed("does")
    return first not in inside and (known or (len(words) == 2 and second in inside))


def _capitals_say_nothing(parts: Sequence[Sequence[str]]) -> bool:
    inner = [word for words in parts for word in words[1:] if word[0].isalpha()]
    return sum(_name_like(word) for word in inner) > max(_FEW, _HEAVY * len(inner))


def _spans(words: Sequence[str]) -> Iterator[_Span]:
    """A sentence's runs of names' words, and what stands around them."""
    place = 0
    while place < len(words):
        end = place + _is_prefix(words, place)
        while end < len(words) and _name_like(words[end]):
            end += 1
            if _GENITIVE.search(words[end - 1]) and plain(words[place]).rstrip(".") not in _SAINTS:
                break
            if (
                end + 1 < len(words)
                and (words[end] == "&" or words[end] in listed("links"))
                and _name_like(words[end + 1])
            ):
                end += 1
        if end > place and _is_number_of(words, end):
            end += 1
        if end > place:
            yield _span(words, place, end)
        place = max(end, place + 1)


def _is_number_of(words: Sequence[str], place: int) -> bool:
    """A model's number behind a name, as in Orion R5, Orion 60 or DIN 5008. Other figures count
    something, or are the readings of what is named, one after the other."""
    if place == len(words):
        return False
    if re.fullmatch(r"[A-Z]\d{1,3}", words[place]):
        return True
    if not re.fullmatch(r"[1-9]\d{0,4}", words[place]):
        return False
    counts = place + 1 < len(words) and words[place + 1][0].isalnum()
    figures = sum(word.isdecimal() and _name_like(before) for before, word in pairwise(words))
    return figures == 1 and (not counts or (_acronym(words[place - 1]) and len(words[place]) > 2))


def _is_prefix(words: Sequence[str], place: int) -> bool:
    """A word that is no name by itself, and part of the one behind it: a title, or an article whose
    capital is not due."""
    if place == len(words) - 1 or not _name_like(words[place + 1]):
        return False
    inside = place > 0 and words[place - 1][0].isalnum()
    title = words[place][0].isupper() and plain(words[place]) in listed("titles")
    return title or (inside and words[place] == "The")


def _span(words: Sequence[str], start: int, end: int) -> _Span:
    before = words[start - 1] if start else ""
    after = [word.lower() for word in words[end : end + 2]]
    last = words[end - 1]
    saint = end - start > 1 and plain(words[start]).rstrip(".") in _SAINTS
    name = (*words[start : end - 1], last if saint else _GENITIVE.sub("", last))
    in_list = len(after) > 1 and after[0] in {",", "and", "or", "&"} and _name_like(words[end + 1])
    addressed = len(after) > 1 and after[0] == "," and after[1] in listed("addressed")
    verb = after[-1] if after and after[0].endswith("ly") else "".join(after[:1])
    does = verb in listed("does") and not _ABSTRACT.search(name[-1].lower())
    kind = _kind(name, before.lower(), does or addressed)
    opens = not before or not (before[0].isalnum() or before in ",;&/-'’")  # noqa: RUF001
    return _Span(name, opens, in_list or addressed or does or name[-1] != last, kind)


def _kind(name: Sequence[str], before: str, person: bool) -> EntityKind:
    words = {word.lower() for word in name}
    if before in listed("titles") or name[0].lower() in listed("titles"):
        return "person"
    if len(name) > 1 and words & listed("companies"):
        return "company"
    if words & listed("places") and len(name) > 1:
        return "place"
    return "person" if person else "place" if before in listed("where") else "other"


def _name_like(word: str) -> bool:
    """A word with a capital that is no ordinary word, date or code."""
    name = _GENITIVE.sub("", word)
    if not name[:1].isupper() or any(
        bare(word) in listed(words) or plain(word) in listed(words) for words in _NO_NAMES
    ):
        return False
    if name.isupper() and len(name) > 1:
        return _acronym(name)
    return len(name) > 1 and not re.search(r"\d|^\w-[a-z]", name)


def _aliases(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Names that are the beginning or the end of one longer name, or that name in other case."""
    for short in names:
        wholes = [
            name
            for name in names
            if name.lower().startswith(short.lower() + " ")
            or name.lower().endswith((" " + short.lower(), "/" + short.lower()))
        ]
        if len(wholes) == 1:
            yield short, wholes[0]
