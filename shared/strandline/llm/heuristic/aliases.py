"""Finds names of a run that are short forms of others, such as Wenzel of Heinrich Wenzel."""

import unicodedata
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence

from strandline.llm.heuristic.words import word_list

_NICKNAME_LENGTHS = range(3, 5)
"""Letters of a short form of a first name, such as Raf and Kath."""
_MIN_LETTERS_CUT = 2
"""Fewest letters that a short form omits: Jan is not short for Jana."""


def find_aliases(names: Collection[str]) -> dict[str, str | None]:
    """Names that are parts or other spellings of longer names, each with the name that it stands
    for; None if it may stand for several."""
    name_index = _LongerNameIndex(names)
    full_names: dict[str, str | None] = {}
    for name in names:
        if find_longer_names := name_index.find_longer_names(name):
            full_names[name] = name_index.choose_full_name(find_longer_names)
    return full_names


class _LongerNameIndex:
    """An index of the names that contain others. A name is compared only with those that begin or
    end as it does, and names with the same normal form count once: comparing all with all would
    take minutes for a text with thousands of names."""

    def __init__(self, names: Collection[str]) -> None:
        self._normal_forms = {name: _remove_case_and_diacritics(name) for name in names}
        self._best_spelling = {
            self._normal_forms[name]: name for name in sorted(names, key=_make_spelling_sort_key)
        }
        """The best spelling of each normalized name."""
        self._sorted_names = sorted(self._best_spelling)
        self._sorted_reversed = sorted(name[::-1] for name in self._best_spelling)
        self._by_first_word = sorted((_first_word(name), name) for name in self._best_spelling)
        self._longer_cache: dict[tuple[str, bool], tuple[str, ...]] = {}
        self._single_cache: dict[tuple[str, ...], str | None] = {}

    def find_longer_names(self, name: str) -> tuple[str, ...]:
        """Normalized names that contain a name; also its own, if it has a better spelling."""
        key = part, is_lower_case = self._normal_forms[name], name.islower()
        if key not in self._longer_cache:
            candidates = sorted(self._list_candidate_full_names(part))
            self._longer_cache[key] = tuple(
                whole
                for whole in candidates
                if _is_short_form(part, whole, is_lower_case=is_lower_case)
            )
        return (
            self._longer_cache[key]
            if self._best_spelling[part] == name
            else (*self._longer_cache[key], part)
        )

    def choose_full_name(self, names: tuple[str, ...]) -> str | None:
        """The best spelling of the one name that contains all others, if there is one. Names that
        are part of a further name are ignored, unless all are."""
        if names not in self._single_cache:
            independent = [
                name for name in names if not self.find_longer_names(self._best_spelling[name])
            ] or names
            longest = max(independent, key=len)
            is_unambiguous = all(name in longest for name in independent)
            self._single_cache[names] = self._best_spelling[longest] if is_unambiguous else None
        return self._single_cache[names]

    def _list_candidate_full_names(self, part: str) -> set[str]:
        """All names that `_is_short_form` may accept, and a few more."""
        _, _, surname = part.partition(" ")
        exact_matches = part[:-1], part[:-1] + "'s", part + "'s"
        prefixes = (part + " ", part[:-1] + " ") if part.endswith("s") else (part + " ",)
        suffixes = (" " + part, "/" + part, *([" " + surname] if surname else ()))
        candidates = {whole for whole in exact_matches if whole in self._best_spelling}
        candidates |= {
            whole
            for prefix in prefixes
            for whole in _iterate_names_with_prefix(self._sorted_names, prefix)
        }
        candidates |= {
            whole[::-1]
            for suffix in suffixes
            for whole in _iterate_names_with_prefix(self._sorted_reversed, suffix[::-1])
        }
        if len(part) in _NICKNAME_LENGTHS:
            for index in range(
                bisect_left(self._by_first_word, (part, "")), len(self._by_first_word)
            ):
                first, whole = self._by_first_word[index]
                if not first.startswith(part):
                    break
                candidates.add(whole)
        return candidates - {part}


def _iterate_names_with_prefix(names: Sequence[str], prefix: str) -> Iterator[str]:
    """The names with this prefix, of a sorted sequence."""
    for index in range(bisect_left(names, prefix), len(names)):
        if not names[index].startswith(prefix):
            return
        yield names[index]


def _first_word(name: str) -> str:
    return next(iter(name.split()), "")


def _remove_case_and_diacritics(name: str) -> str:
    """The name as people write it in haste: in lower case, without diacritics."""
    letters = unicodedata.normalize("NFKD", name.lower())
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    title, dot, surname = plain.partition(". ")
    return f"{title} {surname}" if dot and title in word_list("titles") else plain


def _make_spelling_sort_key(name: str) -> tuple[bool, bool, str]:
    """Sort key: a spelling with capitals is better, unless it is all capitals."""
    return not name.islower(), not name.isupper(), name


def _is_short_form(part: str, whole: str, *, is_lower_case: bool) -> bool:
    """Whether a normalized name is a part of another. `is_lower_case`: as it was written."""
    if part.endswith("s") and whole in {part[:-1], part[:-1] + "'s"}:
        return True  # a genitive without apostrophe: nunos
    if whole == part + "'s":
        return True
    is_genitive = is_lower_case and part.endswith("s") and whole.startswith(part[:-1] + " ")
    return (
        is_genitive
        or _is_beginning_or_end_of_name(part, whole)
        or _is_first_name_prefix(part, whole)
    )


def _is_beginning_or_end_of_name(part: str, whole: str) -> bool:
    """Whether it is the beginning or the end of the other. Somebody with a title is not a firm."""
    title, _, surname = part.partition(" ")
    has_title = bool(surname) and title in word_list("titles")
    if has_title and "&" in whole:
        return False
    first = _first_word(whole)
    if whole.startswith(part + " ") or whole.endswith("/" + part):
        return True
    if has_title:
        has_other_title = first in word_list("titles") and first != title
        return whole.endswith(" " + surname) and not has_other_title
    if surname and len(title) == 2 and title[1] == ".":  # an initial
        return whole.endswith(" " + surname) and whole.startswith(title[0])
    return whole.endswith(" " + part)


def _is_first_name_prefix(part: str, whole: str) -> bool:
    first = _first_word(whole)
    is_longer = first.isalpha() and len(first) >= len(part) + _MIN_LETTERS_CUT
    return len(part) in _NICKNAME_LENGTHS and is_longer and first.startswith(part)
