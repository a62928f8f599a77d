"""Requests and answers about client certificates."""

from datetime import datetime
from uuid import UUID

from pydantic import Field

from strandline.admin.schemas_keys import KeyRight
from strandline.schemas import Moment, Participant, RequestModel, ResponseModel


class CertificateIn(RequestModel):
    """A subject to be entered: certificates that bear it stand for a principal."""

    subject: str = Field(min_length=1, max_length=1024)
    """Its distinguished name as RFC 4514 has it, the narrowest part first: `openssl x509 -noout
    -subject -nameopt RFC2253` prints it."""
    issuer: str | None = Field(default=None, min_length=1, max_length=1024)
    """Its authority's name, likewise. Absent: any authority of the gateway's trust store."""
    user: Participant | None = None
    """Bind it to `user:NAME`: it reads and writes as that user only."""
    rights: list[KeyRight] = Field(default=["read", "write"], min_length=1, max_length=4)
    label: str = Field(default="", max_length=200)
    """What it is for. Shown in lists: no secret belongs here."""
    expires_at: Moment | None = None
    """At most 3,650 days ahead. Absent: as long as certificates of this subject hold."""


class CertificateOut(ResponseModel):
    """A subject, and for whom certificates that bear it stand."""

    certificate_id: UUID
    subject: str
    """In our spelling."""
    issuer: str | None
    user: str | None
    """The participant it is bound to."""
    rights: list[KeyRight]
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class CertificatePage(ResponseModel):
    """A tenant's subjects, newest first."""

    certificates: list[CertificateOut]
    next_cursor: str | None
