"""Databases from before the baseline: adopted as they are, or refused with the way out."""

from collections.abc import Iterator
from datetime import datetime

import psycopg
import pytest

from strandline.db.adoption import OLDEST, describe_catalogue
from strandline.db.migrate import (
    list_migrations,
    list_newer_applied_migrations,
    list_pending_migrations,
    migrate,
)
from strandline.db.schema_files import (
    BASELINE,
    execute_sql_text,
    list_bridge_migrations,
    list_function_files,
    read_baseline_catalogue,
)
from strandline.errors import Misconfigured
from strandline.local.postgres import EmbeddedPostgres
from tests.older_database import EVENTS, restore_older_database
from tests.support import PASSWORDS, ScratchDatabase, unique_name

NUMBERS = "select number from schema_migrations order by 1"
FUNCTIONS = """
select p.oid::regprocedure::text, p.proowner::regrole::text,
    (select array_agg(x::text order by x::text) from unnest(p.proacl) x),
    case when p.prokind <> 'a' then pg_get_functiondef(p.oid) end
from pg_proc p
where p.pronamespace = 'public'::regnamespace and not exists (
    select from pg_depend d
    where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
order by 1
"""


@pytest.fixture
def older(server: EmbeddedPostgres) -> Iterator[ScratchDatabase]:
    """A database at the oldest migration that can be adopted."""
    name = unique_name()
    restore_older_database(server, name, PASSWORDS)
    yield ScratchDatabase(server, name)
    server.drop_database(name)


def run(base: ScratchDatabase) -> list[str]:
    with psycopg.connect(base.owner_url, autocommit=True) as owner:
        return migrate(owner)


def describe(base: ScratchDatabase) -> str:
    with psycopg.connect(base.owner_url, autocommit=True) as owner:
        return describe_catalogue(owner, list_migrations()[0])


def go_to(base: ScratchDatabase, last: int) -> None:
    """Bring an older database to the release whose last migration this was."""
    with psycopg.connect(base.owner_url, autocommit=True) as owner, owner.transaction():
        for file in list_bridge_migrations():
            if file.number <= last:
                execute_sql_text(owner, file.text)
    for number in range(OLDEST + 1, last + 1):
        base.rows("insert into schema_migrations values (%s, %s, '')", number, f"{number:04}_x.sql")


def test_adoption_catalogue_file_equals_baseline(empty: ScratchDatabase) -> None:
    baseline = list_migrations()[0]
    with psycopg.connect(empty.owner_url, autocommit=True) as owner:
        migrate(owner, [baseline])
    assert describe(empty) == read_baseline_catalogue()


@pytest.mark.parametrize("last", range(OLDEST, BASELINE))
def test_adoption_gives_current_schema_and_keeps_rows(
    older: ScratchDatabase, scratch_db: ScratchDatabase, last: int
) -> None:
    go_to(older, last)
    numbers, events = older.rows(NUMBERS), older.rows("select * from events order by event_id")
    baseline, *newer = list_migrations()
    assert run(older) == [file.name for file in (*newer, *list_function_files())]
    assert describe(older) == describe(scratch_db)
    assert older.rows(FUNCTIONS) == scratch_db.rows(FUNCTIONS)
    added = [(file.number,) for file in (baseline, *newer)]
    assert older.rows(NUMBERS) == [*numbers, *added]
    assert older.rows("select * from events order by event_id") == events
    assert len(events) == EVENTS
    assert run(older) == []


DIFFERENCES = {
    "the columns of table events": "alter table events add column more text",
    "the constraints of table events": "alter table events drop constraint events_type_check"
    ", add constraint events_type_check check (type <> '')",
    "the indexes of table events": "drop index events_newest",
    "the policies of table scopes": "alter policy in_view on scopes using (true)",
    "the triggers of table events": "create trigger more after insert on events execute function"
    " count_graph_changes()",
    "the rights of table events": "grant delete on events to strandline_app",
    "table more is unknown": "create table more (a int)",
    "table waits is missing": "drop table waits",
    "the definition of function is_scope_of": "create or replace function is_scope_of("
    "p_scope_id uuid, p_tenant text, p_participants text[]) returns boolean language sql stable"
    " parallel safe return true",
    "the rights of function is_scope_of": "revoke execute on function is_scope_of from public",
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_adoption_refuses_database_changed_by_hand(older: ScratchDatabase, difference: str) -> None:
    go_to(older, BASELINE - 1)
    older.rows(DIFFERENCES[difference])
    numbers, catalogue = older.rows(NUMBERS), describe(older)
    with pytest.raises(Misconfigured, match=f"not as its migrations made it.*{difference}"):
        run(older)
    assert (older.rows(NUMBERS), describe(older)) == (numbers, catalogue)


def test_adoption_ignores_extension_of_operator(older: ScratchDatabase) -> None:
    older.rows("create extension pg_buffercache")
    assert run(older)


def test_adoption_refused_changes_nothing(older: ScratchDatabase) -> None:
    older.rows("create table more (a int)")
    with pytest.raises(Misconfigured, match="table more is unknown"):
        run(older)
    assert older.rows("select to_regclass('waits')") == [(None,)]
    older.rows("drop table more")
    assert run(older)


def test_adoption_of_too_old_database_names_way_out(older: ScratchDatabase) -> None:
    older.rows("delete from schema_migrations where number >= %s", OLDEST)
    numbers = older.rows(NUMBERS)
    way = (
        rf"ends at migration 0054_\w+\.sql.* First run .* whose last migration is from 00{OLDEST}"
        rf" to 00{BASELINE - 1}, then this one"
    )
    with psycopg.connect(older.owner_url, autocommit=True) as owner:
        for look in (migrate, list_pending_migrations, list_newer_applied_migrations):
            with pytest.raises(Misconfigured, match=way):
                look(owner)
    assert older.rows(NUMBERS) == numbers


UNREADABLE_TIMES = """
insert into tenants (tenant_id) values ('acme'), ('globex');
insert into scopes (tenant_id, scope_id, participants, last_seq)
    select tenant_id, gen_random_uuid(), array['user:ada'], 1 from tenants
    where tenant_id in ('acme', 'globex');
set session_replication_role = replica;
insert into graph_nodes (tenant_id, node_id, scope_id, participants, type, name, name_hash, ordinal,
    identity, trust, valid_from, valid_to, created_at, updated_at)
select tenant_id, gen_random_uuid(), scope_id, participants, 'fact', said, said::bytea, 0, '',
    'user', '2026-01-01Z', said::timestamptz, now(), now()
from scopes, unnest(array['9999-12-31T23:59:59-14:00', '0001-01-01T00:00:00+14:00',
    '2026-05-08T13:56:00+02:00']) said
where tenant_id in ('acme', 'globex');
insert into graph_observations (tenant_id, target_id, source_id, scope_id, participants, patch,
    trust, observed_at, valid_from)
select tenant_id, node_id, gen_random_uuid(), scope_id, participants,
    jsonb_build_object('valid_to', name, 'reason', 'sold'), 'user', now(), now()
from graph_nodes;
"""
ENDS = """
select distinct n.name, n.valid_to at time zone 'UTC', o.patch ->> 'valid_to', o.patch ->> 'reason'
from graph_nodes n join graph_observations o on o.target_id = n.node_id order by 1
"""


def test_adoption_moves_unloadable_end_times_into_range(older: ScratchDatabase) -> None:
    """In every tenant, though the owner sees none of them by itself; others stay as they are."""
    older.rows(UNREADABLE_TIMES)
    run(older)
    first, last = datetime(1, 1, 1), datetime.max  # noqa: DTZ001, DTZ901
    assert older.rows(ENDS) == [
        ("0001-01-01T00:00:00+14:00", first, "0001-01-01T00:00:00.000000+00:00", "sold"),
        (
            "2026-05-08T13:56:00+02:00",
            datetime(2026, 5, 8, 11, 56),  # noqa: DTZ001
            "2026-05-08T13:56:00+02:00",
            "sold",
        ),
        ("9999-12-31T23:59:59-14:00", last, "9999-12-31T23:59:59.999999+00:00", "sold"),
    ]
    with pytest.raises(psycopg.errors.CheckViolation):
        older.rows("update graph_nodes set valid_to = '10000-01-01Z'")
