"""Invariants 1 and 11 in the schema: nobody rewrites an event; a citation meets erasure."""

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import Connection, errors, sql

from strandline.local.postgres import EmbeddedPostgres
from tests.connections import SESSIONS
from tests.strandline.db.breaches import plain_item
from tests.strandline.db.isolation import Row, ask, rows, viewer_text
from tests.strandline.db.world import World
from tests.support import ScratchDatabase, unique_name

# One citing row a table: what the application would insert about an event of alice's.
CITING = {
    "event_keys": "(tenant_id, writer, channel, source_event_key, event_id, fingerprint)"
    " values ('acme', '*', 'http', 'another key', {event}, '')",
    "memory_edges": "(tenant_id, scope_id, participants, event_id, cited_id, cited_cid, weight)"
    " values ('acme', {scope}, {who}, {event}, {other}, 'cid', 1)",
    "memory_edges as the cited": "(tenant_id, scope_id, participants, event_id, cited_id,"
    " cited_cid, weight) values ('acme', {scope}, {who}, {other}, {event}, 'cid', 1)",
    "decisions": "(tenant_id, decision_id, scope_id, participants, event_id, kind, body)"
    " values ('acme', uuidv7(), {scope}, {who}, {event}, 'a test', '{{}}')",
    "chain_events": "(tenant_id, event_id, chain_id, scope_id, participants, seq, since_version)"
    " select 'acme', {event}, chain_id, {scope}, {who}, 99, 1 from chains"
    " where tenant_id = 'acme' and scope_id = {scope} limit 1",
    "topic_events": "(tenant_id, chain_id, event_id, scope_id, participants, seq, since_version)"
    " values ('acme', gen_random_uuid(), {event}, {scope}, {who}, 99, 1)",
    "event_search": "(tenant_id, scope_id, event_id, piece, start_char, end_char, participants,"
    " words) values ('acme', {scope}, {event}, 99, 0, 1, {who}, '')",
    "event_search as the cited": "(tenant_id, scope_id, event_id, piece, start_char, end_char,"
    " participants, cited_id, words)"
    " values ('acme', {scope}, {other}, 99, 0, 1, {who}, {event}, '')",
    "event_texts": "(tenant_id, scope_id, event_id, participants, text)"
    " values ('acme', {scope}, {event}, {who}, 'a text')",
    "event_vectors": "(tenant_id, space, scope_id, event_id, participants, embedding)"
    " values ('acme', 'another space', {scope}, {event}, {who}, '[1]')",
    "event_uses": "(tenant_id, cited_id, asker_id, event_id, day, participants, impact)"
    " values ('acme', {other}, uuidv7(), {event}, current_date, {who}, 1)",
    "event_uses as the cited": "(tenant_id, cited_id, asker_id, event_id, day, participants,"
    " impact) values ('acme', {event}, uuidv7(), {other}, current_date, {who}, 1)",
    "graph_sources": "(tenant_id, target_id, source_id, event_id, scope_id, participants)"
    " select 'acme', target_id, source_id, {event}, {scope}, {who} from graph_observations"
    " where scope_id = {scope} and target_id <> {event} limit 1",
    "topic_field_revisions": "(tenant_id, node_id, field, revision, scope_id, participants, value,"
    " valid_from, event_id, recorded_at) select 'acme', node_id, field, 99, {scope}, {who}, '1',"
    " now(), {event}, now() from topic_fields where scope_id = {scope} limit 1",
    "sona_members": "(tenant_id, sona_id, event_id, scope_id, participants)"
    " select 'acme', sona_id, {event}, {scope}, {who} from sonas"
    " where tenant_id = 'acme' and writer = current_writer() limit 1",
    "acts": "(tenant_id, sona_id, step, act_id, previous_id, event_id, scope_id, participants)"
    " select 'acme', sona_id, 999, uuidv7(), uuidv7(), {event}, {scope}, {who} from sonas"
    " where tenant_id = 'acme' and writer = current_writer() limit 1",
    "turn_events": "(tenant_id, turn_id, event_id, part, participants)"
    " select 'acme', turn_id, {event}, 'answer', {who} from turns where participants = {who}"
    " and turn_id <> {event} limit 1",
    "embedding_cache": "(tenant_id, space, text_hash, event_id, participants, embedding)"
    " values ('acme', 'another space', '', {event}, {who}, '[1]')",
}
WHO = ["agent:helper", "user:alice"]
ERASE = "update events set erased_at = now(), content = null, cid = null where event_id = %s"


@pytest.fixture(scope="module")
def unguarded_copy(world: World, server: EmbeddedPostgres) -> Iterator[ScratchDatabase]:
    """One copy of the populated database for all of these tests."""
    name = unique_name()
    server.clone_database(world.base.name, name)
    base = ScratchDatabase(server, name)
    base.rows("delete from erasure_marks")  # while there are any, no append goes the short way
    SESSIONS.open(base.url, base.admin_url)
    yield base
    SESSIONS.close(base.url, base.admin_url)
    server.drop_database(name)


@pytest.fixture
def admin(unguarded_copy: ScratchDatabase) -> Iterator[Connection[Any]]:
    """Erasure, until it is built: the superuser."""
    with SESSIONS.connect(unguarded_copy.admin_url) as connection:
        yield connection


@pytest.fixture
def app(unguarded_copy: ScratchDatabase) -> Iterator[Connection[Any]]:
    """The application, which would rather be told than wait."""
    with SESSIONS.connect(unguarded_copy.url) as connection:
        connection.execute("set lock_timeout = '150ms'")
        yield connection


@pytest.fixture
def pair(admin: Connection[Any]) -> tuple[str, str, str]:
    """A scope of alice's, and two events of it: not erased, and joined by nothing."""
    admin.execute("truncate memory_edges, chain_events, event_texts")
    admin.execute(
        "update events set erased_at = null, content = 'x', blob_cid = null, cid = 'c'"
        " where erased_at is not null"
    )
    (row,) = admin.execute(
        "select scope_id::text, (array_agg(event_id::text order by seq))[1:2] from events"
        " where tenant_id = 'acme' and participants = %s group by 1",
        (WHO,),
    ).fetchall()
    return row[0], row[1][0], row[1][1]


def cite(app: Connection[Any], where: str, pair: tuple[str, str, str]) -> None:
    """Insert the citing row, in the transaction under way."""
    scope, event, other = map(sql.Literal, pair)
    table = sql.Identifier(where.partition(" ")[0])
    values = sql.SQL(CITING[where]).format(  # pyright: ignore[reportArgumentType] - a constant above
        scope=scope, event=event, other=other, who=sql.Literal(WHO)
    )
    ask(app, "acme", viewer_text(["user:alice"]), "*")
    app.execute(sql.SQL("insert into {} ").format(table) + values)


@pytest.mark.parametrize(
    "statement",
    [
        "update events set content = 'never said'",
        "update events set metadata = '{}'",
        "update events set erased_at = now()",
        "update events set seq = seq + 1",
        "delete from events",
        "truncate events",
        "select from events for update",
        "alter table events disable trigger all",
        "insert into events (tenant_id, event_id, xid) values ('acme', uuidv7(), '3')",
        "insert into events (tenant_id, event_id, erased_at) values ('acme', uuidv7(), now())",
        "insert into events select * from events on conflict (tenant_id, event_id)"
        " do update set content = 'never said'",
        "merge into events e using (select 1) s on true when matched then delete",
        "set session_replication_role = replica",
        "set role strandline_owner",
        "set role strandline_guard",
        "set role strandline_append",
    ],
)
def test_immutability_application_cannot_rewrite_events(
    app: Connection[Any], admin: Connection[Any], statement: str
) -> None:
    before = rows(admin, "select md5(string_agg(e::text, '' order by event_id)) from events e")

    def rewrite() -> None:
        with app.transaction():
            ask(app, "acme", "{}", "*")
            app.execute(statement.encode())

    with pytest.raises(errors.InsufficientPrivilege):
        rewrite()
    assert (
        rows(admin, "select md5(string_agg(e::text, '' order by event_id)) from events e") == before
    )


def test_immutability_tests_cover_every_citing_table(admin: Connection[Any]) -> None:
    citing = rows(
        admin,
        "select distinct conrelid::regclass::text from pg_constraint"
        " where contype = 'f' and confrelid = 'events'::regclass",
    )
    assert {where.partition(" ")[0] for where in CITING} == set(citing)


@pytest.mark.parametrize("where", CITING)
def test_immutability_erased_event_cannot_be_cited(
    app: Connection[Any], admin: Connection[Any], pair: tuple[str, str, str], where: str
) -> None:
    with app.transaction(force_rollback=True):
        cite(app, where, pair)  # without the mark it is taken
    admin.execute(ERASE, (pair[1],))
    with pytest.raises(psycopg.Error) as error, app.transaction():
        cite(app, where, pair)
    assert error.value.sqlstate == "ST410"


@pytest.mark.parametrize("where", CITING)
def test_immutability_erasure_waits_for_citation(
    app: Connection[Any], admin: Connection[Any], pair: tuple[str, str, str], where: str
) -> None:
    admin.execute("set lock_timeout = '150ms'")
    lock = "select from events where event_id = %s for update"
    with app.transaction(force_rollback=True):
        cite(app, where, pair)
        with pytest.raises(errors.LockNotAvailable):
            admin.execute(lock, (pair[1],))
    assert admin.execute(lock, (pair[1],)).rowcount == 1


@pytest.mark.parametrize("where", CITING)
def test_immutability_citation_waits_for_erasure_and_fails(
    app: Connection[Any], admin: Connection[Any], pair: tuple[str, str, str], where: str
) -> None:
    with admin.transaction():
        admin.execute("select from events where event_id = %s for update", (pair[1],))
        with pytest.raises(errors.LockNotAvailable), app.transaction():
            cite(app, where, pair)
        admin.execute(ERASE, (pair[1],))
        with pytest.raises(errors.LockNotAvailable), app.transaction():
            cite(app, where, pair)
    with pytest.raises(psycopg.Error) as error, app.transaction():
        cite(app, where, pair)
    assert error.value.sqlstate == "ST410"


def test_immutability_missing_trigger_is_noticed(
    app: Connection[Any], admin: Connection[Any], pair: tuple[str, str, str]
) -> None:
    """Teeth: the foreign key alone lets it pass."""
    admin.execute("alter table decisions disable trigger refuse_erased_event")
    admin.execute(ERASE, (pair[1],))
    with app.transaction(force_rollback=True):
        cite(app, "decisions", pair)
        query = "select count(*) from decisions where event_id = %s"
        row = app.execute(query, (pair[1],)).fetchone()
    assert row is not None
    assert row[0] >= 1
    admin.execute("alter table decisions enable trigger refuse_erased_event")


# An append of one event goes past the guards, and must keep what they promise.
NEWEST = (
    "select event_id::text from events where scope_id = %s and session_id = '' order by seq desc"
)


def append_event(app: Connection[Any], scope_id: str) -> str | None:
    """Append an event to the scope; gives the event whose words stand beside its own."""
    item = plain_item(Row("", {"scope_id": scope_id}), WHO, uuid.uuid4().hex)
    with app.transaction():
        ask(app, "acme", viewer_text(["user:alice"]), "*")
        (event_id,) = rows(app, "select event_id from append_fast_path(%s)", item)
        query = "select cited_id::text from event_search where event_id = %s"
        return rows(app, query, event_id)[0]


def test_immutability_append_cites_last_unerased_event(
    app: Connection[Any], admin: Connection[Any], pair: tuple[str, str, str]
) -> None:
    scope_id, *_ = pair
    append_event(app, scope_id)
    last, earlier = rows(admin, NEWEST, scope_id)[:2]
    with app.transaction(force_rollback=True):
        assert append_event(app, scope_id) == last
    admin.execute(ERASE, (last,))
    assert append_event(app, scope_id) == earlier


@pytest.mark.parametrize("is_held", [True, False])
def test_immutability_append_waits_for_erasure(
    app: Connection[Any], admin: Connection[Any], pair: tuple[str, str, str], *, is_held: bool
) -> None:
    """And if it did not hold the event that it cites (planted), it would cite an erased one."""
    scope_id, *_ = pair
    append_event(app, scope_id)
    (definition,) = rows(admin, "select pg_get_functiondef('append_fast_path'::regproc)")
    assert " for key share" in definition
    if not is_held:
        admin.execute(definition.replace(" for key share", "").encode())
    app.execute("set lock_timeout = '20s'")
    last = rows(admin, NEWEST, scope_id)[0]
    with ThreadPoolExecutor() as threads:
        with admin.transaction():
            admin.execute("select from events where event_id = %s for update", (last,))
            admin.execute(ERASE, (last,))
            waiting = threads.submit(append_event, app, scope_id)
            deadline = time.monotonic() + 10
            while not rows(admin, "select pid from pg_locks where not granted"):
                assert time.monotonic() < deadline
                time.sleep(0.01)
        assert (waiting.result() == last) is not is_held
    admin.execute(definition.encode())


def test_immutability_erasure_waits_for_append(
    app: Connection[Any], admin: Connection[Any], pair: tuple[str, str, str]
) -> None:
    scope_id, *_ = pair
    append_event(app, scope_id)
    admin.execute("set lock_timeout = '150ms'")
    with app.transaction(force_rollback=True):
        citation = append_event(app, scope_id)
        with pytest.raises(errors.LockNotAvailable):
            admin.execute("select from events where event_id = %s for update", (citation,))
