"""Requests and answers of uploads."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from strandline.log.schemas_fields import Cid, MimeType
from strandline.schemas import RequestModel, ResponseModel


class UploadRequest(RequestModel):
    """A payload that the caller will upload to the object store."""

    size: int = Field(ge=1, strict=True)
    """The payload's length in bytes."""
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-fA-F]{64}$")
    """The payload's SHA-256 in hex. Give either this or `cid`."""
    cid: Cid | None = None
    """The payload's CID: version 1, raw, sha2-256, base32."""
    mime_type: MimeType | None = None
    """The default media type of events that cite the payload. Text is indexed when it is cited."""
    name: str | None = Field(default=None, max_length=1024)
    """The default file name of events that cite the payload."""


class UploadOut(ResponseModel):
    """Where and how to upload the payload. An event may cite it (`blob: {"cid"}`) once it is
    uploaded; until then nobody can download it."""

    upload_id: UUID
    cid: str
    size: int
    method: Literal["PUT"] = "PUT"
    url: str
    headers: dict[str, str]
    """Send these headers unchanged: they are signed. The store answers 400 to other bytes, 403 to
    another length, and 412 when the payload is already uploaded."""
    expires_at: datetime
    """When the URL expires. The same request returns a new one."""
    cite_until: datetime
    """The upload is removed at this time unless an event cites it before."""


class UploadStored(ResponseModel):
    """The payload is already stored and this credential may cite it: no upload is needed."""

    cid: str
    size: int
    stored: Literal[True] = True
