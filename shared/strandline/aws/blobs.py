"""Payloads in S3 under `<tenant>/<cid>`: stored by content, fetched by short-lived URLs.

Payloads that callers upload themselves wait under `_uploads/<tenant>/<upload_id>`, exports of the
graph under `_exports/<tenant>/<export_id>`, and the shard lists of job runs lie under
`_jobs/<run>/`. No tenant's name can begin with an underscore.
"""

import base64
import functools
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from urllib.parse import quote
from uuid import UUID

from strandline.aws import client_factory
from strandline.aws.object_removal import (
    MAX_KEYS_PER_CALL,
    Bucket,
    FileErasureCounts,
    make_s3_client_config,
    translate_s3_errors,
)
from strandline.aws.payload_texts import SNIFFED_BYTES, decode_payload_text
from strandline.errors import PayloadMissing, Unavailable

_MISSING_STATUSES = (404, 412)
_MISSING_CODES = ("NoSuchKey", "InvalidRange")
"""S3's error codes for a missing object, or for a range beyond its end."""
_CHUNK_BYTES = 1024 * 1024
_RUNS_PREFIX = "_jobs/"
"""The prefix of shard lists; no tenant's name can begin with an underscore."""

_EXPORTS_PREFIX = "_exports/"


@dataclass(frozen=True)
class PresignedPut:
    """A URL that accepts one payload, and the headers that must be sent with it."""

    url: str
    headers: dict[str, str]


@dataclass(frozen=True)
class UploadedObject:
    """The size, SHA-256 and ETag of an object that a caller uploaded."""

    size: int
    sha256: bytes
    etag: str


@dataclass(frozen=True)
class StoredPayload:
    """A stored payload."""

    cid: str
    stored_at: datetime
    """When its bytes were last put, by S3's clock."""


class BlobStore(Bucket):
    """The payloads of one bucket. Methods raise Unavailable when S3 cannot be reached."""

    @functools.cached_property
    def _slow_copy_client(self) -> Any:
        """A client for copies. S3 answers only when the whole copy is done, so it gets a long
        timeout and no retry, which would be no faster."""
        return client_factory.make_client("s3", make_s3_client_config(22, 1))

    def put(self, tenant: str, cid: str, data: bytes) -> None:
        """Store a payload under its CID. Doing it twice changes nothing."""
        with translate_s3_errors():
            self.s3.put_object(Bucket=self.name, Key=f"{tenant}/{cid}", Body=data)

    def read_text_prefix(
        self,
        tenant: str,
        cid: str,
        size: int,
        mime_type: str | None,
        upload_id: UUID | None = None,
    ) -> str:
        """The first `size` bytes of a payload of this type, or of a pending upload, as text that
        can be stored: see `decode_payload_text`. Raises PayloadMissing when there is no such
        object."""
        location = {"Bucket": self.name, "Key": f"{tenant}/{cid}"}
        if upload_id is not None:
            location = self._make_upload_location(tenant, upload_id)
        with translate_s3_errors():
            try:
                last = max(size, SNIFFED_BYTES) - 1
                response = self.s3.get_object(**location, Range=f"bytes=0-{last}")
            except client_factory.client_error_class() as error:
                if _get_error_code(error) not in _MISSING_CODES:
                    raise
                raise PayloadMissing from None
            data = response["Body"].read()
        return decode_payload_text(data, size, mime_type)

    def read(self, tenant: str, cid: str) -> bytes:
        """A whole payload, which the caller knows to be small. Raises PayloadMissing when there is
        no such object."""
        with translate_s3_errors():
            try:
                response = self.s3.get_object(Bucket=self.name, Key=f"{tenant}/{cid}")
            except client_factory.client_error_class() as error:
                if _get_error_code(error) not in _MISSING_CODES:
                    raise
                raise PayloadMissing from None
            with closing(response["Body"]) as body:
                return body.read()

    def presign_get(
        self, tenant: str, cid: str, mime_type: str | None, name: str | None, seconds: int
    ) -> str:
        """A URL that fetches this payload for `seconds`. A browser saves the payload and never runs
        it."""
        params = {
            "Bucket": self.name,
            "Key": f"{tenant}/{cid}",
            "ResponseContentType": mime_type or "application/octet-stream",
            "ResponseContentDisposition": _make_content_disposition(name or cid),
        }
        return self.s3.generate_presigned_url("get_object", Params=params, ExpiresIn=seconds)

    def presign_put(
        self, tenant: str, upload_id: UUID, size: int, sha256: bytes, seconds: int
    ) -> PresignedPut:
        """A URL that accepts exactly these bytes, once, for `seconds`: length and SHA-256 are
        signed."""
        checksum = base64.b64encode(sha256).decode()
        params = {
            **self._make_upload_location(tenant, upload_id),
            "ContentLength": size,
            "ChecksumSHA256": checksum,
            "IfNoneMatch": "*",
        }
        url = self.s3.generate_presigned_url("put_object", Params=params, ExpiresIn=seconds)
        headers = {"Content-Length": str(size), "If-None-Match": "*"}
        return PresignedPut(url, {**headers, "x-amz-checksum-sha256": checksum})

    def inspect_upload(
        self, tenant: str, upload_id: UUID, deadline: float
    ) -> UploadedObject | None:
        """What a caller uploaded, or None. S3 verified the SHA-256 that it reports when it received
        the bytes. If it reports none, the bytes are read and hashed; raises Unavailable if that is
        not done by `deadline` (time.monotonic())."""
        location = self._make_upload_location(tenant, upload_id)
        with translate_s3_errors():
            try:
                head = self.s3.head_object(**location, ChecksumMode="ENABLED")
                if checksum := head.get("ChecksumSHA256"):
                    # For a multipart object it is a hash of hashes, which matches no payload.
                    digest = base64.b64decode(checksum.partition("-")[0])
                else:
                    digest = self._hash_object_until_deadline(location, head["ETag"], deadline)
            except client_factory.client_error_class() as error:
                if _get_http_status(error) in _MISSING_STATUSES:
                    return None
                raise
        return UploadedObject(head["ContentLength"], digest, head["ETag"])

    def copy_upload_to_cid(self, tenant: str, upload_id: UUID, cid: str, etag: str) -> bool:
        """Copy an upload that was verified under this ETag to its CID. False: it is no longer
        there. Doing it twice changes nothing."""
        with translate_s3_errors():
            try:
                self._slow_copy_client.copy_object(
                    Bucket=self.name,
                    Key=f"{tenant}/{cid}",
                    CopySource=self._make_upload_location(tenant, upload_id),
                    CopySourceIfMatch=etag,
                )
            except client_factory.client_error_class() as error:
                if _get_http_status(error) in _MISSING_STATUSES:
                    return False
                raise
        return True

    def read_upload_prefix(self, tenant: str, upload_id: UUID, max_bytes: int) -> bytes:
        """The first `max_bytes` of what a caller uploaded. Raises PayloadMissing when there is no
        such object."""
        location = self._make_upload_location(tenant, upload_id)
        with translate_s3_errors():
            try:
                response = self.s3.get_object(**location)
            except client_factory.client_error_class() as error:
                if _get_error_code(error) not in _MISSING_CODES:
                    raise
                raise PayloadMissing from None
            with closing(response["Body"]) as body:
                return body.read(max_bytes)

    def erase_uploads(self, tenant: str, upload_ids: Sequence[UUID]) -> list[UUID]:
        """Remove uploads with all their versions, which no row would name any more: up to
        MAX_KEYS_PER_CALL of them, whether they exist or not. Returns those that do not exist any
        more."""
        keys = {
            self._make_upload_location(tenant, upload_id)["Key"]: upload_id
            for upload_id in upload_ids
        }
        version_counts = self.erase_all_versions(list(keys))
        return [upload_id for key, upload_id in keys.items() if key in version_counts]

    def delete_uploaded_object(self, tenant: str, upload_id: UUID) -> None:
        """Remove an upload's object, so that another PUT is accepted. A bucket that keeps versions
        keeps it until the upload is removed."""
        self.delete_keys([self._make_upload_location(tenant, upload_id)["Key"]])

    def list_payloads(self, tenant: str, after: str) -> list[StoredPayload]:
        """A tenant's payloads with a CID after `after`, in order, up to MAX_KEYS_PER_CALL; empty at
        the end."""
        prefix = f"{tenant}/"
        with translate_s3_errors():
            response = self.s3.list_objects_v2(
                Bucket=self.name,
                Prefix=prefix,
                StartAfter=prefix + after,
                MaxKeys=MAX_KEYS_PER_CALL,
            )
        objects = response.get("Contents", [])
        return [
            StoredPayload(item["Key"].removeprefix(prefix), item["LastModified"])
            for item in objects
        ]

    def remove(self, tenant: str, cids: Sequence[str]) -> list[str]:
        """Remove payloads, up to MAX_KEYS_PER_CALL. Returns the CIDs that do not exist any more."""
        prefix = f"{tenant}/"
        return [
            key.removeprefix(prefix) for key in self.delete_keys([prefix + cid for cid in cids])
        ]

    def put_export(self, tenant: str, export_id: UUID, data: bytes) -> None:
        """Store the file of an export."""
        key = f"{_EXPORTS_PREFIX}{tenant}/{export_id}"
        with translate_s3_errors():
            self.s3.put_object(Bucket=self.name, Key=key, Body=data)

    def presign_export(self, tenant: str, export_id: UUID, seconds: int) -> str:
        """A URL that fetches the file of an export for `seconds`."""
        params = {
            "Bucket": self.name,
            "Key": f"{_EXPORTS_PREFIX}{tenant}/{export_id}",
            "ResponseContentType": "application/jsonl",
            "ResponseContentDisposition": _make_content_disposition(f"graph-{export_id}.jsonl"),
        }
        return self.s3.generate_presigned_url("get_object", Params=params, ExpiresIn=seconds)

    def delete_old_exports(self, before: datetime) -> int:
        """Delete the files of exports that were stored before `before`, up to MAX_KEYS_PER_CALL.
        Returns how many."""
        return self.delete_stored_before(_EXPORTS_PREFIX, before)

    def erase_exports(self, tenant: str, before: datetime) -> Iterator[FileErasureCounts]:
        """Remove the files of a tenant's exports that were stored before `before`, with all their
        versions. Each step erases one listing of them and yields the outcome."""
        return self.erase_stored_before(f"{_EXPORTS_PREFIX}{tenant}/", before)

    def put_shards(self, run: str, shards: Sequence[Mapping[str, object]]) -> str:
        """Store the list of a run's items, as the state machine reads it. Returns its key."""
        key = f"{_RUNS_PREFIX}{run}/shards.json"
        with translate_s3_errors():
            self.s3.put_object(Bucket=self.name, Key=key, Body=json.dumps(shards).encode())
        return key

    def delete_shards(self, run: str) -> None:
        """Delete a run's list of shards."""
        self.delete_keys([f"{_RUNS_PREFIX}{run}/shards.json"])

    def delete_old_shards(self, before: datetime) -> int:
        """Delete the lists of runs that were stored before `before`, up to MAX_KEYS_PER_CALL.
        Returns how many."""
        return self.delete_stored_before(_RUNS_PREFIX, before)

    def _make_upload_location(self, tenant: str, upload_id: UUID) -> dict[str, str]:
        return {"Bucket": self.name, "Key": f"_uploads/{tenant}/{upload_id}"}

    def _hash_object_until_deadline(
        self, location: dict[str, str], etag: str, deadline: float
    ) -> bytes:
        digest = hashlib.sha256()
        with closing(self.s3.get_object(**location, IfMatch=etag)["Body"]) as body:
            for chunk in body.iter_chunks(_CHUNK_BYTES):
                digest.update(chunk)
                if time.monotonic() > deadline:
                    raise Unavailable(
                        "The payload store is too slow to verify this upload. Try again."
                    )
        return digest.digest()


def _make_content_disposition(name: str) -> str:
    """A Content-Disposition for a file of any name (RFC 6266)."""
    return f"attachment; filename*=UTF-8''{quote(name, safe='')}"


def _get_http_status(error: Exception) -> int:
    return cast("Any", error).response["ResponseMetadata"]["HTTPStatusCode"]


def _get_error_code(error: Exception) -> str:
    return cast("Any", error).response["Error"]["Code"]
