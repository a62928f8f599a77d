"""The dates and periods that a question names, in common English forms."""

import calendar
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from operator import itemgetter

_MONTHS = "january february march april may june july august september october november december"
_MONTH_NAMES: list[str] = [*_MONTHS.split()]
_MONTH = "|".join(_MONTH_NAMES)
_DAY = r"(?P<day>\d{1,2})(?P<ordinal>st|nd|rd|th)?"
_YEAR = r"(?:,?\s+(?P<year>(?:19|20)\d\d))?\b"
_NOT_GENITIVE = r"(?!['’]s\b)"  # noqa: RUF001
_PART = r"(?:end|beginning|start|middle|half|rest|days?|weeks?|weekends?|month)\s+of"
_READ = "\ue000"
"""Replaces the part of a text that is already read."""
_NEXT_MONTH = (
    rf"{_READ}\s*(?:,|-|/|and|or|to|until|till|through)\s*(?P<name>{_MONTH})\b{_NOT_GENITIVE}"
)
# "May", "march" and "April" are also words and names. On their own, they are read as months only
# after these words.
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"\b(?P<year>(?:19|20)\d\d)-(?P<month>\d\d)(?:-(?P<day>\d\d))?\b",
        rf"\b{_DAY}\s+(?P<of>of\s+)?(?P<name>{_MONTH})\b{_YEAR}",
        rf"\b(?P<name>{_MONTH})\s+{_DAY}\b{_YEAR}",
        rf"\b(?P<name>{_MONTH}),?\s+(?P<year>(?:19|20)\d\d)\b",
        rf"\b(?:last|this|next)\s+(?P<name>{_MONTH})\b",
        rf"\b(?:in|during|since|until|till|before|after|throughout|early|late|mid|{_PART})[\s-]+"
        rf"(?P<name>{_MONTH})\b{_NOT_GENITIVE}",
        rf"\b(?:between|from)\s+(?P<name>{_MONTH})\s+(?:and|to|until|till|through)\s+"
        rf"(?=(?:{_MONTH})\b)",
        _NEXT_MONTH,
        _NEXT_MONTH,
        r"\b(?:in|of|during|since|until|before|after)\s+(?P<year>(?:19|20)\d\d)\b",
    )
)
_WORDS = {"may", "march"}
"""Months that are common words in lower case."""
_BEFORE_MONTH = re.compile(
    r"\b(?:in|during|since|until|till|before|after|throughout|last|of|between|from)\s+$"
    rf"|{_READ}\s*(?:-|to|until|till|through)\s*$",
    re.IGNORECASE,
)
_BEFORE_DAY = re.compile(
    r"\b(?:on|in|by|since|until|till|before|after|from|last)\s+$", re.IGNORECASE
)
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""The first month of each season."""
_COUNT = r"(?P<count>\d{1,3}|a|an|one|two|three|four|five|six)"
_UNIT = r"(?P<unit>day|week|month|year)s?"
_RELATIVE = re.compile(
    r"\b(?:(?P<day>today|yesterday)"
    rf"|{_COUNT}\s+{_UNIT}\s+ago"
    rf"|last\s+(?P<period>week|month|year|{'|'.join(_SEASONS)}))\b",
    re.IGNORECASE,
)
_RELATION = re.compile(
    rf"(?:\b(?:{_COUNT}|the)\s+{_UNIT}\s+)?\b(?P<relation>before|after)\s+(?:the\s+)?$",
    re.IGNORECASE,
)
_RELATION_CHARS = 60
_TO_WORD = r"(?:and|to|until|till|through)"
_FROM = re.compile(r"\b(?:between|from)\s+(?:the\s+)?$", re.IGNORECASE)
_TO = re.compile(rf"\s*(?:,?\s*{_TO_WORD}\s+(?:the\s+)?|[-–—]\s*)", re.IGNORECASE)  # noqa: RUF001
_TO_DAYS = re.compile(r"\s*(?:(?:to|until|till|through)\s+(?:the\s+)?|[-–—]\s*)", re.IGNORECASE)  # noqa: RUF001
_FROM_DAY = re.compile(
    r"\b(?:between|from)\s+(?:the\s+)?(?P<from_day>\d{1,2})(?:st|nd|rd|th)?\s+"
    rf"{_TO_WORD}\s+(?:the\s+)?$|(?<![\w.:-])(?P<day>\d{{1,2}})\s*[-–]\s*$",  # noqa: RUF001
    re.IGNORECASE,
)
_TO_DAY = re.compile(
    r"\s*(?:[-–]|\b(?:to|until|till|through)\b)\s*(?:the\s+)?(?P<day>\d{1,2})(?:st|nd|rd|th)?"  # noqa: RUF001
    r"\b(?![.:]?\d)",
    re.IGNORECASE,
)
_SINCE = re.compile(r"\bsince\s+(?:the\s+)?$", re.IGNORECASE)
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}


@dataclass(frozen=True)
class PartialDate:
    """A date as a question names it. Parts that it omits match any value."""

    year: int | None
    month: int | None
    day: int | None

    def score_match(self, moment: date) -> float:
        """1 if the moment's month, or year, matches the date, and 2 if its day matches, too."""
        for part, actual in ((self.year, moment.year), (self.month, moment.month)):
            if part is not None and part != actual:
                return 0.0
        if self.day is None:
            return 1.0
        return 2.0 if self.day == moment.day else 0.0 if self.year and not self.month else 1.0

    def resolve_to_latest_range(self, today: date) -> "DateRange":
        """Its days; without a year, the latest ones that have begun. Raises ValueError if no such
        day exists."""
        if self.year is not None:
            return self._to_range_in_year(self.year)
        for year in range(today.year, max(0, today.year - 9), -1):
            try:
                period = self._to_range_in_year(year)
            except ValueError:  # 29 February
                continue
            if period.first <= today:
                return period
        raise ValueError("no such day")

    def _to_range_in_year(self, year: int) -> "DateRange":
        first = date(year, self.month or 1, self.day or 1)
        if self.day:
            return DateRange(first, first)
        month = self.month or 12
        return DateRange(first, date(year, month, calendar.monthrange(year, month)[1]))


@dataclass(frozen=True)
class DateRange:
    """A period between two days, both inclusive."""

    first: date
    last: date
    names_days: bool = False
    """Whether the question names its first and last day."""
    is_of_any_year: bool = False
    """Whether the question names no year."""

    def score_match(self, moment: date) -> float:
        """1 if the moment is inside, or 2 if the question names the days, else 0."""
        is_inside = self.first <= moment <= self.last
        if self.is_of_any_year:
            first, day, last = ((one.month, one.day) for one in (self.first, moment, self.last))
            is_inside = first <= day <= last if first <= last else day >= first or day <= last
        return (2.0 if self.names_days else 1.0) * is_inside


def parse_dates_and_periods(text: str, today: date) -> list[PartialDate | DateRange]:
    """The times that a question names, relative to the day on which it is asked."""
    dates: list[tuple[int, int, PartialDate]] = []
    for form in _FORMS:
        for match in form.finditer(text):
            parts = match.groupdict()
            start, end = _find_date_span(match)
            if not _is_month_rather_than_word(match, text, start):
                continue
            name = parts.get("name")
            month = (
                _MONTH_NAMES.index(name.lower()) + 1
                if name
                else _parse_optional_int(parts.get("month"))
            )
            time = PartialDate(
                _parse_optional_int(parts.get("year")), month, _parse_optional_int(parts.get("day"))
            )
            dates.append((start, end, time))
            # a day's month is not once more a whole month
            text = text[:start] + _READ * (end - start) + text[end:]
    times = [*_relate_dates(sorted(dates, key=itemgetter(0)), text, today)]
    for match in _RELATIVE.finditer(text):
        try:
            period = _parse_relative_date_range(match, today)
        except (OverflowError, ValueError):  # before the first year, or after the last
            continue
        times += _apply_before_or_after(period, text[: match.start()], today)
    return times


def _relate_dates(
    dates: Sequence[tuple[int, int, PartialDate]], text: str, today: date
) -> Iterator[PartialDate | DateRange]:
    """The times that dates stand for in a text, in which they are replaced: two of them, or a day
    and a date, may be the ends of a period, and `since` begins one."""
    waiting = [*dates]
    while waiting:
        start, end, time = waiting.pop(0)
        before, period = text[:start], None
        following = waiting[0] if waiting else None
        if following and _are_ends(before, time, text[end : following[0]], following[2]):
            period = _make_period(time, following[2], today)
            if period:
                waiting.pop(0)
        elif time.day and (match := _FROM_DAY.search(before)):
            first = replace(time, day=int(match["from_day"] or match["day"]))
            period = _make_period(first, time, today)
        elif time.day and (match := _TO_DAY.match(text, end)):
            period = _make_period(time, replace(time, day=int(match["day"])), today)
        elif _SINCE.search(before):
            period = _make_period(time, PartialDate(date.max.year, 12, 31), today)
        if period:
            yield period
        else:
            yield from _apply_before_or_after(time, before, today)


def _are_ends(before: str, first: PartialDate, between: str, last: PartialDate) -> bool:
    """Whether two dates are the ends of a period: after "from", or two days with "to" between."""
    return bool(
        (_FROM.search(before) and _TO.fullmatch(between))
        or (first.day and last.day and _TO_DAYS.fullmatch(between))
    )


def _make_period(first: PartialDate, last: PartialDate, today: date) -> DateRange | None:
    """From one date to another, the latest one that has begun; None if there is no such period."""
    try:
        begin = replace(first, year=first.year or _choose_year(first, last, today))
        start = begin.resolve_to_latest_range(today).first
        end = replace(last, year=last.year or start.year).resolve_to_latest_range(today).last
        if end < start and last.year is None and first.month != last.month:  # into the next year
            end = replace(last, year=start.year + 1).resolve_to_latest_range(today).last
    except ValueError:
        return None
    names_days = bool(first.day and last.day) and end < date.max
    is_of_any_year = first.year is None and last.year is None
    return DateRange(start, end, names_days, is_of_any_year) if start <= end else None


def _choose_year(first: PartialDate, last: PartialDate, today: date) -> int:
    """The year in which a period begins whose first date has none."""
    if last.year is None or last.year == date.max.year:
        return first.resolve_to_latest_range(today).first.year
    is_later = (first.month or 1, first.day or 1) > (last.month or 12, last.day or 31)
    return last.year - is_later


def _find_date_span(match: re.Match[str]) -> tuple[int, int]:
    """The start and end of the date itself, without the words that identify it as a date."""
    names = ("year", "month", "day", "name", "ordinal")
    groups = [name for name in names if match.groupdict().get(name)]
    return min(map(match.start, groups)), max(map(match.end, groups))


def _is_month_rather_than_word(match: re.Match[str], text: str, start: int) -> bool:
    """Whether a month that is also a common word is a month here: because of a capital inside a
    sentence, the words before it, other parts of a date, or, with a day, its place at the end of a
    phrase."""
    parts = match.groupdict()
    name = parts.get("name") or ""
    if name.lower() not in _WORDS or parts.get("year") or parts.get("ordinal") or parts.get("of"):
        return True
    if name[0].isupper() and match.start("name") > 0:
        return True
    if not parts.get("day"):
        return bool(_BEFORE_MONTH.search(text[:start]))
    ends_phrase = re.match(r"\s*\w", text[match.end() :]) is None
    return ends_phrase or bool(_BEFORE_DAY.search(text[:start]))


def _parse_optional_int(text: str | None) -> int | None:
    return int(text) if text else None


def _apply_before_or_after(
    time: PartialDate | DateRange, before: str, today: date
) -> Iterator[PartialDate | DateRange]:
    """The time that is meant, with words before it like "before" or "two weeks after" applied, if
    there are any. Empty if the calendar does not have that time."""
    relation = _RELATION.search(before[-_RELATION_CHARS:])
    if relation is None:
        yield time
        return
    try:
        period = time if isinstance(time, DateRange) else time.resolve_to_latest_range(today)
        yield _to_range_before_or_after(relation, period)
    except (OverflowError, ValueError):
        return


def _to_range_before_or_after(relation: re.Match[str], period: DateRange) -> DateRange:
    is_before = relation["relation"].lower() == "before"
    if not relation["unit"]:
        one = timedelta(days=1)
        if is_before:
            return DateRange(date.min, period.first - one)
        return DateRange(period.last + one, date.max)
    days = _UNIT_DAYS[relation["unit"].lower()]
    sign, start = (-1, period.first) if is_before else (1, period.last)
    if relation["count"]:
        day = start + timedelta(days=sign * days * _parse_count_word(relation["count"]))
        return _make_range_around_day(day, days)
    first, last = sorted((start + timedelta(days=sign), start + timedelta(days=sign * days)))
    return DateRange(first, last)


def _parse_count_word(text: str) -> int:
    return _NUMBERS.get(text.lower()) or int(text)


def _make_range_around_day(day: date, unit_days: int) -> DateRange:
    slack = timedelta(days=unit_days // 2)
    return DateRange(day - slack, day + slack)


def _parse_relative_date_range(match: re.Match[str], today: date) -> DateRange:
    if match["day"]:
        day = today - timedelta(days=match["day"].lower() == "yesterday")
        return DateRange(day, day)
    if match["unit"]:
        days = _UNIT_DAYS[match["unit"].lower()]
        return _make_range_around_day(
            today - timedelta(days=_parse_count_word(match["count"]) * days), days
        )
    return _compute_range_of_last_period(match["period"].lower(), today)


def _compute_range_of_last_period(period: str, today: date) -> DateRange:
    """The latest such period that is over, or, for a season, that has begun."""
    if period == "week":
        monday = today - timedelta(days=today.weekday())
        return DateRange(monday - timedelta(days=7), monday - timedelta(days=1))
    if period == "month":
        end = today.replace(day=1) - timedelta(days=1)
        return DateRange(end.replace(day=1), end)
    if period == "year":
        return DateRange(date(today.year - 1, 1, 1), date(today.year - 1, 12, 31))
    month = _SEASONS[period]
    year = today.year if today.month >= month else today.year - 1
    start = date(year, month, 1)
    return DateRange(start, start + timedelta(days=91))
