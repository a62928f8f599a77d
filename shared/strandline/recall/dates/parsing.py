"""The dates and periods that a question names, in common forms of its language."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from operator import itemgetter

from strandline.languages import UNKNOWN
from strandline.recall.dates.forms import READ, DateForms, fold, get_date_forms
from strandline.recall.dates.han import parse_han_dates
from strandline.recall.dates.language import choose_date_language
from strandline.recall.dates.matches import (
    compute_latest_days,
    compute_relative_period,
    to_partial_date,
    to_range_before_or_after,
)
from strandline.recall.dates.past_questions import asks_for_what_was
from strandline.recall.dates.ranges import (
    MONTH_PARTS,
    DateRange,
    PartialDate,
    make_period,
    make_week,
    to_date_if_single_day,
)
from strandline.recall.dates.words import DATE_WORDS

type NamedTime = PartialDate | DateRange
_BEFORE_MONTH = (
    r"(?i)\b(?:in|during|since|until|till|before|after|throughout|last|of|between|from)\s+$"
    rf"|{READ}\s*(?:-|to|until|till|through)\s*$"
)
"""What makes a month of an English word in lower case; with a day, `_BEFORE_DAY`. These forms are
compiled when they are first used, and seldom are."""
_BEFORE_DAY = r"(?i)\b(?:on|in|by|since|until|till|before|after|from|last)\s+$"
_UNTIL = (
    r"(?i)\b(?:(?:by|until|till)(?:\s+the)?|bis(?:\s+zum)?|hasta|jusqu['’]\w+|fino\s+a(?:lla)?"  # noqa: RUF001
    r"|tot|até(?:\s+o|\s+ao)?|до)\s+$"
)
"""Before the end of a month: not only that end is meant."""
_OF = r"(?i)\s+(?:of|des|del|dell[ao]|du|van|do)\b"
"""A weekday of a month, or of a row of days, is not the latest one."""
_FOR = (
    r"(?i)\b(?:for|by|until|till|für|bis|para|hasta|pour|jusqu['’]à|per|entro|voor|tot|até|на|до)"  # noqa: RUF001
    r"\s+$"
)
"""What is for a day was said earlier."""
_DATE_FOLLOWS = r"(?i)\s*,?\s*(?:the\s+|de[rn]\s+|le\s+|el\s+)?\d"
_BESIDE = r"[\s,]+(?:[^\W\d_]{1,3}(?:['’]|\s+)){0,2}"  # noqa: RUF001
"""Between a date and "last year"."""
_SAID_THAT = (
    r"(?i)\b(?:(?:say|says|said|(?:told|texted|reminded|warned)\s+\w+|agreed|announced|claimed"
    r"|confirmed|decided|heard|hoped|knew|mentioned|noted|promised|texted|thought|wrote)\s+that|(?:gesagt|erzählt|versprochen),?\s+dass"
    r"|(?:dijo|dicho|disse|dito)\s+que|dit\s+(?:que\b|qu['’])|detto\s+che|gezegd\s+dat"  # noqa: RUF001
    r"|сказал[аи]?,?\s+что)"
)
"""What is said to be is not past because it was said."""
_SENTENCE_END = r"[!?:;\n]|(?<=\w{4})\.\s"
_RELATION_CHARS, _SENTENCE_CHARS = 60, 300


def parse_dates_and_periods(text: str, today: date) -> list[NamedTime]:
    """The times that a question names, relative to the day on which it is asked."""
    language = choose_date_language(text)
    times = parse_han_dates(text, today)
    if language not in (UNKNOWN, "en"):
        times += _parse_in_language(text, today, language)
    return times or _parse_in_language(text, today, "en")


def _parse_in_language(text: str, today: date, language: str) -> list[NamedTime]:
    forms = get_date_forms(language)
    dates: list[tuple[int, int, PartialDate]] = []
    for form in forms.dates if re.search(r"\d", text) else forms.dates_in_words:
        for match in form.finditer(text):
            start, end = _find_date_span(match)
            if not _is_month_rather_than_word(match, text, start, language):
                continue
            time, start = _find_part_of_month(to_partial_date(match, forms), text, start, forms)
            dates.append((start, end, time))
            # a day's month is not once more a whole month
            text = text[:start] + READ * (end - start) + text[end:]
    periods = [*_find_relative_periods(text, today, forms)]
    dates = _set_last_year(dates, periods, text, forms)
    times = [*_relate_dates(sorted(dates, key=itemgetter(0)), text, today, forms)]
    for match, period in periods:
        head = _cut_head(text, match.start())
        times += _apply_before_or_after(to_date_if_single_day(period), head, today, forms)
    return times or [*_find_weekdays(text, today, forms, language)]


def _set_last_year(
    dates: Sequence[tuple[int, int, PartialDate]],
    periods: list[tuple[re.Match[str], DateRange]],
    text: str,
    forms: DateForms,
) -> list[tuple[int, int, PartialDate]]:
    """The dates, those of last year with their year. What that was said of is no longer one of the
    periods: "November last year" is not the rest of that year."""
    dated = [*dates]
    for match, period in [*periods]:
        name = match.groupdict().get("period")
        if name is None or forms.last_units.get(fold(name)) != "year":
            continue
        for n, (start, end, time) in enumerate(dates):
            gaps = text[end : match.start()], text[match.end() : start]
            if time.year is None and any(re.fullmatch(_BESIDE, gap) for gap in gaps):
                dated[n] = start, end, replace(time, year=period.first.year)
                periods.remove((match, period))
                break
    return dated


def _find_part_of_month(
    time: PartialDate, text: str, start: int, forms: DateForms
) -> tuple[PartialDate, int]:
    """The part of a month that the words before it name, and where these begin; else the same."""
    if time.month is None or time.day is not None or time.months > 1:
        return time, start
    head = _cut_head(text, start)
    match = forms.parts.search(head)
    if match is None or re.search(_UNTIL, head[: match.start()]):
        return time, start
    part = replace(time, days=MONTH_PARTS[str(match.lastgroup)])
    return part, start - len(head) + match.start()


def _relate_dates(
    dates: Sequence[tuple[int, int, PartialDate]], text: str, today: date, forms: DateForms
) -> Iterator[NamedTime]:
    """The times that dates stand for in a text, in which they are replaced: two of them, or a day
    and a date, may be the ends of a period, and `since` begins one."""
    waiting = [*dates]
    while waiting:
        start, end, time = waiting.pop(0)
        before, period = _cut_head(text, start), None
        following = waiting[0] if waiting else None
        if following and _are_ends(before, time, text[end : following[0]], following[2], forms):
            period = make_period(time, following[2], today)
            if period:
                waiting.pop(0)
        elif time.day and (match := forms.first_day.search(before)):
            first = replace(time, day=int(match["from_day"] or match["day"]))
            period = make_period(first, time, today)
        elif time.day and forms.last_day and (match := forms.last_day.match(text, end)):
            period = make_period(time, replace(time, day=int(match["day"])), today)
        elif time.day and forms.week_of.search(before):
            period = make_week(time, today)
            yield time  # the rest of its month counts as for the day
        if period:
            yield period
        else:
            yield from _apply_before_or_after(time, before, today, forms)


def _are_ends(
    before: str, first: PartialDate, between: str, last: PartialDate, forms: DateForms
) -> bool:
    """Whether two dates are the ends of a period: after "from", or two days with "to" between."""
    return bool(
        (forms.between.search(before) and forms.between_dates.fullmatch(between))
        or (first.day and last.day and forms.between_days.fullmatch(between))
    )


def _find_date_span(match: re.Match[str]) -> tuple[int, int]:
    """The start and end of the date itself, without the words that identify it as a date."""
    names = ("year", "quarter", "season", "month", "day", "name", "ordinal")
    groups = [name for name in names if match.groupdict().get(name)]
    return min(map(match.start, groups)), max(map(match.end, groups))


def _is_month_rather_than_word(match: re.Match[str], text: str, start: int, language: str) -> bool:
    """Whether a month that is also a common word is a month here: because of a capital inside a
    sentence, the words before it, other parts of a date, or, with a day, its place at the end of a
    phrase."""
    parts = match.groupdict()
    name = (parts.get("name") or "").rstrip(".")
    is_word = name.lower() in DATE_WORDS[language].words
    if not is_word or parts.get("year") or parts.get("ordinal") or parts.get("of"):
        return True
    if name[0].isupper() and match.start("name") > 0:
        return True
    head = _cut_head(text, start)
    if not parts.get("day"):
        return bool(re.search(_BEFORE_MONTH, head))
    ends_phrase = re.match(r"\s*\w", text[match.end() :]) is None
    return ends_phrase or bool(re.search(_BEFORE_DAY, head))


def _apply_before_or_after(
    time: NamedTime, before: str, today: date, forms: DateForms
) -> Iterator[NamedTime]:
    """The time that is meant, with words before it like "since" or "two weeks after" applied, if
    there are any. Empty if the calendar does not have that time."""
    relation = forms.relation.search(before)
    if relation is None and not forms.since.search(before):
        yield time
        return
    try:
        period = time if isinstance(time, DateRange) else time.resolve_to_latest_range(today)
        if relation is None:
            yield DateRange(period.first, date.max)
            return
        if isinstance(time, PartialDate) and time.days == MONTH_PARTS["late"]:
            period = replace(period, first=period.last)  # before the end of a month
        yield to_date_if_single_day(to_range_before_or_after(relation, period, forms))
    except (OverflowError, ValueError):
        return


def _find_relative_periods(
    text: str, today: date, forms: DateForms
) -> Iterator[tuple[re.Match[str], DateRange]]:
    """The periods that are named by their distance from today, such as "last week"."""
    for form in forms.relatives:
        for match in form.finditer(text):
            try:
                yield match, compute_relative_period(match, today, forms)
            except (OverflowError, ValueError):  # before the first year, or after the last
                continue


def _find_weekdays(text: str, today: date, forms: DateForms, language: str) -> Iterator[NamedTime]:
    """The latest days that a question names by weekday, weekend or part of the day, if it asks for
    what was, or for the last one. Beside a date a weekday says nothing more."""
    matches = [match for form in forms.weekdays for match in form.finditer(text)]
    matches = [
        match for match in matches if not forms.not_last.search(_cut_head(text, match.start()))
    ]
    if not matches:
        matches = [
            match
            for form in forms.days_if_past
            for match in form.finditer(text)
            if not re.search(_FOR, _cut_head(text, match.start()))
            and asks_for_what_was(*_cut_sentence(text, match), language)
        ]
    for match in matches:
        tail = text[match.end() : match.end() + _RELATION_CHARS]
        if re.match(_OF, tail) or re.match(_DATE_FOLLOWS, tail):
            continue
        try:
            periods = compute_latest_days(match, today, forms)
        except OverflowError:  # before the first year
            continue
        for period in periods:
            if "since" in match.groupdict():
                yield DateRange(period.first, date.max)
            else:
                head = _cut_head(text, match.start())
                yield from _apply_before_or_after(to_date_if_single_day(period), head, today, forms)


def _cut_head(text: str, start: int) -> str:
    """The words before a place."""
    return text[max(0, start - _RELATION_CHARS) : start]


def _cut_sentence(text: str, match: re.Match[str]) -> tuple[str, str]:
    """The sentence, or part of one, in which a match stands: before its day, and from there on."""
    start = min(match.start(name) for name, part in match.groupdict().items() if part)
    head = text[max(0, start - _SENTENCE_CHARS) : start]
    tail = text[start : match.end() + _SENTENCE_CHARS]
    head = re.split(_SAID_THAT, re.split(_SENTENCE_END, head)[-1])[-1]
    return head, re.split(_SENTENCE_END, tail)[0]
