"""Append events: validate them, upload large content, store all in one round trip, then notify the
work queue."""

import time
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from strandline.auth.principals import Principal
from strandline.aws.blobs import BlobStore
from strandline.aws.work_queue import WorkQueue
from strandline.config_quotas import Quota
from strandline.db.database import NOBODY, Caller, Database, TenantDb
from strandline.errors import (
    BatchRefused,
    Conflict,
    Invalid,
    OutcomeUnknown,
    QuotaExceeded,
    StateConflict,
    StrandlineError,
    TooLarge,
    Unavailable,
)
from strandline.log import event_builder, payloads, store
from strandline.log.event_builder import CitedPayload, EventDraft, NewEvent
from strandline.log.schemas import AppendRequest, BlobOut, Receipt
from strandline.schemas import check_storable, validate
from strandline.tenants.quotas import QuotaManager

_STORED_OUTCOMES = ("created", "replayed")
_REFUSAL_MESSAGES = {
    "edge_not_found": (
        "edges",
        "edges: cite only events that every participant of this event may see",
    ),
    "blob_not_found": (
        "blob.cid",
        "blob.cid: there is no payload with this CID that you may cite. Upload it with POST "
        "/api/v1/uploads, and cite it before its cite_until",
    ),
    "session_mismatch": (
        "session_id",
        "session_id: this session has other participants; use another session_id, or send the "
        "session's own participants",
    ),
}

SESSION_ENDED_MESSAGE = (
    "session_id: this session has ended; begin another under a new session_id, or leave it out: "
    "POST /api/v1/events accepts events without a session"
)


@dataclass(frozen=True)
class AppendResult:
    """The result of one item: a receipt, or the error that refused it."""

    receipt: Receipt | None = None
    is_replay: bool = False
    error: StrandlineError | None = None

    @property
    def is_new(self) -> bool:
        """Whether the append created a new event, rather than replaying one."""
        return self.receipt is not None and not self.is_replay


def append(
    database: Database,
    blobs: BlobStore,
    work_queue: WorkQueue,
    quotas: QuotaManager,
    principal: Principal,
    bodies: Sequence[tuple[object, str | None]],
    *,
    atomic: bool = False,
    deadline: float | None = None,
) -> list[AppendResult]:
    """Append each (body, Idempotency-Key) as an event and return one result per body, in order.

    An invalid body fails alone, unless `atomic`: then nothing is stored. `deadline` is in
    time.monotonic() seconds. Raises QuotaExceeded or TooLarge, and stores nothing, when the valid
    bodies exceed the tenant's quotas; Unavailable when a dependency fails or is too slow;
    OutcomeUnknown when the connection broke while storing. Events acknowledged by earlier calls are
    safe.
    """
    results: dict[int, AppendResult] = {}
    caller = make_caller(principal)
    drafts_by_n = _build_drafts(principal, bodies, results)
    if not drafts_by_n:
        return [results[n] for n in range(len(bodies))]
    access = database.connect_as(caller, deadline)
    drafts_by_n = _attach_citations(access, blobs, drafts_by_n, results, deadline)
    items = _drop_refused_payloads(
        access, drafts_by_n, _build_events(access, drafts_by_n, results), results
    )
    if items and not (atomic and results):
        costs = _count_stored_bytes(drafts_by_n, items)
        with _charge_quotas(quotas, access, items, costs, results, deadline):
            if any(item.blob_cid for item in items):
                payload_drafts = [drafts_by_n[item.n] for item in items if item.blob_stored]
                _put_payloads(blobs, principal.tenant, payload_drafts, deadline)
                # The connection may have died during the uploads.
                access = database.connect_as(caller, deadline)
            _store(access, work_queue, drafts_by_n, items, atomic, results)
    return [results.get(n) or AppendResult(error=BatchRefused()) for n in range(len(bodies))]


@contextmanager
def _charge_quotas(
    quotas: QuotaManager,
    access: TenantDb,
    items: Sequence[NewEvent],
    costs: Mapping[int, int],
    results: Mapping[int, AppendResult],
    deadline: float | None,
) -> Generator[None]:
    """Charge the quotas before the items are stored, and refund items that created no event.

    `costs` are stored bytes by item number. After OutcomeUnknown nothing is refunded: the items may
    be in the log. When a quota is exhausted, items that the log already has or would refuse still
    get their result: they cost nothing.
    """
    tenant = access.caller.tenant
    charges: dict[Quota, Mapping[int, int]] = {}
    unused: Collection[int] = costs.keys()
    try:
        try:
            costs_by_quota: dict[Quota, Mapping[int, int]] = {
                "appends": dict.fromkeys(costs, 1),
                "stored_bytes": costs,
            }
            for quota, amounts in costs_by_quota.items():
                quotas.spend(tenant, quota, sum(amounts.values()), deadline)
                charges[quota] = amounts
        except (QuotaExceeded, TooLarge):
            all_keyed = all(item.source_event_key is not None for item in items)
            if not all_keyed or len(store.preview_rejections(access, items)) < len(items):
                raise
        yield
        unused = [n for n in costs if n not in results or not results[n].is_new]
    except OutcomeUnknown:
        unused = ()
        raise
    finally:
        if unused:
            for quota, amounts in charges.items():
                quotas.refund(tenant, quota, sum(amounts[n] for n in unused))


def _put_payloads(
    blobs: BlobStore, tenant: str, new_drafts: Sequence[EventDraft], deadline: float | None
) -> None:
    for draft in new_drafts:
        if draft.payload is not None and draft.payload_cid is not None:
            if deadline is not None and time.monotonic() > deadline:
                raise Unavailable("The payload store is too slow. Send fewer payloads per request.")
            blobs.put(tenant, draft.payload_cid, draft.payload)
    uploads = {
        d.cited_payload.cid: d.cited_payload.upload
        for d in new_drafts
        if d.cited_payload and d.cited_payload.upload
    }
    for cid, upload in uploads.items():
        if deadline is not None and time.monotonic() > deadline:
            raise Unavailable("The payload store is too slow. Cite fewer payloads per request.")
        if not blobs.store_upload(tenant, upload.upload_id, cid, upload.etag):
            raise Unavailable("An upload that this request cites was just removed. Try again.")


def _drop_refused_payloads(
    access: TenantDb,
    drafts_by_n: Mapping[int, EventDraft],
    items: Sequence[NewEvent],
    results: dict[int, AppendResult],
) -> list[NewEvent]:
    """The items without those that the log would refuse, whose errors go into `results`.

    The payload of a refused item must not lie in the store uncited and unpaid for. Items that the
    log already has upload no payload again. Only requests that bring payloads need this query.
    """
    payload_items = {item.n: item for item in items if item.blob_stored}
    refusals = (
        store.preview_rejections(access, list(payload_items.values())) if payload_items else {}
    )
    for n, refusal in refusals.items():
        payload_items[n].blob_stored = False
        if refusal is not None:
            results[n] = AppendResult(
                error=_make_refusal(refusal, drafts_by_n[n], payload_items[n], None)
            )
    return [item for item in items if refusals.get(item.n) is None]


def _count_stored_bytes(
    drafts_by_n: Mapping[int, EventDraft], items: Sequence[NewEvent]
) -> dict[int, int]:
    """The stored bytes that each item costs, by item number. A payload counts once per request, for
    the first item that brings it. An upload was charged when it began."""
    costs = {item.n: item.bytes for item in items}
    counted_cids: set[str | None] = set()
    for item in items:
        if item.blob_stored and item.blob_cid not in counted_cids:
            counted_cids.add(item.blob_cid)
            size = item.blob_size or 0
            item.bytes += size
            costs[item.n] += 0 if drafts_by_n[item.n].payload is None else size
    return costs


def make_caller(principal: Principal) -> Caller:
    """The caller of an append: a bound credential sees its user's scopes, an unbound one may name
    any."""
    viewer = (principal.user,) if principal.user else ()
    return Caller(principal.tenant, viewer, principal.user or NOBODY)


def _build_drafts(
    principal: Principal,
    bodies: Sequence[tuple[object, str | None]],
    results: dict[int, AppendResult],
) -> dict[int, EventDraft]:
    """The drafts of valid bodies, by item number. The errors of the others go into `results`."""
    drafts_by_n: dict[int, EventDraft] = {}
    for n, (body, key) in enumerate(bodies):
        try:
            drafts_by_n[n] = event_builder.build_draft(
                principal, validate(AppendRequest, check_storable(body)), key
            )
        except StrandlineError as error:
            results[n] = AppendResult(error=error)
    return drafts_by_n


def _attach_citations(
    access: TenantDb,
    blobs: BlobStore,
    drafts_by_n: Mapping[int, EventDraft],
    results: dict[int, AppendResult],
    deadline: float | None,
) -> dict[int, EventDraft]:
    """The drafts with the payloads that they cite. Drafts whose citation fails are left out; their
    errors go into `results`."""
    citations = payloads.resolve_citations(access, blobs, drafts_by_n, deadline)
    if not citations:
        return dict(drafts_by_n)
    for n, citation in citations.items():
        if isinstance(citation, StrandlineError):
            results[n] = AppendResult(error=citation)
    cited_payloads = {
        n: citation for n, citation in citations.items() if isinstance(citation, CitedPayload)
    }
    return {
        n: replace(d, cited_payload=cited_payloads.get(n))
        for n, d in drafts_by_n.items()
        if n not in results
    }


def _build_events(
    access: TenantDb, drafts_by_n: Mapping[int, EventDraft], results: dict[int, AppendResult]
) -> list[NewEvent]:
    """Build the events with their CIDs. Only requests with edges query the log first."""
    edge_queries = [
        edge.model_dump(mode="json", exclude_none=True, exclude={"weight"})
        | {"participants": draft.participants}
        for draft in drafts_by_n.values()
        for edge in draft.request.edges
    ]
    targets = iter(store.find_edge_targets(access, edge_queries) if edge_queries else ())
    items: list[NewEvent] = []
    for n, draft in drafts_by_n.items():
        own_targets = [(t.event_id, t.cid) for t in islice(targets, len(draft.request.edges))]
        try:
            items.append(event_builder.build_event(draft, n, own_targets))
        except StrandlineError as error:
            results[n] = AppendResult(error=error)
    return items


def _store(
    access: TenantDb,
    work_queue: WorkQueue,
    drafts_by_n: Mapping[int, EventDraft],
    items: Sequence[NewEvent],
    atomic: bool,
    results: dict[int, AppendResult],
) -> None:
    by_n = {item.n: item for item in items}
    outcomes = store.append_events(access, items, atomic)
    is_rolled_back = atomic and any(outcome.outcome not in _STORED_OUTCOMES for outcome in outcomes)
    if not is_rolled_back:
        dirty_scopes = {o.scope_id for o in outcomes if o.turned_dirty and o.scope_id is not None}
        work_queue.send(access.caller.tenant, sorted(dirty_scopes))
    for outcome in outcomes:
        if outcome.outcome not in _STORED_OUTCOMES:
            error = _make_refusal(
                outcome.outcome, drafts_by_n[outcome.n], by_n[outcome.n], outcome.stored
            )
            results[outcome.n] = AppendResult(error=error)
        elif not is_rolled_back:
            receipt = _make_receipt(outcome, by_n[outcome.n])
            results[outcome.n] = AppendResult(receipt, is_replay=outcome.outcome == "replayed")
    if not is_rolled_back:  # last: a failure after the commit must not undo its results
        replayed_items = _load_replayed_items(access, drafts_by_n, outcomes, by_n)
        for outcome in (outcome for outcome in outcomes if outcome.n in replayed_items):
            results[outcome.n] = AppendResult(
                _make_receipt(outcome, replayed_items[outcome.n]), is_replay=True
            )


def _load_replayed_items(
    access: TenantDb,
    drafts_by_n: Mapping[int, EventDraft],
    outcomes: Sequence[store.AppendOutcome],
    by_n: Mapping[int, NewEvent],
) -> dict[int, NewEvent]:
    """Replayed items that cite a payload, with the media type and name of the first append: the
    upload that named them may be gone. Only such replays query the log."""
    replays = {
        outcome.event_id: outcome.n
        for outcome in outcomes
        if outcome.outcome == "replayed"
        and drafts_by_n[outcome.n].request.blob is not None
        and outcome.event_id
    }
    stored_rows = store.describe_payloads(access, list(replays)) if replays else ()
    return {
        replays[row.event_id]: replace(
            by_n[replays[row.event_id]], mime_type=row.mime_type, file_name=row.file_name
        )
        for row in stored_rows
    }


def _make_receipt(outcome: store.AppendOutcome, item: NewEvent) -> Receipt:
    """The receipt, from the stored row alone, so that a replay returns the same. A payload's media
    type and name are part of the request, which a replay repeats, or were read from the row."""
    blob = item.blob_cid and BlobOut(
        cid=item.blob_cid,
        size=outcome.blob_size or 0,
        mime_type=item.mime_type,
        name=item.file_name,
    )
    return Receipt.model_validate({**vars(outcome), "blob": blob})


def _make_refusal(
    outcome: str, draft: EventDraft, item: NewEvent, stored_request: Mapping[str, Any] | None
) -> StrandlineError:
    if outcome == "blob_not_found" and (
        draft.payload or (draft.cited_payload and draft.cited_payload.upload)
    ):
        # The payload was not uploaded because the key was in the log; now it no longer is.
        raise Unavailable("The event stored under this request's key just changed. Try again.")
    if outcome == "session_ended":
        return StateConflict(SESSION_ENDED_MESSAGE, field="session_id")
    if outcome != "conflict":
        name, message = _REFUSAL_MESSAGES[outcome]
        return Invalid(message, field=name, reason=outcome)
    if stored_request is None:
        return Conflict("This key was already used for a different request. Use a new key.")
    fields = event_builder.list_differences(draft, stored_request, item.edges)
    return Conflict(
        f"This key was already used with a different {', '.join(fields)}. Repeat the first "
        "request unchanged, or use a new key.",
        fields=fields,
        event_id=stored_request["event_id"],
    )
