"""Names within text of another script (report F-24), right after the append and later."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import Gateway

LINES = (Path(__file__).parent / "field" / "mixed_script.jsonl").read_text().splitlines()
EVENTS = [json.loads(line) for line in LINES]
ANN = "user:ann"
_KEY_BY_NAME = {
    "webfetch": "mix-0",
    "config.toml": "mix-0",
    "禁用 webfetch 抓取": "mix-0",
    "Teams": "mix-2",
    "keepass": "mix-3",
    "GitHub Actions": "mix-4",
    "gitlab": "mix-5",
    "restic": "mix-6",
    "hetzner": "mix-7",
}


@pytest.fixture
def key(gateway: Gateway) -> str:
    new_key = gateway.key()
    reply = gateway.call("POST", "/api/v1/events/batch", {"events": EVENTS}, key=new_key)
    assert not reply.body["failed"], reply.text
    return new_key


def recall(gateway: Gateway, key: str, query: str) -> list[Any]:
    body = {"query": query, "participants": [ANN]}
    reply = gateway.call("POST", "/api/v1/recall", body, key=key)
    assert reply.status == 200, reply.text
    return reply.body["hits"]


@pytest.mark.parametrize("is_embedded", [False, True])
def test_mixed_script_name_finds_its_event_first(
    gateway: Gateway, key: str, is_embedded: bool
) -> None:
    if is_embedded:
        gateway.sweep()
    for name, event_key in _KEY_BY_NAME.items():
        hits = recall(gateway, key, name)
        assert hits[0]["source_event_key"] == event_key, (name, hits[0]["text"])
        words = {word.lower() for word in hits[0]["why"]} - {"meaning"}
        assert words, name


def test_mixed_script_name_is_found_in_a_list(gateway: Gateway, key: str) -> None:
    for name, event_key in _KEY_BY_NAME.items():
        if name == "禁用 webfetch 抓取":  # a list wants every word, and one is nowhere
            continue
        body = {"text": name, "mode": "words", "participants": [ANN]}
        reply = gateway.call("POST", "/api/v1/events/query", body, key=key)
        assert reply.status == 200, reply.text
        keys = [
            event["source_event_key"] for scope in reply.body["scopes"] for event in scope["events"]
        ]
        assert event_key in keys, name


def test_mixed_script_question_in_another_language(gateway: Gateway, key: str) -> None:
    """No word is shared, and the model alone knows that 部署 is to deploy. Among the first five, as
    the cases of tests/bench/cases.py are judged: later events of the same subject stand before."""
    gateway.sweep()
    hits = recall(gateway, key, "how do we deploy the application?")
    assert "mix-1" in [hit["source_event_key"] for hit in hits[:5]]
