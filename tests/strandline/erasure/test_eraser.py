"""The job of erasures: it resumes after a crash at each step; who read before stores nothing."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from strandline.aws.blobs import BlobStore
from strandline.chains import enrichment, retry_enrichment, store_archiving
from strandline.erasure import eraser as eraser_job
from strandline.erasure import receipts, store_job
from strandline.errors import Unavailable
from strandline.graph.promotion import promoter
from strandline.llm.tasks import LlmTasks
from tests.chains import warm
from tests.strandline.erasure.erasure_calls import ERASURES, erase, state_of, talk, traces
from tests.strandline.topics.outline import build, fold_all
from tests.support import Gateway, ScratchDatabase, Tell, user_message

STEPS: tuple[tuple[object, str], ...] = (
    (store_job, "list_payloads_in_use"),
    (store_archiving, "begin_payload_removal"),
    (BlobStore, "erase"),
    (store_archiving, "end_payload_removal"),
    (store_job, "mark_objects_removed"),
    (retry_enrichment, "retry_enrichment"),
    (store_job, "mark_chain_rebuilt"),
    (store_job, "count_remaining_work"),
    (receipts, "sign_receipt"),
    (store_job, "complete_erasure"),
)
SAMPLE = {"begin_payload_removal", "mark_chain_rebuilt"}
"""tests/prove/test_erasure_crashes.py has all steps, one after the other."""


@pytest.mark.parametrize(
    ("place", "step"),
    [
        pytest.param(place, step, id=step, marks=() if step in SAMPLE else (pytest.mark.proof,))
        for place, step in STEPS
    ],
)
def test_eraser_resumes_after_crash_at_each_step(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    tell: Tell,
    eraser: str,
    monkeypatch: pytest.MonkeyPatch,
    place: object,
    step: str,
) -> None:
    tell(eraser, "The harbour opens at nine.")
    tell(eraser, "It is zyxcanary there.")
    fold_all(gateway, scratch_db)
    large = user_message("zyxcanary " * 9000, "user:dora")
    large_id = gateway.call("POST", "/api/v1/events", large, key=eraser).body["event_id"]
    (row,) = scratch_db.rows("select event_id::text from events where seq = 2")
    body = {"event_ids": [row[0], large_id]}
    erasure = gateway.call("POST", ERASURES, body, key=eraser).body
    gateway.run_job("eraser")
    scratch_db.rows("update blob_removals set marked_at = marked_at - interval '1 hour'")
    with monkeypatch.context() as patch:

        def crash(*_: object, **__: object) -> None:
            raise RuntimeError(step)

        patch.setattr(place, step, crash)
        gateway.run_job("eraser", "acme")
    gateway.run_job("eraser", "acme")
    state = gateway.call("GET", f"{ERASURES}/{erasure['erasure_id']}", key=eraser).body
    assert state["state"] == "complete"
    assert traces(scratch_db) == []
    rows = scratch_db.rows(
        "select count(*) from erased_chains union all select count(*) from erased_payloads"
    )
    assert rows == [(0,), (0,)]


def erase_meanwhile(
    monkeypatch: pytest.MonkeyPatch, place: object, name: str, act: Callable[[], object]
) -> None:
    """Act once, when this is called and has read what it needs."""
    original: Any = getattr(place, name)
    results: list[bool] = []

    def late(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        if not results:
            results.append(True)
            act()
        return result

    monkeypatch.setattr(place, name, late)


def test_eraser_lets_stale_fold_store_nothing(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    tell: Tell,
    eraser: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tell(eraser, "The harbour opens at nine.")
    event_id = tell(eraser, "My sister Zyxcanary likes boats.")["event_id"]
    gateway.sweep()
    erase_meanwhile(
        monkeypatch, enrichment, "_describe_and_judge_run", lambda: erase(gateway, eraser, event_id)
    )
    fold_all(gateway, scratch_db)
    assert traces(scratch_db) == []
    rows = scratch_db.rows("select count(*) from chain_events")
    assert rows == [(1,)]


def test_eraser_lets_stale_promotion_store_nothing(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    tell: Tell,
    eraser: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for text in ("I live in Lisbon now, near the river.", "I'm allergic to penicillin."):
        tell(eraser, text)
    event_id = tell(eraser, "My sister Zyxcanary comes on Friday.")["event_id"]
    fold_all(gateway, scratch_db)
    warm(scratch_db)
    erase_meanwhile(
        monkeypatch, promoter, "extract_from_chain", lambda: erase(gateway, eraser, event_id)
    )
    gateway.run_job("promoter")
    assert traces(scratch_db) == []
    gateway.run_job("eraser")
    warm(scratch_db)
    gateway.run_job("promoter")
    assert traces(scratch_db) == []
    assert scratch_db.rows("select count(*) > 0 from graph_nodes") == [(True,)]


def test_eraser_lets_stale_build_store_nothing(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    tell: Tell,
    eraser: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = talk(gateway, scratch_db, tell, eraser)
    scratch_db.rows(
        "set session_replication_role = replica; truncate topic_tree, snapshot_scopes, topic_nodes,"
        " topic_events, snapshots, active_snapshot, topic_builds, topic_build_scopes"
    )
    scratch_db.rows(
        "insert into topic_work (tenant_id, scope_id, participants, waiting, oldest_at, newest_at,"
        " last_position) select tenant_id, scope_id, participants, 1, now(), now(), max(position)"
        " from chain_versions group by 1, 2, 3 on conflict do nothing"
    )
    erase_meanwhile(monkeypatch, LlmTasks, "overview", lambda: erase(gateway, eraser, ids[2]))
    build(gateway)
    assert traces(scratch_db) == []
    gateway.run_job("eraser")
    build(gateway)
    assert traces(scratch_db) == []


def test_eraser_waits_for_requests_that_read_before(
    gateway: Gateway, tell: Tell, eraser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eraser_job, "_REQUEST_WAIT", timedelta(minutes=1))
    erasure = erase(gateway, eraser, tell(eraser, "Forget me.")["event_id"])
    gateway.run_job("eraser")
    path = f"{ERASURES}/{erasure['erasure_id']}"
    assert gateway.call("GET", path, key=eraser).body["state"] == "hidden"


def test_eraser_completes_no_erasure_before_its_chain(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    tell: Tell,
    eraser: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also for one formed again while its next event is erased."""
    ids = [tell(eraser, f"The harbour opens at {n}.")["event_id"] for n in range(4)]
    fold_all(gateway, scratch_db)
    erasures = [erase(gateway, eraser, one) for one in ids[:2]]
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise Unavailable("no model")

        patch.setattr(retry_enrichment, "retry_enrichment", fail)
        gateway.run_job("eraser", "acme")
        assert [state_of(gateway, eraser, one)["state"] for one in erasures] == ["hidden"] * 2

        def late() -> None:
            erasures.append(erase(gateway, eraser, ids[2]))

        patch.undo()
        erase_meanwhile(patch, retry_enrichment, "retry_enrichment", late)
        gateway.run_job("eraser", "acme")
    states = [state_of(gateway, eraser, one)["state"] for one in erasures]
    assert states == ["complete", "complete", "hidden"]
    gateway.run_job("eraser", "acme")
    assert state_of(gateway, eraser, erasures[2])["state"] == "complete"
    assert scratch_db.rows(
        "select summary <> '' from chains join chain_versions using (tenant_id, chain_id, version)"
    ) == [(True,)]


def test_eraser_sets_unreadable_at_after_last_read(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    """Not since it was asked for: others read it while the erasure waits for the scope."""
    event_id = tell(eraser, "Forget me.")["event_id"]
    with (
        psycopg.connect(scratch_db.admin_url) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        other.execute("select from scopes for update")
        waiting = threads.submit(erase, gateway, eraser, event_id)
        while not scratch_db.rows("select 1 from pg_locks where not granted"):
            assert not waiting.done()
        read = scratch_db.rows("select content, clock_timestamp() from events")
        other.commit()
        erasure = waiting.result()
    ((content, read_at),) = read
    assert content == "Forget me."
    assert datetime.fromisoformat(erasure["unreadable_at"]) > read_at
    assert scratch_db.rows("select cleared_at > %s from erasures", read_at) == [(True,)]


def test_eraser_without_work_plans_nothing(gateway: Gateway) -> None:
    gateway.key()
    assert gateway.run_job("eraser") == {}
    assert eraser_job.name == "eraser"
