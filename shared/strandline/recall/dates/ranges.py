"""Dates and periods, and what they mean on the day of a question."""

import calendar
from dataclasses import dataclass, replace
from datetime import date, timedelta

MONTH_PARTS = {"early": (1, 13), "middle": (8, 23), "late": (18, 31)}
"""The days of a month's thirds, with three days of grace."""


@dataclass(frozen=True)
class PartialDate:
    """A date as a question names it. Parts that it omits match any value."""

    year: int | None
    month: int | None
    day: int | None
    days: tuple[int, int] | None = None
    """The first and last day of the part of the month that it names."""
    months: int = 1
    """How many months it names, from the first of a quarter on."""

    def score_match(self, moment: date) -> float:
        """1 if the moment's month, or year, matches the date, and 2 if its day matches, too. In the
        month, but outside its part that is named, it is 0.5: what happened is also told later."""
        if self.year is not None and self.year != moment.year:
            return 0.0
        if self.month is not None and not 0 <= moment.month - self.month < self.months:
            return 0.0
        if self.days:
            return 1.0 if self.days[0] <= moment.day <= self.days[1] else 0.5
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
        month = self.month + self.months - 1 if self.month else 12
        last = date(year, month, calendar.monthrange(year, month)[1])
        if self.days:
            first = first.replace(day=self.days[0])
            last = last.replace(day=min(last.day, self.days[1]))
        return DateRange(first, last)


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


def make_period(first: PartialDate, last: PartialDate, today: date) -> DateRange | None:
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


def to_date_if_single_day(period: DateRange) -> PartialDate | DateRange:
    """The date of a period of one day: "yesterday" is that date. A longer one as it is."""
    day = period.first
    return PartialDate(day.year, day.month, day.day) if day == period.last else period


def make_range_around_day(day: date, unit_days: int) -> DateRange:
    """The days around one, by half of the unit in which it was counted."""
    slack = timedelta(days=unit_days // 2)
    return DateRange(day - slack, day + slack)


def make_week(day: PartialDate, today: date) -> DateRange | None:
    """The week in which a day is, from Monday on, or from the day if it is a Sunday; None if the
    calendar does not have it."""
    try:
        first = day.resolve_to_latest_range(today).first
        if first.weekday() != 6:
            first = find_start_of_unit("week", first)
        return DateRange(first, first + timedelta(days=6), names_days=True)
    except (OverflowError, ValueError):
        return None


def find_start_of_unit(unit: str, day: date) -> date:
    """The first day of the week, month, quarter or year in which a day is."""
    if unit == "week":
        return day - timedelta(days=day.weekday())
    months = {"month": 1, "quarter": 3, "year": 12}[unit]
    return day.replace(month=day.month - (day.month - 1) % months, day=1)


def compute_range_of_last_unit(unit: str, today: date) -> DateRange:
    """The latest week, month, quarter or year that is over."""
    last = find_start_of_unit(unit, today) - timedelta(days=1)
    return DateRange(find_start_of_unit(unit, last), last)


def compute_range_of_last_season(month: int, today: date) -> DateRange:
    """The latest season that has begun, given its first month."""
    year = today.year if today.month >= month else today.year - 1
    start = date(year, month, 1)
    return DateRange(start, start + timedelta(days=91))


def find_last_day_of_number(number: int, today: date) -> date:
    """The latest day with this number in its month, today at the latest; in a leap year's three
    months there is each. Raises OverflowError before the first year."""
    for days in range(93):
        if (day := today - timedelta(days=days)).day == number:
            return day
    raise OverflowError("no such day")


def find_last_weekday(number: int, today: date) -> date:
    """The latest such day before today; Monday is 0."""
    return today - timedelta(days=(today.weekday() - number - 1) % 7 + 1)


def find_last_weekend(today: date) -> DateRange:
    """The latest Saturday and Sunday that are over."""
    sunday = find_last_weekday(6, today)
    return DateRange(sunday - timedelta(days=1), sunday)
