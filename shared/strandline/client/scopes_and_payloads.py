"""Verbs that look things up: scopes, sessions, payloads, and the service itself."""

from __future__ import annotations

import codecs
import hashlib
import mimetypes
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias
from uuid import UUID

from strandline.client import answers
from strandline.client.memory import Fields, MemoryVerbs, Role
from strandline.client.request_building import Call, VerbGroup
from strandline.client.verb_declarations import (
    BlockingStep,
    MultiRequestVerb,
    Steps,
    operation,
    pages,
    yield_step,
)

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the bytes that were sent, and those of the whole file."""

BlockForm: TypeAlias = Literal["raw", "car"]
"""One block, or blocks in a CAR file."""

_CAR_NAMES = {
    name: name.replace("_", "-")
    for name in ("dag_scope", "entity_bytes", "car_version", "car_order", "car_dups")
}
_PIECE_BYTES = 1024 * 1024
_LOOKED_AT_BYTES = 64 * 1024
_TELLING_TYPES = re.compile(r"text/.+|.+\+(json|xml)|application/(?!octet-stream|x-).+")
_NOT_IN_TEXT = bytes([*range(7), *range(14, 27), *range(28, 32), 127])  # escape colours a log
_PRESENT = 412
"""The payload store's status for what is uploaded already."""


@dataclass(frozen=True)
class _FileBodyStream:
    """A file as a request's body, with progress."""

    path: Path
    size: int
    progress: Progress | None

    def iterate_pieces(self) -> Iterator[bytes]:
        """The file from the beginning."""
        position = 0
        with self.path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece
                position += len(piece)
                if self.progress is not None:
                    self.progress(position, self.size)


def measure_and_hash_file(path: Path) -> tuple[int, str]:
    """The size of a file and its SHA-256, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
        return file.tell(), digest.hexdigest()


def guess_media_type(path: Path) -> str:
    """The media type of a file, by its name. Of names that tell none, as those of logs, settings
    and programs, or that of a picture or film, it is `text/plain` where the file begins
    without control characters, or as UTF-16: the service reads and finds what is text."""
    kind, compression = mimetypes.guess_type(path.name)
    by_name = "application/octet-stream" if kind is None or compression else kind
    if _TELLING_TYPES.fullmatch(by_name):
        return by_name
    with path.open("rb") as file:
        beginning = file.read(_LOOKED_AT_BYTES)
    is_text = beginning and len(beginning.translate(None, _NOT_IN_TEXT)) == len(beginning)
    is_utf16 = beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return "text/plain" if is_text or is_utf16 else by_name


def upload_unless_stored(
    caller: VerbGroup, file: Path, media: str, name: str, progress: Progress | None
) -> Steps[str]:
    """Upload a file unless it is stored already; its CID."""
    size, digest = yield from yield_step(BlockingStep(lambda: measure_and_hash_file(file)))
    place = yield from yield_step(
        ScopeAndPayloadVerbs.prepare_upload.call(
            caller, size=size, sha256=digest, mime_type=media, name=name
        )
    )
    if isinstance(place, answers.UploadInstructions):
        stream = _FileBodyStream(file, size, progress)
        yield from yield_step(
            Call("PUT", place.url, _ignore_answer, (), stream, place.headers, also=(_PRESENT,))
        )
    return place.cid


class ScopeAndPayloadVerbs(VerbGroup):
    """Verbs that every client has besides those of memory."""

    @pages("GET /api/v1/scopes", "ScopePage.scopes", names={"page_size": "limit"})
    def scopes(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        page_size: int | None = None,
        cursor: str | None = None,
    ) -> answers.ScopeOut:
        """The visible scopes: sets of participants with their events, newest first."""
        ...

    @operation("GET /api/v1/scopes/{scope_id}")
    def scope(
        self,
        scope_id: UUID | str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
    ) -> answers.ScopeOut:
        """One scope. Raises NotFoundError."""
        ...

    @operation("GET /api/v1/scopes/{scope_id}/events")
    def feed_page(
        self,
        scope_id: UUID | str,
        *,
        after_seq: int = 0,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        limit: int | None = None,
    ) -> answers.FeedPage:
        """The events of a scope after a `seq`; `events()` iterates over all of them."""
        ...

    @operation("GET /memory/{cid}")
    def get_by_cid(
        self,
        cid: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
    ) -> answers.EventOut:
        """The earliest visible event with this block. Raises NotFoundError."""
        ...

    @operation("GET /ipfs/{cid}", names=_CAR_NAMES)
    def block(
        self,
        cid: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        format: BlockForm | None = None,
        dag_scope: Literal["block", "entity", "all"] | None = None,
        entity_bytes: str | None = None,
        car_version: Literal["1"] | None = None,
        car_order: Literal["dfs", "unk"] | None = None,
        car_dups: Literal["y", "n"] | None = None,
    ) -> bytes:
        """The raw block of an event (DAG-CBOR) or a payload. `format="car"`: a CAR file with all
        that it links to. Raises NotFoundError, and TooLargeError for more than 4 MiB: `file()`
        says where to download a payload of any size."""
        ...

    @operation("GET /ipfs/{cid}/{path+}", names=_CAR_NAMES)
    def dag(
        self,
        cid: str,
        path: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        format: BlockForm | None = None,
        dag_scope: Literal["block", "entity", "all"] | None = None,
        entity_bytes: str | None = None,
        car_version: Literal["1"] | None = None,
        car_order: Literal["dfs", "unk"] | None = None,
        car_dups: Literal["y", "n"] | None = None,
    ) -> bytes:
        """A CAR file of the blocks along a path of links, as `edges/0/target`, and of those below
        its end. Raises NotFoundError, GoneError where the path leads to an erased event, and
        TooLargeError."""
        ...

    @operation("GET /file/{cid}", also=(307,))
    def file(
        self,
        cid: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
    ) -> answers.PresignedPayloadUrl:
        """Where to download a payload: a URL that is valid for a short time. Raises
        NotFoundError."""
        ...

    # Uploads --------------------------------------------------------------------------------------

    @operation("POST /api/v1/uploads")
    def prepare_upload(
        self,
        *,
        size: int,
        sha256: str | None = None,
        cid: str | None = None,
        mime_type: str | None = None,
        name: str | None = None,
    ) -> answers.UploadInstructions | answers.PayloadAlreadyStored:
        """Where and how to upload a payload; `upload()` does all of it."""
        ...

    @MultiRequestVerb
    def upload(
        self,
        path: Path | str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        role: Role = "user",
        session_id: str | None = None,
        speaker: str | None = None,
        mime_type: str | None = None,
        name: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        idempotency_key: str | None = None,
    ) -> Steps[answers.Receipt]:
        """Upload a file and append an event that cites it. `progress(sent, size)` is called as it
        goes. What a file of text says can be recalled; `mime_type` is by default that of its name,
        or `text/plain` where its beginning is text."""
        file = Path(path)
        media = mime_type or (yield from yield_step(BlockingStep(lambda: guess_media_type(file))))
        file_name = name or file.name
        cid = yield from upload_unless_stored(self, file, media, file_name, progress)
        return (
            yield from yield_step(
                MemoryVerbs.add.call(
                    self,
                    blob={"cid": cid},
                    mime_type=media,  # of this file: bytes that are stored may have others
                    name=file_name,
                    type="upload",
                    user=user,
                    agent=agent,
                    participants=participants,
                    role=role,
                    session_id=session_id,
                    speaker=speaker,
                    metadata=metadata,
                    idempotency_key=idempotency_key,
                )
            )
        )

    # Sessions -------------------------------------------------------------------------------------

    @pages("GET /api/v1/sessions", "SessionPage.sessions", names={"page_size": "limit"})
    def sessions(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        page_size: int | None = None,
        cursor: str | None = None,
    ) -> answers.SessionOut:
        """The sessions that have not ended, newest first."""
        ...

    @operation("POST /api/v1/sessions")
    def begin_session(
        self,
        *,
        session_id: str,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        metadata: Fields | None = None,
    ) -> answers.SessionOut:
        """Begin a session, or join it if it has begun; `session()` gives it as an object."""
        ...

    # The service ----------------------------------------------------------------------------------

    @operation("GET /api/v1/usage")
    def usage(self) -> answers.TenantUsage:
        """The tenant's use of its quotas and its model budget."""
        ...

    @operation("GET /api/v1/health", also=(503,))
    def health(self) -> answers.Health:
        """Whether the service and what it depends on are up."""
        ...

    @operation("GET /health")
    def ping(self) -> answers.Liveness:
        """The service answers; needs no credential."""
        ...

    @operation("GET /openapi.json")
    def openapi(self) -> dict[str, Any]:
        """The service's API as an OpenAPI 3.1 document."""
        ...


def _ignore_answer(content: bytes) -> None:
    """The payload store's answer is not used."""
