"""Every function that looks past row-level security, called directly and with bad intent; and
every other one, called by nobody."""

import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection, errors

from tests.strandline.store.isolation import ASKERS, Table, ask, rows, tables, viewer_text
from tests.strandline.store.world import World

# Every SECURITY DEFINER function, and the test below that probes it.
PROBED = (
    "search_events",
    "find_api_key",
    "tenants_with_work",
    "refuse_erased_event",
    "refuse_erased_citation",
)
_EVERYTHING = ("'tide' | 'late' | 'harbour' | 'long'", "!'nowhere'", "'t':* | !'t':*")


@pytest.fixture
def app(world: World) -> Iterator[Connection[Any]]:
    """The application role, without any settings yet."""
    with psycopg.connect(world.base.url, autocommit=True, prepare_threshold=None) as connection:
        yield connection


@pytest.fixture
def truth(world: World) -> dict[str, Table]:
    """All rows by table."""
    with psycopg.connect(world.base.admin_url, autocommit=True) as admin:
        return {table.name: table for table in tables(admin)}


def searched_in_breach(
    app: Connection[Any], truth: dict[str, Table], cases: int, seed: int = 11
) -> list[str]:
    """Askers for whom search_events gave a foreign event, or held back one in view."""
    chance = random.Random(seed)
    everywhere = [row.full["scope_id"] for row in truth["scopes"].rows]
    found: list[str] = []
    for _ in range(cases):
        asker = chance.choice(ASKERS)
        scopes = chance.choice(
            (None, everywhere, chance.sample(everywhere, 3), [chance.choice(everywhere)])
        )
        narrowing = chance.choice(("{}", '{"channel": "http"}', '{"metadata": {}}'))
        with app.transaction(force_rollback=True):
            ask(app, asker.tenant, viewer_text(asker.viewer), asker.writer)
            got = app.execute(
                "select event_id::text"
                " from search_events(%s::tsquery, %s::uuid[], %s::jsonb, null)",
                (chance.choice(_EVERYTHING), scopes, narrowing),
            ).fetchall()
        in_view = {
            row.full["event_id"]
            for row in truth["event_search"].rows
            if row.belongs_to(asker) and (scopes is None or row.full["scope_id"] in scopes)
        }
        if {event for (event,) in got} != in_view:
            found.append(f"{asker} found {len(got)} events in {scopes}")
    return found


def test_search_gives_what_is_in_view_and_nothing_else(
    app: Connection[Any], truth: dict[str, Table]
) -> None:
    assert searched_in_breach(app, truth, 300) == []


def test_a_key_is_shown_only_to_who_proves_its_secret(
    app: Connection[Any], truth: dict[str, Table]
) -> None:
    keys = [row.full for row in truth["api_keys"].rows]
    hashes = [bytes.fromhex(key["secret_hash"].removeprefix("\\x")) for key in keys]
    for place, key in enumerate(keys):
        for guess in (
            b"",
            b"\0" * 32,
            hashes[place - 1],
            hashes[place][:-1],
            hashes[place] + b"\0",
        ):
            call = "select * from find_api_key(%s, %s)"
            assert app.execute(call, (key["key_id"], guess)).fetchall() == []
            assert app.execute(call, ("%", guess)).fetchall() == []
        proven = app.execute(call, (key["key_id"], hashes[place])).fetchall()
        assert [row[:2] for row in proven] == [(key["tenant_id"], key["user_name"])]
        assert hashes[place] not in proven[0]


def test_the_hash_of_a_secret_cannot_be_read(app: Connection[Any]) -> None:
    ask_all = "select secret_hash from api_keys"
    with pytest.raises(errors.InsufficientPrivilege):
        app.execute(ask_all)
    with pytest.raises(errors.InsufficientPrivilege):
        app.execute("update api_keys set label = 'x' where secret_hash = ''")


def test_a_planner_learns_the_names_of_tenants_and_nothing_else(app: Connection[Any]) -> None:
    with app.cursor() as cursor:
        cursor.execute("select * from tenants_with_work('a space nobody has', now())")
        assert [column.name for column in cursor.description or ()] == ["tenant_id"]
        assert sorted(cursor.fetchall()) == [("acme",), ("globex",)]
        cursor.execute("select * from tenants_with_work(null, '-infinity')")
        assert len(cursor.fetchall()) <= 2


@pytest.mark.parametrize("guard", ["refuse_erased_event", "refuse_erased_citation"])
def test_a_guard_cannot_be_put_to_another_use(app: Connection[Any], guard: str) -> None:
    """On a table of one's own, its locks would tell which ids exist and hold foreign events."""
    with pytest.raises((errors.InsufficientPrivilege, errors.FeatureNotSupported)):
        app.execute(f"select {guard}()".encode())
    app.execute("create temp table bait (tenant_id text, event_id uuid, cited_id uuid)")
    with pytest.raises(errors.InsufficientPrivilege):
        app.execute(
            f"create trigger bait after insert on bait referencing new table as citing "
            f"for each statement execute function {guard}()".encode()
        )


# Each function that the application may call, as somebody who named no tenant calls it: what comes
# back holds no row.
UNASKED = {
    "current_tenant": "select current_tenant() where current_tenant() is not null",
    "current_viewer": "select current_viewer() where current_viewer() is not null",
    "current_writer": "select current_writer() where current_writer() is not null",
    "scopes_in_view": "select unnest(scopes_in_view())",
    "search_events": "select * from search_events('!''nowhere''', null, '{}', null)",
    "find_api_key": "select * from find_api_key('', '')",
    "edges_of": "select edges_of(e) from events e",
    "holds_words": "select holds_words(e, 'tide') from events e",
    "passes": "select passes(e, '{}') from events e",
    "append_refusals": "select append_refusals(array[]::append_item[]) where false",
    "append_items": "select unnest(append_items(array[]::append_item[], '{}'))",
    "append_outcomes": "select unnest(append_outcomes(array[]::append_item[], '{}', '{}'))",
    "append_events": "select * from append_events('[]', false)",
    "store_events": "select unnest(store_events(array[]::append_item[]))",
    "lock_new_sessions": "select lock_new_sessions(array[]::append_item[]) where false",
    # Pure: they are given all that they work with.
    "any_word": "select any_word('tide') where false",
    "seen_by": "select seen_by('1', '1:1:') where false",
    "all_words": "select 1 from (select all_words(''::tsvector)) pure where false",
    "spoken_date": "select spoken_date(now()) where false",
    "speaker_words": "select speaker_words('alice', 'tide') where false",
    # By design it names tenants to whoever sweeps: see the planner's test above.
    "tenants_with_work": "select * from tenants_with_work('', now()) where false",
}


def test_every_function_that_may_be_called_is_called_here(app: Connection[Any]) -> None:
    callable_ones = rows(
        app,
        """
        select distinct p.proname::text from pg_proc p
        where p.pronamespace = 'public'::regnamespace and p.prorettype <> 'trigger'::regtype
            and has_function_privilege(p.oid, 'execute')
            and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')
        """,
    )
    assert sorted(callable_ones) == sorted(UNASKED)


@pytest.mark.parametrize("settings", [None, ("", "", ""), ("acme", "", "*"), ("", "{}", "*")])
def test_nobody_gets_nothing_from_any_function(
    app: Connection[Any], settings: tuple[str, str, str] | None
) -> None:
    for name, call in UNASKED.items():
        with app.transaction(force_rollback=True):
            if settings is not None:
                ask(app, *settings)
            if settings and any(settings) and name.startswith("current_"):
                continue  # these repeat the setting, which is their only work
            assert app.execute(call.encode()).fetchall() == [], name


def test_nobody_can_append(app: Connection[Any]) -> None:
    """The append function under no settings: no row, no key, no scope."""
    item = (
        '[{"n": 0, "event_id": "0198c5a0-0000-7000-8000-000000000000", "participants": ["user:x"],'
        ' "scope_id": "0198c5a0-0000-8000-8000-000000000000", "session_id": "", "channel": "http",'
        ' "role": "user", "type": "message", "origin": "user", "content": "x", "parts": [],'
        ' "metadata": {}, "edges": [], "pieces": [], "cid": "c", "blob_stored": false}]'
    )
    with pytest.raises((errors.InsufficientPrivilege, errors.NotNullViolation)):
        app.execute("select * from append_events(%s::jsonb, false)", (item,))

    def append_for_another() -> None:
        with app.transaction():
            ask(app, "acme", viewer_text(["user:bob"]), "user:bob")
            app.execute("select * from append_events(%s::jsonb, false)", (item,))

    with pytest.raises(errors.InsufficientPrivilege):
        append_for_another()
