"""Erasure while a scope waits to be folded again: what was decided of it brings nothing back."""

import pytest

from strandline.chains.refold import drop_chains_to_refold
from strandline.db.database import Caller
from strandline.tenants.store_audit import AuditContext
from tests.strandline.erasure.erasure_calls import CANARY, ERASURES, erase, read_all, talk, traces
from tests.strandline.topics.outline import build, fold_all
from tests.support import Gateway, ScratchDatabase, Tell


def visible_texts(gateway: Gateway, key: str) -> list[str]:
    """The reads that show what was erased; one of events repeats its question."""
    return [
        path
        for path, text in read_all(gateway, key)
        if CANARY in text and not path.endswith("events/query")
    ]


PARTLY = """
    with dropped as (delete from chain_events where seq > 3),
    topics as (delete from topic_events where seq > 3)
    update scopes set folded_seq = 3, fold_no = fold_no + 1
"""
"""As if the last run, which is merged into the chain, is not folded again yet."""


@pytest.mark.parametrize("is_partly_folded", [False, True])
def test_erasure_refold_of_waiting_scope_restores_nothing(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    tell: Tell,
    eraser: str,
    is_partly_folded: bool,
) -> None:
    ids = talk(gateway, scratch_db, tell, eraser)
    access = gateway.database.connect_as(Caller.background("acme"))
    if is_partly_folded:
        scratch_db.rows(PARTLY)
    else:
        drop_chains_to_refold(access, AuditContext("a test"), None)
    erasure = erase(gateway, eraser, ids[2])
    assert (traces(scratch_db), visible_texts(gateway, eraser)) == ([], [])
    gateway.run_job("eraser")
    fold_all(gateway, scratch_db)
    assert build(gateway).get("snapshots_published") == 1
    gateway.run_job("eraser")
    state = gateway.call("GET", f"{ERASURES}/{erasure['erasure_id']}", key=eraser).body["state"]
    assert (state, traces(scratch_db), visible_texts(gateway, eraser)) == ("complete", [], [])
    rows = scratch_db.rows(
        "select bool_and(v.summary <> ''), sum(v.event_count)::int from chains"
        " join chain_versions v using (tenant_id, chain_id, version)"
    )
    assert rows == [(True, 4)]
    assert scratch_db.rows("select count(*) from chain_events") == [(4,)]


@pytest.mark.parametrize("is_job_first", [False, True])
def test_erasure_refold_leaves_chain_with_text(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str, is_job_first: bool
) -> None:
    """Also where its first event, which names it, was erased: before the job, and after it."""
    ids = talk(gateway, scratch_db, tell, eraser)
    access = gateway.database.connect_as(Caller.background("acme"))
    for erased_id, rest in ((ids[0], 4), (ids[1], 3)):
        erasure = erase(gateway, eraser, erased_id)
        if is_job_first:
            gateway.run_job("eraser")
        for _ in range(2):
            drop_chains_to_refold(access, AuditContext("a test"), None)
            fold_all(gateway, scratch_db)
        gateway.run_job("eraser")
        rows = scratch_db.rows(
            "select bool_and(v.summary <> ''), sum(v.event_count)::int from chains"
            " join chain_versions v using (tenant_id, chain_id, version)"
        )
        assert rows == [(True, rest)]
        path = f"{ERASURES}/{erasure['erasure_id']}"
        assert gateway.call("GET", path, key=eraser).body["state"] == "complete"
    assert build(gateway).get("snapshots_published") == 1
