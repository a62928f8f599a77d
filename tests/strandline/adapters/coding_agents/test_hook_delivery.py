"""Sessions of coding agents, replayed through their hooks: what was said is stored exactly once."""

import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from strandline import Strandline
from tests.strandline.adapters.coding_agents.hook_calls import HookCaller, list_stored_texts
from tests.strandline.adapters.coding_agents.transcript_lines import (
    ClaudeTranscript,
    CodexTranscript,
)
from tests.strandline.adapters.conftest import Users


@pytest.fixture
def caller(tmp_path: Path, users: Users) -> HookCaller:
    return HookCaller(tmp_path, users.alice)


@pytest.mark.parametrize("kind", [ClaudeTranscript, CodexTranscript])
def test_hook_session_comes_back_in_another(
    kind: type[ClaudeTranscript | CodexTranscript],
    caller: HookCaller,
    client: Strandline,
    users: Users,
    tmp_path: Path,
) -> None:
    first = kind(tmp_path / "one.jsonl")
    assert caller.call("SessionStart", first, source="startup") == {}
    first.ask("The buoy goes out on Friday.")
    assert caller.call("UserPromptSubmit", first, prompt=first.said[-1]) == {}
    first.answer("I wrote that down.")
    assert caller.call("Stop", first, "--agent", "codex", stop_hook_active=False) == {}
    caller.flush()
    events = [*client.get_all(user=users.alice)][::-1]
    assert [(event.role, event.content) for event in events] == [
        ("user", first.said[0]),
        ("agent", first.said[1]),
    ]
    assert {event.session_id for event in events} == {first.session_id}
    assert events[0].speaker == f"user:{users.alice}"
    assert str(events[0].occurred_at).startswith("2026-11-29 23:01")

    third = kind(tmp_path / "three.jsonl")
    start = caller.call_until_answered("SessionStart", third, source="startup")
    assert start["hookEventName"] == "SessionStart"
    assert "The buoy goes out on Friday." in start["additionalContext"]
    question = "When does the buoy go out?"
    prompt = caller.call_until_answered("UserPromptSubmit", third, prompt=question)
    assert prompt["hookEventName"] == "UserPromptSubmit"
    assert "The buoy goes out on Friday." in prompt["additionalContext"]


def test_hook_shows_nothing_of_other_users_and_projects(
    caller: HookCaller, users: Users, tmp_path: Path
) -> None:
    mine = ClaudeTranscript(tmp_path / "one.jsonl")
    mine.ask("The buoy goes out on Friday.")
    caller.call("Stop", mine)
    caller.flush()
    question = {"prompt": "When does the buoy go out?"}
    assert caller.call("UserPromptSubmit", mine, **question)
    assert caller.call("UserPromptSubmit", mine, "--user", users.bob, **question) == {}
    assert caller.call("UserPromptSubmit", mine, "--project", "boats", **question) == {}
    (tmp_path / "elsewhere" / "buoys" / ".git").mkdir(parents=True)
    elsewhere = {**question, "cwd": str(tmp_path / "elsewhere/buoys")}
    assert caller.call("UserPromptSubmit", mine, **elsewhere) == {}, "another folder of this name"
    (caller.project / "docs").mkdir()
    inside = {**question, "cwd": str(caller.project / "docs")}
    assert caller.call("UserPromptSubmit", mine, **inside), "the repository's folder"


def test_hook_replay_with_kills_stores_exactly_once(
    caller: HookCaller, client: Strandline, users: Users, tmp_path: Path
) -> None:
    """Two sessions at once; hooks and the process that stores are killed at any moment; hooks are
    called twice, a session is compacted, resumed and forked."""
    chance = random.Random(46)
    claude, codex = ClaudeTranscript(tmp_path / "a.jsonl"), CodexTranscript(tmp_path / "b.jsonl")
    sessions = (claude, codex)
    start = time.monotonic()
    caller.call("Stop", claude)
    length = time.monotonic() - start  # of a hook on this machine
    kills = 0
    for turn in range(24):
        hooks: list[subprocess.Popen[str]] = []
        for number, session in enumerate(sessions):
            session.ask(f"Question {turn} of session {number}.")
            session.answer(f"Answer {turn} of session {number}.")
            if turn % 8 == 5:
                hooks.append(caller.start("PreCompact", session, trigger="auto"))
                session.compact()
            hooks += [caller.start("Stop", session) for _ in range(1 + turn % 2)]
        if turn % 3:
            time.sleep(chance.uniform(0, length) if turn % 3 == 1 else 0)
            for hook in hooks:
                kills += hook.poll() is None
                hook.kill()
        if turn % 2:
            time.sleep(chance.uniform(0, 1.0))
            caller.kill_delivery()
        for hook in hooks:
            hook.communicate()
        if turn == 12:
            caller.call("SessionStart", claude, source="resume")
    assert kills > 5
    other = CodexTranscript(tmp_path / "other.jsonl")
    caller.call("SessionStart", other, source="startup")  # of whatever session: it goes on
    caller.wait_for_delivery()
    report = caller.flush()
    assert (report["waiting"], report["refused"]) == (0, 0)
    for session in sessions:
        assert list_stored_texts(client, users.alice, session.session_id) == session.said
    fork = claude.fork(tmp_path / "c.jsonl")
    fork.ask("A question of the fork.")
    caller.call("Stop", fork)
    caller.flush()
    assert list_stored_texts(client, users.alice, fork.session_id) == fork.said
    assert len(list_stored_texts(client, users.alice)) == 2 * 48 + 1


def test_hook_reads_again_without_its_notes(
    caller: HookCaller, client: Strandline, users: Users, tmp_path: Path
) -> None:
    """How far transcripts were read is noted to save time: without it nothing is doubled."""
    session = ClaudeTranscript(tmp_path / "one.jsonl")
    session.ask("The buoy goes out on Friday.")
    caller.call("Stop", session)
    caller.flush()
    shutil.rmtree(caller.folder / "transcripts")
    shutil.rmtree(caller.folder / "segments")
    session.answer("Noted.")
    caller.call("Stop", session)
    caller.flush()
    assert list_stored_texts(client, users.alice) == session.said


def test_hook_is_done_before_its_delivery(caller: HookCaller, tmp_path: Path) -> None:
    """The agent waits for the end of the output, which no process keeps open."""
    session = ClaudeTranscript(tmp_path / "one.jsonl")
    session.ask("The buoy goes out on Friday.")
    hook = caller.start("Stop", session)
    hook.communicate(timeout=30)
    caller.wait_for_delivery()
    caller.wait_for_texts_on_disk([])
    caller.assert_files_are_private()


def test_hook_stores_what_is_typed_while_agent_works(
    caller: HookCaller, client: Strandline, users: Users, tmp_path: Path
) -> None:
    """Once, also where the agent takes it up as a prompt of its own later."""
    session = ClaudeTranscript(tmp_path / "one.jsonl")
    session.ask("Paint the keel of the Petrel.")
    session.interject("And her name, in white.")
    session.answer("Done.")
    taken_up = {"role": "user", "content": "The oars, too."}
    step = session.make_step(type="user", message=taken_up)
    queued = {"type": "queued_command", "commandMode": "prompt", "source_uuid": step["uuid"]}
    blocks = [{"type": "image"}, {"type": "text", "text": taken_up["content"]}]
    session.write(session.make_step(type="attachment", attachment={**queued, "prompt": blocks}))
    session.write(step)
    caller.call("Stop", session)
    caller.flush()
    assert list_stored_texts(client, users.alice) == [*session.said, taken_up["content"]]


def test_hook_stores_prompts_without_additions(
    caller: HookCaller, client: Strandline, users: Users, tmp_path: Path
) -> None:
    """Neither marks nor reminders of the agent's program, nor a prompt that it wrote itself."""
    session = ClaudeTranscript(tmp_path / "one.jsonl")
    session.ask_with_additions()
    caller.call("Stop", session)
    caller.flush()
    assert list_stored_texts(client, users.alice) == session.said


def test_hook_stores_no_summary_of_compaction(
    caller: HookCaller, client: Strandline, users: Users, tmp_path: Path
) -> None:
    for kind in (ClaudeTranscript, CodexTranscript):
        session = kind(tmp_path / f"{kind.__name__}.jsonl")
        session.ask("The buoy goes out on Friday.")
        session.answer("Noted.")
        session.compact()
        session.answer("What next?")
        caller.call("Stop", session)
        caller.flush()
        assert list_stored_texts(client, users.alice, session.session_id) == session.said


def test_hook_asks_nothing_for_prompts_of_program(
    caller: HookCaller, users: Users, tmp_path: Path
) -> None:
    """An agent calls the hook of prompts for its own notices, too."""
    session = ClaudeTranscript(tmp_path / "one.jsonl")
    session.ask("The background command of the buoy is completed.")
    caller.call("Stop", session)
    caller.flush()
    prompt = "Is the background command of the buoy completed?"
    caller.call_until_answered("UserPromptSubmit", session, prompt=prompt)
    notice = f"<task-notification>\n<summary>{session.said[0]}</summary>\n</task-notification>"
    assert caller.call("UserPromptSubmit", session, prompt=notice) == {}


def test_hook_stores_tools_where_asked(
    caller: HookCaller, client: Strandline, users: Users, tmp_path: Path
) -> None:
    for kind in (ClaudeTranscript, CodexTranscript):
        session = kind(tmp_path / f"{kind.__name__}.jsonl")
        session.ask("Run the tests.")
        session.answer("They pass.", tool_output="1 of 2\n" * 5000 + "the end")
        caller.call("Stop", session, "--tools", "1")
        caller.flush()
        events = [*client.get_all(user=users.alice)][::-1]
        ours = [event for event in events if event.session_id == session.session_id]
        assert [event.type for event in ours] == ["message", "action", "observation", "message"]
        output = str(ours[2].content)
        assert output.endswith("the end")
        assert len(output) < 17_000
        assert ours[2].origin == "tool"


def test_hook_stores_what_tools_gave_nothing(
    caller: HookCaller, client: Strandline, users: Users, tmp_path: Path
) -> None:
    for kind in (ClaudeTranscript, CodexTranscript):
        session = kind(tmp_path / f"{kind.__name__}.jsonl")
        session.answer("It is removed.", tool_output="")
        caller.call("Stop", session, "--tools", "1")
        assert caller.flush()["refused"] == 0
        events = [*client.get_all(user=users.alice)][::-1]
        ours = [event for event in events if event.session_id == session.session_id]
        assert [event.content for event in ours if event.type == "observation"] == [""]
