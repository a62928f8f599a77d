"""The cases of `tests/bench/cases`: frozen before they were first told."""

import hashlib

import pytest

from tests.bench import cases

FROZEN = {
    "noise": "02c383f5e7441c7768011c3a18ab2b80b0b95e940265a0f90723edc277d81d19",
    "duplicates": "739e80a81138ed4cf0ee236d01ec6ad7157435ce7d60e9e6c33112f5b9b8773a",
    "changes": "8a188ac2439b7092968fc6163dddf9a32ef280f98a0998e0a3eca3e567db2381",
    "scripts": "fab52f2b75ed42cf1676cec026da3514202c4b785d9ac1bfe3675821b20d0b07",
    "told_changes": "c6b268c2e2aa159c0c57603f77abd068b7dc1d3a26b4b89ddb74d6eb3d2c5976",
}


@pytest.mark.parametrize("kind", cases.KINDS)
def test_bench_cases_are_those_that_were_frozen(kind: str) -> None:
    content = (cases.FOLDER / f"{kind}.jsonl").read_bytes()
    assert hashlib.sha256(content).hexdigest() == FROZEN[kind]
    count = 60 if kind == "told_changes" else 20
    assert len({case["id"] for case in cases.read_cases(kind)}) == count


@pytest.mark.parametrize("kind", cases.KINDS)
def test_bench_cases_need_events_that_they_have(kind: str) -> None:
    for case in cases.read_cases(kind):
        keys = [event["source_event_key"] for event in cases.expand_events(case)]
        assert len(set(keys)) == len(keys)
        any_of = [key for group in case.get("must_find_any", ()) for key in group]
        assert {*case["must_find"], *any_of, *case.get("must_not_lead", ())} <= set(keys)


def test_bench_cases_write_floods_out() -> None:
    flood = {
        "flood": 3,
        "role": "tool",
        "speaker": "agent:ci",
        "start": "2026-01-02T10:00:00Z",
        "every_seconds": 30,
        "template": "deploy {n} of {node}",
        "values": {"node": ["a", "b"]},
    }
    said = {"id": "e1", "role": "user", "speaker": "user:ann", "time": "2026-01-02T10:00:45Z"}
    events = cases.expand_events({"events": [flood, {**said, "text": "Leave b alone."}]})
    assert [(event["source_event_key"], event["content"]) for event in events] == [
        ("f1", "deploy 1 of a"),
        ("f2", "deploy 2 of b"),
        ("e1", "Leave b alone."),
        ("f3", "deploy 3 of a"),
    ]
    assert {tuple(event["participants"]) for event in events} == {("agent:ci", "user:ann")}
