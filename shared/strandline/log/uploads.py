"""Uploads: a place for a payload that its caller puts there by itself, and its end."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from strandline.aws.blobs import REMOVED_AT_ONCE, Blobs
from strandline.config import Settings
from strandline.db.database import Access, Asker, Database
from strandline.errors import Invalid, TooLarge, Unsure
from strandline.log import store_uploads
from strandline.log.cid import cid_of_sha256, sha256_of_cid
from strandline.log.schemas import UploadOut, UploadRequest, UploadStored
from strandline.log.store_uploads import Begun
from strandline.tenants.quotas import Quotas

_WRITERS = 100
"""Of a tenant, in one sweep; the next goes on."""


def begin_upload(
    access: Access,
    blobs: Blobs,
    quotas: Quotas,
    asked: UploadRequest,
    limits: Settings,
    deadline: float | None = None,
) -> UploadOut | UploadStored:
    """Where to put a payload, so that an event may cite it; nothing to put where this writer may
    cite it already. The same request again gives a fresh URL for the same upload.

    Raises TooLarge, Invalid, QuotaExceeded: a new upload uses its size of the stored bytes.
    """
    if asked.size > limits.upload_max_bytes:
        raise TooLarge(
            f"size: {asked.size} bytes, at most {limits.upload_max_bytes}. Upload it in parts, "
            "each cited by an event of its own, or ask the operator to raise "
            "STRANDLINE_UPLOAD_MAX_BYTES.",
            field="size",
            limit=limits.upload_max_bytes,
        )
    digest = _digest(asked)
    cid = cid_of_sha256(digest)
    about = (cid, asked.size, asked.mime_type, asked.name)
    standing = store_uploads.standing(access, *about, 2 * limits.upload_seconds)
    if standing.stored_size is not None:
        return _stored(cid, asked.size, standing.stored_size)
    begun = standing.begun
    if begun is None:
        quotas.spend(access.asker.tenant, "stored_bytes", asked.size, deadline)
        try:
            begun = store_uploads.begin(access, *about, limits.upload_grace_seconds)
        except Unsure:  # it may be there, and is paid for
            raise
        except Exception:
            quotas.give_back(access.asker.tenant, "stored_bytes", asked.size)
            raise
    return _put_here(access.asker.tenant, blobs, begun, cid, asked.size, digest, limits)


def _digest(asked: UploadRequest) -> bytes:
    if (asked.sha256 is None) == (asked.cid is None):
        raise Invalid("sha256: give exactly one of sha256 and cid", field="sha256")
    return bytes.fromhex(asked.sha256) if asked.sha256 else sha256_of_cid(asked.cid or "", "cid")


def _stored(cid: str, size: int, stored_size: int) -> UploadStored:
    if size != stored_size:
        raise Invalid(
            f"size: the payload with this SHA-256 is stored already and has {stored_size} bytes, "
            f"not {size}. Cite {cid}, or announce the right SHA-256.",
            field="size",
            expected_size=stored_size,
        )
    return UploadStored(cid=cid, size=size)


def _put_here(
    tenant: str,
    blobs: Blobs,
    begun: Begun,
    cid: str,
    size: int,
    digest: bytes,
    limits: Settings,
) -> UploadOut:
    expires_at = datetime.now(UTC) + timedelta(seconds=limits.upload_seconds)
    put = blobs.put_url(tenant, begun.upload_id, size, digest, limits.upload_seconds)
    return UploadOut(
        upload_id=begun.upload_id,
        cid=cid,
        size=size,
        url=put.url,
        headers=put.headers,
        expires_at=expires_at,
        cite_until=begun.remove_at,
    )


def remove_due(
    database: Database, blobs: Blobs, tenant: str, out_of_time: Callable[[], bool]
) -> int:
    """Remove a tenant's uploads past their time, cited or not: what is cited has an address of its
    own. Gives how many are gone; what is left is found again. Begins nothing once `out_of_time`."""
    removed = 0
    for writer in store_uploads.writers(database.access(Asker.background(tenant)), _WRITERS):
        if out_of_time():
            break
        access = database.access(Asker(tenant, (), writer))
        removed += _remove(access, blobs, store_uploads.due(access, REMOVED_AT_ONCE))
    return removed


def _remove(access: Access, blobs: Blobs, due: Sequence[UUID]) -> int:
    """The objects first: a row whose object is gone is found again, an object without a row never
    would be."""
    gone = blobs.remove_uploads(access.asker.tenant, due) if due else []
    if gone:
        store_uploads.forget(access, gone)
    return len(gone)
