"""How well recall answers: every corpus through the API, beside plain ways to rank the same events.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.recall_quality [--locomo FILE] [--talks FOLDER]

R@10 is the share of a question's evidence among the first ten hits, MRR one over the rank of the
first, hit@1 whether it comes first. All of it with `min_relevance` 0; what the default leaves out
is told apart: on questions that nothing answers, and on every question asked of two other tenants.
At the end, what the references query holds of the evidence beside recall (references_quality), and
what the weight of a sona gains and loses (personas).
"""

import argparse
import json
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import psycopg

from strandline.embeddings.embedder import Embedder
from strandline.embeddings.minilm import LocalEmbedder
from strandline.log import words_index
from strandline.participants import display_name
from tests.bench import personas, recall_corpora, references_quality
from tests.bench.cost import Known
from tests.bench.recall_corpora import NONE, Corpus
from tests.bench.recall_service import Asking, RecallService, list_askings, serve
from tests.bench.relevance_samples import area_under_curve, calibration_error

DEPTH = 10
SERVICE = "Strandline"
_K1, _B = 1.5, 0.75
"""Of BM25."""


class Score(NamedTuple):
    """One question's scores."""

    recall: float
    rank: float
    first: float


def score(evidence: frozenset[str], ranked: Sequence[str]) -> Score:
    """Score the keys that a system ranks, best first."""
    places = sorted(ranked.index(key) for key in evidence if key in ranked)
    return Score(
        sum(place < DEPTH for place in places) / len(evidence),
        1 / (1 + places[0]) if places else 0.0,
        float(places[:1] == [0]),
    )


@dataclass(frozen=True)
class Row:
    """A question asked at home, or of another tenant."""

    asking: Asking
    known: float
    is_refused: bool
    """Whether the default leaves out every hit."""
    hits: Sequence[tuple[str, float]]
    """Keys and relevance, best first."""
    milliseconds: float

    @property
    def score(self) -> Score:
        """Without the default's threshold."""
        return score(self.asking.evidence, [key for key, _ in self.hits])


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


# plain ways to rank -------------------------------------------------------------------------------


class Plain:
    """Rankings of the events in view by what is easily had: BM25, cosine, and their ranks fused.

    BM25 as Robertson and Zaragoza (2009) have it, over English stems, each event with its date and
    speaker.
    """

    def __init__(self, corpus: Corpus, service: RecallService) -> None:
        self._events = corpus.events
        dated = [_dated(event) for event in corpus.events]
        self._vectors = service.embedder.embed(dated, timeout=600.0)
        self._service = service
        self._stems = _stems(service.system.base.admin_url, dated)

    def rankings(self, asking: Asking) -> dict[str, list[str]]:
        """Keys of the events in view, best first, by each way to rank."""
        viewer = set(asking.participants)
        view = [n for n, e in enumerate(self._events) if viewer <= set(e["participants"])]
        (stems,) = _stems(self._service.system.base.admin_url, [asking.question.text])
        (vector,) = self._service.embedder.embed([asking.question.text], timeout=60.0)
        words = self._bm25(view, stems)
        cosines = {n: math.sumprod(vector, self._vectors[n]) for n in view}
        by_words = sorted((n for n in view if words[n] > 0), key=lambda n: -words[n])
        by_cosine = sorted(view, key=lambda n: -cosines[n])
        fused: dict[int, float] = defaultdict(float)
        for weight, order in ((1.0, by_words), (0.5, by_cosine)):
            for place, n in enumerate(order[:200], 1):
                fused[n] += weight / (10 + place)
        by_rank = sorted(fused, key=lambda n: -fused[n])
        orders = {"BM25": by_words, "cosine": by_cosine, "ranks fused": by_rank}
        return {
            name: [self._events[n]["source_event_key"] for n in order[:20]]
            for name, order in orders.items()
        }

    def _bm25(self, view: Sequence[int], query: Mapping[str, int]) -> dict[int, float]:
        lengths = {n: sum(self._stems[n].values()) for n in view}
        mean = fmean(lengths.values()) or 1.0
        weights = {
            stem: math.log(1 + (len(view) - count + 0.5) / (count + 0.5))
            for stem in query
            for count in [sum(stem in self._stems[n] for n in view)]
        }
        scores: dict[int, float] = {}
        for n in view:
            norm = _K1 * (1 - _B + _B * lengths[n] / mean)
            held = {stem: self._stems[n].get(stem, 0) for stem in query}
            scores[n] = sum(
                weights[stem] * count * (_K1 + 1) / (count + norm) for stem, count in held.items()
            )
        return scores


def _dated(event: Mapping[str, Any]) -> str:
    said_at = recall_corpora.moment(event["occurred_at"])
    speaker = event.get("speaker")
    line = f"{display_name(speaker)}: {event['content']}" if speaker else event["content"]
    return f"[{words_index.format_date(said_at)}] {line}"


def _stems(url: str, texts: Sequence[str]) -> list[dict[str, int]]:
    """English stems with their counts, by Postgres."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "select (select jsonb_object_agg(lexeme, cardinality(positions))"
            " from unnest(to_tsvector('english', text)))"
            " from unnest(%s::text[]) with ordinality as t (text, n) order by n",
            (list(texts),),
        ).fetchall()
    return [row[0] or {} for row in rows]


# tables -------------------------------------------------------------------------------------------


def mean_score(scores: Iterable[Score]) -> dict[str, float]:
    """Means of R@10, MRR and hit@1."""
    columns = list(zip(*scores, strict=True))
    names = ("R@10", "MRR", "hit@1")
    return {name: round(fmean(column), 3) for name, column in zip(names, columns, strict=True)}


def summarize(rows: Sequence[Row], plain: Mapping[str, Sequence[Score]]) -> dict[str, Any]:
    """A corpus, or a group of them."""
    answered = [row for row in rows if row.asking.evidence]
    none = [row for row in rows if row.asking.question.kind == NONE]
    by_kind: dict[str, list[Score]] = defaultdict(list)
    for row in answered:
        by_kind[row.asking.question.kind].append(row.score)
    return {
        **mean_score(row.score for row in answered),
        "none_refused": f"{sum(row.is_refused for row in none)}/{len(none)}",
        "lost_by_default": round(
            fmean(row.score.recall if row.is_refused else 0.0 for row in answered), 3
        ),
        "p50_ms": round(median(row.milliseconds for row in answered), 1),
        "by_kind": {kind: mean_score(scores) for kind, scores in sorted(by_kind.items())},
        "plain": {name: mean_score(scores) for name, scores in plain.items()},
    }


def summarize_away(home: Sequence[Row], away: Sequence[Row]) -> dict[str, Any]:
    """How well questions with an answer are told from the same asked where nothing answers."""
    groups = sorted({row.asking.home.group for row in away})
    areas = {
        group: area_under_curve(
            [row.known for row in home if row.asking.home.group == group],
            [row.known for row in away if row.asking.home.group == group],
        )
        for group in groups
    }
    counts = Counter((row.asking.home.group, bool(row.asking.evidence)) for row in [*home, *away])

    def weight(row: Row) -> float:
        return 1 / counts[row.asking.home.group, bool(row.asking.evidence)]

    known = [(row.known, bool(row.asking.evidence), weight(row)) for row in [*home, *away]]
    relevance = [
        (value, key in row.asking.evidence, weight(row))
        for row in [*home, *away]
        for key, value in row.hits
    ]
    total = sum(map(weight, away))
    return {
        "auc": round(fmean(areas.values()), 3),
        "auc_by_group": {group: round(area, 3) for group, area in areas.items()},
        "refused": round(sum(weight(row) for row in away if row.is_refused) / total, 3),
        "calibration_error_known": round(calibration_error(known), 3),
        "calibration_error_relevance": round(calibration_error(relevance), 3),
    }


def measure(corpora: Sequence[Corpus], embedder: Embedder) -> dict[str, Any]:
    """Every question at home and away; and the plain rankings of those at home."""
    rows: dict[str, list[Row]] = defaultdict(list)
    plain: dict[str, dict[str, list[Score]]] = defaultdict(lambda: defaultdict(list))
    home: list[Row] = []
    away: list[Row] = []
    with serve(corpora, embedder) as service:
        rankers = {corpus.name: Plain(corpus, service) for corpus in corpora}
        for asking in list_askings(corpora):
            row = ask(service, asking)
            if asking.tenant is not asking.home:
                away.append(row)
                continue
            for name in (asking.home.name, f"all {asking.home.group}"):
                rows[name].append(row)
            if asking.evidence:
                home.append(row)
                for way, ranked in rankers[asking.home.name].rankings(asking).items():
                    for name in (asking.home.name, f"all {asking.home.group}"):
                        plain[name][way].append(score(asking.evidence, ranked))
        references = references_quality.measure(service, corpora)
    return {
        "references": references,
        "corpora": {name: summarize(rows[name], plain[name]) for name in sorted(rows)},
        "elsewhere": summarize_away(home, away),
    }


def table(result: Mapping[str, Any]) -> list[str]:
    """The groups, their kinds of questions, and beside them the plain rankings."""
    lines = ["| R@10 / MRR / hit@1 | questions | R@10 | MRR | hit@1 |", "|---|---|---|---|---|"]
    show: Callable[[Mapping[str, float]], str] = lambda s: " | ".join(  # noqa: E731
        f"{s[name]:.3f}" for name in ("R@10", "MRR", "hit@1")
    )
    for name, found in result["corpora"].items():
        lines.append(f"| {SERVICE} | {name} | {show(found)} |")
        if name.startswith("all "):
            lines += [f"| | … {kind} | {show(s)} |" for kind, s in found["by_kind"].items()]
            lines += [f"| {way} | {name} | {show(s)} |" for way, s in found["plain"].items()]
            lines.append(
                f"| | {name}: none refused {found['none_refused']}, R@10 lost by the default "
                f"{found['lost_by_default']:.3f}, p50 {found['p50_ms']} ms | | | |"
            )
    lines += ["", f"asked elsewhere: {json.dumps(result['elsewhere'])}", ""]
    return [*lines, *references_quality.table(result["references"])]


def main() -> None:
    """Measure, print the table, write build/recall.json."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recall_quality")
    parser.add_argument("--locomo", type=Path, help="LoCoMo's file, which is not shipped")
    parser.add_argument("--talks", type=Path, default=recall_corpora.SETS, help="a folder of sets")
    parser.add_argument("--out", type=Path, default=Path("build/recall.json"))
    arguments = parser.parse_args()
    try:
        corpora = recall_corpora.load(arguments.locomo, arguments.talks)
    except (OSError, KeyError, ValueError) as error:
        sys.exit(f"bench-recall: {error}")
    result = measure(corpora, Known(LocalEmbedder()))
    result["personas"] = personas.measure()
    for line in [*table(result), "", *personas.table(result["personas"])]:
        print(line)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
