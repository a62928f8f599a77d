"""Words for the heuristic model: tokens, stems, sentences, frequency bands and word lists."""

import functools
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from strandline.languages import get_stemmer

WORD = re.compile(r"[^\W_](?:[^\W_]|[-'’./_](?=[^\W_]))*")  # noqa: RUF001 -- the apostrophe that people type
GENITIVE = re.compile(r"['’]s?$")  # noqa: RUF001
_SENTENCE = re.compile(  # the dot after a title ends no sentence
    r"(?<=[.!?…])(?<!\b[Dd]r\.)(?<!\b[Mm]r\.)(?<!\b[Mm]rs\.)(?<!\b[Mm]s\.)(?<!\b[Pp]rof\.)"
    r"(?<!\b[Ss]t\.)(?<!\s[A-Z]\.)"
    r"[\"'”’)\]]*\s+|(?<=[。！？])|\n+"  # noqa: RUF001
)
_SCRIPTS_WITHOUT_SPACES = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]"
)
"""Letters of scripts without spaces between words."""

_ENDING = re.compile(
    r"(?:s|d|ing|er|est|ly|ful|less|ness|ment|ion|[ai]ble|ity|ive|is[mt]|ous|[ae]nce|age|ship)$"
)
"""Endings of other forms of a word. A word with another ending and the same stem may be a name,
such as Dominic."""

_CHANGED_LETTERS = {"i": "y", "e": "i", "l": "i", "y": "i"}
"""The last letter of a stem, and the letter that some of its words have there: apply, closing,
ability, skies."""
_LONGEST_ENDING = {0: 0, 1: 1, 2: 3, 3: 4, 4: 7}
"""By length of the stem: most letters after it. After longer stems, ten."""

_MIN_STEM_LETTERS = 4
"""From so many letters on, the stem alone shows that words are forms of one another."""

_MIN_STOP_WORD_SHARE = 0.2
"""A text with a smaller share of stop words is not considered English."""
_MAX_LISTED_LETTERS = 64
"""No listed word has more letters. Longer words are not cached, which would take megabytes."""


def tokenize(text: str) -> list[str]:
    """Words and identifiers in order, in lower case, with straight apostrophes."""
    return [lowercase_word(word) for word in WORD.findall(text)]


def lowercase_word(word: str) -> str:
    """A word in lower case, with straight apostrophes."""
    return word.replace("’", "'").lower()  # noqa: RUF001


def lowercase_without_genitive(word: str) -> str:
    """A word in lower case, without a genitive."""
    return lowercase_word(word).removesuffix("'s")


def iter_stems(text: str) -> Iterator[str]:
    """Stems of the words that carry a topic, in order. In scripts without spaces, such as Chinese,
    each pair of letters counts as a word."""
    stop_words = word_list("stop")
    for token in map(lowercase_without_genitive, WORD.findall(text)):
        if _SCRIPTS_WITHOUT_SPACES.search(token):
            yield from (token[index : index + 2] for index in range(max(1, len(token) - 1)))
        elif (
            token not in stop_words
            and not token.isdecimal()
            and (len(token) > 2 or not token.isalpha())
        ):
            yield stem_english_word(token)


def is_script_without_spaces(letters: str) -> bool:
    """Whether one of the letters is of a script without spaces between words, such as Chinese."""
    return _SCRIPTS_WITHOUT_SPACES.search(letters) is not None


def is_english(texts: Iterable[str]) -> bool:
    """Whether enough of the words are English stop words; true where there are none at all."""
    words = [word for text in texts for word in WORD.findall(text)]
    stop_words = sum(lowercase_without_genitive(word) in word_list("stop") for word in words)
    return stop_words >= _MIN_STOP_WORD_SHARE * len(words)


def split_sentences(text: str) -> list[str]:
    """A text's sentences and lines, trimmed; none is empty."""
    return [part for piece in _SENTENCE.split(text) if (part := piece.strip())]


def stem_english_word(word: str) -> str:
    """An English word without its endings; a word with other letters is returned unchanged."""
    if not word.isascii():
        return word
    return (
        _stem_cached(word) if len(word) <= _MAX_LISTED_LETTERS else get_stemmer("en").stemWord(word)
    )


@functools.lru_cache(maxsize=50_000)
def _stem_cached(word: str) -> str:
    return get_stemmer("en").stemWord(word)


def is_ordinary(word: str) -> bool:
    """Whether it is a word of everyday English in any form, and so no name."""
    word = lowercase_without_genitive(word)
    return _is_form_of_ordinary_word(word) or all(
        _is_form_of_ordinary_word(part) for part in word.split("-")
    )


def _is_form_of_ordinary_word(word: str) -> bool:
    if word in _lexicon_words() or word in _band_by_word():
        return True
    if not _ENDING.search(word):
        return False
    root = stem_english_word(word)
    same_stem = _words_with_stem(root) if len(root) <= _MAX_LISTED_LETTERS else ()
    # So few letters may be the stem of a name: Agnes.
    return any(len(other) >= _MIN_STEM_LETTERS or word == other + "s" for other in same_stem)


def get_stem_frequency_band(word: str) -> int | None:
    """How common an English word is: the lowest band (10, 20, 35 or 40) of the listed words with
    the same stem; None if there is none."""
    root = stem_english_word(lowercase_without_genitive(word))
    if len(root) > _MAX_LISTED_LETTERS:
        return None
    bands = _band_by_word()
    return min((bands[other] for other in _words_with_stem(root) if other in bands), default=None)


def exact_frequency_band(word: str) -> int | None:
    """The band of exactly this word, not of others with its stem. Words of lexicon.txt that
    words.txt lacks, such as email, have the least common band; days, which it lacks too, the most
    common."""
    if word in word_list("calendar"):
        return 10
    return _band_by_word().get(word) or (40 if word in _lexicon_words() else None)


def is_in_frequency_bands(word: str) -> bool:
    """Whether words.txt holds exactly this word, in lower case. It has no misspelt words and no
    names; lexicon.txt has both."""
    return word in _band_by_word()


def is_prefix_of_listed_word(prefix: str) -> bool:
    """Whether any listed word has this prefix."""
    words = _sorted_words()
    index = bisect_left(words, prefix)
    return index < len(words) and words[index].startswith(prefix)


@functools.lru_cache(maxsize=50_000)
def _words_with_stem(root: str) -> tuple[str, ...]:
    """Listed words with this stem. Stemming all words would take over a second, so only those are
    stemmed that begin with the stem, or with the stem before its last letter changed (flies, fli;
    hoping, hope)."""
    prefixes = (root, *(root[:-1] + letter for letter in _CHANGED_LETTERS.get(root[-1:], "")))
    return tuple(
        word
        for prefix in prefixes
        for word in _words_with_prefix(prefix)
        if stem_english_word(word) == root
    )


def _words_with_prefix(prefix: str) -> Iterator[str]:
    """Listed words with this prefix, except those too long to have the same stem."""
    words = _sorted_words()
    for index in range(bisect_left(words, prefix), len(words)):
        word = words[index]
        if not word.startswith(prefix):
            return
        if len(word) <= len(prefix) + _LONGEST_ENDING.get(len(prefix), 10):
            yield word


@functools.cache
def _sorted_words() -> Sequence[str]:
    bands = (
        _band_by_word()
    )  # its words are four sorted runs: sorting the whole set takes twice as long
    return sorted([*bands, *sorted(_lexicon_words() - bands.keys())])


@functools.cache
def _band_by_word() -> dict[str, int]:
    """The words of words.txt, each with its band."""
    band_by_word: dict[str, int] = {}
    for number, words in _read_lists("words.txt").items():
        band_by_word |= dict.fromkeys(words, int(number))
    return band_by_word


@functools.cache
def _lexicon_words() -> frozenset[str]:
    lists = ("stop", "openers", "calendar", "units", "does", "common")
    return frozenset[str]().union(*map(word_list, lists))


def word_list(name: str) -> frozenset[str]:
    """A list of lexicon.txt by its name, such as `stop`. Raises KeyError for an unknown name."""
    return _word_lists()[name]


@functools.cache
def _word_lists() -> dict[str, frozenset[str]]:
    return {name: frozenset(words) for name, words in _read_lists("lexicon.txt").items()}


def _read_lists(file: str) -> dict[str, list[str]]:
    """The lists of a file: each begins with its name and a colon; further lines are indented."""
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    lists: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if not line.startswith(" ") and ": " in line:
            name, _, line = line.partition(": ")
        lists.setdefault(name, []).extend(line.split())
    return lists
