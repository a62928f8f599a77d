"""Small logs of five kinds, a question each: noise, duplicates, changes, scripts, told changes.

PYTHONPATH=shared:. python -m tests.bench.cases [--kind KIND] [--list]

Their writer knew nothing of how recall ranks. Each log of `tests/bench/cases` is a tenant of its
own and is told, embedded and folded by the real handlers. A case is right in recall if all events
that it needs are among the first five hits, and one of each group of which any will do, and if no
stale one stands before the first of them, unless it is marked as superseded. Of the told changes
(forty in the words of people who do not announce them, twenty that only sound like one, in eight
languages) what only sounds like one must not stand first either. An event that shares
its place with a near-duplicate counts there. A case is right in a context of 1,000 tokens if what
it needs is cited there.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from strandline.embeddings.local import LocalEmbedder
from tests.bench import recall_service
from tests.bench.recall_corpora import Corpus, Question
from tests.bench.recall_service import Asking, RecallService

FOLDER = Path(__file__).parent / "cases"
KINDS = ("noise", "duplicates", "changes", "scripts", "told_changes")
DEPTH, BUDGET = 5, 1000
_HELPER = "agent:helper"
"""Takes part where the log names no agent."""


class Outcome(NamedTuple):
    """How a case came out."""

    name: str
    question: str
    in_recall: bool
    in_context: bool
    hits: Sequence[str]
    """The first hits' keys, best first."""


def read_cases(kind: str) -> list[dict[str, Any]]:
    """The cases of a kind."""
    lines = (FOLDER / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def expand_events(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The events of a case as the API takes them, floods written out, in order of time."""
    plain = [event for member in case["events"] for event in _write_out(member)]
    people = sorted({event["speaker"] for event in plain})
    if not any(name.startswith("agent:") for name in people):
        people.append(_HELPER)
    return [
        {
            "source_event_key": event["id"],
            "participants": people,
            "speaker": event["speaker"],
            "role": "user" if event["role"] == "user" else "agent",
            "type": "observation" if event["role"] == "tool" else "message",
            "session_id": "log",
            "content": event["text"],
            "occurred_at": event["time"],
        }
        for event in sorted(plain, key=lambda event: datetime.fromisoformat(event["time"]))
    ]


def _write_out(member: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "flood" not in member:
        yield member
        return
    start = datetime.fromisoformat(member["start"])
    for n in range(member["flood"]):
        values = {name: cycle[n % len(cycle)] for name, cycle in member.get("values", {}).items()}
        text = member["template"].replace("{n}", str(n + 1))
        for name, value in values.items():
            text = text.replace("{" + name + "}", str(value))
        time = start + timedelta(seconds=n * member["every_seconds"])
        yield {**member, "id": f"f{n + 1}", "time": time.isoformat(), "text": text}


def to_corpus(case: Mapping[str, Any]) -> Corpus:
    """A case as a corpus with one question, asked on behalf of all people who took part."""
    events = expand_events(case)
    people = [name for name in events[0]["participants"] if name.startswith("user:")]
    question = Question(
        case["question"], case["kind"], frozenset(case["must_find"]), people, case["asked_at"]
    )
    return Corpus(case["id"], case["kind"], events, [question])


def measure(service: RecallService, corpus: Corpus, case: Mapping[str, Any]) -> Outcome:
    """Ask a stored case's question of recall and of a context."""
    (question,) = corpus.questions
    asking = Asking(question, corpus, corpus, question.participants)
    time = {"as_of": case["as_of"]} if "as_of" in case else {}
    hits = service.recall(asking, limit=DEPTH, **time)["hits"]
    body: dict[str, object] = {
        "query": question.text,
        "participants": list(question.participants),
        "now": question.asked_at,
        "budget": BUDGET,
        **time,
    }
    key = service.keys[corpus.name]
    reply = service.system.gateway.call("POST", "/api/v1/context", body, key=key)
    if reply.status != 200:
        raise RuntimeError(f"{reply.status}: {reply.text[:500]}")
    cited = [{service.event_keys[one["event_id"]]} for one in reply.body["citations"]]
    places = [_keys_of(service, hit) for hit in hits]
    return Outcome(
        corpus.name,
        question.text,
        _holds(case, places) and not _is_led_by_stale(service, case, hits),
        _holds(case, cited),
        [service.event_keys[hit["event_id"]] for hit in hits],
    )


def _keys_of(service: RecallService, hit: Mapping[str, Any]) -> set[str]:
    similar: list[str] = hit["similar"]["event_ids"] if hit["similar"] else []
    return {service.event_keys[event_id] for event_id in [hit["event_id"], *similar]}


def _holds(case: Mapping[str, Any], places: Sequence[set[str]]) -> bool:
    found = set[str]().union(*places)
    groups: list[list[str]] = [[key] for key in case["must_find"]]
    groups += case.get("must_find_any", [])
    return all(found.intersection(group) for group in groups)


def _is_led_by_stale(
    service: RecallService, case: Mapping[str, Any], hits: Sequence[Mapping[str, Any]]
) -> bool:
    for hit in hits:
        key = service.event_keys[hit["event_id"]]
        if key in case["must_find"]:
            return False
        if key in case.get("must_not_lead", ()) and not hit["superseded_by"]:
            return True
    return False


def main() -> None:
    """Print how many cases of each kind are right, and with `--list` each that is not."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.cases",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kind", choices=KINDS, help="this kind alone")
    parser.add_argument("--list", action="store_true", help="list the cases that are not right")
    arguments = parser.parse_args()
    for kind in [arguments.kind] if arguments.kind else KINDS:
        cases = {case["id"]: case for case in read_cases(kind)}
        corpora = [to_corpus(case) for case in cases.values()]
        with recall_service.serve(corpora, LocalEmbedder()) as service:
            service.system.fold()
            outcomes = [measure(service, corpus, cases[corpus.name]) for corpus in corpora]
        print(
            f"{kind}: of {len(outcomes)} right in recall {sum(o.in_recall for o in outcomes)}, "
            f"in context {sum(o.in_context for o in outcomes)}"
        )
        for outcome in outcomes if arguments.list else ():
            if not (outcome.in_recall and outcome.in_context):
                wrong = [
                    f"{name} {'right' if right else 'WRONG'}"
                    for name, right in (
                        ("recall", outcome.in_recall),
                        ("context", outcome.in_context),
                    )
                ]
                print(f"  {outcome.name} {', '.join(wrong)}: {outcome.question}")
                print(f"    needs {cases[outcome.name]['must_find']}, hits {list(outcome.hits)}")


if __name__ == "__main__":
    main()
