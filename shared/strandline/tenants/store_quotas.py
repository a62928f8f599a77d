"""Quotas: the limits that operators set, the units leased, and the actual usage."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

from strandline.config_quotas import QUOTAS, Quota
from strandline.db.connection import Connection, fetch_tenant_ids
from strandline.db.database import TenantDb

type Limits = Mapping[str, float | None]
"""The limits that an operator set for one tenant, by name. None means the deployment's default, 0
allows nothing."""

_COLUMNS: Mapping[LiteralString, LiteralString] = {
    **{quota.limit: quota.column for quota in QUOTAS},
    "model_usd_per_month": "model_usd_per_month",
}
"""The column of `tenants` for each limit's name. These literals are joined into statements."""
NO_LIMITS: Limits = dict.fromkeys(_COLUMNS)
"""No limits are set: the deployment's defaults apply."""


def read_quota_limits(access: TenantDb) -> Limits | None:
    """All limits of the caller's tenant; None if the tenant does not exist."""
    columns = ", ".join([f"{column} as {name}" for name, column in _COLUMNS.items()])
    rows = access.fetch(
        dict[str, float | None],
        "select " + columns + " from tenants where tenant_id = current_tenant()",  # noqa: S608
        {},
    )
    return rows[0] if rows else None


def set_quota_limits(access: TenantDb, limits: Limits) -> bool:
    """Set all limits of the caller's tenant; omitted limits are set to None. They are in force
    everywhere after a minute. Needs a `transaction`. Returns False if the tenant does not exist.
    Each limit is None or at least 0; rates and USD are at most 10^9."""
    assert limits.keys() <= NO_LIMITS.keys(), "unknown limit name"
    columns = ", ".join([f"{column} = %({name})s" for name, column in _COLUMNS.items()])
    return (
        access.execute(
            "update tenants set " + columns + " where tenant_id = current_tenant()",  # noqa: S608
            {**NO_LIMITS, **limits},
        )
        > 0
    )


@dataclass(frozen=True)
class QuotaLease:
    """The result of a lease."""

    granted: int
    """The number of units granted; 0 if fewer are available than needed."""
    limit: int
    at_once: int
    """The maximum that the limit grants at once, after a while without use."""
    retry_after: float
    """Seconds after which a retry can succeed; 0 if units were granted."""


def lease_quota_units(
    access: TenantDb, quota: Quota, units: int, default: int, burst_seconds: float
) -> QuotaLease:
    """Lease at least `units` of the caller's tenant's quota, up to a slice, or nothing. Runs in its
    own transaction, in one round trip that does not wait for the disk. Must be called outside of
    any other transaction."""
    (result,) = access.fetch(
        QuotaLease,
        "select * from lease_quota(%(quota)s, %(need)s, %(default)s, %(burst)s::numeric)",
        {"quota": quota, "need": units, "default": default, "burst": burst_seconds},
    )
    return result


@dataclass(frozen=True)
class QuotaUsage:
    """The current usage of a quota."""

    quota: Quota
    limit: int
    at_once: int
    used: int
    """The part of `at_once` that is used, or leased for use."""
    refill_seconds: float
    """For a rate: seconds until all of it is available again, if nothing more is used."""
    leased: int
    """All units ever leased: those that were used, and those that expired unused."""
    measured: int | None
    measured_scopes: int | None
    measured_events: int | None
    measured_at: datetime | None


def read_quota_usage(
    access: TenantDb, defaults: Mapping[Quota, int], burst_seconds: float
) -> list[QuotaUsage]:
    """Read the quotas of the caller's tenant, in the order of `defaults`."""
    rows = access.fetch(
        QuotaUsage,
        """
        select request.quota, cap.units as "limit", burst.units as at_once, used.units as used,
            case when request.quota = 'stored_bytes' or cap.units = 0 then 0
                else used.units * 60.0 / cap.units end::float8 as refill_seconds,
            coalesce(q.leased, 0) as leased, q.measured, q.measured_scopes, q.measured_events,
            q.measured_at
        from unnest(%(quotas)s::text[], %(defaults)s::bigint[]) with ordinality
            request (quota, fallback, place)
        left join quotas q on q.tenant_id = current_tenant() and q.quota = request.quota
        cross join lateral quota_limit(request.quota, request.fallback) cap (units)
        cross join lateral quota_at_once(request.quota, cap.units, %(burst)s::numeric)
            burst (units)
        cross join lateral (
            select coalesce(ceil(quota_used(q, cap.units, burst.units, now())), 0)::bigint
        ) used (units)
        order by request.place
        """,
        {
            "quotas": list(defaults),
            "defaults": list(defaults.values()),
            "burst": burst_seconds,
        },
    )
    return list(rows)


def list_tenants_to_recount(connection: Connection, seconds: int, limit: int) -> list[str]:
    """List the tenants whose stored bytes were counted at least `seconds` ago and have changed
    since."""
    return fetch_tenant_ids(
        connection,
        "select * from tenants_to_recount(now() - make_interval(secs => %s), %s)",
        (seconds, limit),
    )


@dataclass(frozen=True)
class _QuotaNameRow:
    quota: Quota


def is_recount_due(access: TenantDb, seconds: int) -> bool:
    """Whether the caller's tenant is one of `list_tenants_to_recount`."""
    return bool(
        access.fetch(
            _QuotaNameRow,
            """
            select q.quota from quotas q
            where q.quota = 'stored_bytes' and (
                q.measured_at is null
                or q.measured_at < now() - make_interval(secs => %(seconds)s) and (
                    q.level <> q.measured
                    or q.measured_at
                        < now() - make_interval(secs => %(seconds)s) - interval '1 day'))
            """,
            {"seconds": seconds},
        )
    )


def recount_stored_usage(access: TenantDb) -> None:
    """Count what the caller's tenant stores, and set the level of its quota to that sum plus the
    units that instances may still hold; needs a `transaction`. It counts before it locks the row,
    so that no lease waits for the count; units leased meanwhile are among the recent units.

    The units that instances may hold are at most the recent units, and at most the level's excess
    over the counted sum, because each unit was added to the level when it was leased. The smaller
    of the two is used. So a count never raises the level, and the level is never below what is
    stored and held. It exceeds that by units that expired or were removed, but by no more than was
    leased in the last 3 to 6 minutes. A level below the counted sum (data older than its quota,
    leases lost in a crash) is not meaningful, so all recent units are added then.
    """
    access.execute(
        """
        update quotas q set
            level = counts.bytes + case
                when q.level < counts.bytes then in_flight_units(q, now())
                else least(in_flight_units(q, now()), q.level - counts.bytes) end,
            measured = counts.bytes, measured_scopes = counts.scopes,
            measured_events = counts.events, measured_at = now()
        from (
            select count(*) as scopes, coalesce(sum(last_seq), 0) as events,
                coalesce(sum(stored_bytes), 0) + pending_upload_bytes() as bytes
            from scopes
        ) counts
        where q.tenant_id = current_tenant() and q.quota = 'stored_bytes'
        """,
        {},
    )
