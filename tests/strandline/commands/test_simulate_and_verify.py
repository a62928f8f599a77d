"""`strandline simulate` and `strandline verify`: verdicts on a service that works, and on one that
does not."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from strandline.admin.keys import make_key
from strandline.commands.main import main
from strandline.commands.simulation_scenarios import SCENARIOS
from strandline.commands.stored_data_checks import sha256_of_cid
from strandline.db.database import Caller, Database
from strandline.erasure import erase_events
from strandline.local.runtime import RunningService, make_connection_file_path, run_local_service
from strandline.log.cid import cid_to_bytes
from tests.strandline.client.conftest import HttpService, service
from tests.strandline.commands.command_line import Run, run
from tests.strandline.local.programs import migrated_directory
from tests.support import ScratchDatabase

__all__ = ["run", "service"]
NAMES = [scenario.name for scenario in SCENARIOS]


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[RunningService, str]]:
    """The whole service on one machine, with an operator's key."""
    for name in ("DATABASE_URL", "BUCKET", "WORK_QUEUE_URL", "STATE_MACHINE", "KEY_SECRET"):
        monkeypatch.setenv(f"STRANDLINE_{name}", "")  # whatever a start sets is taken back
    monkeypatch.setenv("STRANDLINE_EMBEDDING_THREADS", "1")  # those that have nothing to do spin
    with migrated_directory() as directory:
        monkeypatch.setenv("STRANDLINE_DATA_DIR", str(directory))
        with run_local_service(directory, 0) as running:
            place: dict[str, Any] = json.loads(make_connection_file_path(directory).read_text())
            environment = place["environment"]
            with closing(Database(environment["STRANDLINE_DATABASE_URL"])) as database:
                access = database.connect_as(Caller("operations", ()))
                secret = environment["STRANDLINE_KEY_SECRET"]
                yield running, make_key(access, secret, rights=("operator",)).token


def verdicts_of(out: str, what: str) -> dict[str, str]:
    """The verdict of each scenario or check."""
    return {one["name"]: one["verdict"] for one in json.loads(out)[what]}


@pytest.mark.proof
@pytest.mark.integration
def test_simulate_passes_all_scenarios_locally(
    local: tuple[RunningService, str], capsys: pytest.CaptureFixture[str]
) -> None:
    running, operator = local
    code = main(["--url", running.url, "--key", operator, "--json", "simulate"])
    document = json.loads(capsys.readouterr().out)
    assert {one["name"]: (one["verdict"], one["detail"]) for one in document["scenarios"]} == {
        one["name"]: ("passed", one["detail"]) for one in document["scenarios"]
    }
    assert (code, document["passed"], len(document["scenarios"])) == (0, 13, 13)
    tenant = document["of"].removeprefix("tenant ")
    assert tenant.startswith("simulation-")
    command = ["--url", running.url, "--key", operator]
    rights = ("--right", "read", "--right", "admin")
    assert main([*command, "keys", "create", "--tenant", tenant, *rights]) == 0
    reader = capsys.readouterr().out.strip()
    assert main(["--url", running.url, "--key", reader, "verify", "--everybody"]) == 0
    out = capsys.readouterr().out
    assert "6 of 6 checks passed" in out
    assert "24 payloads hash to their CIDs" in out


def test_simulate_fails_scenarios_not_done_in_time(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without anything in the background; and without an operator's key."""
    monkeypatch.setattr("strandline.commands.simulation_scenarios._PAYLOADS", 4)
    code, out, err = run("--json", "simulate", "--patience", "1")
    assert code == 1
    verdicts = verdicts_of(out, "scenarios")
    assert [*verdicts] == NAMES
    assert [name for name, verdict in verdicts.items() if verdict == "failed"] == [
        *("a topic becomes a chain", "a long topic is flushed", "mid-term recall", "heat")
    ]
    assert verdicts["a cold chain is archived"] == "not run"
    assert "not within 1 s" in out
    assert err == ""
    code, out, _ = run("verify", "--everybody")
    assert (code, "6 of 6 checks passed" in out) == (0, True)


@pytest.mark.parametrize(
    ("plant", "check"),
    [
        ("update events set erased_at = now(), content = null, cid = null where seq = 2", "log"),
        ("update events set content = 'Another.' where seq = 2", "blocks"),
        (
            "update memory_edges set cited_cid ="
            " 'bafyreiars22mfb6xhn4yazarhr3eotj3kzro3463aw2kjsofzki7f5zbym'",
            "edges",
        ),
    ],
)
def test_verify_finds_planted_fault(
    run: Run, service: HttpService, scratch_db: ScratchDatabase, plant: str, check: str
) -> None:
    with service.client() as memory:
        first = memory.add("First.", user="alice")
        memory.add("Second.", user="alice")
        edges = [{"event_id": str(first.event_id), "weight": 1}]
        memory.add("Third.", user="alice", edges=edges)
    assert run("verify", "--user", "alice")[0] == 0
    scratch_db.rows(plant)
    code, out, _ = run("--json", "verify", "--user", "alice")
    assert (code, verdicts_of(out, "checks")[check]) == (1, "failed")
    assert "Traceback" not in out


def test_verify_counts_erased_event_as_no_gap(
    run: Run,
    service: HttpService,
    scratch_db: ScratchDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor what is being erased; what is missing without an erasure is one."""

    def verify() -> tuple[int, str]:
        code, out, _ = run("verify", "--user", "alice")
        return code, out

    with service.client("acme", None, "read", "write", "erase") as memory:
        first = memory.add("First.", user="alice")
        memory.add("Second.", user="alice")
        assert verify()[0] == 0
        memory.erase_event(first.event_id)
        code, out = verify()
        assert (code, "1 more are erased" in out) == (0, True)
        with monkeypatch.context() as few:
            few.setattr(erase_events, "EVENTS_AT_ONCE", 0)
            memory.erase(scope_id=first.scope_id)
        code, out = verify()
        assert (code, "1 more are missing, while some are being erased" in out) == (0, True)
    service.gateway.run_job("eraser", "acme")
    code, out = verify()
    assert (code, "2 more are erased" in out) == (0, True)
    scratch_db.rows("delete from erased_events where seq = 1")
    assert verify()[0] == 1


def test_simulate_and_verify_without_service_fail(
    run: Run, monkeypatch: pytest.MonkeyPatch, retry_soon: Callable[[], None]
) -> None:
    retry_soon()
    monkeypatch.setenv("STRANDLINE_URL", "http://127.0.0.1:1")
    for command in ("simulate", "verify"):
        code, out, err = run(command)
        assert (code, out) == (3, "")
        assert "cannot be reached" in err


@pytest.fixture
def retry_soon(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes commands give up at once."""
    return lambda: monkeypatch.setattr("strandline.commands.invocation._SECONDS", 0.1)


def test_verify_reads_cid_digest_without_library() -> None:
    cid = "bafkreiazayy7xhtav5tsxfiww7p7cv4owr5whohju7t5tjtlcyytu7bxuu"
    assert sha256_of_cid(cid) == cid_to_bytes(cid)[-32:]
