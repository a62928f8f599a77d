"""Whether an answer deep in a long text is found and shown: tests/bench/deep, through the API.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.deep_reading [--vectors FILE]

Of each kind of question: R@10 and MRR of the long event, how often the hit's `piece` and a context
of 1,000 tokens hold the whole sentence that answers, and the context's mean tokens.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from strandline.embeddings.local import LocalEmbedder
from tests.bench import recall_corpora
from tests.bench.cost import RememberingEmbedder
from tests.bench.reading import BUDGET, ask_context
from tests.bench.recall_service import Asking, RecallService, serve

FOLDER = Path(__file__).parent / "deep"


class DeepAnswer(NamedTuple):
    """What came of one question."""

    kind: str
    rank: int
    """The place of the event that answers, 0 if it is no hit."""
    in_piece: bool
    in_context: bool
    tokens: int


def measure(service: RecallService, path: Path) -> list[DeepAnswer]:
    """Ask the questions of a stored set."""
    corpus = recall_corpora.read_set(path, "deep")
    sentences = [question["answer"] for question in json.loads(path.read_bytes())["questions"]]
    answers: list[DeepAnswer] = []
    for question, sentence in zip(corpus.questions, sentences, strict=True):
        asking = Asking(question, corpus, corpus, question.participants)
        hits = service.recall(asking)["hits"]
        keys = [service.event_keys[hit["event_id"]] for hit in hits]
        rank = next((n for n, key in enumerate(keys, 1) if key in asking.evidence), 0)
        piece = (hits[rank - 1]["piece"] if rank else None) or {"start_char": 0, "end_char": 0}
        shown = hits[rank - 1]["text"][piece["start_char"] : piece["end_char"]]
        context = ask_context(service, asking, BUDGET)
        in_context = " ".join(sentence.split()) in context["text"]
        answers.append(
            DeepAnswer(question.kind, rank, sentence in shown, in_context, context["tokens"])
        )
    return answers


def make_table(answers: Sequence[DeepAnswer]) -> list[str]:
    """The figures by kind, as lines of Markdown."""
    lines = ["| kind | questions | R@10 | MRR | in piece | in context | tokens |"]
    lines.append("|---|---|---|---|---|---|---|")
    for kind in (*sorted({answer.kind for answer in answers}), "all"):
        some = [answer for answer in answers if kind in (answer.kind, "all")]
        figures = (
            fmean(0 < answer.rank <= 10 for answer in some),
            fmean(1 / answer.rank if answer.rank else 0 for answer in some),
            fmean(answer.in_piece for answer in some),
            fmean(answer.in_context for answer in some),
        )
        cells = " | ".join(f"{figure:.3f}" for figure in figures)
        tokens = fmean(answer.tokens for answer in some)
        lines.append(f"| {kind} | {len(some)} | {cells} | {tokens:.0f} |")
    return lines


def main() -> None:
    """Store the sets, ask, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.deep_reading")
    parser.add_argument("--vectors", type=Path, help="a file that keeps vectors between runs")
    arguments = parser.parse_args()
    paths = sorted(FOLDER.glob("*.json"))
    corpora = [recall_corpora.read_set(path, "deep") for path in paths]
    with serve(corpora, RememberingEmbedder(LocalEmbedder(), arguments.vectors)) as service:
        print(*make_table([one for path in paths for one in measure(service, path)]), sep="\n")


if __name__ == "__main__":
    main()
