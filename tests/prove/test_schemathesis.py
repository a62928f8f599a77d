"""P8: no input crashes the API, and it answers what its document says and nothing else.

Schemathesis reads `/openapi.json` off the running service and sends, over HTTP and with each kind
of key, what the document allows and what it does not.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from functions.query import handler as query
from strandline import cli
from strandline.http import Answer, Request, answer
from strandline.local.service import Running, running

CASES = 5000
SEED = 20261
# Every check that there is, but:
CONFIG = """
[checks]
# What joins fields (exactly one of content, parts and blob; a speaker among the participants) or
# was given out by the service (a cursor) is refused with a 422, and no schema can say it.
positive_data_acceptance.enabled = false
# A revoked key can still be looked at: its row says that it was revoked.
use_after_free.enabled = false

# Items of a batch are refused one by one, in an answer that is a 200.
[[operations]]
include-operation-id = "post_batch"
checks.negative_data_rejection.enabled = false
"""


@dataclass(frozen=True)
class Round:
    """One run with one kind of key."""

    name: str
    key: tuple[str, ...]
    """As `strandline.cli key` makes it."""
    only: tuple[str, ...] = ()
    """Arguments that narrow it to what such a key is for."""


ROUNDS = (
    Round("an admin", ("--tenant", "acme", "--rights", "read,write,admin")),
    Round(
        "a user",
        ("--tenant", "acme", "--user", "user:alice"),
        ("--exclude-tag", "admin", "--exclude-tag", "docs"),
    ),
    Round(
        "an operator",
        ("--tenant", "operations", "--rights", "operator"),
        ("--include-tag", "admin"),
    ),
)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """The whole service on a port of its own, with no quota in the way."""
    # Not pytest's own directory: the database's account does not reach that.
    parent = Path(tempfile.mkdtemp(prefix="strandline-schemathesis-"))
    parent.chmod(0o711)
    for name in ("DATABASE_URL", "BUCKET", "QUEUE_URL", "STATE_MACHINE", "KEY_SECRET"):
        monkeypatch.setenv(f"STRANDLINE_{name}", "")  # whatever a start sets is taken back
    for name in ("REQUESTS", "APPENDS"):
        monkeypatch.setenv(f"STRANDLINE_TENANT_{name}_PER_MINUTE", str(10**9))
    monkeypatch.setenv("STRANDLINE_DATA_DIR", str(parent / "data"))
    with running(parent / "data", 0) as started:
        yield started
    shutil.rmtree(parent)


@dataclass(frozen=True)
class Found:
    """What a run saw."""

    cases: int
    failures: list[dict[str, Any]]
    said: str


def schemathesis(url: str, token: str, place: Path, phases: str, *arguments: str) -> Found:
    """One run over HTTP."""
    (place / "schemathesis.toml").write_text(CONFIG)
    report = place / "report.json"
    program = [str(Path(sys.executable).with_name("schemathesis")), "--no-color"]
    done = subprocess.run(
        [
            *program,
            *("--config-file", str(place / "schemathesis.toml")),
            *("run", f"{url}/openapi.json", "--header", f"X-API-Key: {token}"),
            *("--seed", str(SEED), "--workers", "4", "--generation-database", "none"),
            *("--report", "json", "--report-json-path", str(report), "--continue-on-failure"),
            *("--phases", phases),
            *arguments,
        ],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.exists(), done.stdout + done.stderr
    told = json.loads(report.read_text())
    assert told["complete"], done.stdout
    assert not told["errors"], done.stdout
    return Found(told["test_cases"]["generated"], told["failures"], done.stdout)


def make_key(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert cli.main(["key", *arguments]) == 0
    return capsys.readouterr().out.strip()


def test_no_input_crashes_it_and_it_answers_as_it_says(
    service: Running,
    tenth: Callable[[int], int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    full = tenth(10) == 10
    phases = "examples,coverage,fuzzing,stateful" if full else "examples,fuzzing,stateful"
    total, failures = 0, list[str]()
    for one in ROUNDS:
        token = make_key(capsys, *one.key)
        size = ("--max-examples", str(tenth(50)))
        found = schemathesis(service.url, token, tmp_path, phases, *size, *one.only)
        total += found.cases
        failures += [f"as {one.name}:\n{found.said}"] if found.failures else []
        with capsys.disabled():
            print(f"\nschemathesis as {one.name}: {found.cases} cases", end="")
    assert not failures, "\n".join(failures)
    assert total >= tenth(CASES)


def test_it_finds_what_is_planted(
    service: Running,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def crash(_: Request) -> Answer:
        raise ZeroDivisionError

    def another_status(_: Request) -> Answer:
        return answer({}, 418)

    def another_shape(_: Request) -> Answer:
        return answer({"scopes": "none"})

    planted = {
        "GET /memories/list": crash,
        "GET /api/v1/usage": another_status,
        "GET /api/v1/scopes": another_shape,
    }
    for name, serve in planted.items():
        monkeypatch.setitem(query.ROUTES, name, replace(query.ROUTES[name], serve=serve))
    token = make_key(capsys, "--tenant", "acme", "--rights", "read,admin")
    only = [part for name in planted for part in ("--include-path", name.split()[1])]
    found = schemathesis(service.url, token, tmp_path, "fuzzing", "--max-examples", "2", *only)
    for kind in ("Server error", "Undocumented status code", "Response violates schema"):
        assert kind in found.said
