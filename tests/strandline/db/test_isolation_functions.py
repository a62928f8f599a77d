"""Every function that looks past row-level security, called directly and with bad intent; and
every other one, called by nobody."""

import itertools
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import Connection, errors, sql

from tests.strandline.db.breaches import (
    SEARCHES,
    appended_in_breach,
    nearest_in_breach,
    nodes_in_breach,
    searched_in_breach,
    substrings_in_breach,
)
from tests.strandline.db.isolation import CALLERS, TENANTS, Table, ask, rows, tables, viewer_text
from tests.strandline.db.world import World

PROMOTION = '{"ltm_enabled": true, "promote_at_once": 0.8}'
_EVERYTHING = "'tide' | 'late' | 'harbour' | 'long'"


@pytest.fixture
def app(world: World) -> Iterator[Connection[Any]]:
    """The application role, without any settings yet."""
    with psycopg.connect(world.base.url, autocommit=True, prepare_threshold=None) as connection:
        yield connection


@pytest.fixture(scope="module")
def truth(world: World) -> dict[str, Table]:
    """All rows by table: no test here leaves any."""
    with psycopg.connect(world.base.admin_url, autocommit=True) as admin:
        return {table.name: table for table in tables(admin)}


@pytest.mark.parametrize("function", SEARCHES)
def test_isolation_word_search_finds_events_in_view(
    app: Connection[Any], truth: dict[str, Table], function: str
) -> None:
    assert list(searched_in_breach(app, truth, 150, function=function)) == []


def test_isolation_nearest_vectors_are_in_view(
    app: Connection[Any], truth: dict[str, Table]
) -> None:
    assert list(nearest_in_breach(app, truth)) == []


def test_isolation_node_search_finds_nodes_in_view(
    app: Connection[Any], truth: dict[str, Table]
) -> None:
    assert list(nodes_in_breach(app, truth)) == []


def test_isolation_web_search_finds_events_in_view(
    app: Connection[Any], truth: dict[str, Table]
) -> None:
    for caller in CALLERS:
        with app.transaction(force_rollback=True):
            ask(app, caller.tenant, viewer_text(caller.viewer), caller.writer)
            got = rows(app, "select event_id::text from web_search_candidates(%s)", _EVERYTHING)
        own = [r.full["event_id"] for r in truth["event_search"].rows if r.belongs_to(caller)]
        assert sorted(got) == sorted(set(own)), caller


def test_isolation_substring_search_finds_events_in_view(
    app: Connection[Any], truth: dict[str, Table]
) -> None:
    assert list(substrings_in_breach(app, truth)) == []


def test_isolation_event_times_are_of_own_tenant_in_view(
    app: Connection[Any], truth: dict[str, Table]
) -> None:
    for caller in CALLERS:
        own = sorted(
            (
                datetime.fromisoformat(row.full["recorded_at"])
                for row in truth["events"].rows
                if row.full["tenant_id"] == caller.tenant
            ),
            reverse=True,
        )
        with app.transaction(force_rollback=True):
            ask(app, caller.tenant, viewer_text(caller.viewer), caller.writer)
            call = "select nullif(nth_newest_recorded_at(%s, %s), '-infinity')"
            in_view = [
                row
                for row in truth["scopes"].rows
                if row.full["tenant_id"] == caller.tenant
                and {*caller.viewer} <= {*row.full["participants"]}
            ]
            if not in_view and caller.viewer:
                told = "select nth_newest_recorded_at(null, %s) = 'infinity'"
                assert [rows(app, told, place) for place in (0, 1, len(own))] == [[True]] * 3
                continue
            for place in (0, 1, max(len(own) - 1, 0)):
                assert rows(app, call, None, place) == ([own[place]] if own else [None])
            assert rows(app, call, None, len(own)) == [None]
            if own:
                assert rows(app, call, own[3], 0) == [own[3]]


def test_isolation_api_key_lookup_needs_its_secret(
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


def test_isolation_certificate_lookup_needs_subject(
    app: Connection[Any], truth: dict[str, Table]
) -> None:
    call = (
        "select tenant_id, certificate_id::text, user_name from find_certificate_principal(%s, %s)"
    )
    entries = [row.full for row in truth["certificate_principals"].rows]
    assert len({row["subject"] for row in entries}) < len(entries), "with an issuer, and without"
    for row in entries:
        own = (row["tenant_id"], row["certificate_id"], row["user_name"])
        result_rows = app.execute(call, (row["subject"], row["issuer"] or "CN=another")).fetchall()
        assert result_rows == [own], "the row that names the issuer goes first"
        guesses = ("", "%", row["subject"].lower(), row["subject"][:-1], row["subject"] + " ")
        for guess in guesses:
            assert app.execute(call, (guess, row["issuer"] or "")).fetchall() == []
    with app.transaction(force_rollback=True):
        ask(app, "acme", "{}", "*")
        app.execute("update certificate_principals set revoked_at = now()")
        for row in entries:
            result_rows = app.execute(call, (row["subject"], row["issuer"] or "")).fetchall()
            assert bool(result_rows) is (row["tenant_id"] != "acme")


def test_isolation_agents_share_is_told_of_tenant_alone(app: Connection[Any]) -> None:
    """And nothing of what is no tenant: it looks like one that never set it."""
    names = ("acme", "globex", "nobody", "%", "", None)
    call = "select agents_share from request_settings_of(%s)"
    assert [rows(app, call, name) for name in names] == [[False]] * len(names)
    with app.transaction(force_rollback=True):
        ask(app, "acme", "{}", "*")
        app.execute("update tenants set agents_share = true")
        assert [rows(app, call, name) for name in names] == [[True], *[[False]] * 5]


def test_isolation_reading_space_is_told_of_tenant_alone(app: Connection[Any]) -> None:
    """And nothing of what is no tenant."""
    names = ("acme", "globex", "nobody", "%", "", None)
    call = "select reading_space from request_settings_of(%s)"
    with app.transaction(force_rollback=True):
        for tenant in ("acme", "globex"):
            ask(app, tenant, "{}", "*")
            app.execute("update tenants set reading_space = null, swept_space = null")
        assert [rows(app, call, name) for name in names] == [[None]] * len(names)
        ask(app, "acme", "{}", "*")
        app.execute("update tenants set swept_space = 'words/2'")
        assert [rows(app, call, name) for name in names] == [["words/2"], *[[None]] * 5]
        app.execute("update tenants set reading_space = 'other/2'")
        assert [rows(app, call, name) for name in names] == [["other/2"], *[[None]] * 5]


def test_isolation_waits_function_tells_only_total(app: Connection[Any]) -> None:
    """Of all tenants together, without their names."""
    with app.transaction(force_rollback=True):
        counts = list[tuple[int]]()
        for tenant in ("acme", "globex"):
            ask(app, tenant, "{}", "*")
            assert app.execute("select begin_wait('query', 1, 9, 9) is null").fetchall() == [
                (False,)
            ]
            counts += app.execute("select count_waits('query')").fetchall()
            own = app.execute("select distinct tenant_id from waits").fetchall()
            assert own == [(tenant,)]
        assert counts == [(1,), (2,)]
        for function in ("que", "%", "", None):
            assert app.execute("select count_waits(%s)", (function,)).fetchall() == [(0,)]


def test_isolation_api_key_secret_hash_is_unreadable(app: Connection[Any]) -> None:
    ask_all = "select secret_hash from api_keys"
    with pytest.raises(errors.InsufficientPrivilege):
        app.execute(ask_all)
    with pytest.raises(errors.InsufficientPrivilege):
        app.execute("update api_keys set label = 'x' where secret_hash = ''")


def test_isolation_work_planner_learns_tenant_names_only(app: Connection[Any]) -> None:
    with app.cursor() as cursor:
        cursor.execute("select * from tenants_with_work('a space nobody has', now())")
        assert [column.name for column in cursor.description or ()] == ["tenant_id"]
        assert sorted(cursor.fetchall()) == [("acme",), ("globex",)]
        cursor.execute("select * from tenants_with_work(null, '-infinity')")
        assert len(cursor.fetchall()) <= 2


def test_isolation_upload_sweep_learns_own_writers(
    app: Connection[Any], truth: dict[str, Table]
) -> None:
    """Tenants to those who sweep; writers to background work in one tenant, and to no viewer."""
    with app.cursor() as cursor:
        cursor.execute("select * from tenants_with_expired_uploads('infinity')")
        assert [column.name for column in cursor.description or ()] == ["tenant_id"]
        assert sorted(cursor.fetchall()) == [("acme",), ("globex",)]
        assert cursor.execute("select * from tenants_with_expired_uploads(now())").fetchall() == []
    uploads = [row.full for row in truth["uploads"].rows]
    for caller in CALLERS:
        own = {row["writer"] for row in uploads if row["tenant_id"] == caller.tenant}
        with app.transaction(force_rollback=True):
            ask(app, caller.tenant, viewer_text(caller.viewer), caller.writer)
            result_rows = rows(app, "select writer from writers_of_expired_uploads('infinity', 10)")
            assert sorted(result_rows) == ([] if caller.viewer else sorted(own)), caller
            assert rows(app, "select writer from writers_of_expired_uploads(now(), 10)") == []
            assert rows(app, "select writer from writers_of_expired_uploads('infinity', 0)") == []


def test_isolation_heat_planner_learns_tenant_names_only(app: Connection[Any]) -> None:
    with app.cursor() as cursor:
        cursor.execute("select * from tenants_with_heat_work('{\"heat_hours\": 1}', now())")
        assert [column.name for column in cursor.description or ()] == ["tenant_id"]
        assert sorted(cursor.fetchall()) == [("acme",), ("globex",)]
    with pytest.raises(errors.InsufficientPrivilege), app.transaction():
        app.execute("set local role strandline_planner")


@pytest.mark.parametrize(
    "planner",
    [
        "select * from tenants_to_sweep('a space nobody has', now())",
        "select * from tenants_behind('infinity', 9)",
        "select * from tenants_to_archive('infinity', '6 hours', '0', '0')",
        "select * from tenants_to_analyse('infinity')",
        "select * from tenants_with_turns('infinity')",
        "select * from tenants_to_erase('infinity')",
    ],
)
def test_isolation_job_planners_learn_tenant_names_only(app: Connection[Any], planner: str) -> None:
    with app.cursor() as cursor:
        cursor.execute(planner.encode())
        assert [column.name for column in cursor.description or ()] == ["tenant_id"]
        assert {("acme",), ("globex",)} <= set(cursor.fetchall())


def test_isolation_due_functions_tell_time_only(app: Connection[Any]) -> None:
    for request in (
        "select next_sweep('a space nobody has', '{}', '5 minutes', '2026-11-21T12:00Z')",
        "select next_archive('1 day', '6 hours', '30 days', '1 hour', '2026-11-21T12:00Z')",
        "select next_build('5 minutes', '2026-11-21T12:00Z')",
        "select next_analysis('1 hour', '2026-11-21T12:00Z')",
        "select next_turn('5 minutes', '2026-11-21T12:00Z')",
        "select next_erasure('1 minute', '2026-11-21T12:00Z')",
    ):
        with app.cursor() as cursor:
            ((moment,),) = cursor.execute(request.encode()).fetchall()
            assert isinstance(moment, datetime), request


def test_isolation_promotion_planner_learns_names_and_time(app: Connection[Any]) -> None:
    with app.cursor() as cursor:
        query = "select next_promotion(%s, '{}', '1 minute', '2020-01-01T12:00Z')"
        ((moment,),) = cursor.execute(query, [PROMOTION]).fetchall()
        assert moment is None or isinstance(moment, datetime)
        cursor.execute("select * from tenants_to_promote(%s, '{}', '2020-01-01')", [PROMOTION])
        assert [column.name for column in cursor.description or ()] == ["tenant_id"]
        assert set(cursor.fetchall()) <= {("acme",), ("globex",)}


def test_isolation_stored_blobs_need_background_work(
    app: Connection[Any], truth: dict[str, Table]
) -> None:
    stored_rows = [row.full for row in truth["blobs"].rows]
    everything = [row["cid"] for row in stored_rows]
    for caller in CALLERS:
        own = {row["cid"] for row in stored_rows if row["tenant_id"] == caller.tenant}
        with app.transaction(force_rollback=True):
            ask(app, caller.tenant, viewer_text(caller.viewer), caller.writer)
            result_rows = rows(app, "select cid from stored_blobs(%s)", everything)
            assert sorted(result_rows) == ([] if caller.viewer else sorted(own)), caller


def test_isolation_run_totals_need_run_name(app: Connection[Any]) -> None:
    with app.cursor() as cursor:
        cursor.execute("select * from totals_of_run('run of acme')")
        assert [column.name for column in cursor.description or ()] == ["name", "total"]
        assert cursor.fetchall() == [("jobs_done", 1)]
        assert cursor.execute("select * from totals_of_run('')").fetchall() == []


def test_isolation_run_tenants_are_those_left_unfinished(
    app: Connection[Any], world: World
) -> None:
    query = "select * from tenants_of_run('archiver', 'run of acme')"
    with psycopg.connect(world.base.admin_url) as admin, app.cursor() as cursor:
        cursor.execute(query)
        assert [column.name for column in cursor.description or ()] == ["tenant_id"]
        assert cursor.fetchall() == [], "it is done"
        with admin.transaction(force_rollback=True):
            admin.execute("update jobs set state = 'running' where run <> ''")
            assert admin.execute(query).fetchall() == [("acme",)]
            empty = "select * from tenants_of_run('archiver', '')"
            assert admin.execute(empty).fetchall() == []


def test_isolation_claim_run_reaches_named_tenants_only(
    app: Connection[Any], truth: dict[str, Table]
) -> None:
    """It writes as background work in each of them, under row-level security: what is there besides
    the run's own job stays as it is, and of a tenant that does not exist there is no job."""
    claim = (
        "select * from claim_run('builder', 'a run', %s, %s, %s, '1 minute', '2026-11-21T12:00Z')"
    )
    close = "select * from close_run(%s, %s, %s, %s, null, '1 minute', '2026-11-21T12:00Z')"
    others = "select count(*), max(finished_at) from jobs where run <> 'a run'"
    everybody = ["acme", "globex", "nobody", "%", ""]
    for names in (["globex"], ["acme", "nobody", "%", ""], everybody):
        existing = [name for name in names if name in ("acme", "globex")]
        with app.transaction(force_rollback=True):
            before = {tenant: as_background(app, tenant, others) for tenant in ("acme", "globex")}
            ids = [uuid.uuid4() for _ in names]
            with app.cursor() as cursor:
                cursor.execute(claim, (names, [2] * len(names), ids))
                assert [column.name for column in cursor.description or ()] == ["tenant", "outcome"]
                outcomes = dict(cursor.fetchall())
            assert [name for name in names if outcomes[name] == "claimed"] == existing
            assert rows(app, "select job_id from jobs") == [], "it is nobody again"
            for tenant in ("acme", "globex"):
                own = "select count(*) from job_shards join jobs using (job_id) where run = 'a run'"
                assert as_background(app, tenant, own) == [(2 * (tenant in existing),)]
                assert as_background(app, tenant, others) == before[tenant]
            reasons = ["unavailable"] * len(names)
            app.execute(close, ("builder", "another run", names, reasons))
            app.execute(close, ("archiver", "a run", names, reasons))
            app.execute(close, ("builder", "", names, reasons))
            for state in ("running", "failed"):
                for tenant in existing:
                    query = "select state from jobs where run = 'a run'"
                    assert as_background(app, tenant, query) == [(state,)], (tenant, state)
                app.execute(close, ("builder", "a run", names, reasons))


def as_background(app: Connection[Any], tenant: str, statement: LiteralString) -> list[Any]:
    """What background work in a tenant reads."""
    with app.transaction(force_rollback=True):
        ask(app, tenant, "{}", "*")
        return app.execute(statement).fetchall()


def test_isolation_operator_learns_tenant_names_and_dates(
    app: Connection[Any],
) -> None:
    """A caller that named no tenant learns none, nor does a reader: not even an admin who sees
    all, or who writes for nobody."""
    call = "select * from tenants_by_name('', 10)"
    assert app.execute(call).fetchall() == []
    for tenant, viewer in (
        *((caller.tenant, caller.viewer) for caller in CALLERS),
        ("acme", ["*", "user:alice"]),
        ("", ["*"]),
    ):
        with app.transaction(force_rollback=True):
            ask(app, tenant, viewer_text(viewer), "*")
            assert app.execute(call).fetchall() == [], (tenant, viewer)
    with app.transaction(), app.cursor() as cursor:
        ask(app, "acme", viewer_text(["*"]), "*")
        cursor.execute(call)
        assert [column.name for column in cursor.description or ()] == ["tenant_id", "created_at"]
        assert [tenant for tenant, _ in cursor.fetchall()] == ["acme", "globex"]
        after = cursor.execute("select tenant_id from tenants_by_name('acme', 1)")
        assert after.fetchall() == [("globex",)]
        assert rows(app, "select tenant_id from tenants") == ["acme"]


def test_isolation_byte_count_tells_names_and_own_sum(
    app: Connection[Any], truth: dict[str, Table]
) -> None:
    """Names to those who sweep; the sum to background work in one tenant, and to no viewer."""
    with app.cursor() as cursor:
        cursor.execute("select * from tenants_to_recount('infinity', 10)")
        assert [column.name for column in cursor.description or ()] == ["tenant_id"]
        assert sorted(cursor.fetchall()) == [("acme",), ("globex",)]
        assert cursor.execute("select * from tenants_to_recount('infinity', 0)").fetchall() == []
    citations = {(row.full["tenant_id"], row.full["cid"]) for row in truth["blobs"].rows}
    pending = Counter[str]()
    for row in truth["uploads"].rows:
        tenant = row.full["tenant_id"]
        pending[tenant] += row.full["size"] * ((tenant, row.full["cid"]) not in citations)
    for caller in CALLERS:
        with app.transaction(force_rollback=True):
            ask(app, caller.tenant, viewer_text(caller.viewer), caller.writer)
            pending_bytes = app.execute("select pending_upload_bytes()").fetchone()
            assert pending_bytes == (0 if caller.viewer else pending[caller.tenant],)


@pytest.mark.parametrize("guard", ["refuse_erased_event", "refuse_erased_citation"])
def test_isolation_erasure_guard_has_no_other_use(app: Connection[Any], guard: str) -> None:
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
    "sample_view": "select unnest(cosines || tool_cosines)"
    " from sample_view('[1,0]', 'words/2', null, 80)",
    "scopes_in_view": "select unnest(scopes_in_view())",
    "search_words": "select * from search_words('{tide,late,harbour,long}', null, '{}', 9, null)",
    "search_candidates": "select event_id from search_candidates("
    "'tide', '{}', 60, '[1,0]', 'words/2', 1, '{}', null, 100, 5000, 200, 50, 5, 80, 400, now())",
    "search_words_in_large_view": "select * from search_words_in_large_view("
    "'{tide,late,harbour,long}', null, 9, null)",
    "newest_pieces_with_words": "select event_id from newest_pieces_with_words("
    "'tide | late', null, 9)",
    "nearest_by_code": "select * from nearest_by_code('[1,0]', 'words/2', null, null)",
    "read_view": "select unnest(scope_ids) from read_view(null, 9)"
    " union all select null from read_view(null, 9) where events > 0",
    "find_api_key": "select * from find_api_key('', '')",
    "find_certificate_principal": "select * from find_certificate_principal('', '')",
    # Whether agents share, the name of a model, and nothing else: see its tests above.
    "request_settings_of": "select 1 from request_settings_of(null)"
    " where agents_share or reading_space is not null"
    " union all select 1 from request_settings_of('acme') where agents_share",
    "agents_share_of": "select 1 where agents_share_of('acme') or agents_share_of(null)",
    "edges_of": "select edges_of(e) from events e",
    "matches_filter": "select matches_filter(e, '{}') from events e",
    "is_listed": "select is_listed(e, '{}', null, null, null, null) from events e",
    "page_bytes": "select page_bytes(e) from events e",
    "scopes_in_view_up_to": "select unnest(scopes_in_view_up_to(10))",
    "scopes_with_session": "select unnest(scopes_with_session('s1', null, null))",
    "web_search_candidates": "select * from web_search_candidates('tide | late')",
    "indexed_events_containing": "select * from indexed_events_containing('', null)",
    "events_containing": "select * from events_containing('tide', null)",
    "text_candidates": "select unnest(text_candidates('{}', 'tide', null))",
    "match_text": "select from event_search w, match_text(w.scope_id, w.event_id, 'tide')",
    "newest_of_candidates": "select * from newest_of_candidates(array(select event_id from events),"
    " '{}', null, null, null, null, null, 10)",
    "newest_matches_in_few_scopes": "select * from newest_matches_in_few_scopes("
    "array(select scope_id from scopes), '{}', 'tide', null, null, null, null, 10)",
    "nth_newest_recorded_at": "select 1 where nth_newest_recorded_at(null, 0) is not null",
    "nearest_matching_filter": "select * from nearest_matching_filter('[1]', '', null,"
    ' \'{"role": "user"}\', 10)',
    "newest_in_many_scopes": "select * from newest_in_many_scopes('{}', null, null, null, null,"
    " null, 10)",
    "newest_chains": "select n.* from chains c, newest_chains(c.scope_id, 10) n",
    "renew_sona_centroids": "select renew_sona_centroids(array(select sona_id from sonas),"
    " array(select scope_id from scopes)) where false",
    "forget_in_personas": "select f.name"
    " from forget_in_personas(array(select event_id from events)) f where f.total > 0",
    "is_echo": "select from events e where is_echo(e.scope_id, e.event_id)",
    "echoes_of": "select unnest(echoes_of(e.scope_id, array[e.event_id])) from events e",
    "append_refusals": "select append_refusals(array[]::append_item[]) where false",
    "append_items": "select unnest(append_items(array[]::append_item[], '{}', false))",
    "append_failures": "select unnest(append_failures(array[]::append_item[], '{}', null))",
    "append_pieces": "select unnest(append_pieces(array[]::append_item[]))",
    "append_batch": "select * from append_batch(null, null, null, '[]', false)",
    "append_linked_event": "select * from append_linked_event(null, null, null, '[]', null, null)"
    " where false",
    "append_fast_path": "select 1 from append_fast_path('{}') p where p.outcome is not null",
    "append_events": "select * from append_events(null, null, null, '[]', false)",
    "append_resting_event": "select * from append_resting_event(null, null, null, '[]', '{}')"
    " where event_id is not null",
    "lock_sources": "select 1 where lock_sources(array(select event_id from events)) > 0",
    "store_events": "select unnest(store_events(array[]::append_item[], false))",
    "assign_seqs": "select unnest(assign_seqs(array[]::append_item[]))",
    "create_scope": "select create_scope(null::append_item) where false",
    "enqueue_scope_work": "select unnest(enqueue_scope_work(array[]::append_outcome[],"
    " array[]::append_item[]))",
    "payload_size": "select payload_size('') where payload_size('') is not null",
    "lock_new_sessions": "select lock_new_sessions(array[]::append_item[]) where false",
    # Pure: they are given all that they work with.
    "question_words": "select question_words('tide', 60) where false",
    "says_nothing": "select says_nothing('tide', false) where false",
    "word_query": "select word_query('tide', '') where false",
    "node_vector": "select node_vector('a', 'a', '[1,0]', null, null) where false",
    "vector_code": "select vector_code('[1,0]') where false",
    "id_share": "select id_share(gen_random_uuid()) where false",
    "inverse_frequency": "select inverse_frequency(1, 2) where false",
    "trust_rank": "select trust_rank('user') where false",
    "observed_state": "select properties::text from observed_state("
    "array(select node_id from graph_nodes), null, false)",
    "nearest_nodes": "select * from nearest_nodes('[1,0]', '', '{topic}', null, true, 10)",
    "nodes_containing": "select * from nodes_containing('', '{topic}', null, true, 10)",
    "walk_graph": "select * from walk_graph(array(select node_id from graph_nodes), null, 3, 500,"
    " 0, null, true, true)",
    "held_at": "select * from held_at(array(select node_id from graph_nodes), now(), true, true)",
    "joined_at": "select target_id, properties::text from"
    " joined_at(array(select node_id from graph_nodes), now(), false)",
    "node_text": "select node_text('tide', '{}') where false",
    "may_hold": "select may_hold(now(), null, false, null, true) where false",
    "topic_members": "select m.node_id::text from graph_nodes g, topic_members(g.node_id, null) m",
    "halve": "select halve(1, 2) where false",
    "nearest_moment": "select nearest_moment(now()) where false",
    "halving_mean": "select 1 from (select halving_mean(1)) pure where false",
    "merge_patches": "select 1 from (select merge_patches('{}')) pure where false",
    "is_statement": "select is_statement('message') where false",
    "is_scope_of": "select 1 where is_scope_of(gen_random_uuid(), 'acme', '{user:alice}')",
    "relax_tsquery": "select relax_tsquery('tide') where false",
    "required_tsquery": "select required_tsquery('tide') where false",
    "is_in_snapshot": "select is_in_snapshot('1', '1:1:') where false",
    "tsvector_agg": "select 1 from (select tsvector_agg(''::tsvector)) pure where false",
    "fold_text": "select fold_text('tide') where false",
    "trigrams_of": "select trigrams_of('tide') where false",
    "normalize_nfc": "select normalize_nfc('tide') where false",
    "event_tsvector": "select event_tsvector('alice', 'tide') where false",
    "heat": "select heat(0, 0, 1, now(), now(), '{}') where false",
    "heat_term": "select heat_term(0, 0) where false",
    "initial_heat": "select initial_heat(0, 0, '{}') where false",
    "hours_above_heat": "select hours_above_heat('promote', 0, 0, 1, '{}') where false",
    "cold_at": "select cold_at(0, 0, 1, now(), '{}') where false",
    "promote_until": "select promote_until(0, 0, 1, now(), '{}') where false",
    "apply_recalls": "select * from apply_recalls(1, null, '{}', '{}') where false",
    "lock_chains_after": "select lock_chains_after('00000000-0000-0000-0000-000000000000', 10)",
    "heat_settings": "select heat_settings('{}', '{}') where false",
    # By design they name tenants, to operators and to those who sweep: see their tests above.
    "tenants_by_name": "select * from tenants_by_name('', 10) where false",
    "tenants_with_work": "select * from tenants_with_work('', now()) where false",
    "tenants_to_recount": "select * from tenants_to_recount(now(), 10) where false",
    "tenants_with_heat_work": "select * from tenants_with_heat_work('{}', now()) where false",
    "tenants_to_sweep": "select * from tenants_to_sweep('', now()) where false",
    "tenants_behind": "select * from tenants_behind(now(), 10) where false",
    "tenants_with_turns": "select * from tenants_with_turns(now()) where false",
    "tenants_with_times_ahead": "select * from tenants_with_times_ahead(now()) where false",
    "put_times_back": "select 1 where put_times_back(now()) <> 0",
    "tenants_with_expired_uploads": "select * from tenants_with_expired_uploads('infinity')"
    " where false",
    "writers_of_expired_uploads": "select * from writers_of_expired_uploads('infinity', 10)",
    "tenants_to_archive": "select * from tenants_to_archive('infinity', '6 hours', '0', '0')"
    " where false",
    # Moments, and nothing else: see their test above.
    "next_sweep": "select next_sweep('', '{}', '5 minutes', now()) where false",
    "next_turn": "select next_turn('5 minutes', now()) where false",
    "next_archive": "select next_archive('0', '6 hours', '0', '5 minutes', now()) where false",
    "tenants_to_build": "select * from tenants_to_build('infinity') where false",
    "next_build": "select next_build('5 minutes', now()) where false",
    "tenants_to_promote": "select * from tenants_to_promote('{}', '{}', now()) where false",
    "next_promotion": "select next_promotion('{}', '{}', '1 minute', now()) where false",
    "tenants_to_analyse": "select * from tenants_to_analyse('infinity') where false",
    "next_analysis": "select next_analysis('1 hour', now()) where false",
    "tenants_to_erase": "select * from tenants_to_erase('infinity') where false",
    "next_erasure": "select next_erasure('1 minute', now()) where false",
    "erase_events": "select * from erase_events(gen_random_uuid(),"
    " array(select event_id from events), now(), '', '')",
    "blank_chains": "select * from blank_chains(array(select chain_id from chains), '{}', now())"
    " where total > 0",
    "drop_pending_decisions": "select total from drop_pending_decisions("
    "array(select event_id from events)) where total > 0",
    "forget_turns": "select n from (select forget_turns(array(select event_id from events)) n) t"
    " where n > 0",
    "forget_sona_names": "select n from (select forget_sona_names() n) t where n > 0",
    "forget_all_turns": "select n from (select forget_all_turns() n) t where n > 0",
    "forget_words_of_writer": "select w.* from unnest('{*,user:alice,user:bob}'::text[]) v,"
    " forget_words_of_writer(v) w where w.sona_names + w.turns > 0",
    "forget_uploads": "select n from (select forget_uploads(gen_random_uuid(), null) n) t"
    " where n > 0",
    "is_turn_marked": "select t.turn_id from turns t where is_turn_marked(t.turn_id)",
    "events_marked": "select * from events_marked(array(select event_id from events))",
    "is_session_marked": "select s.session_id from sessions s"
    " where is_session_marked(s.scope_id, s.participants, s.session_id)",
    # Whether an erasure goes on in the tenant, and nothing of it.
    "is_erasing": "select is_erasing() where false",
    "is_scope_marked": "select 1 where is_scope_marked(null, '{user:alice}')",
    "is_event_marked": "select 1 where is_event_marked(null, '{user:alice}', '', now(), '1',"
    " null, '*')",
    "count_erased": "select 1 where count_erased(null) > 0",
    "erased_key_refusals": "select 1 where erased_key_refusals('{}') <> '{}'",
    "next_retry_at": "select next_retry_at(now(), '5 minutes', now()) where false",
    "sweep_day_start": "select sweep_day_start(now()) where false",
    "period_start": "select period_start(now(), '6 hours') where false",
    "uncited_blobs_removable_at": "select uncited_blobs_removable_at('acme', '0') where false",
    "stored_blobs": "select * from stored_blobs(array(select cid from blobs))",
    "totals_of_run": "select * from totals_of_run('')",
    "tenants_of_run": "select * from tenants_of_run('archiver', '') where false",
    # They act as background work in the tenants that they are given: see their test above.
    "claim_run": "select * from claim_run('archiver', 'r', '{}', '{}', '{}', '1 minute', now())",
    "close_run": "select * from close_run('archiver', 'r', '{}', '{}', null, '1 minute', now())",
    "expire_job_leases": "select 1 where expire_job_leases(null, 'infinity') <> 0",
    "enqueue_job": "select enqueue_job('archiver', 'r', gen_random_uuid(), '1 minute', now())"
    " where false",
    "hour_end": "select hour_end(now()) where false",
    # Sums and limits of the caller's tenant; who named none leases nothing (see below).
    "pending_upload_bytes": "select 1 where pending_upload_bytes() <> 0",
    "quota_limit": "select 1 where quota_limit('requests', null) is not null",
    "lease_quota": "select * from lease_quota('requests', 1, 1, 1) where false",
    "may_wait": "select 1 where may_wait('query', 1, 1) is null",
    "begin_wait": "select 1 where begin_wait('query', 0, 0, 1) is not null",
    "end_wait": "select 1 where end_wait(gen_random_uuid())",
    "count_waits": "select 1 where count_waits('nobody') > 0",
    "lease_model": "select * from lease_model('m', 's', 1, 1, 1, true, 1) where false",
    "quota_at_once": "select quota_at_once('requests', 1, 1) where false",
    "quota_used": "select quota_used(null::quotas, 1, 1, now()) where false",
    "in_flight_period": "select in_flight_period() where false",
    "in_flight_units": "select in_flight_units(null::quotas, now()) where false",
}


def test_isolation_tests_cover_every_callable_function(app: Connection[Any]) -> None:
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


PLANNED_BY_NAME = ["nearest_by_code", "nearest_nodes", "search_words_in_large_view"]
"""They read all vectors or words in view, however they are planned (docs/limits.md)."""


def test_isolation_functions_use_generic_plan_for_tenant(app: Connection[Any]) -> None:
    """The planner would look it up in the statistics, and take a tenant missing there for empty."""
    by_name = rows(
        app,
        """
        select p.proname::text from pg_proc p
        where p.pronamespace = 'public'::regnamespace and p.prosrc ~ 'v_tenant'
            and not coalesce('plan_cache_mode=force_generic_plan' = any (p.proconfig), false)
        """,
    )
    assert sorted(by_name) == PLANNED_BY_NAME


@pytest.mark.parametrize("settings", [None, ("", "", ""), ("acme", "", "*"), ("", "{}", "*")])
def test_isolation_functions_give_nothing_without_caller(
    app: Connection[Any], settings: tuple[str, str, str] | None
) -> None:
    for name, call in UNASKED.items():
        with app.transaction(force_rollback=True):
            if settings is not None:
                ask(app, *settings)
            if settings and any(settings) and name.startswith("current_"):
                continue  # these repeat the setting, which is their only work
            assert app.execute(call.encode()).fetchall() == [], name


def test_isolation_append_reaches_only_scopes_in_view(
    app: Connection[Any], truth: dict[str, Table]
) -> None:
    assert list(appended_in_breach(app, truth["scopes"].rows)) == []


def erased_in_breach(app: Connection[Any], truth: dict[str, Table]) -> list[str]:
    """Callers for whom the eraser's functions touched a foreign row, or spared one in view; all is
    rolled back."""
    events, versions = truth["events"].rows, truth["chain_versions"].rows
    event_ids = [row.full["event_id"] for row in events]
    chain_ids = [row.full["chain_id"] for row in versions]
    scope_ids = [row.full["scope_id"] for row in truth["scopes"].rows]
    results: list[str] = []
    for caller in CALLERS:
        erasures = [r for r in truth["erasures"].rows if r.full["tenant_id"] == caller.tenant]
        erasure_id = erasures[0].full["erasure_id"] if erasures else str(uuid.uuid4())
        with app.transaction(force_rollback=True):
            ask(app, caller.tenant, viewer_text(caller.viewer), caller.writer)
            counts = dict(
                app.execute(
                    "select name, total from blank_chains(%s::uuid[], %s::uuid[], now()) union all"
                    " select name, total from erase_events(%s, %s::uuid[], now(), '', '')",
                    (chain_ids, scope_ids, erasure_id, event_ids),
                ).fetchall()
            )
        for name, table in (("events", events), ("chain_versions", versions)):
            own = sum(row.belongs_to(caller) for row in table)
            if counts.get(name, 0) != own:
                results.append(f"{caller}: {counts.get(name)} {name}, {own} are in view")
    return results


def test_isolation_erasure_reaches_only_rows_in_view(
    app: Connection[Any], truth: dict[str, Table]
) -> None:
    assert erased_in_breach(app, truth) == []


def test_isolation_forget_uploads_reaches_only_own_uploads(
    app: Connection[Any], truth: dict[str, Table]
) -> None:
    """A bound user's own; who sees the whole tenant, all of it, or those of the writer that is
    named."""
    uploads = [row.full for row in truth["uploads"].rows]
    victims = set[int]()
    for caller in CALLERS:
        erasures = [r for r in truth["erasures"].rows if r.full["tenant_id"] == caller.tenant]
        erasure_id = erasures[0].full["erasure_id"] if erasures else str(uuid.uuid4())
        for writer in (None, "user:alice", "user:nobody"):
            own = [
                one
                for one in uploads
                if one["tenant_id"] == caller.tenant
                and writer in (None, one["writer"])
                and (not caller.viewer or one["writer"] == caller.writer in caller.viewer)
            ]
            with app.transaction(force_rollback=True):
                ask(app, caller.tenant, viewer_text(caller.viewer), caller.writer)
                (count,) = rows(app, "select forget_uploads(%s, %s)", erasure_id, writer)
            assert count == len(own), (caller, writer)
            victims.add(count)
    assert len(victims) > 1, "nobody reaches anything"


def test_isolation_lock_sources_counts_events_in_view(
    app: Connection[Any], truth: dict[str, Table]
) -> None:
    events = truth["events"].rows
    for caller in CALLERS:
        with app.transaction(force_rollback=True):
            ask(app, caller.tenant, viewer_text(caller.viewer), caller.writer)
            ids = [row.full["event_id"] for row in events]
            (count,) = rows(app, "select lock_sources(%s::uuid[])", [*ids, *ids])
        assert count == sum(
            row.belongs_to(caller) and row.full["erased_at"] is None for row in events
        ), caller


MARKED_TABLES = """
    select p.polrelid::regclass::text from pg_policy p where p.polname = 'is_unmarked' order by 1
"""
"""Tables whose rows a mark keeps out of view."""


def count_of(app: Connection[Any], names: Sequence[str]) -> dict[str, int]:
    """How many rows of each table are in view."""
    counts = sql.SQL(" union all ").join(
        sql.SQL("select {}, count(*) from {}").format(sql.Literal(name), sql.Identifier(name))
        for name in names
    )
    return dict(app.execute(counts).fetchall())


def test_isolation_erasure_mark_hides_marked_rows_only(
    app: Connection[Any], truth: dict[str, Table]
) -> None:
    """For each who marks all that is in view, and each who reads: no row of a marked scope is in
    view, by any table, and all others are; who could see an event learns that it is erased."""
    names = rows(app, MARKED_TABLES)
    assert len(names) >= 20
    event_ids = [row.full["event_id"] for row in truth["events"].rows]
    readers = [caller for caller in CALLERS if caller.tenant in TENANTS and caller.writer == "*"]
    for marker, reader in itertools.product(readers[:4], readers):
        with app.transaction(force_rollback=True):
            ask(app, marker.tenant, viewer_text(marker.viewer), marker.writer)
            app.execute(
                "insert into erasure_marks (tenant_id, erasure_id, n, members, recorded_until)"
                " select tenant_id, erasure_id, 2, %s, 'infinity' from erasures limit 1",
                (list(marker.viewer),),
            )
            ask(app, reader.tenant, viewer_text(reader.viewer), reader.writer)
            counts = count_of(app, names)
            result_rows = rows(
                app, "select event_id::text from events_marked(%s::uuid[])", event_ids
            )
        in_view = {
            name: [row for row in truth[name].rows if row.belongs_to(reader)] for name in names
        }
        for name in names:
            labels = [
                row
                for row in in_view[name]
                if reader.tenant == marker.tenant
                and set(row.full["participants"]) >= set(marker.viewer)
            ]
            rest = len(in_view[name]) - len(labels)
            assert counts[name] == rest, (marker, reader, name)
            assert name != "events" or len(result_rows) == len(labels), (marker, reader)


def test_isolation_append_without_caller_fails(app: Connection[Any]) -> None:
    """The append function under no settings: no row, no key, no scope."""
    item = (
        '[{"n": 0, "event_id": "0198c5a0-0000-7000-8000-000000000000", "participants": ["user:x"],'
        ' "scope_id": "0198c5a0-0000-8000-8000-000000000000", "session_id": "", "channel": "http",'
        ' "role": "user", "type": "message", "origin": "user", "content": "x", "parts": [],'
        ' "metadata": {}, "edges": [], "pieces": [], "cid": "c", "blob_stored": false, "bytes": 3}]'
    )
    with pytest.raises((errors.InsufficientPrivilege, errors.NotNullViolation)):
        app.execute("select * from append_events(null, null, null, %s, false)", (item,))

    def append_for_another() -> None:
        with app.transaction():
            bob = ("acme", viewer_text(["user:bob"]), "user:bob")
            app.execute("select * from append_events(%s, %s, %s, %s, false)", (*bob, item))

    with pytest.raises(errors.InsufficientPrivilege):
        append_for_another()


@pytest.mark.parametrize(
    "lease",
    [
        "select * from lease_quota('requests', 1, 1, 1)",
        "select * from lease_model('m', 's', 1, 1, 1, true, 1)",
        "select begin_wait('query', 1, 1, 1)",
    ],
)
def test_isolation_lease_without_caller_fails(app: Connection[Any], lease: LiteralString) -> None:
    """Nor anybody for a tenant that does not exist: no row of a quota is made."""
    with pytest.raises((errors.InsufficientPrivilege, errors.NotNullViolation)):
        app.execute(lease)

    def lease_for_nobody() -> None:
        with app.transaction():
            ask(app, "nobody", "{}", "*")
            app.execute(lease)

    with pytest.raises(errors.ForeignKeyViolation):
        lease_for_nobody()
