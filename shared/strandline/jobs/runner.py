"""The frame of every job: plan the shards, work on each shard under a lease, finish.

A job is a module with three functions. `plan_shards` lists the shards, each of one tenant.
`work_on_shard` works on one until it is done or its time is up, committing as it goes.
`clean_up_after_run` removes what runs leave. A run is one execution of the state machine; any of
its steps may be executed twice.
"""

import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from strandline.aws.blobs import BlobStore
from strandline.aws.work_queue import WorkQueue
from strandline.clock import Clock
from strandline.db.database import Caller, Database, TenantDb
from strandline.embeddings.embedder import Embedder
from strandline.embeddings.reachable import ReachableEmbedders
from strandline.errors import StrandlineError
from strandline.jobs import store_runs
from strandline.jobs.multi_tenant_runs import (
    JobClaimsByTenant,
    begin_run_in_tenants,
    fail_unfinished_jobs,
    list_unfinished_tenants,
)
from strandline.jobs.store_runs import ShardLease
from strandline.jobs.worker_resources import JobMetrics
from strandline.llm.tasks import LlmTasks
from strandline.observability import logger

_RENEW_SECONDS = 60.0
"""How often a working shard renews its lease, between its commits."""
MAX_CONCURRENCY = 20
"""How many items of a run the state machine works on at once (infra/job.asl.json)."""
MAX_PACKED = 50
"""How many shards one item has at most: each item is an invocation and two state transitions."""


class LeaseLost(StrandlineError):
    """Another worker has taken over this shard."""

    code = "lease_lost"


class ShardFailed(StrandlineError):
    """A shard of a job failed; the job's record says why."""

    code = "shard_failed"


class JobResources(Protocol):
    """The dependencies of jobs; each is created on first use."""

    @property
    def database(self) -> Database:
        """The database."""
        ...

    @property
    def clock(self) -> Clock:
        """The current time."""
        ...

    @property
    def blobs(self) -> BlobStore:
        """The payload store."""
        ...

    @property
    def work_queue(self) -> WorkQueue:
        """The queue of the worker, in functions that may send to it."""
        ...

    @property
    def embedder(self) -> Embedder:
        """The configured embedding model, in functions that have one."""
        ...

    @property
    def embedders(self) -> ReachableEmbedders:
        """The embedding models that can be asked beside the configured one."""
        ...

    def embedder_of(self, reading_space: str | None) -> Embedder:
        """The embedding model for a tenant that reads this space."""
        ...

    @property
    def llm(self) -> LlmTasks:
        """The language tasks."""
        ...


class Shard(NamedTuple):
    """A part of a tenant's job, numbered from 0 in each tenant."""

    tenant: str
    shard: int = 0


@dataclass
class Lease:
    """A shard that this worker has leased: its deadline, and what it has done so far."""

    access: TenantDb
    """The tenant's database, as a background caller."""
    shard_lease: ShardLease
    deadline: float
    """In time.monotonic() seconds: no further work is begun after it."""
    clock: Clock
    tally: JobMetrics = field(default_factory=JobMetrics)
    renewed_at: float = field(default_factory=time.monotonic)
    """When the lease was last renewed, in time.monotonic() seconds."""
    is_lost: bool = False
    """Another worker is known to have taken over the shard."""

    @property
    def tenant(self) -> str:
        """The shard's tenant."""
        return self.access.caller.tenant

    def is_out_of_time(self) -> bool:
        """Whether to stop: the time is up, or another worker has taken over. Call it between
        commits only, as it renews the lease."""
        return time.monotonic() > self.deadline or not self.renew()

    def renew(self) -> bool:
        """Renew the lease if the last renewal is _RENEW_SECONDS ago; must not be called in a
        transaction. Returns whether the shard is still this worker's, as far as known."""
        if not self.is_lost and time.monotonic() > self.renewed_at + _RENEW_SECONDS:
            self.is_lost = not store_runs.renew_shard_lease(
                self.access, self.shard_lease, self.clock()
            )
            self.renewed_at = time.monotonic()
        return not self.is_lost

    @contextmanager
    def transaction(self) -> Generator[None]:
        """A transaction that fails as a whole once another worker has taken over the shard. Raises
        LeaseLost."""
        is_ours = self.renew()
        with self.access.transaction():
            self.is_lost = not (
                is_ours and store_runs.lock_leased_shard(self.access, self.shard_lease)
            )
            if self.is_lost:
                raise LeaseLost
            yield


class Job(Protocol):
    """A job's three functions; `name` is also its Lambda function's name."""

    @property
    def name(self) -> str:
        """The name by which the state machine calls it."""
        ...

    def plan_shards(
        self, resources: JobResources, now: datetime, only_tenant: str | None
    ) -> Sequence[Shard]:
        """List the shards with work: of all tenants where something is due, or of one tenant in any
        case."""
        ...

    def work_on_shard(
        self, resources: JobResources, lease: Lease, shard: Shard, now: datetime
    ) -> Mapping[str, int]:
        """Work on one shard. Returns counts of what was done."""
        ...

    def clean_up_after_run(self, resources: JobResources, now: datetime) -> None:
        """Remove what runs leave, after the last shard; `skip_clean_up` where that is nothing."""
        ...


def skip_clean_up(resources: JobResources, now: datetime) -> None:
    """The `clean_up_after_run` of jobs whose runs leave nothing to remove."""
    del resources, now


class ShardListRef(NamedTuple):
    """The key of a run's list of items in the bucket, and how many shards they have."""

    key: str
    shards: int


def plan_run(
    resources: JobResources, job: Job, run_id: str, now: datetime, tenant: str | None
) -> ShardListRef:
    """Plan a run and record it: in the database as running jobs, in the bucket as the list that the
    state machine iterates over. A tenant whose job belongs to another run is left out. If it fails,
    the jobs that it began are marked as failed, so that they can be started again, and the error is
    raised."""
    claims = JobClaimsByTenant()
    try:
        shards = job.plan_shards(resources, now, tenant)
        counts = Counter(shard.tenant for shard in shards)
        begin_run_in_tenants(resources.database, job.name, run_id, counts, now, claims)
        claimed_shards = [shard for shard in shards if shard.tenant in claims.tenants]
        if not claimed_shards:
            return ShardListRef("", 0)
        items = [
            {"job": job.name, "run": run_id, "shards": shards}
            for shards in pack_shards_into_items(claimed_shards)
        ]
        return ShardListRef(resources.blobs.put_shards(run_id, items), len(claimed_shards))
    except Exception as error:
        tenants = claims.tenants if tenant is None else {*claims.tenants, tenant}
        claims.failures |= dict.fromkeys(tenants, error)
        raise
    finally:
        _record_plan_failures(resources, job, run_id, now, claims.failures)


def pack_shards_into_items(shards: Sequence[Shard]) -> list[Sequence[Shard]]:
    """Pack shards into the items of a run, in their order: one in each, while the state machine
    works on all at once, and then as few as keep it busy. Neighbours in an item share its time."""
    size = min(MAX_PACKED, max(1, -(-len(shards) // MAX_CONCURRENCY)))
    return [shards[start : start + size] for start in range(0, len(shards), size)]


def parse_item_shards(item: Mapping[str, Any]) -> list[Shard]:
    """The shards of an item; one that an earlier release packed has a single one."""
    pairs: Sequence[Sequence[Any]] = item.get("shards") or [(item["tenant"], item["shard"])]
    return [Shard(str(tenant), int(number)) for tenant, number in pairs]


def compute_shard_deadline(deadline: float, waiting_count: int) -> float:
    """The deadline of a shard, in time.monotonic() seconds, while others wait behind it in its
    item: half of the time that is left, so that none takes all of it."""
    now = time.monotonic()
    return now + (deadline - now) / 2 if waiting_count else deadline


def _record_plan_failures(
    resources: JobResources,
    job: Job,
    run_id: str,
    now: datetime,
    failures: Mapping[str, Exception],
) -> None:
    """Mark jobs of this run as failed before any shard began. Where even that cannot be written, a
    job's short lease expires instead."""
    reasons = {tenant: error_code(error) for tenant, error in failures.items()}
    for reason, count in Counter(reasons.values()).items():
        tenants = [tenant for tenant in sorted(reasons) if reasons[tenant] == reason]
        log_fields = {"job": job.name, "reason": reason, "count": count}
        logger.warning("job planning failed", extra={**log_fields, "tenants": tenants[:10]})
    try:
        open_tenants = fail_unfinished_jobs(
            resources.database, job.name, run_id, reasons, now, create=True
        )
    except Exception as close_error:
        open_tenants = dict.fromkeys(reasons, close_error)
    for tenant in sorted(open_tenants)[:10]:
        log_fields = {"job": job.name, "tenant": tenant, "reason": error_code(open_tenants[tenant])}
        logger.warning("failed job not recorded", extra=log_fields)


def run_shard(
    resources: JobResources,
    job: Job,
    run_id: str,
    shard: Shard,
    now: datetime,
    deadline: float,
    tally: JobMetrics,
) -> None:
    """Work on one shard of a run, unless it is done. Raises ShardFailed; the job's record keeps the
    reason."""
    start = time.monotonic()
    access = resources.database.connect_as(Caller.background(shard.tenant))
    with access.transaction():
        shard_lease = store_runs.lease_shard(access, job.name, run_id, shard.shard, now)
    if shard_lease is None:
        return
    lease = Lease(access, shard_lease, deadline, resources.clock, tally)
    try:
        totals = job.work_on_shard(resources, lease, shard, now)
        ended_at = now + timedelta(seconds=time.monotonic() - start)
        with access.transaction():
            if not store_runs.mark_shard_done(access, shard_lease, totals, ended_at):
                raise LeaseLost
    except LeaseLost:
        logger.info("shard lease lost", extra={"job": job.name, "tenant": shard.tenant})
    except Exception as error:
        tally.failures += 1
        log_fields = {"job": job.name, "tenant": shard.tenant, "reason": error_code(error)}
        logger.warning("shard failed", extra=log_fields)
        _record_shard_failure(resources, shard_lease, log_fields)
        # Not the error itself: the runtime would log its text, which may quote a row.
        raise ShardFailed(f"{job.name} failed: {log_fields['reason']}") from None


def _record_shard_failure(
    resources: JobResources, shard_lease: ShardLease, log_fields: Mapping[str, str]
) -> None:
    """Record why a shard failed. It opens its own connection: the shard's may be broken."""
    try:
        access = resources.database.connect_as(Caller.background(log_fields["tenant"]))
        with access.transaction():
            store_runs.record_shard_failure_reason(access, shard_lease, log_fields["reason"])
    except Exception as record_error:  # `finish_run` fails the job then
        logger.warning(
            "shard failure not recorded", extra={**log_fields, "reason": error_code(record_error)}
        )


def finish_run(resources: JobResources, job: Job, run_id: str, now: datetime) -> dict[str, int]:
    """End a run: in each tenant, a job that is not done is marked as failed. Returns the counts of
    the whole run."""
    database = resources.database
    tenants = list_unfinished_tenants(database.connection(), job.name, run_id)
    reasons = dict.fromkeys(tenants, "not_finished")
    failures = fail_unfinished_jobs(database, job.name, run_id, reasons, now)
    if failures:  # the state machine tries again
        raise next(iter(failures.values()))
    job.clean_up_after_run(resources, now)
    resources.blobs.delete_shards(run_id)
    return store_runs.sum_run_counts(resources.database.connection(), run_id)


def error_code(error: Exception) -> str:
    """An error as a code, without its own text, which may quote a row."""
    return error.code if isinstance(error, StrandlineError) else type(error).__name__
