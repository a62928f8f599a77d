"""The conversations of `tests/bench/changes`: frozen before they were first told."""

import hashlib
import json
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parent / "changes"
FROZEN = {
    "conversations.json": "3069395a1b41f81b637ce0dcee771f7171a654e6afabb8a73c5d9f0ca2f1f0c7",
    "unseen.json": "d3e037dd4c5983b849114b91b6def84fe9c33ce8579ed3f7ff30c170fdd8d753",
}


@pytest.mark.parametrize("name", FROZEN)
def test_bench_changes_conversations_are_frozen(name: str) -> None:
    assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == FROZEN[name]


@pytest.mark.parametrize("name", FROZEN)
def test_bench_changes_have_four_per_slot_and_ten_lookalikes(name: str) -> None:
    conversations = json.loads((FOLDER / name).read_text())
    changed = [one["slot"] for one in conversations if one["kind"] == "change"]
    assert {slot: changed.count(slot) for slot in set(changed)} == dict.fromkeys(
        ("home", "job", "tool", "plan", "preference"), 4
    )
    assert len(conversations) - len(changed) == 10
