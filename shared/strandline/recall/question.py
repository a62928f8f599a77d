"""What a question says besides its meaning: whose words it asks for, and of which time."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

_MONTHS = "january february march april may june july august september october november december"
_WORD = re.compile(r"\w+")
_MONTH_NAMES: list[str] = [*_MONTHS.split()]
_MONTH = "|".join(name.capitalize() for name in _MONTH_NAMES)
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?:,?\s+(?P<year>(?:19|20)\d\d))?"
# Months are capitalised: "may" and "march" are words, too.
_FORMS = tuple(
    re.compile(form)
    for form in (
        r"\b(?P<year>(?:19|20)\d\d)-(?P<month>\d\d)(?:-(?P<day>\d\d))?\b",
        rf"\b{_DAY}\s+(?:of\s+)?(?P<name>{_MONTH}){_YEAR}\b",
        rf"\b(?P<name>{_MONTH})\s+{_DAY}\b{_YEAR}",
        rf"\b(?P<name>{_MONTH}){_YEAR}\b",
        r"\b(?:in|of|during|since|until)\s+(?P<year>(?:19|20)\d\d)\b",
    )
)
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""The month in which each begins."""
_RELATIVE = re.compile(
    r"\b(?:(?P<day>today|yesterday)"
    r"|(?P<count>\d{1,3}|a|an|one|two|three|four|five|six)\s+(?P<unit>day|week|month|year)s?\s+ago"
    rf"|last\s+(?P<period>week|month|year|{'|'.join(_SEASONS)}))\b",
    re.IGNORECASE,
)
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}


@dataclass(frozen=True)
class CalendarDate:
    """A date as a question names it. What it leaves out fits any."""

    year: int | None
    month: int | None
    day: int | None

    def match(self, moment: date) -> float:
        """1 if the moment's month, or year, is the one that is named, and 2 if its day is, too."""
        for named, actual in ((self.year, moment.year), (self.month, moment.month)):
            if named is not None and named != actual:
                return 0.0
        if self.day is None:
            return 1.0
        return 2.0 if self.day == moment.day else 0.0 if self.year and not self.month else 1.0


@dataclass(frozen=True)
class Period:
    """A time that a question names relative to its own. `last` is inclusive."""

    first: date
    last: date

    def match(self, moment: date) -> float:
        """1 inside, else 0."""
        return float(self.first <= moment <= self.last)


@dataclass(frozen=True)
class Question:
    """A question, read once for all candidates."""

    words: frozenset[str]
    """Its words in lower case."""
    times: Sequence[CalendarDate | Period]

    def match_time(self, moment: datetime) -> float:
        """How well a moment fits the times that the question names: 0 to 2."""
        day = moment.astimezone(UTC).date()
        return max((time.match(day) for time in self.times), default=0.0)

    def named(self, names: Collection[str]) -> frozenset[str]:
        """Those of the names, in lower case, that the question holds."""
        return frozenset(name for name in names if name in self.words)


def read_question(text: str, now: datetime) -> Question:
    """Read a question that is asked at `now`."""
    return Question(
        words=frozenset(_WORD.findall(text.lower())),
        times=[*_calendar_dates(text), *_periods(text, now.astimezone(UTC).date())],
    )


def _calendar_dates(text: str) -> list[CalendarDate]:
    times: list[CalendarDate] = []
    for form in _FORMS:
        for match in form.finditer(text):
            parts = match.groupdict()
            name = parts.get("name")
            month = _MONTH_NAMES.index(name.lower()) + 1 if name else _to_int(parts.get("month"))
            times.append(CalendarDate(_to_int(parts.get("year")), month, _to_int(parts.get("day"))))
        text = form.sub(" ", text)  # a day's month is not once more a whole month
    return times


def _to_int(text: str | None) -> int | None:
    return int(text) if text else None


def _periods(text: str, today: date) -> list[Period]:
    try:
        return [_period(match, today) for match in _RELATIVE.finditer(text)]
    except (OverflowError, ValueError):  # before the first year, or after the last
        return []


def _period(match: re.Match[str], today: date) -> Period:
    if match["day"]:
        day = today - timedelta(days=match["day"].lower() == "yesterday")
        return Period(day, day)
    if match["unit"]:
        unit = match["unit"].lower()
        count = _NUMBERS.get(match["count"].lower()) or int(match["count"])
        day = today - timedelta(days=count * _UNIT_DAYS[unit])
        slack = timedelta(days=_UNIT_DAYS[unit] // 2)
        return Period(day - slack, day + slack)
    return _last(match["period"].lower(), today)


def _last(period: str, today: date) -> Period:
    """The latest such period that is over, or, of a season, that has begun."""
    if period == "week":
        monday = today - timedelta(days=today.weekday())
        return Period(monday - timedelta(days=7), monday - timedelta(days=1))
    if period == "month":
        end = today.replace(day=1) - timedelta(days=1)
        return Period(end.replace(day=1), end)
    if period == "year":
        return Period(date(today.year - 1, 1, 1), date(today.year - 1, 12, 31))
    month = _SEASONS[period]
    year = today.year if today.month >= month else today.year - 1
    start = date(year, month, 1)
    return Period(start, start + timedelta(days=91))
