"""SQL for a run's jobs in many tenants at once: they begin, and what is left of them is closed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import LiteralString

from psycopg.rows import class_row
from uuid_utils.compat import uuid7

from strandline.db.connection import Connection, error_of_state, translate_errors
from strandline.jobs import store_runs
from strandline.tenants.store_tuning import fetch_tenant_ids

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


def claim_run(
    connection: Connection, kind: str, run: str, shards: Mapping[str, int], now: datetime
) -> list[TenantCallOutcome]:
    """Begin the run's job of this kind in each tenant that `shards` names, with so many shards, in
    one transaction. A tenant whose job belongs to another run is left as it is, one that fails is
    undone alone. Doing it again changes nothing, except that a job which a failed plan had closed
    is open again. Outcomes are in the order of tenants."""
    return _call(
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


def fail_unfinished_jobs(
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
    return _call(
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


def _call(
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
