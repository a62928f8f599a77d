"""SQL of the eraser job: due erasures, chains to rebuild, objects to remove, receipts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.db.connection import Connection, fetch_tenant_ids
from strandline.db.database import TenantDb
from strandline.erasure.store import SELECT_ERASURE, Erasure


def list_due_tenants(connection: Connection, now: datetime) -> list[str]:
    """Ids of the tenants with an erasure in progress that is due."""
    return fetch_tenant_ids(connection, "select * from tenants_to_erase(%s)", (now,))


def list_incomplete_erasures(access: TenantDb) -> Sequence[Erasure]:
    """The erasures of the tenant that are not complete, oldest first."""
    return access.fetch(
        Erasure,
        SELECT_ERASURE
        + " where e.tenant_id = current_tenant() and e.completed_at is null order by e.erasure_id",
        {},
    )


@dataclass(frozen=True)
class ChainToRebuild:
    """A chain that lost events and waits to be rebuilt."""

    chain_id: UUID
    scope_id: UUID
    participants: list[str]
    was_promoted: bool
    erasure_ids: list[UUID]
    """The erasures that wait for it."""


def list_chains_to_rebuild(
    access: TenantDb, limit: int, max_attempts: int
) -> Sequence[ChainToRebuild]:
    """Up to `limit` chains that wait to be rebuilt. Chains that failed often come last. Chains that
    failed `max_attempts` times are left out."""
    return access.fetch(
        ChainToRebuild,
        "select chain_id, scope_id, participants, bool_or(was_promoted) as was_promoted,"
        " array_agg(erasure_id) as erasure_ids from erased_chains"
        " where tenant_id = current_tenant() group by chain_id, scope_id, participants"
        " having min(attempts) < %(max_attempts)s order by min(attempts), chain_id limit %(limit)s",
        {"limit": limit, "max_attempts": max_attempts},
    )


def mark_chain_rebuilt(access: TenantDb, chain: ChainToRebuild) -> None:
    """Record that a chain is rebuilt, or gone. An erasure that was added in the meantime still
    waits for it. In a transaction."""
    access.execute(
        "delete from erased_chains"
        " where chain_id = %(chain_id)s and erasure_id = any (%(erasure_ids)s)",
        {"chain_id": chain.chain_id, "erasure_ids": chain.erasure_ids},
    )


def queue_failed_job_for_retry(access: TenantDb, job_id: UUID) -> None:
    """Queue a recorded failure for a retry, as an admin does. In a transaction."""
    access.execute(
        "update jobs set state = 'queued', finished_at = null, leased_until = now()"
        " where job_id = %(job_id)s and state = 'failed'",
        {"job_id": job_id},
    )


def count_failed_rebuild(access: TenantDb, chain_id: UUID) -> None:
    """Record that rebuilding a chain failed. In a transaction."""
    access.execute(
        "update erased_chains set attempts = attempts + 1 where chain_id = %(chain_id)s",
        {"chain_id": chain_id},
    )


@dataclass(frozen=True)
class ObjectToRemove:
    """An object that only erased events cited."""

    object: str
    erasure_ids: list[UUID]
    """The erasures that wait for it."""
    marked_at: datetime | None


def list_objects_to_remove(access: TenantDb, after: str, limit: int) -> Sequence[ObjectToRemove]:
    """The objects to be removed, by name."""
    return access.fetch(
        ObjectToRemove,
        "select object, array_agg(erasure_id) as erasure_ids, max(marked_at) as marked_at"
        " from erased_payloads where tenant_id = current_tenant() and object > %(after)s"
        " group by object order by object limit %(limit)s",
        {"after": after, "limit": limit},
    )


@dataclass(frozen=True)
class _Cid:
    cid: str


def list_payloads_in_use(access: TenantDb, cids: Sequence[str]) -> set[str]:
    """Those of these payloads that an event cites, or that a writer has stored."""
    rows = access.fetch(
        _Cid,
        """
        select c.cid from unnest(%(cids)s::text[]) c (cid)
        where exists (
                select from events e
                where e.tenant_id = current_tenant() and e.blob_cid = c.cid)
            or exists (select from stored_blobs(%(cids)s) s where s.cid = c.cid)
        """,
        {"cids": list(cids)},
    )
    return {row.cid for row in rows}


def list_unfinished_removals(access: TenantDb, cids: Sequence[str]) -> list[str]:
    """Those of these payloads whose removal was begun and has not ended, while no append may rely
    on their bytes. Removals that have expired are deleted, and begin again. In a transaction."""
    access.execute("delete from blob_removals where removing_until < clock_timestamp()", {})
    rows = access.fetch(
        _Cid,
        "select cid from blob_removals where cid = any (%(cids)s)"
        " and removing_until > clock_timestamp() + interval '30 seconds'",
        {"cids": list(cids)},
    )
    return [row.cid for row in rows]


def mark_objects_for_removal(access: TenantDb, objects: Sequence[str], now: datetime) -> None:
    """Record when these objects were first marked for removal. In a transaction."""
    access.execute(
        "update erased_payloads set marked_at = %(now)s"
        " where object = any (%(objects)s) and marked_at is null",
        {"objects": list(objects), "now": now},
    )


def mark_objects_removed(access: TenantDb, payloads: Sequence[ObjectToRemove]) -> None:
    """Record that these objects are removed, or cited by other events. An erasure that was added in
    the meantime still waits for them. In a transaction."""
    pairs = [(payload.object, one) for payload in payloads for one in payload.erasure_ids]
    access.execute(
        "delete from erased_payloads p"
        " using unnest(%(objects)s::text[], %(erasure_ids)s::uuid[]) as e (object, erasure_id)"
        " where p.tenant_id = current_tenant()"
        " and p.object = e.object and p.erasure_id = e.erasure_id",
        {"objects": [pair[0] for pair in pairs], "erasure_ids": [pair[1] for pair in pairs]},
    )


@dataclass(frozen=True)
class RemainingWork:
    """What an erasure still waits for."""

    chains: int
    """Chains that have not failed too often."""
    payloads: int
    """Payloads and uploads."""
    marked_at: datetime | None
    """When the last of its payloads was marked."""
    uploads_marked_at: datetime | None
    """When the last of its uploads was marked."""


def count_remaining_work(access: TenantDb, erasure_id: UUID, max_attempts: int) -> RemainingWork:
    """What an erasure still waits for."""
    (row,) = access.fetch(
        RemainingWork,
        """
        select (select count(*) from erased_chains c where c.tenant_id = current_tenant()
                and c.erasure_id = %(erasure_id)s and c.attempts < %(max_attempts)s) as chains,
            (select count(*) from erased_payloads p where p.tenant_id = current_tenant()
                and p.erasure_id = %(erasure_id)s) as payloads,
            (select max(p.marked_at) from erased_payloads p where p.tenant_id = current_tenant()
                and p.erasure_id = %(erasure_id)s and p.object not like 'uploads/%%') as marked_at,
            (select max(p.marked_at) from erased_payloads p where p.tenant_id = current_tenant()
                and p.erasure_id = %(erasure_id)s and p.object like 'uploads/%%')
                as uploads_marked_at
        """,
        {"erasure_id": erasure_id, "max_attempts": max_attempts},
    )
    return row


def postpone_erasure(access: TenantDb, erasure_id: UUID, due_at: datetime) -> None:
    """Record when the job continues an erasure. In a transaction."""
    access.execute(
        "update erasures set due_at = %(due_at)s"
        " where erasure_id = %(erasure_id)s and completed_at is null",
        {"erasure_id": erasure_id, "due_at": due_at},
    )


def complete_erasure(
    access: TenantDb,
    erasure_id: UUID,
    receipt: Mapping[str, object],
    signature: str,
    now: datetime,
) -> None:
    """Record an erasure's receipt, which makes it complete. In a transaction."""
    access.execute(
        "update erasures set completed_at = %(now)s, due_at = null, receipt = %(receipt)s::jsonb,"
        " signature = %(signature)s"
        " where erasure_id = %(erasure_id)s and completed_at is null",
        {
            "erasure_id": erasure_id,
            "receipt": json.dumps(dict(receipt)),
            "signature": signature,
            "now": now,
        },
    )
