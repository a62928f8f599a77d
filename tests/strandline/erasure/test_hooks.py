"""The table of what holds memory, beside the database's catalogue."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from strandline.erasure.hooks import HOLDS_NO_MEMORY, HOOKS
from tests.strandline.store.isolation import rows
from tests.support import ScratchDatabase

_TABLES = """
    select c.relname::text from pg_class c
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') order by 1
"""
_CITING = """
    select distinct k.conrelid::regclass::text from pg_constraint k
    where k.contype = 'f' and k.confrelid = 'events'::regclass
    union
    select distinct a.attrelid::regclass::text from pg_attribute a
    join pg_class c on c.oid = a.attrelid
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not a.attisdropped
        and a.attname in ('event_id', 'cited_id', 'event_ids', 'chain_id', 'content', 'summary',
            'topic', 'text', 'words', 'embedding', 'body', 'patch', 'session_id', 'file_name',
            'metadata', 'blob_cid', 'source_event_key', 'selection')
"""
_MAY_NAME_IDS = {"model_calls"}
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


def unhooked(admin: Connection[Any]) -> list[str]:
    """Tables that are in neither table, or cite events and are said to hold no memory."""
    known = {*HOOKS, *HOLDS_NO_MEMORY}
    missing = [name for name in rows(admin, _TABLES) if name not in known]
    citing = [name for name in rows(admin, _CITING) if name in HOLDS_NO_MEMORY]
    return missing + [name for name in citing if name not in _MAY_NAME_IDS]


def test_every_table_is_hooked(admin: Connection[Any]) -> None:
    assert unhooked(admin) == []
    assert {*HOOKS, *HOLDS_NO_MEMORY} <= set(rows(admin, _TABLES))
    assert not HOOKS.keys() & HOLDS_NO_MEMORY.keys()


def test_a_mark_covers_every_table_that_is_read(admin: Connection[Any]) -> None:
    cleared = {table for table, hook in HOOKS.items() if hook.clearing != "kept"}
    assert set(rows(admin, _UNMARKED)) >= cleared - _SHOWN_WITH_EVENTS
    assert cleared > _SHOWN_WITH_EVENTS


def test_a_new_table_that_cites_events_is_found(admin: Connection[Any]) -> None:
    """Teeth: a table that nobody entered, and one entered as holding nothing that cites events."""
    with admin.transaction(force_rollback=True):
        admin.execute("create table notes (tenant_id text, event_id uuid, note text)")
        assert unhooked(admin) == ["notes"]
    with admin.transaction(force_rollback=True):
        admin.execute("alter table quotas add column event_id uuid")
        assert unhooked(admin) == ["quotas"]
