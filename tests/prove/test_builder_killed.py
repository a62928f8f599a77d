"""A builder killed at any of its steps: the published trees stay whole, and the next build goes on.

The builder runs in a process of its own and kills itself (SIGKILL) when it comes to the step, or
right after it: most of these lie within a transaction."""

import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from strandline.local.aws import LocalAws
from tests.strandline.topics.outline import build, read_tree
from tests.strandline.topics.world import ScopeWorld
from tests.support import Gateway, ScratchDatabase

KILLS = 20
STEPS = (
    "store_builds.begin_build",
    "store_builds.mark_scope_begun",
    "store_growth.read_tree_slots",
    "store_growth.add_nodes",
    "store_growth.insert_leaf_events",
    "store_builds.record_scope_result",
    "store_publish.fail_invalid_trees",
    "store_publish.activate_next_version",
    "store_publish.write_grown_trees",
    "store_publish.insert_snapshot",
    "store_builds.update_backlog",
    "builder._publish_build_if_last_shard",
)
"""Of the last one, what comes after it comes after the commit."""
BUILDER = """
import importlib, os, signal, sys
from datetime import UTC, datetime
from strandline.jobs import runner
from strandline.jobs.worker_resources import JobMetrics
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
runner.begin_run_in_tenants(
    resources.database, "builder", sys.argv[3], {"acme": 1}, now, runner.JobClaimsByTenant()
)
runner.run_shard(resources, builder, sys.argv[3], shard, now, time.monotonic() + 900, JobMetrics())
"""


@pytest.mark.parametrize(
    "step", [STEPS[0], *(pytest.param(step, marks=pytest.mark.proof) for step in STEPS[1:])]
)
def test_builder_killed_leaves_whole_trees(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    aws: LocalAws,
    repository: Path,
    proof_size: Callable[[int], int],
    step: str,
) -> None:
    world = ScopeWorld(scratch_db)
    other = ScopeWorld(scratch_db, members=("user:bob",), seed=2)
    for one in (world, other):
        one.add(6)
    assert build(gateway)["snapshots_published"] == 1
    trees = [read_tree(scratch_db)]
    with reading(scratch_db) as read:
        for number in range(proof_size(KILLS)):
            version = active_version(scratch_db)
            world.add(2, merges=0.3)
            kill_builder(scratch_db, aws, repository, step, "after" if number % 2 else "before")
            is_published = step == STEPS[-1] and bool(number % 2)
            assert active_version(scratch_db) == version + is_published
            assert is_published or read_tree(scratch_db) == trees[-1]
            scratch_db.rows("update jobs set leased_until = now() - interval '1 second'")
            totals: dict[str, Any] = build(gateway)
            assert totals.get("snapshots_published", 0) == 1 - is_published, totals
            trees.append(read_tree(scratch_db))
            leaves = [row[2] for row in trees[-1] if row[5]]
            assert sorted(leaves) == sorted([*world.chain_ids, *other.chain_ids])
    assert read
    assert all(tree in trees for tree in read), "a reader saw a tree that was never published"
    gateway.run_job("archiver", "acme")
    assert scratch_db.rows("select count(*) from topic_build_scopes where tree is not null") == [
        (0,)
    ]
    assert scratch_db.rows(
        "select count(*) from topic_nodes n where not exists"
        " (select from topic_tree t where t.node_id = n.node_id)"
    ) == [(0,)]


def active_version(base: ScratchDatabase) -> int:
    ((version,),) = base.rows("select version from active_snapshot")
    return version


@contextmanager
def reading(base: ScratchDatabase) -> Generator[list[list[tuple[Any, ...]]]]:
    """The trees that somebody reads all the time, each in one statement."""
    stop, read = threading.Event(), list[list[tuple[Any, ...]]]()

    def read_on() -> None:
        while not stop.wait(0.01):
            if (tree := read_tree(base)) not in read[-1:]:
                read.append(tree)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(read_on)
        try:
            yield read
        finally:
            stop.set()
        future.result()


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
