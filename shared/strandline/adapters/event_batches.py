"""Events of an adapter: their texts, and as many requests as they need."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from strandline.adapters.step_runners import ask
from strandline.client.erasures import ErasureVerbs
from strandline.client.errors import GoneError, NotFoundError, ServiceError, make_error
from strandline.client.memory import MemoryVerbs
from strandline.client.outbox import MAX_BATCH_BYTES
from strandline.client.request_building import VerbGroup
from strandline.client.verb_declarations import Steps

_NOBODY = VerbGroup()
_MAX_BATCH = 500
_MAX_ERASED = 1000
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_NOT_TRIED = 424
"""The status of an event of a batch that was not stored for another one's sake."""


def clean_text(text: str) -> str:
    """A text with U+FFFD for what no event can have, as a pasted file may: NUL, and halves of
    characters."""
    return _UNSTORABLE.sub("\ufffd", text)


def post_events(events: Sequence[Mapping[str, Any]]) -> Steps[list[UUID]]:
    """Store events in order, all or none of what one request holds: up to 500, of 3 MiB together.
    Gives their ids. Raises the error of the event that kept the others from being stored."""
    event_ids: list[UUID] = []
    for batch in list_batches(events):
        call = MemoryVerbs.post_batch.call(_NOBODY, batch, atomic=True)
        try:
            answer = yield from ask(call)
        except ServiceError as error:
            raise _find_cause(error) from error
        event_ids += (item.event.event_id for item in answer.results if item.event)
    return event_ids


def erase_events(event_ids: Sequence[UUID]) -> Steps[None]:
    """Erase events in order. The service erases none of a request of which another program erased
    one: it names those, and the others are asked for again. Raises ForbiddenError where the key may
    not."""
    for start in range(0, len(event_ids), _MAX_ERASED):
        ids = [str(event_id) for event_id in event_ids[start : start + _MAX_ERASED]]
        while ids:
            try:
                yield from ask(ErasureVerbs.erase.call(_NOBODY, event_ids=ids))
                break
            except (GoneError, NotFoundError) as error:
                erased_ids: set[str] = {*error.details.get("event_ids", ())}
                if erased_ids.isdisjoint(ids):
                    raise
                ids[:] = [event_id for event_id in ids if event_id not in erased_ids]


def list_batches(events: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Events as requests take them, in order. One that is larger than others may be together has a
    request of its own."""
    batch: list[Mapping[str, Any]] = []
    room = MAX_BATCH_BYTES
    for event in events:
        size = len(json.dumps(event, default=str))
        if batch and (len(batch) == _MAX_BATCH or size > room):
            yield batch
            batch, room = [], MAX_BATCH_BYTES
        batch.append(event)
        room -= size
    if batch:
        yield batch


def _find_cause(error: ServiceError) -> ServiceError:
    """The error of an event of a batch, where the batch was refused for it."""
    for item in error.details.get("results", ()):
        if item["error"] is not None and item["status"] != _NOT_TRIED:
            return make_error(item["status"], item["error"], None)
    return error
