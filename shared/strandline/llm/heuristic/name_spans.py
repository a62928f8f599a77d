"""Finds runs of words with capitals in a sentence, with the neighbours that belong to them and
those that show that they are names."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from strandline.llm.heuristic.codes import VERSION, is_acronym
from strandline.llm.heuristic.unlisted_words import is_derived_from_listed_word
from strandline.llm.heuristic.words import (
    GENITIVE,
    is_ordinary,
    lowercase_without_genitive,
    lowercase_word,
    word_list,
)
from strandline.llm.types import EntityKind

_SAINTS = frozenset({"st", "saint"})
"""After these words a name continues after its genitive: St Olaf's Church."""
_MODEL = re.compile(r"[A-Z]{1,3}\d{1,4}|\d[xX]\d")
"""A model after a make: Velmo R5, Halden TX300, Velmo 4x4."""
_NUMBER_WITH_LETTER = re.compile(r"[1-9]\d{0,3}[a-eA-Z]")
"""A model number with a letter that is no unit: Petrel 7a, Halden 30S."""
_DECIMAL_NUMBER = re.compile(r"\d+\.\d+")
_HOUSE_NUMBER = re.compile(r"[1-9]\d{0,2}[a-eA-E]?")
_AFTER_NAME_NUMBER = frozenset({"a", "an", "and", "this", "these", "to"})
"""After a number, these words show that it counts nothing."""
_SCREEN_VERBS = frozenset({"click", "clicked", "hit", "press", "select", "tap", "under"})
"""These words precede a label on a screen: under Settings."""
_NO_NAME_LISTS = ("stop", "openers", "calendar", "units")


class CapitalizedRun(NamedTuple):
    """A run of words with capitals."""

    words: tuple[str, ...]
    opens_sentence: bool
    """It opens a sentence, a quotation or the text after a colon, so any word has a capital."""
    is_marked: bool
    """The words after it show that it is a name."""
    kind: EntityKind


def find_capitalized_runs(words: Sequence[str]) -> Iterator[CapitalizedRun]:
    """The spans of a sentence."""
    start = 0
    while start < len(words):
        if words[start][0].islower():
            start += 1
            continue
        end = start + _is_house_number(words, start) + _opens_work_title(words, start)
        end = max(end + _belongs_to_next_name(words, end), _find_end_of_work_title(words, start))
        while end < len(words) and (
            is_name_like(words[end]) or _ends_name_as_common_noun(words, start, end)
        ):
            end += 1
            if GENITIVE.search(words[end - 1]) and not _continues_after_genitive(words, start, end):
                break
            end += _joins_name_parts(words, end)
        if end > start and is_number_of_name(words, start, end):
            end += 1
        if end > start and not _is_generic_term(words, start, end):
            yield _make_capitalized_run(words, start, end)
        start = max(end, start + 1)


def _is_generic_term(words: Sequence[str], start: int, end: int) -> bool:
    """Whether it is an ordinary word on a screen, or an institution without its name: the Trust."""
    if end - start > 1 or not start or not is_ordinary(words[start]):
        return False
    previous, word = words[start - 1].lower(), words[start].lower()
    return previous in _SCREEN_VERBS or (previous == "the" and word in word_list("companies"))


def _is_house_number(words: Sequence[str], index: int) -> bool:
    """Whether it is a house number before a street: 4 Cooper Cottages. A number right after a name
    belongs to that name."""
    if not _HOUSE_NUMBER.fullmatch(words[index]) or (index and words[index - 1][0].isupper()):
        return False
    end = index + 1
    while end < len(words) and (is_name_like(words[end]) or words[end].istitle()):
        end += 1
    return end > index + 2 and words[end - 1].lower() in word_list("streets")


def _opens_work_title(words: Sequence[str], index: int) -> bool:
    """Whether it is the first word of a title whose next word would otherwise have no capital:
    While They Sleep."""
    if index + 2 >= len(words) or not words[index].istitle():
        return False
    first, second, third = words[index : index + 3]
    is_inner_word = second.istitle() and lowercase_without_genitive(second) in word_list(
        "stop"
    ) - word_list("articles")
    has_date = {lowercase_without_genitive(first), lowercase_without_genitive(second)} & word_list(
        "calendar"
    )
    return (
        is_inner_word
        and len(second) > 1
        and not has_date
        and third[0].isupper()
        and first.isalpha()
    )


def _find_end_of_work_title(words: Sequence[str], start: int) -> int:
    """The end of a title inside a sentence that begins with words which are no names by themselves:
    Up With The Larks, the What's On; `start` if there is none."""
    if start == 0 or not words[start - 1].islower():
        return start
    end = start
    while end < len(words) and _may_be_work_title_word(words[end]):
        end += 1
    small_words = [word for word in words[start:end] if not is_name_like(word)]
    return end if end - start > 1 and small_words and not is_name_like(words[start]) else start


def _may_be_work_title_word(word: str) -> bool:
    """Whether a word can be part of a title. Words of dates and feasts cannot: the New Year."""
    return (
        word[0].isupper()
        and word[1:].islower()
        and lowercase_without_genitive(word) not in word_list("calendar") | {"year"}
    )


def _continues_after_genitive(words: Sequence[str], start: int, index: int) -> bool:
    """Whether a name continues after a genitive: St Olaf's Church, Fenna's Bakery. A capital on a
    word that is not ordinary is another name: Fenna's Calorix."""
    if lowercase_word(words[start]).rstrip(".") in _SAINTS:
        return True
    return index < len(words) and words[index].istitle() and is_ordinary(words[index])


def _ends_name_as_common_noun(words: Sequence[str], start: int, index: int) -> bool:
    """Whether a noun that is no name by itself ends one, with a capital: Perigee Night."""
    last = words[index]
    if index > start and last in word_list("forms"):
        return not words[index - 1].isupper()  # Velmo AS; not VELMO AS EVER
    if index == start or not last.istitle() or len(last) == 1:
        return False
    return lowercase_word(last) in word_list("lasts") | word_list("units")


def _joins_name_parts(words: Sequence[str], index: int) -> bool:
    """Whether the word joins two parts of a name: & and von; "of" after an ordinary word, as in
    Isle of Torrin; a plural genitive's apostrophe, as in Drivers' Union; a day, as in Hollis
    Wednesday Choir."""
    if index + 1 >= len(words) or not is_name_like(words[index + 1]):
        return False
    link, before, after = words[index], words[index - 1], words[index + 1]
    if link == "of":
        return is_ordinary(before) and not _begins_multiword_name(words, index + 1)
    if (
        link == "and"
    ):  # people's names are not ordinary words; with two words on each side there are two names
        are_both_ordinary = index > 1 and is_ordinary(before) and is_ordinary(after)
        return are_both_ordinary and not (
            is_name_like(words[index - 2]) and _begins_multiword_name(words, index + 1, ())
        )
    if link.istitle() and link.lower() in word_list("calendar"):
        return is_ordinary(after)
    is_plural_owner = link in {"'", "’"} and before.endswith("s")  # noqa: RUF001
    return link == "&" or link in word_list("links") or is_plural_owner


def _begins_multiword_name(
    words: Sequence[str], start: int, lists: Sequence[str] = ("companies",)
) -> bool:
    """Whether a name of several words begins here. With `lists`, its last word must be in one."""
    end = start
    while end < len(words) and is_name_like(words[end]):
        end += 1
    last = words[end - 1].lower()
    return end - start > 1 and (
        not lists or any(last in word_list(list_name) for list_name in lists)
    )


def is_number_of_name(words: Sequence[str], start: int, index: int) -> bool:
    """Whether the number of a model, version or house follows a name, as in Orion R5, Lantern
    4.1.2, the Orion 60, DIN 5008 or Mill Lane 9."""
    if index == len(words):
        return False
    word, before = words[index], words[index - 1]
    if _MODEL.fullmatch(word) or _is_gate_or_block_letter(words, start, index):
        return True
    if VERSION.fullmatch(word) or _NUMBER_WITH_LETTER.fullmatch(word):
        is_own_number = not is_ordinary(before) or _is_inside_sentence(words, start, ",;&")
        return is_own_number and before.lower() not in word_list("numbered")
    after = lowercase_word(words[index + 1]) if index + 1 < len(words) else "."
    counts_something = after[0].isalnum() and after not in word_list("behind")
    if _DECIMAL_NUMBER.fullmatch(word):  # the number of a standard
        return is_acronym(before) and (not counts_something or after in word_list("does"))
    if not re.fullmatch(r"[1-9]\d{0,4}", word) or _number_continues(words, index):
        return False
    if is_acronym(before):
        return not counts_something or len(word) > 2
    return _is_plain_number_of_name(words, start, index, after if counts_something else "")


def _is_gate_or_block_letter(words: Sequence[str], start: int, index: int) -> bool:
    """Whether a letter names a gate or a block: Gate F. Before a dot the letter is an initial."""
    after = words[index + 1] if index + 1 < len(words) else ""
    is_kind = index == start + 1 and is_ordinary(words[start])
    stands_alone = not after or after[0].islower() or after in ",;:!?)"
    return is_kind and stands_alone and bool(re.fullmatch(r"[B-HJ-Z]", words[index]))


def _is_plain_number_of_name(
    words: Sequence[str], start: int, index: int, counted_word: str
) -> bool:
    """Whether a plain number belongs to the name. Other numbers count something, are part of an
    amount, or are successive readings. After an article it names one thing: the Orion 60
    manual."""
    has_article = start > 0 and lowercase_word(words[start - 1]) in word_list("articles")
    before = words[index - 1]
    is_street = before.lower() in word_list("places") and index - start > 1
    if counted_word:
        is_clear = counted_word in _AFTER_NAME_NUMBER
        is_one_thing = is_ordinary(counted_word) and not _is_plural(counted_word)
        is_one_thing = is_one_thing and not (
            index - start > 1 and is_ordinary(before) and counted_word in word_list("stop")
        )
        return (has_article and is_one_thing) or (is_street and is_clear)
    if is_ordinary(before):
        return is_street or _is_inside_sentence(words, start)
    return has_article or _count_numbered_names(tuple(words)) <= 1


@lru_cache(maxsize=8)
def _count_numbered_names(words: tuple[str, ...]) -> int:
    """How many names of a sentence have figures behind them; asked at each of them."""
    return len({a for a, b in pairwise(words) if b.isdecimal() and is_name_like(a)})


def _is_plural(word: str) -> bool:
    return word.endswith("s") and word not in word_list("stop")


def _is_inside_sentence(words: Sequence[str], start: int, punctuation: str = "") -> bool:
    """Within a sentence, so that the capital is the word's own."""
    return start > 0 and (words[start - 1][0].isalnum() or words[start - 1] in punctuation)


def _number_continues(words: Sequence[str], index: int) -> bool:
    """Whether the number continues, as in 2,000, 11:30 and 3-4."""
    return index + 2 < len(words) and words[index + 2][0].isdigit() and words[index + 1] in ",.:-–"  # noqa: RUF001


def _belongs_to_next_name(words: Sequence[str], index: int) -> bool:
    """Whether a word that is no name by itself is part of the name after it: a title, or any word
    with a capital inside a sentence, as in The Silver Ebb and Two Herons."""
    if index == len(words) - 1 or not is_name_like(words[index + 1]):
        return False
    word = words[index]
    if re.fullmatch(r"[A-Z]\.", word):
        return not is_ordinary(words[index + 1])  # an initial
    if (
        not word[0].isupper()
        or word.isupper()
        or lowercase_without_genitive(word) in word_list("calendar")
    ):
        return False
    if GENITIVE.search(word):
        return False
    return lowercase_word(word) in word_list("titles") or (
        index > 0 and (words[index - 1][0].isalnum() or words[index - 1] == ",")
    )


def _make_capitalized_run(words: Sequence[str], start: int, end: int) -> CapitalizedRun:
    before = words[start - 1] if start else ""
    after = [word.lower() for word in words[end : end + 2]]
    last = words[end - 1]
    is_saint = end - start > 1 and lowercase_word(words[start]).rstrip(".") in _SAINTS
    is_shop = bool(after) and GENITIVE.search(last) and after[0] in word_list("auxiliaries")
    name = (*words[start : end - 1], last if is_saint or is_shop else GENITIVE.sub("", last))
    is_in_list = (
        len(after) > 1 and after[0] in {",", "and", "or", "&"} and is_name_like(words[end + 1])
    )
    is_addressed = len(after) > 1 and after[0] == "," and after[1] in word_list("addressed")
    verb = after[-1] if after and after[0].endswith("ly") else "".join(after[:1])
    is_actor = verb in word_list("does") and not is_derived_from_listed_word(name[-1])
    kind = _classify_entity_kind(name, before.lower())
    opens = _opens_sentence(words, start, end)
    return CapitalizedRun(
        name, opens, is_in_list or is_addressed or is_actor or name[-1] != last, kind
    )


def _opens_sentence(words: Sequence[str], start: int, end: int) -> bool:
    """Whether a sentence or quotation begins here. After a colon one may, but several capitals are
    a name; a word alone between brackets is a name: one cat (Velmo)."""
    if not start:
        return True
    before = words[start - 1]
    if before == "(" and start > 1 and "".join(words[end : end + 1]) == ")":
        return False
    is_phrase_after_colon = before == ":" and end - start > 1
    return not (is_phrase_after_colon or before[0].isalnum() or before in ",;&/-'’")  # noqa: RUF001


def _classify_entity_kind(name: Sequence[str], before: str) -> EntityKind:
    """The kind that a title before the name or its last word shows; `other` without one."""
    if before in word_list("titles") or name[0].lower().rstrip(".") in word_list("titles"):
        return "person"
    if len(name) > 1 and name[-1].lower() in word_list("companies"):
        return "company"
    return "place" if len(name) > 1 and name[-1].lower() in word_list("streets") else "other"


def is_name_like(word: str) -> bool:
    """Whether a word has a capital and is no ordinary word, date or code."""
    if not word[:1].isupper():
        return False
    name, plain_word, bare_word = (
        GENITIVE.sub("", word),
        lowercase_word(word),
        lowercase_without_genitive(word),
    )
    if any(
        plain_word in word_list(words) or bare_word in word_list(words) for words in _NO_NAME_LISTS
    ):
        return False
    if name.isupper() and len(name) > 1:
        return is_acronym(name)
    return len(name) > 1 and not re.search(r"\d|^\w-[a-z]", name)
