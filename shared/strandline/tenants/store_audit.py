"""The audit trail. The application adds and reads rows, and never changes them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.cursors import Position
from strandline.db.database import TenantDb


@dataclass(frozen=True)
class AuditContext:
    """The actor with elevated rights on a tenant, and the route that it uses."""

    route: str
    """The name of the operation in the routes; at the console, the command."""
    tenant: str | None = None
    """The credential's tenant; None at the console, which uses the deployment's own secrets."""
    key_id: str | None = None
    user: str | None = None
    request_id: str = ""


@dataclass(frozen=True)
class _AuditIdRow:
    audit_id: UUID


def add_audit_entry(
    access: TenantDb,
    context: AuditContext,
    target: Mapping[str, str],
    details: Mapping[str, object] | None = None,
    *,
    outcome: str = "done",
) -> None:
    """Add a row to the trail of the caller's tenant, in its own transaction or in that of the
    change it describes.

    `target` holds only ids. `details` holds what was created or changed, as JSON: rights, a user,
    times, numbers; no free text and no secret. `outcome` is `done`, or an error's code.
    """
    access.fetch(
        _AuditIdRow,
        """
        insert into audit_log (tenant_id, audit_id, actor_tenant, actor_key_id, actor_user, route,
            target, details, outcome, request_id)
        values (%(tenant)s, %(audit_id)s, %(actor_tenant)s, %(actor_key_id)s, %(actor_user)s,
            %(route)s, %(target)s, %(details)s, %(outcome)s, %(request_id)s)
        returning audit_id
        """,
        {
            "tenant": access.caller.tenant,
            "audit_id": uuid7(),
            "actor_tenant": context.tenant,
            "actor_key_id": context.key_id,
            "actor_user": context.user,
            "route": context.route,
            "target": json.dumps(dict(target)),
            "details": json.dumps(dict(details or {})),
            "outcome": outcome,
            "request_id": context.request_id,
        },
    )


@dataclass(frozen=True)
class AuditRow:
    """A row of the trail, and the database snapshot of its page."""

    audit_id: UUID
    at: datetime
    actor_tenant: str | None
    actor_key_id: str | None
    actor_user: str | None
    route: str
    target: Mapping[str, str]
    details: Mapping[str, Any]
    outcome: str
    request_id: str
    pg_snapshot: str


def list_newest(access: TenantDb, after: Position | None, limit: int) -> Sequence[AuditRow]:
    """List the trail of the caller's tenant, newest first; further pages read the first page's
    database snapshot."""
    return access.fetch(
        AuditRow,
        """
        select a.audit_id, a.at, a.actor_tenant, a.actor_key_id, a.actor_user, a.route, a.target,
            a.details, a.outcome, a.request_id,
            coalesce(%(pg_snapshot)s, pg_current_snapshot()::text) as pg_snapshot
        from audit_log a
        where (%(pg_snapshot)s::text is null or is_in_snapshot(a.xid, %(pg_snapshot)s::pg_snapshot))
            and (%(at)s::timestamptz is null or (a.at, a.audit_id) < (%(at)s, %(id)s::uuid))
        order by a.at desc, a.audit_id desc
        limit %(limit)s
        """,
        {
            "pg_snapshot": after and after.pg_snapshot,
            "at": after and after.at,
            "id": after and after.row_id,
            "limit": limit,
        },
    )
