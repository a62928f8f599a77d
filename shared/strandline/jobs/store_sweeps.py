"""SQL for sweeps: tenants with work, and scans for work that no row names."""

from dataclasses import dataclass
from datetime import datetime

from strandline.db.connection import Connection, fetch_tenant_ids
from strandline.db.database import TenantDb


def list_tenants_to_sweep(connection: Connection, space: str, now: datetime) -> list[str]:
    """Ids of the tenants in which scopes, lanes or jobs wait for a sweep, or that were not scanned
    for this embedding space today; a day begins when the daily sweep runs."""
    return fetch_tenant_ids(connection, "select * from tenants_to_sweep(%s, %s)", (space, now))


def list_tenants_behind(connection: Connection, now: datetime, limit: int) -> list[str]:
    """Ids of the tenants whose scopes or erasures are late, at most `limit` for each, the worst of
    them."""
    return fetch_tenant_ids(connection, "select * from tenants_behind(%s, %s)", (now, limit))


def list_tenants_with_implausible_due_times(connection: Connection, now: datetime) -> list[str]:
    """Ids of the tenants in which work is due at a time that only a clock which was put back since
    can have stored."""
    return fetch_tenant_ids(connection, "select * from tenants_with_times_ahead(%s)", (now,))


@dataclass(frozen=True)
class _CountRow:
    count: int


def reset_implausible_due_times(access: TenantDb, now: datetime) -> int:
    """Make due what such times hold up, and free what they lease. Returns how many rows had one.
    In a transaction."""
    (row,) = access.fetch(_CountRow, "select put_times_back(%(now)s) as count", {"now": now})
    return row.count


@dataclass(frozen=True)
class _ScanDueRow:
    due: bool


def is_full_scan_due(access: TenantDb, space: str, now: datetime) -> bool:
    """Whether all of the tenant's scopes are due for a scan, to find work that no row names."""
    (row,) = access.fetch(
        _ScanDueRow,
        "select swept_space is distinct from %(space)s"
        " or swept_at < sweep_day_start(%(now)s::timestamptz) as due"
        " from tenants where tenant_id = current_tenant()",
        {"space": space, "now": now},
    )
    return row.due


def record_full_scan(access: TenantDb, space: str, now: datetime) -> None:
    """Record that all of the tenant's scopes were scanned. In a transaction."""
    access.execute(
        "update tenants set swept_space = %(space)s, swept_at = %(now)s"
        " where tenant_id = current_tenant()",
        {"space": space, "now": now},
    )
