"""Requests and responses about client certificates."""

from datetime import datetime
from uuid import UUID

from pydantic import Field

from strandline.admin.schemas_keys import KeyRight
from strandline.schemas import Moment, Participant, RequestModel, ResponseModel


class CertificateIn(RequestModel):
    """A subject to add: certificates with it authenticate a principal."""

    subject: str = Field(min_length=1, max_length=1024)
    """The distinguished name in RFC 4514 form, most specific part first, as printed by `openssl
    x509 -noout -subject -nameopt RFC2253`."""
    issuer: str | None = Field(default=None, min_length=1, max_length=1024)
    """The distinguished name of the certificate authority. Absent: any authority in the gateway's
    trust store."""
    user: Participant | None = None
    """Bind it to `user:NAME`: it reads and writes as that user only."""
    rights: list[KeyRight] = Field(default=["read", "write"], min_length=1, max_length=5)
    label: str = Field(default="", max_length=200)
    """What it is for. Lists show it, so do not put a secret here."""
    expires_at: Moment | None = None
    """At most 3,650 days ahead. Absent: the entry does not expire; certificates still do."""


class CertificateOut(ResponseModel):
    """A subject, and the principal that its certificates authenticate."""

    certificate_id: UUID
    subject: str
    """In canonical form."""
    issuer: str | None
    user: str | None
    """The participant that it is bound to; null if unbound."""
    rights: list[KeyRight]
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class CertificatePage(ResponseModel):
    """A tenant's subjects, newest first."""

    certificates: list[CertificateOut]
    next_cursor: str | None
