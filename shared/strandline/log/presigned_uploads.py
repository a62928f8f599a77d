"""Uploads: presigned URLs by which callers upload payloads themselves, and the removal of expired
uploads."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from strandline.aws.blobs import BlobStore
from strandline.aws.object_removal import MAX_KEYS_PER_CALL
from strandline.config import ServiceSettings
from strandline.db.database import Caller, Database, TenantDb
from strandline.errors import Invalid, OutcomeUnknown, TooLarge
from strandline.log import store_uploads
from strandline.log.cid import payload_cid_of_sha256, sha256_of_payload_cid
from strandline.log.schemas_append import PayloadAlreadyStored, UploadInstructions, UploadRequest
from strandline.log.store_uploads import PendingUpload
from strandline.tenants.quotas import QuotaManager

_WRITERS_PER_SWEEP = 100
"""The maximum number of a tenant's writers per sweep. The next sweep continues."""


def begin_upload(
    access: TenantDb,
    blobs: BlobStore,
    quotas: QuotaManager,
    request: UploadRequest,
    settings: ServiceSettings,
    deadline: float | None = None,
) -> UploadInstructions | PayloadAlreadyStored:
    """Begin an upload, so that an event may cite the payload.

    Returns PayloadAlreadyStored where this writer may already cite it. The same request again
    returns a new URL for the same upload. Raises TooLarge, Invalid or QuotaExceeded: a new upload
    uses its size of the quota `stored_bytes`; OutcomeUnknown when the connection broke while
    recording it."""
    if request.size > settings.upload_max_bytes:
        raise TooLarge(
            f"size: is {request.size} bytes, at most {settings.upload_max_bytes}. Upload the "
            "payload in parts, each cited by an event of its own, or ask the operator to raise "
            "STRANDLINE_UPLOAD_MAX_BYTES.",
            field="size",
            limit=settings.upload_max_bytes,
        )
    digest = _require_payload_sha256(request)
    cid = payload_cid_of_sha256(digest)
    payload = (cid, request.size, request.mime_type, request.name)
    status = store_uploads.find_stored_payload_or_pending_upload(
        access, *payload, 2 * settings.upload_seconds
    )
    if status.stored_size is not None:
        return _make_stored_answer(cid, request.size, status.stored_size)
    pending_upload = status.pending_upload
    if pending_upload is None:
        quotas.spend(access.caller.tenant, "stored_bytes", request.size, deadline)
        try:
            pending_upload = store_uploads.create_upload(
                access, *payload, settings.upload_grace_seconds
            )
        except OutcomeUnknown:  # the upload may exist, so its quota stays charged
            raise
        except Exception:
            quotas.refund(access.caller.tenant, "stored_bytes", request.size)
            raise
    return _make_upload_answer(
        access.caller.tenant, blobs, pending_upload, cid, request.size, digest, settings
    )


def _require_payload_sha256(request: UploadRequest) -> bytes:
    if (request.sha256 is None) == (request.cid is None):
        raise Invalid("sha256: give exactly one of sha256 and cid", field="sha256")
    return (
        bytes.fromhex(request.sha256)
        if request.sha256
        else sha256_of_payload_cid(request.cid or "", "cid")
    )


def _make_stored_answer(cid: str, size: int, stored_size: int) -> PayloadAlreadyStored:
    if size != stored_size:
        raise Invalid(
            f"size: the payload with this SHA-256 is already stored and has {stored_size} bytes, "
            f"not {size}. Cite {cid}, or send the right SHA-256.",
            field="size",
            expected_size=stored_size,
        )
    return PayloadAlreadyStored(cid=cid, size=size)


def _make_upload_answer(
    tenant: str,
    blobs: BlobStore,
    pending_upload: PendingUpload,
    cid: str,
    size: int,
    digest: bytes,
    settings: ServiceSettings,
) -> UploadInstructions:
    expires_at = datetime.now(UTC) + timedelta(seconds=settings.upload_seconds)
    target = blobs.presign_put(
        tenant, pending_upload.upload_id, size, digest, settings.upload_seconds
    )
    return UploadInstructions(
        upload_id=pending_upload.upload_id,
        cid=cid,
        size=size,
        url=target.url,
        headers=target.headers,
        expires_at=expires_at,
        cite_until=pending_upload.remove_at,
    )


def remove_expired_uploads(
    database: Database, blobs: BlobStore, tenant: str, is_out_of_time: Callable[[], bool]
) -> int:
    """Remove a tenant's expired uploads, cited or not: a cited payload was copied to its own
    address. Returns the number removed; the next call finds the rest. Starts nothing once
    `is_out_of_time`."""
    removed_count = 0
    for writer in store_uploads.list_writers_with_expired_uploads(
        database.connect_as(Caller.background(tenant)), _WRITERS_PER_SWEEP
    ):
        if is_out_of_time():
            break
        access = database.connect_as(Caller(tenant, (), writer))
        removed_count += _remove_upload_objects_and_rows(
            access, blobs, store_uploads.list_expired_uploads(access, MAX_KEYS_PER_CALL)
        )
    return removed_count


def _remove_upload_objects_and_rows(
    access: TenantDb, blobs: BlobStore, upload_ids: Sequence[UUID]
) -> int:
    """Remove the objects before their rows. A row whose object is gone is found again; an object
    without a row never would be."""
    removed_ids = blobs.erase_uploads(access.caller.tenant, upload_ids) if upload_ids else []
    if removed_ids:
        store_uploads.delete_expired_upload_rows(access, removed_ids)
    return len(removed_ids)
