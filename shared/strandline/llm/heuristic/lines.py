"""A run's sentences as words and marks, and who of its writers waits for no capital."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from strandline.llm.heuristic.words import listed, sentences
from strandline.llm.types import Said

_PROSE = 4000
"""Characters of an event that are looked at."""
_TABLE_LINES = 20
"""A text of more lines is a log or a table: what it names is not talked about."""
_SMALLS = 0.8
"""Share of sentences that open with a small letter from which capitals are not to be waited for."""

_TOKEN = re.compile(  # a title keeps its dot
    r"(?:[Dd]r|[Mm]rs?|[Mm]s|[Pp]rof|[Ss]t|[A-Z])\.(?=\s)|#\d{2,}|[^\W_]\w*(?:[-'’./&@+]\w+)*|[^\w\s]"  # noqa: RUF001
)
_FILED = re.compile(r"\b\d{1,3} [A-Z][A-Za-z]{0,3} \d+/\d{2,4}\b")
"""A court's or an office's number of several parts: 4 Ca 318/27."""
_NUMBERED = re.compile(
    r"\b[A-Z]{2,4}(?: \d{2,5}/\d{2,4}| \d{2,5}(?: \d{3,6})+|(?: [A-Z]{2}|-[A-Z]) \d{2,6})\b"
)
"""A permit's, a claim's or a register's: ABT 118/28, LX 118 40726, LK VS 206, HR-B 20917."""
_LINKED = r"(?:(?: (?:a|and|at|for|in|of|on|the|to))* [A-Z][\w'’-]+)"  # noqa: RUF001
_TITLED = re.compile(rf"[\"“](The{_LINKED}+)[.,!?]?[\"”]")
"""What is called so, its article with it: "The Salt Ledger"."""
_WHOLE = (_FILED, _TITLED, _NUMBERED)


class Line(NamedTuple):
    """A sentence."""

    words: Sequence[str]
    """And marks, each by itself."""
    small: bool
    """Of somebody who opens sentences without capitals."""


def lines(said: Sequence[Said]) -> list[Line]:
    """Sentences of a run in order, without what `whole` gives."""
    hasty = _hasty(said)
    found: list[Line] = []
    for one in said:
        text = _NUMBERED.sub(_unless_told, _FILED.sub("…", _TITLED.sub("…", _prose(one))))
        small = one.role == "user" and one.speaker in hasty
        found += [Line(_TOKEN.findall(part), small) for part in sentences(text)]
    return found


def whole(said: Sequence[Said]) -> Iterator[str]:
    """Names that are told by more than their words: files' numbers, titles in quotation marks."""
    for one in said:
        for form in _WHOLE:
            yield from (name for name in form.findall(_prose(one)) if not _is_amount(name))


def _is_amount(name: str) -> bool:
    """Or shouted: EUR 48 000; IT IS 2028."""
    if not name.isupper():
        return False
    first, second, *_ = words = re.split(r"[ -]", name.lower())
    amount = first in listed("shouted") and second.isdecimal()
    return amount or any(word in listed("stop") for word in words)


def _unless_told(found: re.Match[str]) -> str:
    return found[0] if _is_amount(found[0]) else "…"


def _hasty(said: Sequence[Said]) -> set[str]:
    """Who opens most sentences with small letters. What is shouted says nothing."""
    opened: dict[str, list[bool]] = {}
    for one in said:
        if one.role == "user" and one.speaker:
            firsts = [part.split()[0] for part in sentences(_prose(one))]
            told = [first[0].islower() for first in firsts if _tells(first)]
            opened.setdefault(one.speaker, []).extend(told)
    return {who for who, small in opened.items() if small and sum(small) >= _SMALLS * len(small)}


def _tells(first: str) -> bool:
    return first[:2].isalpha() and not first.rstrip("!?.,:").isupper()


def _prose(said: Said) -> str:
    """What is said; of logs and tables nothing."""
    table = said.type == "upload" or said.text.count("\n") > _TABLE_LINES
    return "" if table else said.text[:_PROSE]
