"""The information in a question besides its meaning: the speakers and the times that it names."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date

from strandline.recall.dates import CalendarDate, Period, read_times

_WORD = re.compile(r"(?P<gap>\W*)(?P<word>\w+)(?=(?P<genitive>['’]s\b)?)")  # noqa: RUF001
_PARTICIPANT = re.compile(r"\b[a-z]+:(\w+)")
_SENTENCE_END = re.compile(r"[.!?…\n]")


@dataclass(frozen=True)
class QuestionMentions:
    """A question, parsed once for all candidates."""

    names: frozenset[str]
    """The words written as names, in lower case."""
    times: Sequence[CalendarDate | Period]

    def match_time(self, day: date) -> float:
        """How well a day fits the times that the question names: 0 to 2."""
        return max((time.match(day) for time in self.times), default=0.0)

    def named(self, names: Collection[str]) -> frozenset[str]:
        """Those of the names (in lower case) that the question contains."""
        return self.names.intersection(names)


def read_question(text: str, today: date) -> QuestionMentions:
    """Read a question, given the day on which it is asked."""
    return QuestionMentions(names=_read_names(text), times=read_times(text, today))


def _read_names(text: str) -> frozenset[str]:
    """The words written as names: with a capital that does not merely begin a sentence, as
    `user:name`, or in a script without letter case. Text all in capitals contains no recognisable
    names."""
    names = {match[1].lower() for match in _PARTICIPANT.finditer(text)}
    has_case = text != text.upper()
    for match in _WORD.finditer(text):
        word = match["word"]
        if word.lower() == word.upper():
            is_name = not word.isdigit()
        else:
            begins = not match.start() or _SENTENCE_END.search(match["gap"])
            is_name = has_case and word[0] != word[0].lower() and (not begins or match["genitive"])
        if is_name:
            names.add(word.lower())
    return frozenset(names)
