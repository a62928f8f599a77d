"""Records of a framework, such as the messages of a conversation, as events of a session.

A record's text is the event's content, so that recall and contexts find what was said; the rest
of it stands in the event's metadata, and both together give the record back as it was. A record
that is removed is erased where the key has the right, else a later event of the session says that
it is removed (a tombstone).
"""

from __future__ import annotations

import copy
import json
import logging
import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import filterfalse
from typing import Any, Literal, TypeAlias, cast
from uuid import UUID, uuid4

from strandline.adapters.event_batches import erase_events, post_events
from strandline.adapters.step_runners import ask, read_items
from strandline.client import answers
from strandline.client.errors import ForbiddenError
from strandline.client.memory import EventType, MemoryVerbs
from strandline.client.request_building import Call, VerbGroup
from strandline.client.scopes_and_payloads import ScopeAndPayloadVerbs
from strandline.client.verb_declarations import Steps

logger = logging.getLogger(__name__)

_NOBODY = VerbGroup()
_PAGE = 500
_MAX_METADATA_BYTES = 12 * 1024
"""Of a record beside its text; a larger one is the event's content as a whole, as JSON, and so is
one with what an event cannot have as it is."""
_HALVES = re.compile("[\ud800-\udfff]")
"""Halves of characters, which no event has as they are, as it has no NUL."""
_MAX_SHOWN_CHARS = 500

TextPath: TypeAlias = Sequence[str | int]
"""Where in a record its text stands, as in `["content", 0, "text"]`."""


@dataclass(frozen=True)
class NewRecord:
    """A record to store."""

    body: Mapping[str, Any]
    """JSON."""
    text_at: TextPath | None
    """None: it has no text of its own, and `shown` stands for it."""
    role: Literal["user", "agent", "system"]
    type: EventType
    shown: str = ""
    labels: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What it is found by."""


@dataclass(frozen=True)
class StoredRecord:
    """A record of a session that was not removed."""

    event_id: UUID
    seq: int
    """Its place in the order of what was stored."""
    labels: Mapping[str, Any]
    body: dict[str, Any]


class SessionRecords:
    """Records of one kind, such as `strands`, in sessions of the service. Its methods are
    procedures of requests (`run_steps`), and raise ServiceError. `participants` are everybody who
    takes part in the session."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._has_told_of_tombstones = False

    def append(
        self,
        participants: Sequence[str],
        session_id: str,
        records: Sequence[NewRecord],
        key: str | Sequence[str],
    ) -> Steps[None]:
        """Store records in order: all or none of what a request holds, once under this key, or
        each under its own."""
        keys = [f"{key}#{n}" for n in range(len(records))] if isinstance(key, str) else key
        yield from post_events(
            [
                self._make_event(participants, session_id, record, one)
                for record, one in zip(records, keys, strict=True)
            ]
        )

    def read(
        self,
        participants: Sequence[str],
        session_id: str,
        labels: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> Steps[list[StoredRecord]]:
        """The records of a session that have these labels, in the order in which they were stored:
        all, or the newest so many."""
        is_removed = yield from self._read_removals(participants, session_id)
        events_newest_first = yield from read_items(
            self._make_query(participants, session_id, {"labels": dict(labels or {})}),
            lambda page: filterfalse(is_removed, list_newest_first(page, participants)),
            limit,
        )
        records: list[StoredRecord] = []
        for event in reversed(events_newest_first):
            records.append((yield from self._decode(participants, event)))
        return records

    def _read_removals(
        self, participants: Sequence[str], session_id: str
    ) -> Steps[Callable[[answers.EventOut], bool]]:
        """Which events of a session tombstones hide."""
        removed_ids: set[str] = set()
        cleared_before = 0
        for event in (
            yield from read_items(
                self._make_query(participants, session_id, {"is_removal": True}),
                partial(list_newest_first, participants=participants),
            )
        ):
            note: Mapping[str, Any] = event.metadata[self._kind]
            removed_ids.update(note["event_ids"])
            if note["is_all"]:
                cleared_before = max(cleared_before, event.seq)
        return lambda event: str(event.event_id) in removed_ids or event.seq < cleared_before

    def _make_query(
        self, participants: Sequence[str], session_id: str, note: Mapping[str, Any]
    ) -> Callable[..., Call[answers.EventTree]]:
        return partial(
            MemoryVerbs.query.call,
            _NOBODY,
            participants=participants,
            session_id=session_id,
            metadata={self._kind: note},
            limit=_PAGE,
        )

    def remove(
        self,
        participants: Sequence[str],
        session_id: str,
        event_ids: Sequence[UUID],
        *,
        is_all: bool = False,
    ) -> Steps[None]:
        """Remove records: erase them where the key may, else hide them. `is_all` says that these
        are all that the session has."""
        try:
            yield from erase_events(event_ids)
        except ForbiddenError:
            self._tell_of_tombstones()
            removed_ids = [] if is_all else [str(event_id) for event_id in event_ids]
            removal = {"is_removal": True, "is_all": is_all, "event_ids": removed_ids}
            event = {
                "participants": list(participants),
                "role": "system",
                "type": "observation",
                "content": f"Removed from the session: {len(event_ids)}.",
                "session_id": session_id,
                "metadata": {self._kind: removal},
                "source_event_key": str(uuid4()),
            }
            yield from post_events([event])

    def _tell_of_tombstones(self) -> None:
        if not self._has_told_of_tombstones:
            self._has_told_of_tombstones = True
            logger.warning(
                "this key has no right to erase: what is removed from a session is hidden, and"
                " stays in the log"
            )

    def _make_event(
        self, participants: Sequence[str], session_id: str, record: NewRecord, key: str
    ) -> dict[str, Any]:
        text, rest = _split_off_text(record)
        note: dict[str, Any] = {"labels": dict(record.labels), "rest": rest}
        if record.text_at is not None and text is not None:
            note["text_at"] = list(record.text_at)
        whole = json.dumps(record.body, ensure_ascii=False)  # a NUL is escaped in it
        is_odd = "\\u0000" in whole or _HALVES.search(whole) is not None
        if is_odd or len(json.dumps(note)) > _MAX_METADATA_BYTES:
            text = _HALVES.sub(lambda half: f"\\u{ord(half[0]):04x}", whole)
            note = {"labels": dict(record.labels)}
        return {
            "participants": list(participants),
            "role": record.role,
            "type": record.type,
            "content": text or record.shown[:_MAX_SHOWN_CHARS] or record.type,
            "session_id": session_id,
            "metadata": {self._kind: note},
            "source_event_key": key,
        }

    def _decode(self, participants: Sequence[str], event: answers.EventOut) -> Steps[StoredRecord]:
        note: Mapping[str, Any] = event.metadata[self._kind]
        text = yield from read_event_text(event, participants)
        if "rest" not in note:
            body: dict[str, Any] = json.loads(text or "{}")
        else:
            body = copy.deepcopy(note["rest"])
            if "text_at" in note:
                _set_text_at_path(body, note["text_at"], text)
        return StoredRecord(event.event_id, event.seq, note["labels"], body)


class RetryKeys:
    """Idempotency keys of attempts whose outcome is unknown. A framework that tries the same again
    gets the key of the attempt before, so that it is stored once. Safe for threads."""

    _MAX_KEPT_CONTENTS = 1000

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[str, list[str]] = {}

    @contextmanager
    def attempt(
        self, contents: Sequence[object], given: Sequence[str | None] = ()
    ) -> Generator[list[str]]:
        """A key for each of these contents, JSON: that of `given`, or that of an attempt that
        failed with the content, or a new one. If the block fails in any way, interrupts and
        cancellation included, the keys that were not given are kept for the next attempt."""
        own_keys = [*given, *[None] * (len(contents) - len(given))]
        keys = [
            key or self._reuse_or_generate_key(content)
            for key, content in zip(own_keys, contents, strict=True)
        ]
        try:
            yield keys
        except BaseException:
            for content, key, own_key in zip(contents, keys, own_keys, strict=True):
                if own_key is None:
                    self._keep_key_for_retry(content, key)
            raise

    def _reuse_or_generate_key(self, content: object) -> str:
        with self._lock:
            keys = self._keys.get(self._to_canonical_json(content))
            key = keys.pop(0) if keys else str(uuid4())
            if keys is not None and not keys:
                del self._keys[self._to_canonical_json(content)]
            return key

    def _keep_key_for_retry(self, content: object, key: str) -> None:
        """Keep the key of an attempt that failed, by its content. The oldest are forgotten."""
        with self._lock:
            self._keys.setdefault(self._to_canonical_json(content), []).append(key)
            while len(self._keys) > self._MAX_KEPT_CONTENTS:
                del self._keys[next(iter(self._keys))]

    @staticmethod
    def _to_canonical_json(content: object) -> str:
        return json.dumps(content, sort_keys=True, default=str)


def read_event_text(event: answers.EventOut, participants: Sequence[str]) -> Steps[str]:
    """What an event says, also where it is a payload."""
    if event.content is not None or event.blob is None:
        return event.content or ""
    call = ScopeAndPayloadVerbs.block.call(_NOBODY, event.blob.cid, participants=participants)
    return (yield from ask(call)).decode()


def list_newest_first(
    page: answers.EventTree, participants: Sequence[str]
) -> Iterator[answers.EventOut]:
    """The events of exactly these participants, of one page."""
    for scope in page.scopes:
        if sorted(scope.participants) == sorted(participants):
            yield from sorted(scope.events, key=lambda event: event.seq, reverse=True)


def _split_off_text(record: NewRecord) -> tuple[str | None, dict[str, Any]]:
    """The record's text, and the record without it; no text where it is blank."""
    body = copy.deepcopy(dict(record.body))
    if record.text_at is None:
        return None, body
    *way, last = record.text_at
    holder: Any = body
    for step in way:
        holder = holder[step]
    text: str = holder[last]
    if not text.strip():
        return None, body
    holder[last] = None
    return text, body


def _set_text_at_path(body: dict[str, Any], path: TextPath, text: str | None) -> None:
    *way, last = path
    holder: Any = body
    for step in way:
        holder = holder[step]
    cast("dict[str | int, Any]", holder)[last] = text
