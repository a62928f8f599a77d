"""Answers about the audit trail."""

from datetime import datetime
from uuid import UUID

from pydantic import (
    JsonValue,
)

from strandline.schemas import ResponseModel


class AuditEntry(ResponseModel):
    """What an admin or an operator did, or was refused."""

    audit_id: UUID
    at: datetime
    actor_tenant: str | None
    """Whose credential it was; null at the operator's console."""
    actor_key_id: str | None
    actor_user: str | None
    route: str
    target: dict[str, str]
    """Ids of what it was about."""
    details: dict[str, JsonValue]
    """What was made or changed. Of a key its `rights`, `user` and `expires_at`, and of one that was
    rotated `old_expires_at`; of a tenant the limits named, each as `{"from", "to"}`, where null is
    the deployment's default."""
    outcome: str
    """`done`, or the code of the error that refused it."""
    request_id: str


class AuditPage(ResponseModel):
    """A tenant's audit trail, newest first."""

    entries: list[AuditEntry]
    next_cursor: str | None
