"""What hooks do with files that are damaged, and where files cannot be written."""

import json
import os
import resource
import subprocess
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import pytest

from strandline import Strandline, secret_scrubbing
from strandline.adapters.coding_agents import questions
from strandline.adapters.coding_agents.hook import answer_hook
from strandline.adapters.coding_agents.spool import Spool
from tests.strandline.adapters.coding_agents.hook_calls import (
    COMMAND,
    NOBODY,
    HookCaller,
    list_stored_texts,
)
from tests.strandline.adapters.coding_agents.transcript_lines import ClaudeTranscript
from tests.strandline.adapters.conftest import Users


def test_hook_reads_broken_transcripts(
    client: Strandline, users: Users, session: ClaudeTranscript, tmp_path: Path
) -> None:
    """Lines that are no JSON or no objects, bytes that are no UTF-8, signs that JSON can hold and
    UTF-8 cannot, a huge line, and one that is half written."""
    caller = HookCaller(tmp_path, users.alice)
    session.answer("É 中 🌊 \ud800 \x00 end", tool_output="x" * 3_000_000)
    with session.path.open("ab") as file:
        file.write(b'{"type": "user"\n[1]\n"a"\n\xff\xfe\n\n{"type": "user", "message": 5}\n')
    session.ask("After the broken lines.")
    step = session.make_step(type="user", message={"role": "user", "content": "Half written."})
    half = json.dumps(step).encode()
    with session.path.open("ab") as file:
        file.write(half[:50])
    caller.call("Stop", session)
    report = caller.flush()
    assert report["unreadable_lines"] == 4
    expected = [*session.said[:2], "É 中 🌊 ? \ufffd end", "After the broken lines."]
    assert list_stored_texts(client, users.alice) == expected
    with session.path.open("ab") as file:
        file.write(half[50:] + b"\n")
    caller.call("Stop", session)
    caller.flush()
    assert list_stored_texts(client, users.alice) == [*expected, "Half written."]


def test_hook_stores_messages_whose_time_is_damaged(
    client: Strandline, users: Users, session: ClaudeTranscript, tmp_path: Path
) -> None:
    caller = HookCaller(tmp_path, users.alice)
    for moment in ("yesterday", "2026-13-45T00:00:00Z", "2026-11-29T23:01:12", "", 17, None):
        message = {"role": "user", "content": f"Typed at {moment!r}."}
        session.write(session.make_step(type="user", message=message, timestamp=moment))
        session.said.append(message["content"])
    caller.call("Stop", session)
    assert caller.flush()["refused"] == 0
    assert list_stored_texts(client, users.alice) == session.said


def test_hook_stores_messages_beside_unreadable_transcript(
    client: Strandline, users: Users, session: ClaudeTranscript, tmp_path: Path
) -> None:
    caller = HookCaller(tmp_path, users.alice)
    others = [ClaudeTranscript(tmp_path / f"{name}.jsonl") for name in range(8)]
    session.path.unlink()
    session.path.mkdir()
    for other in (session, *others):
        caller.call("SessionStart", other, source="startup")
    for other in others:
        other.ask("The buoy goes out on Friday.")
    report = caller.flush()
    assert report["problem"].startswith("A transcript cannot be read: ")
    assert str(session.path) in report["problem"]
    assert len(list_stored_texts(client, users.alice)) == len(others)


def test_hook_ends_well_where_absence_cannot_be_noted(
    users: Users, session: ClaudeTranscript, tmp_path: Path
) -> None:
    caller = HookCaller(tmp_path, users.alice, STRANDLINE_URL=NOBODY)
    assert caller.call("SessionStart", session, source="startup")
    (caller.folder / "away").unlink()
    (caller.folder / "away").mkdir()
    os.utime(caller.folder / "away", (0, 0))
    assert caller.call("UserPromptSubmit", session, prompt="When?") == {}
    says = caller.call("SessionStart", session, source="resume")["systemMessage"]
    assert says.startswith("Strandline: memory cannot be asked: ")


@pytest.mark.parametrize(
    ("event", "module", "function"),
    [
        ("SessionStart", questions, "describe_problems"),
        ("SessionStart", questions, "_fetch_context"),
        ("UserPromptSubmit", secret_scrubbing, "scrub_secrets"),
        ("UserPromptSubmit", questions, "_fetch_context"),
    ],
)
def test_hook_hides_no_fault_of_asking(
    event: str, module: ModuleType, function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a fault of ours")

    monkeypatch.setattr(module, function, fail)
    payload = {"hook_event_name": event, "prompt": "When?"}
    arguments = ["--url", NOBODY, "--user", "ann", "--folder", str(tmp_path / "state")]
    with pytest.raises(ValueError, match="a fault of ours"):
        answer_hook(json.dumps(payload).encode(), arguments, {})


def test_hook_tells_unreadable_transcript_while_service_is_away(
    users: Users, session: ClaudeTranscript, tmp_path: Path
) -> None:
    caller = HookCaller(tmp_path, users.alice, STRANDLINE_URL=NOBODY)
    written = session.path.read_bytes()
    session.path.unlink()
    session.path.mkdir()
    assert caller.call("SessionStart", session, source="startup")
    caller.call("Stop", session)
    caller.wait_for_delivery()
    sentence = f"A transcript cannot be read: [Errno 21] Is a directory: '{session.path}'."
    says = caller.call("SessionStart", session, source="resume")["systemMessage"]
    assert says.startswith(f"Strandline: {sentence} ")
    spool = Spool(str(caller.folder))
    assert not spool.has_work(), "it starts no delivery"

    other = ClaudeTranscript(tmp_path / "other.jsonl")
    other.ask("The buoy goes out on Friday.")
    caller.call("Stop", other)
    caller.wait_for_delivery()
    for _ in range(2):
        problem = caller.flush(expected_code=1)["problem"]
        assert problem.startswith("Messages wait on disk: ")
        assert problem.endswith(f". {sentence}")
        assert problem.count(sentence) == 1

    session.path.rmdir()
    session.path.write_bytes(written)
    assert spool.has_work()
    problem = caller.flush(expected_code=1)["problem"]
    assert problem.startswith("Messages wait on disk: ")
    assert "transcript" not in problem


def test_hook_spool_leaves_nothing_on_full_disk(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"))
    spool.create()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            spool.add_segment([{"content": "x" * 50_000}])
        with pytest.raises(OSError, match="too large"):
            spool.replace_json(str(tmp_path / "spool/report.json"), {"problem": "x" * 50_000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path for path in (tmp_path / "spool").rglob("*") if path.is_file()] == []


def test_hook_flush_says_that_folder_cannot_be_written(users: Users, tmp_path: Path) -> None:
    caller = HookCaller(tmp_path, users.alice, STRANDLINE_HOOK_FOLDER="/dev/null/x")
    done = subprocess.run(
        [*COMMAND, "--flush"], env=caller.variables, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "set STRANDLINE_HOOK_FOLDER to a folder that you may write" in done.stderr
    assert done.stderr.startswith("strandline: folder: ")
    assert "Traceback" not in done.stderr


def test_hook_delivers_what_stands_beside_damaged_messages(
    client: Strandline, users: Users, session: ClaudeTranscript, tmp_path: Path
) -> None:
    """Lines cut in two, of zeros, of no object and of no message; a file of zeros, an empty one."""
    caller = HookCaller(tmp_path, users.alice, STRANDLINE_URL=NOBODY)
    caller.call("Stop", session)
    caller.wait_for_delivery()
    spool = Spool(str(caller.folder))
    (segment,) = spool.list_segments()
    lines = Path(segment).read_bytes().splitlines(keepends=True)
    damaged = [*lines[:1], b"\0\0\0\n", b"[1]\n", b'{"content": 5}\n', *lines[1:], lines[0][:40]]
    files = {"0" * 19 + "1-1.jsonl": b"\0" * 512, "0" * 19 + "2-1.jsonl": b""}
    files[Path(segment).name] = b"".join(damaged)
    for name, data in files.items():
        (caller.folder / "segments" / name).write_bytes(data)
        (caller.folder / "segments" / name).chmod(0o600)

    real = HookCaller(tmp_path / "real", users.alice)
    real.call("SessionStart", session, source="startup")
    target = Spool(str(real.folder))
    for path in spool.list_segments():
        os.rename(path, os.path.join(target.segments, os.path.basename(path)))
    report = real.flush()
    assert (report["damaged"], report["waiting"]) == (6, 0)
    assert list_stored_texts(client, users.alice) == session.said
    kept = {path.name: path.read_bytes() for path in Path(target.damaged).iterdir()}
    assert kept == files
    real.assert_files_are_private()
    says = real.call("SessionStart", session, source="resume")["systemMessage"]
    assert "Messages that waited are damaged and were not stored: their files are in " in says
    assert target.damaged in says
    for name in files:
        (Path(target.damaged) / name).unlink()
    assert "systemMessage" not in real.call("SessionStart", session, source="resume")


EVENT = {"participants": ["user:a", "agent:b"], "content": "Whole.", "source_event_key": "k"}


@pytest.mark.parametrize(
    "change",
    [
        {"participants": 5},
        {"participants": [None]},
        {"participants": None},
        {"bogus": "x"},
        {"timeout": 1},
        {"occurred_at": "yesterday"},
        {"content": None},
    ],
)
def test_hook_sets_aside_line_that_client_does_not_take(
    change: dict[str, object], users: Users, tmp_path: Path
) -> None:
    whole = EVENT | {
        "participants": [f"user:{users.alice}", "agent:b"],
        "source_event_key": str(tmp_path),
    }
    caller = HookCaller(tmp_path, users.alice)
    caller.flush()
    spool = Spool(str(caller.folder))
    spool.create()
    spool.add_segment([whole | change, whole])
    report = caller.flush()
    assert (report["stored"], report["damaged"], report["waiting"]) == (1, 1, 0)


def test_hook_damaged_file_takes_no_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it kept twice by a process that goes on where one was killed."""
    spool = Spool(str(tmp_path))
    spool.create()
    segment = Path(spool.segments) / "01-1.jsonl"
    for n in range(3):
        segment.write_text(f"damaged {n}")
        with monkeypatch.context() as killed:
            killed.setattr(os, "unlink", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                spool.set_damage_aside(str(segment))
        spool.set_damage_aside(str(segment))
        assert not segment.exists()
    kept = {path.name: path.read_text() for path in Path(spool.damaged).iterdir()}
    assert kept == {
        "01-1.jsonl": "damaged 0",
        "01-1-1.jsonl": "damaged 1",
        "01-1-2.jsonl": "damaged 2",
    }


def test_hook_delivers_damaged_file_whose_line_was_emptied(
    client: Strandline, users: Users, session: ClaudeTranscript, tmp_path: Path
) -> None:
    caller = HookCaller(tmp_path, users.alice)
    caller.flush()
    whole = EVENT | {
        "participants": [f"user:{users.alice}", "agent:b"],
        "source_event_key": str(tmp_path),
    }
    spool = Spool(str(caller.folder))
    spool.create()
    mended = {"01-1.jsonl": f"\n  \r\n{json.dumps(whole)}\n\n", "02-1.jsonl": "\n"}
    for name, text in mended.items():
        (Path(spool.segments) / name).write_text(text)
    report = caller.flush()
    assert (report["stored"], report.get("damaged"), report["waiting"]) == (1, None, 0)
    assert spool.list_segments() == []
    assert list_stored_texts(client, users.alice) == ["Whole."]
    assert "systemMessage" not in caller.call("SessionStart", session, source="startup")
