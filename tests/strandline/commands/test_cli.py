"""The command line against the real handlers, over HTTP."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest

from strandline.aws.blobs import BlobStore
from strandline.client.errors import make_error
from strandline.commands.imports.sending import ImportTally, store_batch
from strandline.commands.output import explain_error_for_cli
from strandline.db.database import TenantDb
from strandline.errors import Unavailable
from strandline.log.event_draft import EventDraft
from strandline.recall.importance import rerank_by_weights
from strandline.recall.schemas import RecallWeights
from tests.chat_service import ScriptedTasks, use_model
from tests.strandline.client.conftest import HttpService, client, service
from tests.strandline.commands.chatgpt_files import chatgpt
from tests.strandline.commands.command_line import Run, run

__all__ = ["client", "run", "service"]
MESSAGES = 5_000


def test_cli_add_recall_context_as_text_and_json(run: Run) -> None:
    code, out, _ = run("add", "The buoy goes out on [bold]Friday[/bold].", "--user", "alice")
    assert (code, out.startswith("stored as event ")) == (0, True)
    code, out, _ = run("recall", "When does the buoy go out?", "--user", "alice")
    assert code == 0
    assert "[bold]Friday[/bold]" in out, "stored text is no markup"
    assert "user:alice" in out
    code, out, _ = run("--json", "recall", "buoy", "--participant", "user:alice")
    assert json.loads(out)["hits"][0]["text"].startswith("The buoy")
    assert run("add", "A long log: " + "waves, " * 100, "--user", "alice")[0] == 0
    out = run("recall", "log of waves", "--user", "alice")[1]
    assert "…" in out
    assert out.count("waves,") < 50
    assert run("recall", "log of waves", "--user", "alice", "--full")[1].count("waves,") == 100
    code, out, _ = run("context", "buoy", "--user", "alice", "--budget", "300")
    assert out.startswith("<memory-")
    then = ("--user", "alice", "--as-of", "2026-01-01T00:00:00Z")
    assert run("recall", "buoy", *then)[1] == "Nothing is known about this.\n"
    assert "buoy goes" not in run("context", "buoy", *then)[1]
    code, _, err = run("context", *then)
    assert (code, "as_of needs a query" in err) == (1, True)
    asked = ("--json", "recall", "Give me an overview of the buoys", "--user", "alice")
    broad = [json.loads(run(*asked, *one)[1])["breadth"] for one in ((), ("--no-breadth",))]
    assert broad == [True, False]
    words = json.loads(run(*asked, "--only-words")[1])["degraded"]
    assert words == ["no_query_vector"]
    code, _, err = run("context", "--user", "alice", "--breadth")
    assert (code, "breadth needs a query" in err) == (1, True)
    code, out, _ = run("recall", "x", "--user", "nobody")
    assert out == "Nothing is known about this.\n"


def test_cli_recall_shows_long_text_from_the_match(run: Run) -> None:
    text = f"{'calm sea, ' * 150}the spare key hangs behind the heron, {'light wind, ' * 150}"
    assert run("add", text, "--user", "alice")[0] == 0
    out = run("recall", "Where does the spare key hang?", "--user", "alice")[1]
    assert "the spare key hangs" in " ".join(out.split())
    assert "…" in out


def test_cli_recall_names_payload_and_ids_of_events(run: Run, tmp_path: Path) -> None:
    """A text that is too long for its event is no empty line; what is to be erased has its id."""
    lines = [f"The minutes list item {n} about the pier lights." for n in range(1500)]
    lines[700] = "The spare key hangs behind the barometer."
    file = tmp_path / "minutes.txt"
    file.write_text("\n".join(lines))
    text = file.read_text()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.stdin", io.StringIO(text))
        code, stored, _ = run("add", "-", "--user", "alice")
    assert code == 0
    _, out, _ = run("recall", "Where does the spare key hang?", "--user", "alice", "--full")
    event_id = stored.split()[3].rstrip(",")
    assert event_id in out
    assert "The spare key hangs behind the barometer." in " ".join(out.split())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BlobStore, "read_text_prefix", Mock(side_effect=Unavailable))
        _, out, err = run("recall", "Where does the spare key hang?", "--user", "alice", "--full")
    assert "a payload, of which the characters" in out
    assert "could not be read now" in err
    assert event_id not in run("recall", "the spare key", "--user", "alice")[1]


def test_cli_version_is_that_of_service(run: Run, service: HttpService) -> None:
    with service.client() as memory:
        version = memory.openapi()["info"]["version"]
    for option in ("--version", "-V"):
        assert run(option) == (0, f"strandline, version {version}\n", "")


def test_cli_admin_key_needs_everybody_option(run: Run, service: HttpService) -> None:
    for name in ("alice", "bob"):
        assert run("add", f"{name} likes herring.", "--user", name)[0] == 0
    for command in (["recall", "herring"], ["context", "herring"], ["export"], ["verify"]):
        code, _, err = run(*command)
        assert (code, "--user NAME" in err, "--everybody" in err) == (1, True, True)
        code, out, _ = run(*command, "--everybody")
        assert code == 0
        assert command[0] == "verify" or ("alice likes" in out and "bob likes" in out)
        assert run(*command, "--everybody", "--user", "alice")[0] == 1
    assert run("erasures", "--everybody")[1] == "There are no erasures.\n"
    code, out, err = run("--key", service.gateway.key(user="user:alice"), "status")
    assert (code, err, "quota" in out) == (0, "", False), "the tenant's use is not a user's to see"


def test_cli_ask_and_chat_cite_events(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a scripted model; one that is late is waited for, and without one it is said."""
    code, _, err = run("ask", "When does the buoy go out?", "--user", "alice")
    assert (code, "STRANDLINE_LLM_PROVIDER" in err) == (1, True)
    own = use_model(ScriptedTasks())
    try:
        run("add", "The buoy goes out.", "--user", "alice", "--agent", "helper")
        code, out, _ = run("ask", "The buoy?", "--user", "alice")
        assert (code, out.splitlines()[0]) == (0, "You said: The buoy?")
        assert out.splitlines()[1].startswith("[1] event ")
        code, out, _ = run("--json", "chat", "Ahoy!", "--user", "alice", "--agent", "helper")
        assert (code, json.loads(out)["text"]) == (0, "You said: Ahoy!")
        weights = list[RecallWeights | None]()

        def record(access: TenantDb, events: Sequence[Any], *rest: Any) -> Any:
            weights.append(rest[0])
            return rerank_by_weights(access, events, *rest)

        monkeypatch.setattr("strandline.context.build.rerank_by_weights", record)
        who = ("--user", "alice", "--agent", "helper", "--sona", "Pilot")
        for verb in ("chat", "ask"):
            assert run(verb, "The buoy?", *who, "--sona-weight", "0.5")[0] == 0
            assert run(verb, "The buoy?", *who)[0] == 0
        assert weights == [RecallWeights(sona=0.5), None] * 2
        assert run("ask", "The buoy?", *who, "--sona-weight", "2")[0] == 2
    finally:
        use_model(own)


def test_cli_mistakes_give_sentence_and_exit_code(
    run: Run, service: HttpService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("strandline.commands.invocation._SECONDS", 0.1)
    assert run("add", "x")[0] == 1
    assert "--user NAME" in run("add", "x")[2]
    code, _, err = run("add", " ", "--user", "alice")
    assert (code, "content: is blank: give a text" in err) == (1, True), err
    empty = tmp_path / "empty.txt"
    empty.touch()
    code, _, err = run("upload", str(empty), "--user", "alice")
    assert (code, "FILE is empty" in err) == (2, True), err
    assert run("recall")[0] == 2
    assert "Missing argument" in run("recall")[2]
    assert run("recall", "x", "--limit", "0")[0] == 2
    code, _, err = run("--key", "made up", "status")
    assert (code, "STRANDLINE_API_KEY" in err, "Strandline(" in err) == (1, True, False)
    code, _, err = run("import", str(tmp_path / "none.json"))
    assert (code, "does not exist" in err) == (2, True)
    bad_value = tmp_path / "broken.json"
    bad_value.write_text("{")
    code, _, err = run("import", str(bad_value))
    assert (code, "not JSON" in err) == (1, True)
    monkeypatch.delenv("STRANDLINE_URL")
    monkeypatch.chdir(tmp_path)
    code, _, err = run("status")
    assert (code, "make run" in err) == (2, True)
    for arguments in (
        ("add", "x", "--user", "bo", "--event-key", "\ud800"),
        ("--url", "http://[", "status"),
        ("--url", "harbour", "status"),
        ("--key", "gr\u00fcn", "status"),
        ("export", "--user", "alice", "--out", str(tmp_path / "none" / "out.jsonl")),
    ):
        monkeypatch.setenv("STRANDLINE_URL", service.url)
        code, _, err = run(*arguments)
        assert code in (1, 2, 3), arguments
        assert "Traceback" not in err
        assert len(err.splitlines()) <= 4, err
    out_file = tmp_path / "none" / "out.jsonl"
    err = run("export", "--user", "alice", "--out", str(out_file))[2]
    assert ("folder does not exist" in err, str(out_file) in err) == (True, True), err
    err = run("--key", service.gateway.key(), "jobs", "list")[2]
    assert "admin.key" in err, err
    for arguments in (["--help"], ["import", "--help"], ["keys", "create", "-h"]):
        code, out, _ = run(*arguments)
        assert (code, out.startswith("Usage: ")) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("recall", "x", "--json"), "--json stands before the command: strandline --json recall …"),
        (("status", "--url=http://h"), "the command: strandline --url URL status …"),
        (("keys", "list", "--key", "k"), "the command: strandline --key KEY keys list …"),
        (("recall", "x", "--users", "alice"), "No such option"),
    ],
)
def test_cli_option_after_command_is_told_its_place(
    run: Run, arguments: tuple[str, ...], sentence: str
) -> None:
    code, _, err = run(*arguments)
    assert (code, sentence in err) == (2, True), err


def test_cli_finds_local_service(
    run: Run, service: HttpService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("STRANDLINE_URL")
    monkeypatch.delenv("STRANDLINE_API_KEY")
    place = {"url": service.url, "key": service.gateway.key()}
    (tmp_path / "local.json").write_text(json.dumps(place))
    monkeypatch.setenv("STRANDLINE_DATA_DIR", str(tmp_path))
    assert run("add", "x", "--user", "alice")[0] == 0


def test_cli_manages_tenants_keys_and_jobs(run: Run, service: HttpService) -> None:
    operator = service.gateway.key(rights=("operator",))
    code, out, _ = run("--key", operator, "tenants", "create", "brill")
    assert (code, out) == (0, "created: brill\n")
    code, token, _ = run(
        "--key", operator, "keys", "create", "--tenant", "brill", "--user", "bo", "--days", "1"
    )
    assert token.startswith("strandline_")
    assert run("--key", token.strip(), "add", "x", "--user", "bo")[0] == 0
    code, out, _ = run("--key", operator, "--json", "keys", "list", "--tenant", "brill")
    (document,) = json.loads(out)
    assert document["user"] == "user:bo"
    assert "user:bo" in run("--key", operator, "keys", "list", "--tenant", "brill")[1]
    rotate = ("--key", operator, "keys", "rotate", document["key_id"], "--tenant", "brill")
    code, successor, err = run(*rotate, "--grace", "1")
    assert (code, "the old key ends at" in err) == (0, True)
    assert run("--key", successor.strip(), "add", "y", "--user", "bo")[0] == 0
    assert run("--key", token.strip(), "add", "z", "--user", "bo")[0] == 0, "for an hour"
    code, out, _ = run("--key", operator, "--json", "keys", "list", "--tenant", "brill")
    old = next(key for key in json.loads(out) if key["key_id"] == document["key_id"])
    assert old["rotated_to"] is not None
    assert run(*rotate[:-1], "nobody")[0] == 1
    assert run(*rotate, "--grace", "9999")[0] == 2
    assert run("--key", operator, "keys", "revoke", document["key_id"], "--tenant", "brill")[0] == 0
    assert "brill" in run("--key", operator, "tenants", "list")[1]
    err = run("--key", operator, "keys", "create", "--tenant", "nope")[2]
    assert err.startswith("strandline: There is no tenant 'nope': create it first (")
    assert "strandline tenants create NAME" in err
    assert "--user" not in err, "no reader is at fault"
    assert run("jobs", "list")[1] == "There are no jobs.\n"
    assert run("--json", "jobs", "list", "--state", "failed", "--kind", "enrich")[1] == "[]\n"
    assert "kind" in run("jobs", "list", "--kind", "nothing")[2]
    assert run("tenants", "list")[0] == 1, "no operator's key"
    assert "_STRANDLINE_COMPLETE" in run("completion", "bash")[1]


def test_cli_status_tells_memory_and_hides_key(run: Run, service: HttpService) -> None:
    key = service.gateway.key(rights=("read", "write", "admin"))
    code, out, err = run("--key", key, "status")
    assert code == 0
    assert "database" in out
    assert "model: none" in out
    assert re.search(r"memory: \d+ events in \d+ scopes, 0 topics, 0 facts", out)
    assert "next: " in out
    assert "appends" in out
    for text in (out, err, *run("--key", key, "--json", "status")[1:]):
        assert not re.search(key.removeprefix("strandline_"), text)


def test_cli_erase_counts_and_asks_first(
    run: Run, service: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    eraser = ("--key", service.gateway.key(rights=("read", "write", "erase")))
    for text in ("The crane leans.", "It is red."):
        assert run("add", text, "--user", "alice", "--session", "crane")[0] == 0
    options = ("--said-by", "user:alice")
    code, _, error = run("erase", *options)
    assert (code, "--right read --right write --right erase" in error) == (1, True), (
        "how to make such a key"
    )
    code, out, _ = run(*eraser, "erase", *options, "--dry-run")
    more = "and what belongs to no event (uploads, names of sonas, questions)"
    assert (code, out) == (0, f"2 events in 1 scope {more} would be erased\n")
    code, out, _ = run(*eraser, "erase", "--session", "crane", "--dry-run")
    assert (code, out) == (0, "2 events in 1 scope would be erased\n")
    assert json.loads(run(*eraser, "--json", "erase", *options, "--dry-run")[1])["events"] == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, out, error = run(*eraser, "erase", *options)
    assert (code, error) == (1, "Error: nothing was erased\n")
    assert out.startswith(f"Erase 2 events in 1 scope {more}? "), out
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    code, _, error = run(*eraser, "erase", *options)
    assert (code, "--yes" in error) == (1, True), "nobody answers"
    assert run("recall", "crane", "--user", "alice")[1] != "Nothing is known about this.\n"
    code, out, _ = run(*eraser, "--json", "erase", *options, "--yes")
    erasure_id = json.loads(out)["erasure_id"]
    assert run("recall", "crane", "--user", "alice")[1] == "Nothing is known about this.\n"
    assert "2 events" in run(*eraser, "erasure", erasure_id)[1]
    assert json.loads(run(*eraser, "--json", "erasure", erasure_id)[1])["state"] == "hidden"
    (document,) = json.loads(run(*eraser, "--json", "erasures", "--state", "hidden")[1])
    assert (document["erasure_id"], document["counts"]["events"]) == (erasure_id, 2)
    assert erasure_id in run(*eraser, "erasures")[1]
    admin = service.gateway.key(rights=("read", "admin"))
    assert "2 events" in run("--key", admin, "erasure", erasure_id, "--everybody")[1]
    assert run(*eraser, "erasures", "--user", "bob")[1] == "There are no erasures.\n"
    assert run(*eraser, "erase", *options, "--yes")[0] == 1, "nothing is left"
    event_id = run("add", "Again.", "--user", "alice")[1].split()[3].rstrip(",")
    first = run(*eraser, "erase", event_id, "--yes")[1]
    assert "unreadable" in first
    assert first.split()[-1] in run(*eraser, "erase", event_id, "--yes")[2], "the same erasure"
    for targets in (("--tenant", "--session", "crane"), ()):
        code, _, err = run(*eraser, "erase", *targets)
        assert (code, "--session, --said-by, --scope" in err) == (2, True), err
    assert run(*eraser, "erase", "not an id")[0] == 2


def test_cli_upload_stores_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_text("The harbour master is Ines.")
    code, out, _ = run("upload", str(file), "--user", "alice")
    assert (code, "CID bafk" in out) == (0, True)


def test_cli_export_can_be_imported(run: Run, service: HttpService, tmp_path: Path) -> None:
    with service.client() as memory:
        memory.add("First.", user="alice", agent="helper", metadata={"n": 1}, session_id="s")
        parts = [{"content": "Sec", "model": "a"}, {"content": "ond."}]
        memory.add(user="alice", agent="helper", role="agent", parts=parts)
        memory.graph.add([{"type": "topic", "name": "Boats"}], user="alice")
        was = [*memory.get_all(user="alice")]
    file = tmp_path / "out.jsonl"
    code, _, err = run("export", "--user", "alice", "--out", str(file))
    assert (code, "left out: 1 statement" in err) == (0, True)
    assert run("export", "--user", "alice")[1] == file.read_text()
    assert [*tmp_path.iterdir()] == [file], "no draft is left"
    other = service.gateway.key("other", rights=("read", "write", "admin"))
    for counts in ("2 stored, 0 known", "0 stored, 2 known"):
        code, out, _ = run("--key", other, "import", str(file))
        assert (code, out) == (0, f"2 read: {counts}, 0 refused, 0 left out\n")
    from strandline import Strandline

    with Strandline(service.url, other) as copy:
        now = [*copy.get_all(user="alice")]
    remaining = ("role", "type", "content", "participants", "session_id", "metadata")
    assert [[getattr(e, name) for name in remaining] for e in now] == [
        [getattr(e, name) for name in remaining] for e in was if e.type != "statement"
    ]


def test_cli_import_of_own_export_adds_nothing(
    run: Run, service: HttpService, tmp_path: Path
) -> None:
    """Neither by who wrote it, whose keys it bears, nor by another, who sees no keys."""
    agents = service.gateway.key(rights=("read", "write"))
    from strandline import Strandline

    with Strandline(service.url, agents) as memory:
        memory.add("First.", user="alice", source_event_key="k1", channel="chat")
        memory.add("Second.", user="alice")
        memory.add("Third.", user="alice", agent="helper")
    file = tmp_path / "out.jsonl"
    for exporter in ((), ("--key", agents)):
        assert run(*exporter, "export", "--user", "alice", "--out", str(file))[0] == 0
        for importer in ((), ("--key", agents)):
            code, out, _ = run(*importer, "import", str(file))
            assert (code, out) == (0, "3 read: 0 stored, 3 known, 0 refused, 0 left out\n")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert ("chat", "k1") in [(line["channel"], line["source_event_key"]) for line in lines]
    text = file.read_text()
    for changed in (
        text.replace("Third.", "Fourth."),
        text.replace('"metadata": {', '"metadata": {"a": 1', 1),
    ):
        file.write_text(changed)
        assert "2 known, 1 refused" in run("--key", agents, "import", str(file))[1]


def test_cli_import_leaves_out_blank_events_of_earlier_version(
    run: Run, service: HttpService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here they are known, by their place or by their keys; elsewhere they are left out."""
    writer = service.gateway.key(rights=("write",))
    with service.client() as memory, monkeypatch.context() as earlier:
        earlier.setattr(EventDraft, "blank_text_error", None)
        memory.add("First.", user="alice", source_event_key="k1")
        memory.add("", user="alice", source_event_key="k2")
        parts = [{"content": " "}, {"content": "\n"}]
        memory.add(user="alice", agent="helper", role="agent", parts=parts, source_event_key="k3")
    file = tmp_path / "out.jsonl"
    assert run("export", "--user", "alice", "--out", str(file))[0] == 0
    for importer in ((), ("--key", writer)):
        code, out, _ = run(*importer, "import", str(file))
        assert (code, out) == (0, "3 read: 0 stored, 3 known, 0 refused, 0 left out\n")
    other = service.gateway.key("other", rights=("read", "write"))
    code, out, err = run("--key", other, "import", str(file))
    counts = "3 read: 1 stored, 0 known, 0 refused, 2 left out"
    assert (code, out) == (0, f"{counts}\nleft out: blank events (2)\n"), err
    lines = [json.loads(line) | {"type": "wrong"} for line in file.read_text().splitlines()]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert "3 refused, 0 left out" in run("--key", other, "import", str(file))[1]


def test_cli_import_of_own_export_restores_nothing_erased(
    run: Run, service: HttpService, tmp_path: Path
) -> None:
    """By any writer: neither an event of a scope that is left, nor one of a whole scope."""
    agents = service.gateway.key(rights=("read", "write"))
    eraser = service.gateway.key(rights=("read", "write", "erase"))
    from strandline import Strandline

    with Strandline(service.url, agents) as memory:
        first = memory.add("First.", user="alice", source_event_key="k1")
        memory.add("Second.", user="alice")
        alone = memory.add("Third.", user="alice", agent="helper")
    file = tmp_path / "out.jsonl"
    assert run("export", "--user", "alice", "--out", str(file))[0] == 0
    file.write_text(file.read_text() * 2)
    assert run("import", str(file))[1] == "6 read: 0 stored, 6 known, 0 refused, 0 left out\n"
    erasure = ("--key", eraser, "erase", str(first.event_id), str(alone.event_id), "--yes")
    assert run(*erasure)[0] == 0
    for importer in ((), ("--key", agents)):
        code, out, err = run(*importer, "import", str(file))
        assert (code, out) == (1, "6 read: 0 stored, 2 known, 4 refused, 0 left out\n")
        assert "it was erased here since it was exported, and stays so" in err


def test_cli_import_tolerates_invalid_origins(run: Run, tmp_path: Path) -> None:
    good = {"participants": ["user:a"], "role": "user", "content": "x"}
    origin = {"event_id": str(UUID(int=7)), "scope_id": str(UUID(int=8)), "seq": 1}
    lines = [
        good | origin | change
        for change in (
            {},
            {"seq": 10**30},
            {"seq": -1},
            {"participants": 5, "scope_id": str(UUID(int=9))},
            {"participants": [None], "scope_id": str(UUID(int=10))},
        )
    ]
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert run("import", str(file))[1] == "5 read: 3 stored, 0 known, 2 refused, 0 left out\n"


def test_cli_import_names_refused_lines(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    good = {"participants": ["user:alice"], "role": "user", "content": "x"}
    lines: list[Any] = [good, good | {"role": "wrong"}]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    code, out, err = run("import", str(file))
    assert (code, out) == (1, "2 read: 1 stored, 0 known, 1 refused, 0 left out\n")
    assert "refused: lines.jsonl, line 2: role" in err


def test_cli_import_splits_long_and_refuses_giant(run: Run, tmp_path: Path) -> None:
    """Seventy of 60 KiB each are more than one request holds; one of 5 MiB is more than any."""
    event = {"participants": ["user:alice"], "role": "user"}
    lines = [event | {"content": f"{n} " + "x" * 61_000} for n in range(70)]
    lines.append(event | {"content": "y" * 5_000_000})
    file = tmp_path / "long.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    code, out, err = run("import", str(file))
    assert (code, out) == (1, "71 read: 70 stored, 0 known, 1 refused, 0 left out\n")
    assert "refused: long.jsonl, line 71: body" in err


EXPORTS = Path(__file__).parent / "exports"


def test_cli_import_of_real_exports_counts_every_item(run: Run, service: HttpService) -> None:
    """All of them at once, then again: nothing twice, and the counts add up by kind."""
    arguments = ("--json", "import", str(EXPORTS), "--user", "ann", "--agent", "helper")
    code, out, _ = run(*arguments)
    first = json.loads(out)
    assert code == 1, "one conversation is malformed"
    assert (first["refused"], first["known"]) == (1, 1), "one conversation is in two files"
    stored_count, left_out_count = first["stored"], sum(first["left_out"].values())
    assert first["read"] == stored_count + 1 + 1 + left_out_count
    code, out, _ = run(*arguments)
    again = json.loads(out)
    assert (again["stored"], again["known"]) == (0, stored_count + 1)
    assert {name: again[name] for name in ("read", "refused", "left_out")} == {
        name: first[name] for name in ("read", "refused", "left_out")
    }
    with service.client() as memory:
        events = [*memory.get_all(user="ann")]
        assert len(events) == stored_count
        texts = {event.content or "": event for event in events}
        assert not [text for text in texts if "not supported on your current device" in text]
        assert not [text for text in texts if "rumpet" in text or "blood test" in text]
        assert texts["49"].type == "observation"
        days = {event.occurred_at.year for event in texts.values() if event.occurred_at}
        assert days == {2023, 2026}
        for question, answer in (
            ("When does Runa move?", "My sister Runa moves to Tromsø in May."),
            ("Who takes over the harbour budget?", "Ilse takes over the harbour budget"),
        ):
            hits = memory.recall(question, user="ann", limit=3).hits
            assert any(answer in (hit.text or "") for hit in hits)


def test_cli_import_reports_left_out_and_changed_items(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("import", str(EXPORTS / "chatgpt_tools_hidden.json"))
    assert code == 0
    assert out == (
        "14 read: 9 stored, 0 known, 0 refused, 5 left out\n"
        "as user:user and agent:assistant\n"
        "left out: hidden prompts (2), pictures without text (1), thoughts (2)\n"
    )
    code, out, err = run("import", str(EXPORTS / "nul.jsonl"))
    assert (code, "5 read: 5 stored" in out) == (0, True)
    assert "note: nul.jsonl, line 2: content: 1 character became U+FFFD" in err
    code, out, err = run("import", str(EXPORTS / "claude_users.json"))
    assert (code, out) == (1, "1 read: 0 stored, 0 known, 1 refused, 0 left out\n")
    assert "refused: claude_users.json: it holds no conversation of ChatGPT, Claude" in err
    assert "Write one event per line as .jsonl" in err
    users, parts = str(EXPORTS / "claude_users.json"), str(EXPORTS / "chatgpt_export.zip")
    code, out, err = run("import", parts, users)
    assert (code, "2 stored, 0 known, 1 refused" in out) == (1, True), "a named file without any"
    code, out, err = run("import", parts)
    assert (code, "skipped: user.json: it holds no conversation" in err) == (0, True)
    code, out, err = run("import", str(tmp_path))
    assert (code, "Import reads JSON Lines" in err) == (1, True)
    lines = tmp_path / "bad.jsonl"
    good = json.dumps({"participants": ["user:a"], "role": "user", "content": "x"})
    lines.write_text(f"{good}\n{{\n{good}\n")
    code, out, err = run("import", str(lines))
    assert (code, out) == (1, "3 read: 2 stored, 0 known, 1 refused, 0 left out\n")
    assert "refused: bad.jsonl, line 2: it is not JSON" in err


def test_cli_import_groups_refusals_by_reason(run: Run, tmp_path: Path) -> None:
    lines = tmp_path / "a.jsonl"
    lines.write_text("7\n" * 300 + json.dumps({"role": "user", "content": "x"}) + "\n")
    code, out, err = run("import", str(lines))
    assert (code, out) == (1, "301 read: 0 stored, 0 known, 301 refused, 0 left out\n")
    grouped, other = err.splitlines()
    assert grouped == "refused: 300 times, first in a.jsonl, line 1: it is no object"
    assert other.startswith("refused: a.jsonl, line 301: participants")
    lines.write_text("".join('{"a' + " " * n + "\n" for n in range(8)) + "{\n")
    err = run("import", str(lines))[2]
    assert err.splitlines()[-1] == "refused: 4 more, for other reasons"


def test_cli_import_says_as_whom_it_stores(run: Run, tmp_path: Path) -> None:
    file = str(EXPORTS / "chatgpt_tools_hidden.json")
    out = run("import", file, "--user", "ann", "--agent", "helper")[1]
    assert out.splitlines()[1] == "as user:ann and agent:helper"
    lines = tmp_path / "lines.jsonl"
    lines.write_text(json.dumps({"participants": ["user:a"], "role": "user", "content": "x"}))
    out = run("import", str(lines))[1]
    assert len(out.splitlines()) == 1, "the lines themselves say who takes part"


def test_cli_import_by_other_user_is_refused(run: Run) -> None:
    file = str(EXPORTS / "chatgpt_voice.json")
    assert run("import", file, "--user", "ann")[0] == 0
    code, out, err = run("import", file, "--user", "bo")
    assert (code, "3 refused" in out) == (1, True)
    assert "stored before with other participants" in err
    assert "give the same --user and --agent" in err


def test_cli_import_refuses_other_file_of_same_name(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        line = {"participants": ["user:a"], "role": "user", "content": name}
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.jsonl").write_text(json.dumps(line))
    code, out, err = run("import", *(str(tmp_path / n / "events.jsonl") for n in ("a", "b", "a")))
    assert (code, out) == (1, "3 read: 1 stored, 1 known, 1 refused, 0 left out\n")
    assert "Give the file another name, or each line a source_event_key" in err


def test_cli_import_refuses_faulty_event_alone(run: Run, tmp_path: Path) -> None:
    """Each of these is refused by the service, some with the whole request."""
    good = {"participants": ["user:a"], "role": "user", "content": "x"}
    bad_values = [
        {"metadata": {"x": float("nan")}},
        {
            "metadata": {
                "x": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]
            }
        },
        {"content": "y" * 5_000_000},
        {"occurred_at": "9999-12-31T23:59:59-14:00"},
        {"participants": 5},
        {"role": "\0"},
    ]
    lines = [json.dumps(good | bad) for bad in bad_values]
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(f"{json.dumps(good)}\n{line}\n" for line in lines))
    code, out, err = run("import", str(file))
    assert (code, out) == (1, "12 read: 6 stored, 0 known, 6 refused, 0 left out\n")
    assert "line 2: metadata" in err


def test_cli_import_reports_stored_count_on_outage(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from strandline.client.errors import ConnectionFailedError

    sizes = list[int]()

    def store_once(client: Any, batch: Sequence[Any], tally: ImportTally) -> None:
        sizes.append(len(batch))
        if len(sizes) > 1:
            raise ConnectionFailedError("gone.")
        store_batch(client, batch, tally)

    monkeypatch.setattr("strandline.commands.transfer.store_batch", store_once)
    good = json.dumps({"participants": ["user:a"], "role": "user", "content": "x"})
    file = tmp_path / "lines.jsonl"
    file.write_text(f"{good}\n" * 300)
    code, _, err = run("import", str(file))
    assert code == 3
    assert "so far 200 read: 200 stored, 0 known, 0 refused, 0 left out; import it again" in err


def count_events(service: HttpService) -> int:
    """How many events were imported."""
    with service.client() as memory:
        return sum(scope.last_seq for scope in memory.scopes(user="user"))


def test_cli_import_resumes_after_interrupt(
    run: Run,
    service: HttpService,
    repository: Path,
    tmp_path: Path,
    proof_size: Callable[[int], int],
) -> None:
    """SIGINT while it imports; then again, and then to the end: count, order and times."""
    count = max(1200, proof_size(MESSAGES))  # more than two interrupted imports come to
    conversation = chatgpt(count)
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([conversation]))
    key = service.gateway.key(rights=("read", "write"))
    environment = {"STRANDLINE_URL": service.url, "STRANDLINE_API_KEY": key}
    environment |= {"PYTHONPATH": str(repository / "shared"), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "strandline.commands.main", "import", str(file)]
    for _ in range(2):
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        before = count_events(service)
        while process.poll() is None and count_events(service) == before:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert "Traceback" not in err
        # By the signal itself where it comes while the interpreter starts or ends.
        assert process.returncode in (0, 130, -signal.SIGINT)
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    total = count + 5
    assert sum(map(int, re.findall(r"(\d+) (?:stored|known)", result.stdout))) == total
    assert ", 0 refused, 3 left out\n" in result.stdout
    with service.client() as memory:
        (scope,) = memory.scopes(user="user")
        events = [*memory.events(scope.scope_id, user="user", page_size=500)]
    assert [event.seq for event in events] == [*range(1, total + 1)]
    assert [event.content for event in events[5:]] == [f"more {n}" for n in range(count)]
    times = [event.occurred_at for event in events[5:] if event.occurred_at is not None]
    assert len(times) == count
    assert times == sorted(times)


def test_cli_table_becomes_blocks_on_narrow_terminal(
    run: Run, service: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = service.gateway.key("operations", rights=("operator",))
    arguments = ("--key", operator, "keys")
    options = ("--tenant", "acme", "--right", "read", "--right", "write", "--right", "erase")
    assert run(*arguments, "create", *options, "--label", "harbour office")[0] == 0
    assert run(*arguments, "create", "--tenant", "acme", "--right", "rule")[0] == 2
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(*arguments, "list", "--tenant", "acme")[1].splitlines()
    assert "rights   read, write, erase" in lines
    assert "label    harbour office" in lines
    monkeypatch.setenv("COLUMNS", "200")
    lines = run(*arguments, "list", "--tenant", "acme")[1].splitlines()
    assert lines[0].split()[:3] == ["key", "user", "rights"]


def test_cli_error_names_options() -> None:
    refusal = {"code": "invalid_field", "details": {"field": "participants"}}
    missing = make_error(422, refusal | {"message": "participants: say who takes part as …"}, None)
    assert explain_error_for_cli(missing) == (
        "participants: nobody is named. Say for whom: --user NAME, --agent NAME or "
        "--participant KIND:NAME."
    )
    wrong = make_error(422, refusal | {"message": "participants: has a control character"}, None)
    assert explain_error_for_cli(wrong).startswith(
        "participants: has a control character. Say for whom"
    )
    late = (
        "The message is stored; send the request again with the Idempotency-Key of `details` for an"
        " answer."
    )
    failed = make_error(503, {"code": "model_unavailable", "message": late}, None)
    assert "`strandline ask` answers it" in explain_error_for_cli(failed)
    without = "No language model is configured. Set X, or put `block` into the prompt of your own."
    unset = make_error(409, {"code": "state_conflict", "message": without}, None)
    assert "put what `strandline context` prints into the prompt" in explain_error_for_cli(unset)
    absent = make_error(404, {"code": "not_found", "message": "There is nothing here"}, None)
    assert explain_error_for_cli(absent).startswith("There is nothing here. Check the id")


def test_cli_bash_completion_completes_commands(repository: Path, tmp_path: Path) -> None:
    """In bash itself, with the script that `strandline completion bash` prints."""
    program = tmp_path / "strandline"
    program.write_text(
        f"#!/bin/sh\nPYTHONPATH={repository / 'shared'} exec {sys.executable}"
        ' -m strandline.commands.main "$@"\n'
    )
    program.chmod(0o755)

    def run(*command: str) -> str:
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout

    output = run(str(program), "completion", "bash")

    def complete(*words: str) -> list[str]:
        line = " ".join(("strandline", *words))
        script = (
            f"{output}\nCOMP_WORDS=({line}); "
            f'COMP_CWORD={len(words)}; _strandline_completion strandline; echo "${{COMPREPLY[@]}}"'
        )
        return run("bash", "-c", script).split()

    assert {"keys", "simulate", "verify", "recall"} <= {*complete("''")}
    assert complete("keys", "ro") == ["rotate"]
    assert "--budget" in complete("context", "--b")
