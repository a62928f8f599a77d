"""The table of what holds memory, beside the database's catalogue."""

from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import Connection

from strandline.erasure.data_inventory import DATA_LOCATIONS, HOLDS_NO_MEMORY
from tests.strandline.db.isolation import rows
from tests.support import ScratchDatabase

_TABLES = """
    select c.relname::text from pg_class c
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') order by 1
"""
_REFERENCES = """
    select k.conrelid::regclass::text, k.confrelid::regclass::text from pg_constraint k
    where k.contype = 'f' and k.connamespace = 'public'::regnamespace
"""
_COLUMNS = """
    select c.relname::text, a.attname::text
    from pg_class c join pg_attribute a on a.attrelid = c.oid join pg_type t on t.oid = a.atttypid
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
        and a.attnum > 0 and not a.attisdropped
        and t.typname not in ('int8', 'int4', 'bool', 'float8', 'date', 'timestamptz', 'xid8')
"""
"""All columns that can hold a text, an id, a list of them or a vector."""
_CITING = """
    select distinct a.attrelid::regclass::text from pg_attribute a
    join pg_class c on c.oid = a.attrelid
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not a.attisdropped
        and a.attname in ('event_id', 'cited_id', 'event_ids', 'chain_id', 'content', 'summary',
            'topic', 'text', 'words', 'embedding', 'body', 'patch', 'session_id', 'file_name',
            'metadata', 'blob_cid', 'source_event_key', 'selection')
"""
_MAY_NAME_IDS = {"model_calls"}
_PLAIN = {
    "active_snapshot": {"tenant_id"},
    "api_keys": {
        "tenant_id",
        "key_id",
        "secret_hash",
        "user_name",
        "scopes",
        "label",
        "rotated_to",
    },
    "audit_log": {
        *("tenant_id", "audit_id", "actor_tenant", "actor_key_id", "actor_user", "route"),
        *("target", "details", "outcome", "request_id"),
    },
    "blob_removals": {"tenant_id", "cid"},
    "blob_scans": {"tenant_id", "position"},
    "certificate_principals": {
        *("tenant_id", "certificate_id", "subject", "issuer", "user_name", "scopes", "label"),
    },
    "embedding_progress": {"tenant_id", "scope_id", "space", "participants"},
    "erasures": {
        *("tenant_id", "erasure_id", "participants", "kind", "target", "asked_by", "counts"),
        *("receipt", "signature", "request_hash", "fingerprint"),
    },
    "graph_analyses": {"tenant_id", "scope_id", "participants", "digest"},
    "graph_communities": {"tenant_id", "community_id", "scope_id", "participants", "neighbours"},
    "graph_members": {"tenant_id", "node_id", "scope_id", "participants", "community_id"},
    "graph_tenant_analyses": {"tenant_id", "participants", "digest"},
    "graph_tenant_communities": {"tenant_id", "community_id", "participants", "neighbours"},
    "graph_tenant_members": {"tenant_id", "node_id", "participants", "community_id"},
    "job_shards": {"tenant_id", "job_id", "state", "reason", "totals"},
    "jobs": {
        *("tenant_id", "job_id", "kind", "run", "state", "scope_id", "participants", "ref"),
        *("reason", "advice", "totals"),
    },
    "model_calls": {
        *("tenant_id", "call_id", "task", "model", "prompt", "outcome", "scope_id", "job"),
    },
    "model_rates": {"tenant_id", "subject"},
    "model_states": {"tenant_id", "model", "output_mode", "failure", "failure_text"},
    "monthly_spend": {"tenant_id"},
    "quotas": {"tenant_id", "quota"},
    "waits": {"tenant_id", "wait_id", "function"},
    "schema_functions": {"room", "checksum"},
    "schema_migrations": {"name", "checksum"},
    "scope_members": {"tenant_id", "participant", "scope_id", "participants"},
    "scope_work": {"tenant_id", "scope_id", "participants", "last_error"},
    "scopes": {"tenant_id", "scope_id", "participants"},
    "sonas": {"tenant_id", "sona_id", "writer", "merged_into", "head_id"},
    "space_switches": {"tenant_id", "from_space", "to_space", "failure"},
    "space_figures": {"tenant_id", "space", "figures"},
    "tenant_due_times": {"tenant_id", "kind"},
    "tenants": {
        *("tenant_id", "tuning", "swept_space", "applied_heat_settings", "heat_recomputed_to"),
        *("time_zone", "reading_space", "embedding_switch"),
    },
    "topic_builds": {"tenant_id", "job_id"},
    "topic_work": {"tenant_id", "scope_id", "participants"},
}
"""What the tables without memory have of columns that could hold some, and do not."""
_DERIVED = {"active_snapshot", "graph_members", "graph_tenant_members"}
"""They reference tables with memory, and go with them or hold a number."""
_UNMARKED = """
    select p.polrelid::regclass::text from pg_policy p
    where p.polname = 'is_unmarked' and not p.polpermissive and p.polcmd = 'r'
        and p.polroles = array['strandline_app'::regrole::oid]
"""
_SHOWN_WITH_EVENTS = {
    *("event_keys", "memory_edges", "blobs", "uploads", "event_search", "event_texts"),
    *("event_vectors", "embedding_cache", "event_uses", "sessions", "lanes", "recalls"),
    *("turn_events", "sona_names"),
}
"""Nothing of these is answered but with an event or a turn that is in view; sessions and names of
sonas go with the mark, and who uploaded a payload may cite it again."""


@pytest.fixture
def admin(scratch_db: ScratchDatabase) -> Iterator[Connection[Any]]:
    with psycopg.connect(scratch_db.admin_url, autocommit=True) as connection:
        yield connection


def find_unhooked(admin: Connection[Any]) -> list[str]:
    """Tables that are in neither table; that cite events by a foreign key or a column's name, or
    reference whatever holds memory, and are said to hold none; and columns of these that could hold
    some, and of which nobody has said that they do not."""
    known_ids = {*DATA_LOCATIONS, *HOLDS_NO_MEMORY}
    missing = {name for name in rows(admin, _TABLES) if name not in known_ids}
    citing = {name for name in rows(admin, _CITING) if name in HOLDS_NO_MEMORY} - _MAY_NAME_IDS
    references = admin.execute(_REFERENCES).fetchall()
    citing |= {
        of for of, to in references if to in DATA_LOCATIONS and of not in DATA_LOCATIONS
    } - _DERIVED
    columns = admin.execute(_COLUMNS).fetchall()
    plain = {
        f"{table}.{column}"
        for table, column in columns
        if table in HOLDS_NO_MEMORY and column not in _PLAIN[table]
    }
    return sorted(missing | citing | plain)


def test_data_inventory_hooks_every_table(admin: Connection[Any]) -> None:
    assert find_unhooked(admin) == []
    assert {*DATA_LOCATIONS, *HOLDS_NO_MEMORY} <= set(rows(admin, _TABLES))
    assert not DATA_LOCATIONS.keys() & HOLDS_NO_MEMORY.keys()


def test_data_inventory_marks_cover_every_read_table(admin: Connection[Any]) -> None:
    cleared = {table for table, hook in DATA_LOCATIONS.items() if hook.clearing != "kept"}
    assert set(rows(admin, _UNMARKED)) >= cleared - _SHOWN_WITH_EVENTS
    assert cleared > _SHOWN_WITH_EVENTS


def test_data_inventory_plain_columns_exist(admin: Connection[Any]) -> None:
    columns = {(table, column) for table, column in admin.execute(_COLUMNS).fetchall()}
    assert {(table, column) for table, names in _PLAIN.items() for column in names} <= columns
    assert _PLAIN.keys() == HOLDS_NO_MEMORY.keys()
    references = admin.execute(_REFERENCES).fetchall()
    assert {
        of for of, to in references if to in DATA_LOCATIONS and of not in DATA_LOCATIONS
    } == _DERIVED


FAULTS: tuple[tuple[LiteralString, str], ...] = (
    ("create table notes (tenant_id text, event_id uuid, note text)", "notes"),
    # what is said to hold no memory, and cites events
    ("alter table quotas add column event_id uuid", "quotas"),
    (
        "alter table quotas add column said_in uuid, add foreign key (tenant_id, said_in)"
        " references events",
        "quotas",
    ),
    (
        "alter table jobs add column rests_on uuid, add foreign key (tenant_id, rests_on)"
        " references turns",
        "jobs",
    ),
    # by no foreign key and under any name
    ("alter table quotas add column heard uuid[]", "quotas.heard"),
    ("alter table sonas add column likes jsonb", "sonas.likes"),
    ("alter table sonas add column motto text", "sonas.motto"),
    ("alter table scopes add column centre halfvec(64)", "scopes.centre"),
)


@pytest.mark.parametrize(("statement", "result"), FAULTS)
def test_data_inventory_detects_missing_entry(
    admin: Connection[Any], statement: LiteralString, result: str
) -> None:
    """Teeth: a new table, and new columns of tables that are said to hold no memory."""
    with admin.transaction(force_rollback=True):
        admin.execute(statement)
        assert result in find_unhooked(admin)
