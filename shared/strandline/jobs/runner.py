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

from strandline.aws.blobs import Blobs
from strandline.clock import Clock
from strandline.db.database import Access, Asker, Database
from strandline.embeddings.embedder import Embedder
from strandline.errors import StrandlineError
from strandline.jobs import store
from strandline.jobs.context import Tally
from strandline.jobs.store import Held
from strandline.llm.tasks import Reasoner
from strandline.observability import logger

_RENEW_SECONDS = 60.0
"""So often a part at work says so, between its commits."""
_HOPELESS = 3
"""So many tenants in a row in which a plan fails say that it would in all of them."""


class LeaseLost(StrandlineError):
    """Somebody else works on this part of the job now."""

    code = "lease_lost"


class ShardFailed(StrandlineError):
    """A part of a job failed; the job says why."""

    code = "shard_failed"


class Tools(Protocol):
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
    def blobs(self) -> Blobs:
        """The payload store."""
        ...

    @property
    def embedder(self) -> Embedder:
        """The embedding model, of the functions that have one."""
        ...

    @property
    def reasoner(self) -> Reasoner:
        """The language tasks."""
        ...


class Shard(NamedTuple):
    """A part of a tenant's job, counted from 0 in each tenant."""

    tenant: str
    shard: int = 0


@dataclass
class Lease:
    """A shard that is ours, until when it may take, and what it has done so far."""

    access: Access
    """The database as background work of the shard's tenant."""
    held: Held
    deadline: float
    """In time.monotonic() seconds: nothing is begun after it."""
    clock: Clock
    tally: Tally = field(default_factory=Tally)
    renewed_at: float = field(default_factory=time.monotonic)
    """The last sign of life, in time.monotonic() seconds."""
    lost: bool = False
    """Somebody else works on it now, as far as we know."""

    @property
    def tenant(self) -> str:
        """Whose work it is."""
        return self.access.asker.tenant

    def out_of_time(self) -> bool:
        """Whether what is left is for the next run, or for whoever works on it now. Asked between
        commits: it renews."""
        return time.monotonic() > self.deadline or not self.renew()

    def renew(self) -> bool:
        """Say that this part is still at work, if the last time is a while ago; in no transaction.
        Gives whether it is ours, as far as we know."""
        if not self.lost and time.monotonic() > self.renewed_at + _RENEW_SECONDS:
            self.lost = not store.renew(self.access, self.held, self.clock())
            self.renewed_at = time.monotonic()
        return not self.lost

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Several statements, all or none, and none once the shard is somebody else's. Raises
        LeaseLost."""
        ours = self.renew()
        with self.access.transaction():
            self.lost = not (ours and store.hold(self.access, self.held))
            if self.lost:
                raise LeaseLost
            yield


class Job(Protocol):
    """A job's three verbs; `name` is its function's too."""

    @property
    def name(self) -> str:
        """As the state machine calls it."""
        ...

    def plan(self, tools: Tools, now: datetime, tenant: str | None) -> Sequence[Shard]:
        """What is to be done: everywhere where something is due, or in one tenant in any case."""
        ...

    def shard(self, tools: Tools, lease: Lease, shard: Shard, now: datetime) -> Mapping[str, int]:
        """Do a part, and give what was done in numbers."""
        ...

    def finish(self, tools: Tools, now: datetime) -> None:
        """Tidy up after the last shard."""
        ...


class Planned(NamedTuple):
    """Where the list of a run's shards lies in the bucket, and how many they are."""

    key: str
    shards: int


def plan(tools: Tools, job: Job, run: str, now: datetime, tenant: str | None) -> Planned:
    """Name the shards of a run and make them known: in the database as jobs that run, in the bucket
    as the list that the state machine goes through. A tenant whose job is another run's is left
    out. Where it fails nothing stays behind it: its jobs have failed, and may be begun anew."""
    begun = set[str]() if tenant is None else {tenant}
    try:
        wanted = job.plan(tools, now, tenant)
        listed = _begun(tools, job, run, now, wanted, begun)
        if not listed:
            return Planned("", 0)
        items = [{"job": job.name, "run": run, **shard._asdict()} for shard in listed]
        return Planned(tools.blobs.put_shards(run, items), len(listed))
    except Exception as error:
        for name in sorted(begun):
            _fail(tools, job, run, now, name, error)
        raise


def _begun(
    tools: Tools, job: Job, run: str, now: datetime, wanted: Sequence[Shard], begun: set[str]
) -> list[Shard]:
    """Of these shards the ones whose tenant's job is this run's from now on; its name is in `begun`
    then. A tenant in which that fails holds up no other."""
    listed: list[Shard] = []
    in_a_row = 0
    for name, shards in Counter(shard.tenant for shard in wanted).items():
        try:
            access = tools.database.access(Asker.background(name))
            with access.transaction():
                store.expire(access, job.name, now)
                ours = store.begin(access, job.name, run, shards, now)
        except Exception as error:
            in_a_row += 1
            if in_a_row == _HOPELESS:  # it is not the tenants' fault
                raise
            _fail(tools, job, run, now, name, error)
            continue
        in_a_row = 0
        if ours:
            begun.add(name)
            listed += [shard for shard in wanted if shard.tenant == name]
    return listed


def _fail(tools: Tools, job: Job, run: str, now: datetime, tenant: str, error: Exception) -> None:
    """A tenant's job of this run has failed before any part of it began. Where not even that can be
    written it is known by its lease, which is short."""
    reason = reason_of(error)
    shown = {"job": job.name, "tenant": tenant, "reason": reason}
    logger.warning("job not planned", extra=shown)
    try:
        access = tools.database.access(Asker.background(tenant))
        with access.transaction():
            store.queue(access, job.name, run, now)
            store.close(access, job.name, run, now, reason)
    except Exception as worse:
        logger.warning("job not closed", extra={**shown, "reason": reason_of(worse)})


def work_on(
    tools: Tools,
    job: Job,
    run: str,
    shard: Shard,
    now: datetime,
    deadline: float,
    tally: Tally,
) -> None:
    """Do a part of a run's job, unless it is done. Raises ShardFailed; the job keeps why."""
    began = time.monotonic()
    access = tools.database.access(Asker.background(shard.tenant))
    with access.transaction():
        held = store.take(access, job.name, run, shard.shard, now)
    if held is None:
        return
    lease = Lease(access, held, deadline, tools.clock, tally)
    try:
        totals = job.shard(tools, lease, shard, now)
        ended = now + timedelta(seconds=time.monotonic() - began)
        with access.transaction():
            if not store.end_shard(access, held, totals, ended):
                raise LeaseLost
    except LeaseLost:
        logger.info("shard taken over", extra={"job": job.name, "tenant": shard.tenant})
    except Exception as error:
        tally.failures += 1
        shown = {"job": job.name, "tenant": shard.tenant, "reason": reason_of(error)}
        logger.warning("shard failed", extra=shown)
        _blame(tools, held, shown)
        # Not the error itself: the runtime would log its words, and a database's may quote a row.
        raise ShardFailed(f"{job.name} failed: {shown['reason']}") from None


def _blame(tools: Tools, held: Held, shown: Mapping[str, str]) -> None:
    """Let the job keep why a shard failed. By an access of its own: the shard's may have failed."""
    try:
        access = tools.database.access(Asker.background(shown["tenant"]))
        with access.transaction():
            store.blame(access, held, shown["reason"])
    except Exception as worse:  # the run's end says of such a job that it was not finished
        logger.warning("shard not blamed", extra={**shown, "reason": reason_of(worse)})


def finish(tools: Tools, job: Job, run: str, now: datetime) -> dict[str, int]:
    """End a run: what it did not get done has failed, each in its tenant. Gives what all of it did,
    in numbers."""
    for tenant in sorted({str(item["tenant"]) for item in tools.blobs.shards(run)}):
        access = tools.database.access(Asker.background(tenant))
        with access.transaction():
            store.close(access, job.name, run, now)
    job.finish(tools, now)
    tools.blobs.forget_run(run)
    return store.totals(tools.database.connection(), run)


def reason_of(error: Exception) -> str:
    """Why, as a code: a fault's own words may quote a row."""
    return error.code if isinstance(error, StrandlineError) else type(error).__name__
