"""P13: what is erased is in no byte of any store, log or answer."""

import io
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import Connection, sql

from strandline.auth.principals import Principal
from strandline.db.database import Caller, TenantDb
from strandline.erasure import data_inventory, erase_events
from strandline.erasure.store_selections import EventSelection
from strandline.errors import NotFound
from strandline.local.aws import LocalAws, make_local_client
from strandline.observability import logger
from strandline.sealing import Sealer
from strandline.tenants.store_audit import AuditContext
from tests.prove.erasure_fixtures import embedder, no_waits
from tests.prove.erasure_kinds import HELD_IDS, PLACES, Kinds, queued_messages
from tests.prove.erasure_reads import CIDS, RIGHTS, asked_of_tools, bears, find_visible
from tests.prove.erasure_stores import (
    ERASED_WORD,
    ERASURES,
    KEPT_WORD,
    complete,
    every_object,
    every_row,
)
from tests.strandline.topics.outline import build, fold_all
from tests.support import Gateway, ScratchDatabase

__all__ = ["embedder", "no_waits"]

EVENTS, ROUNDS, SAMPLE = 20_000, 10, 150
BEARERS = 20
"""At least so many events of a round bear the word."""


@pytest.fixture
def versioned_bucket(aws: LocalAws) -> LocalAws:
    """A bucket that keeps versions."""
    status = {"Status": "Enabled"}
    make_local_client("s3").put_bucket_versioning(Bucket=aws.bucket, VersioningConfiguration=status)
    return aws


@pytest.fixture
def log_output() -> Iterator[io.StringIO]:
    """All that the service logs, metrics included."""
    stream = io.StringIO()
    handler, root = logging.StreamHandler(stream), logging.getLogger(logger.name)
    root.addHandler(handler)
    yield stream
    root.removeHandler(handler)


def test_erasure_leaves_no_byte(
    plenty: Gateway,
    scratch_db: ScratchDatabase,
    versioned_bucket: LocalAws,
    log_output: io.StringIO,
    proof_size: Callable[[int], int],
) -> None:
    """In no row or statistics, no version of an object, no queue, log or answer. Teeth: each table
    in turn that keeps its rows as they are is noticed."""
    kinds, rounds = Kinds(plenty, scratch_db, plenty.key(rights=RIGHTS)), proof_size(ROUNDS)
    for n in range(rounds):
        kinds.store(n, EVENTS // rounds if proof_size(EVENTS) == EVENTS else SAMPLE)
    kinds.derive()
    scratch_db.rows("analyze")
    before = every_row(scratch_db)
    assert {name for name, text in before.items() if ERASED_WORD in text} >= PLACES
    objects = {
        key.split("/")[0]
        for (key, _), t in every_object(versioned_bucket).items()
        if ERASED_WORD in t
    }
    assert objects == {"acme", "_uploads", "_exports"}
    answer = asked_of_tools(kinds, [])
    assert {name for name, text in answer.items() if bears(text)} >= TELLING
    ids = kinds.bearers()
    assert len(ids) >= BEARERS * rounds
    cids = [cid for (cid,) in scratch_db.rows(CIDS, ids)]
    assert find_forgotten(scratch_db, ids) == []

    for first in range(0, len(ids), 500):
        reply = plenty.call(
            "POST", ERASURES, {"event_ids": ids[first : first + 500]}, key=kinds.key
        )
        assert reply.status == 202, reply.text
    complete(plenty, scratch_db)
    fold_all(plenty, scratch_db)
    for job in ("promoter", "analytics", "archiver"):
        plenty.run_job(job, "acme")
    build(plenty)

    rows = every_row(scratch_db)
    assert {name for name, text in rows.items() if bears(text)} == set()
    assert {key for key, text in every_object(versioned_bucket).items() if bears(text)} == set()
    log = (scratch_db.server.directory / "postgres.log").read_text(errors="replace")
    texts = [queued_messages(versioned_bucket), log_output.getvalue(), log]
    assert [bears(text.lower()) for text in texts] == [False] * 3
    assert find_visible(kinds, ids, cids) == []
    names = {name for name, text in rows.items() for one in ids if one in text}
    assert names - {"pg_stats"} <= HELD_IDS
    assert KEPT_WORD in rows["events"]


TELLING = {
    *("recall", "context", "query_event_nodes", "query_references", "mie://context/recent"),
    *("mie_list fact", "mie_list decision", "mie_list entity", "mie_list topic"),
}
"""What of MCP shows the word before it is erased."""


def find_forgotten(base: ScratchDatabase, ids: list[str]) -> list[str]:
    """The tables which an erasure can forget without that the word is found in them afterwards."""
    with psycopg.connect(base.admin_url, autocommit=True) as admin:
        tables = bearing(admin, list(data_inventory.DATA_LOCATIONS))
        assert set(tables) >= PLACES - {"pg_stats"}
        assert left_without(admin, None, tables, ids) == []
        return [name for name in tables if not left_without(admin, name, tables, ids)]


def bearing(admin: Connection[Any], tables: list[str]) -> list[str]:
    """The tables in which the word stands."""
    statement = sql.SQL("select exists (select from {} t where strpos(lower(t::text), {}) > 0)")
    results: list[str] = []
    for name in tables:
        row = admin.execute(statement.format(sql.Identifier(name), ERASED_WORD)).fetchone()
        results += [name] if row and row[0] else []
    return results


def left_without(
    admin: Connection[Any], table: str | None, tables: list[str], ids: list[str]
) -> list[str]:
    """The tables that still bear the word after an erasure that forgets one; everything is rolled
    back."""
    nobody = Principal("acme", None, frozenset(RIGHTS))
    access = TenantDb(lambda: admin, Caller("acme", ()), None, Sealer("a secret"))
    with admin.transaction(force_rollback=True):
        if table is not None:
            admin.execute(
                "create function forget() returns trigger language plpgsql"
                " as 'begin return null; end'"
            )
            statement = sql.SQL(
                "create trigger forget before update or delete on {} for each row"
                " execute function forget()"
            )
            admin.execute(statement.format(sql.Identifier(table)))
        selection = EventSelection("events", event_ids=[UUID(one) for one in ids])
        try:
            erase_events.erase_selection(
                access, nobody, AuditContext("a test"), selection, datetime.now(UTC)
            )
        except (psycopg.Error, NotFound):  # its statements look at each other's rows
            return [str(table)]
        return bearing(admin, tables)
