"""Responses about the audit trail."""

from datetime import datetime
from uuid import UUID

from pydantic import (
    JsonValue,
)

from strandline.schemas import ResponseModel


class AuditEntry(ResponseModel):
    """An action of an admin or operator, or a refused attempt."""

    audit_id: UUID
    at: datetime
    actor_tenant: str | None
    """The tenant of the credential; null at the operator's console."""
    actor_key_id: str | None
    actor_user: str | None
    route: str
    target: dict[str, str]
    """Ids of the objects that the action concerned."""
    details: dict[str, JsonValue]
    """What was created or changed. For a key: its `rights`, `user` and `expires_at`, and for a
    rotation `old_expires_at`. For a tenant: each limit in the request as `{"from", "to"}`, where
    null is the deployment's default."""
    outcome: str
    """`done`, or the code of the error that refused the action."""
    request_id: str


class AuditPage(ResponseModel):
    """A tenant's audit trail, newest first."""

    entries: list[AuditEntry]
    next_cursor: str | None
