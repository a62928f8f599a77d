"""Questions that need a list, an order or a summary: what `breadth` gives them, through the API.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.breadth [--locomo FILE] [--talks FOLDER]
    [--beam FOLDER] [--vectors FILE]

For the kinds of questions that have their evidence in several places, with `breadth` off, on and by
the question's form: the share of the evidence among the first ten and twenty hits, how often all of
it is there, MRR in the order of relevance, the share in a context of 1,000 tokens, and the median
milliseconds of a recall. At the end, which kinds of questions the forms take.
"""

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

from strandline.recall.broad_questions import asks_for_breadth
from tests.bench import recall_inputs
from tests.bench.reading import BUDGET, ask_context
from tests.bench.recall_corpora import Corpus
from tests.bench.recall_service import Asking, RecallService, serve

KINDS = ("event_ordering", "summarization", "multi_session_reasoning", "multi-hop", "multihop")
WAYS: Mapping[str, Mapping[str, bool]] = {
    "off": {"breadth": False},
    "on": {"breadth": True},
    "by form": {},
}


class BroadAnswer(NamedTuple):
    """What came of one question in one way."""

    kind: str
    way: str
    first_ten: float
    all_of_ten: float
    first_twenty: float
    all_of_twenty: float
    reciprocal_rank: float
    in_context: float
    milliseconds: float


def ask(service: RecallService, asking: Asking, way: str) -> BroadAnswer:
    """Ask one question in one way."""
    evidence, fields = asking.evidence, WAYS[way]
    began = time.perf_counter()
    answer = service.recall(asking, min_relevance=0, order="relevance", **fields)
    milliseconds = (time.perf_counter() - began) * 1000
    keys = service.hit_keys(answer)
    ten, twenty = evidence.intersection(keys[:10]), evidence.intersection(keys)
    context = ask_context(service, asking, BUDGET, **fields)
    shown = {service.event_keys[citation["event_id"]] for citation in context["citations"]}
    return BroadAnswer(
        asking.question.kind,
        way,
        len(ten) / len(evidence),
        float(ten == evidence),
        len(twenty) / len(evidence),
        float(twenty == evidence),
        next((1 / rank for rank, key in enumerate(keys, 1) if key in evidence), 0.0),
        len(evidence & shown) / len(evidence),
        milliseconds,
    )


def measure(service: RecallService, corpora: Sequence[Corpus]) -> list[BroadAnswer]:
    """Ask the questions of these kinds of stored and folded corpora in every way."""
    return [
        ask(service, Asking(question, corpus, corpus, question.participants), way)
        for corpus in corpora
        for question in corpus.questions
        if question.evidence and question.kind in KINDS
        for way in WAYS
    ]


def make_table(answers: Sequence[BroadAnswer]) -> list[str]:
    """The figures by kind and way, as lines of Markdown."""
    lines = ["| kind | breadth | questions | R@10 | all@10 | R@20 | all@20 | MRR | context | ms |"]
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    for kind in (*dict.fromkeys(answer.kind for answer in answers), "all"):
        for way in WAYS:
            some = [a for a in answers if kind in (a.kind, "all") and a.way == way]
            figures = zip(*(answer[2:-1] for answer in some), strict=True)
            cells = " | ".join(f"{fmean(column):.3f}" for column in figures)
            milliseconds = median(answer.milliseconds for answer in some)
            lines.append(f"| {kind} | {way} | {len(some)} | {cells} | {milliseconds:.0f} |")
    return lines


def count_taken(corpora: Sequence[Corpus]) -> list[str]:
    """How many questions of each group and kind the forms take for broad, as lines."""
    totals: Counter[tuple[str, str]] = Counter()
    taken: Counter[tuple[str, str]] = Counter()
    for corpus in corpora:
        for question in corpus.questions:
            totals[corpus.group, question.kind] += 1
            taken[corpus.group, question.kind] += asks_for_breadth(question.text)
    return [
        f"{group}, {kind}: {taken[group, kind]} of {count} taken"
        for (group, kind), count in sorted(totals.items())
    ]


def main() -> None:
    """Store and fold the corpora with such questions, ask, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.breadth")
    recall_inputs.add_arguments(parser)
    arguments = parser.parse_args()
    corpora = recall_inputs.load_corpora(arguments)
    asked = [corpus for corpus in corpora if any(q.kind in KINDS for q in corpus.questions)]
    with serve(asked, recall_inputs.make_embedder(arguments)) as service:
        service.system.fold()
        print(*make_table(measure(service, asked)), "", *count_taken(corpora), sep="\n")


if __name__ == "__main__":
    main()
