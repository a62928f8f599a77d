"""Cite payloads by CID: what is known of them, and whether an upload is what it was said to be."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import inf
from time import monotonic

from strandline.aws.blobs import BlobStore, is_text
from strandline.db.database import TenantDb
from strandline.errors import Invalid, StrandlineError, TooLarge, Unavailable
from strandline.log import store_uploads
from strandline.log.cid import sha256_of_cid
from strandline.log.event_builder import CitedPayload, EventDraft, VerifiedUpload
from strandline.log.schemas import AppendRequest
from strandline.log.store_uploads import PayloadStatus
from strandline.log.words_index import INDEXED_CHARS
from strandline.schemas import MAX_BODY_BYTES

_MAX_TEXT_BYTES = MAX_BODY_BYTES
"""As much text as a request could bring itself is indexed in its transaction."""


def resolve_citations(
    access: TenantDb,
    blobs: BlobStore,
    drafts_by_n: Mapping[int, EventDraft],
    deadline: float | None,
) -> dict[int, CitedPayload | StrandlineError]:
    """What is known of the payload that each of these requests cites, if it cites one that its
    writer may cite or has uploaded; or why it cannot. Uploads are verified here, nothing is stored.

    One look at the database, and none without a citation. Of what another writer uploaded nothing
    is known, and the store is not asked: that takes no longer than for a CID nobody has.
    """
    citations = [
        {"place": n, "cid": draft.request.blob.cid, "participants": draft.participants}
        for n, draft in drafts_by_n.items()
        if draft.request.blob is not None
    ]
    if not citations:
        return {}
    reader = _PayloadReader(access.caller.tenant, blobs, inf if deadline is None else deadline)
    results: dict[int, CitedPayload | StrandlineError] = {}
    for n, rows in groupby(
        store_uploads.look_up_payloads(access, citations), key=lambda row: row.place
    ):
        try:
            payload = reader.resolve(list(rows))
            if payload is not None:
                results[n] = reader.attach_text(payload, drafts_by_n[n].request)
        except (Invalid, TooLarge) as error:
            results[n] = error
    return results


class _PayloadReader:
    """What one request learns from the store: each upload is verified once, each text read once."""

    def __init__(self, tenant: str, blobs: BlobStore, deadline: float) -> None:
        self._tenant = tenant
        self._blobs = blobs
        self._deadline = deadline
        self._upload_checks: dict[str, CitedPayload | Invalid] = {}
        self._texts: dict[str, str] = {}
        self._text_budget = _MAX_TEXT_BYTES

    def resolve(self, rows: Sequence[PayloadStatus]) -> CitedPayload | None:
        """What one citation's rows say. None: append will say that there is no such payload. Raises
        Invalid for an upload that is not there or not as announced."""
        newest = rows[0]
        if newest.citable:
            return CitedPayload(newest.cid, newest.mime_type or newest.held_as, newest.file_name)
        if newest.upload_id is None:
            return None
        if newest.cid not in self._upload_checks:
            self._upload_checks[newest.cid] = self._verify_upload(rows)
        upload_check = self._upload_checks[newest.cid]
        if isinstance(upload_check, Invalid):
            raise upload_check
        return upload_check

    def _verify_upload(self, rows: Sequence[PayloadStatus]) -> CitedPayload | Invalid:
        """The upload among several of one CID that is there, and is what it was said to be."""
        mismatch: Invalid | None = None
        for row in rows:
            assert row.upload_id is not None, "a row without an upload is alone"
            assert row.size is not None, "an upload has a size"
            self._require_time()
            stored_object = self._blobs.inspect_upload(self._tenant, row.upload_id, self._deadline)
            if stored_object is None:
                continue
            has_same_bytes = stored_object.sha256 == sha256_of_cid(row.cid, "blob.cid")
            if has_same_bytes and stored_object.size == row.size:
                upload = VerifiedUpload(row.upload_id, row.size, stored_object.etag)
                return CitedPayload(row.cid, row.mime_type, row.file_name, upload=upload)
            mismatch = mismatch or _make_mismatch(row.size, stored_object.size, has_same_bytes)
            # Nothing may lie in the way of another PUT.
            self._blobs.remove_uploads(self._tenant, [row.upload_id])
        return mismatch or Invalid(
            "blob.cid: nothing was put where this upload was to go. PUT the payload to the URL "
            "that POST /api/v1/uploads gave, or ask it for a fresh one; then send this again.",
            field="blob.cid",
            reason="upload_missing",
            expected_size=rows[0].size,
        )

    def attach_text(self, payload: CitedPayload, request: AppendRequest) -> CitedPayload:
        """With the beginning of its text, if it is text. Raises TooLarge when this request cites
        more of it than is indexed at once."""
        if not is_text(request.mime_type or payload.mime_type):
            return payload
        if self._text_budget > 0 and payload.cid not in self._texts:
            self._require_time()
            self._texts[payload.cid] = self._blobs.read_text_prefix(
                self._tenant,
                payload.cid,
                INDEXED_CHARS,
                payload.upload and payload.upload.upload_id,
            )
        text = self._texts.get(payload.cid)
        self._text_budget -= 0 if text is None else len(text.encode())
        if text is None or self._text_budget < 0:
            self._text_budget = 0
            raise TooLarge(
                f"blob.cid: one request indexes {_MAX_TEXT_BYTES} bytes of payloads' text at "
                "most. Cite "
                "this payload in a request of its own.",
                field="blob.cid",
                limit=_MAX_TEXT_BYTES,
            )
        return replace(payload, text=text)

    def _require_time(self) -> None:
        if monotonic() > self._deadline:
            raise Unavailable("The payload store is too slow for so much. Cite less at once.")


def _make_mismatch(expected: int, actual: int, has_same_bytes: bool) -> Invalid:
    if has_same_bytes:
        explanation = (
            f"the upload was announced with {expected} bytes, and the payload has {actual}"
        )
    else:
        explanation = (
            f"what was put there ({actual} bytes) is not what this CID names ({expected} bytes)"
        )
    return Invalid(
        f"blob.cid: {explanation}. It was thrown away: ask POST /api/v1/uploads for a URL with "
        "the right "
        "size and SHA-256, and put the payload again.",
        field="blob.cid",
        reason="upload_mismatch",
        expected_size=expected,
        found_size=actual,
    )
