"""SQL for failures, which are jobs that an admin can retry."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.db.database import TenantDb
from strandline.jobs.store_runs import JobIdRow

CONTINUES_KIND = "continues"
"""A failure that cannot be retried: where topics end is decided once."""
FOLD_KIND = "fold"
"""A failure: a scope whose work fails again and again."""
EMBED_KIND = "embed"
"""A failure: a scope with events that the embedding model refused."""
GROW_KIND = "grow"
"""A failure: a scope whose topic tree a build could not grow. The builder retries it."""
ANALYZE_KIND = "analyze"
"""A failure: a graph whose communities could not be found, a scope's or the tenant's. The analytics
retry it."""

PROMOTE_KIND = "promote"
"""A failure: a chain whose promotion failed, or was done without the configured model. The promoter
retries it."""


def record_retryable_failure(
    access: TenantDb,
    *,
    kind: str,
    scope_id: UUID | None,
    participants: Sequence[str],
    reason: str,
    advice: str,
    ref: UUID | str,
) -> UUID:
    """Record a failure as a job that can be retried. Returns its id. The same failure again (by
    `kind` and `ref`, the id of what it is about) is the same job with one attempt more. What
    concerns the whole tenant has no scope and no participants.

    `reason` is a code and `advice` says what to do about it; neither may hold memory content. Runs
    in the transaction that stores the substitute for what failed, or on its own.
    """
    return access.fetch(
        JobIdRow,
        """
        insert into jobs (tenant_id, job_id, kind, state, scope_id, participants, ref, reason,
            advice, started_at, finished_at)
        values (current_tenant(), %(job_id)s, %(kind)s, 'failed', %(scope_id)s, %(participants)s,
            %(ref)s, %(reason)s, %(advice)s, now(), now())
        on conflict (tenant_id, kind, ref) where ref is not null and state <> 'done'
        do update set state = 'failed', reason = excluded.reason, advice = excluded.advice,
            -- a queued one was counted by `requeue_failed_job`
            attempts = jobs.attempts + (jobs.state <> 'queued')::int,
            finished_at = now()
        returning job_id
        """,
        {
            "job_id": uuid7(),
            "kind": kind,
            "scope_id": scope_id,
            "participants": list(participants),
            "ref": str(ref),
            "reason": reason,
            "advice": advice,
        },
    )[0].job_id


@dataclass(frozen=True)
class ScopeFailure:
    """A scope whose work failed, and why, as a code."""

    scope_id: UUID
    participants: Sequence[str]
    reason: str


def record_scope_failures(
    access: TenantDb, kind: str, failures: Sequence[ScopeFailure], advice: str, now: datetime
) -> None:
    """Record failures about scopes as `record_retryable_failure` does. In a transaction."""
    rows = [
        {
            "job_id": str(uuid7()),
            "scope_id": str(failure.scope_id),
            "participants": list(failure.participants),
            "reason": failure.reason,
        }
        for failure in failures
    ]
    access.execute(
        """
        insert into jobs (tenant_id, job_id, kind, state, scope_id, participants, ref, reason,
            advice, started_at, finished_at)
        select current_tenant(), f.job_id, %(kind)s, 'failed', f.scope_id, f.participants,
            f.scope_id::text, f.reason, %(advice)s, %(now)s, %(now)s
        from jsonb_to_recordset(%(rows)s::jsonb) f
            (job_id uuid, scope_id uuid, participants text[], reason text)
        order by f.scope_id
        on conflict (tenant_id, kind, ref) where ref is not null and state <> 'done'
        do update set state = 'failed', reason = excluded.reason, advice = excluded.advice,
            -- a queued one was counted by `requeue_failed_job`
            attempts = jobs.attempts + (jobs.state <> 'queued')::int,
            finished_at = excluded.finished_at
        """,
        {"kind": kind, "advice": advice, "now": now, "rows": json.dumps(rows)},
    )


@dataclass(frozen=True)
class _RefRow:
    ref: str


def list_refs_with_unresolved_failure(
    access: TenantDb, kind: str, refs: Sequence[object]
) -> set[str]:
    """Which of these refs have an unresolved failure of this kind."""
    rows = access.fetch(
        _RefRow,
        "select ref from jobs where kind = %(kind)s and ref = any (%(refs)s) and state <> 'done'",
        {"kind": kind, "refs": [str(ref) for ref in refs]},
    )
    return {row.ref for row in rows}


@dataclass(frozen=True)
class FailureQueuedForRetry:
    """A failure that is queued for a retry."""

    job_id: UUID
    kind: str
    scope_id: UUID | None
    ref: str


def list_failures_queued_for_retry(access: TenantDb, limit: int) -> Sequence[FailureQueuedForRetry]:
    """Up to `limit` failures that an admin has asked to retry, oldest first; without those that
    other jobs retry."""
    return access.fetch(
        FailureQueuedForRetry,
        "select job_id, kind, scope_id, ref from jobs where ref is not null and state = 'queued'"
        " and kind <> all (%(others)s) order by job_id limit %(limit)s",
        {"limit": limit, "others": [GROW_KIND, PROMOTE_KIND, ANALYZE_KIND]},
    )


def resolve_retried_failure(access: TenantDb, job_id: UUID, now: datetime) -> None:
    """Mark a failure as resolved by its retry."""
    access.fetch(
        JobIdRow,
        "update jobs set state = 'done', finished_at = %(now)s, reason = '', advice = ''"
        " where job_id = %(job_id)s and state = 'queued' returning job_id",
        {"job_id": job_id, "now": now},
    )


def resolve_failures_by_reason(
    access: TenantDb, kind: str, reason: str, refs: Sequence[object], now: datetime
) -> None:
    """Mark failures of this kind and reason about these refs as resolved. In a transaction."""
    access.execute(
        "update jobs set state = 'done', finished_at = %(now)s, reason = '', advice = ''"
        " where kind = %(kind)s and ref = any (%(refs)s) and state = 'failed'"
        " and reason = %(reason)s",
        {"kind": kind, "reason": reason, "refs": [str(ref) for ref in refs], "now": now},
    )


def resolve_failures(access: TenantDb, kind: str, refs: Sequence[object], now: datetime) -> None:
    """Mark failures of this kind about these refs as resolved. In a transaction."""
    access.execute(
        "update jobs set state = 'done', finished_at = %(now)s, reason = '', advice = ''"
        " where kind = %(kind)s and ref = any (%(refs)s) and state in ('failed', 'queued')",
        {"kind": kind, "refs": [str(ref) for ref in refs], "now": now},
    )


def record_failed_retry(access: TenantDb, job_id: UUID, reason: str, now: datetime) -> None:
    """Mark a retry as failed, for now."""
    access.fetch(
        JobIdRow,
        "update jobs set state = 'failed', finished_at = %(now)s, reason = %(reason)s,"
        " advice = 'Try it again later.'"
        " where job_id = %(job_id)s and state = 'queued' returning job_id",
        {"job_id": job_id, "reason": reason, "now": now},
    )
