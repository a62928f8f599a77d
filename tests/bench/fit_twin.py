"""Fit the twin's weights: `make twin` prints what to put into models/cohesion.py, and how weights
that were fitted to all conversations but one do on that one.

A logistic regression (maximum likelihood, `RIDGE` on cues of equal spread) at every user message
of each topic as people marked it, each conversation of equal weight; the bias is then moved by
`SHIFT`: a boundary found too often costs less than one missed. Both are by what they gave on
held-out conversations, where half and twice as much gave the same within 0.02.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from strandline.local.scores import Found, boundaries
from strandline.models import cohesion
from strandline.models.language import Said
from tests.bench import talks
from tests.bench.talks import Talk

SHIFT = 0.45
RIDGE = 20.0
_STEPS = 50
type Matrix = NDArray[np.float64]


def read() -> list[Talk]:
    """The conversations that the weights are fitted to."""
    return [talks.read(path) for path in talks.FITTED]


class Sample(NamedTuple):
    """A conversation's cues, a row for each user message that has something before it, and whether
    a topic begins there."""

    cues: Matrix
    begins: Matrix


def sample(talk: Talk) -> Sample:
    """What people say of a conversation, told in cues."""
    rows: list[Sequence[float]] = []
    begins: list[bool] = []
    by_key = {event.key: event for event in talk.events}
    for keys in talk.expected.lanes.values():
        before: list[Said] = []
        flows: frozenset[str] = frozenset()
        for event in (by_key[key] for key in keys):
            first = event.key in talk.expected.starts
            if event.turn.asks:
                if before and not flows & event.turn.flows and not _silent(before, event.said):
                    rows.append(cohesion.cues(before, event.said))
                    begins.append(first)
                flows = event.turn.flows
            before = [event.said] if first else [*before, event.said]
    return Sample(np.array(rows, float), np.array(begins, float))


def fit(samples: Sequence[Sample]) -> Matrix:
    """Weights and, last, the bias: Newton's method on the penalised likelihood."""
    cues = np.vstack([one.cues for one in samples])
    middle, spread = cues.mean(axis=0), cues.std(axis=0) + 1e-9
    cues = np.column_stack([(cues - middle) / spread, np.ones(len(cues))])
    begins = np.concatenate([one.begins for one in samples])
    equal = np.concatenate([np.full(len(one.begins), 100 / len(one.begins)) for one in samples])
    ridge = np.diag([RIDGE] * (cues.shape[1] - 1) + [1e-9])
    found = np.zeros(cues.shape[1])
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-cues @ found))
        slope = cues.T @ (equal * (chance - begins)) + ridge @ found
        curve = (cues.T * (equal * chance * (1 - chance))) @ cues + ridge
        found -= np.linalg.solve(curve, slope)
    weights = found[:-1] / spread
    return np.append(weights, found[-1] - weights @ middle)


def rounded(found: Matrix) -> tuple[tuple[float, ...], float]:
    """Weights and bias as they stand in the code."""
    *weights, bias = found.tolist()
    return tuple(round(weight, 2) for weight in weights), round(bias + SHIFT, 2)


def score(talk: Talk, found: Matrix) -> float:
    """Boundary F1 of a conversation that is cut by these weights alone, and by long silences."""
    chains: list[Found] = []
    by_key = {event.key: event for event in talk.events}
    for keys in talk.expected.lanes.values():
        before: list[Said] = []
        flows: frozenset[str] = frozenset()
        run: list[str] = []
        for event in (by_key[key] for key in keys):
            asks = event.turn.asks and before and not flows & event.turn.flows
            flows = event.turn.flows if event.turn.asks else flows
            if (asks and _breaks(before, event.said, found)) or _silent(before, event.said):
                chains.append(Found(run, ()))
                before, run = [], []
            before.append(event.said)
            run = [*run, event.key]
        chains.append(Found(run, ()))
    return boundaries(talk.expected, chains).f1


def _breaks(before: Sequence[Said], said: Said, found: Matrix) -> bool:
    weights: list[float] = found.tolist()
    return math.sumprod(weights, [*cohesion.cues(before, said), 1.0]) + SHIFT > 0


def _silent(before: Sequence[Said], said: Said) -> bool:
    return bool(before) and (said.at - before[-1].at).total_seconds() > talks.GAP_MINUTES * 60


def main() -> None:
    """Print weights, and each conversation's boundary F1 by the weights of the others."""
    known = read()
    samples = [sample(talk) for talk in known]
    print("| conversation | user messages | topics begin | held out | fitted to all |")
    print("|---|---|---|---|---|")
    together = fit(samples)
    for place, talk in enumerate(known):
        apart = fit([*samples[:place], *samples[place + 1 :]])
        begins = samples[place].begins
        print(
            f"| {talk.name} | {len(begins)} | {int(begins.sum())} | {score(talk, apart):.3f} "
            f"| {score(talk, together):.3f} |"
        )
    weights, bias = rounded(together)
    print(f"WEIGHTS = {weights}\nBIAS = {bias}")


if __name__ == "__main__":
    main()
