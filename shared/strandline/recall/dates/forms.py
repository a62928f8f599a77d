"""The regular expressions for the times that questions name, made of one language's words."""

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from strandline.recall.dates.words import DATE_WORDS, DateWords

READ = "\ue000"
"""Replaces the part of a text that is already read."""
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DAY_NUMBER, _MONTH_NUMBER = r"(?:0?[1-9]|[12]\d|3[01])", r"(?:0?[1-9]|1[0-2])"
_DASH = "[-–]"  # noqa: RUF001
_ISO_DATE = (
    rf"\b(?:(?<!\w-)|(?=\d{{4}}-\d\d-\d\d)){_YEAR}-(?P<month>\d\d)"
    r"(?:-(?P<day>\d\d)(?=\b|T\d|_)|\b(?!-\d))"
)
"""INV-2026-11 names no month."""
_NUMERIC_DATE = (
    rf"(?<![\w.])(?P<day>{_DAY_NUMBER})(?P<mark>[./-])(?P<month>{_MONTH_NUMBER})(?P=mark){_YEAR}\b"
)
_GERMAN_DATE = (
    rf"\b(?:am|vom|zum|dem|den|seit|ab|bis|und)\s+(?P<day>{_DAY_NUMBER})\."
    rf"(?P<month>{_MONTH_NUMBER})(?P<ordinal>\.)(?!\d)"
)
_OR = "or|oder|ou|of|o|или"
_UNIT_HOURS = 24, 7 * 24, 30 * 24, 365 * 24, 1
_NOT_AND_A_HALF = r"(?!\s+(?:et|y|e)\s+(?:demi|medi|mei)\w*)"
_PHRASE_END = r"(?=\s*(?:[?.!,;:)]|$)|\s+(?:about|after|at|because|before|when|while|with)\b)"
"""In other languages than English only a mark ends it."""
_QUARTER_FOLLOWS = "in|im|during|since|throughout|seit|sinds|в"
"""Words after which a quarter needs no year; a trimester is also of a pregnancy."""
_NOT_TIMES = r"(?!\s+(?-i:times)\b)"
"""After "fall 2025", that is a number."""
_NOT_OF = r"(?!\s+(?:of|des|del|dell\w*|di|do|van)\b)"
"""The last week of something is not the last one; other such words are also articles."""
_OF_YEAR_ABOUT_TODAY = r"(?=\s+(?:of\s+)?(?:the|this|last)\s+year\b)"
_NOT_CLAUSE = r"(?!\s+(?:is|was|will|would|has|does|can)\b)"
"""After "since Monday", that is no reason."""
_NOT_GENITIVE = r"(?!['’]s\b)"  # noqa: RUF001


class DateForms(NamedTuple):
    """The forms of one language, and what their words stand for."""

    dates: tuple[re.Pattern[str], ...]
    dates_in_words: tuple[re.Pattern[str], ...]
    """Those of them that may match a text without digits."""
    months: Mapping[str, int]
    """The number of a month by its names."""
    parts: re.Pattern[str]
    """The part of a month, before its name: `early`, `middle` or `late`."""
    between: re.Pattern[str]
    """Before the first date of a period."""
    between_dates: re.Pattern[str]
    between_days: re.Pattern[str]
    first_day: re.Pattern[str]
    """The first day of a period, before the date that ends it."""
    last_day: re.Pattern[str] | None
    """The last day of a period, after the date that begins it."""
    week_of: re.Pattern[str]
    since: re.Pattern[str]
    relation: re.Pattern[str]
    relatives: tuple[re.Pattern[str], ...]
    weekdays: tuple[re.Pattern[str], ...]
    """Days that are named by weekday, where nothing else tells the time."""
    days_if_past: tuple[re.Pattern[str], ...]
    """Days that count only where the question asks for what was."""
    not_last: re.Pattern[str]
    numbers: Mapping[str, int]
    some: Mapping[str, int]
    ordinals: Mapping[str, int]
    units: Mapping[str, int]
    """The hours of a unit by its names."""
    seasons: Mapping[str, int]
    """The first month of a season by its names."""
    last_units: Mapping[str, str]
    this_units: Mapping[str, str]
    weekday_numbers: Mapping[str, int]


def fold(form: str) -> str:
    """A form as a key: any letter that matches another one without regard to case is the same, as
    is any white space."""
    form = form.casefold().replace("i\u0307", "i").replace("\u0131", "i").replace("\u2019", "'")
    return " ".join(form.split())


def number_items(items: str) -> dict[str, int]:
    """The place of each item, from 0, by each of its forms."""
    return {
        fold(form.replace("_", " ")): place
        for place, item in enumerate(items.split())
        for form in item.split("|")
    }


def _name_units(items: str) -> dict[str, str]:
    names = "week", "month", "year", "quarter"
    return {form: names[place] for form, place in number_items(items).items()}


def _any_of(items: str) -> str:
    """A form for any of the items; the longest that fits."""
    forms = sorted({*re.split(r"[\s|]+", items)} - {"", "-"}, key=len, reverse=True)
    return "|".join(re.escape(form).replace("_", r"\s+").replace("'", "['’]") for form in forms)  # noqa: RUF001


def _before_word(items: str) -> str:
    """Any of the items, and the space after it; after an apostrophe there need be none."""
    elisions = " ".join(item for item in items.split() if item.endswith("'"))
    full = " ".join(item for item in items.split() if not item.endswith("'"))
    return (
        "(?:" + (rf"(?:{_any_of(elisions)})\s*|" if elisions else "") + rf"(?:{_any_of(full)})\s+)"
    )


def _join(*items: str) -> str:
    return " ".join(items)


@cache
def get_date_forms(language: str) -> DateForms:
    """The forms of a language that DATE_WORDS has, made when it is first asked in."""
    words = DATE_WORDS[language]
    months = number_items(words.months) | number_items(words.short_months)
    article = f"(?:{_before_word(words.articles)})?" if words.articles else ""
    ordinal = f"(?:{words.ordinal_form})?" if words.ordinal_form else ""
    to = _before_word(words.to)
    any_to = _before_word(_join(words.to, words.and_))
    between = _before_word(words.between)
    units = number_items(words.units)
    dates, in_words = _list_date_forms(words, language)
    return DateForms(
        dates=_compile(*dates),
        dates_in_words=_compile(*in_words),
        months={name: place + 1 for name, place in months.items()},
        parts=_compile_one(_make_part_form(words)),
        between=_compile_one(rf"\b{between}{article}$"),
        between_dates=_compile_one(rf"\s*(?:,?\s*{any_to}{article}|[-–—]\s*)"),  # noqa: RUF001
        between_days=_compile_one(rf"\s*(?:{to}{article}|[-–—]\s*)"),  # noqa: RUF001
        first_day=_compile_one(
            rf"\b{between}{article}(?P<from_day>\d{{1,2}}){ordinal}\s+{any_to}{article}$"
            rf"|(?<![\w.:-])(?P<day>\d{{1,2}}){ordinal}(?:\s*{_DASH}\s*|\s+{to}{article})$"
        ),
        last_day=_compile_one(
            rf"\s*(?:{_DASH}|\b(?:{_any_of(words.to)})\b)\s*{article}(?P<day>\d{{1,2}}){ordinal}"
            r"\b(?![.:]?\d)"
        )
        if words.month_first
        else None,
        week_of=_compile_one(
            rf"\b(?:{_any_of(words.last_units.split()[0])})\s+"
            rf"{_before_word(_join(words.of, words.between))}{article}$"
        ),
        since=_compile_one(rf"\b{_before_word(words.since)}{article}$"),
        relation=_compile_one(_make_relation_form(words, article)),
        relatives=_compile(*_list_relative_forms(words)),
        weekdays=_compile(*_list_last_weekday_forms(words)),
        days_if_past=_compile(*_list_forms_if_past(words)),
        not_last=_compile_one(words.not_last_form),
        numbers={name: place + 1 for name, place in number_items(words.numbers).items()},
        some={name: 2 * place + 2 for name, place in number_items(words.some).items()},
        ordinals={name: place + 1 for name, place in number_items(words.ordinals).items()},
        units={name: _UNIT_HOURS[place] for name, place in units.items()},
        seasons={name: 3 * place + 3 for name, place in number_items(words.seasons).items()},
        last_units=_name_units(words.last_units),
        this_units=_name_units(words.this_units),
        weekday_numbers=number_items(words.weekdays) | number_items(words.short_weekdays),
    )


def _compile_one(form: str) -> re.Pattern[str]:
    return re.compile(form, re.IGNORECASE)


def _compile(*forms: str) -> tuple[re.Pattern[str], ...]:
    return tuple(map(_compile_one, forms))


def _list_date_forms(words: DateWords, language: str) -> tuple[list[str], list[str]]:
    """The forms of dates, months and years, and those of them that need no digit. "May" and "march"
    are also words, "April" a name. On their own, they are read as months only after certain
    words."""
    month = _any_of(words.months)
    name = rf"(?P<name>(?:{month})\b|(?:{_any_of(words.short_months)})\b\.?)"
    short = _any_of(words.lone_short_months) or "(?!)"
    lone_month = f"{month}|(?-i:{short})"
    lone_name = rf"(?P<name>{lone_month})\b{_NOT_GENITIVE}"
    ordinal = f"(?P<ordinal>{words.ordinal_form})?"
    day = rf"(?P<day>\d{{1,2}}){ordinal}"
    of = rf"(?P<of>{_before_word(words.of)})?" if words.of else ""
    of_year = f"(?:{_before_word(words.of_year)})?" if words.of_year else ""
    year = rf"(?:,?\s+{of_year}{_YEAR})?(?!\w)"
    any_to = _any_of(_join(words.to, words.and_))
    next_month = rf"{READ}\s*(?:,|-|/|{any_to}|{_OR})\s*{lone_name}"
    gap = r"\s*" if words.ordinal_form == r"\." else r"\s+"
    forms = [_ISO_DATE] if language == "en" else [_ISO_DATE, _NUMERIC_DATE]
    if language == "de":
        forms.append(_GERMAN_DATE)
    quarter_and_year, first_quarter, lone_quarter = _make_quarter_forms(words, language)
    forms += [
        quarter_and_year,
        rf"\b{_YEAR}[\s-]?(?P<quarter>Q[1-4])\b",
        rf"\b{day}{gap}{of}{name}{year}",
    ]
    if words.month_first:
        forms.append(rf"\b{name}\s+{day}\b{year}")
    forms.append(rf"\b{name},?\s+{of_year}{_YEAR}\b")
    year_noun = rf"(?=\s+(?:{_any_of(words.year_noun)})\b)" if words.year_noun else ""
    year_form = rf"\b(?:{_any_of(words.year_follows)})\s+{_YEAR}\b{year_noun}"
    in_words = [first_quarter, lone_quarter]
    if last_words := _join(words.last, words.near).strip():
        in_words.append(rf"\b(?:{_any_of(last_words)})\s+{lone_name}")
    if words.last_after:
        in_words.append(rf"\b(?P<name>{month})\s+(?:{_any_of(words.last_after)})\b")
    in_words += [
        rf"\b(?:{_any_of(words.month_follows)})[\s-]+{lone_name}",
        rf"\b(?:{_any_of(words.between)})\s+(?P<name>{lone_month})\s+(?:{any_to})\s+"
        rf"(?=(?:{lone_month})\b|{READ})",
        next_month,
        next_month,
    ]
    return [*forms, *in_words, year_form], in_words


def _make_quarter_forms(words: DateWords, language: str) -> tuple[str, str, str]:
    """The form of a quarter or season with its year, of one that begins a period whose end has the
    year, and of a quarter without: in English, in words it is also of a game."""
    noun = _any_of(words.last_units.split()[-1])
    ordinal = rf"{_any_of(words.ordinals)}|[1-4](?:{words.ordinal_form or '[ºª]'})"
    code, quarter = "[QT]" if noun == "trimestre" else "Q", rf"(?:{ordinal})\s+(?:{noun})"
    season = _any_of(" ".join(words.seasons.split()[:3]))
    any_quarter = rf"(?:(?P<quarter>{code}[1-4]|{quarter})|(?P<season>{season}))"
    article = f"(?:{_before_word(words.articles)})?" if words.articles else ""
    any_to = _before_word(_join(words.to, words.and_))
    of = _before_word("of of_the de del van do")
    of_year = _OF_YEAR_ABOUT_TODAY if language == "en" else ""
    return (
        rf"\b{any_quarter}[\s,/-]+(?:{of})?{_YEAR}\b{_NOT_TIMES}",
        rf"\b{_before_word(words.between)}{article}{any_quarter}\s+{any_to}{article}(?={READ})",
        rf"\b(?:{_QUARTER_FOLLOWS})\s+(?:the\s+)?"
        rf"(?P<quarter>{code}[1-4](?![\w-]){_NOT_OF}|{quarter}{of_year})(?![\w-])",
    )


def _make_part_form(words: DateWords) -> str:
    parts = {"early": words.early, "middle": words.middle, "late": words.late}
    alternatives = "|".join(f"(?P<{part}>{_any_of(items)})" for part, items in parts.items())
    return rf"\b(?:{alternatives})[\s-]+$"


def _make_count_and_unit(words: DateWords) -> tuple[str, str]:
    numbers = _any_of(_join(words.numbers, words.some))
    count = rf"(?<!\d[.,])(?<!\bhalf\s)(?P<count>\d{{1,3}}|{numbers})"
    return count, f"(?P<unit>{_any_of(words.units)}){_NOT_AND_A_HALF}"


def _make_relation_form(words: DateWords, article: str) -> str:
    count, unit = _make_count_and_unit(words)
    count = rf"(?:{count}\s+" + (f"|{_before_word(words.articles)})" if words.articles else ")")
    relations = f"(?P<before>{_before_word(words.before)})|(?P<after>{_before_word(words.after)})"
    return rf"(?:\b{count}{unit}\s+)?\b(?:{relations}){article}$"


def _list_relative_forms(words: DateWords) -> list[str]:
    count, unit = _make_count_and_unit(words)
    days = "|".join(
        f"(?P<days_{number}>{_any_of(item)})" for number, item in enumerate(words.days.split())
    )
    last_unit = f"(?P<period>{_any_of(_join(words.last_units, words.seasons))})"
    weekday = f"(?P<weekday>{_any_of(words.weekdays)})"
    forms = [rf"\b(?:{days})\b"]
    for form in words.ago_forms:
        form = form.replace(" ", r"\s+").replace("COUNT", count)
        forms.append(rf"\b{form.replace('UNIT', rf'(?:{unit}|{weekday}(?:s|en|e)?)')}\b")
    form = words.past_form.replace(" ", r"\s+").replace("COUNT", count)
    forms.append(rf"\b{form.replace('UNIT', unit)}\b{_NOT_OF}(?P<past>)")
    if words.before_last_form:
        form = words.before_last_form.replace(" ", r"\s+").replace("END", _PHRASE_END)
        one = rf"(?:{last_unit}|{weekday}|(?P<weekend>{_any_of(words.weekend)}))"
        forms.append(rf"\b{form.replace('UNIT', one)}\b(?P<again>)")
    if words.last:
        forms.append(rf"\b(?:{_any_of(words.last)})\s+{last_unit}\b{_NOT_OF}")
    if words.last_after:
        forms.append(rf"\b{last_unit}\s+(?:{_any_of(words.last_after)})\b")
    return forms


def _make_weekday_form(words: DateWords) -> str:
    return rf"(?P<weekday>{_any_of(words.weekdays)})(?:{words.weekday_end_form})?"


def _list_last_weekday_forms(words: DateWords) -> list[str]:
    short = _make_short_weekday_form(words)
    weekday = rf"(?:(?P<weekday>{_any_of(words.weekdays)}|{short})(?:{words.weekday_end_form})?"
    day = rf"{weekday}|(?P<weekend>{_any_of(words.weekend)}))"
    forms: list[str] = []
    if words.last:
        forms.append(rf"\b(?:{_any_of(words.last)})\s+{day}\b")
    if words.last_after:
        forms.append(rf"\b{day}\s+(?:{_any_of(words.last_after)})\b")
    if since := _any_of(words.since_day or words.since):
        article = f"(?:{_before_word(words.articles)})?" if words.articles else ""
        no_end = rf"(?!\s+(?:{_any_of(words.to)})\b)"
        day = rf"{weekday}\b|{_make_day_number_form(words)})"
        forms.append(rf"\b(?P<since>{since})\s+{article}{day}{no_end}{_NOT_CLAUSE}")
    if words.last_night:
        forms.append(rf"\b(?P<days_1>{_any_of(words.last_night)})\b")
    return forms


def _make_short_weekday_form(words: DateWords) -> str:
    return rf"(?-i:{_any_of(words.short_weekdays) or '(?!)'})\b"


def _make_day_number_form(words: DateWords) -> str:
    form = words.day_number_form.replace("END", _PHRASE_END)
    form = form.replace("SHORT", f"(?P<other>{_make_short_weekday_form(words)})")
    return form.replace("DAY", rf"(?P<day>{_DAY_NUMBER})")


def _list_forms_if_past(words: DateWords) -> list[str]:
    other = f"(?P<other>{_any_of(words.weekdays)})(?:{words.weekday_end_form})?"
    link = rf"\s+(?:{_any_of(words.and_)}|{_OR})\s+(?:{words.on_weekday_form})?"
    return [
        rf"\b{words.on_weekday_form}{_make_weekday_form(words)}\b(?:{link}{other}\b)?",
        rf"\b(?:(?P<weekend>{_any_of(words.at_weekend)})|(?P<this>{_any_of(words.this_units)})"
        rf"|(?P<days_0>{_any_of(words.today_if_past)}))\b",
        rf"\b(?:{_any_of(words.on_day)})\s*(?:{_make_day_number_form(words)})",
    ]
