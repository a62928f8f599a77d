"""Clocks that ran a year ahead and were put back: what was stored meanwhile holds up nothing."""

from datetime import UTC, datetime, timedelta

import pytest

from strandline.config import get_settings
from strandline.db.database import Caller
from strandline.function_specs import JOBS
from strandline.jobs import next_runs, store_runs
from tests.support import Gateway, ScratchDatabase, Tell, begin_run

ERASURES = "/api/v1/erasures"

AHEAD = {
    "scope_work": "update scope_work set due_at = due_at + interval '1 year'",
    "scope_work leases": "update scope_work set leased_until = now() + interval '1 year'",
    "tenants": "update tenants set swept_at = now() + interval '1 year'",
}
"""What such a clock leaves where a scope waits for its worker."""


@pytest.mark.parametrize("statement", AHEAD.values(), ids=AHEAD.keys())
def test_clock_jump_does_not_delay_fold(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell, statement: str
) -> None:
    key = gateway.key()
    tell(key, "The boat is in the yard.")
    gateway.sweep()
    tell(key, "The buoy goes out on Friday.")
    if statement == AHEAD["tenants"]:
        scratch_db.rows("delete from scope_work")
    scratch_db.rows(statement)
    gateway.sweep()
    assert scratch_db.rows("select last_seq - folded_seq from scopes") == [(0,)]
    assert scratch_db.rows("select count(*) from event_vectors") == [(2,)]


def next_sweep_at(gateway: Gateway, now: datetime) -> datetime | None:
    return next_runs.find_next_run_times(
        gateway.database.connection(),
        space=None,
        heat=get_settings().tuning.heat_time_parameters(),
        grace=timedelta(days=1),
        period=next_runs.GARBAGE_PERIOD,
        spacing={job.name: job.min_spacing for job in JOBS},
        now=now,
    ).get("sweeper")


def test_clock_jump_keeps_sweep_due(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    tell(gateway.key(), "The buoy goes out on Friday.")
    scratch_db.rows(AHEAD["scope_work"])
    now = datetime.now(UTC)
    assert next_sweep_at(gateway, now) == now
    gateway.sweep()
    later = next_sweep_at(gateway, now)
    assert later is None or later > now, "a sweep asks for the next one at once"


def test_clock_jump_does_not_delay_erasure(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    key = gateway.key(rights=("read", "write", "erase"))
    event_id = tell(key, "zyxcanary")["event_id"]
    asked = gateway.call("POST", ERASURES, {"event_ids": [event_id]}, key=key)
    assert asked.status == 202
    scratch_db.rows(
        "update erasures set asked_at = asked_at + interval '1 year', hidden_at = hidden_at"
        " + interval '1 year', cleared_at = cleared_at + interval '1 year',"
        " due_at = now() + interval '1 year'"
    )
    gateway.sweep()
    scratch_db.rows("update erasures set cleared_at = cleared_at - interval '2 minutes'")
    gateway.run_job("eraser")
    state = gateway.call("GET", f"{ERASURES}/{asked.body['erasure_id']}", key=key).body
    assert state["state"] == "complete"
    assert state["receipt"]


def test_clock_jump_does_not_hold_job_lease(gateway: Gateway) -> None:
    gateway.key()
    now = datetime.now(UTC)
    assert begin_run(gateway.database, "archiver", "r", 1, now + timedelta(days=365))
    assert begin_run(gateway.database, "archiver", "another", 1, now)
    access = gateway.database.connect_as(Caller.background("acme"))
    with access.transaction():
        assert store_runs.lease_shard(access, "archiver", "r", 0, now) is None
        assert store_runs.lease_shard(access, "archiver", "another", 0, now) is not None


def test_clock_jump_repair_leaves_present_times(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    """Work that waits, in a tenant that lets lanes rest for weeks."""
    tell(gateway.key(), "The buoy goes out on Friday.", session_id="s-1")
    gateway.sweep()
    scratch_db.rows("update lanes set idle_at = now() + interval '20 days'")
    tell(gateway.key(), "The boat is in the yard.")
    scratch_db.rows("update scope_work set due_at = now() + interval '23 hours'")
    access = gateway.database.connect_as(Caller.background("acme"))
    with access.transaction():
        assert scratch_db.rows("select count(*) from tenants_with_times_ahead(now())") == [(0,)]
        assert access.fetch(dict, "select put_times_back(now()) as n", {}) == [{"n": 0}]


def test_clock_jump_does_not_keep_lane_open(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    tell(gateway.key(), "The buoy goes out on Friday.", session_id="s-1")
    gateway.sweep()
    scratch_db.rows("update scopes set last_recorded_at = last_recorded_at + interval '1 year'")
    scratch_db.rows("update lanes set idle_at = idle_at + interval '1 year'")
    scratch_db.rows("update tenants set swept_at = swept_at - interval '1 day'")
    gateway.sweep()
    scratch_db.rows("update lanes set idle_at = idle_at - interval '31 minutes'")
    gateway.sweep()
    assert scratch_db.rows("select count(*) from chain_events") == [(1,)]
