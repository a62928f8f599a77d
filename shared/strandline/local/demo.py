"""`make demo`: appends the conversations that ship with the project, asks questions about the
first, and shows the knowledge graph of both, and a persona.

It uses a tenant of its own, and its memory is kept: a second run stores nothing twice.
"""

import json
import re
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from strandline.local.demo_graph_report import Talk, show_graph
from strandline.local.demo_persona_report import show_persona
from strandline.local.demo_service import TENANT, Client, running_service
from strandline.local.run import directory
from strandline.local.tls import TlsFiles
from strandline.topics.outline_text import TAIL_HEADING

DEMO, SECOND = Path("events/demo"), Path("events/orchard")
TITLES = {DEMO: "Six wave buoys", SECOND: "An autumn of pressing apples"}
"""The conversations, and what they are about."""
QUESTIONS = (
    "How high was the tallest single wave at Auk in the storm?",
    "When is the weekly meeting held now?",
    "What did the clockmaker charge for the repair of the barometer in the end?",
    "Where does Mara keep her auto-injector now?",
    "When was Cod found and by whom?",
)
"""Those questions of the conversation's file that can be understood without having read it."""
PRIVATE = "What is Mara allergic to, and where is her auto-injector?"
"""A question by somebody who was not in the conversation."""
_OUTLINE_BUDGET, _ANSWER_BUDGET = 700, 300
"""Tokens of the outlines that are printed."""
_EVENT_LINE = re.compile(r"^\s+\[\d+\] ", re.MULTILINE)
"""The beginning of an event's line in an outline."""
_BATCH = 20
_MAX_SHOWN = 2
_MAX_TOPICS = 8
_WAIT_SECONDS = 60
_WIDTH = 92


def load_events(folder: Path) -> Iterator[dict[str, Any]]:
    """The conversation's events with their large payloads, and the keys they cite in `cites`."""
    for line in (folder / "conversation.jsonl").read_text().splitlines():
        event = json.loads(line)
        if file := event.pop("content_file", None):
            event["content"] = (folder / file).read_text()
        yield event


def append_conversation(client: Client, folder: Path) -> dict[str, str]:
    """Append the conversation in order. Returns the events' ids by their keys. Events that cite
    earlier ones are sent after those have ids."""
    ids: dict[str, str] = {}
    pending: list[dict[str, Any]] = []
    conversation = list(load_events(folder))
    for count, event in enumerate(conversation, 1):
        keys = event.pop("cites", [])
        if any(key not in ids for key in keys):
            ids |= _append_batch(client, pending)
        event["edges"] = [{"event_id": ids[key], "weight": 0.8} for key in keys]
        pending.append(event)
        if len(pending) == _BATCH or count == len(conversation):
            ids |= _append_batch(client, pending)
    return ids


def store_talk(client: Client, folder: Path) -> Talk:
    """Append a conversation for whose graph people wrote down expectations."""
    groups = (tuple(event["participants"]) for event in load_events(folder))
    audiences = list(dict.fromkeys(groups))
    return Talk(TITLES[folder], folder, audiences, append_conversation(client, folder))


def _append_batch(client: Client, pending: list[dict[str, Any]]) -> dict[str, str]:
    if not pending:
        return {}
    response = client.post("/api/v1/events/batch", {"events": pending, "atomic": True})
    ids = {
        event["source_event_key"]: result["event"]["event_id"]
        for event, result in zip(pending, response["results"], strict=True)
    }
    pending.clear()
    return ids


def _await_chains(client: Client, folder: Path) -> list[dict[str, Any]]:
    """A conversation's chains, oldest first, once the worker has formed all it can."""
    sessions = dict.fromkeys(event["session_id"] for event in load_events(folder))
    paths = [f"/api/v1/sessions/{session}/segments?include=all&limit=100" for session in sessions]
    previous: dict[str, dict[str, Any]] | None = None
    for _ in range(_WAIT_SECONDS):
        segments = [chain for path in paths for chain in client.get(path)["segments"]]
        chains = {chain["chain_id"]: chain for chain in segments}
        is_stable = previous is not None and bool(chains) and chains.keys() == previous.keys()
        previous = chains
        if is_stable:
            break
        time.sleep(1)
    return sorted((previous or {}).values(), key=lambda chain: chain["started_at"])


def _await_vectors(client: Client, audiences: Sequence[tuple[str, ...]]) -> None:
    """Wait until the worker has embedded everything, which it does in the background."""
    for people in audiences:
        body = {"query": "anything", "participants": people, "limit": 1}
        for _ in range(_WAIT_SECONDS * 4):
            if not client.post("/api/v1/recall", body)["not_yet_embedded"]:
                break
            time.sleep(0.25)


def _name(participant: str) -> str:
    """The name of `user:mara` for people: `Mara`."""
    return participant.rpartition(":")[2].capitalize()


def _names(people: Sequence[str]) -> str:
    """Several names as a list: `Mara, Tomas and Keel`."""
    *first, last = map(_name, people)
    return f"{', '.join(first)} and {last}" if first else last


def _print_wrapped(text: str, indent: str = "") -> None:
    """A whole paragraph, in lines that fit a terminal."""
    print(textwrap.fill(text, _WIDTH, initial_indent=indent, subsequent_indent=indent))


def _format_time(moment: str) -> str:
    at = datetime.fromisoformat(moment)
    return f"{at.day} {at:%B %Y, %H:%M}"


def _introduce(
    conversation: Sequence[Mapping[str, Any]], audiences: Sequence[tuple[str, ...]]
) -> None:
    """Print how many messages are stored, and who talks to whom."""
    sessions = len({event["session_id"] for event in conversation})
    first_day, last_day = (
        _format_time(conversation[at]["occurred_at"]).partition(",")[0] for at in (0, -1)
    )
    print("\nWHAT GOES IN")
    _print_wrapped(
        "Mara and Tomas put six wave buoys (Auk, Brill, Cod, Dab, Eider and Fulmar) to sea. Keel "
        f"is an AI agent that helps them. {len(conversation)} messages in {sessions} "
        "conversations, "
        f"from {first_day} to {last_day}. Not everybody is in every conversation:"
    )
    for people in audiences:
        count = sum(tuple(event["participants"]) == people for event in conversation)
        print(f"  {count:3} messages among {_names(people)}")
    second = list(load_events(SECOND))
    _print_wrapped(
        f"Beside it goes in a shorter one of {len(second)} messages, of other people and of two "
        "agents: they open a cider press in September. What is asked is about the first."
    )


def _show_topics(chains: Sequence[Mapping[str, Any]]) -> None:
    """Print some of the topics that the service found."""
    print("\nWHAT WAS FOUND IN IT")
    _print_wrapped(
        f"{len(chains)} topics, cut and named without a language model. The "
        f"{min(_MAX_TOPICS, len(chains))} longest, by date:"
    )
    longest = sorted(chains, key=lambda chain: -chain["event_count"])[:_MAX_TOPICS]
    for chain in sorted(longest, key=lambda chain: chain["started_at"]):
        name = chain["topic"] or chain["summary"]
        print(f"  {chain['started_at'][:10]}  {chain['event_count']:3} messages  {name}")


def _recall(client: Client, question: Mapping[str, Any], **more: object) -> list[dict[str, Any]]:
    """The events that recall finds for a question, the best first."""
    body = {
        "query": question["question"],
        "participants": question["participants"],
        "limit": 20,
        "include": "full",
        **more,
    }
    answer = client.post("/api/v1/recall", body)
    return [hit["event"] for hit in answer["hits"]]


def _run_job(admin: Client, name: str) -> bool:
    """Run a job. Returns whether it succeeded. If the job is running already, waits for that
    run."""
    reply = admin.get(f"/api/v1/admin/jobs?kind={name}&limit=1")["jobs"]
    if not reply or reply[0]["state"] not in ("queued", "running"):
        reply = [admin.post(f"/api/v1/admin/jobs/{name}", {})]
    for _ in range(_WAIT_SECONDS * 4):
        job = admin.get(f"/api/v1/admin/jobs/{reply[0]['job_id']}")
        if job["state"] in ("done", "failed"):
            return job["state"] == "done"
        time.sleep(0.25)
    return False


def _show_outline_and_answer(client: Client, question: Mapping[str, Any]) -> None:
    """Print the outline of the topic index, and what it answers to a question."""
    people = question["participants"]
    body: dict[str, Any] = {"participants": people, "budget": _OUTLINE_BUDGET, "format": "text"}
    outline = client.post("/api/v1/references/query", body)
    print("\nHOW IT IS ORGANISED")
    version = outline["snapshot"]["version"] if outline["snapshot"] else 0
    _print_wrapped(
        f"A build publishes the topics as a tree: version {version}. What {_names(people)} see of "
        f"it, in {outline['tokens']} tokens, as a prompt would hold it:"
    )
    print(textwrap.indent(outline["text"], "  "))
    query = {**body, "query": question["question"], "budget": _ANSWER_BUDGET}
    answer = client.post("/api/v1/references/query", query)["text"]
    tree, _, tail = answer.partition(TAIL_HEADING)
    in_tree, in_tail = (len(_EVENT_LINE.findall(part)) for part in (tree, tail))
    print(f"\n{_names(people)} ask it: {question['question']}")
    print(f"  {in_tree} events under topics of the tree, {in_tail} that are in no topic yet:")
    print(textwrap.indent(answer, "  "))


def _show_answer(question: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> None:
    """Print a question and the answers to it: who said what, where and when."""
    print(f"\n{_names(question['participants'])} ask: {question['question']}")
    for event in events[:_MAX_SHOWN]:
        speaker = _name(event["speaker"] or event["role"])
        blob = event["blob"]
        text = event["content"] or f"[the file {blob['name']}, {blob['size']:,} bytes]"
        _print_wrapped(f'{speaker}: "{" ".join(text.split())}"', "  ")
        print(
            f"      cited: {speaker}, {_format_time(event['occurred_at'])}, conversation "
            f"{event['session_id']}"
        )
    if not events:
        print("  Recall finds nothing about this.")


def _show_privacy(question: Mapping[str, Any], visible: int) -> None:
    """Print how many of the messages that answer the question a person who was not there can find:
    `visible`."""
    print(f"\n{_names(question['participants'])} ask: {question['question']}")
    _print_wrapped(
        "Mara told that to Keel when Tomas was not there. "
        f"{len(question['hidden'])} messages would answer it; {visible} of them can be found when "
        "Tomas asks.",
        "  ",
    )


def _show_next_steps(url: str, key: str, tls: TlsFiles | None) -> None:
    """Print a call to copy, and where to read on."""
    trust = f" --cacert {tls.authority}" if tls and tls.client else ""
    question = json.dumps({"query": QUESTIONS[0], "participants": ["user:mara"], "limit": 3})
    print(
        "\nHOW TO GO ON\n"
        f'The memory stays in tenant "{TENANT}"; a second run stores nothing twice. While '
        "`make run` runs,\nask it yourself (this key is good for a day):\n"
        f"  curl -s{trust} {url}/api/v1/recall -H 'X-API-Key: {key}' \\\n"
        f"    -H 'Content-Type: application/json' -d '{question}'\n"
        f"Every call, with a page to try it: {url}/docs"
    )


def _show_graphs(client: Client, admin: Client, talks: Sequence[Talk]) -> bool:
    """Promote and analyse, and print the graph of each conversation. Returns whether both jobs
    ended well."""
    has_ended = [_run_job(admin, "promoter"), _run_job(admin, "analytics")]
    print("\nWHAT IT KNOWS FOR GOOD")
    _print_wrapped(
        "Warm topics are promoted into a knowledge graph, without a language model, and the graph "
        "is divided into communities. Each node cites its events. A graph is compared with what "
        "people expected of it, written down before anything was extracted: found counts what "
        "the graph holds, right what of that was expected. The heuristic model is careful; a "
        "language model finds more. The last topic of a session is closed after half an hour of "
        "silence, and is in no graph before."
    )
    for talk in talks:
        show_graph(client, talk, directory() / f"graph-{talk.folder.name}.svg")
    return all(has_ended)


def main() -> int:
    """Append, show, ask, build, promote, analyse. Returns 1 if a reader sees messages of a
    conversation in which they took no part, or if the topic index or the graph cannot be built."""
    conversation = list(load_events(DEMO))
    lines = (DEMO / "questions.jsonl").read_text().splitlines()
    questions = {question["question"]: question for question in map(json.loads, lines)}
    with running_service() as (url, keys, tls):
        client, admin = Client(url, keys.memory, tls), Client(url, keys.admin, tls)
        audiences = list(dict.fromkeys(tuple(event["participants"]) for event in conversation))
        _introduce(conversation, audiences)
        start = time.monotonic()
        print("Storing and reading them …", flush=True)
        talks = [store_talk(client, folder) for folder in TITLES]
        _await_vectors(client, [people for talk in talks for people in talk.audiences])
        chains, _ = (_await_chains(client, folder) for folder in TITLES)
        print(f"Stored, and searchable by meaning, after {time.monotonic() - start:.0f} s.")
        _show_topics(chains)
        print("\nWHAT CAN BE ASKED")
        print("Each answer is what somebody said, with who said it and when.")
        for question in QUESTIONS:
            _show_answer(questions[question], _recall(client, questions[question]))
        private = questions[PRIVATE]
        private_ids = {talks[0].event_ids[key] for key in private["hidden"]}
        visible = sum(
            event["event_id"] in private_ids for event in _recall(client, private, min_relevance=0)
        )
        _show_privacy(private, visible)
        is_built = _run_job(admin, "builder")
        _show_outline_and_answer(client, questions[QUESTIONS[4]])
        has_graph = _show_graphs(client, admin, talks)
        show_persona(client, conversation, talks[0].event_ids, questions[QUESTIONS[1]])
        _show_next_steps(url, keys.memory, tls)
    return 0 if is_built and has_graph and not visible else 1


if __name__ == "__main__":
    sys.exit(main())
