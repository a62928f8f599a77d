"""Other spellings of a question's words that no visible event contains: typed without the marks on
letters, or with a slip.

Spellings at one edit are made here and looked up in the words index, so the cost does not grow with
the log. At two edits there are too many to make; instead the words that begin in the same way are
read.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.languages import STOP_WORDS, detect_language
from strandline.llm.heuristic.words import is_in_frequency_bands
from strandline.log.fulltext_words import list_unmarked_spellings
from strandline.recall import store_spellings
from strandline.recall.features import QuestionWord
from strandline.recall.store_spellings import VisibleSpelling

_MAX_RESPELLED_WORDS = 3
"""The longest of them: longer words are more surely slips."""
_MAX_ALTERNATIVES = 2
_MIN_LETTERS, _MAX_LETTERS = 4, 32
_MIN_LETTERS_FOR_TWO_EDITS = 8
_MIN_LETTERS_FOR_FIRST_EDIT = 6
"""In a shorter word the first letter is not taken for a slip: too many words differ in it alone."""
_BEGINNING = 4
"""Two edits are searched for behind the first four letters."""
_CERTAINTY_BY_EDITS = (0.9, 0.6, 0.4)
"""By number of edits; marks on letters count as none."""
_WORD = re.compile(r"[^\W\d_]+(?!['\u2019](?!s\b)[^\W\d_]|[^\W\d_])")
"""Not the beginning of a contraction, such as couldn't; a genitive is none."""
_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "αβγδεζηθικλμνξοπρστυφχψωςάέήίόύώ",
    "абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєґ",
    "".join(map(chr, range(0x5D0, 0x5EB))),
    "".join(map(chr, range(0x621, 0x64B))),
)
_TWO_LETTERS = {"ae": "ä", "oe": "ö", "ue": "ü", "aa": "å", "ss": "ß"}


class OtherSpelling(NamedTuple):
    """A word in view, in the index's form, that may be what a word of the question means."""

    word: str
    stands_for: str
    """The question's word, in the index's form."""
    certainty: float


def find_other_spellings(
    access: TenantDb,
    question: str,
    words: Sequence[QuestionWord],
    scopes: Sequence[UUID] | None,
) -> list[OtherSpelling]:
    """The nearest spellings in view for the question's words that no visible event contains.
    `words` are all words of the question; empty if nothing in view was found for it. `scopes`
    limits the view. It costs a statement only if such a word may be misspelt, and one more if it
    is long and has no spelling at one edit."""
    absent = [word.text for word in words if not word.events]
    typed_words = list_respellable_words(question, absent if words else None)
    if not typed_words:
        return []
    edits_by_typed = {word: make_spellings(word) for word in typed_words}
    names = _list_capitalized_words(question)
    visible = _leave_out_everyday_words(
        store_spellings.find_visible_spellings(
            access, edits_by_typed, absent if words else None, scopes
        ),
        names,
    )
    spellings = choose_nearest_spellings(visible, edits_by_typed)
    respelled = {one.typed for one in visible if one.word in {chosen.word for chosen in spellings}}
    long_words = {
        word: word[:_BEGINNING]
        for word in typed_words
        if len(word) >= _MIN_LETTERS_FOR_TWO_EDITS and word not in respelled
    }
    if long_words:
        similar = _leave_out_everyday_words(
            store_spellings.find_visible_words_with_beginning(
                access, long_words, absent if words else None, scopes
            ),
            names,
        )
        spellings += choose_nearest_spellings(similar, _count_edits_of_visible_words(similar))
    own_words = {word.text for word in words}
    return [spelling for spelling in spellings if spelling.word not in own_words]


def _list_capitalized_words(question: str) -> frozenset[str]:
    """The words of a question, in lower case, that have a capital and do not begin it."""
    text = unicodedata.normalize("NFC", question)
    words = [match[0] for chunk in text.split()[1:] for match in _WORD.finditer(chunk)]
    return frozenset(word.lower() for word in words if word[0].isupper())


def _leave_out_everyday_words(
    visible: Sequence[VisibleSpelling], names: Collection[str]
) -> list[VisibleSpelling]:
    """Leave out everyday words of English, in any form, for names: Mara is no slip of "mark"."""
    everyday_words = {one.word for one in visible if is_in_frequency_bands(one.spelling)}
    return [one for one in visible if one.typed not in names or one.word not in everyday_words]


def list_respellable_words(question: str, absent: Sequence[str] | None) -> list[str]:
    """The words of a question, in lower case, that may be misspelt: no everyday words, and none
    next to digits, as an identifier with other digits is another one. `absent` are those that no
    visible event contains, in the index's form; None: all of them."""
    text = unicodedata.normalize("NFC", question)
    stop_words = STOP_WORDS.get(detect_language(text), frozenset[str]())
    beginnings = None if absent is None else {word[: _MIN_LETTERS - 1] for word in absent}
    words = dict.fromkeys(
        word
        for chunk in text.split()
        if not any(map(str.isdigit, chunk))
        for word in _WORD.findall(chunk.lower())
        if _MIN_LETTERS <= len(word) <= _MAX_LETTERS
        and (beginnings is None or word[: _MIN_LETTERS - 1] in beginnings)
        and word not in stop_words
        and _find_alphabet(word)
        and not is_in_frequency_bands(word)
    )
    return sorted(words, key=lambda word: (-len(word), word))[:_MAX_RESPELLED_WORDS]


def make_spellings(word: str) -> Mapping[str, int]:
    """The spellings of a lower-case word with other marks on its letters, which is no edit, and
    those at one edit, each with its number of edits: a letter more, less or exchanged, or two
    neighbours swapped."""
    unmarked_spellings = list_unmarked_spellings(word)
    edits = dict.fromkeys([*unmarked_spellings, *_list_marked_spellings(word)], 0)
    for base in (word, *unmarked_spellings[:1]):
        for spelling in _list_one_edit_spellings(base):
            edits.setdefault(spelling, 1)
    edits.pop(word, None)
    return edits


def _list_one_edit_spellings(word: str) -> Iterator[str]:
    alphabet = _find_alphabet(word)
    for n in range(len(word) + 1):
        before, rest = word[:n], word[n:]
        yield from (before + letter + rest for letter in alphabet)
        if rest:
            yield before + rest[1:]
            yield from (before + letter + rest[1:] for letter in alphabet)
        if len(rest) > 1:
            yield before + rest[1] + rest[0] + rest[2:]


def _list_marked_spellings(word: str) -> Iterator[str]:
    """Spellings with a mark on one letter more. Events of an earlier release are not indexed
    without marks."""
    for n, letter in enumerate(word):
        yield from (word[:n] + other + word[n + 1 :] for other in _MARKED.get(letter, ()))
        if two := _TWO_LETTERS.get(word[n : n + 2]):
            yield word[:n] + two + word[n + 2 :]


def _list_marked_letters() -> Mapping[str, Sequence[str]]:
    marked_letters = defaultdict[str, list[str]](list)
    for letter in map(chr, range(0xDF, 0x180)):
        if letter.islower():
            for base in list_unmarked_spellings(letter)[:1]:
                marked_letters[base].append(letter)
    return marked_letters


_MARKED = _list_marked_letters()
"""By letter, it with each mark that Western and Central European languages put on it."""


def _find_alphabet(word: str) -> str:
    """The letters of a word's script; empty for a script that is not respelled."""
    first = (list_unmarked_spellings(word[:1]) or [word])[0][:1]
    return next((letters for letters in _ALPHABETS if word[:1] in letters or first in letters), "")


def choose_nearest_spellings(
    visible: Sequence[VisibleSpelling], edits_by_typed: Mapping[str, Mapping[str, int]]
) -> list[OtherSpelling]:
    """For each word of the question the visible words with the fewest edits, the most frequent
    first. Where there is more than one, they share the certainty."""
    by_typed = defaultdict[str, dict[str, tuple[int, int, str]]](dict)
    for one in visible:
        edits = edits_by_typed[one.typed].get(one.spelling)
        if edits is None or (edits and not _may_begin_alike(one.typed, one.spelling)):
            continue
        rank = (edits, -one.pieces, one.stands_for)
        best = by_typed[one.typed].get(one.word)
        by_typed[one.typed][one.word] = min(rank, best) if best else rank
    chosen_spellings = dict[str, OtherSpelling]()
    for ranks in by_typed.values():
        fewest = min(edits for edits, _, _ in ranks.values())
        nearest = sorted((rank, word) for word, rank in ranks.items() if rank[0] == fewest)
        nearest = nearest[:_MAX_ALTERNATIVES]
        certainty = _CERTAINTY_BY_EDITS[fewest] / len(nearest)
        for (_, _, stands_for), word in nearest:
            chosen_spellings.setdefault(word, OtherSpelling(word, stands_for, certainty))
    return list(chosen_spellings.values())


def _may_begin_alike(typed_word: str, spelling: str) -> bool:
    if len(typed_word) >= _MIN_LETTERS_FOR_FIRST_EDIT:
        return True
    first, other = (
        (list_unmarked_spellings(word) or [word])[0][0] for word in (typed_word, spelling)
    )
    return first == other


def _count_edits_of_visible_words(
    visible: Sequence[VisibleSpelling],
) -> Mapping[str, Mapping[str, int]]:
    """The number of edits of each visible word at two edits or less, by word of the question."""
    edits_by_typed = defaultdict[str, dict[str, int]](dict)
    for one in visible:
        edits = count_edits(one.typed, one.spelling)
        if edits < len(_CERTAINTY_BY_EDITS):
            edits_by_typed[one.typed][one.spelling] = edits
    return edits_by_typed


def count_edits(one: str, other: str) -> int:
    """How many edits make one word of another: letters more, less or exchanged, and neighbours
    swapped. More than two count as three."""
    most = len(_CERTAINTY_BY_EDITS)
    if abs(len(one) - len(other)) >= most:
        return most
    before, above = list[int](), list(range(len(other) + 1))
    for n, letter in enumerate(one, 1):
        row = [n]
        for m, opposite in enumerate(other, 1):
            edits = min(above[m] + 1, row[m - 1] + 1, above[m - 1] + (letter != opposite))
            if n > 1 and m > 1 and letter == other[m - 2] and one[n - 2] == opposite:
                edits = min(edits, before[m - 2] + 1)
            row.append(edits)
        if min(row) >= most:
            return most
        before, above = above, row
    return min(above[-1], most)
