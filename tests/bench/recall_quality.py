"""How well recall answers: every corpus through the API, beside plain ways to rank the same events.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.recall_quality [--locomo FILE] [--talks FOLDER]
    [--beam FOLDER] [--vectors FILE]

R@10 is the share of a question's evidence among the first ten hits, MRR one over the rank of the
first, all@10 whether the first ten hold all of it. These are measured with `min_relevance` 0; what
the default leaves out is told apart: on questions that nothing answers, and on every question asked
of two other tenants.
Beside it stand plain ways to rank (plain_rankings), and the same ranking by weights chosen without
the conversation that is asked (held_out). At the end, what the references query holds of the
evidence beside recall (references_quality), and what the weight of a sona gains and loses
(personas).
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from strandline.background.calibrate_space import measure_space
from strandline.embeddings.embedder import Embedder
from tests.bench import held_out, personas, recall_inputs, references_quality
from tests.bench.plain_rankings import Plain, open_bare_sql
from tests.bench.recall_corpora import NONE, Corpus
from tests.bench.recall_service import Asking, RecallService, candidates_of, list_askings, serve
from tests.bench.recall_tables import ALL, MEASURES, tables
from tests.bench.told_apart import Verdict, calibration_errors, share, tell_apart

DEPTH = 10


class Score(NamedTuple):
    """One question's scores."""

    recall: float
    rank: float
    whole: float


def score(evidence: frozenset[str], ranking: Sequence[str]) -> Score:
    """Score the keys that a system ranks, best first."""
    places = sorted(ranking.index(key) for key in evidence if key in ranking)
    found = sum(place < DEPTH for place in places)
    return Score(
        found / len(evidence),
        1 / (1 + places[0]) if places else 0.0,
        float(found == len(evidence)),
    )


@dataclass(frozen=True)
class Row:
    """A question asked at home, or of another tenant."""

    asking: Asking
    known: float
    is_refused: bool
    """Whether the default leaves out every hit."""
    hits: Sequence[tuple[str, float | None]]
    """Keys and relevance, best first; an event of a topic that breadth added has none."""
    milliseconds: float

    @property
    def score(self) -> Score:
        """Without the default's threshold."""
        return score(self.asking.evidence, [key for key, _ in self.hits])

    @property
    def verdict(self) -> Verdict:
        """What the answer says of itself."""
        evidence = self.asking.evidence
        return Verdict(
            self.known,
            bool(evidence),
            self.is_refused,
            self.score.recall if evidence else 0.0,
            [(value, key in evidence) for key, value in self.hits if value is not None],
        )


def ask(service: RecallService, asking: Asking) -> Row:
    """Ask a question twice: for all hits, and for what the default gives."""
    began = time.perf_counter()
    answer = service.recall(asking, min_relevance=0)
    milliseconds = (time.perf_counter() - began) * 1000
    keys = service.hit_keys(answer)
    return Row(
        asking,
        answer["known"],
        not service.recall(asking)["hits"],
        [(key, hit["relevance"]) for key, hit in zip(keys, answer["hits"], strict=True)],
        milliseconds,
    )


# tables -------------------------------------------------------------------------------------------


def mean_score(scores: Iterable[Score]) -> dict[str, float]:
    """Means of R@10, MRR and all@10."""
    columns = list(zip(*scores, strict=True))
    return {name: round(fmean(column), 3) for name, column in zip(MEASURES, columns, strict=True)}


def summarize(
    rows: Sequence[Row], away: Sequence[Row], plain: Mapping[str, Sequence[Score]]
) -> dict[str, Any]:
    """A corpus, or a group of them; `away` are its questions asked of other tenants."""
    answers = [row for row in rows if row.asking.evidence]
    none = [row for row in rows if row.asking.question.kind == NONE]
    by_kind: dict[str, list[Score]] = defaultdict(list)
    for row in answers:
        by_kind[row.asking.question.kind].append(row.score)
    return {
        **mean_score(row.score for row in answers),
        "group": rows[0].asking.home.group,
        "questions": len(answers),
        "none_refused": share([row.is_refused for row in none]),
        "none_questions": len(none),
        "p50_ms": round(median(row.milliseconds for row in answers), 1),
        "by_kind": {kind: mean_score(scores) for kind, scores in sorted(by_kind.items())},
        "plain": {name: mean_score(scores) for name, scores in plain.items()},
        "elsewhere": tell_apart([r.verdict for r in answers], [r.verdict for r in away]),
    }


def measure(corpora: Sequence[Corpus], embedder: Embedder) -> dict[str, Any]:
    """Every question at home and away; the plain rankings of those at home; and the same questions
    by weights chosen without their conversation."""
    rows: dict[str, list[Row]] = defaultdict(list)
    away: dict[str, list[Row]] = defaultdict(list)
    plain: dict[str, dict[str, list[Score]]] = defaultdict(lambda: defaultdict(list))
    askings = list_askings(corpora)
    with serve(corpora, embedder) as service, open_bare_sql(service) as bare:
        rankers = {corpus.name: Plain(corpus, service, bare) for corpus in corpora}
        for asking in askings:
            row = ask(service, asking)
            names = (asking.home.name, f"{ALL}{asking.home.group}")
            is_home = asking.tenant is asking.home
            for name in names:
                (rows if is_home else away)[name].append(row)
            if asking.evidence:
                for way, ranking in rankers[asking.home.name].rankings(asking).items():
                    for name in names:
                        plain[name][way].append(score(asking.evidence, ranking))
        candidates = list(candidates_of(service, askings, with_vector=True))
        references = references_quality.measure(service, corpora)
    without = held_out.measure(candidates, measure_space(embedder))
    return {
        "references": references,
        "corpora": {
            name: summarize(rows[name], away[name], plain[name])
            | {"held_out": without["corpora"][name]}
            for name in sorted(rows)
        },
        "weights_held_out": without["weights"],
        "elsewhere": _mean_apart(rows, away),
    }


def _mean_apart(
    rows: Mapping[str, Sequence[Row]], away: Mapping[str, Sequence[Row]]
) -> dict[str, Any]:
    """All groups together, each alike."""
    verdicts: list[tuple[Verdict, float]] = []
    areas: dict[str, float] = {}
    refusals: list[float] = []
    for name in (name for name in sorted(rows) if name.startswith(ALL)):
        home = [row.verdict for row in rows[name] if row.asking.evidence]
        others = [row.verdict for row in away[name]]
        verdicts += [(verdict, 1 / len(side)) for side in (home, others) for verdict in side]
        areas[name.removeprefix(ALL)] = tell_apart(home, others)["auc"]
        refusals.append(fmean(verdict.is_refused for verdict in others))
    return {
        "auc": round(fmean(areas.values()), 3),
        "auc_by_group": areas,
        "refused": round(fmean(refusals), 3),
        **calibration_errors(verdicts),
    }


def main() -> None:
    """Measure, print the table, write build/recall.json."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recall_quality")
    recall_inputs.add_arguments(parser)
    parser.add_argument("--out", type=Path, default=Path("build/recall.json"))
    arguments = parser.parse_args()
    corpora = recall_inputs.load_corpora(arguments)
    figures = measure(corpora, recall_inputs.make_embedder(arguments))
    figures["personas"] = personas.measure()
    print(*tables(figures["corpora"]), sep="\n")
    print(f"asked elsewhere: {json.dumps(figures['elsewhere'])}", "", sep="\n")
    print(*references_quality.table(figures["references"]), "", sep="\n")
    print(*personas.table(figures["personas"]), sep="\n")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
