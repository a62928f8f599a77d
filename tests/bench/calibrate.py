"""Figures of an embedding space, and how good the thresholds are that follow from them: what its
cosines say about topics.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.calibrate [--locomo FILE] [TALK ...]

It takes the embedder that STRANDLINE_EMBEDDING_* name, and the talks that ship: tests/bench/corpus
and events/demo. Beside the thresholds that follow from the figures it prints those that the space
would have by its own corpora:

- `low` is the highest cosine, and `high` the lowest, beyond which at least SURE of the pairs of a
  lane's two latest user messages break, or go on, and at least PAIRS of them do. What lies between
  is asked; where no cosine is that sure of itself, all that lies on its side is.
- `merge` is the cosine that the summary of one topic in twenty reaches with the nearest of another
  topic, in the pool where that is the most: the corpus, whose topics are all different, and each
  conversation of LoCoMo, where two people talk about themselves for months. The demo is no pool:
  it comes back to its topics on purpose.
"""

import argparse
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from strandline.background.calibrate_space import measure_space
from strandline.chains.segmentation import cosine_similarity
from strandline.config import PREFIX, ServiceSettings
from strandline.embeddings.embedder import Embedder
from strandline.embeddings.factory import make_embedder
from strandline.embeddings.similarity_thresholds import (
    ADA_002,
    Thresholds,
    derive_thresholds,
)
from strandline.llm.heuristic.model import HeuristicModel
from tests.bench import locomo, scores, talks
from tests.bench.talks import Event, Talk

SURE = 0.95
PAIRS = 5
STRAYS = 0.05
"""Share of topics whose summary may find another topic's alike."""
_STEP = 100
"""Thresholds are given to so many parts of one."""
_SECONDS = 60.0


class Pair(NamedTuple):
    """A lane's two latest user messages: how alike they are, and whether the topic changed."""

    cosine: float
    breaks: bool


@dataclass(frozen=True)
class Shares:
    """What part of the pairs the thresholds decide, and how."""

    pairs: int
    broken: float
    gray: float
    continued: float

    def __str__(self) -> str:
        return f"{self.broken:.1%} | {self.gray:.1%} | {self.continued:.1%}"


def main() -> None:
    """Print the figures, the thresholds and the tables."""
    request = _arguments()
    embedder = make_embedder(_settings())
    read = [talks.read(path) for path in request.talks]
    vectors = {talk.name: talks.vectors(embedder, talk) for talk in read}
    pairs = {talk.name: list(pairs_of(talk, vectors[talk.name])) for talk in read}
    pools = [topics_of(talk) for talk in read if talk.name == talks.CORPUS.stem]
    if request.locomo:
        months = [talks.of_locomo(one, one_lane=False) for one in locomo.load(request.locomo)]
        within = [pairs_of(talk, talks.vectors(embedder, talk)) for talk in months]
        pairs["LoCoMo, within sessions"] = [pair for some in within for pair in some]
        pools += [topics_of(talk) for talk in months]
    pairs_of_defaults = [pair for talk in read for pair in pairs[talk.name]]
    low, high = edges(pairs_of_defaults)
    merge = max(stray(embedder, pool) for pool in pools)
    figures = measure_space(embedder)
    thresholds = derive_thresholds(figures)
    print(f"`{embedder.space}`: {figures}\n{thresholds}")
    print(f"by its own corpora: low {low:g}, high {high:g}, merge at least {merge:g}")
    for line in table(pairs, {"derived": thresholds, "Athena's": ADA_002}):
        print(line)
    print()
    for talk in read:
        runs = talks.fold(talk, vectors[talk.name], thresholds)
        print(f"{talk.name}: boundaries {scores.boundaries(talk.expected, talks.chains_of(runs))}")


def pairs_of(talk: Talk, vectors: dict[int, list[float]]) -> Iterator[Pair]:
    """Each user message of a lane with the one before it; across a gap nothing is compared, as in
    the fold."""
    topics: dict[str, int] = {}
    last: dict[str, tuple[Event, int]] = {}
    before: dict[str, Event] = {}
    for event in talk.events:
        lane = event.turn.session_id
        topics[lane] = topics.get(lane, 0) + (event.key in talk.expected.starts)
        gap = lane in before and _minutes(before[lane], event) > talks.GAP_MINUTES
        before[lane] = event
        if gap:
            last.pop(lane, None)
        if not event.turn.is_user_message:
            continue
        if lane in last:
            other, topic = last[lane]
            alike = cosine_similarity(vectors[event.turn.seq], vectors[other.turn.seq])
            yield Pair(alike, topic != topics[lane])
        last[lane] = event, topics[lane]


def edges(pairs: Sequence[Pair]) -> tuple[float, float]:
    """`low` and `high`, as the criterion has them; -1 and 1 where nothing is sure enough."""
    low, high = -1.0, 1.0
    steps = [step / _STEP for step in range(-_STEP, _STEP + 1)]
    for step in steps:
        below = [pair.breaks for pair in pairs if pair.cosine < step]
        if len(below) >= PAIRS and sum(below) >= SURE * len(below):
            low = step
    for step in reversed(steps):
        above = [not pair.breaks for pair in pairs if pair.cosine >= step]
        if step > low and len(above) >= PAIRS and sum(above) >= SURE * len(above):
            high = step
    return low, high


def shares(pairs: Sequence[Pair], thresholds: Thresholds) -> Shares:
    """What part of the pairs is decided by their cosine."""
    fault_count = sum(pair.cosine < thresholds.low for pair in pairs)
    continued = sum(pair.cosine >= thresholds.high for pair in pairs)
    count = max(1, len(pairs))
    gray = len(pairs) - fault_count - continued
    return Shares(len(pairs), fault_count / count, gray / count, continued / count)


def table(pairs: dict[str, list[Pair]], thresholds: dict[str, Thresholds]) -> Iterator[str]:
    """Lines of Markdown: a row for each corpus and each pair of thresholds."""
    yield "| corpus | pairs | thresholds | break | gray | continue |"
    yield "|---|---|---|---|---|---|"
    for corpus, pair in pairs.items():
        for name, threshold in thresholds.items():
            cut = f"{name}: {threshold.low:g} and {threshold.high:g}"
            yield f"| {corpus} | {len(pair):,} | {cut} | {shares(pair, threshold)} |"


def stray(embedder: Embedder, topics: Sequence[Sequence[Event]]) -> float:
    """The cosine that all but STRAYS of these topics' summaries stay below with any other's,
    rounded up."""
    summaries = _summaries(embedder, topics)
    nearest = [-1.0] * len(summaries)
    for one, other in combinations(range(len(summaries)), 2):
        alike = cosine_similarity(summaries[one], summaries[other])
        nearest[one], nearest[other] = max(nearest[one], alike), max(nearest[other], alike)
    most = sorted(nearest)[math.ceil((1 - STRAYS) * len(nearest)) - 1]
    return math.ceil(most * _STEP) / _STEP


def topics_of(talk: Talk) -> list[list[Event]]:
    """Each topic's events, as people marked them."""
    results: list[list[Event]] = []
    current: dict[str, list[Event]] = {}
    for event in talk.events:
        if event.key in talk.expected.starts:
            current[event.turn.session_id] = []
            results.append(current[event.turn.session_id])
        current[event.turn.session_id].append(event)
    return results


def _summaries(embedder: Embedder, topics: Sequence[Sequence[Event]]) -> list[list[float]]:
    heuristic = HeuristicModel()
    texts = [heuristic.summarise([event.prompt for event in topic]).summary for topic in topics]
    return embedder.embed(texts, timeout=_SECONDS)


def _minutes(one: Event, other: Event) -> float:
    return (other.turn.said_at - one.turn.said_at).total_seconds() / 60


def _settings() -> ServiceSettings:
    """The environment's, and for what calibrating does not need whatever passes."""
    environment = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
    unused = {f"{PREFIX}{name}": "-" * 32 for name in ("DATABASE_URL", "BUCKET", "KEY_SECRET")}
    return ServiceSettings.from_env({**unused, **environment})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.calibrate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    defaults = list(talks.FITTING_SET)
    parser.add_argument("talks", nargs="*", type=Path, default=defaults, metavar="TALK")
    parser.add_argument("--locomo", type=Path, metavar="FILE", help="to count its pairs as well")
    return parser.parse_args()


if __name__ == "__main__":
    main()
