"""How well chains match what people expect of a conversation: topics' boundaries, and names."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

TOLERANCE = 1
"""Events by which a boundary may lie beside the expected one."""


class Score(NamedTuple):
    """Counts of a comparison; two scores of different conversations add up."""

    right: int
    found: int
    expected: int

    @property
    def precision(self) -> float:
        """Share of what was found that is right; 1 of nothing."""
        return self.right / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        """Share of what was expected that was found; 1 of nothing."""
        return self.right / self.expected if self.expected else 1.0

    @property
    def f1(self) -> float:
        """Their harmonic mean."""
        both = self.found + self.expected
        return 2 * self.right / both if both else 1.0

    def __str__(self) -> str:
        return f"F1 {self.f1:.3f} (precision {self.precision:.3f}, recall {self.recall:.3f})"


@dataclass(frozen=True)
class Expected:
    """What a conversation's chains should look like. Events are named by their keys."""

    lanes: Mapping[str, Sequence[str]]
    """Each session's events in order."""
    starts: frozenset[str]
    """The first event of each topic; a session's first is one."""
    names: Mapping[str, frozenset[str]]
    """By a topic's first event: who and what its text names; nothing where nobody marked that."""


class ChainKeys(NamedTuple):
    """A chain: its events' keys, and what it names."""

    keys: Sequence[str]
    names: Sequence[str]


def boundaries(
    expected: Expected, chains: Iterable[ChainKeys], tolerance: int = TOLERANCE
) -> Score:
    """Where a lane's events change chain, against where its topics change; that a lane begins is
    not counted, for that is given. Events of no chain are the open tail: that it begins is counted,
    and what changes in it is not, for that is not judged yet."""
    chain = {key: place for place, result in enumerate(chains) for key in result.keys}
    right = count = expected_count = 0
    for keys in expected.lanes.values():
        settled = max((at for at, key in enumerate(keys) if key in chain), default=-1)
        places = range(1, min(len(keys), settled + 2))
        cuts = [at for at in places if chain.get(keys[at]) != chain.get(keys[at - 1])]
        topics = [at for at in places if keys[at] in expected.starts]
        count, expected_count = count + len(cuts), expected_count + len(topics)
        for at in topics:
            near = min(cuts, key=lambda cut, at=at: abs(cut - at), default=None)
            if near is not None and abs(near - at) <= tolerance:
                cuts.remove(near)
                right += 1
    return Score(right, count, expected_count)


def entities(expected: Expected, chains: Sequence[ChainKeys]) -> Score:
    """Names of chains against those of the topics they are about, case apart. A chain is about the
    topic of most of its events, and a topic is told by the chain that has most of it: what hangs
    together so is compared as a whole. Topics that are still open are left out."""
    topic_of = _topic_of(expected)
    both = Counter((topic_of[key], at) for at, result in enumerate(chains) for key in result.keys)
    group: dict[str | int, str | int] = {}
    for topic in {topic for topic, _ in both}:
        _join(group, topic, max(range(len(chains)), key=lambda at, of=topic: both[of, at]))
    for at in range(len(chains)):
        _join(group, at, max(expected.starts, key=lambda topic, of=at: (both[topic, of], topic)))
    expected_names: dict[str | int, set[str]] = defaultdict(set)
    topic_names: dict[str | int, set[str]] = defaultdict(set)
    for topic in {topic for topic, _ in both}:
        names = expected.names.get(topic, frozenset())
        expected_names[_head(group, topic)] |= {name.casefold() for name in names}
    for at, chain in enumerate(chains):
        topic_names[_head(group, at)] |= {name.casefold() for name in chain.names}
    right = sum(len(topic_names[head] & names) for head, names in expected_names.items())
    return Score(right, sum(map(len, topic_names.values())), sum(map(len, expected_names.values())))


def _topic_of(expected: Expected) -> dict[str, str]:
    results: dict[str, str] = {}
    for keys in expected.lanes.values():
        topic = keys[0]
        for key in keys:
            topic = key if key in expected.starts else topic
            results[key] = topic
    return results


def _head(group: Mapping[str | int, str | int], one: str | int) -> str | int:
    while group.get(one, one) != one:
        one = group[one]
    return one


def _join(group: dict[str | int, str | int], one: str | int, other: str | int) -> None:
    group[_head(group, one)] = _head(group, other)
