"""Append events: validate, put large content away, store in one round trip, hint."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from strandline import drafts, wire
from strandline.blobs import Blobs
from strandline.db import NOBODY, Access, Asker, Database
from strandline.drafts import Draft, NewEvent
from strandline.errors import BatchRefused, Conflict, Invalid, StrandlineError, Unavailable
from strandline.hints import Hints
from strandline.principals import Principal
from strandline.store import events

_STORED = ("created", "replayed")
_REFUSALS = {
    "edge_not_found": ("edges", "edges: cite events that every participant here may see"),
    "blob_not_found": ("blob.cid", "blob.cid: there is no payload at this CID that you may cite"),
    "session_mismatch": (
        "session_id",
        "session_id: this session has other participants; with others it is another session",
    ),
}


@dataclass(frozen=True)
class Appended:
    """One item's result: a receipt, or why there is none."""

    receipt: wire.Receipt | None = None
    replayed: bool = False
    error: StrandlineError | None = None


def append(
    database: Database,
    blobs: Blobs,
    hints: Hints,
    principal: Principal,
    bodies: Sequence[tuple[object, str | None]],
    *,
    atomic: bool = False,
    deadline: float | None = None,
) -> list[Appended]:
    """Append each (body, Idempotency-Key) as an event; one result per body, in order.

    A body that is not acceptable fails alone, unless `atomic`: then nothing is stored. Raises
    Unavailable; what was acknowledged before is safe.
    """
    results: dict[int, Appended] = {}
    made = _drafts(principal, bodies, results)
    if made and not (atomic and results):
        for draft in made.values():
            if draft.payload is not None and draft.payload_cid is not None:
                if deadline is not None and time.monotonic() > deadline:
                    raise Unavailable(
                        "The payload store is too slow for so much. Send less at once."
                    )
                blobs.put(principal.tenant, draft.payload_cid, draft.payload)
        access = database.access(_asker(principal), deadline)
        items = _finished(access, made, results)
        if items and not (atomic and results):
            _store(access, hints, made, items, atomic, results)
    return [results.get(n) or Appended(error=BatchRefused()) for n in range(len(bodies))]


def _asker(principal: Principal) -> Asker:
    """Who appends: a bound credential sees its user's scopes, an unbound one names any."""
    viewer = (principal.user,) if principal.user else ()
    return Asker(principal.tenant, viewer, principal.user or NOBODY)


def _drafts(
    principal: Principal,
    bodies: Sequence[tuple[object, str | None]],
    results: dict[int, Appended],
) -> dict[int, Draft]:
    """The bodies that are acceptable so far; the others get their result."""
    made: dict[int, Draft] = {}
    for n, (body, key) in enumerate(bodies):
        try:
            made[n] = drafts.draft(
                principal, wire.validated(wire.AppendRequest, wire.checked(body)), key
            )
        except StrandlineError as error:
            results[n] = Appended(error=error)
    return made


def _finished(
    access: Access, made: Mapping[int, Draft], results: dict[int, Appended]
) -> list[NewEvent]:
    """Events with their CIDs. Only requests with edges cost a look at the log first."""
    wanted = [
        edge.model_dump(mode="json", exclude_none=True, exclude={"weight"})
        | {"participants": draft.participants}
        for draft in made.values()
        for edge in draft.request.edges
    ]
    targets = iter(events.edge_targets(access, wanted) if wanted else ())
    items: list[NewEvent] = []
    for n, draft in made.items():
        own = [(t.event_id, t.cid) for t in islice(targets, len(draft.request.edges))]
        try:
            items.append(drafts.finish(draft, n, own))
        except StrandlineError as error:
            results[n] = Appended(error=error)
    return items


def _store(
    access: Access,
    hints: Hints,
    made: Mapping[int, Draft],
    items: Sequence[NewEvent],
    atomic: bool,
    results: dict[int, Appended],
) -> None:
    by_n = {item.n: item for item in items}
    outcomes = events.append(access, items, atomic)
    undone = atomic and any(said.outcome not in _STORED for said in outcomes)
    for said in outcomes:
        if said.outcome not in _STORED:
            error = _refusal(said.outcome, made[said.n], by_n[said.n], said.stored)
            results[said.n] = Appended(error=error)
        elif not undone:
            receipt = _receipt(said, by_n[said.n])
            results[said.n] = Appended(receipt, replayed=said.outcome == "replayed")
    if not undone:
        dirty = {o.scope_id for o in outcomes if o.turned_dirty and o.scope_id is not None}
        hints.send(access.asker.tenant, sorted(dirty))


def _receipt(said: events.Outcome, item: NewEvent) -> wire.Receipt:
    """What is acknowledged: from the stored row alone, so that a replay says the same. A payload's
    type and name are part of the request, which a replay repeats."""
    blob = item.blob_cid and wire.BlobOut(
        cid=item.blob_cid, size=said.blob_size or 0, mime_type=item.mime_type, name=item.file_name
    )
    return wire.Receipt.model_validate({**vars(said), "blob": blob})


def _refusal(
    outcome: str, made: Draft, item: NewEvent, stored: Mapping[str, Any] | None
) -> StrandlineError:
    if outcome != "conflict":
        name, message = _REFUSALS[outcome]
        return Invalid(message, field=name, reason=outcome)
    if stored is None:
        return Conflict("This key was used before, with another request. Use a new key.")
    fields = drafts.differing(made, stored, item.edges)
    return Conflict(
        f"This key was used before, with another {', '.join(fields)}. Repeat the first request, "
        "or use a new key.",
        fields=fields,
        event_id=stored["event_id"],
    )
