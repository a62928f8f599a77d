"""The words of a text that Postgres' parser does not find by itself, for the index and for
questions alike: parts of identifiers, pairs of characters where a script has no spaces, stems of
languages other than English. For the index alone, words without the marks on their letters."""

import itertools
import re
import unicodedata
from collections.abc import Iterator

from strandline.languages import (
    SNOWBALL_NAMES,
    STOP_WORDS,
    detect_language,
    get_stemmer,
    split_into_lowercase_words,
)
from strandline.log.fulltext_input import sanitize_for_parser

_MAX_STEMMED_CHARS = 16 * 1024
_MAX_IDENTIFIER = 256
"""Longer runs without a space are no names: paths and URLs of everyday text are shorter."""
_GAP = " a a a "
"""Stop words between a text and its added words, so that no phrase spans them."""

# Han and Hangul by pairs; katakana likewise, mostly names and loan words. Hiragana is inflection,
# so that only longer runs tell anything.
_RUN = re.compile(
    r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3005]+|[\u30a0-\u30ff\u31f0-\u31ff]+"
    r"|[\uac00-\ud7af\u1100-\u11ff]+|[\u3041-\u309f]{3,}|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+"
)
_EDGES = ".,;:!?()[]{}<>\"'`*"
_TOUCHING = re.compile(
    r"[a-zA-Z0-9][^\W\d_a-zA-Z\u00c0-\u024f]|[^\W\d_a-zA-Z\u00c0-\u024f][a-zA-Z0-9]"
)
"""A Latin letter or a digit next to a letter of another script: both are one word to the parser."""
_LATIN = re.compile(r"[a-zA-Z0-9\u00c0-\u024f]+(?:[._+#-]+[a-zA-Z0-9\u00c0-\u024f]+)*")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_JOINED = re.compile(r"\w+_\w+")
_NUMBERED = re.compile(r"(?<![^\W\d_])([A-Za-z]{1,10})-(\d{1,9})(?![.\w]*\w|-\d)")
"""A name and its number, as in LED-412, also in a path: the parser reads the number as negative."""
_SIGNED = re.compile(
    r"(?<!\w)(?:(?P<plus>[A-Za-z]\w{0,9})\+\+|(?P<sharp>[A-Za-z]\w{0,9})#(?!\w)"
    r"|\.(?P<dot>[A-Za-z]\w{1,9})(?![\w.]))"
)
_LATIN_WORD = re.compile(r"[a-zA-Z\u00c0-\u024f\u1e00-\u1eff]+")
_WITHOUT_MARK = str.maketrans(
    {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th"}
    | {"Æ": "Ae", "Œ": "Oe", "Ø": "O", "Ł": "L", "Đ": "D", "Ð": "D", "Þ": "Th"}
)
"""Letters that do not decompose into one without a mark and the mark."""
_BY_TWO_LETTERS = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"}
    | {"Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "Ø": "Oe", "Å": "Aa"}
)
_SPELLED = {"plus": "{}plusplus", "sharp": "{}sharp", "dot": "dot{}"}


def to_indexed_text(text: str) -> str:
    """A text as it is indexed: the text for the parser, followed by the words that the parser does
    not find. Longer than the text, so places in it say nothing of the text."""
    language = detect_language(text)
    words = itertools.chain(
        find_words_parser_misses(text, language), _list_unmarked_words(text, language)
    )
    return _append_extra_words(sanitize_for_parser(text), words)


def prepare_question_for_search(question: str) -> str:
    """A question as it is searched for: without the frequent words of its language, and with the
    words that the parser does not find. A question of frequent words alone keeps them."""
    language = detect_language(question)
    stop_words = STOP_WORDS.get(language, frozenset()) if language != "en" else frozenset[str]()
    informative = question
    if stop_words and any(word not in stop_words for word in split_into_lowercase_words(question)):
        informative = _blank_words(question, stop_words)
    return _append_extra_words(
        sanitize_for_parser(informative), find_words_parser_misses(question, language)
    )


def find_words_parser_misses(text: str, language: str) -> Iterator[str]:
    """The words of a text that the parser does not find by itself."""
    for chunk in text.split():
        if not chunk.isascii() and _TOUCHING.search(chunk):
            for match in _LATIN.finditer(chunk):
                yield match[0]
                yield from _split_identifier_words(match[0][:_MAX_IDENTIFIER])
        is_word = chunk.islower() and chunk.isalpha()
        if not is_word and chunk.isascii() and len(chunk) <= _MAX_IDENTIFIER:
            yield from _split_identifier_words(chunk.rstrip(_EDGES).lstrip(_EDGES[1:]))
    if text.isascii() and language == "en":
        return
    for match in _RUN.finditer(text):
        run = match[0]
        yield from (run[n : n + 2] for n in range(max(len(run) - 1, 1)))
    if language != "en" and language in SNOWBALL_NAMES:
        stem = get_stemmer(language).stemWord
        words = dict.fromkeys(split_into_lowercase_words(text[:_MAX_STEMMED_CHARS]))
        yield from (stem(word) for word in words if word not in STOP_WORDS.get(language, ()))


def list_unmarked_spellings(word: str) -> list[str]:
    """How a Latin word is typed without the marks on its letters: Jose for José, Muller and Mueller
    for Müller. Empty for a word without marks. The word is in NFC."""
    if word.isascii():
        return []
    spellings = [_strip_marks(word), _strip_marks(word.translate(_BY_TWO_LETTERS))]
    return [spelling for spelling in dict.fromkeys(spellings) if spelling != word]


def _strip_marks(word: str) -> str:
    letters = unicodedata.normalize("NFD", word.translate(_WITHOUT_MARK))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def _list_unmarked_words(text: str, language: str) -> Iterator[str]:
    """The words of a text as they are typed without marks, so that a question without them finds
    the text."""
    if text.isascii():
        return
    stop_words = STOP_WORDS.get(language, frozenset[str]())
    for word in dict.fromkeys(_LATIN_WORD.findall(unicodedata.normalize("NFC", text))):
        if word.lower() not in stop_words:
            yield from list_unmarked_spellings(word)


def _split_identifier_words(chunk: str) -> Iterator[str]:
    """Of an identifier each part, and what is joined by underscores, or its name and number, as one
    word; `C++`, `C#` and `.NET` as they are spoken."""
    if (chunk.istitle() and chunk.isalpha()) or not any(map(str.isalpha, chunk)):
        return
    for match in _SIGNED.finditer(chunk):
        yield from (_SPELLED[kind].format(word) for kind, word in match.groupdict().items() if word)
    parts = [match[0] for match in _PART.finditer(chunk)]
    if len(parts) > 1:
        yield from (part for part in parts if len(part) > 1)
    for match in _NUMBERED.finditer(chunk):
        yield from (match[2], match[1] + match[2])
    for match in _JOINED.finditer(chunk):
        yield match[0].replace("_", "")


def _append_extra_words(text: str, extra: Iterator[str]) -> str:
    words = " ".join(extra)
    return f"{text}{_GAP}{words}" if words else text


def _blank_words(text: str, words: frozenset[str]) -> str:
    return re.sub(r"[^\W\d_]+", lambda match: "" if match[0].lower() in words else match[0], text)
