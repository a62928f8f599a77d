"""Promise: an erasure whose database froze in its midst is a 503 and has erased nothing; the same
request again erases all of it, and no other event is lost.

The real server stands still (SIGSTOP to every process of it) before a step of the transaction, and
goes on after some seconds. Its session has been idle in a transaction for too long by then.
"""

import contextlib
import json
import os
import signal
import threading
from typing import Any, LiteralString

import pytest

from strandline.config import get_settings
from strandline.db.database import TenantDb
from strandline.erasure import receipts, store, store_derived
from strandline.local import postgres_lock
from strandline.local.postgres import EmbeddedPostgres
from tests.graph_files import export
from tests.prove.erasure_fixtures import embedder, no_waits
from tests.prove.erasure_kinds import Kinds
from tests.prove.erasure_reads import CIDS, RIGHTS, find_visible
from tests.prove.erasure_stores import ERASED_WORD, ERASURES, KEPT_WORD, WHO, complete
from tests.support import Gateway, ScratchDatabase

__all__ = ["embedder", "no_waits"]  # fixtures
SECONDS, SAMPLE_SECONDS = 12.0, 1.5
KEPT = 40
STATE: LiteralString = """
    select (select count(*) from erasures), (select count(*) from erased_events),
        (select count(*) from events where erased_at is not null), (select count(*) from events)
"""
STEPS = [
    pytest.param(store, "erase_events", id="erase_events"),
    pytest.param(
        store_derived,
        "delete_graph_observations",
        id="delete_graph_observations",
        marks=pytest.mark.proof,
    ),
    pytest.param(store, "mark_erasure_hidden", id="mark_erasure_hidden", marks=pytest.mark.proof),
]


class Freeze:
    """The next time that a step of an erasure is reached, the server stands still."""

    def __init__(self, server: EmbeddedPostgres, seconds: float) -> None:
        self._server, self._seconds = server, seconds
        self.happened = False

    def before(self, patch: pytest.MonkeyPatch, place: Any, name: str) -> None:
        """Freeze before this step, once."""
        original = getattr(place, name)

        def step(access: TenantDb, *arguments: Any, **options: Any) -> Any:
            if not self.happened:
                self.happened = True
                access.execute(
                    "select set_config('idle_in_transaction_session_timeout', %(limit)s, true)",
                    {"limit": f"{int(self._seconds * 500)}ms"},
                )
                self._signal(signal.SIGSTOP)
                threading.Timer(self._seconds, self._signal, (signal.SIGCONT,)).start()
            return original(access, *arguments, **options)

        patch.setattr(place, name, step)

    def _signal(self, number: signal.Signals) -> None:
        for pid in postgres_lock.list_server_processes(self._server.data):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


@pytest.mark.parametrize(("place", "name"), STEPS)
def test_erasure_in_frozen_database_is_completed_by_retry(
    plenty: Gateway,
    scratch_db: ScratchDatabase,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    place: Any,
    name: str,
) -> None:
    full = bool(request.config.getoption("--full"))
    kinds = Kinds(plenty, scratch_db, plenty.key(rights=RIGHTS))
    kinds.store(0, KEPT)
    kinds.derive()
    kept = read_kept(kinds)
    assert len(kept) == KEPT
    ids = kinds.bearers()
    cids = [cid for (cid,) in scratch_db.rows(CIDS, ids)]
    before = scratch_db.rows(STATE)

    freeze = Freeze(scratch_db.server, SECONDS if full else SAMPLE_SECONDS)
    freeze.before(monkeypatch, place, name)
    once: dict[str, Any] = {"key": kinds.key, "headers": {"Idempotency-Key": "the-same"}}
    reply = plenty.call("POST", ERASURES, {"event_ids": ids}, **once)
    assert freeze.happened
    assert (reply.status, reply.error["retryable"]) == (503, True), reply.text
    assert reply.headers["Retry-After"].isdecimal()
    assert scratch_db.rows(STATE) == before, "nothing of it is stored"
    assert read_kept(kinds) == kept
    assert find_visible(kinds, ids, cids), "it is still to be read"

    reply = plenty.call("POST", ERASURES, {"event_ids": ids}, **once)
    assert reply.status == 202, reply.text
    erasure_id = reply.body["erasure_id"]
    assert find_visible(kinds, ids, cids) == []
    assert read_kept(kinds) == kept, "nothing is lost"
    complete(plenty, scratch_db)
    assert find_visible(kinds, ids, cids) == []
    assert read_kept(kinds) == kept
    body = plenty.call("GET", f"{ERASURES}/{erasure_id}", key=kinds.key).body
    assert body["public_key"] == receipts.derive_public_key(get_settings().sealing_secret)
    assert receipts.verify_receipt(body["public_key"], body["receipt"], body["signature"])
    assert sorted(body["receipt"]["event_ids"]) == sorted(ids)
    again = plenty.call("POST", ERASURES, {"event_ids": ids}, **once)
    assert (again.status, again.body["erasure_id"]) == (202, erasure_id), "one erasure, not two"


def read_kept(kinds: Kinds) -> dict[str, str]:
    """The texts of the events that stay, by id, the same by each way to read them."""
    texts: dict[str, str] = {}
    for (event_id,) in kinds.base.rows(
        "select event_id::text from events where content like %s and content not like %s",
        f"{KEPT_WORD} %",
        f"%{ERASED_WORD}%",
    ):
        event = kinds.call("GET", f"/api/v1/events/{event_id}", query={"participants": WHO[0]})
        texts[event_id] = event["content"]
    _, lines = export(kinds.gateway, kinds.key, *WHO)
    assert lines
    listed = list_events(kinds)
    assert {one: listed[one] for one in texts} == texts
    for text in texts.values():
        body = {"query": text, "participants": [WHO[0]], "limit": 5}
        assert text in json.dumps(kinds.call("POST", "/api/v1/recall", body)), text
    return texts


def list_events(kinds: Kinds) -> dict[str, str]:
    """All events of the list, page by page."""
    found: dict[str, str] = {}
    query: dict[str, object] = {"participants": WHO[0], "limit": 100}
    while True:
        page = kinds.call("GET", "/memories/list", query=query)
        found |= {event["event_id"]: event["content"] for event in page["events"]}
        if page["next_cursor"] is None:
            return found
        query["cursor"] = page["next_cursor"]
