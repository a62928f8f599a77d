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

from strandline.models.codes import VERSION, acronym, codes
from strandline.models.language import Entity, EntityKind, Said
from strandline.models.words import GENITIVE, bare, listed, ordinary, plain, sentences

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
    r"(?:Dr|Mrs?|Ms|Prof|St|[A-Z])\.(?=\s)|#\d{2,}|[^\W_]\w*(?:[-'’./&@+]\w+)*|[^\w\s]"  # noqa: RUF001
)
_FILED = re.compile(r"\b\d{1,3} [A-Z][A-Za-z]{0,3} \d+/\d{2,4}\b")
"""A court's or an office's number of several parts: 4 Ca 318/27."""
_TITLED = re.compile(r"[\"“](The(?: [A-Z][\w'’-]+)+)[.,!?]?[\"”]")  # noqa: RUF001
"""What is called so, its article with it: "The Salt Ledger"."""
_SMALLS = 0.8
"""Share of sentences that open with a small letter from which capitals are not to be waited for."""
_SAINTS = frozenset({"st", "saint"})
"""A genitive goes on to what is called after them: St Olaf's Church."""
_SOUND = re.compile(r"\w{4}|[^aeiou]?[aeiou][^aeiou]$|[^aeiou][aeiou]{2}$|[aeiou][^aeiou][aeiou]$")
"""Four letters, or three that can be said: leo, ida, tom; not btw."""
_MODEL = re.compile(r"[A-Z]{1,3}\d{1,4}")
"""Of a make: Velmo R5, Halden TX300."""
_WHOLE = (_FILED, _TITLED)
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
    texts = [_prose(one) for one in said]
    whole: list[tuple[str, EntityKind]] = [
        (name, "other") for text in texts for form in _WHOLE for name in form.findall(text)
    ]
    texts = [_FILED.sub("…", _TITLED.sub("…", text)) for text in texts]
    parts = [_TOKEN.findall(part) for text in texts for part in sentences(text)]
    speakers = {one.speaker.split(":", 1)[-1].lower() for one in said if one.speaker}
    counts: Counter[str] = Counter()
    kinds: dict[str, EntityKind] = {}
    for name, kind in [*whole, *codes(parts), *_capitals(parts, speakers), *_small(said, speakers)]:
        counts[name] += 1
        if kinds.get(name, "other") == "other":
            kinds[name] = kind
    for short, wholes in _aliases(list(counts)):
        times, kind = counts.pop(short), kinds[short]
        if len(wholes) == 1:  # of several it is one of them, and nobody else
            counts[wholes[0]] += times
            kinds[wholes[0]] = kind if kinds[wholes[0]] == "other" else kinds[wholes[0]]
    return [Entity(name=name[:200], kind=kinds[name]) for name, _ in counts.most_common(_MOST)]


def _prose(said: Said) -> str:
    """What is said; of logs and tables nothing."""
    table = said.type == "upload" or said.text.count("\n") > _TABLE_LINES
    return "" if table else said.text[:_PROSE]


def _capitals(
    parts: Sequence[Sequence[str]], speakers: set[str]
) -> Iterator[tuple[str, EntityKind]]:
    spans = [span for words in parts for span in _spans(words)]
    lower = {word for words in parts for word in words if word.islower()}
    inside = {word.lower() for span in spans if not span.opens for word in span.words} | speakers
    heavy = _capitals_say_nothing(parts)
    for span in spans:
        words = span.words
        first = words[0].lower()
        if span.opens and len(words) > 1 and _is_due(words, lower, inside):
            words = words[2:] if words[1] in listed("links") else words[1:]
            first = ""
        name = re.sub(r" (?=['’] )", "", " ".join(words))  # noqa: RUF001
        told = not first or first in inside or _strange(name, lower)
        told = told or (span.marked and first not in lower and not _many(first))
        loud = name.isupper() and (name.lower() in lower or (len(name) > 3 and ordinary(name)))
        if loud or name.lower() in listed("peoples"):
            continue
        if name.lower() in speakers:
            yield name, "person"
        elif len(words) > 1 or (told and not heavy):
            yield name, "technology" if acronym(name) else span.kind


def _many(word: str) -> bool:
    """Ordinary things, more than one: Reminders went out; Sixty-six came."""
    return (word.endswith("s") or "-" in word) and ordinary(word)


def _small(said: Sequence[Said], speakers: set[str]) -> Iterator[tuple[str, EntityKind]]:
    """Of whoever opens sentences without capitals: words that are none of every day."""
    written: dict[str, list[str]] = {}
    for one in said:
        if one.role == "user" and one.speaker:
            written.setdefault(one.speaker, []).extend(sentences(_prose(one)))
    for lines in written.values():
        opened = [line[0].islower() for line in lines if line[:2].isalpha()]
        if sum(opened) >= _SMALLS * len(opened):
            for line in lines:
                yield from _strangers(_TOKEN.findall(line), speakers)


def _strangers(words: Sequence[str], speakers: set[str]) -> Iterator[tuple[str, EntityKind]]:
    """Runs of small words that are none of every day, with the number behind them; without the
    ending of who has what follows, which such people write without its mark: nunos key."""
    place = 0
    while place < len(words):
        end = place
        while end < len(words) and _is_small_name(words[end], speakers):
            end += 1
        if end > place:
            name = [GENITIVE.sub("", word) for word in words[place:end]]
            after = words[end] if end < len(words) else ""
            if after.isalpha() and ordinary(after) and not _is_said_of(after):
                name[-1] = re.sub(r"(?<=[^s])s$", "", name[-1])
            elif _is_number_of(words, place, end):
                name.append(after)
            yield " ".join(name), "other"
        place = max(end, place + 1)


def _is_said_of(word: str) -> bool:
    return any(word in listed(those) for those in ("stop", "does", "behind"))


def _is_small_name(word: str, speakers: set[str]) -> bool:
    """Or a short form of who speaks."""
    word = GENITIVE.sub("", word)
    short = len(word) == 3 and any(one.startswith(word) for one in speakers)
    short = short or word in speakers - listed("stop")
    small = word.islower() and word.replace("-", "").isalpha()
    return small and (short or bool(_SOUND.match(word) and _strange(word, set())))


def _strange(name: str, lower: set[str]) -> bool:
    """No word of every day, nor made like one: its capital is its own."""
    word = name.lower()
    sound = re.search(r"(.)\1\1", word)  # as in aaah
    return not (word in lower or ordinary(word) or sound or _ABSTRACT.search(word))


def _is_due(words: Sequence[str], lower: set[str], inside: set[str]) -> bool:
    """The first capital is the sentence's, not the name's: Invoice Halberg."""
    first, second = words[0].lower(), words[1].lower()
    if first in inside or any(
        first in listed(heads) for heads in ("titles", "places", "companies")
    ):
        return False
    if second == "&":
        return False
    if first in lower or first in listed("does"):
        return True
    return ordinary(first) and (second in listed("links") or not ordinary(second))


def _capitals_say_nothing(parts: Sequence[Sequence[str]]) -> bool:
    inner = [word for words in parts for word in words[1:] if word[0].isalpha()]
    return sum(_name_like(word) for word in inner) > max(_FEW, _HEAVY * len(inner))


def _spans(words: Sequence[str]) -> Iterator[_Span]:
    """A sentence's runs of names' words, and what stands around them."""
    place = 0
    while place < len(words):
        end = max(place + _is_prefix(words, place), _end_of_title(words, place))
        while end < len(words) and (_name_like(words[end]) or _is_last(words, place, end)):
            end += 1
            if GENITIVE.search(words[end - 1]) and not _is_theirs(words, place, end):
                break
            end += _is_link(words, end)
        if end > place and _is_number_of(words, place, end):
            end += 1
        if end > place:
            yield _span(words, place, end)
        place = max(end, place + 1)


def _end_of_title(words: Sequence[str], start: int) -> int:
    """Behind a run of capitals inside a sentence that opens with words that are no names by
    themselves: Up With The Larks, the What's On; `start` where there is none."""
    if start == 0 or not words[start - 1].islower():
        return start
    end = start
    while end < len(words) and _is_of_title(words[end]):
        end += 1
    small = [word for word in words[start:end] if not _name_like(word)]
    return end if end - start > 1 and small and not _name_like(words[start]) else start


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
    return place > start and last.istitle() and plain(last) in listed("lasts") | listed("units")


def _is_link(words: Sequence[str], place: int) -> bool:
    """What joins two parts of a name: & and von; of, behind an ordinary word, as in Isle of Torrin;
    and the mark of many owners, as in Drivers' Union."""
    if place + 1 >= len(words) or not _name_like(words[place + 1]):
        return False
    link, before = words[place], words[place - 1]
    if link == "of":
        return ordinary(before)
    if link == "and":  # of people both would be no words
        return place > 1 and all(ordinary(one) for one in (before, words[place + 1]))
    many = link in {"'", "’"} and before.endswith("s")  # noqa: RUF001
    return link == "&" or link in listed("links") or many


def _is_number_of(words: Sequence[str], start: int, place: int) -> bool:
    """A model's or a house's number behind a name, as in Orion R5, the Orion 60, DIN 5008 or Mill
    Lane 9. Other figures count something, are part of an amount, or are readings of what is named,
    one after the other."""
    if place == len(words):
        return False
    if _MODEL.fullmatch(words[place]):
        return True
    if VERSION.fullmatch(words[place]):
        return not ordinary(words[place - 1])
    if not re.fullmatch(r"[1-9]\d{0,4}", words[place]) or _goes_on_in_figures(words, place):
        return False
    before, after = words[place - 1], plain(words[place + 1]) if place + 1 < len(words) else "."
    counts = after[0].isalnum() and after not in listed("behind")
    if acronym(before):
        return not counts or len(words[place]) > 2
    if ordinary(before):
        own = start > 0 and words[start - 1][0].isalnum()  # the capital, not the sentence's
        street = before.lower() in listed("places") and place - start > 1
        return not counts and (own or street)
    figures = len({a for a, b in pairwise(words) if b.isdecimal() and _name_like(a)})
    article = start > 0 and plain(words[start - 1]) in listed("articles")
    one = counts and ordinary(after) and not after.endswith("s")  # nothing that is counted
    return (article and one) or (not counts and (figures <= 1 or article))


def _goes_on_in_figures(words: Sequence[str], place: int) -> bool:
    """As 2,000 does, 11:30 and 3-4."""
    return place + 2 < len(words) and words[place + 2][0].isdigit() and words[place + 1] in ",.:-–"  # noqa: RUF001


def _is_prefix(words: Sequence[str], place: int) -> bool:
    """A word that is no name by itself, and part of the one behind it: a title, or any whose
    capital is not due, as in The Silver Ebb and Two Herons."""
    if place == len(words) - 1 or not _name_like(words[place + 1]):
        return False
    word = words[place]
    if re.fullmatch(r"[A-Z]\.", word):
        return not ordinary(words[place + 1])  # an initial
    if not word[0].isupper() or word.isupper() or bare(word) in listed("calendar"):
        return False
    if GENITIVE.search(word):
        return False
    return plain(word) in listed("titles") or (place > 0 and words[place - 1][0].isalnum())


def _span(words: Sequence[str], start: int, end: int) -> _Span:
    before = words[start - 1] if start else ""
    after = [word.lower() for word in words[end : end + 2]]
    last = words[end - 1]
    saint = end - start > 1 and plain(words[start]).rstrip(".") in _SAINTS
    name = (*words[start : end - 1], last if saint else GENITIVE.sub("", last))
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
    name = GENITIVE.sub("", word)
    if not name[:1].isupper() or any(
        bare(word) in listed(words) or plain(word) in listed(words) for words in _NO_NAMES
    ):
        return False
    if name.isupper() and len(name) > 1:
        return acronym(name)
    return len(name) > 1 and not re.search(r"\d|^\w-[a-z]", name)


def _aliases(names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Names that are the beginning or the end of longer ones, and these."""
    for short in names:
        low = short.lower()
        title, _, bearer = low.partition(" ")
        end = " " + (bearer if bearer and title.rstrip(".") in listed("titles") else low)
        wholes = [
            name
            for name in names
            if (like := name.lower()).startswith(low + " ")
            or (
                like.endswith((end, "/" + low)) and like.split()[0].rstrip(".") != title.rstrip(".")
            )
            or (like == low and name > short)
            or like + "s" == low
        ]
        if wholes:
            longest = [one for one in wholes if not any(one != x and one in x for x in wholes)]
            yield short, longest
