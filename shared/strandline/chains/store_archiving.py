"""SQL for archiving: cold chains to archive, and payloads that no event cites."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from strandline.db.connection import Connection, fetch_tenant_ids
from strandline.db.database import TenantDb
from strandline.jobs.next_runs import GARBAGE_PERIOD

_MIN_MARKED_SECONDS = 900
"""How long a payload stays marked before it is removed: longer than any append that did not see the
mark can run. The longest function that appends has a timeout of 29 s."""
_REMOVAL_TIMEOUT_SECONDS = 900
"""After this time, a removal in progress counts as abandoned: no Lambda function runs longer."""
_REMOVAL_GRACE_SECONDS = 60
"""How long after a removal no append may cite the payload: an append may have stored its bytes
before the removal. This is twice the time of the longest append."""


def list_due_tenants(
    connection: Connection,
    now: datetime,
    grace: timedelta,
    snapshot_age: timedelta = timedelta(days=30),
) -> list[str]:
    """Ids of the tenants with cold chains, with payloads marked for removal, with payloads that
    were not scanned in the current GARBAGE_PERIOD and may include uncited ones older than `grace`,
    or with snapshots of the topic index older than `snapshot_age`."""
    params = (now, GARBAGE_PERIOD, grace, snapshot_age)
    return fetch_tenant_ids(connection, "select * from tenants_to_archive(%s, %s, %s, %s)", params)


@dataclass(frozen=True)
class _ChainId:
    chain_id: UUID


def archive_cold_chains(
    access: TenantDb, now: datetime, limit: int, *, is_promotion_needed: bool = False
) -> int:
    """Archive up to `limit` cold chains, the longest cold first. Returns how many. Their events,
    versions and links are kept. A chain with an unfolded recall is left out, since it may be warm.
    With `is_promotion_needed`, a chain whose current version is not promoted is also left out. In a
    transaction."""
    return len(
        access.fetch(
            _ChainId,
            """
            with cold_chains as materialized (
                select c.scope_id, c.chain_id from chains c
                where c.status = 'active' and c.cold_at <= %(now)s
                    and (c.promoted_version >= c.version or not %(is_promotion_needed)s)
                    and not exists (
                    select from recalls r where r.chain_id = c.chain_id and r.folded_at is null)
                order by c.cold_at limit %(limit)s for update skip locked),
            deleted_vectors as (
                delete from chain_vectors v using cold_chains
                where v.scope_id = cold_chains.scope_id and v.chain_id = cold_chains.chain_id)
            update chains c set status = 'archived', archived_at = %(now)s
            from cold_chains where c.chain_id = cold_chains.chain_id
            returning c.chain_id
            """,
            {"now": now, "limit": limit, "is_promotion_needed": is_promotion_needed},
        )
    )


@dataclass(frozen=True)
class _UncitedPayloadScanPosition:
    position: str


@dataclass(frozen=True)
class _Cid:
    cid: str


def begin_payload_scan(access: TenantDb) -> str:
    """Lock the tenant's scan and return the CID after which it continues; '' is the beginning.
    Deletes removals whose grace period is over. In a transaction."""
    access.execute("delete from blob_removals where removing_until < now()", {})
    access.execute(
        "insert into blob_scans (tenant_id) values (current_tenant()) on conflict do nothing", {}
    )
    (scan,) = access.fetch(
        _UncitedPayloadScanPosition, "select position from blob_scans for no key update", {}
    )
    return scan.position


def record_payload_scan(access: TenantDb, position: str, now: datetime, grace: timedelta) -> None:
    """Record that the scan has reached this CID; '' means that it has ended. Deletes the marks that
    were set before the last scan ended and that neither scan used, because their payloads no longer
    exist. Another scan becomes due only for events appended within `grace` or later. In a
    transaction."""
    access.execute(
        "delete from blob_removals r using blob_scans p where %(position)s = ''"
        " and r.removing_until is null and r.marked_at < p.ended_at"
        " and r.marked_at < now() - make_interval(secs => %(seconds)s)",
        {"position": position, "seconds": _MIN_MARKED_SECONDS},
    )
    access.execute(
        "update blob_scans set position = %(position)s,"
        " ended_at = case when %(position)s = '' then %(now)s else ended_at end",
        {"position": position, "now": now},
    )
    if not position:
        _clear_payload_scan_due_time(access, now, grace)


def _clear_payload_scan_due_time(access: TenantDb, now: datetime, grace: timedelta) -> None:
    """Record that a scan has covered all appends before `grace`. The quota's row is locked first: a
    concurrent append records itself after this, and in another hour."""
    access.execute("select from quotas where quota = 'appends' for no key update", {})
    access.execute(
        "delete from tenant_due_times where kind = 'payloads'"
        " and due_since + greatest(%(grace)s, interval '1 hour') + interval '5 minutes'"
        " <= %(now)s::timestamptz",
        {"now": now, "grace": grace},
    )


def begin_payload_removal(access: TenantDb, cids: Sequence[str]) -> list[str]:
    """Of payloads older than their grace period, return the CIDs whose bytes may be removed now:
    marked by an earlier scan and still uncited. No append may cite them until
    `end_payload_removal`. Uncited payloads without a mark are marked. In a transaction.

    This and an append's trigger lock the mark's row: whichever comes first wins.
    """
    params: dict[str, object] = {
        "cids": list(cids),
        "min_age_seconds": _MIN_MARKED_SECONDS,
        "seconds": _REMOVAL_TIMEOUT_SECONDS,
    }
    rows = access.fetch(
        _Cid,
        """
        update blob_removals r
        set removing_until = clock_timestamp() + make_interval(secs => %(seconds)s)
        where r.cid = any (%(cids)s) and r.removing_until is null
            and r.marked_at < now() - make_interval(secs => %(min_age_seconds)s)
            and not exists (
                select from events e where e.tenant_id = r.tenant_id and e.blob_cid = r.cid)
            and not exists (select from stored_blobs(%(cids)s) s where s.cid = r.cid)
        returning r.cid
        """,
        params,
    )
    access.execute(
        """
        insert into blob_removals (tenant_id, cid)
        select current_tenant(), c.cid from unnest(%(cids)s::text[]) c (cid)
        where not exists (
                select from events e
                where e.tenant_id = current_tenant() and e.blob_cid = c.cid)
            and not exists (select from stored_blobs(%(cids)s) s where s.cid = c.cid)
        order by c.cid
        on conflict do nothing
        """,
        params,
    )
    return [row.cid for row in rows]


def end_payload_removal(access: TenantDb, cids: Sequence[str]) -> None:
    """Record that these bytes are removed. After _REMOVAL_GRACE_SECONDS, appends may store them
    again. In a transaction."""
    access.execute(
        "update blob_removals set removing_until ="
        " clock_timestamp() + make_interval(secs => %(seconds)s)"
        " where cid = any (%(cids)s) and removing_until is not null",
        {"cids": list(cids), "seconds": _REMOVAL_GRACE_SECONDS},
    )
