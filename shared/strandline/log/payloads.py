"""Cite payloads by CID: what is known of them, and whether an upload is what it was said to be."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import inf
from time import monotonic

from strandline.aws.blobs import Blobs, is_text
from strandline.db.database import Access
from strandline.errors import Invalid, StrandlineError, TooLarge, Unavailable
from strandline.log import store_uploads
from strandline.log.cid import sha256_of_cid
from strandline.log.event_builder import Cited, Draft, Upload
from strandline.log.schemas import AppendRequest
from strandline.log.store_uploads import Known
from strandline.log.words_index import INDEXED_CHARS
from strandline.schemas import MAX_BODY_BYTES

_MOST_TEXT = MAX_BODY_BYTES
"""As much text as a request could bring itself is indexed in its transaction."""


def look_up(
    access: Access, blobs: Blobs, made: Mapping[int, Draft], deadline: float | None
) -> dict[int, Cited | StrandlineError]:
    """What is known of the payload that each of these requests cites, if it cites one that its
    writer may cite or has uploaded; or why it cannot. Uploads are verified here, nothing is stored.

    One look at the database, and none without a citation. Of what another writer uploaded nothing
    is known, and the store is not asked: that takes no longer than for a CID nobody has.
    """
    wanted = [
        {"place": n, "cid": draft.request.blob.cid, "participants": draft.participants}
        for n, draft in made.items()
        if draft.request.blob is not None
    ]
    if not wanted:
        return {}
    reader = _Reader(access.asker.tenant, blobs, inf if deadline is None else deadline)
    found: dict[int, Cited | StrandlineError] = {}
    for place, rows in groupby(store_uploads.known(access, wanted), key=lambda row: row.place):
        try:
            cited = reader.cited(list(rows))
            if cited is not None:
                found[place] = reader.with_text(cited, made[place].request)
        except (Invalid, TooLarge) as error:
            found[place] = error
    return found


class _Reader:
    """What one request learns from the store: each upload is verified once, each text read once."""

    def __init__(self, tenant: str, blobs: Blobs, deadline: float) -> None:
        self._tenant = tenant
        self._blobs = blobs
        self._deadline = deadline
        self._verified: dict[str, Cited | Invalid] = {}
        self._texts: dict[str, str] = {}
        self._room = _MOST_TEXT

    def cited(self, rows: Sequence[Known]) -> Cited | None:
        """What one citation's rows say. None: append will say that there is no such payload. Raises
        Invalid for an upload that is not there or not as announced."""
        newest = rows[0]
        if newest.citable:
            return Cited(newest.cid, newest.mime_type or newest.held_as, newest.file_name)
        if newest.upload_id is None:
            return None
        if newest.cid not in self._verified:
            self._verified[newest.cid] = self._verify(rows)
        verified = self._verified[newest.cid]
        if isinstance(verified, Invalid):
            raise verified
        return verified

    def _verify(self, rows: Sequence[Known]) -> Cited | Invalid:
        """The upload among several of one CID that is there, and is what it was said to be."""
        wrong: Invalid | None = None
        for row in rows:
            assert row.upload_id is not None, "a row without an upload is alone"
            assert row.size is not None, "an upload has a size"
            self._in_time()
            there = self._blobs.uploaded(self._tenant, row.upload_id, self._deadline)
            if there is None:
                continue
            same_bytes = there.sha256 == sha256_of_cid(row.cid, "blob.cid")
            if same_bytes and there.size == row.size:
                upload = Upload(row.upload_id, row.size, there.etag)
                return Cited(row.cid, row.mime_type, row.file_name, upload=upload)
            wrong = wrong or _mismatch(row.size, there.size, same_bytes)
            # Nothing may lie in the way of another PUT.
            self._blobs.remove_uploads(self._tenant, [row.upload_id])
        return wrong or Invalid(
            "blob.cid: nothing was put where this upload was to go. PUT the payload to the URL "
            "that POST /api/v1/uploads gave, or ask it for a fresh one; then send this again.",
            field="blob.cid",
            reason="upload_missing",
            expected_size=rows[0].size,
        )

    def with_text(self, cited: Cited, asked: AppendRequest) -> Cited:
        """With the beginning of its text, if it is text. Raises TooLarge when this request cites
        more of it than is indexed at once."""
        if not is_text(asked.mime_type or cited.mime_type):
            return cited
        if self._room > 0 and cited.cid not in self._texts:
            self._in_time()
            self._texts[cited.cid] = self._blobs.head_text(
                self._tenant, cited.cid, INDEXED_CHARS, cited.upload and cited.upload.upload_id
            )
        text = self._texts.get(cited.cid)
        self._room -= 0 if text is None else len(text.encode())
        if text is None or self._room < 0:
            self._room = 0
            raise TooLarge(
                f"blob.cid: one request indexes {_MOST_TEXT} bytes of payloads' text at most. Cite "
                "this payload in a request of its own.",
                field="blob.cid",
                limit=_MOST_TEXT,
            )
        return replace(cited, text=text)

    def _in_time(self) -> None:
        if monotonic() > self._deadline:
            raise Unavailable("The payload store is too slow for so much. Cite less at once.")


def _mismatch(expected: int, found: int, same_bytes: bool) -> Invalid:
    if same_bytes:
        said = f"the upload was announced with {expected} bytes, and the payload has {found}"
    else:
        said = f"what was put there ({found} bytes) is not what this CID names ({expected} bytes)"
    return Invalid(
        f"blob.cid: {said}. It was thrown away: ask POST /api/v1/uploads for a URL with the right "
        "size and SHA-256, and put the payload again.",
        field="blob.cid",
        reason="upload_mismatch",
        expected_size=expected,
        found_size=found,
    )
