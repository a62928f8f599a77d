"""Resolve payloads that requests cite by CID, and verify uploads against their announcement."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import inf
from time import monotonic

from strandline.aws.blobs import BlobStore
from strandline.aws.payload_texts import is_text_type
from strandline.db.database import TenantDb
from strandline.errors import Invalid, PayloadMissing, StrandlineError, TooLarge, Unavailable
from strandline.log import store_uploads
from strandline.log.cid import sha256_of_payload_cid
from strandline.log.event_draft import CitedPayload, EventDraft, VerifiedUpload
from strandline.log.indexed_text import INDEXED_CHARS
from strandline.log.schemas_append import AppendRequest
from strandline.log.store_uploads import CitedCidStatus
from strandline.schemas import MAX_BODY_BYTES

_MAX_TEXT_BYTES = MAX_BODY_BYTES
"""The maximum text of cited payloads, in bytes, that one request's transaction indexes: as much as
a request could contain itself."""


def resolve_cited_payloads(
    access: TenantDb,
    blobs: BlobStore,
    drafts_by_n: Mapping[int, EventDraft],
    deadline: float | None,
) -> dict[int, CitedPayload | StrandlineError]:
    """Resolve the payload that each draft cites, by item number: the payload, or the error that
    refuses it.

    Drafts that cite nothing, or a CID unknown to this writer, are absent. Uploads are verified
    here; nothing is stored. `deadline` is in time.monotonic() seconds. Raises Unavailable when the
    store is too slow.

    It takes one database query, and none without a citation. Uploads of other writers are
    invisible, and the store is not queried for them: that takes no longer than for an unknown CID.
    """
    citations = [
        {"place": n, "cid": draft.request.blob.cid, "participants": draft.participants}
        for n, draft in drafts_by_n.items()
        if draft.request.blob is not None
    ]
    if not citations:
        return {}
    reader = _CitedPayloadReader(access.caller.tenant, blobs, inf if deadline is None else deadline)
    results: dict[int, CitedPayload | StrandlineError] = {}
    for n, rows in groupby(
        store_uploads.look_up_cited_payloads(access, citations), key=lambda row: row.place
    ):
        try:
            payload = reader.resolve_citation(list(rows))
            if payload is not None:
                results[n] = reader.add_text_to_payload(payload, drafts_by_n[n].request)
        except (Invalid, TooLarge) as error:
            results[n] = error
    return results


class _CitedPayloadReader:
    """Reads payloads from the store for one request. Each upload is verified once and each text
    read once."""

    def __init__(self, tenant: str, blobs: BlobStore, deadline: float) -> None:
        self._tenant = tenant
        self._blobs = blobs
        self._deadline = deadline
        self._upload_checks: dict[str, CitedPayload | Invalid] = {}
        self._texts: dict[tuple[str, str | None], str] = {}
        self._text_budget = _MAX_TEXT_BYTES

    def resolve_citation(self, rows: Sequence[CitedCidStatus]) -> CitedPayload | None:
        """The payload of one citation's rows; None where append will report an unknown CID. Raises
        Invalid for an upload that is missing or not as announced."""
        newest = rows[0]
        if newest.citable:
            return CitedPayload(
                newest.cid, newest.mime_type or newest.stored_mime_type, newest.file_name
            )
        if newest.upload_id is None:
            return None
        if newest.cid not in self._upload_checks:
            self._upload_checks[newest.cid] = self._find_verified_upload(rows)
        upload_check = self._upload_checks[newest.cid]
        if isinstance(upload_check, Invalid):
            raise upload_check
        return upload_check

    def _find_verified_upload(self, rows: Sequence[CitedCidStatus]) -> CitedPayload | Invalid:
        """Verify the uploads of one CID. Returns the first whose size and SHA-256 are as announced,
        else the error to raise."""
        mismatch: Invalid | None = None
        for row in rows:
            assert row.upload_id is not None, "a row without an upload is alone"
            assert row.size is not None, "an upload has a size"
            self._require_time_left()
            stored_object = self._blobs.inspect_upload(self._tenant, row.upload_id, self._deadline)
            if stored_object is None:
                continue
            has_same_bytes = stored_object.sha256 == sha256_of_payload_cid(row.cid, "blob.cid")
            if has_same_bytes and stored_object.size == row.size:
                upload = VerifiedUpload(row.upload_id, row.size, stored_object.etag)
                return CitedPayload(row.cid, row.mime_type, row.file_name, upload=upload)
            mismatch = mismatch or _make_upload_mismatch_error(
                row.size, stored_object.size, has_same_bytes
            )
            # The object must not block another PUT.
            self._blobs.delete_uploaded_object(self._tenant, row.upload_id)
        return mismatch or Invalid(
            "blob.cid: the payload of this upload is missing. PUT it to the URL that POST "
            "/api/v1/uploads returned, or request a new URL there; then send this again.",
            field="blob.cid",
            reason="upload_missing",
            expected_size=rows[0].size,
        )

    def _read_payload_text(self, payload: CitedPayload, mime_type: str | None) -> str:
        """The first characters of a payload. Raises Unavailable when the store is too slow, or when
        the object went after it was looked up: a retry finds out why."""
        self._require_time_left()
        upload_id = payload.upload and payload.upload.upload_id
        try:
            return self._blobs.read_text_prefix(
                self._tenant, payload.cid, INDEXED_CHARS, mime_type, upload_id
            )
        except PayloadMissing:
            raise Unavailable(
                "The payload was removed while it was read. Send this again."
            ) from None

    def add_text_to_payload(self, payload: CitedPayload, request: AppendRequest) -> CitedPayload:
        """The payload with the first characters of its text, if it is text. Raises TooLarge when
        this request cites more text than one request indexes, Unavailable when the store is too
        slow."""
        mime_type = request.mime_type or payload.mime_type
        if not is_text_type(mime_type):
            return payload
        place = (payload.cid, mime_type)
        if self._text_budget > 0 and place not in self._texts:
            self._texts[place] = self._read_payload_text(payload, mime_type)
        text = self._texts.get(place)
        self._text_budget -= 0 if text is None else len(text.encode())
        if text is None or self._text_budget < 0:
            self._text_budget = 0
            raise TooLarge(
                f"blob.cid: one request indexes at most {_MAX_TEXT_BYTES} bytes of payloads' text. "
                "Cite this payload in a request of its own.",
                field="blob.cid",
                limit=_MAX_TEXT_BYTES,
            )
        return replace(payload, text=text)

    def _require_time_left(self) -> None:
        if monotonic() > self._deadline:
            raise Unavailable("The payload store is too slow. Cite fewer payloads per request.")


def _make_upload_mismatch_error(expected: int, actual: int, has_same_bytes: bool) -> Invalid:
    if has_same_bytes:
        explanation = (
            f"the upload was announced with {expected} bytes, and the payload has {actual}"
        )
    else:
        explanation = (
            f"the payload that was uploaded ({actual} bytes) does not match this CID ({expected} "
            "bytes)"
        )
    return Invalid(
        f"blob.cid: {explanation}. It was removed: send POST /api/v1/uploads the right size and "
        "SHA-256, and upload the payload again.",
        field="blob.cid",
        reason="upload_mismatch",
        expected_size=expected,
        found_size=actual,
    )
