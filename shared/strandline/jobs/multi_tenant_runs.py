"""A run's jobs in all its tenants: they are begun and closed many with one call; each fails
alone."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from strandline.db.database import Database
from strandline.jobs import store_multi_tenant_runs

TENANTS_PER_CALL = 50
"""How many tenants share a round trip and a commit. Each is a subtransaction, and more than 64 in a
transaction would slow down every other session."""
_MAX_FAILURES_IN_A_ROW = 3
"""After this many tenants in a row whose jobs could not begin, the cause is taken to be common to
all of them."""


@dataclass
class JobClaimsByTenant:
    """The outcome of beginning a run's job in each tenant; tenants whose job belongs to another run
    are left out."""

    tenants: set[str] = field(default_factory=set[str])
    """The tenants in which it has begun."""
    failures: dict[str, Exception] = field(default_factory=dict[str, Exception])
    """Why it could not begin in others."""


def claim_tenants(
    database: Database,
    kind: str,
    run: str,
    shards: Mapping[str, int],
    now: datetime,
    claims: JobClaimsByTenant,
) -> None:
    """Begin the run's job in each tenant that `shards` names, with so many shards, and note in
    `claims` how that ended. A failure in one tenant does not stop the others; one that is not the
    tenants' own is raised, with what came before it noted."""
    failures_in_a_row = 0
    for batch in itertools.batched(sorted(shards), TENANTS_PER_CALL, strict=False):
        counts = {tenant: shards[tenant] for tenant in batch}
        common_error: Exception | None = None
        for outcome in store_multi_tenant_runs.claim_run(
            database.connection(), kind, run, counts, now
        ):
            if outcome.error is None:
                failures_in_a_row = 0
                if outcome.is_claimed:
                    claims.tenants.add(outcome.tenant)
                continue
            claims.failures[outcome.tenant] = outcome.error
            failures_in_a_row += 1
            if failures_in_a_row == _MAX_FAILURES_IN_A_ROW:
                common_error = outcome.error
        if common_error is not None:
            raise common_error


def fail_unfinished_jobs(
    database: Database,
    kind: str,
    run: str,
    reasons: Mapping[str, str],
    now: datetime,
    *,
    create: bool = False,
) -> dict[str, Exception]:
    """Mark the run's unfinished job as failed in each tenant that `reasons` names; with `create`,
    also where it has not begun. Returns why that failed in some tenants; it does not stop the
    others. Raises Unavailable."""
    failures: dict[str, Exception] = {}
    for batch in itertools.batched(sorted(reasons), TENANTS_PER_CALL, strict=False):
        part = {tenant: reasons[tenant] for tenant in batch}
        outcomes = store_multi_tenant_runs.fail_unfinished_jobs(
            database.connection(), kind, run, part, now, create=create
        )
        failures |= {outcome.tenant: outcome.error for outcome in outcomes if outcome.error}
    return failures
