"""The conversations of `tests/bench/deep`: frozen before recall was first asked about them."""

import hashlib
import json
import pathlib
from typing import Any

import pytest

FOLDER = pathlib.Path(__file__).parent / "deep"
FROZEN = {
    "deep_1.json": "a5dac4ab1b9f570e8ae384a1879e9a05c3a8d35b61602f04be5c98030900050a",
    "deep_2.json": "2bb136b240d23131bee4b356cd53f9ce2ccad82d00375ef55de0511ddc312d5a",
    "deep_3.json": "5bb32aaf5738b91b15b2eb99e111d42b90b1e62fbea06e4b3f805fbfbd71db2c",
    "deep_4.json": "4e6e5b17f4a06a3f87c8bd267d87a65185513725092259c9424daa94bc26e241",
}


def _read(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / name).read_bytes())


@pytest.mark.parametrize("name", FROZEN)
def test_bench_deep_conversations_are_frozen(name: str) -> None:
    assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == FROZEN[name]


@pytest.mark.parametrize("name", FROZEN)
def test_bench_deep_answers_stand_late_in_long_texts(name: str) -> None:
    talk = _read(name)
    texts = {event["id"]: event["text"] for event in talk["events"]}
    for question in talk["questions"]:
        (key,) = question["evidence"]
        first, last = question["span"]
        assert texts[key][first:last] == question["answer"]
        assert 1_500 <= len(texts[key]) <= 8_000
        assert first / len(texts[key]) >= 0.4
        assert last / len(texts[key]) <= 0.95
        assert sum(question["answer"] in text for text in texts.values()) == 1


def test_bench_deep_has_thirty_questions_among_short_events() -> None:
    talks = [_read(name) for name in FROZEN]
    assert {path.name for path in FOLDER.glob("*.json")} == set(FROZEN)
    assert sum(len(talk["questions"]) for talk in talks) == 30
    asked = [{key for q in talk["questions"] for key in q["evidence"]} for talk in talks]
    events = [event for talk in talks for event in talk["events"]]
    assert sum(len(keys) for keys in asked) == 30
    assert sum(len(event["text"]) < 400 for event in events) >= 60
    assert sum(event.get("type") == "upload" for event in events) == 4
    assert sum(event.get("type") == "observation" for event in events) == 7
