"""The information in a question besides its meaning: the speakers that it names, the dates and
periods, and whether it is about now."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from strandline.participants import display_name
from strandline.recall.dates.parsing import NamedTime, parse_dates_and_periods

_WORD = re.compile(r"\w+(?=(?P<genitive>['’]s\b)?)")  # noqa: RUF001
_PARTICIPANT = re.compile(r"\b[a-z]+:[\w.@+-]*\w")
_SENTENCE_END = re.compile(r"[.!?…\n]")
_EARLIER = re.compile(
    r"\b(?:did|was|were|had|ago|before|used to|originally|initially|first|earlier|previous(?:ly)?"
    r"|yesterday|formerly|until|since|history|over time|so far|changed?"
    r"|fue|fui|era|estaba|había|antes|ayer|foi|estava|tinha|ontem|prima|ieri|aveva"
    r"|war|waren|hatten?|wurden?|vorher|früher|zuerst|gestern|était|avait|avant|hier"
    r"|hadden|werd|gisteren|geleden|vroeger|eerder|erano|fu|был[аои]?|раньше|вчера|назад)\b"
    r"|ました|でした|だった|以前|最初",
    re.IGNORECASE,
)
"""Words that ask for what was, or for how it came to be, in common forms of some languages."""


@dataclass(frozen=True)
class QuestionNamesAndDates:
    """A question, parsed once for all candidates."""

    names: frozenset[str]
    """The words written as names, or as `user:name`, in lower case."""
    times: Sequence[NamedTime]
    is_about_now: bool = False
    """Whether it names no time, nor asks for what was."""

    def score_day_match(self, day: date) -> float:
        """How well a day fits the times that the question names: 0 to 2."""
        return max((time.score_match(day) for time in self.times), default=0.0)

    def mentions_speaker(self, speaker: str) -> bool:
        """Whether the question contains the name of a participant, or all of `kind:name`."""
        return not self.names.isdisjoint({speaker.lower(), display_name(speaker).lower()})


def parse_names_and_dates(text: str, today: date) -> QuestionNamesAndDates:
    """Read a question, given the day on which it is asked."""
    times = parse_dates_and_periods(text, today)
    return QuestionNamesAndDates(
        names=_extract_names(text),
        times=times,
        is_about_now=not times and _EARLIER.search(text) is None,
    )


def _extract_names(text: str) -> frozenset[str]:
    """The words written as names: with a capital that does not merely begin a sentence, as
    `user:name`, or in a script without letter case. Text all in capitals contains no recognisable
    names. With its kind a name is of one participant: `user:sam` is not `agent:sam`."""
    names = {match[0].lower() for match in _PARTICIPANT.finditer(text)}
    text = _PARTICIPANT.sub(" ", text)
    has_case = text != text.upper()
    end = 0
    for match in _WORD.finditer(text):
        word, gap, begins = match[0], text[end : match.start()], not end
        end = match.end()
        if word.lower() == word.upper():
            is_name = not word.isdigit()
        else:
            begins = begins or _SENTENCE_END.search(gap)
            is_name = has_case and word[0] != word[0].lower() and (not begins or match["genitive"])
        if is_name:
            names.add(word.lower())
    return frozenset(names)
