"""Memory files as values of the service: a file is a key, an edit a revision of it.

What a file has now is a statement in the log, which recall finds; what it had before is history,
which no search and no context has. A text that is too long for a statement is a payload, and the
statement has its beginning.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from strandline.adapters.event_batches import erase_events
from strandline.adapters.keyed_values import KeyedValues
from strandline.adapters.memory_file_texts import MemoryCommandError
from strandline.adapters.namespace_topics import NOBODY, choose_role
from strandline.adapters.session_records import list_newest_first
from strandline.adapters.step_runners import ask, read_items
from strandline.client import answers
from strandline.client.errors import ForbiddenError, GoneError, NotFoundError
from strandline.client.memory import MemoryVerbs
from strandline.client.request_building import Call
from strandline.client.scopes_and_payloads import ScopeAndPayloadVerbs
from strandline.client.verb_declarations import Steps

logger = logging.getLogger(__name__)

_KIND = "claude-memory"
_NAMESPACE = ("files",)
_PAGE = 500
_MAX_STATED_BYTES = 13 * 1024
"""Of a text within its statement, as JSON."""
_MAX_STATED_CHARS = 2000
"""Of the beginning of a longer one."""
_MEDIA_TYPE = "application/octet-stream"
"""No text: former texts would be found for ever."""
_PAYLOAD_NAME = "memory file"
_PRESENT = 412
"""The payload store's status for what is uploaded already."""


@dataclass(frozen=True)
class StoredFile:
    """What a path has."""

    path: str
    file_id: str
    """Stays when the file is renamed."""
    size: int
    """Bytes."""
    text: str | None
    """None: it is the payload `cid`."""
    cid: str | None
    beginning: str
    """Of a payload: its first characters, which recall finds."""
    event_id: UUID
    """The statement."""
    copied_id: str | None
    """Of a copy that a rename made and nobody edited: the statement that it has the text of."""


@dataclass(frozen=True)
class FilePlace:
    """A path, and what was last stated of it."""

    path: str
    file: StoredFile | None
    base: str
    """The statement on which the next one rests; empty for none."""
    is_moved: bool
    """Whether it has no file because that one has another path now."""


@dataclass(frozen=True)
class FileWrite:
    """A new text of a path, of which each attempt is the same request."""

    path: str
    value: Mapping[str, Any]
    payload: bytes | None
    key: str


def renew_key(place: FilePlace, is_after_erasure: bool) -> FilePlace:
    """The place; after an erasure, with another key for what is stated there: the key of what was
    erased stays used, and the newest statement may be the same as before."""
    return replace(place, base=uuid4().hex) if is_after_erasure else place


def is_begun_rename(
    files: Iterable[StoredFile], old: str, files_there: Iterable[StoredFile], new: str
) -> bool:
    """Whether a rename ended in the middle: what one of both paths has, the other has too."""
    former = {(file.path[len(old) :], file.file_id) for file in files}
    copied = {(file.path[len(new) :], file.file_id) for file in files_there}
    return bool(copied) and (copied <= former or former <= copied)


class MemoryFileStore:
    """The files of these participants. All methods are procedures of requests (`run_steps`), and
    raise ServiceError.

    Of two who write on the same statement the second gets KeyConflictError: both use the key that
    follows from it."""

    def __init__(self, participants: Sequence[str]) -> None:
        self._participants = participants
        self._values = KeyedValues(_KIND)
        self._has_told_of_history = False

    def read_place(self, path: str) -> Steps[FilePlace]:
        """A path and its file."""
        history = yield from self._values.read_history(self._participants, _NAMESPACE, path[1:], 1)
        newest = history.history[0] if history and history.history else None
        value = history and self._values.to_value(_NAMESPACE, history)
        file = _to_file(path, value.value, value.event_id) if value else None
        base = str(newest.event_id) if newest else ""
        return FilePlace(path, file, base, is_moved=value is not None and file is None)

    def list_files(self) -> Steps[dict[str, StoredFile]]:
        """All files by path."""
        files: dict[str, StoredFile] = {}
        for value in (yield from self._values.list_values(self._participants, _NAMESPACE)):
            path = f"/{value.key}"
            file = _to_file(path, value.value, value.event_id)
            if file is not None:
                files[path] = file
        return files

    def read_text(self, file: StoredFile) -> Steps[str]:
        """What a file says."""
        if file.text is not None:
            return file.text
        block = ScopeAndPayloadVerbs.block.call(
            NOBODY, file.cid or "", participants=self._participants
        )
        try:
            return (yield from ask(block)).decode()
        except (NotFoundError, GoneError):
            raise MemoryCommandError(
                f"The file {file.path} no longer exists (may have been deleted or renamed"
                " concurrently)."
            ) from None

    # Writing --------------------------------------------------------------------------------------

    def make_write(self, place: FilePlace, text: str) -> FileWrite:
        """The next text of a path."""
        key = self._make_key(place)
        file_id = place.file.file_id if place.file else key[-32:]
        value: dict[str, Any] = {"file": file_id, "edit": uuid4().hex[:12], "text": text}
        payload = None
        if len(json.dumps(value, ensure_ascii=False).encode()) > _MAX_STATED_BYTES:
            payload = text.encode()
            del value["text"]
            value |= {"begins": text[:_MAX_STATED_CHARS], "bytes": len(payload)}
        return FileWrite(place.path, value, payload, key)

    def make_copy(self, file: StoredFile, place: FilePlace) -> FileWrite:
        """The same file under another path."""
        value: dict[str, Any] = {"file": file.file_id, "edit": uuid4().hex[:12]}
        value["copied"] = str(file.event_id)
        if file.text is not None:
            value["text"] = file.text
        else:
            value |= {"begins": file.beginning, "bytes": file.size, "cid": file.cid}
        return FileWrite(place.path, value, None, self._make_key(place))

    def write(self, write: FileWrite) -> Steps[None]:
        """Store a text once, however often this is repeated. Raises KeyConflictError or GoneError
        where the path has changed since it was read."""
        value = dict(write.value)
        if write.payload is not None:
            value["cid"] = yield from self._store_payload(write)
        yield from self._values.put_value(
            self._participants, _NAMESPACE, write.path[1:], value, idempotency_key=write.key
        )

    def _store_payload(self, write: FileWrite) -> Steps[str]:
        """Upload a text, and cite it in an event of its own: what is not cited is removed."""
        payload = write.payload or b""
        place = yield from ask(
            ScopeAndPayloadVerbs.prepare_upload.call(
                NOBODY,
                size=len(payload),
                sha256=hashlib.sha256(payload).hexdigest(),
                mime_type=_MEDIA_TYPE,
                name=_PAYLOAD_NAME,
            )
        )
        if isinstance(place, answers.UploadInstructions):
            also = (_PRESENT,)
            yield from ask(Call("PUT", place.url, bytes, (), payload, place.headers, also=also))
        yield from ask(
            MemoryVerbs.add.call(
                NOBODY,
                blob={"cid": place.cid},
                mime_type=_MEDIA_TYPE,
                name=_PAYLOAD_NAME,
                type="upload",
                role=choose_role(self._participants) or "user",
                participants=self._participants,
                metadata={_KIND: {"file": write.value["file"]}},
                idempotency_key=f"{_KIND}-{write.value['edit']}-{write.value['file']}",
            )
        )
        return place.cid

    def mark_moved(self, place: FilePlace, path: str) -> Steps[None]:
        """State that a path's file has another one now."""
        assert place.file is not None
        value = {"file": place.file.file_id, "edit": uuid4().hex[:12], "moved_to": path}
        yield from self.write(FileWrite(place.path, value, None, self._make_key(place)))

    def remove(self, place: FilePlace) -> Steps[None]:
        """Erase a file with its history, under all of its names, where the key may; else hide it.
        Raises KeyConflictError or GoneError where the path has changed since it was read."""
        assert place.file is not None
        event_ids = yield from self._list_events(place.file.file_id)
        may_erase = yield from self._erase(event_ids)  # the present one is the last
        tombstone = yield from self._values.put_value(  # takes the key of whoever writes on it
            self._participants,
            _NAMESPACE,
            place.path[1:],
            None,
            idempotency_key=self._make_key(place),
        )
        if may_erase and place.file.event_id in event_ids:
            yield from self._erase([tombstone.event_id])

    def _erase(self, event_ids: Sequence[UUID]) -> Steps[bool]:
        """Erase events: whether the key may."""
        try:
            yield from erase_events(event_ids)
        except ForbiddenError:
            self._tell_of_history()
            return False
        return True

    def _list_events(self, file_id: str) -> Steps[list[UUID]]:
        """The events of a file in these participants' own scope, the oldest first: payloads, then
        statements, beside whose value the path may stand."""
        payload: dict[str, Any] = {_KIND: {"file": file_id}}
        statements: list[dict[str, Any]] = [
            {"graph": {"revise": {"value": value}}}
            for value in ({"value": {"file": file_id}}, {"file": file_id})
        ]
        seq_by_event: dict[UUID, int] = {}
        for metadata in (payload, *statements):
            query = partial(
                MemoryVerbs.query.call,
                NOBODY,
                participants=self._participants,
                metadata=metadata,
                limit=_PAGE,
            )
            events = yield from read_items(
                query, partial(list_newest_first, participants=self._participants)
            )
            seq_by_event |= {event.event_id: event.seq for event in events}
        return sorted(seq_by_event, key=seq_by_event.__getitem__)

    def _make_key(self, place: FilePlace) -> str:
        """The idempotency key of what rests on the newest statement of a path."""
        facts = [*self._participants, place.path, place.base]
        return f"{_KIND}-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()}"

    def _tell_of_history(self) -> None:
        if not self._has_told_of_history:
            self._has_told_of_history = True
            logger.warning(
                "this key has no right to erase: a file that is deleted is hidden, and its history"
                " stays in the log"
            )


def _to_file(path: str, value: Mapping[str, Any], event_id: UUID) -> StoredFile | None:
    """The file of a statement's value; None where it was moved."""
    if "moved_to" in value:
        return None
    text: str | None = value.get("text")
    size = value["bytes"] if text is None else len(text.encode())
    beginning: str = value.get("begins", "")
    cid, copied_id = value.get("cid"), value.get("copied")
    return StoredFile(path, value["file"], size, text, cid, beginning, event_id, copied_id)
