"""What a reader answers from, for 120 questions to six conversations: two logs of coding agents,
two that mix languages, two of messages of over 1,500 characters.

PYTHONPATH=shared:. python -m tests.bench.blind [--out FILE]

Whoever wrote conversations and questions knew neither ranking nor contexts. The conversations are
told, embedded, folded and promoted by the real handlers; a line of the output is a question, the
text of `POST /api/v1/context` at 1,000 tokens, and whether it cites all that the answer needs.
`answers.jsonl` has the texts of some commits, what a reader answered from each alone, and how a
judge graded that, who knew the reference and not the commit.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strandline.embeddings.local import LocalEmbedder
from tests.bench import recall_service
from tests.bench.recall_corpora import NONE, Corpus, Question
from tests.bench.recall_service import RecallService

FOLDER = Path(__file__).parent / "blind"
SETS = ("builder", "twotongues", "longform", "foundry", "zweisprachig", "expedition")
BUDGET = 1000


def read_set(name: str) -> dict[str, Any]:
    """A conversation with its questions, as it was frozen."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def to_corpus(talk: dict[str, Any]) -> Corpus:
    """A conversation as the API takes it. Output of a tool is an observation of the agent. A
    question is asked on behalf of the first user who was there when all that answers was said."""
    people: list[str] = talk["participants"]
    agent = next(name for name in people if name.startswith("agent:"))
    events = [
        {
            "source_event_key": event["id"],
            "session_id": event["session"],
            "participants": event["participants"],
            "role": "user" if event["role"] == "user" else "agent",
            "speaker": agent if event["role"] == "tool" else event["speaker"],
            "type": "observation" if event["role"] == "tool" else "message",
            "content": event["text"],
            "occurred_at": event["at"],
        }
        for event in sorted(talk["events"], key=lambda event: event["at"])
    ]
    users = [name for name in people if name.startswith("user:")]
    present = {event["id"]: event["participants"] for event in talk["events"]}
    questions = [
        Question(
            one["q"],
            one["kind"],
            frozenset(one["evidence"]),
            [next(name for name in users if all(name in present[key] for key in one["evidence"]))],
            one["asked_at"],
        )
        for one in talk["questions"]
    ]
    return Corpus(talk["name"], "blind", events, questions)


def list_blocks(service: RecallService, corpus: Corpus) -> Iterator[dict[str, Any]]:
    """The text for each question of a stored conversation."""
    for question in corpus.questions:
        body: dict[str, object] = {
            "query": question.text,
            "participants": list(question.participants),
            "budget": BUDGET,
            "now": question.asked_at,
        }
        key = service.keys[corpus.name]
        reply = service.system.gateway.call("POST", "/api/v1/context", body, key=key)
        if reply.status != 200:
            raise RuntimeError(f"{reply.status}: {reply.text[:500]}")
        cited = {service.event_keys[one["event_id"]] for one in reply.body["citations"]}
        yield {
            "set": corpus.name,
            "kind": question.kind,
            "question": question.text,
            "asked_at": question.asked_at,
            "cites_all": question.evidence <= cited,
            "tokens": reply.body["tokens"],
            "block": reply.body["text"],
        }


def main() -> None:
    """Write the texts, and print how many cite all that the answer needs."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.blind",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("build/blind.jsonl"))
    arguments = parser.parse_args()
    corpora = [to_corpus(read_set(name)) for name in SETS]
    with recall_service.serve(corpora, LocalEmbedder()) as service:
        service.system.fold()
        for corpus in corpora:
            service.system.gateway.run_job("builder", corpus.name)
            service.system.gateway.run_job("promoter", corpus.name)
        rows = [row for corpus in corpora for row in list_blocks(service, corpus)]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    answerable = [row for row in rows if row["kind"] != NONE]
    mean = sum(row["tokens"] for row in rows) / len(rows)
    complete = sum(row["cites_all"] for row in answerable)
    print(
        f"{complete} of {len(answerable)} texts cite all that the answer needs; {mean:.0f} tokens"
    )
    print(arguments.out)


if __name__ == "__main__":
    main()
