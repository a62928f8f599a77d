"""The conversations of `tests/bench/changes`: frozen before the cues were written."""

import hashlib
import json
import pathlib

CONVERSATIONS = pathlib.Path(__file__).parent / "changes/conversations.json"
FROZEN = "3069395a1b41f81b637ce0dcee771f7171a654e6afabb8a73c5d9f0ca2f1f0c7"


def test_conversations_are_those_that_were_frozen() -> None:
    assert hashlib.sha256(CONVERSATIONS.read_bytes()).hexdigest() == FROZEN


def test_each_slot_changes_in_four_and_only_seems_to_in_ten() -> None:
    conversations = json.loads(CONVERSATIONS.read_text())
    changed = [one["slot"] for one in conversations if one["kind"] == "change"]
    assert {slot: changed.count(slot) for slot in set(changed)} == dict.fromkeys(
        ("home", "job", "tool", "plan", "preference"), 4
    )
    assert len(conversations) - len(changed) == 10
