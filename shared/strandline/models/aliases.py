"""Which of the names found in a run are short forms of others: Wenzel of Heinrich Wenzel."""

import unicodedata
from collections.abc import Mapping, Sequence

from strandline.models.language import EntityKind
from strandline.models.words import listed

_NICK = range(3, 5)
"""Letters of a short form of a first name: Raf, Kath."""
_CUT = 2
"""Letters at least that it lacks: Jan is not Jana."""


def aliases(kinds: Mapping[str, EntityKind]) -> dict[str, list[str]]:
    """Names that are parts of longer ones, or the same written otherwise, and these."""
    folded = {name: _folded(name) for name in kinds}
    found = {
        short: [name for name in kinds if name != short and _is_of(short, name, folded, kind)]
        for short, kind in kinds.items()
    }
    return {
        short: _longest([name for name in wholes if not found[name]] or wholes, folded)
        for short, wholes in found.items()
        if wholes
    }


def _folded(name: str) -> str:
    """As somebody in haste writes it: in small letters, without marks on them."""
    letters = unicodedata.normalize("NFKD", name.lower())
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    title, dot, bearer = bare.partition(". ")
    return f"{title} {bearer}" if dot and title in listed("titles") else bare


def _longest(wholes: Sequence[str], folded: Mapping[str, str]) -> list[str]:
    """Without those that are part of others; of one in several spellings the best."""
    best = {folded[name]: name for name in sorted(wholes, key=_worth)}
    return [
        name for low, name in best.items() if not any(low != one and low in one for one in best)
    ]


def _worth(name: str) -> tuple[bool, bool, str]:
    """Of two spellings the one with capitals is better, if it is not all capitals."""
    return not name.islower(), not name.isupper(), name


def _is_of(short: str, name: str, folded: Mapping[str, str], kind: EntityKind) -> bool:
    low, like = folded[short], folded[name]
    if low == like:
        return _worth(name) > _worth(short)
    if low.endswith("s") and like in {low[:-1], low[:-1] + "'s"}:
        return True  # of who has what follows: nunos
    if like == low + "'s":
        return True
    owner = short.islower() and low.endswith("s") and like.startswith(low[:-1] + " ")
    return owner or _is_part(low, like, kind) or _is_nick(low, like)


def _is_part(low: str, like: str, kind: EntityKind) -> bool:
    """The beginning or the end of it. What one is in is a place of its own, though somebody is
    called after it: Torvik, and the Chor Torvik; and who has a title is no firm."""
    title, _, bearer = low.partition(" ")
    titled = bool(bearer) and title in listed("titles")
    if titled and "&" in like:
        return False
    first = like.split()[0]
    if like.startswith(low + " ") or like.endswith("/" + low):
        return True
    if titled:
        other = first in listed("titles") and first != title
        return like.endswith(" " + bearer) and not other
    if bearer and len(title) == 2 and title[1] == ".":  # an initial
        return like.endswith(" " + bearer) and like.startswith(title[0])
    if kind == "place" and like.endswith(" " + low):
        return first in listed("places") | listed("titles")
    return like.endswith(" " + low)


def _is_nick(low: str, like: str) -> bool:
    first = like.split()[0]
    longer = first.isalpha() and len(first) >= len(low) + _CUT
    return len(low) in _NICK and longer and first.startswith(low)
