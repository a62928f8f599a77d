"""Strings that callers may look for things by, made to upset whatever reads them in a database."""

import random
from collections.abc import Callable, Sequence

_WORDS = ("lighthouse", "or", "OR", "and", "not", "the", "a", "Grüße", "naïve", "1", "-5", "3.14")
_OPERATORS = (
    '"', "-", "--", "!", "&", "|", "(", ")", "<->", "<3>", ":*", ":A", "'", "\\", "%", "_", "$",
)  # fmt: skip
_QUERIES = (
    "' or 1=1 --", "a & !b", "'a' <-> 'b':*", "$.a[*] ? (@ == 1)", "{a,b}", "[1,2)", '{"a": 1}',
    "E'\\x00'", "%(text)s", "{}", "null", "\\u0000", "-infinity", "user:alice", "a" * 300,
    "/etc/../x", "2026-05-08", "https://example.com/?a=b&c=-d", "me@example.com", "C:\\-x\\-y",
    "a-b-c-d", "1e400", "-" * 33, "a " + "-" * 32 + "b", "- " * 50, "-!" * 50, "-(" * 50,
    '-"" ' * 40, "-\u3000" * 50, "-\u00a0" * 50, "-\u200b" * 50, "-\u1680" * 50, "-\x1c" * 50,
    "-\x0b" * 50,
)  # fmt: skip
_BLOCKS = (
    (0x01, 0x1F), (0x20, 0x7E), (0x80, 0x9F), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF),
    (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F),
    (0x1100, 0x11FF), (0x1680, 0x169F), (0x2000, 0x206F), (0x2E80, 0x2FDF), (0x3000, 0x30FF),
    (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0xFB00, 0xFDFF), (0xFE00, 0xFFFF),
    (0x10000, 0x1FFFF), (0xE0000, 0xE01EF), (0x10FFFE, 0x10FFFF),
)  # fmt: skip
"""Every kind of script, and what is none: controls, marks, private use, no characters."""


def _soup(rand: random.Random, longest: int) -> str:
    """Words and operators in any order, apart or not."""
    return rand.choice(("", " ", "\t", "\n ")).join(
        rand.choice(rand.choice((_WORDS, _OPERATORS, _QUERIES)))
        for _ in range(rand.randint(1, max(1, longest // 8)))
    )


def _characters(rand: random.Random, longest: int) -> str:
    """Characters of one or two blocks."""
    blocks = rand.sample(_BLOCKS, 2)
    return "".join(chr(rand.randint(*rand.choice(blocks))) for _ in range(rand.randint(1, longest)))


def _random_refusal(rand: random.Random, longest: int) -> str:
    """With what no database stores."""
    return _characters(rand, longest) + rand.choice(("\x00", "\ud800", "\udfff", "\ud83d"))


def _repeat(rand: random.Random, longest: int) -> str:
    """One thing as often as fits."""
    unit = rand.choice(
        (*_OPERATORS, *_QUERIES, "-a ", "a or ", '"a" ', "a\u0301", "ﷺ", "a<->", " -")
    )
    return unit * max(1, longest // len(unit))


def _terms(rand: random.Random, longest: int) -> str:
    """As many different words as fit, joined in one way."""
    joint = rand.choice((" ", " or ", " -", ' "', "-", "&", ".", "/", "@", "<->"))
    return joint.join(format(n, "x") for n in range(longest // (len(joint) + 3)))


_KINDS: Sequence[Callable[[random.Random, int], str]] = (
    _soup, _soup, _characters, _random_refusal, _repeat, _terms,
)  # fmt: skip


FIXED = len((*_QUERIES, *_OPERATORS, *_WORDS))
"""How many of `strings` are always the same."""


def strings(seed: int, count: int, longest: int) -> list[str]:
    """So many of them, the fixed ones first; none is empty or longer than `longest`."""
    rand = random.Random(seed)
    results = [text[:longest] for text in (*_QUERIES, *_OPERATORS, *_WORDS)]
    while len(results) < count:
        longest_here = rand.choice((12, 60, 300, longest))
        results.append(rand.choice(_KINDS)(rand, longest_here)[:longest])
    return results[:count]


def rules(seed: int, count: int) -> list[str]:
    """What a writer may put around a word without a thought: rules, bullets, arrows, boxes."""
    rand = random.Random(seed)
    units = (*"=*#|>()!&:.\n", "-", "--", "- ", " -", "\u2013", "\u2014")
    return [
        "".join(rand.choice(units) * rand.randint(1, 40) for _ in range(rand.randint(1, 5)))
        for _ in range(count)
    ]
