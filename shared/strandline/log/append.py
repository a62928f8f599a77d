"""Append events: validate, put large content away, store in one round trip, hint."""

import time
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from strandline.auth.principals import Principal
from strandline.aws.blobs import Blobs
from strandline.aws.work_queue import Hints
from strandline.db.database import NOBODY, Access, Asker, Database
from strandline.errors import (
    BatchRefused,
    Conflict,
    Invalid,
    QuotaExceeded,
    StateConflict,
    StrandlineError,
    TooLarge,
    Unavailable,
    Unsure,
)
from strandline.log import event_builder, payloads, store
from strandline.log.event_builder import Cited, Draft, NewEvent
from strandline.log.schemas import AppendRequest, BlobOut, Receipt
from strandline.schemas import checked, validated
from strandline.tenants.quotas import Quotas
from strandline.tenants.store_quotas import Quota

_STORED = ("created", "replayed")
_REFUSALS = {
    "edge_not_found": ("edges", "edges: cite events that every participant here may see"),
    "blob_not_found": (
        "blob.cid",
        "blob.cid: there is no payload at this CID that you may cite. Upload it first, by POST "
        "/api/v1/uploads, and cite it before its cite_until",
    ),
    "session_mismatch": (
        "session_id",
        "session_id: this session has other participants; with others it is another session",
    ),
}

SESSION_ENDED = (
    "session_id: this session has ended; begin another under another name, or leave the name out: "
    "POST /api/v1/events takes events without a session"
)


@dataclass(frozen=True)
class Appended:
    """One item's result: a receipt, or why there is none."""

    receipt: Receipt | None = None
    replayed: bool = False
    error: StrandlineError | None = None

    @property
    def created(self) -> bool:
        """It made a new event."""
        return self.receipt is not None and not self.replayed


def append(
    database: Database,
    blobs: Blobs,
    hints: Hints,
    quotas: Quotas,
    principal: Principal,
    bodies: Sequence[tuple[object, str | None]],
    *,
    atomic: bool = False,
    deadline: float | None = None,
) -> list[Appended]:
    """Append each (body, Idempotency-Key) as an event; one result per body, in order.

    A body that is not acceptable fails alone, unless `atomic`: then nothing is stored. Raises
    QuotaExceeded or TooLarge, and stores nothing, when the acceptable ones are more than the tenant
    may append; Unavailable; what was acknowledged before is safe.
    """
    results: dict[int, Appended] = {}
    asking = asker(principal)
    made = _drafts(principal, bodies, results)
    if not made:
        return [results[n] for n in range(len(bodies))]
    access = database.access(asking, deadline)
    made = _with_citations(access, blobs, made, results, deadline)
    items = _with_payloads(access, made, _finished(access, made, results), results)
    if items and not (atomic and results):
        costs = _weighed(made, items)
        with _charged(quotas, access, items, costs, results, deadline):
            if any(item.blob_cid for item in items):
                brought = [made[item.n] for item in items if item.blob_stored]
                _put_payloads(blobs, principal.tenant, brought, deadline)
                access = database.access(asking, deadline)  # its connection may have died meanwhile
            _store(access, hints, made, items, atomic, results)
    return [results.get(n) or Appended(error=BatchRefused()) for n in range(len(bodies))]


@contextmanager
def _charged(
    quotas: Quotas,
    access: Access,
    items: Sequence[NewEvent],
    costs: Mapping[int, int],
    results: Mapping[int, Appended],
    deadline: float | None,
) -> Generator[None]:
    """Spend what the items cost, by their n, before they are stored, and give back what made no
    event. After Unsure all stays spent: it may be in the log. Where a quota is used up, what the
    log has or refuses already is answered all the same: it costs nothing."""
    tenant = access.asker.tenant
    spent: dict[Quota, Mapping[int, int]] = {}
    unused: Collection[int] = costs.keys()
    try:
        try:
            prices: dict[Quota, Mapping[int, int]] = {
                "appends": dict.fromkeys(costs, 1),
                "stored_bytes": costs,
            }
            for quota, each in prices.items():
                quotas.spend(tenant, quota, sum(each.values()), deadline)
                spent[quota] = each
        except (QuotaExceeded, TooLarge):
            keyed = all(item.source_event_key is not None for item in items)
            if not keyed or len(store.foreseen(access, items)) < len(items):
                raise
        yield
        unused = [n for n in costs if n not in results or not results[n].created]
    except Unsure:
        unused = ()
        raise
    finally:
        if unused:
            for quota, each in spent.items():
                quotas.give_back(tenant, quota, sum(each[n] for n in unused))


def _put_payloads(blobs: Blobs, tenant: str, made: Sequence[Draft], deadline: float | None) -> None:
    for draft in made:
        if draft.payload is not None and draft.payload_cid is not None:
            if deadline is not None and time.monotonic() > deadline:
                raise Unavailable("The payload store is too slow for so much. Send less at once.")
            blobs.put(tenant, draft.payload_cid, draft.payload)
    uploads = {d.cited.cid: d.cited.upload for d in made if d.cited and d.cited.upload}
    for cid, upload in uploads.items():
        if deadline is not None and time.monotonic() > deadline:
            raise Unavailable("The payload store is too slow for so much. Cite less at once.")
        if not blobs.adopt(tenant, upload.upload_id, cid, upload.etag):
            raise Unavailable("An upload that this request cites was just removed. Try again.")


def _with_payloads(
    access: Access,
    made: Mapping[int, Draft],
    items: Sequence[NewEvent],
    results: dict[int, Appended],
) -> list[NewEvent]:
    """The items without those that would be refused, whose payloads must not lie in the store
    uncited and unpaid for; what the log has already brings none again. Only requests that bring
    payloads cost this look."""
    bringing = {item.n: item for item in items if item.blob_stored}
    found = store.foreseen(access, list(bringing.values())) if bringing else {}
    for n, refusal in found.items():
        bringing[n].blob_stored = False
        if refusal is not None:
            results[n] = Appended(error=_refusal(refusal, made[n], bringing[n], None))
    return [item for item in items if found.get(item.n) is None]


def _weighed(made: Mapping[int, Draft], items: Sequence[NewEvent]) -> dict[int, int]:
    """What the items use of the stored bytes, by their n. A payload counts once a request, for the
    first that brings it; an upload was paid for when it was begun."""
    costs = {item.n: item.bytes for item in items}
    seen: set[str | None] = set()
    for item in items:
        if item.blob_stored and item.blob_cid not in seen:
            seen.add(item.blob_cid)
            size = item.blob_size or 0
            item.bytes += size
            costs[item.n] += 0 if made[item.n].payload is None else size
    return costs


def asker(principal: Principal) -> Asker:
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
            made[n] = event_builder.draft(principal, validated(AppendRequest, checked(body)), key)
        except StrandlineError as error:
            results[n] = Appended(error=error)
    return made


def _with_citations(
    access: Access,
    blobs: Blobs,
    made: Mapping[int, Draft],
    results: dict[int, Appended],
    deadline: float | None,
) -> dict[int, Draft]:
    """The drafts with what is known of the payloads that they cite; without those that cannot."""
    found = payloads.look_up(access, blobs, made, deadline)
    if not found:
        return dict(made)
    for n, said in found.items():
        if isinstance(said, StrandlineError):
            results[n] = Appended(error=said)
    cited = {n: said for n, said in found.items() if isinstance(said, Cited)}
    return {n: replace(d, cited=cited.get(n)) for n, d in made.items() if n not in results}


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
    targets = iter(store.edge_targets(access, wanted) if wanted else ())
    items: list[NewEvent] = []
    for n, draft in made.items():
        own = [(t.event_id, t.cid) for t in islice(targets, len(draft.request.edges))]
        try:
            items.append(event_builder.finish(draft, n, own))
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
    outcomes = store.append(access, items, atomic)
    undone = atomic and any(said.outcome not in _STORED for said in outcomes)
    if not undone:
        dirty = {o.scope_id for o in outcomes if o.turned_dirty and o.scope_id is not None}
        hints.send(access.asker.tenant, sorted(dirty))
    for said in outcomes:
        if said.outcome not in _STORED:
            error = _refusal(said.outcome, made[said.n], by_n[said.n], said.stored)
            results[said.n] = Appended(error=error)
        elif not undone:
            receipt = _receipt(said, by_n[said.n])
            results[said.n] = Appended(receipt, replayed=said.outcome == "replayed")
    if not undone:  # last: what follows a commit may fail, and must take nothing of it back
        stored = _as_stored(access, made, outcomes, by_n)
        for said in (said for said in outcomes if said.n in stored):
            results[said.n] = Appended(_receipt(said, stored[said.n]), replayed=True)


def _as_stored(
    access: Access,
    made: Mapping[int, Draft],
    outcomes: Sequence[store.Outcome],
    by_n: Mapping[int, NewEvent],
) -> dict[int, NewEvent]:
    """Replayed items that cite a payload, with the type and name of the first time: an upload that
    told them may be gone. Only such replays cost a look at the log."""
    replays = {
        said.event_id: said.n
        for said in outcomes
        if said.outcome == "replayed" and made[said.n].request.blob is not None and said.event_id
    }
    described = store.described(access, list(replays)) if replays else ()
    return {
        replays[row.event_id]: replace(
            by_n[replays[row.event_id]], mime_type=row.mime_type, file_name=row.file_name
        )
        for row in described
    }


def _receipt(said: store.Outcome, item: NewEvent) -> Receipt:
    """What is acknowledged: from the stored row alone, so that a replay says the same. A payload's
    type and name are part of the request, which a replay repeats, or were read from the row."""
    blob = item.blob_cid and BlobOut(
        cid=item.blob_cid, size=said.blob_size or 0, mime_type=item.mime_type, name=item.file_name
    )
    return Receipt.model_validate({**vars(said), "blob": blob})


def _refusal(
    outcome: str, made: Draft, item: NewEvent, stored: Mapping[str, Any] | None
) -> StrandlineError:
    if outcome == "blob_not_found" and (made.payload or (made.cited and made.cited.upload)):
        # It brings a payload and left it out, because its key was known: not any more.
        raise Unavailable("What this request meets in the log just changed. Try again.")
    if outcome == "session_ended":
        return StateConflict(SESSION_ENDED, field="session_id")
    if outcome != "conflict":
        name, message = _REFUSALS[outcome]
        return Invalid(message, field=name, reason=outcome)
    if stored is None:
        return Conflict("This key was used before, with another request. Use a new key.")
    fields = event_builder.differing(made, stored, item.edges)
    return Conflict(
        f"This key was used before, with another {', '.join(fields)}. Repeat the first request, "
        "or use a new key.",
        fields=fields,
        event_id=stored["event_id"],
    )
