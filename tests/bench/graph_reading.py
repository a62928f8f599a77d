"""What the knowledge graph gives to those who ask: every question of every corpus, with what the
heuristic model extracted from it.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.graph_reading [--locomo FILE] [--talks FOLDER]

- As a candidate source of recall: events that the graph cites about the question are ranked higher
  (`facts`: what facts and decisions cite, the nearer the more; `all`: what any node cites), or the
  nearest facts' events take the last two of the ten places (`places`). R@10 and MRR less those
  without the graph.
- In a context's text at 1,000 tokens: how much of a question's evidence the text cites with and
  without the section of what is known, and how often a line of that section cites some.
"""

import argparse
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from strandline.db.database import Caller
from strandline.embeddings.local import LocalEmbedder
from strandline.embeddings.space_figures import SHIPPED_FIGURES
from strandline.graph.nodes.node_types import NodeType
from strandline.graph.search.read_for_recall import RelevantKnowledge, read_relevant_knowledge
from strandline.graph.search.search import ALL_TYPES
from strandline.recall.calibrations import calibration_for
from strandline.recall.relevance import rank_candidates
from tests.bench import recall_corpora
from tests.bench.cost import RememberingEmbedder
from tests.bench.recall_corpora import Corpus
from tests.bench.recall_quality import DEPTH, Score, score
from tests.bench.recall_service import Asking, RecallService, serve
from tests.context_block import KNOWN_HEADING, SAID_HEADING, read_block

BUDGET = 1000
_HOP_WEIGHTS = (1.0, 0.5, 0.25)
_BONUSES = (0.02, 0.05, 0.1)
_PLACES = 2
"""How many of the ten places go to what the graph cites."""

type Ranking = Callable[[Mapping[str, float], Mapping[str, float]], list[str]]
"""Ranks events by their scores and by what the graph says of them."""


@dataclass
class Results:
    """Scores of one group or kind of questions."""

    ranked: dict[str, list[Score]] = field(default_factory=lambda: defaultdict(list))
    """Of each way to rank."""
    found: list[bool] = field(default_factory=list[bool])
    """Whether the graph cites any of the evidence."""
    shown: dict[bool, list[float]] = field(default_factory=lambda: defaultdict(list))
    """The share of the evidence that the text cites, with the section and without."""
    lines: list[int] = field(default_factory=list[int])
    told: list[bool] = field(default_factory=list[bool])
    """Whether a line of the section cites any of the evidence."""
    milliseconds: dict[bool, list[float]] = field(default_factory=lambda: defaultdict(list))


def promote(service: RecallService, corpora: Sequence[Corpus]) -> None:
    """Fold what is stored, and promote every chain that is listed, whatever its heat."""
    base, system = service.system.base, service.system
    system.fold()
    base.rows(
        "update chains set accessed_at = now() - interval '1 hour',"
        " promote_until = now() + interval '1 day' where status = 'active'"
    )
    for corpus in corpora:
        system.gateway.run_job("promoter", corpus.name)
    system.embed()
    if not base.rows("select from graph_nodes limit 1"):
        raise RuntimeError("nothing was promoted")


def boost(weight: float) -> Ranking:
    """What the graph cites counts more."""

    def rank(scores: Mapping[str, float], citations: Mapping[str, float]) -> list[str]:
        return sorted(scores, key=lambda key: -(scores[key] + weight * citations.get(key, 0.0)))

    return rank


def give_places(scores: Mapping[str, float], citations: Mapping[str, float]) -> list[str]:
    """The last of the ten places go to the best that the graph cites and that has none."""
    order = sorted(scores, key=lambda key: -scores[key])
    first = order[: DEPTH - _PLACES]
    others = sorted((key for key in citations if key not in first), key=lambda key: -citations[key])
    return list(dict.fromkeys([*first, *others[:_PLACES], *order]))


def cite(
    service: RecallService,
    knowledge: RelevantKnowledge,
    types: Sequence[NodeType] = ("fact", "decision"),
    *,
    by_cosine: bool = False,
) -> dict[str, float]:
    """The events that nodes about a question cite, with what that says of each."""
    citations: dict[str, float] = {}
    for node in knowledge.nodes:
        if node.type in types:
            weight = max(node.similarity or 0, 0) if by_cosine else _HOP_WEIGHTS[node.hops]
            for event_id in node.event_ids:
                key = service.event_keys.get(str(event_id))
                if key is not None:
                    citations[key] = max(citations.get(key, 0.0), weight)
    return citations


def rank_all(service: RecallService, asking: Asking) -> tuple[dict[str, Score], bool]:
    """The scores of a question by each way to rank, and whether the graph cites its evidence."""
    candidates = service.candidates(asking, with_vector=True)
    space = service.embedder.space
    calibration = calibration_for(space, SHIPPED_FIGURES[space], asking.question.text)
    ranking = rank_candidates(
        candidates.question,
        candidates.words,
        candidates.rows,
        candidates.events_in_view,
        calibration,
    )
    scores = {service.event_keys[str(e.candidate.event_id)]: e.score for e in ranking.events}
    text, viewer = asking.question.text, tuple(sorted(asking.participants))
    access = service.database.connect_as(Caller(asking.tenant.name, viewer))
    (vector,) = service.embedder.embed([text], timeout=60.0, purpose="question")
    knowledge = read_relevant_knowledge(access, text, vector, service.embedder.space)
    by_hops = cite(service, knowledge)
    by_all = cite(service, knowledge, ALL_TYPES)
    by_cosine = cite(service, knowledge, by_cosine=True)
    orders = {"without": sorted(scores, key=lambda key: -scores[key])}
    for weight in _BONUSES:
        orders[f"facts +{weight}"] = boost(weight)(scores, by_hops)
        orders[f"all +{weight}"] = boost(weight)(scores, by_all)
    orders["places"] = give_places(scores, by_cosine)
    evidence = asking.evidence
    return {way: score(evidence, order) for way, order in orders.items()}, bool(
        evidence & {*by_hops}
    )


def read_text(service: RecallService, asking: Asking) -> tuple[set[str], int, set[str], float]:
    """What a context's text cites, how many lines of it are known, what these cite, and how long
    the call took."""
    body: dict[str, Any] = {
        "query": asking.question.text,
        "participants": list(asking.participants),
        "budget": BUDGET,
        "min_relevance": 0,
        **({"now": asking.question.asked_at} if asking.question.asked_at else {}),
    }
    began = time.perf_counter()
    reply = service.system.gateway.call(
        "POST", "/api/v1/context", body, key=service.keys[asking.tenant.name]
    )
    milliseconds = (time.perf_counter() - began) * 1000
    if reply.status != 200:
        raise RuntimeError(f"{reply.status}: {reply.text[:500]}")
    keys = {c["n"]: service.event_keys.get(c["event_id"], "") for c in reply.body["citations"]}
    parts = read_block(reply.body["text"]).parts
    lines = parts.get(KNOWN_HEADING, []) + parts.get(SAID_HEADING, [])
    ends = [re.search(r"(?:\[\d+\])+$", line) for line in lines]
    key_set = {keys[int(n)] for end in ends if end for n in re.findall(r"\d+", end[0])}
    return set(keys.values()), len(lines), key_set, milliseconds


def measure(corpora: Sequence[Corpus], service: RecallService) -> dict[str, Results]:
    """All questions with an answer, by group and by kind within it."""
    results: dict[str, Results] = defaultdict(Results)
    askings = [
        Asking(question, corpus, corpus, question.participants)
        for corpus in corpora
        for question in corpus.questions
        if question.evidence
    ]

    def of(asking: Asking) -> Iterator[Results]:
        group = asking.home.group
        yield results[group]
        if asking.question.kind != group:
            yield results[f"{group}: {asking.question.kind}"]

    for asking in askings:
        scores, is_found = rank_all(service, asking)
        for result in of(asking):
            result.found.append(is_found)
            for way, value in scores.items():
                result.ranked[way].append(value)
    for is_on in (True, False):
        tuning = json.dumps({} if is_on else {"ltm_enabled": False})
        service.system.base.rows("update tenants set tuning = %s::jsonb", tuning)
        for asking in askings:
            citation, lines, receipt, milliseconds = read_text(service, asking)
            for result in of(asking):
                result.shown[is_on].append(len(asking.evidence & citation) / len(asking.evidence))
                result.milliseconds[is_on].append(milliseconds)
                if is_on:
                    result.lines.append(lines)
                    result.told.append(bool(asking.evidence & receipt))
    return results


def table(results: Mapping[str, Results]) -> Iterator[str]:
    """Both tables, in Markdown."""
    ways = list(next(iter(results.values())).ranked)
    yield f"| R@10 / MRR | questions | the graph cites evidence | {' | '.join(ways)} |"
    yield "|---" * (len(ways) + 3) + "|"
    for name, result in sorted(results.items()):
        means = {way: _mean(result.ranked[way]) for way in ways}
        first = means["without"]
        cells = [f"{first[0]:.3f} / {first[1]:.3f}"]
        cells += [
            f"{means[way][0] - first[0]:+.3f} / {means[way][1] - first[1]:+.3f}"
            for way in ways
            if way != "without"
        ]
        yield f"| {name} | {len(result.found)} | {fmean(result.found):.2f} | {' | '.join(cells)} |"
    yield ""
    yield "| text | lines known | with evidence | cited | without the section | ms | without |"
    yield "|---" * 7 + "|"
    for name, result in sorted(results.items()):
        shares = [fmean(result.shown[is_on]) for is_on in (True, False)]
        times = [median(result.milliseconds[is_on]) for is_on in (True, False)]
        yield (
            f"| {name} | {fmean(result.lines):.1f} | {fmean(result.told):.2f} | {shares[0]:.3f}"
            f" | {shares[1]:.3f} | {times[0]:.1f} | {times[1]:.1f} |"
        )


def _mean(scores: Sequence[Score]) -> tuple[float, float]:
    return fmean(s.recall for s in scores), fmean(s.rank for s in scores)


def main() -> None:
    """Store, promote, ask, print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.graph_reading")
    parser.add_argument("--locomo", type=Path, help="LoCoMo's file, which is not shipped")
    parser.add_argument("--talks", type=Path, help="a folder of further sets")
    parser.add_argument("--only", nargs="*", help="only these corpora, or groups of them")
    arguments = parser.parse_args()
    try:
        corpora = recall_corpora.load(arguments.locomo, arguments.talks)
    except (OSError, KeyError, ValueError) as error:
        sys.exit(f"bench graph-reading: {error}")
    if arguments.only:
        corpora = [c for c in corpora if {c.group, c.name} & set(arguments.only)]
    with serve(corpora, RememberingEmbedder(LocalEmbedder())) as service:
        promote(service, corpora)
        counts = service.system.base.rows(
            "select type, count(*) from graph_nodes group by 1 order by 1"
        )
        results = measure(corpora, service)
    print(", ".join(f"{count} {node_type}" for node_type, count in counts))
    for line in table(results):
        print(line)


if __name__ == "__main__":
    main()
