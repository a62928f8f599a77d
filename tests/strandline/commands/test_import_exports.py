"""Exports as ChatGPT and Claude write them, with all that is odd in them: what becomes an event, as
whose, and what is left out."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from strandline.commands.imports.items import (
    AlterationNote,
    Event,
    ImportOptions,
    Item,
    LeftOutItem,
    NewEvent,
    RefusedItem,
    SkippedFile,
)
from strandline.commands.imports.reading import read_import_items

EXPORTS = Path(__file__).parent / "exports"


def read(*names: str, **options: Any) -> list[Item]:
    people = ImportOptions("ann", "helper", **options)
    return [*read_import_items([EXPORTS / name for name in names], people)]


def events_of(items: list[Item]) -> list[Event]:
    return [item.event for item in items if isinstance(item, NewEvent)]


def left_out_of(items: list[Item]) -> dict[str, int]:
    kinds = Counter[str]()
    for item in items:
        if isinstance(item, LeftOutItem):
            kinds[item.kind] += item.count
    return dict(kinds)


def said(items: list[Item]) -> list[tuple[str, str | None, str]]:
    return [(e["role"], e.get("type"), e["content"]) for e in events_of(items)]


def test_import_malformed_conversation_fails_alone() -> None:
    items = read("chatgpt_one_bad.json")
    assert [text for _, _, text in said(items)] == [
        "My kayak is called Heron.",
        "Noted: Heron.",
        "The lock code of the shed is on the blue tag.",
        "The paddle is 2.2 metres long.",
        "Good length.",
    ]
    (note,) = [item.text for item in items if isinstance(item, AlterationNote)]
    assert note.endswith("“Broken”: current_node names no message; the newest branch is taken")
    (refusal,) = [item for item in items if isinstance(item, RefusedItem)]
    assert refusal.place == "chatgpt_one_bad.json, entry 1 “Broken”, message b2"


def test_import_voice_chat_keeps_both_sides() -> None:
    assert said(read("chatgpt_voice.json")) == [
        ("user", None, "My sister Runa moves to Tromsø in May."),
        ("agent", None, "Then you will see the midnight sun when you visit."),
        ("user", None, "And this one I typed."),
    ]


def test_import_chatgpt_tools_become_actions() -> None:
    items = read("chatgpt_tools_hidden.json")
    code = "from datetime import date\nprint((date(2023,6,21)-date(2023,5,3)).days)"
    assert said(items) == [
        ("user", None, "How many days from 3 May to 21 June?"),
        ("agent", "action", code),
        ("agent", "observation", "49"),
        ("agent", None, "There are 49 days."),
        ("agent", "action", "User bakes rye bread on Thursdays."),
        ("agent", "observation", "Model set context updated."),
        ("user", None, "Which bread is this?"),
        ("agent", "observation", "Rye needs a sourdough."),
        ("agent", None, "It is a rye loaf."),
    ]
    assert events_of(items)[4]["metadata"] == {"tool": "bio"}
    assert left_out_of(items) == {"hidden prompts": 2, "thoughts": 2, "pictures without text": 1}


def test_import_missing_time_takes_previous_time() -> None:
    days = [event["occurred_at"][:19] for event in events_of(read("chatgpt_null_times.json"))]
    begin, later = "2023-11-14T22:13:20", "2023-11-14T22:21:40"
    assert days == [begin, begin, later, later]


def test_import_leaves_out_do_not_remember_messages() -> None:
    items = read("chatgpt_do_not_remember.json")
    assert [text for _, _, text in said(items)] == ["I play the cello."]
    assert left_out_of(items) == {"messages not to be remembered": 2}
    items = read("chatgpt_do_not_remember.json", include_do_not_remember=True)
    assert (len(events_of(items)), left_out_of(items)) == (3, {})


def test_import_reads_downloaded_archive() -> None:
    items = read("chatgpt_export.zip")
    assert [e["source_event_key"] for e in events_of(items)] == [
        "chatgpt:c-s0:s0",
        "chatgpt:c-s1:s1",
    ]
    skipped = [item.name for item in items if isinstance(item, SkippedFile)]
    assert skipped == ["chat.html", "shared_conversations.json", "user.json"]
    assert not [item for item in items if isinstance(item, RefusedItem)]


def test_import_reads_several_files_and_folder(tmp_path: Path) -> None:
    items = read("claude_users.json", "chatgpt_bom.json")
    assert [type(item) for item in items] == [RefusedItem, NewEvent]
    folder = read(".")
    assert len(events_of(folder)) > 40
    assert {i.name for i in folder if isinstance(i, SkippedFile)} >= {
        "claude_users.json",
        "user.json",
    }


@pytest.mark.parametrize(("user", "agent"), [("ann", "kai"), ("user:ann", "agent:kai")])
def test_import_takes_names_with_and_without_kind(user: str, agent: str) -> None:
    assert ImportOptions(user, agent).participants == ["user:ann", "agent:kai"]


def test_import_claude_attachment_becomes_user_text() -> None:
    items = read("claude_attachments.json")
    assert said(items) == [
        ("user", None, "paste.txt\nMeeting notes: Ilse takes over the harbour budget from June."),
        ("agent", None, "Ilse takes over in June."),
    ]
    assert events_of(items)[0]["metadata"] == {"file": "paste.txt"}
    assert left_out_of(items) == {"files without text": 1, "empty conversations": 1}


def test_import_claude_blocks_replace_placeholders() -> None:
    items = read("claude_tools.json")
    assert said(items) == [
        ("user", None, "What does the tide table say for Friday?"),
        ("agent", "action", '{"query": "tide table Friday"}'),
        ("agent", "observation", "High water 14:10."),
        ("agent", None, "Let me check."),
        ("agent", "action", "Plan\n# Plan\nLeave at 13:30."),
        ("agent", None, "High water is at 14:10."),
        ("user", None, "Remind me that the slipway is closed on Sundays."),
    ]
    assert len({e["source_event_key"] for e in events_of(items)}) == 7
    assert left_out_of(items) == {"thoughts": 1}


def test_import_claude_reads_last_shown_branch() -> None:
    items = read("claude_branches.json")
    keys = [e["source_event_key"].rpartition(":")[2] for e in events_of(items)]
    assert keys == ["br1", "br2", "br3b", "br4c"]
    assert left_out_of(items) == {"messages of other branches": 3}


def test_import_equal_times_keep_question_first() -> None:
    texts = [text for _, _, text in said(read("claude_same_time.json"))]
    assert [text.split()[0] for text in texts] == ["Question", "Answer"] * 2


@pytest.mark.parametrize(("name", "count"), [("bom.jsonl", 2), ("utf16.jsonl", 1)])
def test_import_reads_byte_order_marks(name: str, count: int) -> None:
    events = events_of(read(name))
    assert (len(events), events[0]["content"]) == (count, "The gate code is on the fridge.")


def test_import_replaces_unstorable_characters() -> None:
    items = read("nul.jsonl")
    texts = [text for _, _, text in said(items)]
    assert texts[1:3] == ["ls: binary\ufffdtail of the tool output", "emoji cut in half \ufffd"]
    assert (len(texts), texts[3]) == (5, "\x1b[31mred\x1b[0m log line")
    assert [item.text for item in items if isinstance(item, AlterationNote)] == [
        "nul.jsonl, line 2: content: 1 character became U+FFFD",
        "nul.jsonl, line 3: content: 1 character became U+FFFD",
    ]
