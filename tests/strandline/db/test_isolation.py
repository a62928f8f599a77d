"""Invariant 7 as the catalogue states it: read from pg_catalog, so that a new table is tested by
being there. What the policies do to rows is in test_isolation_rows.py."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from tests.strandline.db.breaches import PROBED
from tests.strandline.db.isolation import TABLES_OF_A_SCOPE, TENANTS_TABLES, rows
from tests.strandline.db.world import World
from tests.support import APP, TEMPLATE

# Unique over all tenants, with the reason why.
GLOBALLY_UNIQUE = {
    "api_keys_key_id": "a key is found before its tenant is known; 16 random bytes do not meet",
    "certificate_principals_subject": "a subject is found before its tenant is known, and"
    " stands for one principal in the whole deployment; operators alone enter them",
}

WRITTEN_BY_APPEND_PLAIN = {"events", "event_search"}


@pytest.fixture
def admin(world: World) -> Iterator[Connection[Any]]:
    """The superuser, who sees the catalogue whole."""
    with psycopg.connect(world.base.admin_url, autocommit=True) as connection:
        yield connection


def test_isolation_finds_tenant_tables(admin: Connection[Any]) -> None:
    assert {"events", "scopes", "event_vectors", "api_keys"} <= set(rows(admin, TENANTS_TABLES))


def test_isolation_table_without_tenant_holds_no_data(admin: Connection[Any]) -> None:
    open_tables = rows(
        admin,
        """
        select c.relname::text from pg_class c
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'm', 'f')
            and not exists (select from pg_attribute a
                            where a.attrelid = c.oid and a.attname = 'tenant_id')
            and (has_table_privilege(%s, c.oid, 'insert')
                or has_table_privilege(%s, c.oid, 'update')
                or c.relname not in ('schema_migrations', 'schema_functions'))
        """,
        APP,
        APP,
    )
    assert open_tables == []


def test_isolation_row_security_is_forced_on_tenant_tables(admin: Connection[Any]) -> None:
    lax = rows(
        admin,
        """
        select c.relname::text from pg_class c join pg_attribute a on a.attrelid = c.oid
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
            and a.attname = 'tenant_id' and not (c.relrowsecurity and c.relforcerowsecurity)
        """,
    )
    assert lax == []


def test_isolation_every_verb_has_policy(admin: Connection[Any]) -> None:
    for name in rows(admin, TENANTS_TABLES):
        policies = admin.execute(
            """
            select polcmd::text, polqual is not null, polwithcheck is not null
            from pg_policy where polrelid = %s::regclass and polpermissive
                and (polroles @> array[%s::regrole::oid] or polroles @> array[0::oid])
            """,
            (name, APP),
        ).fetchall()
        for command, using, check in (("r", True, False), ("a", False, True)):
            assert any(
                kind in ("*", command) and (read or not using) and (written or not check)
                for kind, read, written in policies
            ), f"{name} lacks a policy for {command}"
        for command in ("w", "d"):
            assert any(
                kind in ("*", command) and read and written for kind, read, written in policies
            )


def test_isolation_every_policy_tests_tenant(
    admin: Connection[Any],
) -> None:
    open_policies = rows(
        admin,
        """
        select p.polname || ' on ' || p.polrelid::regclass from pg_policy p
        where (p.polroles @> array[%s::regrole::oid] or p.polroles @> array[0::oid])
            and p.polpermissive and (coalesce(pg_get_expr(p.polqual, p.polrelid), '')
                    !~ 'tenant_id = current_tenant\\(\\)'
                or pg_get_expr(p.polwithcheck, p.polrelid)
                    is distinct from pg_get_expr(p.polqual, p.polrelid))
        """,
        APP,
    )
    assert open_policies == []


def test_isolation_participants_table_tests_viewer(admin: Connection[Any]) -> None:
    blind = rows(
        admin,
        """
        select a.attrelid::regclass::text from pg_attribute a join pg_class c on c.oid = a.attrelid
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
            and a.attname = 'participants'
            and not exists (
                select from pg_policy p where p.polrelid = c.oid
                    and pg_get_expr(p.polqual, c.oid) ~ 'participants @> .*current_viewer\\(\\)')
        """,
    )
    assert blind == []


def test_isolation_row_of_scope_is_held_to_scope(admin: Connection[Any]) -> None:
    """One who inserts names a scope and its participants together, or is refused; and nobody can
    change either afterwards. `append_fast_path` alone tells by the scope itself."""
    of_a_scope = set(rows(admin, TABLES_OF_A_SCOPE))
    assert len(of_a_scope) >= 18
    result_rows = admin.execute(
        """
        select p.polrelid::regclass::text, p.polroles = array[0::oid],
            p.polroles <@ array[0, %(app)s::regrole, 'strandline_owner'::regrole]::oid[]
                and (p.polroles @> array[0::oid] or p.polroles @> array[%(app)s::regrole]::oid[]),
            pg_get_expr(p.polwithcheck, p.polrelid)
        from pg_policy p where p.polcmd = 'a' and not p.polpermissive
        """,
        {"app": APP},
    ).fetchall()
    test = "is_scope_of(scope_id, tenant_id, participants)"
    assert {name for name, _, bound, check in result_rows if bound and test in check} == of_a_scope
    assert {name for name, everybody, *_ in result_rows if not everybody} == WRITTEN_BY_APPEND_PLAIN
    checks = {name: check for name, *_, check in result_rows}
    assert {name for name, check in checks.items() if check != test} == {"jobs", "scope_members"}
    changeable = rows(
        admin,
        """
        select c.relname || ' by ' || r.rolname from pg_class c, pg_attribute a, pg_roles r
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
            and a.attrelid = c.oid and a.attname in ('tenant_id', 'scope_id', 'participants')
            and r.rolname ~ '^strandline_' and r.rolname <> 'strandline_owner'
            and has_column_privilege(r.oid, c.oid, a.attnum, 'update')
        """,
    )
    assert changeable == []


def test_isolation_scope_without_participants_is_in_ledgers(admin: Connection[Any]) -> None:
    """Such a row is in every viewer's view: it must say nothing of what was said."""
    bare = rows(
        admin,
        """
        select c.relname::text from pg_class c join pg_attribute a on a.attrelid = c.oid
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
            and a.attname = 'scope_id' and not exists (
                select from pg_attribute p
                where p.attrelid = c.oid and p.attname = 'participants')
        """,
    )
    # Everybody is to see nothing of what a mark is about, so everybody sees the mark.
    assert sorted(bare) == ["erasure_marks", "model_calls"]


def test_isolation_roles_cannot_make_temporary_tables(admin: Connection[Any]) -> None:
    """They would fill the disk beside every quota. Asked of the database that was prepared: its
    rights are not in the clones that tests work in."""
    may = rows(
        admin,
        "select rolname::text from pg_roles where rolname ~ '^strandline_'"
        " and has_database_privilege(oid, %s, 'temporary')",
        TEMPLATE,
    )
    assert may == []


def test_isolation_unique_index_begins_with_tenant(admin: Connection[Any]) -> None:
    result_rows = rows(
        admin,
        """
        select i.indexrelid::regclass::text from pg_index i join pg_class c on c.oid = i.indrelid
        where c.relnamespace = 'public'::regnamespace and i.indisunique
            and exists (select from pg_attribute a
                        where a.attrelid = c.oid and a.attname = 'tenant_id')
            and i.indkey[0] is distinct from (
                select a.attnum from pg_attribute a
                where a.attrelid = c.oid and a.attname = 'tenant_id')
        """,
    )
    assert set(result_rows) == set(GLOBALLY_UNIQUE)


def test_isolation_foreign_key_begins_with_tenant(admin: Connection[Any]) -> None:
    result_rows = rows(
        admin,
        """
        select k.conname::text from pg_constraint k
        join pg_attribute here on here.attrelid = k.conrelid and here.attnum = k.conkey[1]
        join pg_attribute there on there.attrelid = k.confrelid and there.attnum = k.confkey[1]
        where k.contype = 'f' and k.connamespace = 'public'::regnamespace
            and (here.attname <> 'tenant_id' or there.attname <> 'tenant_id')
        """,
    )
    assert result_rows == []
    assert rows(admin, "select count(*) from pg_constraint where contype = 'f'") > [10]


def test_isolation_application_role_has_no_powers(admin: Connection[Any]) -> None:
    role = admin.execute(
        "select rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolreplication, rolcanlogin"
        " from pg_roles where rolname = %s",
        (APP,),
    ).fetchone()
    assert role == (False, False, False, False, False, True)
    assert rows(admin, "select roleid from pg_auth_members where member = %s::regrole", APP) == []
    result_rows = rows(
        admin,
        "select classid::regclass::text from pg_shdepend"
        " where refobjid = %s::regrole and deptype = 'o'",
        APP,
    )
    assert result_rows == []


def test_isolation_application_cannot_rewrite_events(admin: Connection[Any]) -> None:
    rights = admin.execute(
        """
        select has_table_privilege(%(app)s, 'events', 'delete'),
            has_any_column_privilege(%(app)s, 'events', 'update'),
            has_column_privilege(%(app)s, 'events', 'xid', 'insert'),
            has_column_privilege(%(app)s, 'events', 'erased_at', 'insert'),
            has_column_privilege(%(app)s, 'events', 'content', 'insert')
        """,
        {"app": APP},
    ).fetchone()
    assert rights == (False, False, False, False, True)


def test_isolation_application_cannot_truncate_or_create(
    admin: Connection[Any],
) -> None:
    powers = rows(
        admin,
        """
        select c.oid::regclass::text from pg_class c
        where c.relkind in ('r', 'p') and c.relnamespace <> 'pg_catalog'::regnamespace and (
            has_table_privilege(%(app)s, c.oid, 'truncate')
            or has_table_privilege(%(app)s, c.oid, 'trigger')
            or has_table_privilege(%(app)s, c.oid, 'references'))
        union all
        select nspname::text from pg_namespace
        where nspname !~ '^pg_(toast_)?temp' and has_schema_privilege(%(app)s, oid, 'create')
        """.replace("%(app)s", f"'{APP}'"),
    )
    assert powers == []


def test_isolation_definer_function_is_narrow(admin: Connection[Any]) -> None:
    result_rows = admin.execute(
        """
        select p.proname::text, r.rolcanlogin or r.rolsuper or r.rolbypassrls,
            has_function_privilege('public', p.oid, 'execute'),
            coalesce(p.proconfig::text ~ 'search_path=pg_catalog', false),
            exists (select from pg_auth_members m where m.member = r.oid)
        from pg_proc p join pg_roles r on r.oid = p.proowner where p.prosecdef
        """
    ).fetchall()
    assert {(name, False, False, True, False) for name, *_ in result_rows} == set(result_rows)
    assert sorted({name for name, *_ in result_rows}) == sorted(PROBED)


def test_isolation_definer_roles_cannot_write(admin: Connection[Any]) -> None:
    """They write nothing at all (who appends, see below); the guard's UPDATE is the right to lock,
    on one column."""
    rights = admin.execute(
        """
        select r.rolname::text, c.relname::text, a.attname::text from pg_roles r, pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
        where r.rolname ~ '^strandline_' and not r.rolcanlogin
            and r.rolname not in ('strandline_append', 'strandline_eraser')
            and c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and (
                has_column_privilege(r.oid, c.oid, a.attnum, 'update')
                or has_column_privilege(r.oid, c.oid, a.attnum, 'insert')
                or has_table_privilege(r.oid, c.oid, 'delete'))
        """
    ).fetchall()
    assert rights == [("strandline_guard", "events", "erased_at")]


def test_isolation_eraser_role_writes_tombstones_only(admin: Connection[Any]) -> None:
    """It inserts nothing but records of erasures, and cannot move a row: neither its tenant nor its
    scope, id, place or time changes. Its policies hold it to the caller's view where rows have
    participants, else to the caller's tenant."""
    inserts = rows(
        admin,
        "select c.relname::text from pg_class c where c.relnamespace = 'public'::regnamespace"
        " and c.relkind in ('r', 'p') and has_any_column_privilege('strandline_eraser', c.oid,"
        " 'insert') order by 1",
    )
    assert inserts == ["erased_events", "erased_keys", "erased_payloads"]
    result_rows = rows(
        admin,
        """
        select c.relname || '.' || a.attname from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
            and a.attname in ('tenant_id', 'event_id', 'scope_id', 'participants', 'seq', 'xid',
                'recorded_at', 'occurred_at', 'chain_id', 'version', 'node_id')
            and has_column_privilege('strandline_eraser', c.oid, a.attnum, 'update')
        """,
    )
    assert result_rows == []
    deletes = rows(
        admin,
        "select c.relname::text from pg_class c where c.relnamespace = 'public'::regnamespace"
        " and c.relkind in ('r', 'p')"
        " and has_table_privilege('strandline_eraser', c.oid, 'delete')",
    )
    assert "events" not in deletes
    lax = rows(
        admin,
        """
        select p.polrelid::regclass::text from pg_policy p
        where p.polroles @> array['strandline_eraser'::regrole::oid] and (
            pg_get_expr(p.polqual, p.polrelid) !~ 'tenant_id = current_tenant\\(\\)'
            or exists (select from pg_attribute a
                where a.attrelid = p.polrelid and a.attname = 'participants')
            and pg_get_expr(p.polqual, p.polrelid) !~ 'participants @> .*current_viewer\\(\\)')
        """,
    )
    # an answer to one participant may rest on what another one erases: `forget_turns` deletes both,
    # of events in view alone
    assert sorted(lax) == ["turn_events", "turns"]


def test_isolation_append_role_has_application_rights(admin: Connection[Any]) -> None:
    """Nothing besides, but to lock an event: UPDATE of its mark is the right to."""
    further = admin.execute(
        """
        select c.relname::text, a.attname::text, may.verb
        from unnest(array['select', 'insert', 'update']) as may (verb), pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
            and has_column_privilege('strandline_append', c.oid, a.attnum, may.verb)
            and not has_column_privilege(%(app)s, c.oid, a.attnum, may.verb)
        union all
        select c.relname::text, '', 'delete' from pg_class c
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
            and has_table_privilege('strandline_append', c.oid, 'delete')
        """,
        {"app": APP},
    ).fetchall()
    assert further == [("events", "erased_at", "update")]


def test_isolation_append_role_has_application_policies(admin: Connection[Any]) -> None:
    others = rows(
        admin,
        "select polrelid::regclass || ' ' || polname from pg_policy"
        " where polroles @> array['strandline_append'::regrole::oid]"
        " and not polroles @> array[%s::regrole::oid]",
        APP,
    )
    assert others == []


def test_isolation_view_uses_rights_of_caller(admin: Connection[Any]) -> None:
    views = admin.execute(
        "select relname::text, coalesce('security_invoker=true' = any (reloptions), false)"
        " from pg_class where relkind = 'v' and relnamespace = 'public'::regnamespace"
    ).fetchall()
    assert ("event_rows", True) in views
    assert [name for name, invoker in views if not invoker] == []
    result_rows = rows(admin, "select relname from pg_class where relkind = 'm'")
    assert result_rows == []


def test_isolation_citing_table_refuses_erased_event(admin: Connection[Any]) -> None:
    """For each citing column: a trigger that is on, after every insert (but those of a role that
    nobody can be, see test_immutability.py), once a statement, reading the inserted rows. The
    column itself cannot be changed later."""
    citing = admin.execute(
        """
        select k.conrelid::regclass::text, a.attname::text,
            has_column_privilege(%(app)s, k.conrelid, a.attnum, 'update'),
            exists (
                select from pg_trigger t join pg_proc p on p.oid = t.tgfoid
                where t.tgrelid = k.conrelid and t.tgenabled = 'O' and t.tgtype = 4
                    and t.tgnewtable = 'citing' and (t.tgqual is null
                        or pg_get_triggerdef(t.oid) like
                            '%% WHEN ((CURRENT_USER <> ''strandline_append''::name)) EXECUTE %%')
                    -- one guard looks at both columns, where a table has both
                    and (p.proname = 'refuse_erased_citation'
                        or p.proname = 'refuse_erased_event' and a.attname = 'event_id'))
        from pg_constraint k join pg_attribute a
            on a.attrelid = k.conrelid and a.attnum = any (k.conkey) and a.attname <> 'tenant_id'
        where k.contype = 'f' and k.confrelid = 'events'::regclass
        """,
        {"app": APP},
    ).fetchall()
    assert {table for table, *_ in citing} >= {"event_keys", "memory_edges", "event_search"}
    assert [row for row in citing if row[2:] != (False, True)] == []
