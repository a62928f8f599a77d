"""Invariant 7 as rows feel it: with every WHERE forgotten, nobody reads, changes or adds a foreign
row; and each fault that would let them is noticed."""

import math
import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import Connection, errors, sql

from strandline import participants
from strandline.db.database import Caller
from tests.strandline.db.breaches import (
    appended_in_breach,
    nearest_in_breach,
    nodes_in_breach,
    searched_in_breach,
    substrings_in_breach,
)
from tests.strandline.db.isolation import (
    TABLES_OF_A_SCOPE,
    VERBS,
    Table,
    Verb,
    all_breaches,
    ask,
    breaches,
    forgeries,
    rows,
    tables,
    viewer_text,
)
from tests.support import ScratchDatabase

ALICE = Caller("acme", ("user:alice",), "user:alice")


@pytest.fixture
def admin(copy: ScratchDatabase) -> Iterator[Connection[Any]]:
    """The superuser: sees the truth, plants the faults."""
    with psycopg.connect(copy.admin_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def app(copy: ScratchDatabase) -> Iterator[Connection[Any]]:
    """The application role."""
    with psycopg.connect(copy.url, autocommit=True, prepare_threshold=None) as connection:
        yield connection


def find_untested(connection: Connection[Any], among: list[Table]) -> list[str]:
    """Tables of which somebody who set nothing, or only empty strings, reads or changes a row."""
    results: list[str] = []
    for table in among:
        name = sql.Identifier(table.name)
        statements = [sql.SQL("select {} from {}").format(sql.Identifier(table.readable[0]), name)]
        if table.updatable:
            column = sql.Identifier(table.updatable[0])
            statements.append(sql.SQL("update {} set {} = null").format(name, column))
        if table.deletable:
            statements.append(sql.SQL("delete from {}").format(name))
        for empty in (False, True):
            for statement in statements:
                with connection.transaction(force_rollback=True):
                    if empty:
                        ask(connection, "", "", "")
                    try:
                        if connection.execute(statement).rowcount:
                            results.append(table.name)
                    except errors.IntegrityError:  # it got as far as a row
                        results.append(table.name)
    return results


def test_isolation_world_has_own_and_foreign_rows(admin: Connection[Any]) -> None:
    """Else the properties below would hold for want of anything to break them."""
    for table in tables(admin):
        is_whole = table.name.startswith("graph_tenant_")  # which no participant sees
        caller = Caller.background(ALICE.tenant) if is_whole else ALICE
        own = [row for row in table.rows if row.belongs_to(caller)]
        others = [row for row in table.rows if row.full["tenant_id"] != ALICE.tenant]
        assert own, f"nothing of alice's in {table.name}"
        assert others, f"nothing of another tenant's in {table.name}"
        if is_whole:
            assert not [row for row in table.rows if row.belongs_to(ALICE)]
        elif "participants" in table.readable or "writer" in table.readable:
            inner = [row for row in table.rows if row.full["tenant_id"] == ALICE.tenant]
            assert len(inner) > len(own), f"nothing of bob's in {table.name}"


def test_isolation_foreign_row_is_not_read_or_written(
    admin: Connection[Any], app: Connection[Any], proof_size: Callable[[int], int]
) -> None:
    assert list(all_breaches(app, tables(admin), proof_size(20000))) == []


def of_scopes(admin: Connection[Any]) -> list[Table]:
    """The tables whose rows are of a scope, by the catalogue, and into which the application may
    insert."""
    names = set(rows(admin, TABLES_OF_A_SCOPE))
    results = [table for table in tables(admin) if table.name in names]
    assert [table.name for table in results if not table.insertable] == ["erased_events"]
    return [table for table in results if table.insertable]


def test_isolation_row_cannot_name_other_scope(
    admin: Connection[Any], app: Connection[Any]
) -> None:
    """Who may say who asks still writes into no scope of others under participants in view."""
    guarded = of_scopes(admin)
    assert len(guarded) >= 18
    assert [one for table in guarded for one in forgeries(app, table)] == []


def test_isolation_scope_id_rule_agrees_in_sql_and_python(app: Connection[Any]) -> None:
    """`is_scope_of` and `participants.scope_id` are one rule in two languages."""
    chance = random.Random(5)
    letters = "aZ0 :\"\\/{}[],'\u00e9\u2028\ufeff\U0001f600\u4e2d<>&%"
    for _ in range(300):
        who = [
            "user:" + "".join(chance.choices(letters, k=chance.randint(1, 200)))
            for _ in range(chance.randint(1, 64))
        ]
        members = sorted(set(who))
        tenant = chance.choice(("acme", "a", "a-1"))
        scope_id = participants.derive_scope_id(tenant, members)
        flipped = uuid.UUID(int=scope_id.int ^ 1 << chance.randrange(128))
        ((same, other, others_tenant, fewer),) = app.execute(
            "select is_scope_of(%(id)s, %(tenant)s, %(who)s),"
            " is_scope_of(%(flipped)s, %(tenant)s, %(who)s), is_scope_of(%(id)s, 'b', %(who)s),"
            " is_scope_of(%(id)s, %(tenant)s, (%(who)s::text[])[2:])",
            {"id": scope_id, "flipped": flipped, "tenant": tenant, "who": members},
        ).fetchall()
        assert (same, other, others_tenant, fewer) == (True, False, False, False), (tenant, members)


def test_isolation_without_settings_tables_are_empty(
    admin: Connection[Any], app: Connection[Any]
) -> None:
    assert find_untested(app, tables(admin)) == []
    with app.transaction():  # and after a transaction of somebody's, on the same connection
        ask(app, ALICE.tenant, viewer_text(ALICE.viewer), ALICE.writer)
        assert rows(app, "select count(*) from events") > [0]
    assert find_untested(app, tables(admin)) == []


def test_isolation_view_and_join_are_as_tight_as_tables(
    admin: Connection[Any], app: Connection[Any]
) -> None:
    in_view = {
        row.full["event_id"]
        for table in tables(admin)
        if table.name == "events"
        for row in table.rows
        if row.belongs_to(ALICE)
    }
    with app.transaction(force_rollback=True):
        ask(app, ALICE.tenant, viewer_text(ALICE.viewer), ALICE.writer)
        assert set(rows(app, "select event_id::text from event_rows")) == in_view
        query = "select count(*) from events e full join scopes s on true full join blobs b on true"
        counts = [
            rows(app, "select count(*) from events")[0],
            rows(app, "select count(*) from scopes")[0],
            rows(app, "select count(*) from blobs")[0],
        ]
        assert rows(app, query) == [math.prod(counts)]


# teeth -------------------------------------------------------------------------------------------


def test_isolation_owner_is_held_by_forced_row_security(
    copy: ScratchDatabase, admin: Connection[Any]
) -> None:
    among = [t for t in tables(admin, "strandline_owner") if t.name in ("events", "event_keys")]
    with psycopg.connect(copy.owner_url, autocommit=True) as owner:
        assert list(all_breaches(owner, among, 40, verbs=("select",))) == []
        for table in among:
            lax = sql.SQL("alter table {} no force row level security")
            owner.execute(lax.format(sql.Identifier(table.name)))
            assert any(all_breaches(owner, [table], 20, verbs=("select",)))
            assert table.name in find_untested(owner, [table])


FAULTS: dict[str, tuple[bytes, tuple[Verb, ...]]] = {
    "viewer part dropped": (
        b"alter policy in_view on {} using (tenant_id = current_tenant())"
        b" with check (tenant_id = current_tenant())",
        ("select", "insert"),
    ),
    "tenant part dropped": (
        b"alter policy in_view on {} using (participants @> (select current_viewer()))"
        b" with check (participants @> (select current_viewer()))",
        ("select", "insert"),
    ),
    "check clause opened": (b"alter policy in_view on {} with check (true)", ("insert",)),
    "row security off": (b"alter table {} disable row level security", ("select", "insert")),
}


@pytest.mark.parametrize(
    "fault",
    ["viewer part dropped", *(pytest.param(f, marks=pytest.mark.proof) for f in [*FAULTS][1:])],
)
def test_isolation_weakened_policy_is_noticed(
    admin: Connection[Any], app: Connection[Any], fault: str
) -> None:
    statement, verbs = FAULTS[fault]
    guarded = [table for table in tables(admin) if "participants" in table.readable]
    assert len(guarded) >= 12
    for table in guarded:
        admin.execute(statement.replace(b"{}", table.name.encode()))
        for verb in verbs:
            if verb == "insert" and not table.insertable:
                continue
            noticed = any(all_breaches(app, [table], 30, verbs=(verb,)))
            assert noticed, f"{fault} on {table.name}: {verb} went unnoticed"


@pytest.mark.parametrize(
    "fault",
    [
        b"drop policy matches_scope on {}",
        *(
            pytest.param(statement, marks=pytest.mark.proof)
            for statement in (
                b"alter policy matches_scope on {} with check (true)",
                b"alter policy matches_scope on {} to strandline_planner",
                b"alter policy matches_scope on {} with check"
                b" (exists (select from scopes s where s.tenant_id = {}.tenant_id))",
            )
        ),
    ],
)
def test_isolation_row_not_held_to_scope_is_noticed(
    admin: Connection[Any], app: Connection[Any], fault: bytes
) -> None:
    for table in of_scopes(admin):
        if b"select from scopes" in fault and table.name == "scopes":
            continue  # a policy that asks its own table is no policy
        admin.execute(fault.replace(b"{}", table.name.encode()))
        assert forgeries(app, table), f"{fault!r} on {table.name} went unnoticed"


def test_isolation_append_not_held_to_scope_is_noticed(
    admin: Connection[Any], app: Connection[Any]
) -> None:
    truth = {table.name: table for table in tables(admin)}
    (definition,) = rows(admin, "select pg_get_functiondef('append_fast_path'::regproc)")
    part = "and s.participants = v_item.participants"
    assert part in definition
    admin.execute(definition.replace(part, "").encode())
    assert any(appended_in_breach(app, truth["scopes"].rows[:6]))


@pytest.mark.parametrize("table_name", ["event_keys", "blobs"])
def test_isolation_missing_writer_check_is_noticed(
    admin: Connection[Any], app: Connection[Any], table_name: str
) -> None:
    admin.execute(
        f"alter policy own_writer on {table_name} using (tenant_id = current_tenant())"
        " with check (tenant_id = current_tenant())".encode()
    )
    (table,) = (table for table in tables(admin) if table.name == table_name)
    for verb in ("select", "insert"):
        assert any(all_breaches(app, [table], 30, verbs=(verb,)))


def test_isolation_granted_delete_is_noticed(admin: Connection[Any], app: Connection[Any]) -> None:
    """The rights that are not granted today are tested the day they are."""
    admin.execute("grant delete on lanes to strandline_app")
    admin.execute("create policy slip on lanes for delete to strandline_app using (true)")
    admin.execute("create policy slip_too on lanes for select to strandline_app using (true)")
    (table,) = (table for table in tables(admin) if table.name == "lanes")
    assert any(all_breaches(app, [table], 20, verbs=("delete",)))


def test_isolation_setting_left_on_session_is_noticed(
    admin: Connection[Any], app: Connection[Any]
) -> None:
    among = tables(admin)
    assert find_untested(app, among) == []
    app.execute(
        "select set_config('strandline.tenant', 'acme', false),"
        " set_config('strandline.viewer', '{}', false)"
    )
    assert "events" in find_untested(app, among)


@pytest.mark.parametrize("function", ["search_words", "newest_pieces_with_words"])
@pytest.mark.parametrize(
    "part",
    [
        "and w.participants @> (select current_viewer())",
        pytest.param("w.tenant_id = current_tenant() and", marks=pytest.mark.proof),
    ],
)
def test_isolation_unchecked_definer_function_is_noticed(
    admin: Connection[Any], app: Connection[Any], function: LiteralString, part: str
) -> None:
    truth = {table.name: table for table in tables(admin)}
    (definition,) = rows(admin, f"select pg_get_functiondef('{function}'::regproc)")
    assert part in definition
    admin.execute(definition.replace(part, "").encode())
    assert any(searched_in_breach(app, truth, 60, function=function))


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        *(
            pytest.param(part, "", marks=pytest.mark.proof)
            for part in (
                "and (v_scopes is null or c.scope_id = any (v_scopes))",
                "and (p_scopes is null or m.scope_id = any (p_scopes))",
            )
        ),
        ("or m.participants @> v_viewer", "or true"),
    ],
)
def test_isolation_unchecked_vector_search_is_noticed(
    admin: Connection[Any], app: Connection[Any], part: str, instead: str
) -> None:
    truth = {table.name: table for table in tables(admin)}
    (definition,) = rows(admin, "select pg_get_functiondef('nearest_by_code'::regproc)")
    assert part in definition
    admin.execute(definition.replace(part, instead).encode())
    assert any(nearest_in_breach(app, truth))


@pytest.mark.parametrize(
    ("function", "part"),
    [
        ("nearest_nodes", "and (v_scopes is null or c.scope_id = any (v_scopes))"),
        ("nodes_containing", "and g.participants @> (select current_viewer())"),
        pytest.param(
            "nodes_containing", "g.tenant_id = current_tenant() and", marks=pytest.mark.proof
        ),
    ],
)
def test_isolation_unchecked_node_search_is_noticed(
    admin: Connection[Any], app: Connection[Any], function: LiteralString, part: str
) -> None:
    truth = {table.name: table for table in tables(admin)}
    (definition,) = rows(admin, "select pg_get_functiondef(%s::regproc)", function)
    assert part in definition
    admin.execute(definition.replace(part, "").encode())
    assert any(nodes_in_breach(app, truth))


@pytest.mark.parametrize(
    "part",
    [
        "and t.participants @> (select current_viewer())",
        pytest.param("t.tenant_id = current_tenant() and", marks=pytest.mark.proof),
    ],
)
def test_isolation_unchecked_substring_search_is_noticed(
    admin: Connection[Any], app: Connection[Any], part: str
) -> None:
    truth = {table.name: table for table in tables(admin)}
    (definition,) = rows(admin, "select pg_get_functiondef('indexed_events_containing'::regproc)")
    assert part in definition
    admin.execute(definition.replace(part, "").encode())
    assert any(substrings_in_breach(app, truth))


def test_isolation_append_under_laxer_policies_is_noticed(
    admin: Connection[Any], app: Connection[Any]
) -> None:
    truth = {table.name: table for table in tables(admin)}
    lax = "create policy lax on {} to strandline_append using ({}) with check ({})"
    for name in ("scopes", "events", "event_search", "scope_work"):
        tenant = "tenant_id = current_tenant()"
        admin.execute(lax.format(name, tenant, tenant).encode())
    assert any(appended_in_breach(app, truth["scopes"].rows[:6]))


def test_isolation_wrongly_withheld_row_is_noticed(
    admin: Connection[Any], app: Connection[Any]
) -> None:
    """A policy that lets nobody see anything would pass a test for foreign rows alone."""
    admin.execute("alter policy in_view on events using (false)")
    (events,) = (table for table in tables(admin) if table.name == "events")
    assert any(breaches(app, events, "select", ALICE, random.Random(1)))
    assert set(VERBS) == {"select", "update", "delete", "insert"}
