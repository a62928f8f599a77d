"""Clocks that ran a year ahead and were put back: what was stored meanwhile holds up nothing."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from strandline.db.database import Caller
from strandline.jobs import schedule_next_runs, store_runs
from strandline.jobs.store_next_run_times import find_next_run_times
from tests.functions.conftest import Tell
from tests.support import Gateway, ScratchDatabase, begin_run

AHEAD = {
    "scope_work": "update scope_work set due_at = due_at + interval '1 year'",
    "scope_work leases": "update scope_work set leased_until = now() + interval '1 year'",
    "tenants": "update tenants set swept_at = now() + interval '1 year'",
}
"""What such a clock leaves where a scope waits for its worker."""


@pytest.mark.parametrize("statement", AHEAD.values(), ids=AHEAD.keys())
def test_a_scope_is_folded_though_its_work_is_due_in_a_year(
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
