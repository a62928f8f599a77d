"""Commands of operators and admins: tenants, keys, jobs, status."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, TypeAlias, cast

import click

from strandline.client import answers
from strandline.client.errors import ForbiddenError
from strandline.commands.invocation import Invocation, refuse_former_option
from strandline.commands.output import print_json, print_table, print_text

_Right: TypeAlias = Literal["read", "write", "admin", "operator", "erase"]
_RIGHTS = ("read", "write", "admin", "operator", "erase")
_MAX_GRACE_HOURS = 30 * 24

_limit = click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)


@click.group("keys")
def keys_group() -> None:
    """API keys of a tenant (right: operator)."""


@keys_group.command("list")
@click.option("--tenant", required=True)
@_limit
@click.pass_obj
def list_keys(run: Invocation, tenant: str, limit: int) -> None:
    """List keys, without their secrets."""
    rows = [*itertools.islice(run.client.admin.keys(tenant), limit)]
    if run.as_json:
        print_json(rows)
        return
    print_table(
        ("key", "user", "rights", "label", "made", "expires", "revoked"),
        (
            (k.key_id, k.user, k.rights, k.label, k.created_at, k.expires_at, k.revoked_at)
            for k in rows
        ),
        f"Tenant {tenant} has no keys.",
    )


@keys_group.command("create")
@click.option("--tenant", required=True)
@click.option("--user", help="Bind it to this user: it reads and writes as that user only.")
@click.option(
    *("--right", "rights"),
    multiple=True,
    type=click.Choice(_RIGHTS),
    help="What it may do; repeated for several.",
)
@refuse_former_option("--rights", "--right, once for each: --right read --right write")
@click.option("--days", type=click.IntRange(1, 3650), help="How long it is valid.")
@click.option("--label", help="What it is for.")
@click.pass_obj
def create_key(
    run: Invocation,
    tenant: str,
    user: str | None,
    rights: tuple[str, ...],
    days: int | None,
    label: str | None,
) -> None:
    """Make a key; it is shown once and stored nowhere."""
    key = run.client.admin.create_key(
        tenant,
        user=user,
        rights=cast("tuple[_Right, ...]", rights) or None,
        label=label,
        expires_at=datetime.now(timezone.utc) + timedelta(days=days) if days else None,
    )
    run.print_answer(key, key.token)


@keys_group.command("rotate")
@click.option("--tenant", required=True)
@click.option(
    "--grace",
    type=click.FloatRange(0, _MAX_GRACE_HOURS),
    default=24.0,
    show_default=True,
    help="Hours for which the old key is still valid.",
)
@refuse_former_option("--overlap", "--grace")
@click.option("--days", type=click.IntRange(1, 3650), help="How long the new key is valid.")
@click.argument("key_id")
@click.pass_obj
def rotate_key(run: Invocation, tenant: str, grace: float, days: int | None, key_id: str) -> None:
    """Make a key's successor; it is shown once and stored nowhere.

    It has the user, the rights and the label of KEY_ID, which ends by itself after --grace.
    """
    rotation = run.client.admin.rotate_key(
        tenant,
        key_id,
        overlap_seconds=round(grace * 3600),
        expires_at=datetime.now(timezone.utc) + timedelta(days=days) if days else None,
    )
    if run.as_json:
        print_json(rotation)
    else:
        print_text(rotation.key.token)
        ends = rotation.old.expires_at
        print_text(
            f"the old key ends {f'at {ends:%Y-%m-%d %H:%M %Z}' if ends else 'never'}", err=True
        )


@keys_group.command("revoke")
@click.option("--tenant", required=True)
@click.argument("key_id")
@click.pass_obj
def revoke_key(run: Invocation, tenant: str, key_id: str) -> None:
    """Revoke a key; it is refused within 60 seconds."""
    revoked = run.client.admin.revoke_key(tenant, key_id)
    run.print_answer(revoked, f"revoked: {revoked.key_id}")


@click.group("tenants")
def tenants_group() -> None:
    """Tenants (right: operator)."""


@tenants_group.command("list")
@_limit
@click.pass_obj
def list_tenants(run: Invocation, limit: int) -> None:
    """List tenants by name."""
    rows = [*itertools.islice(run.client.admin.tenants(), limit)]
    if run.as_json:
        print_json(rows)
        return
    print_table(
        ("tenant", "made"), ((t.tenant_id, t.created_at) for t in rows), "There are no tenants."
    )


@tenants_group.command("create")
@click.argument("tenant")
@click.pass_obj
def create_tenant(run: Invocation, tenant: str) -> None:
    """Create a tenant."""
    answer = run.client.admin.create_tenant(tenant)
    run.print_answer(answer, f"created: {answer.tenant_id}")


@click.group("jobs")
def jobs_group() -> None:
    """Background jobs (right: admin)."""


@jobs_group.command("list")
@click.option("--state", type=click.Choice(["queued", "running", "done", "failed"]))
@click.option("--kind", help="such as builder, enrich or promote")
@_limit
@click.pass_obj
def list_jobs(run: Invocation, state: Any, kind: Any, limit: int) -> None:
    """List jobs and failures, newest first."""
    rows = [*itertools.islice(run.client.admin.jobs(state=state, kind=kind), limit)]
    if run.as_json:
        print_json(rows)
        return
    print_table(
        ("job", "kind", "state", "made", "reason", "advice"),
        ((j.job_id, j.kind, j.state, j.created_at, j.reason, j.advice) for j in rows),
        "There are no jobs.",
    )


@jobs_group.command("start")
@click.argument("name")
@click.pass_obj
def start_job(run: Invocation, name: str) -> None:
    """Start a job by its name, as builder."""
    started = run.client.admin.start_job(name)
    run.print_answer(started, f"{started.kind}: {started.state}, job {started.job_id}")


@jobs_group.command("retry")
@click.argument("job_id")
@click.pass_obj
def retry_job(run: Invocation, job_id: str) -> None:
    """Try a failed job again."""
    again = run.client.admin.retry_job(job_id)
    run.print_answer(again, f"{again.kind}: {again.state}, job {again.job_id}")


@click.command("status")
@click.pass_obj
def show_status(run: Invocation) -> None:
    """Show whether the service is up, and what the tenant uses."""
    health = run.client.health()
    if run.as_json:
        print_json(health)
        return
    print_text(f"{run.client.connection.settings.url}: {health.status}")
    print_table(("dependency", "state"), health.dependencies.items(), "")
    print_text(f"model: {_describe_model_state(health.language)}")
    if health.memory is not None:
        build_due_at = run.client.admin.topic_index().due_at
        print_text(_describe_memory_counts(health.memory, build_due_at))
    if health.background is not None and health.background.jobs_failed:
        print_text(f"failed jobs: {health.background.jobs_failed}; see `strandline jobs list`")
    if health.background is not None and health.background.erasures_waiting:
        count = health.background.erasures_waiting
        print_text(
            f"erasures that wait: {count}; see `strandline erasures --state hidden --everybody`"
        )
    for warning in health.warnings:
        print_text(f"warning: {warning}")
    if health.status != "unavailable":
        _print_quota_usage(run)


def _print_quota_usage(run: Invocation) -> None:
    try:
        usage = run.client.usage()
    except ForbiddenError:  # of a key bound to a user: what the tenant uses is not its to see
        return
    print_text("")
    print_table(
        ("quota", "used", "at once", "limit", "per"),
        ((q.name, q.used, q.at_once, q.limit, q.per) for q in usage.quotas),
        "",
    )


def _describe_model_state(language: answers.LanguageModelState) -> str:
    if language.provider is None:
        return "none; the heuristic model does its tasks"
    rest = language.resting_until
    return f"{language.provider}{f', paused until {rest:%H:%M:%S} UTC' if rest else ''}"


def _describe_memory_counts(memory: answers.MemoryState, build_due_at: datetime | None) -> str:
    dues = (("chains", memory.chains_due_at), ("topic index", build_due_at))
    next_runs = [f"{what} {at:%Y-%m-%d %H:%M} UTC" for what, at in dues if at is not None]
    return (
        f"memory: {memory.events} events in {memory.scopes} scopes, {memory.topics} topics,"
        f" {memory.facts} facts\nnext: {', '.join(next_runs) or 'nothing is waiting'}"
    )


COMMANDS = (keys_group, tenants_group, jobs_group, show_status)
