"""SQL for builds of the topic index: waiting scopes, the marks of a build, the state of its
scopes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from strandline.db.connection import Connection, translate_errors
from strandline.db.database import TenantDb


@dataclass(frozen=True)
class TenantWithDueBuild:
    """A tenant where a build is due."""

    tenant_id: str
    scopes: int
    """How many of its scopes are waiting."""


def list_due_tenants(connection: Connection, now: datetime) -> list[TenantWithDueBuild]:
    """List the tenants where a build is due. The cost grows with the waiting scopes, not with the
    tenants."""
    with translate_errors(), connection.cursor(row_factory=class_row(TenantWithDueBuild)) as cursor:
        return cursor.execute("select * from tenants_to_build(%s)", (now,)).fetchall()


@dataclass(frozen=True)
class _Count:
    n: int


def count_waiting_scopes(access: TenantDb) -> int:
    """How many scopes of the tenant are waiting for a build."""
    (row,) = access.fetch(_Count, "select count(*) as n from topic_work", {})
    return row.n


def lock_build(access: TenantDb, job_id: UUID) -> None:
    """Block the build's other shards until the transaction ends."""
    access.fetch(
        _Count,
        "select count(*) as n from pg_advisory_xact_lock(hashtextextended(%(job_id)s::text, 0))",
        {"job_id": job_id},
    )


def drop_build_if_overtaken(access: TenantDb, job_id: UUID) -> int:
    """Delete the rows of this job's build if another version was published since it began and none
    of its scopes is being grown: it can no longer be published. Returns how many builds. In a
    transaction, after `lock_build`."""
    return access.execute(
        """
        delete from topic_builds b
        where b.job_id = %(job_id)s
            and b.base_version <> coalesce((select version from active_snapshot), 0)
            and not exists (select from topic_build_scopes s
                where s.job_id = b.job_id and s.state in ('waiting', 'begun'))
            and not exists (select from snapshots p where p.job_id = b.job_id)
        """,
        {"job_id": job_id},
    )


def begin_build(access: TenantDb, job_id: UUID, space: str) -> None:
    """Begin the job's build unless it has begun: read the marks of all scopes that are waiting or
    whose tree is of another embedding space, and divide them among the job's unfinished shards. One
    statement, so that all marks are of one moment. In a transaction, after `lock_build`."""
    access.execute(
        """
        with build as (
            insert into topic_builds (tenant_id, job_id, base_version, begun_at)
            values (current_tenant(), %(job_id)s,
                coalesce((select version from active_snapshot), 0), now())
            on conflict do nothing
            returning job_id),
        open_shards as (
            select array_agg(shard order by shard) as numbers from job_shards
            where job_id = %(job_id)s and state <> 'done'),
        scope_ids as (
            select w.scope_id from topic_work w
            union
            select t.scope_id from snapshot_scopes t
            where t.to_version is null and t.space <> %(space)s),
        marks as (
            select s.scope_id, s.participants, s.folded_seq, coalesce((
                    select v.position from chain_versions v
                    where v.tenant_id = s.tenant_id and v.scope_id = s.scope_id
                    order by v.position desc limit 1), 0) as position,
                row_number() over (order by s.scope_id) as number
            from scope_ids join scopes s using (scope_id))
        insert into topic_build_scopes (tenant_id, job_id, scope_id, participants, shard, state,
            mark_position, mark_seq)
        select current_tenant(), b.job_id, m.scope_id, m.participants,
            o.numbers[1 + m.number %% cardinality(o.numbers)], 'waiting', m.position, m.folded_seq
        from build b, open_shards o, marks m
        """,
        {"job_id": job_id, "space": space},
    )


def request_regrowth(access: TenantDb, space: str) -> int:
    """Have the trees of another embedding space grown again in this one by the tenant's next build.
    Returns how many. In a transaction."""
    return access.execute(
        """
        insert into topic_work
            (tenant_id, scope_id, participants, waiting, oldest_at, newest_at, last_position)
        select t.tenant_id, t.scope_id, t.participants, t.position, now(), now(), t.position
        from snapshot_scopes t
        where t.tenant_id = current_tenant() and t.to_version is null and t.space <> %(space)s
            and t.position > 0
        order by t.scope_id
        on conflict do nothing
        """,
        {"space": space},
    )


def fail_interrupted_scopes(access: TenantDb, job_id: UUID, shard: int) -> int:
    """Mark the scopes that an earlier attempt at this shard had begun as failed: one of them may
    have crashed its worker, and would crash it again. Returns how many. In a transaction."""
    return access.execute(
        "update topic_build_scopes set state = 'failed', reason = 'interrupted'"
        " where job_id = %(job_id)s and shard = %(shard)s and state = 'begun'",
        {"job_id": job_id, "shard": shard},
    )


@dataclass(frozen=True)
class ScopeToBuild:
    """A scope of a build."""

    scope_id: UUID
    participants: list[str]
    mark_position: int
    """The position of the last chain version to insert."""
    mark_seq: int
    """The seq up to which the scope was folded at that moment."""
    base_version: int
    """The version of the snapshot that the build starts from; 0: none."""
    waiting_since: datetime | None
    """Since when its oldest chain version has been waiting; None if none was listed as waiting."""
    erasures: int
    """The number of its events that were erased so far."""


def list_waiting_scopes(access: TenantDb, job_id: UUID, shard: int) -> Sequence[ScopeToBuild]:
    """List the scopes of a shard that are not begun yet, those waiting longest first."""
    return access.fetch(
        ScopeToBuild,
        """
        select s.scope_id, s.participants, s.mark_position, s.mark_seq, b.base_version,
            w.oldest_at as waiting_since, coalesce((
                select d.n from erased_events d
                where d.tenant_id = s.tenant_id and d.scope_id = s.scope_id
                order by d.n desc limit 1), 0) as erasures
        from topic_build_scopes s
        join topic_builds b using (tenant_id, job_id)
        left join topic_work w on w.scope_id = s.scope_id
        where s.job_id = %(job_id)s and s.shard = %(shard)s and s.state = 'waiting'
        order by w.oldest_at, s.scope_id
        """,
        {"job_id": job_id, "shard": shard},
    )


def was_event_erased_since(access: TenantDb, scope: ScopeToBuild) -> bool:
    """Whether an event of the scope was erased since the build listed it. In a transaction: no
    further event of the scope can be erased until it ends."""
    access.fetch(
        _Count,
        "select 1 as n from scopes where scope_id = %(scope_id)s for share",
        {"scope_id": scope.scope_id},
    )
    (row,) = access.fetch(
        _Count,
        "select count(*) as n from erased_events"
        " where scope_id = %(scope_id)s and n > %(erasures)s",
        {"scope_id": scope.scope_id, "erasures": scope.erasures},
    )
    return row.n > 0


def mark_scope_begun(access: TenantDb, job_id: UUID, scope_id: UUID) -> None:
    """Mark a scope as being grown. In a transaction."""
    access.execute(
        "update topic_build_scopes set state = 'begun'"
        " where job_id = %(job_id)s and scope_id = %(scope_id)s and state = 'waiting'",
        {"job_id": job_id, "scope_id": scope_id},
    )


def record_scope_result(
    access: TenantDb,
    job_id: UUID,
    scope_id: UUID,
    state: str,
    *,
    reason: str = "",
    tree: Mapping[str, Any] | None = None,
) -> bool:
    """Record the result of a scope's growth. Returns False if the build no longer exists. In a
    transaction."""
    return bool(
        access.execute(
            "update topic_build_scopes set state = %(state)s, reason = %(reason)s,"
            " tree = %(tree)s::jsonb where job_id = %(job_id)s and scope_id = %(scope_id)s",
            {
                "job_id": job_id,
                "scope_id": scope_id,
                "state": state,
                "reason": reason,
                "tree": None if tree is None else json.dumps(tree),
            },
        )
    )


def postpone_waiting_scopes(access: TenantDb, job_id: UUID, shard: int) -> int:
    """Leave the scopes of a shard that are not begun to the next build. Returns how many. In a
    transaction."""
    return access.execute(
        "update topic_build_scopes set state = 'unchanged', reason = 'out_of_time'"
        " where job_id = %(job_id)s and shard = %(shard)s and state = 'waiting'",
        {"job_id": job_id, "shard": shard},
    )


@dataclass(frozen=True)
class BuildProgress:
    """The progress of a build."""

    base_version: int
    open_scopes: int
    """The number of scopes that are waiting or being grown."""
    grown_scopes: int
    published_version: int | None
    """The version that the build published; None if it has not published."""


def read_build_progress(access: TenantDb, job_id: UUID) -> BuildProgress:
    """Read the progress of the job's build. In a transaction, after `lock_build`."""
    (state,) = access.fetch(
        BuildProgress,
        """
        select b.base_version,
            count(*) filter (where s.state in ('waiting', 'begun')) as open_scopes,
            count(*) filter (where s.state = 'grown') as grown_scopes,
            (select version from snapshots p where p.job_id = %(job_id)s) as published_version
        from topic_builds b left join topic_build_scopes s using (tenant_id, job_id)
        where b.job_id = %(job_id)s group by b.tenant_id, b.job_id
        """,
        {"job_id": job_id},
    )
    return state


@dataclass(frozen=True)
class ScopeGrowthOutcome:
    """The result of a scope's growth in a build."""

    scope_id: UUID
    participants: list[str]
    state: str
    reason: str


def list_scope_outcomes(access: TenantDb, job_id: UUID) -> Sequence[ScopeGrowthOutcome]:
    """List the results of a build's scopes, ordered by scope id."""
    return access.fetch(
        ScopeGrowthOutcome,
        "select scope_id, participants, state, reason from topic_build_scopes"
        " where job_id = %(job_id)s order by scope_id",
        {"job_id": job_id},
    )


def update_backlog(access: TenantDb, job_id: UUID, now: datetime) -> None:
    """Remove the chain versions that a build inserted from the work list, and add those that it
    left. A version that was ready and left out waits from `now`. The staged trees are deleted. In a
    transaction, after the publish; rows are locked in the order of their scopes."""
    params: dict[str, object] = {"job_id": job_id, "now": now}
    for statement in _SETTLE_STATEMENTS:
        access.execute(statement, params)


_SETTLE_STATEMENTS = (
    "select from topic_work w where w.scope_id in (select scope_id from topic_build_scopes"
    " where job_id = %(job_id)s) order by w.scope_id for no key update",
    """
    delete from topic_work w using topic_build_scopes s
    where s.job_id = %(job_id)s and s.scope_id = w.scope_id
        and w.last_position <= (s.tree ->> 'position')::bigint
    """,
    """
    update topic_work w set waiting = w.last_position - (s.tree ->> 'position')::bigint,
        oldest_at = case when (s.tree ->> 'is_cut')::boolean then %(now)s else w.oldest_at end,
        newest_at = case when (s.tree ->> 'is_cut')::boolean then %(now)s else w.newest_at end
    from topic_build_scopes s
    where s.job_id = %(job_id)s and s.scope_id = w.scope_id and s.tree is not null
    """,
    """
    insert into topic_work (tenant_id, scope_id, participants, waiting, oldest_at, newest_at,
        last_position)
    select current_tenant(), s.scope_id, s.participants,
        s.mark_position - (s.tree ->> 'position')::bigint, %(now)s, %(now)s, s.mark_position
    from topic_build_scopes s
    where s.job_id = %(job_id)s and s.mark_position > (s.tree ->> 'position')::bigint
    order by s.scope_id
    on conflict do nothing
    """,
    "update topic_build_scopes set tree = null where job_id = %(job_id)s and tree is not null",
)
