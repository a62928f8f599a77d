"""What is told of a language so that its dates and periods are read."""

from typing import NamedTuple


class DateWords(NamedTuple):
    """The words of one language. Fields named `…_form` are regular expressions."""

    months: str
    short_months: str
    """Abbreviations that are read beside a day or a year; `-` for a month without one."""
    weekdays: str
    seasons: str
    units: str
    """Day, week, month, year and hour."""
    last_units: str
    """Week, month, year and quarter, in the forms that one of them takes beside `last`."""
    this_units: str
    """The same with "this", in a question for what was."""
    numbers: str
    some: str
    """Vague numbers: about two, and about four."""
    ordinals: str
    """Of a quarter, from the first."""
    month_follows: str
    """Words after which a month's name alone is a month."""
    year_follows: str
    between: str
    to: str
    and_: str
    since: str
    before: str
    after: str
    early: str
    """Words directly before a month, as of `middle` and `late`."""
    middle: str
    late: str
    ago_forms: tuple[str, ...]
    """COUNT stands for a number and UNIT for a unit, or a weekday."""
    past_form: str
    """The days up to today, with COUNT and UNIT."""
    days: str
    """Today, yesterday and the day before."""
    today_if_past: str
    """Words for today, or a part of it, that also stand for what is to come, or for nowadays."""
    on_weekday_form: str
    """What precedes a weekday that is a day, and no habit."""
    weekend: str
    at_weekend: str
    """In a question for what was, at the latest one."""
    day_number_form: str
    """The DAY of a month that is not named, in a question for what was; END is that of a phrase."""
    ordinal_form: str = ""
    of: str = ""
    """Between a day and its month."""
    of_year: str = ""
    articles: str = ""
    """May stand before a day; after an apostrophe at its end, without a space."""
    since_day: str = ""
    """What of `since` before a weekday is no plan, where not all; `-` for none."""
    on_day: str = ""
    """What must precede a day's number or an abbreviated weekday."""
    short_weekdays: str = ""
    """Abbreviations, which are read with these letters in capitals only."""
    lone_short_months: str = ""
    """Abbreviations that stand for a month without a day, with a capital."""
    before_last_form: str = ""
    """The one before the last, with UNIT for a unit, weekday or weekend."""
    year_noun: str = ""
    """What must follow a year."""
    last: str = ""
    last_after: str = ""
    """The same, after its noun."""
    near: str = ""
    """Other words than `last` that choose a month by today."""
    last_night: str = ""
    weekday_end_form: str = ""
    """Parts of a day that are written as one word with it."""
    not_last_form: str = r"(?!)"
    """What precedes "last Friday" where that names no day."""
    month_first: bool = False
    """Whether a month may stand before its day."""
    words: frozenset[str] = frozenset()
    """Months that are common words in lower case."""
