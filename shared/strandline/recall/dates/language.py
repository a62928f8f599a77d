"""The language in which a question names its times."""

import re
from collections.abc import Mapping
from functools import cache

from strandline.languages import STOP_WORDS, UNKNOWN, detect_language, split_into_lowercase_words
from strandline.recall.dates.forms import fold, number_items
from strandline.recall.dates.words import DATE_WORDS

_MAX_WORDS = 8
"""A question of at most so many words may have too few frequent words to tell its language."""
_DAY_AND_MONTH = r"\b\d{1,2}(?P<ordinal>\.|er|º)?\s*(?:(?:de|do|di|del)\s+)?(?P<name>[^\W\d_]{3,})"
_ORDINALS = {".": "de", "er": "fr"}
"""Marks of a day's number of which one language alone has it."""
_MIN_WORD_CHARS = 4
_ENGLISH_WORDS = {"mars", "mayo"}
"""Months of another language that are words in English."""


def choose_date_language(text: str) -> str:
    """The language of the text as far as its times go: words for times that one language alone has
    tell it from those that resemble it. A short text that seems English is in another language if
    such a word stands beside a day's number, or with another sign of that language."""
    language = detect_language(text)
    if language in (UNKNOWN, "ru") or (language == "en" and len(text.split()) > _MAX_WORDS):
        return language
    languages_by_word = _list_languages_by_time_word()
    for match in re.finditer(_DAY_AND_MONTH, text):
        name = fold(match["name"])
        languages = languages_by_word.get(name, frozenset())
        if (ordinal := _ORDINALS.get(match["ordinal"])) in languages:
            return str(ordinal)
        is_word = language == "en" and name in _ENGLISH_WORDS
        if len(languages) == 1 and "en" not in languages and not is_word:
            return next(iter(languages))
    words = [*split_into_lowercase_words(text)]
    own = [one for word in words if len(one := languages_by_word.get(word, frozenset())) == 1]
    own = [languages for languages in own if "en" not in languages]
    other_languages = {next(iter(languages)) for languages in own}
    if len(other_languages) != 1 or language in other_languages:
        return language
    (other,) = other_languages
    foreign = STOP_WORDS.get(other, frozenset()) - STOP_WORDS["en"]
    is_other = language != "en" or len(own) + sum(word in foreign for word in words) > 1
    return other if is_other else language


@cache
def _list_languages_by_time_word() -> Mapping[str, frozenset[str]]:
    """By each word for a time, the languages that have it."""
    languages: dict[str, frozenset[str]] = {}
    for language, words in DATE_WORDS.items():
        ends = words.weekday_end_form.split("|") if words.weekday_end_form else []
        evenings = [day + end for day in re.split(r"[\s|]", words.weekdays) for end in ends]
        items = (
            *(words.months, words.weekdays, words.days, words.last, words.last_after),
            *(words.last_units, words.units, *evenings),
        )
        for name in number_items(" ".join(items)):
            if len(name) >= _MIN_WORD_CHARS or name in words.months:
                languages[name] = languages.get(name, frozenset()) | {language}
    return languages
