"""The times that a language's forms stand for where they match a question."""

import re
from datetime import date, timedelta

from strandline.recall.dates.forms import DateForms, fold
from strandline.recall.dates.ranges import (
    DateRange,
    PartialDate,
    compute_range_of_last_season,
    compute_range_of_last_unit,
    find_last_day_of_number,
    find_last_weekday,
    find_last_weekend,
    find_start_of_unit,
    make_range_around_day,
)


def to_partial_date(match: re.Match[str], forms: DateForms) -> PartialDate:
    """The date, month, quarter, season or year that a match names. A season has three months, as a
    quarter; a winter is in two years."""
    year, month, name, day = map(match.groupdict().get, ("year", "month", "name", "day"))
    if quarter := match.groupdict().get("quarter"):
        digit = re.search(r"\d", quarter)
        number = int(digit[0]) if digit else forms.ordinals[fold(quarter.split()[0])]
        return PartialDate(_parse_optional_int(year), 3 * number - 2, None, months=3)
    if season := match.groupdict().get("season"):
        return PartialDate(_parse_optional_int(year), forms.seasons[fold(season)], None, months=3)
    number = forms.months[fold(name).rstrip(".")] if name else _parse_optional_int(month)
    return PartialDate(_parse_optional_int(year), number, _parse_optional_int(day))


def to_range_before_or_after(
    relation: re.Match[str], period: DateRange, forms: DateForms
) -> DateRange:
    """What is before or after a period, or by so many units from it."""
    is_before = relation["before"] is not None
    if not relation["unit"]:
        one = timedelta(days=1)
        if is_before:
            return DateRange(date.min, period.first - one)
        return DateRange(period.last + one, date.max)
    days, slack = _count_days(relation, forms)
    sign, start = (-1, period.first) if is_before else (1, period.last)
    if relation["count"]:
        return make_range_around_day(start + timedelta(days=sign * days), slack)
    first, last = sorted((start + timedelta(days=sign), start + timedelta(days=sign * days)))
    return DateRange(first, last)


def compute_relative_period(match: re.Match[str], today: date, forms: DateForms) -> DateRange:
    """The period that a match names by its distance from today."""
    parts = match.groupdict()
    if parts.get("unit"):
        days, slack = _count_days(match, forms)
        day = today - timedelta(days=days)
        return DateRange(day, today) if "past" in parts else make_range_around_day(day, slack)
    if parts.get("weekday") and parts.get("count"):
        number = forms.some.get(fold(parts["count"])) or _parse_count(parts["count"], forms)
        today -= timedelta(weeks=number - 1)
    if "again" in parts:
        today = _compute_last(match, today, forms).first
    if parts.get("weekday") or parts.get("weekend") or parts.get("period"):
        return _compute_last(match, today, forms)
    day = today - timedelta(days=int(str(match.lastgroup).removeprefix("days_")))
    return DateRange(day, day)


def _compute_last(match: re.Match[str], today: date, forms: DateForms) -> DateRange:
    """The latest unit, season, weekday or weekend before today that a match names."""
    parts = match.groupdict()
    if parts.get("weekend"):
        return find_last_weekend(today)
    if parts.get("weekday"):
        day = find_last_weekday(forms.weekday_numbers[fold(parts["weekday"])], today)
        return DateRange(day, day)
    name = fold(parts["period"])
    if name in forms.seasons:
        return compute_range_of_last_season(forms.seasons[name], today)
    return compute_range_of_last_unit(forms.last_units[name], today)


def compute_latest_days(match: re.Match[str], today: date, forms: DateForms) -> list[DateRange]:
    """The latest days that a match names by weekday, number, part of the day or unit."""
    parts = match.groupdict()
    if parts.get("weekend"):
        return [find_last_weekend(today)]
    if unit := parts.get("this"):
        return [DateRange(find_start_of_unit(forms.this_units[fold(unit)], today), today)]
    if number := parts.get("day"):
        day = find_last_day_of_number(int(number), today)
        return [DateRange(day, day)]
    names = [name for key in ("weekday", "other") if (name := parts.get(key))]
    days = [find_last_weekday(forms.weekday_numbers[fold(name)], today) for name in names]
    if not days:
        days = [today - timedelta(days=int(str(match.lastgroup).removeprefix("days_")))]
    return [DateRange(day, day) for day in days]


def _count_days(match: re.Match[str], forms: DateForms) -> tuple[int, int]:
    """The days that a number of units has, or in the past those that it touches, and the days of a
    unit; where the number is vague, the same again."""
    unit, some = forms.units[fold(match["unit"])], forms.some.get(fold(match["count"] or ""))
    hours = unit * (some or _parse_count(match["count"], forms))
    days = -(-hours // 24) if "past" in match.groupdict() else hours // 24
    return days, days if some else unit // 24


def _parse_count(text: str | None, forms: DateForms) -> int:
    """A number in words or digits; one where there is none."""
    if text is None:
        return 1
    return forms.numbers.get(fold(text)) or int(text)


def _parse_optional_int(text: str | None) -> int | None:
    return int(text) if text else None
