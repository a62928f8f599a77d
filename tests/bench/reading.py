"""What readers answer questions from: for five questions of each group of corpora, the text of
`POST /api/v1/context` at 1,000 tokens, and beside it the 20 best events as they are.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.reading --locomo FILE [--out build/reading]

    context/<group>-<n>.txt  a question and the text
    turns/<group>-<n>.txt    the same question and the 20 best events
    key.json                 of each: the question, what answers it, and both texts' tokens

A reader gets one file and nothing else; the key is for those who judge the answers. With `--share`
no reader is needed: it counts how much of what answers the questions the texts show.
"""

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from tests.bench import recall_inputs
from tests.bench.recall_corpora import Corpus
from tests.bench.recall_service import Asking, RecallService, serve

GROUPS = ("locomo", "talks", "demo", "unseen", "corpus")
QUESTIONS = 5
BUDGET = 1000
"""Tokens of a context's text."""
TURNS = 20
_TASK = (
    "Answer the question from the text below alone, in one or two sentences. If the text does not "
    "tell, say so."
)


@dataclass(frozen=True)
class Reading:
    """A question with both texts."""

    name: str
    question: str
    kind: str
    context: str
    turns: str
    evidence: Sequence[str]
    """What answers it."""


def choose(corpora: Sequence[Corpus], seed: int) -> list[tuple[str, Asking]]:
    """Five questions of each group, the same for the same seed, of as many kinds as there are."""
    choices: list[tuple[str, Asking]] = []
    for group in GROUPS:
        chance = random.Random(f"{seed} {group}")
        by_kind: dict[str, list[Asking]] = defaultdict(list)
        for corpus in corpora:
            for question in corpus.questions if corpus.group == group else ():
                if question.evidence:
                    asking = Asking(question, corpus, corpus, question.participants)
                    by_kind[question.kind].append(asking)
        kinds = sorted(by_kind)
        for askings in by_kind.values():
            chance.shuffle(askings)
        for n in range(QUESTIONS if kinds else 0):
            asking = by_kind[kinds[n % len(kinds)]].pop()
            choices.append((f"{group}-{n + 1}", asking))
    return choices


def read(service: RecallService, name: str, asking: Asking) -> Reading:
    """Ask for both texts."""
    text = ask_context(service, asking, BUDGET)["text"]
    hits = service.recall(asking, limit=TURNS, min_relevance=0)["hits"]
    texts = {event["source_event_key"]: event for event in asking.home.events}
    return Reading(
        name,
        asking.question.text,
        asking.question.kind,
        text,
        "\n".join(map(_turn, hits)),
        [_turn(texts[key]) for key in sorted(asking.evidence)],
    )


def ask_context(
    service: RecallService, asking: Asking, budget: int, **fields: object
) -> Mapping[str, Any]:
    """The answer of `POST /api/v1/context` for a question."""
    body: dict[str, object] = {
        "query": asking.question.text,
        "participants": list(asking.participants),
        "budget": budget,
        **fields,
    }
    if asking.question.asked_at:
        body["now"] = asking.question.asked_at
    key = service.keys[asking.tenant.name]
    reply = service.system.gateway.call("POST", "/api/v1/context", body, key=key)
    if reply.status != 200:
        raise RuntimeError(f"{reply.status}: {reply.text[:500]}")
    return reply.body


def _turn(event: Mapping[str, Any]) -> str:
    """An event of a corpus or an answer."""
    text = event.get("content") or event.get("text") or ""
    return f"{event['occurred_at'][:10]} {event.get('speaker') or 'nobody'}: {text}"


def tokens(text: str) -> int:
    """As contexts count them."""
    return -(-len(text.encode()) // 4)


def measure(service: RecallService, corpora: Sequence[Corpus], budget: int) -> list[str]:
    """How much of what answers the questions stands in a context's text, as lines of Markdown: the
    mean share, and the share of the questions with all of it."""
    shares: dict[str, list[float]] = defaultdict(list)
    for corpus in corpora:
        for question in corpus.questions:
            if question.evidence:
                asking = Asking(question, corpus, corpus, question.participants)
                citations = ask_context(service, asking, budget)["citations"]
                source_event_keys = {citation["source_event_key"] for citation in citations}
                shares[corpus.group].append(
                    len(asking.evidence & source_event_keys) / len(asking.evidence)
                )
    lines = ["| group | questions | share shown | all shown |", "|---|---|---|---|"]
    for group, of_group in sorted(shares.items()):
        complete = fmean(share == 1 for share in of_group)
        lines.append(f"| {group} | {len(of_group)} | {fmean(of_group):.3f} | {complete:.3f} |")
    return lines


def write(folder: Path, readings: Sequence[Reading]) -> None:
    """Write every reader's file, and the key."""
    for kind in ("context", "turns"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for reading in readings:
            text = f"{_TASK}\n\nQuestion: {reading.question}\n\n{getattr(reading, kind)}\n"
            (folder / kind / f"{reading.name}.txt").write_text(text)
    key = {
        reading.name: {
            "question": reading.question,
            "kind": reading.kind,
            "evidence": list(reading.evidence),
            "tokens": {"context": tokens(reading.context), "turns": tokens(reading.turns)},
        }
        for reading in readings
    }
    (folder / "key.json").write_text(json.dumps(key, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    """Store the corpora, ask, and write the files."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.reading")
    recall_inputs.add_arguments(parser)
    parser.add_argument("--out", type=Path, default=Path("build/reading"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--share",
        type=int,
        nargs="+",
        metavar="TOKENS",
        help="write nothing; print how much of what answers all questions such texts show",
    )
    arguments = parser.parse_args()
    corpora = recall_inputs.load_corpora(arguments)
    embedder = recall_inputs.make_embedder(arguments)
    if arguments.share:
        with serve(corpora, embedder) as service:
            for budget in arguments.share:
                print("\n".join([f"{budget} tokens", "", *measure(service, corpora, budget), ""]))
        return
    choice = choose(corpora, arguments.seed)
    homes = {id(asking.home) for _, asking in choice}
    with serve([one for one in corpora if id(one) in homes], embedder) as service:
        readings = [read(service, name, asking) for name, asking in choice]
    write(arguments.out, readings)
    print(f"{len(readings)} questions in {arguments.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
