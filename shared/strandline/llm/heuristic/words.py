"""Words as the twin sees them: tokens, stems, sentences, how common they are, and lists of what
some words are for."""

import functools
import re
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, cast

WORD = re.compile(r"[^\W_](?:[^\W_]|[-'’./_](?=[^\W_]))*")  # noqa: RUF001 -- the mark that is typed
GENITIVE = re.compile(r"['’]s?$")  # noqa: RUF001
_SENTENCE = re.compile(  # the dot of a title ends none
    r"(?<=[.!?…])(?<!\b[Dd]r\.)(?<!\b[Mm]r\.)(?<!\b[Mm]rs\.)(?<!\b[Mm]s\.)(?<!\b[Pp]rof\.)"
    r"(?<!\b[Ss]t\.)(?<!\s[A-Z]\.)"
    r"[\"'”’)\]]*\s+|(?<=[。！？])|\n+"  # noqa: RUF001
)
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
"""Letters of scripts that put no space between words."""

_ENDING = re.compile(
    r"(?:s|d|ing|er|est|ly|ful|less|ness|ment|ion|[ai]ble|ity|ive|is[mt]|ous|[ae]nce|age|ship)$"
)
"""Of another form of a word. What has another ending, and the same stem, may be a name: Dominic."""

_TURNED = {"i": "y", "e": "i", "l": "i", "y": "i"}
"""A stem's last letter, and what it was in some of its words: apply, closing, ability, skies."""
_LONGEST_ENDING = {0: 0, 1: 1, 2: 3, 3: 4, 4: 7}
"""Letters that words have behind a stem of so many; behind longer ones, ten."""

_STEM = 4
"""Letters of a word whose other forms are told by their stem alone."""

_LONG = 64
"""Letters that no listed word has: longer ones are not remembered, which would take megabytes."""


class _Stemmer(Protocol):
    """The one method used of snowballstemmer's, which have no types."""

    def stemWord(self, word: str) -> str: ...


def tokens(text: str) -> list[str]:
    """Words and identifiers in order, in lower case, with straight apostrophes."""
    return [plain(word) for word in WORD.findall(text)]


def plain(word: str) -> str:
    """A word in lower case, with straight apostrophes."""
    return word.replace("’", "'").lower()  # noqa: RUF001


def bare(word: str) -> str:
    """A word in lower case and without its genitive."""
    return plain(word).removesuffix("'s")


def stems(text: str) -> Iterator[str]:
    """Stems of the words that carry a topic, in order. Where words are written without spaces, as
    in Chinese, each pair of letters counts as one."""
    stop = listed("stop")
    for token in map(bare, WORD.findall(text)):
        if _UNSPACED.search(token):
            yield from (token[at : at + 2] for at in range(max(1, len(token) - 1)))
        elif (
            token not in stop and not token.isdecimal() and (len(token) > 2 or not token.isalpha())
        ):
            yield stem(token)


def sentences(text: str) -> list[str]:
    """A text's sentences and lines, trimmed; none is empty."""
    return [part for found in _SENTENCE.split(text) if (part := found.strip())]


def stem(word: str) -> str:
    """An English word without its endings; words with other letters as they are."""
    if not word.isascii():
        return word
    return _stem(word) if len(word) <= _LONG else _english().stemWord(word)


@functools.lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    return _english().stemWord(word)


_of_thread = threading.local()


def _english() -> _Stemmer:
    """This thread's: a stemmer keeps the word that it is at in itself."""
    stemmer = cast("_Stemmer | None", getattr(_of_thread, "english", None))
    if stemmer is None:
        import snowballstemmer  # 30 languages at once: not before a text is there

        stemmer = cast("_Stemmer", snowballstemmer.stemmer("english"))  # pyright: ignore[reportUnknownMemberType]
        _of_thread.english = stemmer
    return stemmer


def ordinary(word: str) -> bool:
    """Whether it is a word of everyday English, in any of its forms, and so no name."""
    word = bare(word)
    return _is_ordinary(word) or all(_is_ordinary(part) for part in word.split("-"))


def _is_ordinary(word: str) -> bool:
    if word in _listed() or word in _bands():
        return True
    if not _ENDING.search(word):
        return False
    root = stem(word)
    kin = _kin(root) if len(root) <= _LONG else ()
    # Of so few letters any may be the stem of a name: Agnes.
    return any(len(one) >= _STEM or word == one + "s" for one in kin)


def band(word: str) -> int | None:
    """How common a word of English is: the lowest band (10, 20, 35 or 40) of any listed word with
    the same stem; None where there is none."""
    root = stem(bare(word))
    if len(root) > _LONG:
        return None
    bands = _bands()
    return min((bands[one] for one in _kin(root) if one in bands), default=None)


def band_as_spelt(word: str) -> int | None:
    """The band of this very word, and of no other of its stem; the least common of lexicon.txt's
    that words.txt has not, such as email; of days, which it has not either, the most common."""
    if word in listed("calendar"):
        return 10
    return _bands().get(word) or (40 if word in _listed() else None)


def begins(head: str) -> bool:
    """Whether any listed word begins so."""
    words = _alphabetical()
    place = bisect_left(words, head)
    return place < len(words) and words[place].startswith(head)


@functools.lru_cache(maxsize=50_000)
def _kin(root: str) -> tuple[str, ...]:
    """Listed words whose stem it is. To stem all of them takes a second and more: only those are
    that begin as it does, or as it did before a last letter was turned (flies, fli; hoping, hope).
    """
    heads = (root, *(root[:-1] + letter for letter in _TURNED.get(root[-1:], "")))
    return tuple(word for head in heads for word in _opening(head) if stem(word) == root)


def _opening(head: str) -> Iterator[str]:
    """Listed words that begin so, but for those too long to be of the same stem."""
    words = _alphabetical()
    for place in range(bisect_left(words, head), len(words)):
        word = words[place]
        if not word.startswith(head):
            return
        if len(word) <= len(head) + _LONGEST_ENDING.get(len(head), 10):
            yield word


@functools.cache
def _alphabetical() -> Sequence[str]:
    bands = _bands()  # whose words are in four runs already: sorted anew it takes twice as long
    return sorted([*bands, *sorted(_listed() - bands.keys())])


@functools.cache
def _bands() -> dict[str, int]:
    """Words of words.txt, each with its band."""
    found: dict[str, int] = {}
    for number, words in _read("words.txt").items():
        found |= dict.fromkeys(words, int(number))
    return found


@functools.cache
def _listed() -> frozenset[str]:
    lists = ("stop", "openers", "calendar", "units", "does", "common")
    return frozenset[str]().union(*map(listed, lists))


def listed(name: str) -> frozenset[str]:
    """A list of lexicon.txt by its name, such as `stop`. Raises KeyError for another."""
    return _lists()[name]


@functools.cache
def _lists() -> dict[str, frozenset[str]]:
    return {name: frozenset(words) for name, words in _read("lexicon.txt").items()}


def _read(file: str) -> dict[str, list[str]]:
    """A file's lists: each begins with its name and a colon, further lines of it are indented."""
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if not line.startswith(" ") and ": " in line:
            name, _, line = line.partition(": ")
        found.setdefault(name, []).extend(line.split())
    return found
