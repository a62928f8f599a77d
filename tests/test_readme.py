"""The README's first calls, made as they stand there: the answers are those that it shows.

Its Python is run by tests/layers/test_wheel.py, with what `pip install` installs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from strandline.config import get_settings
from tests.documents import DOCUMENTS, blocks
from tests.support import Gateway

_CALL = re.compile(r"^post (\S+) '(\{.*?\})'$(?:\n# → ([^\n]*)$)?", re.MULTILINE | re.DOTALL)
_ID = re.compile(r'"[0-9a-z]{4}…"')


def read_calls(page: str, language: str = "") -> list[tuple[str, Any, str]]:
    """Each call's path, body, and the answer that is shown, or ''."""
    return [
        (path, json.loads(body), (text or "").partition("\n")[0])
        for block in blocks(page, language)
        for path, body, text in _CALL.findall(block)
    ]


def find_differences(text: str, answer: Any) -> list[str]:
    """What a shown answer says that the real one does not. `…` stands for anything."""
    real = json.dumps(answer, ensure_ascii=False)
    parts = [part.strip("{}[], ") for part in _ID.sub('"…"', text).split("…")]
    return [f"{part} is not in {real}" for part in parts if part not in real]


def test_readme_first_calls_answer_as_shown(
    gateway: Gateway, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_QUERY_VECTOR_SECONDS", "60")
    get_settings.cache_clear()
    key = gateway.key(rights=("read", "write", "admin"))
    calls = read_calls((repository / "README.md").read_text("utf-8"))
    assert [path for path, _, _ in calls] == ["events", "recall"]
    differences: list[str] = []
    for path, body, text in calls:
        reply = gateway.call("POST", f"/api/v1/{path}", body, key=key)
        assert reply.status in (200, 201), reply.text
        differences += find_differences(text, reply.body)
    assert not differences, "\n".join(differences)
    assert sum(bool(view) for _, _, view in calls) == 2


def test_readme_picture_context_line_matches_prompt(gateway: Gateway, repository: Path) -> None:
    picture = (repository / "README.md").read_text("utf-8").split("```")[1]
    words = " ".join(re.sub("[│▼─►]", " ", picture).split())
    statement = "The Petrel stays ashore until her keel is painted."
    assert f"Mon 23 November 2026 09:14, alice: {statement.partition(' ashore')[0]}" in words
    key = gateway.key(rights=("read", "write"))
    event = {
        "participants": ["user:alice", "agent:helper"],
        "role": "user",
        "content": statement,
        "occurred_at": "2026-11-23T09:14:00Z",
    }
    assert gateway.call("POST", "/api/v1/events", event, key=key).status == 201
    question = "Can I take the Petrel out on Saturday?"
    assert question in words
    body = {"query": question, "participants": ["user:alice"]}
    reply = gateway.call("POST", "/api/v1/context", body, key=key)
    assert f"[1] Mon 23 November 2026 09:14, alice: {statement}\n" in reply.body["text"]


def test_readme_variables_work_in_other_pages(gateway: Gateway, repository: Path) -> None:
    key = gateway.key(rights=("read", "write", "admin"))
    people = ["user:alice", "agent:helper"]
    topic = {"participants": people, "nodes": [{"type": "topic", "name": "The berth"}]}
    reply = gateway.call("POST", "/api/v1/graph/nodes", topic, key=key)
    topic_id = reply.body["nodes"][0]["id"]
    for name, count in (("graph.md", 2), ("references.md", 1)):
        calls = read_calls((repository / "docs" / name).read_text("utf-8"), "sh")
        assert len(calls) == count, name
        for path, body, _ in calls:
            path = path.replace("$TOPIC", topic_id)
            reply = gateway.call("POST", f"/api/v1/{path}", body, key=key)
            assert reply.status in (200, 201), (path, reply.text)


def test_readme_variables_are_replaced_by_deployment_only() -> None:
    pages = [path.name for path in DOCUMENTS if re.search(r"\$API/api|\$JSON", path.read_text())]
    assert pages == ["deploy.md"]


def test_readme_test_detects_wrong_answer() -> None:
    answer = {"event_id": "01a2bc", "known": 0.86, "hits": [{"text": "Friday."}]}
    assert find_differences('{"event_id": "01a2…", "known": 0.86, …}', answer) == []
    for wrong in ('{"known": 0.85, …}', '{"id": "01a2…"}', '{…, "hits": [{"text": "Monday."'):
        assert find_differences(wrong, answer)
