"""What `make demo` shows of personas, with a language model and without."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from strandline.local import demo
from strandline.local.demo_persona_report import show_persona
from tests.chat_service import ScriptedTasks, use_model
from tests.support import Gateway

QUESTION = demo.QUESTIONS[1]


class Front:
    """The demo's client on the functions themselves."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway, self._key = gateway, gateway.key("demo")

    def post_any(self, path: str, body: object) -> tuple[int, dict[str, Any]]:
        reply = self._gateway.call("POST", path, body, key=self._key)
        return reply.status, reply.body

    def post(self, path: str, body: object) -> dict[str, Any]:
        status, answer = self.post_any(path, body)
        assert status < 300, answer
        return answer

    def get(self, path: str) -> dict[str, Any]:
        path, _, query = path.partition("?")
        who = re.findall(r"participants=([^&]+)", query)
        names = [name.replace("%3A", ":") for name in who]
        reply = self._gateway.call("GET", path, key=self._key, query={"participants": names})
        assert reply.status == 200, reply.text
        return reply.body


def test_a_persona_is_shown_as_often_as_one_likes(
    gateway: Gateway, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (repository / demo.DEMO / "questions.jsonl").read_text().splitlines()
    (question,) = (q for q in map(json.loads, lines) if q["question"] == QUESTION)
    people = question["participants"]
    events = list(demo.load_events(repository / demo.DEMO))
    among = [e for e in events if e["participants"] == people and "content" in e][:60]
    front, ids = Front(gateway), dict[str, str]()
    for event in among:
        event.pop("cites", None)
    for start in (0, 30):
        body = {"events": among[start : start + 30]}
        for item in front.post("/api/v1/events/batch", body)["results"]:
            ids[among[len(ids)]["source_event_key"]] = item["event"]["event_id"]
    gateway.sweep()
    visible: list[str] = []
    for _ in range(2):
        show_persona(front, among, ids, question)
        visible.append(capsys.readouterr().out)
    assert visible[0] == visible[1]
    count = sum(event.get("speaker") == "agent:keel" for event in among)
    text = " ".join(visible[0].split())
    assert f'the sona "Buoy keeper": {count} memories.' in text
    assert len(re.findall(r"^  \d+ \w+ 20\d\d: ", visible[0], re.MULTILINE)) == 3
    assert "With STRANDLINE_LLM_PROVIDER and STRANDLINE_LLM_MODEL" in text
    own = use_model(ScriptedTasks())
    try:
        show_persona(front, among, ids, question)
    finally:
        use_model(own)
    assert f"You said: {QUESTION}" in capsys.readouterr().out
