"""Stores what was read, and counts what became of each item."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any
from uuid import UUID

from strandline.client import answers
from strandline.client.clients import Strandline
from strandline.client.errors import (
    ForbiddenError,
    GoneError,
    InvalidFieldError,
    KeyConflictError,
    MalformedRequestError,
    NotFoundError,
    ServiceError,
    TooLargeError,
    make_error,
)
from strandline.client.memory import MemoryVerbs, require_result_of_each_event
from strandline.client.outbox import MAX_BATCH_BYTES
from strandline.commands.imports.exported_lines import matches_stored_event
from strandline.commands.imports.items import (
    AlterationNote,
    Event,
    Item,
    LeftOutItem,
    NewEvent,
    RefusedItem,
    SkippedFile,
    list_or_empty,
    object_or_empty,
)

_REPLAYED_HEADER = "idempotent-replayed"
"""`true`, or the places of the events that were stored before, as `0,2`."""
_BATCH = 200
_BLANK = "blank events"
_MAX_SENTENCES = 100
"""Of each kind; beyond, only their number is kept."""


@dataclass
class RefusalGroup:
    """Refusals for the same reason."""

    first_place: str
    reason: str
    sentence_count: int = 0
    item_count: int = 0

    def describe(self) -> str:
        """The reason, with the number of places where it is more than one."""
        if self.sentence_count == 1:
            return f"{self.first_place}: {self.reason}"
        return f"{self.sentence_count} times, first in {self.first_place}: {self.reason}"


class ImportTally:
    """What became of everything that was read: it is stored, was known, was refused or was left
    out, and each is counted once."""

    def __init__(self) -> None:
        self.stored_count = self.known_count = self.refused_count = 0
        self.left_out: Counter[str] = Counter()
        self.note_count = self.skipped_count = 0
        self.refusals: list[str] = []
        self.refusal_groups: dict[str, RefusalGroup] = {}
        """By their reasons."""
        self.notes: list[str] = []
        self.skipped_files: list[str] = []
        self.participants: set[str] = set()
        """Everybody who takes part in an event that was read."""

    @property
    def read_count(self) -> int:
        """Everything whose fate is known."""
        counts = (self.stored_count, self.known_count, self.refused_count)
        return sum(counts) + sum(self.left_out.values())

    def count_all_but_events(self, items: Iterable[Item]) -> Iterator[NewEvent]:
        """The events among the items; all others are counted."""
        for item in items:
            if isinstance(item, NewEvent):
                self.participants.update(map(str, list_or_empty(item.event.get("participants"))))
                yield item
            elif isinstance(item, LeftOutItem):
                self.left_out[item.kind] += item.count
            elif isinstance(item, RefusedItem):
                self.count_refusal(item.place, item.reason, item.count)
            elif isinstance(item, AlterationNote):
                self.note_count += 1
                _append_within_limit(self.notes, item.text)
            else:
                self._count_skipped_file(item)

    def count_refusal(self, place: str, reason: str, count: int = 1) -> None:
        """Count what is not stored."""
        self.refused_count += count
        _append_within_limit(self.refusals, f"{place}: {reason}")
        group = self.refusal_groups.get(reason)
        if group is None:
            if len(self.refusal_groups) == _MAX_SENTENCES:
                return
            group = self.refusal_groups[reason] = RefusalGroup(place, reason)
        group.sentence_count += 1
        group.item_count += count

    def _count_skipped_file(self, file: SkippedFile) -> None:
        self.skipped_count += 1
        _append_within_limit(self.skipped_files, f"{file.name}{file.reason and f': {file.reason}'}")

    def describe_counts(self) -> str:
        """The counts in a sentence."""
        left_out_count = sum(self.left_out.values())
        return (
            f"{self.read_count} read: {self.stored_count} stored, {self.known_count} known, "
            f"{self.refused_count} refused, {left_out_count} left out"
        )

    def to_json_object(self) -> dict[str, Any]:
        """The counts for programs; the first hundred sentences of each kind."""
        return {
            "read": self.read_count,
            "stored": self.stored_count,
            "known": self.known_count,
            "refused": self.refused_count,
            "left_out": dict(sorted(self.left_out.items())),
            "refusals": self.refusals,
            "notes": self.notes,
            "skipped_files": self.skipped_files,
        }


def _append_within_limit(sentences: list[str], sentence: str) -> None:
    if len(sentences) < _MAX_SENTENCES:
        sentences.append(sentence)


def split_into_batches(items: Iterable[NewEvent]) -> Iterator[list[NewEvent]]:
    """The events in requests of a size that the service takes."""
    batch: list[NewEvent] = []
    size = 0
    for item in items:
        item_size = len(json.dumps(item.event))
        if batch and (len(batch) == _BATCH or size + item_size > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        size += item_size
        batch.append(item)
    if batch:
        yield batch


def store_batch(client: Strandline, batch: Sequence[NewEvent], tally: ImportTally) -> None:
    """Store events, and count what became of each. Raises ServiceError."""
    known_ids, erased_ids = _find_known_and_erased_events(client, batch)
    new = list[NewEvent]()
    for item in batch:
        event_id = item.origin and item.origin.event_id
        if event_id in known_ids:
            tally.known_count += 1
        elif event_id in erased_ids:
            tally.count_refusal(
                item.place, "it was erased here since it was exported, and stays so"
            )
        else:
            new.append(item)
    if new:
        _store_or_split(client, new, tally)


def _find_known_and_erased_events(
    client: Strandline, batch: Sequence[NewEvent]
) -> tuple[set[UUID], set[UUID]]:
    """The events of an export that this service still has as the lines say, no matter who wrote
    them; and those that were erased here."""
    sought: dict[UUID, dict[UUID, NewEvent]] = {}
    for item in batch:
        if item.origin is not None:
            sought.setdefault(item.origin.scope_id, {})[item.origin.event_id] = item
    known_ids, erased_ids = set[UUID](), set[UUID]()
    for scope_id, items in sought.items():
        first = next(iter(items.values()))
        people: Any = [str(name) for name in list_or_empty(first.event.get("participants"))]
        try:
            missing = {_origin_seq(item): event_id for event_id, item in items.items()}
            for event in _read_events_at_origins(client, scope_id, items, people):
                missing.pop(event.seq, None)
                item = items.get(event.event_id)
                if item is not None and matches_stored_event(item.event, event):
                    known_ids.add(event.event_id)
            erased_ids |= {*_find_erased_events(client, missing.values(), people)}
        except (ForbiddenError, InvalidFieldError, MalformedRequestError):
            continue  # a key that only writes, or nobody's
    return known_ids, erased_ids


def _origin_seq(item: NewEvent) -> int:
    return item.origin.seq if item.origin else 0


def _read_events_at_origins(
    client: Strandline, scope_id: UUID, items: Mapping[UUID, NewEvent], people: Any
) -> Iterator[answers.EventOut]:
    """The part of a scope's events where these lay; none where it is no scope of this service."""
    places = [_origin_seq(item) for item in items.values()]
    after_seq = max(min(places) - 1, 0)
    try:
        feed = client.events(scope_id, participants=people, after_seq=after_seq, page_size=500)
        yield from takewhile(lambda event: event.seq <= max(places), feed)
    except NotFoundError:
        return


def _find_erased_events(
    client: Strandline, event_ids: Iterable[UUID], people: Any
) -> Iterator[UUID]:
    """Those that were erased, each by its own answer: a scope's feed of erasures has them minutes
    later. One that was never here shows that the others were not, either."""
    for event_id in event_ids:
        try:
            client.get(event_id, participants=people)
        except GoneError:
            yield event_id
        except NotFoundError:
            return


def _store_or_split(client: Strandline, batch: Sequence[NewEvent], tally: ImportTally) -> None:
    """A request that is refused whole is sent again in halves, so that the event at fault costs
    itself alone."""
    try:
        results, known_places = _post_events([item.event for item in batch], client)
    except (TooLargeError, MalformedRequestError, InvalidFieldError) as error:
        if len(batch) == 1:
            tally.count_refusal(batch[0].place, _explain_refusal(error, batch[0]))
            return
        middle = len(batch) // 2
        _store_or_split(client, batch[:middle], tally)
        _store_or_split(client, batch[middle:], tally)
        return
    for place, (item, result) in enumerate(zip(batch, results, strict=True)):
        _count_result_of_event(item, result, tally, is_known=place in known_places)


def _post_events(
    events: Sequence[Event], client: Strandline
) -> tuple[Sequence[answers.BatchItemResult], Container[int]]:
    """What became of each event, and the places of those that were there before."""
    headers: dict[str, str] = {}
    call = MemoryVerbs.post_batch.call(client, events, atomic=False)
    answer = client.perform(replace(call, see_headers=headers.update))
    replays = headers.get(_REPLAYED_HEADER, "")
    known_places = range(len(events)) if replays == "true" else _parse_replayed_positions(replays)
    return require_result_of_each_event(answer, len(events)).results, known_places


def _parse_replayed_positions(text: str) -> Container[int]:
    return {int(place) for place in text.split(",") if place.isdecimal()}


def _count_result_of_event(
    item: NewEvent, result: answers.BatchItemResult, tally: ImportTally, *, is_known: bool
) -> None:
    if result.error is None:
        if is_known:
            tally.known_count += 1
        else:
            tally.stored_count += 1
        return
    error = make_error(result.status, result.error.model_dump(), None)
    if isinstance(error, KeyConflictError) and _differs_only_in_filled_in_time(item, error):
        tally.known_count += 1
    elif _is_blank_event_of_export(item, error):
        tally.left_out[_BLANK] += 1
    else:
        tally.count_refusal(item.place, _explain_refusal(error, item))


def _is_blank_event_of_export(item: NewEvent, error: ServiceError) -> bool:
    """Whether a line of an export is refused for its text, which is blank: an earlier version
    stored it."""
    if item.origin is None or error.field not in ("content", "parts"):
        return False
    parts = item.event.get("parts") or [{"content": item.event.get("content")}]
    texts = [object_or_empty(part).get("content") for part in list_or_empty(parts)]
    return all(isinstance(text, str) and not text.strip() for text in texts)


def _differs_only_in_filled_in_time(item: NewEvent, error: KeyConflictError) -> bool:
    """Whether only the time differs, which an export fills in where its event left it out."""
    event_id = item.origin and str(item.origin.event_id)
    details = error.details
    return event_id == details.get("event_id") and details.get("fields") == ["occurred_at"]


def _explain_refusal(error: ServiceError, item: NewEvent) -> str:
    if not isinstance(error, KeyConflictError):
        return str(error)
    if item.has_key_of_place:
        return (
            "an earlier import of a file of this name had another event on this line, which stays "
            "as it was. Give the file another name, or each line a source_event_key."
        )
    fields = ", ".join(map(str, error.details.get("fields") or ()))
    difference = f"another value of: {fields}" if fields else "other participants or another text"
    return (
        f"it was stored before with {difference}, and stays as it was. Where an earlier import "
        "named other people, give the same --user and --agent."
    )
