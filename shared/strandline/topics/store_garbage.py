"""SQL that deletes the rows of the topic index that no kept snapshot needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.db.database import TenantDb


@dataclass(frozen=True)
class _VersionNumber:
    version: int | None


def find_first_kept(access: TenantDb, before: datetime) -> int | None:
    """Find the first version to keep: the first one published at `before` or later, or the active
    one if that is earlier. None if no version was published."""
    (row,) = access.fetch(
        _VersionNumber,
        """
        select least(a.version, (
            select s.version from snapshots s where s.published_at >= %(before)s
            order by s.version limit 1)) as version
        from (select max(version) as version from active_snapshot) a
        """,
        {"before": before},
    )
    return row.version


@dataclass(frozen=True)
class _DeletedSlot:
    slot: UUID
    node_id: UUID
    is_leaf: bool


def delete_ended_slots(access: TenantDb, first_kept: int, limit: int) -> int:
    """Delete up to `limit` slots that no kept version has, with the contents and the links to
    events that only they referenced. Returns how many. In a transaction."""
    rows = access.fetch(
        _DeletedSlot,
        """
        with ended as materialized (
            select scope_id, slot, from_version from topic_tree
            where to_version <= %(first_kept)s order by to_version limit %(limit)s)
        delete from topic_tree t using ended e
        where t.scope_id = e.scope_id and t.slot = e.slot and t.from_version = e.from_version
        returning t.slot, t.node_id, t.is_leaf
        """,
        {"first_kept": first_kept, "limit": limit},
    )
    _delete_unreferenced(
        access, [row.node_id for row in rows], [row.slot for row in rows if row.is_leaf]
    )
    return len(rows)


def delete_ended_trees(access: TenantDb, first_kept: int, limit: int) -> int:
    """Delete up to `limit` rows of trees that no kept version has. Returns how many. In a
    transaction, before their slots are deleted."""
    return access.execute(
        """
        delete from snapshot_scopes t using (
            select scope_id, from_version from snapshot_scopes
            where to_version <= %(first_kept)s order by to_version limit %(limit)s) ended
        where t.scope_id = ended.scope_id and t.from_version = ended.from_version
        """,
        {"first_kept": first_kept, "limit": limit},
    )


def delete_snapshots(access: TenantDb, first_kept: int) -> int:
    """Delete the versions before the first kept one, with the stored answers that rest on them.
    Returns how many. In a transaction, after their trees and slots are deleted."""
    params: dict[str, object] = {"first_kept": first_kept}
    access.execute(
        "delete from reference_answers where version > 0 and version < %(first_kept)s", params
    )
    return access.execute("delete from snapshots where version < %(first_kept)s", params)


def delete_answers(access: TenantDb, before: datetime, limit: int) -> int:
    """Delete up to `limit` answers given before this time. Returns how many. In a transaction."""
    return access.execute(
        "delete from reference_answers where answer_id in (select answer_id from reference_answers"
        " where answered_at < %(before)s order by answered_at limit %(limit)s)",
        {"before": before, "limit": limit},
    )


@dataclass(frozen=True)
class _DeletedStagedTree:
    scope_id: UUID
    node_ids: list[UUID]
    slots: list[UUID]


def delete_staged_trees(access: TenantDb, limit: int) -> int:
    """Delete the staged trees of up to `limit` scopes of builds that ended without publishing, with
    the contents that only they referenced. Returns how many. In a transaction."""
    rows = access.fetch(
        _DeletedStagedTree,
        """
        with staged as materialized (
            select b.tenant_id, b.job_id, b.scope_id, b.tree from topic_build_scopes b
            join jobs j using (tenant_id, job_id)
            where b.tree is not null and j.state in ('done', 'failed')
            order by b.job_id, b.scope_id limit %(limit)s),
        cleared as (
            update topic_build_scopes b set tree = null from staged s
            where b.job_id = s.job_id and b.scope_id = s.scope_id)
        select s.scope_id, array(select r.node_id
                from jsonb_to_recordset(s.tree -> 'rows') r (node_id uuid)) as node_ids,
            array(select r.slot from jsonb_to_recordset(s.tree -> 'rows') r
                (slot uuid, is_leaf boolean) where r.is_leaf) as slots
        from staged s
        """,
        {"limit": limit},
    )
    for row in rows:
        _delete_unreferenced(access, row.node_ids, row.slots)
    return len(rows)


def _delete_unreferenced(access: TenantDb, node_ids: Sequence[UUID], slots: Sequence[UUID]) -> None:
    """Delete those of these contents that no slot references, and those event links of these leaves
    that no version of the leaf needs."""
    params: dict[str, object] = {"node_ids": list(node_ids), "slots": list(slots)}
    access.execute(
        """
        delete from topic_nodes n where n.node_id = any (%(node_ids)s) and not exists (
            select from topic_tree t where t.tenant_id = n.tenant_id and t.node_id = n.node_id)
        """,
        params,
    )
    access.execute(
        """
        delete from topic_events e where e.chain_id = any (%(slots)s) and not exists (
            select from topic_tree t
            where t.tenant_id = e.tenant_id and t.scope_id = e.scope_id and t.slot = e.chain_id
                and t.is_leaf and t.chain_version >= e.since_version)
        """,
        params,
    )


def delete_lease_job(access: TenantDb, job_id: UUID) -> None:
    """Delete the job that held the builder's lease for a collection. In a transaction."""
    access.execute("delete from jobs where job_id = %(job_id)s", {"job_id": job_id})
