"""Which of the names found in a run are short forms of others: Wenzel of Heinrich Wenzel."""

import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from strandline.llm.heuristic.words import listed
from strandline.llm.types import EntityKind

_NICK = range(3, 5)
"""Letters of a short form of a first name: Raf, Kath."""
_CUT = 2
"""Letters at least that it lacks: Jan is not Jana."""


def aliases(kinds: Mapping[str, EntityKind]) -> dict[str, str | None]:
    """Names that are parts of longer ones, or the same written otherwise, each with the one that it
    stands for; None where it may stand for several."""
    wholes = _Wholes(kinds)
    found: dict[str, str | None] = {}
    for short in kinds:
        if of := wholes.of(short):
            found[short] = wholes.single(of)
    return found


class _Wholes:
    """Of which names others are parts. Each is compared only with those that begin or end as it
    does, and names that are folded alike are one: all with all would take minutes for a text of
    thousands of names."""

    def __init__(self, kinds: Mapping[str, EntityKind]) -> None:
        self._kinds = kinds
        self._folded = {name: _folded(name) for name in kinds}
        self._best = {self._folded[name]: name for name in sorted(kinds, key=_worth)}
        """The best spelling of each folded name."""
        self._forward = sorted(self._best)
        self._backward = sorted(low[::-1] for low in self._best)
        self._firsts = sorted((_first(low), low) for low in self._best)
        self._longer: dict[tuple[str, bool, bool], tuple[str, ...]] = {}
        self._single: dict[tuple[str, ...], str | None] = {}

    def of(self, short: str) -> tuple[str, ...]:
        """Folded names that a name is a part of; its own, where it has a better spelling."""
        low, kind, small = self._folded[short], self._kinds[short], short.islower()
        key = low, kind == "place", small
        if key not in self._longer:
            near = sorted(self._near(low))
            self._longer[key] = tuple(one for one in near if _is_of(low, one, kind, small=small))
        return self._longer[key] if self._best[low] == short else (*self._longer[key], low)

    def single(self, lows: tuple[str, ...]) -> str | None:
        """The best spelling of the one of which all others are parts, if there is one; those that
        are part of a further name are passed over, unless all are."""
        if lows not in self._single:
            apart = [low for low in lows if not self.of(self._best[low])] or lows
            longest = max(apart, key=len)
            alone = all(low in longest for low in apart)
            self._single[lows] = self._best[longest] if alone else None
        return self._single[lows]

    def _near(self, low: str) -> set[str]:
        """All that `_is_of` may find, and a few more."""
        _, _, bearer = low.partition(" ")
        exact = low[:-1], low[:-1] + "'s", low + "'s"
        heads = (low + " ", low[:-1] + " ") if low.endswith("s") else (low + " ",)
        tails = (" " + low, "/" + low, *([" " + bearer] if bearer else ()))
        near = {one for one in exact if one in self._best}
        near |= {one for head in heads for one in _opening(self._forward, head)}
        near |= {one[::-1] for tail in tails for one in _opening(self._backward, tail[::-1])}
        if len(low) in _NICK:
            for place in range(bisect_left(self._firsts, (low, "")), len(self._firsts)):
                first, one = self._firsts[place]
                if not first.startswith(low):
                    break
                near.add(one)
        return near - {low}


def _opening(names: Sequence[str], head: str) -> Iterator[str]:
    """Of names in order those that begin so."""
    for place in range(bisect_left(names, head), len(names)):
        if not names[place].startswith(head):
            return
        yield names[place]


def _first(low: str) -> str:
    return next(iter(low.split()), "")


def _folded(name: str) -> str:
    """As somebody in haste writes it: in small letters, without marks on them."""
    letters = unicodedata.normalize("NFKD", name.lower())
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    title, dot, bearer = bare.partition(". ")
    return f"{title} {bearer}" if dot and title in listed("titles") else bare


def _worth(name: str) -> tuple[bool, bool, str]:
    """Of two spellings the one with capitals is better, if it is not all capitals."""
    return not name.islower(), not name.isupper(), name


def _is_of(low: str, like: str, kind: EntityKind, *, small: bool) -> bool:
    """Whether a folded name, `small` as it was written, is a part of another."""
    if low.endswith("s") and like in {low[:-1], low[:-1] + "'s"}:
        return True  # of who has what follows: nunos
    if like == low + "'s":
        return True
    owner = small and low.endswith("s") and like.startswith(low[:-1] + " ")
    return owner or _is_part(low, like, kind) or _is_nick(low, like)


def _is_part(low: str, like: str, kind: EntityKind) -> bool:
    """The beginning or the end of it. What one is in is a place of its own, though somebody is
    called after it: Torvik, and the Chor Torvik; and who has a title is no firm."""
    title, _, bearer = low.partition(" ")
    titled = bool(bearer) and title in listed("titles")
    if titled and "&" in like:
        return False
    first = _first(like)
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
    first = _first(like)
    longer = first.isalpha() and len(first) >= len(low) + _CUT
    return len(low) in _NICK and longer and first.startswith(low)
