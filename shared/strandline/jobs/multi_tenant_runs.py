"""A run's jobs in all its tenants: they are begun and closed many with one call; each fails
alone."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import LiteralString

from psycopg.rows import class_row
from uuid_utils.compat import uuid7

from strandline.db.connection import Connection, error_of_state, fetch_tenant_ids, translate_errors
from strandline.db.database import Database
from strandline.jobs import store_runs

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


def begin_run_in_tenants(
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
        for outcome in begin_run_in_one_transaction(database.connection(), kind, run, counts, now):
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
        outcomes = fail_run_in_one_transaction(
            database.connection(), kind, run, part, now, create=create
        )
        failures |= {outcome.tenant: outcome.error for outcome in outcomes if outcome.error}
    return failures


_CLAIMED, _TAKEN, _CLOSED = "claimed", "taken", "closed"
"""How a call may end in a tenant; any other outcome is the SQLSTATE of what failed."""


@dataclass(frozen=True)
class _TenantCallRow:
    tenant: str
    outcome: str


@dataclass(frozen=True)
class TenantCallOutcome:
    """How a call ended in one tenant."""

    tenant: str
    is_claimed: bool = False
    """The run's job has begun there."""
    error: Exception | None = None
    """What failed there, without the text of the driver's error."""


def begin_run_in_one_transaction(
    connection: Connection, kind: str, run: str, shards: Mapping[str, int], now: datetime
) -> list[TenantCallOutcome]:
    """Begin the run's job of this kind in each tenant that `shards` names, with so many shards, in
    one transaction. A tenant whose job belongs to another run is left as it is, one that fails is
    undone alone. Doing it again changes nothing, except that a job which a failed plan had closed
    is open again. Outcomes are in the order of tenants."""
    return _call_in_tenants(
        connection,
        "select * from claim_run(%s, %s, %s, %s::int[], %s, %s, %s)",
        (
            kind,
            run,
            list(shards),
            list(shards.values()),
            [uuid7() for _ in shards],
            timedelta(seconds=store_runs.PLAN_LEASE_SECONDS),
            now,
        ),
    )


def fail_run_in_one_transaction(
    connection: Connection,
    kind: str,
    run: str,
    reasons: Mapping[str, str],
    now: datetime,
    *,
    create: bool,
) -> list[TenantCallOutcome]:
    """Mark the run's unfinished job as failed in each tenant that `reasons` names, in one
    transaction, with the reason of its first failed shard, or else the one given. With `create`, a
    tenant without such a job gets one. Call it once no shard of the run is working. A tenant that
    fails is undone alone."""
    return _call_in_tenants(
        connection,
        "select * from close_run(%s, %s, %s, %s, %s::uuid[], %s, %s)",
        (
            kind,
            run,
            list(reasons),
            list(reasons.values()),
            [uuid7() for _ in reasons] if create else None,
            timedelta(seconds=store_runs.PLAN_LEASE_SECONDS),
            now,
        ),
    )


def list_unfinished_tenants(connection: Connection, kind: str, run: str) -> list[str]:
    """Ids of the tenants whose job of this run is not done."""
    return fetch_tenant_ids(connection, "select * from tenants_of_run(%s, %s)", (kind, run))


def _call_in_tenants(
    connection: Connection, statement: LiteralString, params: tuple[object, ...]
) -> list[TenantCallOutcome]:
    with (
        translate_errors(connection),
        connection.cursor(row_factory=class_row(_TenantCallRow)) as cursor,
    ):
        rows = cursor.execute(statement, params).fetchall()
    return [
        TenantCallOutcome(row.tenant, row.outcome == _CLAIMED)
        if row.outcome in (_CLAIMED, _TAKEN, _CLOSED)
        else TenantCallOutcome(row.tenant, error=error_of_state(row.outcome, connection))
        for row in rows
    ]
