"""Fit the heuristic model's weights: `make bench NAME=fit-heuristic`. It prints how weights fitted
to all conversations but one do on that one, and writes weights fitted to all of them into
weights.json beside topic_continuation.py.

The fit is a logistic regression (maximum likelihood, `RIDGE` on cues of equal spread) at every user
message, against the topics that people marked. Each conversation has the same weight. The bias is
then moved by `SHIFT`, because a boundary found too often costs less than one missed. `RIDGE` and
`SHIFT` were chosen on held-out conversations; half and twice as much gave the same within 0.02.
Every message is fitted once more, at the weight `CUT_SHORT`, with fewer events after it than the
fold waits for: a session may end there, and a tenant may wait for fewer.
"""

import argparse
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from strandline.llm.heuristic import topic_continuation
from strandline.llm.types import PromptEvent
from tests.bench import talks
from tests.bench.scores import ChainKeys, boundaries
from tests.bench.talks import Event, Talk

SHIFT = 0.5
RIDGE = 20.0
CUT_SHORT = {0: 0.15, 1: 0.1, 2: 0.1}
"""By the number of events that are left of those after a message."""
FILE = Path(topic_continuation.__file__).parent / "weights.json"
_STEPS = 50
type Matrix = NDArray[np.float64]


def read() -> list[Talk]:
    """The conversations that the weights are fitted to."""
    return [talks.read(path) for path in talks.FITTING_SET]


class Sample(NamedTuple):
    """A conversation's cues, rows for each user message that has something before it, whether a
    topic begins there, and what each row weighs."""

    cues: Matrix
    begins: Matrix
    weight: Matrix

    @property
    def whole(self) -> NDArray[np.bool_]:
        """The rows that have all that came after."""
        return self.weight == self.weight.max()


def sample(talk: Talk) -> Sample:
    """What people say of a conversation, told in cues."""
    rows: list[Sequence[float]] = []
    begins: list[bool] = []
    weights: list[float] = []

    def judge(
        before: Sequence[PromptEvent], event: PromptEvent, after: Sequence[PromptEvent], first: bool
    ) -> bool:
        for most, weight in {**CUT_SHORT, len(after): 1.0}.items():
            rows.append(topic_continuation.compute_cues(before, event, after[:most]))
            begins.append(first)
            weights.append(weight)
        return first

    _walk(talk, judge, as_marked=True)
    share = 100 * np.array(weights) / weights.count(1.0)
    return Sample(np.array(rows, float), np.array(begins, float), share)


type Judge = Callable[[Sequence[PromptEvent], PromptEvent, Sequence[PromptEvent], bool], bool]
"""Whether a topic begins at a message, of what was before and came after it, and whether people
say so."""


def _walk(
    talk: Talk, judge: Judge, *, as_marked: bool, ahead: int = talks.DEFAULTS.ahead_events
) -> list[ChainKeys]:
    """The runs that these judgements make. `as_marked`: at all other events topics begin where
    people say. `ahead`: so many events are waited for."""
    by_key = {event.key: event for event in talk.events}
    chains: list[ChainKeys] = []
    for keys in talk.expected.lanes.values():
        events = [by_key[key] for key in keys]
        before: list[PromptEvent] = []
        flows: frozenset[str] = frozenset()
        run: list[str] = []
        for place, event in enumerate(events):
            first = event.key in talk.expected.starts
            begins = _silent(before, event.prompt)
            if event.turn.is_user_message:
                if before and not begins and not flows & event.turn.flow_ids:
                    begins = judge(before, event.prompt, _after(events, place, ahead), first)
                flows = event.turn.flow_ids
            if begins or (as_marked and first):
                chains += [ChainKeys(run, ())] if run else []
                before, run = [], []
            before.append(event.prompt)
            run.append(event.key)
        chains.append(ChainKeys(run, ()))
    return chains


def _after(events: Sequence[Event], place: int, ahead: int) -> list[PromptEvent]:
    """What the fold waits for: a few events, none of them past a silence."""
    results = [events[place].prompt]
    for event in events[place + 1 : place + 1 + ahead]:
        if _silent(results, event.prompt):
            break
        results.append(event.prompt)
    return results[1:]


def fit(samples: Sequence[Sample]) -> Matrix:
    """Weights and, last, the bias: Newton's method on the penalised likelihood."""
    cues = np.vstack([one.cues for one in samples])
    middle, spread = cues.mean(axis=0), cues.std(axis=0) + 1e-9
    cues = np.column_stack([(cues - middle) / spread, np.ones(len(cues))])
    begins = np.concatenate([one.begins for one in samples])
    equal = np.concatenate([one.weight for one in samples])
    ridge = np.diag([RIDGE] * (cues.shape[1] - 1) + [1e-9])
    solution = np.zeros(cues.shape[1])
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-cues @ solution))
        slope = cues.T @ (equal * (chance - begins)) + ridge @ solution
        curve = (cues.T * (equal * chance * (1 - chance))) @ cues + ridge
        solution -= np.linalg.solve(curve, slope)
    weights = solution[:-1] / spread
    return np.append(weights, solution[-1] - weights @ middle)


def file_text(matrix: Matrix) -> str:
    """What weights.json holds of these: rounded, each weight under its cue's name."""
    *weights, bias = matrix.tolist()
    by_name = {
        name: round(weight, 2)
        for name, weight in zip(topic_continuation.TopicBreakCues._fields, weights, strict=True)
    }
    return json.dumps({"bias": round(bias + SHIFT, 2), "weights": by_name}, indent=2) + "\n"


def score(talk: Talk, matrix: Matrix, ahead: int = talks.DEFAULTS.ahead_events) -> float:
    """Boundary F1 of a conversation that is cut by these weights alone, and by long silences."""
    weights: list[float] = matrix.tolist()

    def judge(
        before: Sequence[PromptEvent], event: PromptEvent, after: Sequence[PromptEvent], _: bool
    ) -> bool:
        return (
            math.sumprod(weights, [*topic_continuation.compute_cues(before, event, after), 1.0])
            + SHIFT
            > 0
        )

    return boundaries(talk.expected, _walk(talk, judge, as_marked=False, ahead=ahead)).f1


def _silent(before: Sequence[PromptEvent], event: PromptEvent) -> bool:
    return (
        bool(before)
        and (event.said_at - before[-1].said_at).total_seconds() > talks.GAP_MINUTES * 60
    )


def main() -> None:
    """Print each conversation's boundary F1 by the weights of the others; write those of all."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    content = read()
    samples = [sample(talk) for talk in content]
    print("| conversation | topics begin | held out | held out, judged at once | fitted to all |")
    print("|---|---|---|---|---|")
    together = fit(samples)
    means: list[list[float]] = []
    for place, talk in enumerate(content):
        apart = fit([*samples[:place], *samples[place + 1 :]])
        means.append([score(talk, apart), score(talk, apart, 0), score(talk, together)])
        begins = int(samples[place].begins[samples[place].whole].sum())
        print(f"| {talk.name} | {begins} | {_cells(means[-1])} |")
    print(f"| mean | | {_cells(np.mean(means, axis=0).tolist())} |")
    FILE.write_text(file_text(together), encoding="utf-8")
    print(f"weights: {FILE}")


def _cells(figures: Sequence[float]) -> str:
    return " | ".join(f"{figure:.3f}" for figure in figures)


if __name__ == "__main__":
    main()
