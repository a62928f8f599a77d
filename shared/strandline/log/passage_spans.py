"""Where a text is taken apart: into sentences and lines, and into passages that are embedded."""

import itertools
import re

LONG_CHARS = 400
"""A text of more characters has vectors of its passages as well."""
PASSAGE_CHARS = 300
"""A passage has at most this many characters: of two or three sentences one vector tells what each
says, of more only what they are about."""
MAX_PASSAGES = 32
"""How many passages of a text are embedded, the first."""
MAX_SPLIT_CHARS = 65_536
"""The maximum characters of a text that are looked at."""
_BOUNDARY = re.compile(r"(?<=[.!?…;:])\s+|(?<=[\u3002\uff01\uff1f\u061f])|\s*\n\s*")


def split_into_segments(text: str) -> list[tuple[int, int]]:
    """The sentences and lines of a text, as ranges of characters, none longer than a passage."""
    text = text[:MAX_SPLIT_CHARS]
    bounds = [0, *itertools.chain(*(m.span() for m in _BOUNDARY.finditer(text))), len(text)]
    segments: list[tuple[int, int]] = []
    for start, end in zip(bounds[::2], bounds[1::2], strict=True):
        segments += _split_long(text, start, end)
    return segments


def split_into_passages(text: str) -> list[tuple[int, int]]:
    """The passages of a long text that are embedded, as ranges of characters, each of as many
    segments as fit; none of a short text. Vectors are stored by the passages' numbers, so other
    passages need other vectors."""
    if len(text) <= LONG_CHARS:
        return []
    passages: list[tuple[int, int]] = []
    for start, end in split_into_segments(text):
        if passages and end - passages[-1][0] <= PASSAGE_CHARS:
            passages[-1] = passages[-1][0], end
        elif len(passages) == MAX_PASSAGES:
            break
        else:
            passages.append((start, end))
    return passages


def _split_long(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """A range in parts of at most `PASSAGE_CHARS`, cut at spaces where there are some; without
    blank parts."""
    parts: list[tuple[int, int]] = []
    while start < end:
        cut = end
        if end - start > PASSAGE_CHARS:
            cut = text.rfind(" ", start + PASSAGE_CHARS // 2, start + PASSAGE_CHARS)
            cut = cut if cut > 0 else start + PASSAGE_CHARS
        if text[start:cut].strip():
            parts.append((start, cut))
        start = cut + 1 if text[cut : cut + 1] == " " else cut
    return parts
