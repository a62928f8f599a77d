"""Promise: what an event cites is what its CID names, whatever meets and dies on the way;
and of what nobody cites nothing is left when its time is over."""

import contextlib
import hashlib
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal

import pytest

from strandline.aws.blobs import BlobStore, UploadedObject
from strandline.aws.work_queue import WorkQueue
from strandline.db.database import Database
from strandline.errors import Invalid, StrandlineError, Unavailable
from strandline.http.writer import WriterResources, make_caller
from strandline.local.aws import LocalAws, make_local_client
from strandline.log import payload_citations, presigned_uploads, store_uploads
from strandline.log import store as log_store
from strandline.log.append import append
from strandline.log.append_state import AppendResult
from strandline.log.cid import sha256_of_payload_cid
from strandline.log.event_draft import CitedPayload
from strandline.log.presigned_uploads import begin_upload, remove_expired_uploads
from strandline.log.schemas_append import UploadRequest
from strandline.tenants.quotas import QuotaManager
from tests.prove.append_history import NO_LIMITS_SETTINGS, TENANT, WRITER, add_tenant, make_rng
from tests.support import ScratchDatabase
from tests.uploads import age, asking, citing, objects, pending_key, put, put_unchecked

ROUNDS = 300
"""Interleavings of two citations, a sweep, the end of an upload's time and a careless store."""
REFUSALS = {"upload_missing", "upload_mismatch", "blob_not_found"}
STEPS: list[tuple[object, str]] = [
    (BlobStore, "inspect_upload"),
    (BlobStore, "read_text_prefix"),
    (BlobStore, "copy_upload_to_cid"),
    (BlobStore, "erase_uploads"),
    (BlobStore, "delete_uploaded_object"),
    (store_uploads, "look_up_cited_payloads"),
    (store_uploads, "list_expired_uploads"),
    (store_uploads, "delete_expired_upload_rows"),
    (log_store, "append_events"),
]
"""Everything that is done outside of the process, one by one."""


class Kill(Exception):
    """Our own reason to stop here, as a process that dies."""


class Turns:
    """Who does the next step: drawn before, so that a seed gives the same interleaving again."""

    def __init__(self, order: list[str]) -> None:
        self._order = deque(order)
        self._gone: set[str] = set()
        self._next = threading.Condition()

    @contextmanager
    def step(self, actor: str) -> Generator[None]:
        """The block runs alone, when it is this actor's turn."""
        with self._next:
            assert self._next.wait_for(lambda: self._whose() in (actor, None), timeout=20)
            try:
                yield
            finally:
                if self._order:
                    self._order.popleft()
                self._next.notify_all()

    def leave(self, actor: str) -> None:
        """It takes no more turns."""
        with self._next:
            self._gone.add(actor)
            self._next.notify_all()

    def _whose(self) -> str | None:
        while self._order and self._order[0] in self._gone:
            self._order.popleft()
        return self._order[0] if self._order else None


@dataclass
class Stage:
    """What every step asks first: whose turn it is, and whether its process dies there."""

    turns: Turns | None = None
    dies: tuple[str, Literal["before", "after"]] | None = None
    actor: threading.local = field(default_factory=threading.local)

    @contextmanager
    def around(self, name: str) -> Generator[None]:
        """One step of this name."""
        if self.dies == (name, "before"):
            raise Kill
        actor: str | None = getattr(self.actor, "name", None)
        if self.turns is None or actor is None:
            yield
        else:
            with self.turns.step(actor):
                yield
        if self.dies == (name, "after"):
            raise Kill


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Every step outside of the process goes over this stage."""
    stage_service = Stage()

    def step_of(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        def step(*args: Any, **options: Any) -> Any:
            with stage_service.around(name):
                return real(*args, **options)

        return step

    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, step_of(name, getattr(owner, name)))
    return stage_service


class World:
    """A tenant that uploads and cites, through the services."""

    def __init__(self, base: ScratchDatabase, aws: LocalAws) -> None:
        self.base = base
        self.aws = aws
        self.database = Database(base.url)
        self.blobs = BlobStore(aws.bucket)
        self.quotas = QuotaManager(self.database, NO_LIMITS_SETTINGS)
        add_tenant(self.database)

    def begin(self, data: bytes) -> dict[str, Any]:
        """Begin an upload of text, as the route does; its answer."""
        access = self.database.connect_as(make_caller(WRITER))
        request = UploadRequest.model_validate(asking(data, mime_type="text/plain"))
        settings = NO_LIMITS_SETTINGS
        upload = begin_upload(access, self.blobs, self.quotas, request, settings)
        return upload.model_dump(mode="json")

    def cite(self, cid: str, key: str | None = None) -> AppendResult:
        """Append an event that cites this payload."""
        body = citing(cid)
        deadline = time.monotonic() + 20
        writer = WriterResources(
            WRITER, self.database, self.blobs, WorkQueue(""), self.quotas, deadline
        )
        (result,) = append(writer, [(body, key)])
        return result

    def sweep(self) -> None:
        """The sweeper's, of this tenant; where it dies, its next goes on."""
        with contextlib.suppress(Kill):
            remove_expired_uploads(self.database, self.blobs, TENANT, lambda: False)

    def wrong(self) -> list[str]:
        """Events whose payload is not there, or is not what they say."""
        objects_ = objects(self.aws, f"{TENANT}/")
        results: list[str] = []
        for event_id, cid, size in self.base.rows(
            "select event_id, blob_cid, blob_size from events"
        ):
            data = objects_.get(f"{TENANT}/{cid}")
            if data is None:
                results.append(f"{event_id}: its payload is lost")
            elif (len(data), hashlib.sha256(data).digest()) != (
                size,
                sha256_of_payload_cid(cid, "cid"),
            ):
                results.append(f"{event_id}: its payload is another")
        return results

    def left(self) -> tuple[int, int]:
        """Pending objects and rows."""
        ((rows,),) = self.base.rows("select count(*) from uploads")
        return len(objects(self.aws, "_uploads/")), rows


@pytest.fixture
def world(scratch_db: ScratchDatabase, aws: LocalAws) -> Iterator[World]:
    stage_world = World(scratch_db, aws)
    yield stage_world
    stage_world.database.close()
    delete_all(aws)


def delete_all(aws: LocalAws) -> None:
    """Empty the bucket."""
    with closing(make_local_client("s3")) as s3:
        for entry in s3.list_objects_v2(Bucket=aws.bucket).get("Contents", []):
            s3.delete_object(Bucket=aws.bucket, Key=entry["Key"])


# who dies on the way -----------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "name",
    [
        "look_up_cited_payloads",
        "inspect_upload",
        "read_text_prefix",
        "copy_upload_to_cid",
        "append_events",
    ],
)
def test_upload_citation_crash_is_healed_by_retry(
    world: World, stage: Stage, name: str, when: Literal["before", "after"]
) -> None:
    data = f"killed {when} {name}".encode()
    upload = world.begin(data)
    assert put(upload, data)[0] == 200
    stage.dies = (name, when)
    with pytest.raises(Kill):
        world.cite(upload["cid"], key="k")
    stage.dies = None
    assert world.wrong() == []
    results = [world.cite(upload["cid"], key="k") for _ in range(2)]
    assert [result.error for result in results] == [None, None]
    assert results[0].receipt == results[1].receipt
    assert results[1].receipt is not None
    assert results[1].receipt.blob is not None
    assert results[1].receipt.blob.mime_type == "text/plain"
    assert world.base.rows("select count(*) from events") == [(1,)]
    assert world.wrong() == []
    age(world.base)
    world.sweep()
    assert world.left() == (0, 0)
    assert world.cite(upload["cid"], key="k").receipt == results[0].receipt
    assert world.wrong() == []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "name",
    [
        "look_up_cited_payloads",
        "inspect_upload",
        "read_text_prefix",
        "copy_upload_to_cid",
        "append_events",
    ],
)
def test_upload_citation_crash_leaves_nothing_pending(
    world: World, stage: Stage, name: str, when: Literal["before", "after"]
) -> None:
    data = f"killed for good {when} {name}".encode()
    upload = world.begin(data)
    assert put(upload, data)[0] == 200
    stage.dies = (name, when)
    with pytest.raises(Kill):
        world.cite(upload["cid"])
    stage.dies = None
    age(world.base)
    world.sweep()
    assert (world.left(), world.wrong()) == ((0, 0), [])
    orphaned = f"{TENANT}/{upload['cid']}" in objects(world.aws)
    is_stored = world.base.rows("select count(*) from events") == [(1,)]
    copied = (name, when) in {("copy_upload_to_cid", "after"), ("append_events", "before")}
    assert orphaned == (copied or is_stored), "the one kind of orphan: copied, never committed"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["due", "erase_uploads", "forget"])
def test_upload_sweep_crash_is_finished_by_next_sweep(
    world: World, stage: Stage, name: str, when: Literal["before", "after"]
) -> None:
    citation, never = b"cited", b"never cited"
    for data in (citation, never):
        assert put(world.begin(data), data)[0] == 200
    assert world.cite(world.begin(citation)["cid"]).error is None
    age(world.base)
    stage.dies = (name, when)
    world.sweep()  # whose failure is a tenant's, and logged
    stage.dies = None
    world.sweep()
    assert (world.left(), world.wrong()) == ((0, 0), [])


# whatever meets ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Round:
    """What one interleaving came to."""

    outcomes: tuple[str, ...]
    """Of the two citations."""
    wrong: tuple[str, ...]
    left: tuple[int, int]
    """Pending objects and rows; what a careless store put later nobody knows of."""


def play(world: World, stage: Stage, pool: ThreadPoolExecutor, seed: int) -> Round:
    """One interleaving. What lies there is right, or wrong, or changes on the way."""
    chance = make_rng("uploads", seed)
    data = f"payload {seed}".encode() * 20
    upload = world.begin(data)
    place = pending_key(TENANT, upload)
    start = chance.choice(["right", "right", "wrong", "nothing"])
    if start == "right":
        assert put(upload, data)[0] == 200
    elif start == "wrong":
        put_unchecked(world.aws, place, data[:-1] + b"!")
    key = "one key" + str(seed) if chance.random() < 0.5 else None
    actors = _actors(world, stage, chance, upload, data, key)
    order = [name for name in actors for _ in range(5)]
    chance.shuffle(order)
    stage.turns = Turns(order)
    outcomes: dict[str, str] = {}

    def act(name: str) -> None:
        stage.actor.name = name
        try:
            outcomes[name] = actors[name]()
        finally:
            stage.actor.name = None
            assert stage.turns is not None
            stage.turns.leave(name)

    for future in [pool.submit(act, name) for name in actors]:
        future.result(timeout=60)
    stage.turns = None
    wrong = tuple(world.wrong())
    age(world.base)
    world.sweep()
    outcome_pair = tuple(outcomes[name] for name in ("cites", "cites too"))
    pending, rows = world.left()
    rest = (0 if "overwrites" in actors else pending, rows)
    return Round(outcome_pair, (*wrong, *world.wrong()), rest)


def _actors(
    world: World,
    stage: Stage,
    chance: random.Random,
    upload: dict[str, Any],
    data: bytes,
    key: str | None,
) -> dict[str, Callable[[], str]]:
    def cites() -> str:
        try:
            result = world.cite(upload["cid"], key)
        except Unavailable as error:
            return error.code
        return _outcome(result.error)

    def sweeps() -> str:
        world.sweep()
        return "swept"

    def time_passes() -> str:
        with stage.around("the clock"):
            age(world.base, upload["upload_id"])
        return "past"

    def overwrites() -> str:
        with stage.around("the store"):
            put_unchecked(world.aws, pending_key(TENANT, upload), b"planted " + data)
        return "overwritten"

    actors: dict[str, Callable[[], str]] = {"cites": cites, "cites too": cites, "sweeps": sweeps}
    if chance.random() < 0.5:
        actors["time passes"] = time_passes
    if chance.random() < 0.5:
        actors["overwrites"] = overwrites
    return actors


def _outcome(error: StrandlineError | None) -> str:
    if error is None:
        return "stored"
    assert isinstance(error, Invalid), error
    return str(error.details["reason"])


def play_rounds(
    world: World, stage: Stage, rounds: int, until: Callable[[Round], bool] = lambda _: False
) -> list[Round]:
    """Rounds one after the other, until one is as wanted."""
    results: list[Round] = []
    with ThreadPoolExecutor(5) as pool:
        for seed in range(rounds):
            results.append(play(world, stage, pool, seed))
            world.base.rows("truncate events cascade")
            delete_all(world.aws)
            if until(results[-1]):
                break
    return results


def test_upload_citation_in_any_race_matches_cid(
    world: World, stage: Stage, proof_size: Callable[[int], int]
) -> None:
    """Every citation is stored with the right bytes, or told why not, or told to try again."""
    rounds = play_rounds(world, stage, proof_size(ROUNDS))
    outcomes = Counter(outcome for result in rounds for outcome in result.outcomes)
    print(f"\n{len(rounds)} interleavings: {dict(outcomes)}, 0 wrong payloads")
    assert [result for result in rounds if result.wrong] == []
    assert set(outcomes) <= REFUSALS | {"stored", "unavailable"}
    assert set(outcomes) >= {"stored", "upload_missing", "upload_mismatch", "blob_not_found"}
    assert {result.left for result in rounds} == {(0, 0)}


def test_upload_test_detects_missing_verification(
    world: World, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: whatever lies there is believed."""
    real = payload_citations._CitedPayloadReader._find_verified_upload  # pyright: ignore[reportPrivateUsage]

    def believing(reader: Any, rows: Any) -> CitedPayload | Invalid:
        store: BlobStore = reader._blobs

        class TrustingStore:
            delete_uploaded_object = store.delete_uploaded_object

            def inspect_upload(
                self, tenant: str, upload_id: Any, deadline: float
            ) -> UploadedObject | None:
                there = store.inspect_upload(tenant, upload_id, deadline)
                digest = sha256_of_payload_cid(rows[0].cid, "cid")
                return there and UploadedObject(rows[0].size, digest, there.etag)

        reader._blobs = TrustingStore()
        try:
            return real(reader, rows)
        finally:
            reader._blobs = store

    monkeypatch.setattr(payload_citations._CitedPayloadReader, "_find_verified_upload", believing)  # pyright: ignore[reportPrivateUsage]
    rounds = play_rounds(world, stage, 200, lambda result: bool(result.wrong))
    print(f"\nunverified: a wrong payload after {len(rounds)} interleavings")
    assert rounds[-1].wrong


def test_upload_test_detects_unverified_copy(
    world: World, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: the bytes that are copied are not held to those that were verified."""

    def careless(self: Any, tenant: str, upload_id: Any, cid: str, etag: str) -> bool:
        del etag
        there = self.inspect_upload(tenant, upload_id, time.monotonic() + 10)
        return there is not None and real(self, tenant, upload_id, cid, there.etag)

    real: Callable[..., bool] = BlobStore.copy_upload_to_cid
    monkeypatch.setattr(BlobStore, "copy_upload_to_cid", careless)
    rounds = play_rounds(world, stage, 400, lambda result: bool(result.wrong))
    print(f"\nunconditional copy: a wrong payload after {len(rounds)} interleavings")
    assert rounds[-1].wrong


def test_upload_test_detects_sweep_that_forgets_first(
    world: World, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: the row before the object, and death in between."""

    def row_first(access: Any, blobs: BlobStore, due: Any) -> int:
        store_uploads.delete_expired_upload_rows(access, due)
        return len(blobs.erase_uploads(access.caller.tenant, due))

    monkeypatch.setattr(presigned_uploads, "_remove_upload_objects_and_rows", row_first)
    data = b"never cited"
    assert put(world.begin(data), data)[0] == 200
    age(world.base)
    stage.dies = ("erase_uploads", "before")
    world.sweep()
    stage.dies = None
    world.sweep()
    assert world.left() == (1, 0), "an object that nothing finds any more"
