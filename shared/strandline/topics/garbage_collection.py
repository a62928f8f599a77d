"""Delete the rows of the topic index that no kept snapshot needs. Runs under the builder's lease,
so that no build runs at the same time."""

import functools
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from strandline.config import get_settings
from strandline.jobs import store_runs
from strandline.jobs.runner import Lease
from strandline.jobs.store_runs import LEASE_SECONDS
from strandline.topics import store_garbage

_ROWS_PER_COMMIT = 2000
_SCOPES_PER_COMMIT = 20
"""How many staged trees one transaction deletes. Each may have thousands of slots."""
_MAX_SECONDS = LEASE_SECONDS / 2
"""The maximum duration of a collection, which must end before its lease does."""


def collect_garbage(lease: Lease, now: datetime) -> Mapping[str, int]:
    """Delete the inactive snapshots of the lease's tenant that are older than the setting, the rows
    that only they referenced, old answers, and the staged rows of unpublished builds. Does nothing
    while a build is running. Returns counts."""
    access, run = lease.access, f"collect-{lease.shard_lease.job_id}"
    with lease.transaction():
        store_runs.fail_expired_jobs(access, "builder", now)
        job_id = store_runs.enqueue(access, "builder", run, now)
    if job_id is None:
        return {}
    try:
        return _delete_in_batches(lease, now - timedelta(days=get_settings().snapshot_days))
    finally:
        with access.transaction():
            store_garbage.delete_lease_job(access, job_id)


def _delete_in_batches(lease: Lease, before: datetime) -> dict[str, int]:
    access, end = lease.access, time.monotonic() + _MAX_SECONDS
    first_kept = store_garbage.find_first_kept(access, before)
    totals: dict[str, int] = {}

    def run(name: str, size: int, batch: Callable[[], int]) -> bool:
        """Run batches until one is not full. Returns whether everything was deleted."""
        while time.monotonic() < end and not lease.is_out_of_time():
            with lease.transaction():
                count = batch()
            totals[name] = totals.get(name, 0) + count
            if count < size:
                return True
        return False

    rows = _ROWS_PER_COMMIT
    scopes = _SCOPES_PER_COMMIT
    run("answers_removed", rows, lambda: store_garbage.delete_answers(access, before, rows))
    run("builds_collected", scopes, lambda: store_garbage.delete_staged_trees(access, scopes))
    if first_kept is None:
        return totals
    steps = {
        "trees_collected": store_garbage.delete_ended_trees,
        "slots_collected": store_garbage.delete_ended_slots,
    }
    is_done = all(
        run(name, rows, functools.partial(step, access, first_kept, rows))
        for name, step in steps.items()
    )
    if is_done:
        with lease.transaction():
            totals["snapshots_removed"] = store_garbage.delete_snapshots(access, first_kept)
    return {name: count for name, count in totals.items() if count}
