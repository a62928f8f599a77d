"""The frame of every job: plan into shards, work on a shard under a lease, finish.

A job is a module with three functions: `plan` names the shards, each of one tenant; `shard` works
on one, for as long as it has, and commits as it goes; `finish` tidies up after all of them. A run
is one execution of the state machine, whose every step may come twice.
"""

import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from strandline.aws.blobs import BlobStore
from strandline.clock import Clock
from strandline.db.database import Caller, Database, TenantDb
from strandline.embeddings.embedder import Embedder
from strandline.errors import StrandlineError
from strandline.jobs import store
from strandline.jobs.context import Tally
from strandline.jobs.store import ShardLease
from strandline.llm.tasks import LlmTasks
from strandline.observability import logger

_RENEW_SECONDS = 60.0
"""So often a part at work says so, between its commits."""
_MAX_FAILURES_IN_A_ROW = 3
"""So many tenants in a row in which a plan fails say that it would in all of them."""


class LeaseLost(StrandlineError):
    """Somebody else works on this part of the job now."""

    code = "lease_lost"


class ShardFailed(StrandlineError):
    """A part of a job failed; the job says why."""

    code = "shard_failed"


class JobResources(Protocol):
    """What jobs work with, each made when it is first used."""

    @property
    def database(self) -> Database:
        """The database."""
        ...

    @property
    def clock(self) -> Clock:
        """What time it is."""
        ...

    @property
    def blobs(self) -> BlobStore:
        """The payload store."""
        ...

    @property
    def embedder(self) -> Embedder:
        """The embedding model, of the functions that have one."""
        ...

    @property
    def llm(self) -> LlmTasks:
        """The language tasks."""
        ...


class Shard(NamedTuple):
    """A part of a tenant's job, counted from 0 in each tenant."""

    tenant: str
    shard: int = 0


@dataclass
class Lease:
    """A shard that is ours, until when it may take, and what it has done so far."""

    access: TenantDb
    """The database as background work of the shard's tenant."""
    shard_lease: ShardLease
    deadline: float
    """In time.monotonic() seconds: nothing is begun after it."""
    clock: Clock
    tally: Tally = field(default_factory=Tally)
    renewed_at: float = field(default_factory=time.monotonic)
    """The last sign of life, in time.monotonic() seconds."""
    is_lost: bool = False
    """Somebody else works on it now, as far as we know."""

    @property
    def tenant(self) -> str:
        """Whose work it is."""
        return self.access.caller.tenant

    def is_out_of_time(self) -> bool:
        """Whether what is left is for the next run, or for whoever works on it now. Asked between
        commits: it renews."""
        return time.monotonic() > self.deadline or not self.renew()

    def renew(self) -> bool:
        """Say that this part is still at work, if the last time is a while ago; in no transaction.
        Gives whether it is ours, as far as we know."""
        if not self.is_lost and time.monotonic() > self.renewed_at + _RENEW_SECONDS:
            self.is_lost = not store.renew_lease(self.access, self.shard_lease, self.clock())
            self.renewed_at = time.monotonic()
        return not self.is_lost

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Several statements, all or none, and none once the shard is somebody else's. Raises
        LeaseLost."""
        is_ours = self.renew()
        with self.access.transaction():
            self.is_lost = not (is_ours and store.lock_shard(self.access, self.shard_lease))
            if self.is_lost:
                raise LeaseLost
            yield


class Job(Protocol):
    """A job's three verbs; `name` is its function's too."""

    @property
    def name(self) -> str:
        """As the state machine calls it."""
        ...

    def plan(self, resources: JobResources, now: datetime, tenant: str | None) -> Sequence[Shard]:
        """What is to be done: everywhere where something is due, or in one tenant in any case."""
        ...

    def shard(
        self, resources: JobResources, lease: Lease, shard: Shard, now: datetime
    ) -> Mapping[str, int]:
        """Do a part, and give what was done in numbers."""
        ...

    def finish(self, resources: JobResources, now: datetime) -> None:
        """Tidy up after the last shard."""
        ...


class ShardList(NamedTuple):
    """Where the list of a run's shards lies in the bucket, and how many they are."""

    key: str
    shards: int


def plan_run(
    resources: JobResources, job: Job, run_id: str, now: datetime, tenant: str | None
) -> ShardList:
    """Name the shards of a run and make them known: in the database as jobs that run, in the bucket
    as the list that the state machine goes through. A tenant whose job is another run's is left
    out. Where it fails nothing stays behind it: its jobs have failed, and may be begun anew."""
    begun_tenants = set[str]() if tenant is None else {tenant}
    try:
        shards = job.plan(resources, now, tenant)
        claimed_shards = _claim_tenants(resources, job, run_id, now, shards, begun_tenants)
        if not claimed_shards:
            return ShardList("", 0)
        items = [{"job": job.name, "run": run_id, **shard._asdict()} for shard in claimed_shards]
        return ShardList(resources.blobs.put_shards(run_id, items), len(claimed_shards))
    except Exception as error:
        for tenant_id in sorted(begun_tenants):
            _mark_failed(resources, job, run_id, now, tenant_id, error)
        raise


def _claim_tenants(
    resources: JobResources,
    job: Job,
    run_id: str,
    now: datetime,
    shards: Sequence[Shard],
    begun_tenants: set[str],
) -> list[Shard]:
    """Of these shards the ones whose tenant's job is this run's from now on; its name is in
    `begun_tenants` then. A tenant in which that fails holds up no other."""
    claimed_shards: list[Shard] = []
    failures_in_a_row = 0
    for tenant, shard_count in Counter(shard.tenant for shard in shards).items():
        try:
            access = resources.database.connect_as(Caller.background(tenant))
            with access.transaction():
                store.expire_leases(access, job.name, now)
                is_ours = store.begin_run(access, job.name, run_id, shard_count, now)
        except Exception as error:
            failures_in_a_row += 1
            if failures_in_a_row == _MAX_FAILURES_IN_A_ROW:  # it is not the tenants' fault
                raise
            _mark_failed(resources, job, run_id, now, tenant, error)
            continue
        failures_in_a_row = 0
        if is_ours:
            begun_tenants.add(tenant)
            claimed_shards += [shard for shard in shards if shard.tenant == tenant]
    return claimed_shards


def _mark_failed(
    resources: JobResources, job: Job, run_id: str, now: datetime, tenant: str, error: Exception
) -> None:
    """A tenant's job of this run has failed before any part of it began. Where not even that can be
    written it is known by its lease, which is short."""
    reason = error_code(error)
    log_fields = {"job": job.name, "tenant": tenant, "reason": reason}
    logger.warning("job not planned", extra=log_fields)
    try:
        access = resources.database.connect_as(Caller.background(tenant))
        with access.transaction():
            store.enqueue(access, job.name, run_id, now)
            store.fail_run(access, job.name, run_id, now, reason)
    except Exception as close_error:
        logger.warning("job not closed", extra={**log_fields, "reason": error_code(close_error)})


def run_shard(
    resources: JobResources,
    job: Job,
    run_id: str,
    shard: Shard,
    now: datetime,
    deadline: float,
    tally: Tally,
) -> None:
    """Do a part of a run's job, unless it is done. Raises ShardFailed; the job keeps why."""
    start = time.monotonic()
    access = resources.database.connect_as(Caller.background(shard.tenant))
    with access.transaction():
        shard_lease = store.lease_shard(access, job.name, run_id, shard.shard, now)
    if shard_lease is None:
        return
    lease = Lease(access, shard_lease, deadline, resources.clock, tally)
    try:
        totals = job.shard(resources, lease, shard, now)
        ended_at = now + timedelta(seconds=time.monotonic() - start)
        with access.transaction():
            if not store.end_shard(access, shard_lease, totals, ended_at):
                raise LeaseLost
    except LeaseLost:
        logger.info("shard taken over", extra={"job": job.name, "tenant": shard.tenant})
    except Exception as error:
        tally.failures += 1
        log_fields = {"job": job.name, "tenant": shard.tenant, "reason": error_code(error)}
        logger.warning("shard failed", extra=log_fields)
        _record_failure(resources, shard_lease, log_fields)
        # Not the error itself: the runtime would log its words, and a database's may quote a row.
        raise ShardFailed(f"{job.name} failed: {log_fields['reason']}") from None


def _record_failure(
    resources: JobResources, shard_lease: ShardLease, log_fields: Mapping[str, str]
) -> None:
    """Let the job keep why a shard failed. By an access of its own: the shard's may have failed."""
    try:
        access = resources.database.connect_as(Caller.background(log_fields["tenant"]))
        with access.transaction():
            store.record_shard_failure(access, shard_lease, log_fields["reason"])
    except Exception as record_error:  # the run's end says of such a job that it was not finished
        logger.warning("shard not blamed", extra={**log_fields, "reason": error_code(record_error)})


def finish_run(resources: JobResources, job: Job, run_id: str, now: datetime) -> dict[str, int]:
    """End a run: what it did not get done has failed, each in its tenant. Gives what all of it did,
    in numbers."""
    for tenant in sorted({str(item["tenant"]) for item in resources.blobs.read_shards(run_id)}):
        access = resources.database.connect_as(Caller.background(tenant))
        with access.transaction():
            store.fail_run(access, job.name, run_id, now)
    job.finish(resources, now)
    resources.blobs.delete_shards(run_id)
    return store.read_totals(resources.database.connection(), run_id)


def error_code(error: Exception) -> str:
    """Why, as a code: a fault's own words may quote a row."""
    return error.code if isinstance(error, StrandlineError) else type(error).__name__
