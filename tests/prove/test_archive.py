"""P14: payloads and appends never lose each other, in any order, whatever dies on the way; and what
is imported from long ago is not cold on arrival.

Real handlers, database and store. Between any two calls to the store each actor may be stopped for
as long as the chance wants, or for good; transactions run whole, and what happens within two of
them at once is tried apart, with both orders of their locks. The clock is moved by moving all that
was stored with a time.
"""

import hashlib
import importlib
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from moto.s3.models import s3_backends

from strandline.aws.blobs import BlobStore
from strandline.chains import store_archiving
from strandline.db.database import Caller, TenantDb
from strandline.local.aws import LocalAws
from strandline.local.lambda_context import ACCOUNT_ID
from tests.support import Gateway, ScratchDatabase, user_message
from tests.uploads import citing, put

type Admin = psycopg.Connection[Any]

SCENES, SAMPLE = 500, 8
GRACE = 3600.0
APPEND_SECONDS, JOB_SECONDS = 29.0, 900.0
"""The longest that a function lives."""
PASSES = (GRACE + 1, 1000.0, 1000.0)
"""What must be enough: seconds before each of the last passes."""
REVEALING = (27, 96, 103)
"""Scenes in which an append meets a removal: a planted fault shows in them first."""


class Kill(BaseException):
    """The function is gone, in the middle of what it did."""


@dataclass
class Actor:
    """A function at work in a thread of its own, one step at a time."""

    life: float
    work: Callable[[], object]
    done: bool = False
    killed: bool = False
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    back: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def start(self, threads: ThreadPoolExecutor) -> "Actor":
        threads.submit(self._run)
        return self

    def step(self) -> None:
        """Let it go on to its next call to the store, or to its end."""
        self.go.release()
        assert self.back.acquire(timeout=60), "an actor waits for another"

    def kill(self) -> None:
        self.killed = True
        self.step()

    def pause(self) -> None:
        self.back.release()
        self.go.acquire()
        if self.killed:
            raise Kill

    def _run(self) -> None:
        _on.actor = self
        self.go.acquire()
        try:
            if not self.killed:
                self.work()
        except Kill:
            pass  # as it was meant to
        finally:
            _on.actor = None
            self.done = True
            self.back.release()


class _On(threading.local):
    actor: Actor | None = None


_on = _On()


PAUSED = {
    method.__name__
    for method in (
        BlobStore.put,
        BlobStore.inspect_upload,
        BlobStore.copy_upload_to_cid,
        BlobStore.list_payloads,
        BlobStore.remove,
    )
}


class PausedBlobs(BlobStore):
    """The store, with a pause before and after every call that an actor makes."""

    removed = 0

    def remove(self, tenant: str, cids: Sequence[str]) -> list[str]:
        missing = super().remove(tenant, cids)
        PausedBlobs.removed += len(missing)
        return missing

    def __getattribute__(self, name: str) -> Any:
        results = object.__getattribute__(self, name)
        actor = _on.actor
        if actor is None or name not in PAUSED:
            return results

        def pause(*args: Any) -> Any:
            actor.pause()
            result = results(*args)
            actor.pause()
            return result

        return pause


class Stage:
    """A tenant, its payloads, and those at work on them."""

    def __init__(
        self, admin: Admin, aws: LocalAws, gateway: Gateway, threads: ThreadPoolExecutor, seed: int
    ) -> None:
        self.admin, self.aws, self.gateway, self.threads = admin, aws, gateway, threads
        self.chance = random.Random(seed)
        self.tenant = f"t-{uuid4().hex[:12]}"
        self.key = gateway.key(self.tenant)
        self.long = f"{self.tenant} " + "x" * 70_000
        self.file = f"{self.tenant}'s file".encode()
        self.actors: list[Actor] = []

    # actors --------------------------------------------------------------------------------------

    def append(self) -> Callable[[], object]:
        event = user_message(self.long)
        return lambda: self.gateway.call("POST", "/api/v1/events", event, key=self.key)

    def upload(self) -> Callable[[], object]:
        data = self.file

        def work() -> None:
            query = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            body = self.gateway.call("POST", "/api/v1/uploads", query, key=self.key).body
            if "url" in body:
                put(body, data)
            self.gateway.call("POST", "/api/v1/events", citing(body["cid"]), key=self.key)

        return work

    def archive(self) -> Callable[[], object]:
        return lambda: self.gateway.run_job("archiver", self.tenant)

    # time ----------------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """Move the clock: those who would not live so long die first."""
        for actor in self.actors:
            actor.life -= seconds
            if actor.life < 0 and not actor.done:
                actor.kill()
        self.actors = [actor for actor in self.actors if not actor.done]
        for statement in (
            "update blob_removals set marked_at = marked_at - %s,"
            " removing_until = removing_until - %s where tenant_id = %s",
            "update jobs set leased_until = leased_until - %s, created_at = created_at - %s"
            " where tenant_id = %s",
        ):
            delta = timedelta(seconds=seconds)
            self.admin.execute(statement, (delta, delta, self.tenant))
        for name, receipt in keys(self.aws).items():
            if name.startswith(self.tenant):
                receipt.last_modified -= timedelta(seconds=seconds)

    # what must hold ------------------------------------------------------------------------------

    def cited(self) -> set[str]:
        rows = self.gateway.database.connect_as(Caller.background(self.tenant)).fetch(
            store_archiving._Cid,  # pyright: ignore[reportPrivateUsage]
            "select distinct blob_cid as cid from events where blob_cid is not null",
            {},
        )
        return {row.cid for row in rows}

    def stored(self) -> set[str]:
        prefix = f"{self.tenant}/"
        return {name.removeprefix(prefix) for name in keys(self.aws) if name.startswith(prefix)}

    def dangling(self) -> set[str]:
        return self.cited() - self.stored()

    def play(self) -> set[str]:
        """Payloads that nobody cites and that an earlier pass has marked; then, at once, passes
        and others who put and cite the same; then quiet, and as many passes as are promised to be
        enough. Gives the citations that dangle."""
        for _ in range(self.chance.randint(1, 3)):
            dead = self.enter(self.chance.choice((self.append, self.upload)), APPEND_SECONDS)
            for _ in range(self.chance.randint(2, 5)):
                if not dead.done:
                    dead.step()
            if not dead.done:
                dead.kill()
        self.pass_time(GRACE + 1)
        self.gateway.run_job("archiver", self.tenant)
        self.pass_time(1000.0)
        self.enter(self.archive, JOB_SECONDS)
        for work in self.chance.choices((self.append, self.append, self.upload), k=3):
            self.enter(work, APPEND_SECONDS)
        while alive := [actor for actor in self.actors if not actor.done]:
            self._do(self.chance.random(), alive)
            if missing := self.dangling():
                return missing
        for seconds in PASSES:
            self.pass_time(seconds)
            self.gateway.run_job("archiver", self.tenant)
        return self.dangling()

    def enter(self, work: Callable[[], Callable[[], object]], life: float) -> Actor:
        self.actors.append(Actor(life, work()).start(self.threads))
        return self.actors[-1]

    def _do(self, draw: float, alive: Sequence[Actor]) -> None:
        if draw < 0.9:
            self.chance.choice(alive).step()
        elif draw < 0.93:
            self.chance.choice(alive).kill()
        elif draw < 0.97:
            self.pass_time(self.chance.choice((1, 5, 10, 70)))
        elif len(alive) < 4:
            self.enter(self.append, APPEND_SECONDS)


def keys(aws: LocalAws) -> dict[str, Any]:
    """What lies in the bucket, by its name."""
    contents: Any = s3_backends[ACCOUNT_ID]["aws"].buckets[aws.bucket]
    return dict(contents.keys.items())


@pytest.fixture
def stage(
    scratch_db: ScratchDatabase, aws: LocalAws, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[int], Stage]]:
    monkeypatch.setenv("STRANDLINE_BLOB_GRACE_SECONDS", str(int(GRACE)))
    from strandline.config import get_settings

    get_settings.cache_clear()
    blobs, PausedBlobs.removed = PausedBlobs(aws.bucket), 0
    for name in ("ingest", "archiver"):
        handler = importlib.import_module(f"functions.{name}.handler")
        handler.resources.__dict__["blobs"] = blobs
    with (
        psycopg.connect(scratch_db.admin_url, autocommit=True) as admin,
        ThreadPoolExecutor(8) as threads,
    ):
        yield lambda seed: Stage(admin, aws, gateway, threads, seed)


def play(stage: Callable[[int], Stage], seeds: Sequence[int]) -> tuple[int, int]:
    """Scenes until one loses something; gives how many citations dangled in it, and how many
    payloads were left over in all."""
    leftovers = 0
    for seed in seeds:
        scene = stage(seed)
        missing = scene.play()
        for actor in scene.actors:
            if not actor.done:
                actor.kill()
        if missing:
            return len(missing), leftovers
        leftovers += len(scene.stored() - scene.cited())
    return 0, leftovers


def test_archive_leaves_no_dangling_citation_or_leftover(
    scratch_db: ScratchDatabase, stage: Callable[[int], Stage], request: pytest.FixtureRequest
) -> None:
    scenes = SCENES if request.config.getoption("--full") else SAMPLE
    missing, leftovers = play(stage, range(scenes))
    ((events,),) = scratch_db.rows("select count(*) from events where blob_cid is not null")
    removals = PausedBlobs.removed
    print(f"\n{scenes} scenes, {events} citations, {removals} payloads removed: {missing}", end="")
    print(f" dangling, {leftovers} left over", end="")
    assert (missing, leftovers) == (0, 0)
    assert events > scenes
    assert removals > scenes / 10  # most are cited again by who raced


def test_archive_test_detects_unchecked_removal(
    stage: Callable[[int], Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was marked once goes, cited since or not."""

    def careless(access: TenantDb, cids: Sequence[str]) -> list[str]:
        rows = access.fetch(
            store_archiving._Cid,  # pyright: ignore[reportPrivateUsage]
            "select cid from blob_removals where cid = any (%(cids)s)",
            {"cids": list(cids)},
        )
        result_rows = access.fetch(
            store_archiving._Cid,  # pyright: ignore[reportPrivateUsage]
            "insert into blob_removals (tenant_id, cid) select current_tenant(), c.cid"
            " from unnest(%(cids)s::text[]) c (cid) where not exists (select from events e"
            " where e.blob_cid = c.cid) on conflict do nothing returning cid",
            {"cids": list(cids)},
        )
        del result_rows
        return [row.cid for row in rows]

    monkeypatch.setattr(store_archiving, "begin_payload_removal", careless)
    assert play(stage, [*REVEALING, *range(500)])[0] > 0


def test_archive_test_detects_unchecked_append(
    scratch_db: ScratchDatabase, stage: Callable[[int], Stage]
) -> None:
    scratch_db.rows("drop trigger cancel_blob_removal on blobs")
    assert play(stage, [*REVEALING, *range(500)])[0] > 0


# two transactions at once -----------------------------------------------------------------------


@pytest.fixture
def marked_cid(scratch_db: ScratchDatabase, gateway: Gateway) -> str:
    """A payload that an earlier pass has marked."""
    gateway.key()
    scratch_db.rows(
        "insert into blob_removals (tenant_id, cid, marked_at)"
        " values ('acme', 'old', now() - interval '1 hour')"
    )
    return "old"


STORE = "insert into blobs (tenant_id, cid, writer, size) values ('acme', 'old', '*', 1)"


def _append(
    base: ScratchDatabase, start_signal: threading.Event, go_on: threading.Event, commit: bool
) -> str:
    """Store the payload as append does, and wait in the middle; how it ended."""
    try:
        with psycopg.connect(base.url) as connection:
            connection.execute(
                "select set_config('strandline.tenant', 'acme', true),"
                " set_config('strandline.viewer', '{}', true),"
                " set_config('strandline.writer', '*', true)"
            )
            connection.execute(STORE)
            start_signal.set()
            assert go_on.wait(20)
            if not commit:
                connection.rollback()
    except psycopg.errors.SerializationFailure:
        return "come again"
    return "stored" if commit else "undone"


@pytest.mark.parametrize(("commit", "doomed"), [(True, []), (False, ["old"])])
def test_archive_removal_waits_for_append(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    marked_cid: str,
    *,
    commit: bool,
    doomed: list[str],
) -> None:
    start_signal, go_on = threading.Event(), threading.Event()
    with ThreadPoolExecutor(2) as threads:
        appending = threads.submit(_append, scratch_db, start_signal, go_on, commit)
        assert start_signal.wait(20)

        def remove() -> list[str]:
            access = gateway.database.connect_as(Caller.background("acme"))
            with access.transaction():
                return store_archiving.begin_payload_removal(access, [marked_cid])

        removing = threads.submit(remove)
        with pytest.raises(TimeoutError):
            removing.result(0.3)
        go_on.set()
        assert removing.result(20) == doomed
        assert appending.result(20) == ("stored" if commit else "undone")


def test_archive_append_waits_for_removal_and_retries(
    scratch_db: ScratchDatabase, gateway: Gateway, marked_cid: str
) -> None:
    access = gateway.database.connect_as(Caller.background("acme"))
    start_signal, go_on = threading.Event(), threading.Event()
    go_on.set()
    with ThreadPoolExecutor(1) as threads:
        with access.transaction():
            assert store_archiving.begin_payload_removal(access, [marked_cid]) == [marked_cid]
            appending = threads.submit(_append, scratch_db, start_signal, go_on, True)
            with pytest.raises(TimeoutError):
                appending.result(0.3)
        assert appending.result(20) == "come again"
        with access.transaction():
            store_archiving.end_payload_removal(access, [marked_cid])
        assert _append(scratch_db, start_signal, go_on, True) == "come again"
        scratch_db.rows("update blob_removals set removing_until = now() - interval '1 second'")
        assert _append(scratch_db, start_signal, go_on, True) == "stored"
