"""What recency and importance would do to the default order: every corpus ranked with each at
several weights, beside the order as it is.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.recall_weights --locomo FILE

A corpus has no history of use. So half of its questions are asked first, by the API with its
defaults, and the other half is ranked with the importance that follows; then the other way round.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from strandline.db.database import Caller
from strandline.embeddings.local import LocalEmbedder
from strandline.embeddings.space_figures import SHIPPED_FIGURES
from strandline.recall.calibrations import CALIBRATION
from strandline.recall.importance import (
    WEIGHT_DEVIATIONS,
    WINDOW_DAYS,
    compute_importance_from_daily_use,
    compute_recency,
    fold_answers_into_event_uses,
)
from strandline.recall.store_importance import read_daily_event_uses
from tests.bench import recall_corpora
from tests.bench.cost import RememberingEmbedder
from tests.bench.recall_corpora import Corpus
from tests.bench.recall_service import Asking, RecallService, serve
from tests.bench.relevance_samples import DEPTH, Array, Sample, Scores, by_group, make_sample

WEIGHTS: Mapping[str, Sequence[float]] = {
    "recency": (0.02, 0.05, 0.1, 0.2),
    "importance": (0.1, 0.25, 0.5, 1.0),
}
_ANSWERS_OF_A_FOLD = 1000


def with_traits(service: RecallService, asking: Asking) -> Sample:
    """A question's candidates, with two columns more: recency, as of what was never used, and
    importance for those who ask."""
    candidates = service.candidates(asking, with_vector=True)
    sample = make_sample(candidates, SHIPPED_FIGURES[LocalEmbedder.space])
    asked_at = recall_corpora.moment(
        asking.question.asked_at or asking.home.events[-1]["occurred_at"]
    )
    access = service.database.connect_as(
        Caller(asking.tenant.name, tuple(sorted(asking.participants)))
    )
    events = [(row.event_id, row.scope_id) for row in candidates.rows]
    uses = read_daily_event_uses(access, events, datetime.now(UTC), WINDOW_DAYS)
    traits = [
        (
            compute_recency(asked_at.astimezone(UTC) - row.said_at, 0.0),
            compute_importance_from_daily_use(uses.get(row.event_id, ())),
        )
        for row in candidates.rows
    ]
    columns = np.array(traits, dtype=np.float64).reshape(len(traits), 2)
    return replace(sample, features=np.hstack([sample.features, columns]))


def samples_of(service: RecallService, corpus: Corpus) -> Iterator[Sample]:
    """Every question with an answer, after those of the other half were asked."""
    questions = [question for question in corpus.questions if question.evidence]
    askings = [Asking(question, corpus, corpus, question.participants) for question in questions]
    background = service.database.connect_as(Caller.background(corpus.name))
    for half in (0, 1):
        with background.transaction():
            background.execute("delete from event_uses", {})
            background.execute("delete from recall_answers", {})
        for asking in askings[1 - half :: 2]:
            service.recall(asking, limit=DEPTH)
        while fold_answers_into_event_uses(background, datetime.now(UTC), _ANSWERS_OF_A_FOLD):
            pass
        for asking in askings[half::2]:
            yield with_traits(service, asking)


def weigh(recency: float = 0.0, importance: float = 0.0) -> Array:
    """The weights of all columns."""
    features = CALIBRATION.features
    return np.array([*features, WEIGHT_DEVIATIONS * recency, WEIGHT_DEVIATIONS * importance])


def table(samples: Sequence[Sample]) -> list[str]:
    """Lines of Markdown: the order as it is, and what each weight adds to it."""
    plain = by_group(samples, weigh())
    lines = [
        f"| R@10 / MRR | {' | '.join(plain)} |",
        "|---" * (len(plain) + 1) + "|",
        f"| as it is | {' | '.join(f'{s.recall:.3f} / {s.rank:.3f}' for s in plain.values())} |",
    ]
    for name, weights in WEIGHTS.items():
        for weight in weights:
            result = by_group(samples, weigh(**{name: weight}))
            parts = (_difference(result[group], scores) for group, scores in plain.items())
            lines.append(f"| {name} {weight:g} | {' | '.join(parts)} |")
    return lines


def _difference(result: Scores, plain: Scores) -> str:
    return f"{result.recall - plain.recall:+.3f} / {result.rank - plain.rank:+.3f}"


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recall_weights")
    parser.add_argument("--locomo", type=Path, help="LoCoMo's file, which is not shipped")
    arguments = parser.parse_args()
    corpora = recall_corpora.load(arguments.locomo)
    with serve(corpora, RememberingEmbedder(LocalEmbedder())) as service:
        samples = [sample for corpus in corpora for sample in samples_of(service, corpus)]
    print(*table(samples), sep="\n")


if __name__ == "__main__":
    main()
