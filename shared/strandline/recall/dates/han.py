"""The dates and periods that a question in Japanese or Chinese names."""

import re
from datetime import date, timedelta
from functools import cache

from strandline.recall.dates.ranges import (
    MONTH_PARTS,
    DateRange,
    PartialDate,
    compute_range_of_last_unit,
    make_period,
    make_range_around_day,
    to_date_if_single_day,
)

_FIRST_HAN, _LAST_HAN = "\u4e00", "\u9fff"
_DIGITS = {digit: value for value, digit in enumerate("〇一二三四五六七八九")} | {"两": 2, "兩": 2}
_NUMBER = r"(?:\d{1,3}|[一二三四五六七八九十两兩]{1,3})"
_DAY = rf"{_NUMBER}(?=\s*[日号號])"
_DATE = (
    rf"(?<![\d一二三四五六七八九十])(?:(?:(?P<year>(?:19|20)\d\d)\s*年|(?P<near>去年|昨年|今年)的?の?)"
    rf"\s*)?(?P<month>{_NUMBER})\s*月(?!間|间)(?:份|の)?"
    rf"(?:\s*(?P<day>{_DAY})\s*[日号號](?:\s*(?:から|到|至|[-–~〜～])\s*(?P<to>{_DAY})\s*[日号號])?"  # noqa: RUF001
    r"|(?P<early>初め|初旬|上旬|初|头)|(?P<middle>中旬|半ば)|(?P<late>下旬|末|底|の終わり))?"
    r"|(?P<only_year>(?:19|20)\d\d)\s*年(?![間间度])"
)
_TO = r"\s*(?:から|到|至|[-–~〜～])\s*"  # noqa: RUF001
_RELATIONS = (
    r"(?P<before>(?:より|の)?(?:以前|之前|前|まえ))|(?P<since>から|以来|以降|起|开始)"
    r"|(?P<after>(?:より|の)?(?:以[後后]|之[後后]|[後后]|あと))"
)
_WEEKDAY = r"(?:の?(?P<ja>[月火水木金土日])曜|(?P<zh>[一二三四五六日天]))?"
_WEEKDAYS = {day: place % 7 for place, day in enumerate("月火水木金土日一二三四五六天")} | {"日": 6}
_SEASONS = {"春": 3, "夏": 6, "秋": 9, "冬": 12}
_RELATIVE = (
    r"(?P<days_0>今朝|今早|今天早上)|(?P<days_2>一昨日|おととい|前天)"
    r"|(?P<days_1>昨日|昨天|昨夜|昨晩|昨晚|きのう|ゆうべ)"
    rf"|(?P<week>先週|(?<!上)上(?:[周週]|[个個]?(?:星期|礼拜|禮拜)))(?P<weekend>末)?{_WEEKDAY}"
    r"|(?P<month>先月|(?<!上)上[个個]?月)|(?P<year>去年|昨年)(?:の?(?P<season>[春夏秋冬]))?"
    rf"|(?P<count>{_NUMBER})\s*(?:(?P<unit_1>[日天])|(?P<unit_7>[周週]間?|[个個]?(?:星期|礼拜|禮拜))"
    r"|(?P<unit_30>[かヶカケ个個箇]月)|(?P<unit_365>年))(?:之|以)?前"
)


def parse_han_dates(text: str, today: date) -> list[PartialDate | DateRange]:
    """The times that a text names in Chinese characters, relative to the day of the question."""
    if text.isascii() or not any(_FIRST_HAN <= char <= _LAST_HAN for char in text):
        return []
    date_form, to, relations, relative = _compile()
    times: list[PartialDate | DateRange] = []
    waiting = [match for match in date_form.finditer(text) if _has_month(match)]
    while waiting:
        match = waiting.pop(0)
        time, end = _to_partial_date(match, today), match.end()
        period: DateRange | None = None
        if match["to"]:
            last = PartialDate(time.year, time.month, _parse_number(match["to"]))
            period = make_period(time, last, today)
        elif waiting and to.fullmatch(text, match.end(), waiting[0].start()):
            period = make_period(time, _to_partial_date(waiting[0], today), today)
            end = waiting.pop(0).end()
        times += _relate(period or time, relations.match(text, end), today)
    text = date_form.sub("\ue000", text)
    for match in relative.finditer(text):
        try:
            times.append(to_date_if_single_day(_compute_relative_period(match, today)))
        except (OverflowError, ValueError):  # before the first year
            continue
    return times


@cache
def _compile() -> tuple[re.Pattern[str], ...]:
    return tuple(map(re.compile, (_DATE, _TO, _RELATIONS, _RELATIVE)))


def _parse_number(text: str) -> int:
    """A number in digits, or below a hundred in Chinese ones."""
    if text.isdigit():
        return int(text)
    tens, ten, ones = text.rpartition("十")
    return (_DIGITS.get(tens, 1) * 10 if ten else 0) + _DIGITS.get(ones, 0)


def _has_month(match: re.Match[str]) -> bool:
    return match["month"] is None or 1 <= _parse_number(match["month"]) <= 12


def _to_partial_date(match: re.Match[str], today: date) -> PartialDate:
    if match["only_year"]:
        return PartialDate(int(match["only_year"]), None, None)
    year = int(match["year"]) if match["year"] else None
    if match["near"]:
        year = today.year - (match["near"] != "今年")
    day = _parse_number(match["day"]) if match["day"] else None
    days = next((days for part, days in MONTH_PARTS.items() if match[part]), None)
    return PartialDate(year, _parse_number(match["month"]), day, days)


def _relate(
    time: PartialDate | DateRange, relation: re.Match[str] | None, today: date
) -> list[PartialDate | DateRange]:
    """The time that is meant, with the word after it applied; none if the calendar lacks it."""
    if relation is None or isinstance(time, DateRange):
        return [time]
    try:
        period, one = time.resolve_to_latest_range(today), timedelta(days=1)
        if relation["before"]:
            return [DateRange(date.min, period.first - one)]
        return [DateRange(period.first if relation["since"] else period.last + one, date.max)]
    except (OverflowError, ValueError):
        return []


def _compute_relative_period(match: re.Match[str], today: date) -> DateRange:
    if match["count"]:
        days = next(days for days in (1, 7, 30, 365) if match[f"unit_{days}"])
        ago = timedelta(days=days * _parse_number(match["count"]))
        return make_range_around_day(today - ago, days)
    if match["season"]:
        first = date(today.year - 1, _SEASONS[match["season"]], 1)
        return DateRange(first, first + timedelta(days=91))
    for unit in ("week", "month", "year"):
        if match[unit]:
            period = compute_range_of_last_unit(unit, today)
            if match["weekend"]:
                return DateRange(period.last - timedelta(days=1), period.last)
            weekday = match["ja"] or match["zh"]
            if weekday:
                day = period.first + timedelta(days=_WEEKDAYS[weekday])
                return DateRange(day, day)
            return period
    day = today - timedelta(days=next(days for days in range(3) if match[f"days_{days}"]))
    return DateRange(day, day)
