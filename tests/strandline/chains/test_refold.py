"""Dropped and folded again, chains are as strong and as cold as they were."""

import json
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from strandline.aws.blobs import BlobStore
from strandline.chains import fold_recalls_into_heat, store_archiving, store_recalls
from strandline.chains.fold_scope import close_idle_lanes
from strandline.chains.refold import drop_chains_of_scopes
from strandline.chains.retry_enrichment import retry_enrichment
from strandline.commands.main import main
from strandline.config import get_settings
from strandline.db.database import Caller, Database, TenantDb
from strandline.jobs.worker_resources import WorkerResources
from strandline.local.aws import LocalAws, make_local_client
from strandline.tuning import DEFAULTS
from tests.strandline.chains.fold_fixtures import ALICE, LATER, EchoTasks, append, set_tuning
from tests.strandline.embeddings.fake_embedders import WordEmbedder, make_worker, process_due
from tests.support import Gateway, ScratchDatabase

NOW = datetime.now(UTC)
USE = (
    "select c.chain_id, c.status, c.strength, c.accessed_at, c.boosted_at, c.archived_at,"
    " c.cold_at, c.promote_until, count(v) from chains c left join chain_vectors v using"
    " (tenant_id, chain_id) group by c.tenant_id, c.chain_id order by c.chain_id"
)


@pytest.fixture
def worker(scratch_db: ScratchDatabase, aws: LocalAws) -> Iterator[WorkerResources]:
    """With a minute to work."""
    database = Database(scratch_db.url)
    yield make_worker(database, BlobStore(aws.bucket), WordEmbedder("words/64", 64), EchoTasks())
    database.close()


@pytest.fixture
def access(worker: WorkerResources) -> TenantDb:
    """Background work in one tenant."""
    return worker.database.connect_as(Caller.background("acme"))


def say(gateway: Gateway, session: str, text: str) -> UUID:
    message = {"participants": [ALICE, "agent:a"], "role": "user", "speaker": ALICE}
    event = {**message, "content": text, "session_id": session}
    return UUID(append(gateway, gateway.key(), [event])[0])


@pytest.fixture
def scope(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, access: TenantDb
) -> UUID:
    """Three chains: one recalled, one archived, one archived and then said again."""
    gateway.key()
    set_tuning(scratch_db)
    scope = say(gateway, "s-0", "harbour mooring")
    for n, text in enumerate(("sourdough flour", "nebula lens"), 1):
        assert say(gateway, f"s-{n}", text) == scope
    process_due(worker)
    assert close_idle_lanes(worker, "acme", LATER) == 3
    rows = scratch_db.rows("select chain_id, scope_id, participants from chains order by chain_id")
    for days in (1, 3):
        store_recalls.record_recalled_chains(
            access, uuid.uuid4(), [tuple(rows[0])], NOW + timedelta(days=days)
        )
    assert fold_recalls_into_heat.fold_tenant_recalls_into_heat(access, LATER, 10, DEFAULTS) == 1
    scratch_db.rows("update chains set cold_at = '2020-01-01' where chain_id <> %s", rows[0][0])
    with access.transaction():
        assert store_archiving.archive_cold_chains(access, NOW, 10) == 2
    assert (
        fold_recalls_into_heat.recompute_heat_times(access, 10, DEFAULTS) == 3
    )  # their moments as they were
    retry_enrichment(worker, "acme", rows[2][0], LATER)
    return scope


def test_refold_keeps_heat_and_recalls(
    scratch_db: ScratchDatabase, worker: WorkerResources, access: TenantDb, scope: UUID
) -> None:
    before = scratch_db.rows(USE)
    assert [(status, strength, n) for _, status, strength, *_, n in before] == [
        ("active", 2.25, 1),
        ("archived", 1.0, 0),
        ("archived", 1.0, 0),
    ]
    for _ in range(2):
        drop_chains_of_scopes(access, [scope])
        assert scratch_db.rows("select count(*) from chains") == [(0,)]
        assert scratch_db.rows("select count(*) from recalls where folded_at is null") == [(0,)]
        process_due(worker)
        assert scratch_db.rows("select count(*) from dropped_chain_state") == [(0,)]
    after = scratch_db.rows(USE)
    hour = timedelta(hours=1)
    for one, other in zip(before, after, strict=True):
        assert [*one[:6], one[8]] == [*other[:6], other[8]]
        assert abs(one[6] - other[6]) < hour / 10**6
        assert abs(one[7] - other[7]) < hour / 10**6
    assert fold_recalls_into_heat.fold_tenant_recalls_into_heat(access, LATER, 10, DEFAULTS) == 0


def test_refold_counts_recall_of_dropped_chain(
    scratch_db: ScratchDatabase, worker: WorkerResources, access: TenantDb, scope: UUID
) -> None:
    (chain_id, *_), *_ = scratch_db.rows(USE)
    drop_chains_of_scopes(access, [scope])
    values = (chain_id, scope, ["agent:a", ALICE])
    store_recalls.record_recalled_chains(access, uuid.uuid4(), [values], NOW + timedelta(days=9))
    assert fold_recalls_into_heat.fold_tenant_recalls_into_heat(access, LATER, 10, DEFAULTS) == 0
    process_due(worker)
    assert fold_recalls_into_heat.fold_tenant_recalls_into_heat(access, LATER, 10, DEFAULTS) == 1
    assert scratch_db.rows("select strength from chains where chain_id = %s", chain_id) == [
        (3.375,)
    ]


def test_refold_command_starts_sweep(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    scope: UUID,
    aws: LocalAws,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STRANDLINE_JOB_QUEUE_URL", aws.job_queue_url)
    monkeypatch.setenv("STRANDLINE_SWEEP_SECONDS", "10")
    assert command(scratch_db, monkeypatch, "--tenant", "acme", "--scope", str(scope)) == 0
    with closing(make_local_client("sqs")) as sqs:
        (message,) = sqs.receive_message(QueueUrl=aws.job_queue_url).get("Messages", [])
        sqs.delete_message(QueueUrl=aws.job_queue_url, ReceiptHandle=message["ReceiptHandle"])
    request = json.loads(message["Body"])
    assert request["job"] == "sweeper"
    ahead = datetime.fromisoformat(request["at"]) - datetime.now(UTC)
    assert ahead <= timedelta(seconds=20)


def command(base: ScratchDatabase, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", base.url)
    get_settings.cache_clear()
    return main(["operate", "refold", *arguments])


def make_chain_of_another_scope(gateway: Gateway, worker: WorkerResources, tenant: str) -> UUID:
    message = {"participants": ["user:bo", "agent:a"], "role": "user", "speaker": "user:bo"}
    event = {**message, "content": "lighthouse lamp", "session_id": "s-9"}
    (scope_id,) = append(gateway, gateway.key(tenant), [event])
    process_due(worker)
    assert close_idle_lanes(worker, tenant, LATER) == 1
    return UUID(scope_id)


def test_refold_command_refolds_chains(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    worker: WorkerResources,
    scope: UUID,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    others = [make_chain_of_another_scope(gateway, worker, tenant) for tenant in ("acme", "other")]
    before: list[Any] = scratch_db.rows("select chain_id from chains order by 1")
    assert command(scratch_db, monkeypatch, "--tenant", "acme", "--scope", str(uuid.uuid4())) == 1
    assert "no scope" in capsys.readouterr().err
    assert len(scratch_db.rows("select from chains")) == 5
    assert command(scratch_db, monkeypatch, "--tenant", "acme", "--scope", str(scope)) == 0
    assert "1 scopes" in capsys.readouterr().out
    remaining = scratch_db.rows("select scope_id from chains")
    assert {scope_id for (scope_id,) in remaining} == {*others}, "of this scope alone"
    gateway.sweep()
    assert scratch_db.rows("select chain_id from chains order by 1") == before
    assert command(scratch_db, monkeypatch, "--tenant", "acme") == 0
    gateway.sweep()
    assert scratch_db.rows("select chain_id from chains order by 1") == before
    trail = scratch_db.rows(
        "select target from audit_log where route = 'console refold' order by 1"
    )
    assert trail == [({},), ({"scope_id": str(scope)},)]
