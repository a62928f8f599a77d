"""The part of `make demo` about personas: a sona, its thread of acts, and the language model's
answer or, without a model, the text for its prompt."""

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import urlencode

SONA = "Buoy keeper"
_AGENT = "agent:keel"
_STEPS = 3
_WIDTH = 92


class ApiClient(Protocol):
    """The service's client."""

    def post(self, path: str, body: object) -> dict[str, Any]:
        """The answer's body."""
        ...

    def get(self, path: str) -> dict[str, Any]:
        """The answer's body."""
        ...

    def post_any(self, path: str, body: object) -> tuple[int, dict[str, Any]]:
        """The answer's status and body, also of a refusal."""
        ...


def show_persona(
    client: ApiClient,
    conversation: Sequence[Mapping[str, Any]],
    event_ids: Mapping[str, str],
    question: Mapping[str, Any],
) -> None:
    """Add the agent's messages to a sona, continue its thread, and ask a question. A second run
    creates nothing twice."""
    people = question["participants"]
    utterances = [
        e for e in conversation if e.get("speaker") == _AGENT and e["participants"] == people
    ]
    uuid = client.post("/api/v1/sonas", {"name": SONA})["uuid"]
    ids = [event_ids[event["source_event_key"]] for event in utterances]
    client.post(f"/api/v1/sonas/{uuid}/memories", {"event_ids": ids})
    view = urlencode([("participants", name) for name in people])
    sona = client.get(f"/sona/{uuid}?{view}")
    print("\nWHO SPEAKS")
    _print_wrapped(
        f'What Keel says is said by a persona, the sona "{SONA}": {sona["memories"]} memories. A '
        "search may prefer them. Its thread goes on from step to step, whichever agent is at work:"
    )
    by_id = {event_ids[event["source_event_key"]]: event for event in utterances}
    for act in _continue_act(client, uuid, utterances, event_ids, view):
        event = by_id[act["event_id"]]
        day = datetime.fromisoformat(event["occurred_at"])
        text = textwrap.shorten(event["content"], _WIDTH - 20)
        print(f"  {day.day} {day:%B %Y}: {text}")
    _show_model_answer(client, question)


def _continue_act(
    client: ApiClient,
    uuid: str,
    utterances: Sequence[Mapping[str, Any]],
    event_ids: Mapping[str, str],
    view: str,
) -> list[dict[str, Any]]:
    """Tie an act to the agent's first message in each of some sessions. Returns the thread."""
    path, after = f"/api/v1/sonas/{uuid}/acts", None
    sessions = itertools.groupby(utterances, key=lambda event: event["session_id"])
    for _, events in itertools.islice(sessions, _STEPS):
        event_id = event_ids[next(events)["source_event_key"]]
        after = client.post(path, {"event_id": event_id, "after": after})["act_id"]
    return client.get(f"{path}?{view}")["acts"]


def _show_model_answer(client: ApiClient, question: Mapping[str, Any]) -> None:
    """Print the language model's answer; without a model, the text that its prompt would
    contain."""
    body = {"query": question["question"], "participants": question["participants"]}
    status, answer = client.post_any("/api/v1/query", body)
    print(f"\nA language model is to answer: {question['question']}")
    if status == 200:
        _print_wrapped(answer["text"], "  ")
        print(f"      cited: {len(answer['citations'])} memories")
        return
    details: dict[str, Any] = answer.get("error", {}).get("details", {})
    if block := details.get("block"):
        names = " and ".join(details["settings"][:2])
        _print_wrapped(
            f"None is configured. With {names} the service has it answer, with citations. For a "
            f"model of your own it gives the {len(block):,} characters to put into a prompt.",
            "  ",
        )
    else:
        _print_wrapped(f"It did not answer in time, or failed (status {status}).", "  ")


def _print_wrapped(text: str, indent: str = "") -> None:
    print(textwrap.fill(text, _WIDTH, initial_indent=indent, subsequent_indent=indent))
