"""A builder killed at any of its steps: the published trees stay whole, and the next build goes on.

The builder runs in a process of its own and kills itself (SIGKILL) when it comes to the step, or
right after it: most of these lie within a transaction."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.local.aws import LocalAws
from tests.strandline.topics.outline import build, read_tree
from tests.strandline.topics.world import ScopeWorld
from tests.support import Gateway, ScratchDatabase

KILLS = 20
STEPS = (
    "store_build.capture_marks",
    "store_build.begin_scope",
    "store_growth.read_rows",
    "store_growth.add_nodes",
    "store_growth.add_events",
    "store_build.end_scope",
    "store_publish.validate_trees",
    "store_publish.activate_next",
    "store_publish.write_trees",
    "store_publish.add_snapshot",
    "store_build.settle_work",
)
BUILDER = """
import importlib, os, signal, sys
from datetime import UTC, datetime
from strandline.jobs import runner
from strandline.jobs.context import Tally
from strandline.jobs.runner import Shard
from strandline.resources import Resources
from strandline.topics import builder
import time

module_name, step = sys.argv[1].split(".")
module = importlib.import_module(f"strandline.topics.{module_name}")
real = getattr(module, step)
AFTER = sys.argv[2] == "after"

def kill(*args, **more):
    result = real(*args, **more) if AFTER else None
    os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(module, step, kill)
resources, now = Resources(), datetime.now(UTC)
shard = Shard("acme", 0)
runner.claim_tenants(
    resources.database, "builder", sys.argv[3], {"acme": 1}, now, runner.Claims()
)
runner.run_shard(resources, builder, sys.argv[3], shard, now, time.monotonic() + 900, Tally())
"""


@pytest.mark.parametrize(
    "step", [STEPS[0], *(pytest.param(step, marks=pytest.mark.proof) for step in STEPS[1:])]
)
def test_a_killed_builder_leaves_whole_trees(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    aws: LocalAws,
    repository: Path,
    scaled: Callable[[int], int],
    step: str,
) -> None:
    world = ScopeWorld(scratch_db)
    other = ScopeWorld(scratch_db, members=("user:bob",), seed=2)
    for one in (world, other):
        one.add(6)
    assert build(gateway)["snapshots_published"] == 1
    for number in range(scaled(KILLS)):
        published = read_tree(scratch_db)
        version = scratch_db.rows("select version from active_snapshot")
        world.add(2, merges=0.3)
        kill_builder(scratch_db, aws, repository, step, "after" if number % 2 else "before")
        assert read_tree(scratch_db) == published
        assert scratch_db.rows("select version from active_snapshot") == version
        scratch_db.rows("update jobs set leased_until = now() - interval '1 second'")
        totals: dict[str, Any] = build(gateway)
        assert totals["snapshots_published"] == 1, totals
        leaves = [row[2] for row in read_tree(scratch_db) if row[5]]
        assert sorted(leaves) == sorted([*world.chain_ids, *other.chain_ids])
    gateway.run_job("archiver", "acme")
    assert scratch_db.rows("select count(*) from topic_build_scopes where tree is not null") == [
        (0,)
    ]
    assert scratch_db.rows(
        "select count(*) from topic_nodes n where not exists"
        " (select from topic_tree t where t.node_id = n.node_id)"
    ) == [(0,)]


def kill_builder(
    base: ScratchDatabase, aws: LocalAws, repository: Path, step: str, when: str
) -> None:
    """Run a builder that kills itself at this step, and wait for its end."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(repository / "shared"),
        "STRANDLINE_DATABASE_URL": base.url,
        "STRANDLINE_BUCKET": aws.bucket,
        "STRANDLINE_KEY_SECRET": "a deployment secret that only tests know",
    }
    child = subprocess.run(
        [sys.executable, "-c", BUILDER, step, when, str(uuid.uuid4())],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr[-2000:]
