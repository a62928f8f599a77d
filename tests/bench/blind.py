"""What a reader answers from, for 120 questions to six conversations: two logs of coding agents,
two that mix languages, two of messages of over 1,500 characters.

PYTHONPATH=shared:. python -m tests.bench.blind [--out FILE]

Whoever wrote conversations and questions knew neither ranking nor contexts. The conversations are
told, embedded, folded and promoted by the real handlers; a line of the output is a question, the
text of `POST /api/v1/context` at 1,000 tokens, whether it cites all that the answer needs, and
which share of the answer's words it holds.
`answers.jsonl` has the texts of some commits, what a reader answered from each alone, and how a
judge graded that, who knew the reference and not the commit.
"""

import argparse
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from strandline.embeddings.local import LocalEmbedder
from tests.bench import recall_service
from tests.bench.recall_corpora import NONE, Corpus, Question
from tests.bench.recall_service import RecallService

FOLDER = Path(__file__).parent / "blind"
SETS = ("builder", "twotongues", "longform", "foundry", "zweisprachig", "expedition")
BUDGET = 1000
TELLING_SHARE = 0.75
"""A text with this share of the answer's words tells the answer: of 327 graded readings that was so
for 189 of 198 right ones, and for 19 of 129 others."""
_WORD = re.compile(r"[^\W_]+(?:[.,:'][^\W_]+)*")
_FORMER = re.compile(r"\((?:earlier|antes|before|früher)[^)]*\)")
"""What an answer says of earlier values, which nobody is asked for."""


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


def measure_answer_share(text: str, question: str, answer: str, evidence: Iterable[str]) -> float:
    """The share of the answer's words that a text holds: of those that stand in the evidence and
    not in the question, with four characters or a digit. 1 where there are none."""
    asks = set(_list_words(question))
    evidence_words = {word for one in evidence for word in _list_words(one)} - asks
    words = [word for word in _list_words(_FORMER.sub("", answer)) if word in evidence_words]
    telling = {w for w in words if len(w) >= 4 or any(map(str.isdigit, w))} or set(words)
    return len(telling.intersection(_list_words(text))) / len(telling) if telling else 1.0


def _list_words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def list_blocks(service: RecallService, corpus: Corpus) -> Iterator[dict[str, Any]]:
    """The text for each question of a stored conversation."""
    answers = {one["q"]: str(one["answer"]) for one in read_set(corpus.name)["questions"]}
    texts = {event["source_event_key"]: event["content"] for event in corpus.events}
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
            "told": measure_answer_share(
                reply.body["text"],
                question.text,
                answers[question.text],
                (texts[key] for key in question.evidence),
            ),
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
    telling = sum(row["told"] >= TELLING_SHARE for row in answerable)
    print(
        f"of {len(answerable)} texts {complete} cite all that the answer needs, "
        f"{telling} tell it; {mean:.0f} tokens"
    )
    print(arguments.out)


if __name__ == "__main__":
    main()
