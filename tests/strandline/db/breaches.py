"""Callers for whom a function looked past row-level security too far."""

import itertools
import json
import random
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, LiteralString

from psycopg import Connection, errors

from tests.strandline.db.isolation import CALLERS, Row, Table, ask, rows, viewer_text

PROBED = (
    "search_words",
    "search_words_in_large_view",
    "newest_pieces_with_words",
    "nearest_by_code",
    "nearest_nodes",
    "nodes_containing",
    "web_search_candidates",
    "indexed_events_containing",
    "nth_newest_recorded_at",
    "find_api_key",
    "find_certificate_principal",
    "request_settings_of",
    "agents_share_of",
    "tenants_with_work",
    "tenants_by_name",
    "tenants_to_recount",
    "count_waits",
    "pending_upload_bytes",
    "tenants_with_expired_uploads",
    "writers_of_expired_uploads",
    "tenants_with_heat_work",
    "tenants_to_sweep",
    "tenants_behind",
    "tenants_with_times_ahead",
    "tenants_with_turns",
    "next_turn",
    "tenants_to_archive",
    "next_sweep",
    "next_archive",
    "builds_due",
    "collections_due",
    "tenants_to_build",
    "next_build",
    "promotions_due",
    "tenants_to_promote",
    "next_promotion",
    "analyses_due",
    "tenants_to_analyse",
    "next_analysis",
    "stored_blobs",
    "totals_of_run",
    "tenants_of_run",
    "refuse_erased_event",
    "refuse_erased_citation",
    "lock_sources",
    "append_fast_path",
    "erase_events",
    "forget_turns",
    "forget_sona_names",
    "forget_all_turns",
    "forget_words_of_writer",
    "forget_uploads",
    "blank_chains",
    "drop_pending_decisions",
    "events_marked",
    "is_session_marked",
    "tenants_to_erase",
    "next_erasure",
)
"""Every SECURITY DEFINER function. Each is probed by a test of test_isolation_functions.py."""

EVERY_WORD = ["tide", "late", "harbour", "long"]

SEARCHES: dict[str, LiteralString] = {
    "search_words": "select event_id::text"
    " from search_words(%(words)s::text[], %(scopes)s::uuid[], %(filter)s::jsonb, 1000, null)"
    " where event_id is not null",  # else a row of counts alone
    # of a view said to be so small that every word is rare, and one so large that none is
    "search_words_in_large_view": "select event_id::text from search_words_in_large_view("
    "%(words)s::text[], %(scopes)s::uuid[], 0, 1000)"
    " where event_id is not null and %(filter)s <> ''",
    "search_words_in_large_view, newest": "select event_id::text from search_words_in_large_view("
    "%(words)s::text[], %(scopes)s::uuid[], 1000000000, 1000)"
    " where event_id is not null and %(filter)s <> ''",
    "newest_pieces_with_words": "select event_id::text from newest_pieces_with_words("
    "array_to_string(%(words)s::text[], ' | ')::tsquery, %(scopes)s::uuid[], 1000)"
    " where %(filter)s <> ''",
}


def searched_in_breach(
    app: Connection[Any],
    truth: dict[str, Table],
    cases: int,
    seed: int = 11,
    function: str = "search_words",
) -> Iterator[str]:
    """Callers for whom a search gave a foreign event, or held back one in view."""
    chance = random.Random(seed)
    everywhere = [row.full["scope_id"] for row in truth["scopes"].rows]
    for _ in range(cases):
        caller = chance.choice(CALLERS)
        scopes = chance.choice(
            (None, everywhere, chance.sample(everywhere, 3), [chance.choice(everywhere)])
        )
        narrowing = chance.choice(("{}", '{"channel": "http"}', '{"metadata": {}}'))
        with app.transaction(force_rollback=True):
            ask(app, caller.tenant, viewer_text(caller.viewer), caller.writer)
            params = {"words": EVERY_WORD, "scopes": scopes}
            got = app.execute(SEARCHES[function], {**params, "filter": narrowing}).fetchall()
        in_view = {
            row.full["event_id"]
            for row in truth["event_search"].rows
            if row.belongs_to(caller) and (scopes is None or row.full["scope_id"] in scopes)
        }
        if {event for (event,) in got} != in_view:
            yield f"{caller} found {len(got)} events in {scopes}"


def nearest_in_breach(app: Connection[Any], truth: dict[str, Table]) -> Iterator[str]:
    """Callers for whom nearest_by_code gave a foreign event, or held back one in view."""
    everywhere = [row.full["scope_id"] for row in truth["scopes"].rows]
    vectors = [row for row in truth["event_vectors"].rows if row.full["embedding"] is not None]
    space, vector = vectors[0].full["space"], vectors[0].full["embedding"]
    for caller, scopes in itertools.product(CALLERS, (None, everywhere, everywhere[:3])):
        with app.transaction(force_rollback=True):
            ask(app, caller.tenant, viewer_text(caller.viewer), caller.writer)
            got = rows(
                app,
                "select event_id::text from nearest_by_code(%s::halfvec, %s, %s::uuid[], 1000)",
                vector,
                space,
                scopes,
            )
        in_view = [
            row.full["event_id"]
            for row in vectors
            if row.belongs_to(caller)
            and row.full["space"] == space
            and (scopes is None or row.full["scope_id"] in scopes)
        ]
        if sorted(got) != sorted(in_view):
            yield f"{caller} found {len(got)} vectors in {scopes}"


def nodes_in_breach(app: Connection[Any], truth: dict[str, Table]) -> Iterator[str]:
    """Callers for whom nearest_nodes or nodes_containing gave a foreign node, or held back one in
    view."""
    nodes = truth["graph_nodes"].rows
    space, vector = nodes[0].full["space"], nodes[0].full["embedding"]
    for caller in CALLERS:
        own = sorted(row.full["node_id"] for row in nodes if row.belongs_to(caller))
        with app.transaction(force_rollback=True):
            ask(app, caller.tenant, viewer_text(caller.viewer), caller.writer)
            near = "select node_id::text from nearest_nodes(%s::halfvec, %s, %s, null, true, 1000)"
            text = "select node_id::text from nodes_containing(%s, %s, null, true, 1000)"
            answers = {
                "near": rows(app, near, vector, space, ["topic"]),
                "near, now": rows(app, near.replace("null", "now()"), vector, space, ["topic"]),
                "text": rows(app, text, "a top", ["topic"]),
                "all texts": rows(app, text, "", ["topic"]),
            }
            nothing = rows(app, near, vector, space, ["fact"]) + rows(app, text, "x", ["topic"])
        yield from (f"{caller} {name}" for name, got in answers.items() if sorted(got) != own)
        yield from [f"{caller} found {len(nothing)} of nothing"] if nothing else []


def substrings_in_breach(app: Connection[Any], truth: dict[str, Table]) -> Iterator[str]:
    """Callers for whom indexed_events_containing gave a foreign event, or held back one in view."""
    everywhere = [row.full["scope_id"] for row in truth["scopes"].rows]
    for caller, scopes in itertools.product(CALLERS, (None, everywhere, everywhere[:3])):
        for needle in ("", "e", "the ", "harbour of user:alice", "nowhere"):
            with app.transaction(force_rollback=True):
                ask(app, caller.tenant, viewer_text(caller.viewer), caller.writer)
                got = rows(
                    app,
                    "select event_id::text from indexed_events_containing(%s, %s::uuid[])",
                    needle,
                    scopes,
                )
            in_view = [
                row.full["event_id"]
                for row in truth["event_texts"].rows
                if row.belongs_to(caller)
                and needle in row.full["text"]
                and (scopes is None or row.full["scope_id"] in scopes)
            ]
            if sorted(got) != sorted(in_view):
                yield f"{caller} found {len(got)} events with {needle!r} in {scopes}"


def plain_item(scope: Row, participants: list[str], key: str) -> str:
    """An event of the kind that goes the short way, said to be in this scope."""
    return json.dumps(
        {
            "n": 0,
            "event_id": str(uuid.uuid4()),
            "scope_id": scope.full["scope_id"],
            "participants": participants,
            "session_id": "",
            "channel": "http",
            "role": "user",
            "type": "message",
            "origin": "user",
            "content": "x",
            "parts": [],
            "metadata": {},
            "edges": [],
            "pieces": [{"start": 0, "end": 1, "text": "x"}],
            "cid": "c",
            "blob_stored": False,
            "bytes": 3,
            "key_channel": "http",
            "source_event_key": key,
            "fingerprint": "00",
        }
    )


def appended_in_breach(app: Connection[Any], scopes: Sequence[Row]) -> Iterator[str]:
    """Who could append where it sees nothing, or could not where it does: as the scope's own
    participants, and under false ones that are in view."""
    for caller, scope in itertools.product(CALLERS, scopes):
        own = scope.full["participants"]
        # In another tenant the scope's id is free, but there it is the hash of nobody.
        for participants in {tuple(own), caller.viewer or ("user:x",), (*own, "user:zoe")}:
            may = scope.belongs_to(caller) and list(participants) == own
            item = plain_item(scope, list(participants), f"{caller} {participants}")
            result_rows: list[Any] = []
            try:
                with app.transaction(force_rollback=True):
                    ask(app, caller.tenant, viewer_text(caller.viewer), caller.writer)
                    app.execute("delete from erasure_marks")  # with one it does nothing
                    result_rows = rows(app, "select outcome from append_fast_path(%s)", item)
            except (errors.InsufficientPrivilege, errors.ForeignKeyViolation):
                pass  # not in view, or a tenant that does not exist
            if result_rows != (["created"] if may else []):
                yield f"{caller} as {participants} in {scope.text}: {result_rows}"
