"""Splits a run into sentences of words and marks, and finds writers who use no capitals."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from strandline.llm.heuristic.words import split_sentences, word_list
from strandline.llm.types import PromptEvent

MAX_EVENT_CHARACTERS = 4000
"""Characters of an event that are read."""
_MAX_PROSE_LINES = 20
"""A text with more lines is a log or a table, and not part of the conversation."""
_MIN_LOWER_CASE_SHARE = 0.8
"""From this share of sentences with a small first letter, a writer counts as without capitals."""

_TOKEN = re.compile(  # a title keeps its dot
    r"(?:[Dd]r|[Mm]rs?|[Mm]s|[Pp]rof|[Ss]t|[A-Z])\.(?=\s)|#\d{2,}|[^\W_]\w*(?:[-'’./&@+]\w+)*|[^\w\s]"  # noqa: RUF001
)
_URL = re.compile(r"\b(?:https?://|www\.)[^\s<>\"]+")
_FILE_NUMBER = re.compile(r"\b\d{1,3} [A-Z][A-Za-z]{0,3} \d+/\d{2,4}\b")
"""A file number of a court or an office, in several parts: 4 Ca 318/27."""
_PERMIT_NUMBER = re.compile(
    r"\b[A-Z]{2,4}(?: \d{2,5}/\d{2,4}| \d{2,5}(?: \d{3,6})+|(?: [A-Z]{2}|-[A-Z]) \d{2,6})\b"
)
"""The number of a permit, claim or register: ABT 118/28, LX 118 40726, LK VS 206, HR-B 20917."""
_TITLE_WORD = r"(?:(?: (?:a|and|at|for|in|of|on|the|to))* [A-Z][\w'’-]+)"  # noqa: RUF001
_QUOTED_TITLE = re.compile(rf"[\"“](The{_TITLE_WORD}+)[.,!?]?[\"”]")
"""A title with its article: "The Salt Ledger"."""
_WHOLE_NAMES = (_FILE_NUMBER, _QUOTED_TITLE, _PERMIT_NUMBER)


class TokenizedSentence(NamedTuple):
    """A sentence."""

    words: Sequence[str]
    """Words and marks, each by itself."""
    is_lower_case: bool
    """Its writer opens sentences without capitals."""


def is_log_or_table(event: PromptEvent) -> bool:
    """Whether its text is a log or a table."""
    return event.type == "upload" or event.text.count("\n") > _MAX_PROSE_LINES


def tokenize_sentences(events: Sequence[PromptEvent]) -> list[TokenizedSentence]:
    """The sentences of a run in order, without the names of `find_titles_and_file_numbers`."""
    hasty_speakers = _find_speakers_without_capitals(events)
    result: list[TokenizedSentence] = []
    for event in events:
        text = _PERMIT_NUMBER.sub(
            _mask_permit_number, _FILE_NUMBER.sub("…", _QUOTED_TITLE.sub("…", _read_prose(event)))
        )
        is_lower_case = event.role == "user" and event.speaker in hasty_speakers
        result += [
            TokenizedSentence(_TOKEN.findall(part), is_lower_case) for part in split_sentences(text)
        ]
    return result


def find_titles_and_file_numbers(events: Sequence[PromptEvent]) -> Iterator[str]:
    """Names recognised as a whole: file numbers, titles in quotation marks."""
    for event in events:
        for pattern in _WHOLE_NAMES:
            yield from (
                name for name in pattern.findall(_read_prose(event)) if not _is_amount(name)
            )


def _is_amount(name: str) -> bool:
    """Whether it is an amount or emphasis: EUR 48 000; IT IS 2028."""
    if not name.isupper():
        return False
    first, second, *_ = words = re.split(r"[ -]", name.lower())
    amount = first in word_list("shouted") and second.isdecimal()
    return amount or any(word in word_list("stop") for word in words)


def _mask_permit_number(match: re.Match[str]) -> str:
    return match[0] if _is_amount(match[0]) else "…"


def _find_speakers_without_capitals(events: Sequence[PromptEvent]) -> set[str]:
    """Speakers who open most sentences with small letters. Words in capitals do not count."""
    lower_case_starts: dict[str, list[bool]] = {}
    for event in events:
        if event.role == "user" and event.speaker:
            first_words = [part.split()[0] for part in split_sentences(_read_prose(event))]
            is_lower = [first[0].islower() for first in first_words if _shows_case(first)]
            lower_case_starts.setdefault(event.speaker, []).extend(is_lower)
    return {
        speaker
        for speaker, starts in lower_case_starts.items()
        if starts and sum(starts) >= _MIN_LOWER_CASE_SHARE * len(starts)
    }


def _shows_case(word: str) -> bool:
    return word[:2].isalpha() and not word.rstrip("!?.,:").isupper()


def _read_prose(event: PromptEvent) -> str:
    """The text of an event without addresses of the web; empty for logs and tables."""
    return "" if is_log_or_table(event) else _URL.sub("…", event.text[:MAX_EVENT_CHARACTERS])
