"""The eraser killed at each of its steps: the job goes on with what is left, to a true receipt.

It runs in a process of its own and kills itself (SIGKILL) when it comes to a step that none was
killed at yet, or right after it: most of these lie within a transaction."""

import hashlib
import inspect
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from strandline.erasure import erase_events, receipts, store
from strandline.local.aws import LocalAws
from tests.prove.erasure_fixtures import embedder, no_waits
from tests.prove.erasure_steps import CASES, CLEARING_MARKED, COMPLETING, FORMING, Steps, tell
from tests.prove.erasure_stores import ERASED_WORD, ERASURES, every_byte
from tests.support import KEY_SECRET, Gateway, ScratchDatabase

__all__ = ["embedder", "no_waits"]
AT_ONCE = 3
ERASER = """
import importlib, os, signal, sys, time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from strandline.erasure import erase_events, eraser
from strandline.jobs import runner
from strandline.jobs.worker_resources import JobMetrics
from strandline.jobs.runner import Shard
from strandline.resources import Resources
from tests.strandline.embeddings.fake_embedders import WordEmbedder

run, when, report, at_once, *steps = sys.argv[1:]
erase_events.EVENTS_AT_ONCE = int(at_once)
eraser._REQUEST_WAIT = eraser._VACUUM_SPACING = timedelta(0)

def kill(name, real):
    def step(*args, **more):
        result = None if when == "before" else real(*args, **more)
        if when == "committed":
            args[0].execute("commit", {})
        Path(report).write_text(name)
        os.kill(os.getpid(), signal.SIGKILL)
        return result
    return step

for step in steps:
    module, _, path = step.partition(":")
    place = importlib.import_module(module)
    *classes, attribute = path.split(".")
    for name in classes:
        place = getattr(place, name)
    setattr(place, attribute, kill(step, getattr(place, attribute)))

resources, now = Resources(), datetime.now(UTC)
resources.__dict__["embedder"] = WordEmbedder("words/64", 64)
claims = runner.JobClaimsByTenant()
runner.begin_run_in_tenants(resources.database, "eraser", run, {"acme": 1}, now, claims)
runner.run_shard(resources, eraser, run, Shard("acme"), now, time.monotonic() + 900, JobMetrics())
"""
FAILURE = {"strandline.erasure.store_job:count_failed_rebuild"}
"""What a chain that fails leads to: none does here."""


def name_of(step: tuple[Any, str]) -> str:
    """As `module:function` or `module:Class.function`."""
    place, function = step
    if inspect.ismodule(place):
        return f"{place.__name__}:{function}"
    return f"{place.__module__}:{place.__qualname__}.{function}"


@dataclass(frozen=True)
class Erasers:
    """Runs erasers that kill themselves."""

    base: ScratchDatabase
    aws: LocalAws
    repository: Path
    report: Path
    at_once: int

    def run(self, when: str, steps: Sequence[str]) -> str | None:
        """The step at which one was killed; None where it came to its end."""
        environment = {
            **os.environ,
            "PYTHONPATH": f"{self.repository / 'shared'}{os.pathsep}{self.repository}",
            "STRANDLINE_DATABASE_URL": self.base.url,
            "STRANDLINE_BUCKET": self.aws.bucket,
            "STRANDLINE_KEY_SECRET": KEY_SECRET,
        }
        command = [sys.executable, "-c", ERASER, str(uuid.uuid4()), when, str(self.report)]
        child = subprocess.run(
            [*command, str(self.at_once), *steps],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.base.rows("update jobs set leased_until = now() - interval '1 second'")
        if child.returncode == 0:
            return None
        assert child.returncode == -signal.SIGKILL, child.stderr[-2000:]
        return self.report.read_text()

    def complete(self, when: str, steps: Sequence[str]) -> set[str]:
        """Run erasers until the erasure is complete, each killed at a step of these at which none
        was before. Returns the steps that none came to."""
        ahead = set(steps)
        for _ in range(2 * len(steps) + 5):
            killed_at = self.run(when, sorted(ahead))
            ahead -= {killed_at}
            if "strandline.erasure.store_job:postpone_erasure" not in ahead:
                for table in ("blob_removals", "erased_payloads"):
                    statement = f"update {table} set marked_at = marked_at - interval '1 hour'"  # noqa: S608
                    self.base.rows(statement)
            if self.base.rows("select 1 from erasures where completed_at is not null"):
                return ahead
        raise AssertionError(f"not complete; ahead: {sorted(ahead)}")


@pytest.fixture
def erasers(
    scratch_db: ScratchDatabase, aws: LocalAws, repository: Path, tmp_path: Path
) -> Callable[[int], Erasers]:
    return partial(Erasers, scratch_db, aws, repository, tmp_path / "report")


def ids_of(base: ScratchDatabase, speaker: object) -> list[str]:
    """The events that are to be erased."""
    rows = base.rows(
        "select event_id::text from events where %s::text is null or speaker = %s order by 1",
        speaker,
        speaker,
    )
    return [event_id for (event_id,) in rows]


def faults(result: Any, ids: list[str]) -> list[str]:
    """What is not true of a receipt of an erasure of these events."""
    receipt, digest = result["receipt"], hashlib.sha256("\n".join(ids).encode()).hexdigest()
    checks = {
        "signature": receipts.verify_receipt(result["public_key"], receipt, result["signature"]),
        "event_ids": receipt["event_ids"] == ids,
        "event_ids_sha256": receipt["event_ids_sha256"] == digest,
        "event_count": receipt["event_count"] == len(ids),
        "counts": receipt["counts"]["events"] == len(ids),
        "payloads": receipt["counts"].get("s3_payloads", 0) >= 1,
        "vacuumed_at": receipt["vacuumed_at"] is not None,
    }
    return [name for name, is_true in checks.items() if not is_true]


def begin(
    gateway: Gateway, base: ScratchDatabase, selector: Any, at_once: int
) -> tuple[str, str, list[str]]:
    """Ask for an erasure: the key, the path of its receipt, and the events."""
    key = gateway.key(rights=["read", "write", "admin", "erase"])
    tell(gateway, key, base)
    ids = ids_of(base, selector.get("participant"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(erase_events, "EVENTS_AT_ONCE", at_once)
        reply = gateway.call("POST", ERASURES, selector, key=key)
    assert reply.status == 202, reply.text
    return key, f"{ERASURES}/{reply.body['erasure_id']}", ids


JOB_STEPS: dict[str, Steps] = {
    "at once": (*FORMING, *COMPLETING),
    "marked": (*CLEARING_MARKED, *COMPLETING),
}
TOMBSTONES = (store, "erase_events")
pytestmark = pytest.mark.proof


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("case", JOB_STEPS)
def test_eraser_killed_goes_on_to_receipt(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    aws: LocalAws,
    erasers: Callable[[int], Erasers],
    case: str,
    when: str,
) -> None:
    at_once = AT_ONCE if case == "marked" else erase_events.EVENTS_AT_ONCE
    key, path, ids = begin(gateway, scratch_db, CASES[case][0], at_once)
    ahead = erasers(at_once).complete(when, [name_of(step) for step in JOB_STEPS[case]])
    assert ahead <= FAILURE
    assert faults(gateway.call("GET", path, key=key).body, ids) == []
    assert ERASED_WORD not in every_byte(scratch_db, aws)
    gateway.run_job("eraser", "acme")
    again = gateway.call("GET", path, key=key).body
    assert faults(again, ids) == []


def test_eraser_killed_test_detects_early_commit(
    gateway: Gateway, scratch_db: ScratchDatabase, erasers: Callable[[int], Erasers]
) -> None:
    """Teeth: tombstones that are not counted in the same transaction make the receipt untrue."""
    key, path, ids = begin(gateway, scratch_db, CASES["marked"][0], AT_ONCE)
    assert erasers(AT_ONCE).complete("committed", [name_of(TOMBSTONES)]) == set()
    assert "counts" in faults(gateway.call("GET", path, key=key).body, ids)
