"""The whole service on one machine, as `make run`, `make demo` and `make key` start and use it."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from events.demo import tour
from strandline.background import sweeper
from strandline.commands.main import main
from strandline.db.migrate import Migration, migrate, prepare_roles
from strandline.errors import Misconfigured
from strandline.jobs.runner import Shard
from strandline.local.log_file import make_log_path
from strandline.local.postgres import EmbeddedPostgres
from strandline.local.run import format_greeting
from strandline.local.runtime import (
    RunningService,
    make_connection_file_path,
    read_env_port,
    run_local_service,
)
from tests.older_database import restore_older_database
from tests.strandline.local.service_calls import call

pytestmark = pytest.mark.integration

EVENT = {"participants": ["user:alice"], "role": "user", "content": "The buoy is out."}


@contextmanager
def data_directory() -> Generator[Path]:
    """A data directory that the database's account can enter."""
    parent = Path(tempfile.mkdtemp(prefix="strandline-service-"))
    parent.chmod(0o711)
    yield parent / "data"
    shutil.rmtree(parent)


def set_environment(monkeypatch: pytest.MonkeyPatch, directory: Path) -> Path:
    """As a program has it that starts on this directory."""
    for name in ("DATABASE_URL", "BUCKET", "WORK_QUEUE_URL", "STATE_MACHINE", "KEY_SECRET"):
        monkeypatch.setenv(f"STRANDLINE_{name}", "")  # whatever a start sets is taken back
    monkeypatch.setenv("STRANDLINE_DATA_DIR", str(directory))
    monkeypatch.setenv("STRANDLINE_EMBEDDING_THREADS", "1")  # those that have nothing to do spin
    return directory


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data directory of the test's own."""
    with data_directory() as directory:
        yield set_environment(monkeypatch, directory)


@pytest.fixture(scope="module")
def shared_directory() -> Iterator[Path]:
    """One for tests that look at tenants of their own: to make its database takes seconds."""
    with data_directory() as directory:
        yield directory


@pytest.fixture
def shared_place(monkeypatch: pytest.MonkeyPatch, shared_directory: Path) -> Path:
    """The directory that other tests use, too."""
    return set_environment(monkeypatch, shared_directory)


def stored_usage(service: RunningService, key: str) -> Any:
    """The receipt of the event with this key, or None where the service says to try again."""
    try:
        return call(service, "/api/v1/events", {**EVENT, "source_event_key": key})
    except urllib.error.HTTPError as error:
        if error.code != 503 or not error.headers["Retry-After"]:
            raise
        return None


def test_local_service_survives_database_and_keeps_data(shared_place: Path) -> None:
    with run_local_service(shared_place, 0) as service:
        agents, greeting = service.agents, format_greeting(service, 1.0)
        exports = f"export STRANDLINE_URL={service.url} STRANDLINE_API_KEY={agents.token}"
        assert exports in greeting
        assert service.key in greeting
        assert f"-H 'X-API-Key: {agents.token}'" in greeting
        assert agents.file.read_text().strip() == agents.token
        question = "/api/v1/recall", {"query": "When does the buoy go out?"}
        with pytest.raises(urllib.error.HTTPError) as refusal:
            call(replace(service, admin=agents), *question)
        assert refusal.value.code == 422
        assert json.load(refusal.value)["error"]["details"] == {"field": "participants"}
        before = call(service, "/api/v1/events", EVENT)
        postmaster = service.postgres.directory / "pgdata" / "postmaster.pid"
        os.kill(int(postmaster.read_text().split()[0]), signal.SIGKILL)
        after = None
        until = time.monotonic() + 20
        while after is None and time.monotonic() < until:
            after = stored_usage(service, "after the database")
            time.sleep(0.1)
        assert after is not None
        assert after["seq"] >= 2, "what was acknowledged before is there"
        assert make_connection_file_path(shared_place).stat().st_mode & 0o777 == 0o600
    with run_local_service(shared_place, 0) as service:
        body = call(service, f"/api/v1/events/{before['event_id']}?participants=user:alice")
        assert body["content"] == EVENT["content"]
        tools = call(service, "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert tools["result"]["tools"]
        metadata = call(service, "/.well-known/oauth-protected-resource/mcp")
        assert metadata["resource"] == f"{service.url}/mcp"


def test_local_service_start_erases_while_sweep_lasts(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was erased before a crash does not wait until a sweep with much to do has ended."""
    with run_local_service(place, 0) as service:
        event = call(service, "/api/v1/events", EVENT)
        with psycopg.connect(service.postgres.dsn("strandline")) as admin:
            admin.execute(
                "insert into erasures (tenant_id, erasure_id, participants, kind, target, asked_at,"
                " asked_by, hidden_at, cleared_at, due_at) values ('local', %s, '{}', 'events',"
                " '{}', now(), '{}', now(), now(), now())",
                [event["event_id"]],
            )
    has_begun, is_over = threading.Event(), threading.Event()

    def sweep(*_: object) -> None:
        has_begun.set()
        is_over.wait(60)

    def plan(*_: object) -> list[Shard]:
        return [Shard("local")]

    monkeypatch.setattr(sweeper, "plan_shards", plan)
    monkeypatch.setattr(sweeper, "work_on_shard", sweep)
    with run_local_service(place, 0) as service:
        try:
            assert has_begun.wait(20)
            until, kinds = time.monotonic() + 20, set[str]()
            while "eraser" not in kinds and time.monotonic() < until:
                kinds = {job["kind"] for job in call(service, "/api/v1/admin/jobs")["jobs"]}
                time.sleep(0.2)
        finally:
            is_over.set()
        assert "eraser" in kinds


@pytest.mark.proof
def test_local_service_frees_leases_of_last_run(place: Path) -> None:
    """However it ended: nobody else works on this directory."""
    hold = (
        "insert into scope_work (tenant_id, scope_id, participants, due_at, leased_until)"
        " select tenant_id, scope_id, participants, now() + '1 day', now() + '1 day' from scopes"
        " on conflict (tenant_id, scope_id) do update"
        " set due_at = excluded.due_at, leased_until = excluded.leased_until"
    )
    for _ in range(2):
        with run_local_service(place, 0) as service:
            stored_usage(service, "leases")
            with psycopg.connect(service.postgres.dsn("strandline")) as admin:
                rows = admin.execute("select from scope_work where leased_until > now() + '1 hour'")
                assert rows.rowcount == 0
                admin.execute(hold)


@pytest.mark.proof
@pytest.mark.parametrize("where", ["file", "file/below"])
def test_local_service_names_invalid_data_directory(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(Misconfigured, match=r"^STRANDLINE_DATA_DIR: .*/file.* cannot be"),
        run_local_service(tmp_path / where, 0),
    ):
        pass


def test_local_service_refuses_other_migration_history(place: Path) -> None:
    older = Migration(1, "0001_create_log.sql", "create table events (a int)")
    place.mkdir(mode=0o755)
    with EmbeddedPostgres(place / "postgres") as server:
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute("create database strandline")
        with psycopg.connect(server.dsn("strandline"), autocommit=True) as admin:
            prepare_roles(admin, {})
            admin.execute("set role strandline_owner")
            assert migrate(admin, [older]) == [older.name]
    with (
        pytest.raises(Misconfigured, match=r"0001_create_log.*delete the data directory"),
        run_local_service(place, 0),
    ):
        raise AssertionError("it serves")
    shutil.rmtree(place)
    with run_local_service(place, 0) as service:
        assert call(service, "/api/v1/events", EVENT)["seq"] == 1


def test_local_service_starts_on_older_release_data(place: Path) -> None:
    """With its events, their vectors and its chain."""
    place.mkdir(mode=0o755)
    with EmbeddedPostgres(place / "postgres") as server:
        restore_older_database(server, "strandline", {})
    with run_local_service(place, 0) as service:
        question = {"query": "Where is the buoy?", "participants": ["user:alice"]}
        hits = call(service, "/api/v1/recall", question)["hits"]
        assert "The buoy at the harbour mouth is out" in hits[0]["text"]
        selection = {"participants": ["user:alice"], "session_id": "harbour", "limit": 100}
        listed = call(service, "/api/v1/events/query", selection)
        (scope,) = listed["scopes"]
        assert sorted(event["seq"] for event in scope["events"]) == list(range(1, 25))
        event = EVENT | {"participants": ["user:alice", "agent:helper"]}
        assert call(service, "/api/v1/events", event)["seq"] == 25


@pytest.mark.proof
def test_local_service_warns_of_sync_and_logs_to_file(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (place.parent / ".stfolder").mkdir()
    with run_local_service(place, 0) as service:
        assert sys.getswitchinterval() < 0.001, "requests run beside the fold"
        stored_usage(service, "log")
        health = call(service, "/api/v1/health")
        greeting = format_greeting(service, 1.0)
    (warning,) = service.warnings
    assert "synchronised by Syncthing" in warning
    assert health["warnings"] == [warning]
    assert warning in greeting
    assert str(make_log_path(service.directory)) in greeting
    lines = [json.loads(line) for line in make_log_path(service.directory).read_text().splitlines()]
    routes = [line["route"] for line in lines if line["message"] == "request"]
    assert routes == ["POST /api/v1/events", "GET /api/v1/health"]
    assert '"request"' not in "".join(capfd.readouterr()), "the terminal stays quiet"


def test_local_service_demo_answers_hides_and_erases(
    shared_place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Into what is no terminal; and where the service refuses a call."""
    with run_local_service(shared_place, 0) as service:
        assert tour.main() == 0
        output = capsys.readouterr().out
        _check_demo_output(output)
        path, key = _copied_call(output, "erasures/")
        erasure = call(replace(service, admin=service.admin._replace(token=key)), path)
        assert (erasure["kind"], erasure["state"]) == ("events", "hidden")
        wrong = [{"session_id": "s", "role": "nobody"}]
        monkeypatch.setattr(tour, "load_messages_of_conversation", lambda: wrong)
        assert tour.main() == 1
        assert capsys.readouterr().err.startswith("\nstrandline: events: the batch is atomic")


@pytest.mark.proof
def test_local_service_demo_reruns_and_detects_leak(
    shared_place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with run_local_service(shared_place, 0):
        for _ in range(2):
            assert tour.main() == 0
        tenants = re.findall(r"new tenant, (demo-[\d-]+)\.", capsys.readouterr().out)
        assert len(set(tenants)) == 2
        monkeypatch.setattr(tour, "TOMAS", tour.MARA)
        with pytest.raises(SystemExit, match="the demo fails: Recall finds what Tomas may not see"):
            tour.main()


def _check_demo_output(output: str) -> None:
    """What a run prints, section by section."""
    assert not re.search(r"\r|\x1b", output)
    text, _, calls = output.partition("\nGo on with this memory")
    assert calls.rstrip().endswith("tries it.")
    assert [line for line in text.splitlines() if len(line) > 95] == []
    assert "259 messages in 18 conversations" in " ".join(text.split())
    assert re.search(r"^   storing \.{13} done$", text, re.MULTILINE)
    assert re.search(r"^   computing vectors \.* done$", text, re.MULTILINE)
    sections = [" ".join(part.split()) for part in re.split(r"\n\n\d\. ", text)[1:]]
    assert len(sections) == 6
    answers = sections[1].split(" ask: ")[1:]
    for answer, question, fact in zip(
        answers,
        tour.QUESTIONS,
        ("10.4 metres", "crab boat Marigold", "16 November", "charged 235", "red pouch"),
        strict=True,
    ):
        assert answer.startswith(question.text)
        first = answer.partition("Before that: ")[0]
        assert fact in first, answer
        assert re.search(r"\[(Mara|Keel), \d+ \w+ 2026, \d\d:\d\d UTC, [0-9a-f-]{36}\]", first)
    assert "blue drybag" in answers[-1].partition("Before that: ")[2]
    assert "235" not in sections[2]
    assert "There is nothing here that this credential can see." in sections[2]
    assert f"4 August 2026 to 13 October 2026: {tour.FORMER_FACT}" in sections[3]
    assert f"Ended, because: {tour.REASON}" in sections[3]
    assert f"13 October 2026 to today: {tour.FACT}" in sections[3]
    tokens = re.match(r"It fits a prompt: (\d+) tokens", sections[4])
    assert tokens is not None
    assert int(tokens[1]) <= tour.CONTEXT_TOKENS <= 400
    assert re.search(r"\| <memory-(\w+)> .*red pouch.* \| </memory-\1>$", sections[4])
    assert "takes: 1 event. Erased at" in sections[5]
    assert sections[5].endswith('"This event was erased."')


def _copied_call(output: str, start: str) -> tuple[str, str]:
    """The path of a call that the demo prints, and its key."""
    key = re.search(r"^KEY=(\S+)$", output, re.MULTILINE)
    path = re.search(rf"\$API/({start}\S+)", output)
    assert key is not None
    assert path is not None
    return f"/api/v1/{path[1]}", key[1]


def test_local_service_demo_without_service_says_how_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_DATA_DIR", str(tmp_path))
    with pytest.raises(Misconfigured, match="no service runs on this data: start it by `make run`"):
        tour.main()
    with socket.socket() as listener:  # as after the service was stopped
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        make_connection_file_path(tmp_path).write_text(json.dumps({"url": url, "tls": None}))
        with pytest.raises(Misconfigured, match="no service runs on this data"):
            tour.main()


def test_local_service_demo_fact_is_in_graph_docs(repository: Path) -> None:
    page = (repository / "docs" / "graph.md").read_text("utf-8")
    (picture,) = re.findall(r"```mermaid\n(.*?)```", page, re.DOTALL)
    assert all(text in picture for text in (tour.FACT, tour.FORMER_FACT, tour.REASON))


def test_local_service_keys_are_made_listed_and_revoked(
    shared_place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with run_local_service(shared_place, 0) as service:
        monkeypatch.delenv("STRANDLINE_DATABASE_URL")  # as in another terminal
        create, rotate, revoke = (
            ["operate", "keys", verb] for verb in ("create", "rotate", "revoke")
        )
        assert main([*create, "--tenant", "acme", "--user", "user:alice", "--days", "1"]) == 0
        token = capsys.readouterr().out.strip()
        mine = replace(service, admin=service.admin._replace(token=token))
        assert call(mine, "/api/v1/events", EVENT)["seq"] == 1
        assert main(["operate", "keys", "list", "--tenant", "acme"]) == 0
        (document,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert (document["user"], document["rights"]) == ("user:alice", ["read", "write"])
        assert token[-20:] not in str(document)
        assert main([*rotate, "--tenant", "acme", document["key_id"]]) == 0
        successor = capsys.readouterr().out.strip()
        both = [
            replace(service, admin=service.admin._replace(token=key)) for key in (token, successor)
        ]
        assert [call(one, "/api/v1/events", EVENT)["seq"] for one in both] == [2, 3]
        assert main([*revoke, "--tenant", "acme", document["key_id"]]) == 0
        for wrong in (
            [*create, "--tenant", "T/1"],
            [*create, "--tenant", "acme", "--days", "0"],
            [*create, "--tenant", "acme", "--days", "99999999"],
            [*create, "--tenant", "acme", "--right", "all"],
            [*create, "--tenant", "acme", "--user", "user:"],
            [*revoke, "--tenant", "acme", "none"],
            [*rotate, "--tenant", "acme", "none"],
            [*rotate, "--tenant", "acme", document["key_id"]],
            [*rotate, "--tenant", "acme", document["key_id"], "--grace", "-1"],
        ):
            assert main(wrong) == 1, wrong
            assert capsys.readouterr().err.startswith("strandline: "), wrong


@pytest.mark.parametrize("text", ["abc", "99999", "-1"])
def test_local_service_refuses_invalid_port(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_PORT", text)
    with pytest.raises(Misconfigured, match="STRANDLINE_PORT"):
        read_env_port("STRANDLINE_PORT", 8080)


def test_service_takes_port_of_make_alone() -> None:
    """Given to make, not in the environment, where PORT is often another program's."""
    command = ["make", "--no-print-directory", "-n", "-o", ".venv/.ready-run", "run"]
    # What a make above this test hands down is not this call's.
    environment = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
    calls = [
        subprocess.run(
            [*command, *arguments],
            env={**environment, "PORT": "9001"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for arguments in ([], ["PORT=9000"])
    ]
    assert calls == [calls[0], f"STRANDLINE_PORT='9000' {calls[0]}"]
    assert "9001" not in calls[0]
