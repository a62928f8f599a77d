"""What memory lets go of: chains that are cold, and payloads that no event cites."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from strandline.db.database import Connection, TenantDb
from strandline.jobs.table import GARBAGE_PERIOD
from strandline.tenants.store import list_tenant_ids

_MIN_MARKED_SECONDS = 900
"""How long a payload is marked before it goes: longer than any append lives that did not meet the
mark. The longest function that appends has 29 s."""
_REMOVAL_TIMEOUT_SECONDS = 900
"""How long a removal may be under way before whoever began it is dead: the longest that a Lambda
lives."""
_REMOVAL_GRACE_SECONDS = 60
"""How long after a removal no append may rest on the payload: it may have put its bytes before.
Twice what the longest append takes."""


def list_tenants(connection: Connection, now: datetime, grace: timedelta) -> list[str]:
    """Tenants with cold chains, with payloads that are marked to go, or whose payloads were not
    looked through in the present GARBAGE_PERIOD and may hold some that nobody cites, older than
    `grace`."""
    params = (now, GARBAGE_PERIOD, grace)
    return list_tenant_ids(connection, "select * from tenants_to_collect(%s, %s, %s)", params)


@dataclass(frozen=True)
class _ChainId:
    chain_id: UUID


def archive_cold_chains(access: TenantDb, now: datetime, limit: int) -> int:
    """Take up to `limit` cold chains out of mid-term memory, the longest cold first; gives how
    many. Their events, versions and links stay. A chain whose recall is not counted yet waits: it
    may be warm. In a transaction."""
    return len(
        access.fetch(
            _ChainId,
            """
            with cold as materialized (
                select c.scope_id, c.chain_id from chains c
                where c.status = 'active' and c.cold_at <= %(now)s and not exists (
                    select from recalls r where r.chain_id = c.chain_id and r.folded_at is null)
                order by c.cold_at limit %(limit)s for update skip locked),
            unindexed as (
                delete from chain_vectors v using cold
                where v.scope_id = cold.scope_id and v.chain_id = cold.chain_id)
            update chains c set status = 'archived', archived_at = %(now)s
            from cold where c.chain_id = cold.chain_id
            returning c.chain_id
            """,
            {"now": now, "limit": limit},
        )
    )


@dataclass(frozen=True)
class _ScanPosition:
    position: str


@dataclass(frozen=True)
class _Cid:
    cid: str


def begin_scan(access: TenantDb) -> str:
    """The address after which the look through the tenant's payloads goes on; '' is the beginning.
    Removals that are over are forgotten. In a transaction."""
    access.execute("delete from blob_removals where removing_until < now()", {})
    access.execute(
        "insert into blob_passes (tenant_id) values (current_tenant()) on conflict do nothing", {}
    )
    (scan,) = access.fetch(_ScanPosition, "select position from blob_passes for no key update", {})
    return scan.position


def advance_scan(access: TenantDb, position: str, now: datetime) -> None:
    """The look has come to this address; to '' is the end. What was marked before the last one
    ended, and neither of the two took, is not there any more: its mark goes. In a transaction."""
    access.execute(
        "delete from blob_removals r using blob_passes p where %(position)s = ''"
        " and r.removing_until is null and r.marked_at < p.ended_at"
        " and r.marked_at < now() - make_interval(secs => %(seconds)s)",
        {"position": position, "seconds": _MIN_MARKED_SECONDS},
    )
    access.execute(
        "update blob_passes set position = %(position)s,"
        " ended_at = case when %(position)s = '' then %(now)s else ended_at end",
        {"position": position, "now": now},
    )


def begin_removal(access: TenantDb, cids: Sequence[str]) -> list[str]:
    """Of payloads older than their grace the ones whose bytes may go now: marked by an earlier
    pass, and still cited by nobody. No append may rest on them until `end_removal`. Those that
    nobody cites and nobody marked are marked. In a transaction.

    The mark's row is what this and an append's trigger meet at: whichever comes first wins.
    """
    params: dict[str, object] = {
        "cids": list(cids),
        "marked": _MIN_MARKED_SECONDS,
        "seconds": _REMOVAL_TIMEOUT_SECONDS,
    }
    rows = access.fetch(
        _Cid,
        """
        update blob_removals r
        set removing_until = clock_timestamp() + make_interval(secs => %(seconds)s)
        where r.cid = any (%(cids)s) and r.removing_until is null
            and r.marked_at < now() - make_interval(secs => %(marked)s)
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


def end_removal(access: TenantDb, cids: Sequence[str]) -> None:
    """These bytes are gone: after a moment appends may put them anew. In a transaction."""
    access.execute(
        "update blob_removals set removing_until ="
        " clock_timestamp() + make_interval(secs => %(seconds)s)"
        " where cid = any (%(cids)s) and removing_until is not null",
        {"cids": list(cids), "seconds": _REMOVAL_GRACE_SECONDS},
    )
