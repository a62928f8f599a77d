"""Finds codes in a text: versions, files, models, tickets, orders, commits."""

import re
from collections.abc import Iterator, Sequence

from strandline.llm.heuristic.words import GENITIVE, is_ordinary, word_list
from strandline.llm.types import EntityKind

VERSION = re.compile(r"v?\d+\.\d+\.\d+(?:[-+]\w+)?|v\d+\.\d+")
"""A version has three parts, or begins with v."""
_PATH = re.compile(
    r"(?:[\w.-]+/)*[\w-]{2,}(?:\.[\w-]+)*\.[a-z][a-z0-9]{0,8}|[A-Z0-9_]{3,}\.[A-Z]{2,4}"
)
_CODE = re.compile(
    r"#\d{2,}|[A-Z]+-?\d\d\w*|[A-Za-z]+(?:-\w+)*-\d\w*|\d{3,}-[A-Z]\w*|\d{2,3}-\d{4,}|[a-z]{3,}\d+"
    r"|[A-Z]+\d+-\d\w*|[A-Z]{2,}\d\w*|[A-Z]\.\d{2,}|[B-PR-Z]\d{1,3}"
    r"|\d{4}-\d{3,}|\d{3,}(?:-\d{2,}){2,}|[A-Z]{2,}(?:/\w+)*/\d+|[1-9][ABCEF]|[A-Z]\d{1,3}[A-Z]"
    r"|[A-Z]+[/_](?=\w*\d\d)\w+|[a-z]+(?:_[a-z0-9]+){2,}|[A-Z]{2,}-[A-Z]+\d+|[A-Z][a-z]{2,}\d+"
    r"|\d{3,}-[A-Z]{1,3}-\d+|[A-Z]+-\d{2,}-[A-Z]+|[a-z]+_[a-z]+\d+"
    r"|(?=[a-f]*\d[\da-f]*[a-f])(?=(?:\d*[a-f]){2})[\da-f]{7,40}"  # a commit hash
)
_COMPOUND = re.compile(r"[a-z][a-z0-9]*(?:[-_/][a-z0-9]+)+")
_BETWEEN = frozenset('"“`=:')
"""Marks that may stand between a label and its code; verbs such as "is" may too."""
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d|(?:19|20)\d\d-(?:19|20)\d\d|[BCGP]2[BCGP]|"
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*-?\d+|\w+-\d\d?(?:st|nd|rd|th)"
)


def find_codes(parts: Sequence[Sequence[str]]) -> Iterator[tuple[str, EntityKind]]:
    """Finds versions, paths, order numbers and the like, each with its kind."""
    standards = word_list("standards")
    for words in parts:
        for index, word in enumerate(words):
            if word.isalpha() and word.lower() not in standards:
                continue
            word = GENITIVE.sub("", word)
            if VERSION.fullmatch(word):
                yield word, "product"
            elif (
                _CODE.fullmatch(word) and not _DATE.fullmatch(word) and not _is_numbered_word(word)
            ):
                previous = words[index - 1] if index and word[0].isdigit() else ""
                name = f"{previous} {word}" if previous.isalpha() and previous.isupper() else word
                yield name, "other"
            elif _PATH.fullmatch(word) and _is_file_or_host(word):
                yield word, "other"
            elif word.lower() in standards:
                yield word, "technology"
            elif _COMPOUND.fullmatch(word) and _has_label_before(words, index):
                yield word, "other"


def _has_label_before(words: Sequence[str], index: int) -> bool:
    """Whether a label precedes the word: the flag route-all, branch is fix-hem."""
    words_before = [
        word.lower() for word in words[max(0, index - 3) : index] if word not in _BETWEEN
    ]
    while words_before and words_before[-1] in {"is", "called", "named"}:
        words_before.pop()
    return bool(words_before) and words_before[-1].removesuffix("s") in word_list("labelled")


def _is_file_or_host(path: str) -> bool:
    """Whether it is a file or host, and not two sentences without a space: done.thanks."""
    if path[0].isdigit() and "_" not in path:
        return False
    *before, last = path.split(".")
    return last.lower() in word_list("endings") or not (
        is_ordinary(last) and all(map(is_ordinary, before))
    )


def _is_numbered_word(code: str) -> bool:
    """Whether a word of order or place precedes a number, as in under-19s."""
    return "-" in code and any(
        code.split("-")[0] in word_list(words) for words in ("stop", "openers")
    )


def is_acronym(word: str) -> bool:
    """Whether the word is a few capitals that are not just emphasis."""
    return (
        2 <= len(word) <= 6
        and word.isalpha()
        and word.isupper()
        and word.lower() not in word_list("shouted")
    )
