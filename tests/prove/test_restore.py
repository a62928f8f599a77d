"""docs/upgrade.md, the drill: what comes back from a backup is the log, whole and guarded, and it
goes on. By files, as Aurora's snapshots and points in time are, and by a dump, row by row.
"""

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from strandline.admin.keys import NewKey
from strandline.config import get_settings
from strandline.db.migrate import migrate
from strandline.local.aws import LocalAws
from strandline.local.postgres import EmbeddedPostgres
from tests.prove.restore_checks import (
    checksum_tables,
    find_damage,
    read_guards,
    restore_from_backup,
    restore_from_dump,
)
from tests.strandline.embeddings.fake_embedders import WordEmbedder
from tests.support import (
    KEY_SECRET,
    TEMPLATE,
    Gateway,
    ScratchDatabase,
    unique_name,
    user_message,
    wire_handlers,
)

ALICE = "user:alice"
EVENTS = "/api/v1/events"
EVERYBODY = {"everybody": "true"}


@pytest.fixture
def place() -> Iterator[Path]:
    """Where a cluster can live."""
    directory = Path(tempfile.mkdtemp(prefix="strandline-restore-"))
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory)


def tell(front: Gateway, key: str, text: str, *who: str, **more: Any) -> Any:
    reply = front.call("POST", EVENTS, user_message(text, *who, **more), key=key)
    assert reply.status == 201, reply.text
    return reply.body


@contextmanager
def serving(base: ScratchDatabase, aws: LocalAws) -> Generator[Gateway]:
    """The service on a database."""
    environment = {
        "STRANDLINE_DATABASE_URL": base.url,
        "STRANDLINE_BUCKET": aws.bucket,
        "STRANDLINE_WORK_QUEUE_URL": aws.work_queue_url,
        "STRANDLINE_KEY_SECRET": KEY_SECRET,
    }
    with pytest.MonkeyPatch.context() as patch:
        services = wire_handlers(environment, patch, WordEmbedder("words/64", 64))
        front = Gateway(base.url)
        try:
            yield front
        finally:
            for database in [front.database, *(service.database for service in services)]:
                database.close()
    get_settings.cache_clear()


class Source(NamedTuple):
    """A database that nobody is connected to, and its keys by tenant."""

    base: ScratchDatabase
    keys: dict[str, str]
    spare: NewKey
    """A key that is to be revoked."""


@pytest.fixture(scope="module")
def source(
    server: EmbeddedPostgres, aws: LocalAws, request: pytest.FixtureRequest
) -> Iterator[Source]:
    """A log of two tenants: folded and embedded, but for what came last."""
    base = ScratchDatabase(server, unique_name())
    server.clone_database(TEMPLATE, base.name)
    events = 300 if request.config.getoption("--full") else 30
    with serving(base, aws) as front:
        rights = ("read", "write", "admin")
        keys = {tenant: front.key(tenant, rights=rights) for tenant in ("acme", "globex")}
        for key in keys.values():
            grow(front, key, events)
        front.sweep()
        for key in keys.values():
            tell(front, key, "What came last.", ALICE, "agent:0")
        spare = front.new_key("acme", rights=rights)
    yield Source(base, keys, spare)
    server.drop_database(base.name)


def grow(front: Gateway, key: str, events: int) -> None:
    """Conversations of one with three helpers, with edges and a payload."""
    before = None
    for number in range(events):
        edges = [{"event_id": before, "weight": 0.5}] if before and number % 3 == 0 else []
        text = f"Buoy {number} goes out."
        one = tell(front, key, text, ALICE, f"agent:{number % 3}", edges=edges)
        before = one["event_id"] if number % 3 == 0 else before
    tell(front, key, "A long report. " * 6000, ALICE, "agent:0")


@pytest.fixture
def faulty_copy(source: Source, server: EmbeddedPostgres) -> Iterator[ScratchDatabase]:
    """The same, to be broken."""
    base = ScratchDatabase(server, unique_name())
    server.clone_database(source.base.name, base.name)
    yield base
    server.drop_database(base.name)


def goes_on(front: Gateway, base: ScratchDatabase, keys: dict[str, str]) -> None:
    """Keys hold, lists are whole, the order has no gap, and what waited is embedded and folded."""
    for key in keys.values():
        listing, cursor = list[str](), None
        while True:
            query = {"limit": 20, **EVERYBODY} | ({"cursor": cursor} if cursor else {})
            page = front.call("GET", "/memories/list", key=key, query=query).body
            listing += [event["event_id"] for event in page["events"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        query = {"limit": 500, **EVERYBODY}
        scopes = front.call("GET", "/api/v1/scopes", key=key, query=query).body["scopes"]
        assert len(set(listing)) == len(listing) == sum(scope["last_seq"] for scope in scopes)
        last = max(scope["last_seq"] for scope in scopes)
        assert tell(front, key, "After.", ALICE, "agent:0")["seq"] == last + 1
    waiting = "select count(*) from scopes s where s.folded_seq < s.last_seq"
    assert base.rows(waiting) != [(0,)]
    front.sweep()
    assert base.rows(waiting) == [(0,)]
    assert base.rows(
        "select count(*) from events e where e.content like 'What came last%%' and not exists"
        " (select from event_vectors v where v.event_id = e.event_id)"
    ) == [(0,)]
    assert list(find_damage(base)) == []


@pytest.mark.parametrize(
    "bring_back", [restore_from_backup, pytest.param(restore_from_dump, marks=pytest.mark.proof)]
)
def test_restore_is_whole_and_guarded_and_goes_on(
    source: Source,
    faulty_copy: ScratchDatabase,
    aws: LocalAws,
    place: Path,
    bring_back: Callable[[ScratchDatabase, Path], AbstractContextManager[ScratchDatabase]],
) -> None:
    was, checksums = read_guards(faulty_copy), checksum_tables(faulty_copy)
    key, headers = source.keys["acme"], {"Idempotency-Key": "later"}
    body = user_message("Later.", ALICE, "agent:0")
    with bring_back(faulty_copy, place) as back:
        # What came after the backup is lost with the cluster that it was made of.
        with serving(faulty_copy, aws) as front:
            later = front.call("POST", EVENTS, body, key=key, headers=headers)
            assert later.status == 201
            faulty_copy.rows(
                "update api_keys set revoked_at = now() where key_id = %s", source.spare.key_id
            )
        assert read_guards(back) == was
        assert checksum_tables(back) == checksums
        assert list(find_damage(back)) == []
        with psycopg.connect(back.owner_url, autocommit=True) as owner:
            assert migrate(owner) == []
        with serving(back, aws) as front:
            reply = front.call(
                "GET", f"{EVENTS}/{later.body['event_id']}", key=key, query=EVERYBODY
            )
            assert reply.status == 404
            again = front.call("POST", EVENTS, body, key=key, headers=headers)
            assert (again.status, again.body["cid"]) == (201, later.body["cid"])
            assert again.body["seq"] == later.body["seq"]
            assert again.body["event_id"] != later.body["event_id"]
            spare = source.spare.token
            revoked = front.call("GET", "/memories/list", key=spare, query=EVERYBODY)
            assert revoked.status == 200  # until it is revoked again
            goes_on(front, back, source.keys)


@pytest.mark.proof
def test_restore_test_detects_missing_rights(source: Source, place: Path) -> None:
    with restore_from_dump(source.base, place, "--no-acl") as back:
        assert read_guards(back) != read_guards(source.base)


@pytest.mark.parametrize(
    "fault",
    [
        "delete from events where content like 'Buoy 3 %'",
        "update events set content = 'Buoy 3 stays.' where content like 'Buoy 3 %'",
        "update scopes set last_seq = last_seq + 1",
    ],
)
def test_restore_test_detects_incomplete_log(faulty_copy: ScratchDatabase, fault: str) -> None:
    assert list(find_damage(faulty_copy)) == []
    with psycopg.connect(faulty_copy.admin_url, autocommit=True) as administrator:
        administrator.execute("set session_replication_role = replica")
        assert administrator.execute(fault.encode()).rowcount > 0
    assert list(find_damage(faulty_copy))


def test_restore_test_detects_missing_guard(faulty_copy: ScratchDatabase) -> None:
    for fault in (
        "alter table events no force row level security",
        "grant update on events to strandline_app",
        "alter table events owner to strandline_app",
        "drop policy own_tenant on job_shards",
        "alter function tenants_by_name security invoker",
        "alter table jobs drop constraint jobs_state_check",
        "alter table blobs disable trigger cancel_blob_removal",
    ):
        was = read_guards(faulty_copy)
        faulty_copy.rows(fault)
        assert read_guards(faulty_copy) != was, fault
