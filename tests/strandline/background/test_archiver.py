"""The archiver: cold chains leave mid-term memory, and nothing else of them goes."""

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from moto.s3.models import s3_backends

from strandline.aws.run_requests import MIN_SPACING
from strandline.chains import store_archiving
from strandline.db.database import Database
from strandline.jobs import next_runs
from strandline.jobs.next_runs import GARBAGE_PERIOD
from strandline.local.aws import LocalAws, make_local_client
from strandline.local.lambda_context import ACCOUNT_ID
from tests.support import Gateway, ScratchDatabase, Tell
from tests.uploads import cid_of, put_unchecked

OLD = "2024-03-01T10:00:00Z"


def form_chain(base: ScratchDatabase, gateway: Gateway, tell: Tell, **more: object) -> None:
    """A chain of one event."""
    tell(gateway.key(), "The buoy goes out on Friday with a new battery.", **more)
    gateway.sweep()
    base.rows("update lanes set idle_at = now() - interval '1 second'")
    gateway.sweep()
    base.rows("update chain_versions set rejected = null")
    base.rows("update chains set status = 'active', archived_at = null")


def test_archiver_archives_cold_chain(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    form_chain(scratch_db, gateway, tell)
    before = scratch_db.rows(
        "select count(*) from events join chain_events using (tenant_id, event_id)"
    )
    gateway.run_job("archiver")
    assert scratch_db.rows("select status from chains") == [("active",)]
    scratch_db.rows("update chains set cold_at = now() - interval '1 second'")
    gateway.run_job("archiver")
    assert scratch_db.rows("select status, archived_at is not null from chains") == [
        ("archived", True)
    ]
    assert scratch_db.rows("select count(*) from chain_vectors") == [(0,)]
    assert before == scratch_db.rows(
        "select count(*) from events join chain_events using (tenant_id, event_id)"
    )
    assert scratch_db.rows("select count(*) from chain_versions") == [(1,)]


def test_archiver_spares_freshly_imported_old_history(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    form_chain(scratch_db, gateway, tell, occurred_at=OLD)
    assert scratch_db.rows("select extract(year from last_event_at)::int from chains") == [(2024,)]
    gateway.run_job("archiver")
    assert scratch_db.rows("select status, cold_at > now() + interval '6 days' from chains") == [
        ("active", True)
    ]
    # And if only its age counted it would be (planted).
    scratch_db.rows("update chains set cold_at = last_event_at + interval '7 days'")
    gateway.run_job("archiver")
    assert scratch_db.rows("select status from chains") == [("archived",)]


def test_archiver_spares_chain_with_uncounted_recall(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    form_chain(scratch_db, gateway, tell)
    scratch_db.rows("update chains set cold_at = now() - interval '1 second'")
    scratch_db.rows(
        "insert into recalls (tenant_id, recall_id, chain_id, scope_id, participants, recalled_at)"
        " select tenant_id, uuidv7(), chain_id, scope_id, participants, now() from chains"
    )
    gateway.run_job("archiver")
    assert scratch_db.rows("select status from chains") == [("active",)]


def test_archiver_job_definition_names_no_deployment(repository: Path) -> None:
    text = (repository / "infra" / "job.asl.json").read_text()
    assert text.count("${") == text.count("${Bucket}") + text.count("${FunctionPrefix}")
    assert "JSONata" not in text


def test_archiver_drops_removal_mark_of_missing_payload(
    scratch_db: ScratchDatabase, gateway: Gateway, aws: LocalAws
) -> None:
    """It would have the archiver come for it every day. One whose payload is there stays."""
    gateway.key()
    for name in (b"goes", b"stays"):
        put_unchecked(aws, f"acme/{cid_of(name)}", name)
    bucket: Any = s3_backends[ACCOUNT_ID]["aws"].buckets[aws.bucket]
    for key in bucket.keys.values():
        key.last_modified -= timedelta(days=2)
    gateway.run_job("archiver", "acme")
    assert scratch_db.rows("select count(*) from blob_removals") == [(2,)]
    with closing(make_local_client("s3")) as s3:
        s3.delete_object(Bucket=aws.bucket, Key=f"acme/{cid_of(b'goes')}")
    gateway.run_job("archiver", "acme")
    assert scratch_db.rows("select count(*) from blob_removals") == [(2,)], "too early to tell"
    scratch_db.rows("update blob_removals set marked_at = marked_at - interval '1 hour'")
    scratch_db.rows("update blob_scans set ended_at = ended_at - interval '1 hour'")
    gateway.run_job("archiver", "acme")
    rows = scratch_db.rows("select cid, removing_until is not null from blob_removals")
    assert rows == [(cid_of(b"stays"), True)]


LATE = """
insert into quotas (tenant_id, quota, theoretical_arrival_at) values ('acme', 'appends',
    %s::timestamptz)
on conflict (tenant_id, quota) do update
    set theoretical_arrival_at = excluded.theoretical_arrival_at
"""


def test_archiver_scans_payloads_once_per_period_when_due(
    scratch_db: ScratchDatabase, gateway: Gateway
) -> None:
    """Appends every hour of a morning, with an hour's grace: what is said to be due is done."""
    gateway.key()
    hour, day = timedelta(hours=1), datetime(2026, 11, 21, tzinfo=UTC)
    scratch_db.rows("insert into blob_scans (tenant_id, ended_at) values ('acme', %s)", day - hour)
    looked = list[int]()
    with closing(Database(scratch_db.url)) as database:
        connection = database.connection()

        def comes(now: datetime) -> datetime | None:
            coming = next_runs.find_next_run_times(
                connection,
                space=None,
                heat={},
                grace=hour,
                period=GARBAGE_PERIOD,
                spacing=MIN_SPACING,
                now=now,
            )
            return coming.get("archiver")

        requests = set[datetime]()
        for n in range(30):
            now = day + n * hour
            if n < 8:
                scratch_db.rows(LATE, now)
            elif now in requests:
                assert store_archiving.list_due_tenants(connection, now, hour) == ["acme"], (
                    "come for nothing"
                )
                scratch_db.rows("update blob_scans set ended_at = %s", now)
                looked.append(n)
            requests.add(comes(now) or day)
    assert looked == [12]
