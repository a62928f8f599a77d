"""Append events: validate them, upload large content, store all in one round trip, then notify the
work queue."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from uuid import UUID

from strandline.auth.principals import Principal
from strandline.aws.work_queue import WorkQueue
from strandline.db.database import TenantDb
from strandline.errors import BatchRefused, Gone, StrandlineError, Unavailable
from strandline.http.writer import WriterResources
from strandline.log import (
    charges,
    event_builder,
    event_draft,
    payload_citations,
    store,
    store_erasure_marks,
    store_links_and_sources,
    store_uploads,
)
from strandline.log.append_state import STORED_OUTCOMES, AppendBatch, AppendResult
from strandline.log.event_builder import NewEvent
from strandline.log.event_draft import CitedPayload, EventDraft, RecalledLinks
from strandline.log.refusals import ERASED_KEY_MESSAGE, make_append_refusal_error
from strandline.log.schemas_append import AppendRequest, Receipt
from strandline.log.schemas_fields import BlobOut
from strandline.schemas import check_storable, validate


def append(
    writer: WriterResources,
    bodies: Sequence[tuple[object, str | None]],
    *,
    atomic: bool = False,
    find_links: Callable[[EventDraft], RecalledLinks] | None = None,
    source_ids: Sequence[UUID] = (),
) -> list[AppendResult]:
    """Append each (body, Idempotency-Key) as an event and return one result per body, in order.

    An invalid body fails alone, unless `atomic`: then nothing is stored. `find_links` adds edges to
    a single event that may be written; it is called outside of any transaction. A single event
    without links may rest on more than it cites, `source_ids`: it fails where one of these is
    erased. Raises QuotaExceeded or TooLarge, and stores nothing, when the valid bodies exceed the
    tenant's quotas; Unavailable when a dependency fails or is too slow; OutcomeUnknown when the
    connection broke while storing. Events acknowledged by earlier calls are safe.
    """
    batch = _build_event_drafts(writer.principal, bodies)
    if not batch.drafts:
        return _list_results(batch, len(bodies))
    access = writer.connect()
    drafts = batch.drafts
    batch = _with_cited_payloads(access, writer, batch)
    if find_links is not None:
        drafts_with_links = {n: replace(d, links=find_links(d)) for n, d in batch.drafts.items()}
        batch = replace(batch, drafts=drafts_with_links)
    batch = _refuse_blank_texts_under_new_keys(access, _build_events(access, batch))
    batch = _refuse_replays_of_erased_events(access, drafts, batch)
    batch = _refuse_rejected_before_upload(access, batch)

    def store_batch(batch: AppendBatch) -> AppendBatch:
        if not any(event.blob_cid for event in batch.events.values()):
            return _store_events_and_notify(access, writer.work_queue, batch, atomic, source_ids)
        _put_payloads_in_store(writer, _list_drafts_with_new_payload(batch))
        # The connection may have died during the uploads.
        return _store_events_and_notify(
            writer.connect(), writer.work_queue, batch, atomic, source_ids
        )

    if batch.events and not (atomic and batch.results):
        batch = charges.charge_quotas_and_store(
            writer.quotas, access, batch, store_batch, writer.deadline
        )
    return _list_results(batch, len(bodies))


def _list_results(batch: AppendBatch, count: int) -> list[AppendResult]:
    """The result of each item; an item without one was part of a batch that was not stored."""
    return [batch.results.get(n) or AppendResult(error=BatchRefused()) for n in range(count)]


def _build_event_drafts(
    principal: Principal, bodies: Sequence[tuple[object, str | None]]
) -> AppendBatch:
    """The drafts of the valid bodies; the others are refused."""
    drafts: dict[int, EventDraft] = {}
    errors: dict[int, StrandlineError] = {}
    for n, (body, key) in enumerate(bodies):
        try:
            request = validate(AppendRequest, check_storable(body))
            drafts[n] = event_draft.build_draft(principal, request, key)
        except StrandlineError as error:
            errors[n] = error
    return AppendBatch(drafts).refuse(errors)


def _with_cited_payloads(
    access: TenantDb, writer: WriterResources, batch: AppendBatch
) -> AppendBatch:
    """The drafts with the payloads that they cite. Drafts whose citation fails are refused."""
    citations = payload_citations.resolve_cited_payloads(
        access, writer.blobs, batch.drafts, writer.deadline
    )
    drafts = {
        n: replace(draft, cited_payload=citation)
        if isinstance(citation := citations.get(n), CitedPayload)
        else draft
        for n, draft in batch.drafts.items()
    }
    return replace(batch, drafts=drafts).refuse(
        {n: error for n, error in citations.items() if isinstance(error, StrandlineError)}
    )


def _build_events(access: TenantDb, batch: AppendBatch) -> AppendBatch:
    """The events with their CIDs. Only requests with edges query the log first: a block commits to
    its targets' CIDs, which only the log knows."""
    edge_queries = [
        edge.model_dump(mode="json", exclude_none=True, exclude={"weight"})
        | {"participants": draft.participants}
        for draft in batch.drafts.values()
        for edge in draft.edges
    ]
    targets = iter(
        store_links_and_sources.find_edge_targets(access, edge_queries) if edge_queries else ()
    )
    events: dict[int, NewEvent] = {}
    errors: dict[int, StrandlineError] = {}
    for n, draft in batch.drafts.items():
        own_targets = [(t.event_id, t.cid) for t in islice(targets, len(draft.edges))]
        try:
            events[n] = event_builder.build_event(draft, n, own_targets)
        except StrandlineError as error:
            errors[n] = error
    return replace(batch, events=events).refuse(errors)


def _refuse_blank_texts_under_new_keys(access: TenantDb, batch: AppendBatch) -> AppendBatch:
    """Refuse the events without a text whose key is not stored. Only requests that bring such
    events need this query: one that an earlier version stored is replayed."""
    errors = {n: error for n, draft in batch.drafts.items() if (error := draft.blank_text_error)}
    if not errors:
        return batch
    rejections = store.preview_rejections(access, [batch.events[n] for n in errors])
    return batch.refuse(
        {n: error for n, error in errors.items() if rejections.get(n, "new") is not None}
    )


def _refuse_replays_of_erased_events(
    access: TenantDb, drafts: Mapping[int, EventDraft], batch: AppendBatch
) -> AppendBatch:
    """The batch with another reason for what was refused so far, where it replays the key of an
    erased event: what that event cited may be gone with it."""
    keys = {n: draft.key for n, draft in drafts.items() if n not in batch.drafts and draft.key}
    if not keys:
        return batch
    numbers = store_erasure_marks.find_items_with_erased_key(access, keys)
    return batch.refuse({n: Gone(ERASED_KEY_MESSAGE) for n in numbers})


def _refuse_rejected_before_upload(access: TenantDb, batch: AppendBatch) -> AppendBatch:
    """Refuse the items with payloads that the log would refuse.

    The payload of a refused item must not lie in the store uncited and unpaid for. Items that the
    log already has upload no payload again. Only requests that bring payloads need this query.
    """
    payload_events = [event for event in batch.events.values() if event.blob_stored]
    if not payload_events:
        return batch
    rejections = store.preview_rejections(access, payload_events)
    events = {
        n: replace(event, blob_stored=False) if n in rejections else event
        for n, event in batch.events.items()
    }
    return replace(batch, events=events).refuse(
        {
            n: make_append_refusal_error(refusal, batch.drafts[n], events[n], None)
            for n, refusal in rejections.items()
            if refusal is not None
        }
    )


def _list_drafts_with_new_payload(batch: AppendBatch) -> list[EventDraft]:
    return [batch.drafts[n] for n, event in batch.events.items() if event.blob_stored]


def _put_payloads_in_store(writer: WriterResources, new_drafts: Sequence[EventDraft]) -> None:
    blobs, tenant, deadline = writer.blobs, writer.principal.tenant, writer.deadline
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
        if not blobs.copy_upload_to_cid(tenant, upload.upload_id, cid, upload.etag):
            raise Unavailable("An upload that this request cites was just removed. Try again.")


def _store_events_and_notify(
    access: TenantDb,
    work_queue: WorkQueue,
    batch: AppendBatch,
    atomic: bool,
    source_ids: Sequence[UUID],
) -> AppendBatch:
    """Store the events, notify the work queue, and give every item its result. A batch that was
    rolled back has results for the refused items only."""
    outcomes = _append_events(access, batch, atomic, source_ids)
    stored_outcomes = [item for item in outcomes if item.outcome in STORED_OUTCOMES]
    is_rolled_back = atomic and len(stored_outcomes) < len(outcomes)
    if not is_rolled_back:
        dirty_scopes = {o.scope_id for o in outcomes if o.work_enqueued and o.scope_id is not None}
        work_queue.send(access.caller.tenant, sorted(dirty_scopes))
    refused_batch = batch.refuse(
        {
            item.n: make_append_refusal_error(
                item.outcome, batch.drafts[item.n], batch.events[item.n], item.stored
            )
            for item in outcomes
            if item.outcome not in STORED_OUTCOMES
        }
    )
    if is_rolled_back:
        return refused_batch
    events = _restore_media_types_of_replays(access, batch, stored_outcomes)
    receipts = {
        item.n: AppendResult(
            _make_receipt(item, events[item.n]), is_replay=item.outcome == "replayed"
        )
        for item in stored_outcomes
    }
    return replace(refused_batch, results={**refused_batch.results, **receipts})


def _append_events(
    access: TenantDb, batch: AppendBatch, atomic: bool, source_ids: Sequence[UUID]
) -> Sequence[store.AppendOutcome]:
    events = list(batch.events.values())
    if source_ids:
        return store_links_and_sources.append_event_with_sources(access, events[0], source_ids)
    links = batch.drafts[events[0].n].links
    if links is None:
        return store.append_events(access, events, atomic)
    return store_links_and_sources.append_linked_event(
        access, events[0], {"degraded": list(links.degraded)}
    )


def _restore_media_types_of_replays(
    access: TenantDb, batch: AppendBatch, outcomes: Sequence[store.AppendOutcome]
) -> Mapping[int, NewEvent]:
    """The events, those that were replayed and cite a payload with the media type and name of the
    first append: the upload that named them may be gone. Only such replays query the log."""
    replays = {
        outcome.event_id: outcome.n
        for outcome in outcomes
        if outcome.outcome == "replayed"
        and batch.drafts[outcome.n].request.blob is not None
        and outcome.event_id
    }
    stored_rows = (
        store_uploads.read_payload_media_types_and_names(access, list(replays)) if replays else ()
    )
    replayed_events = {
        n: replace(batch.events[n], mime_type=row.mime_type, file_name=row.file_name)
        for row in stored_rows
        for n in [replays[row.event_id]]
    }
    return {**batch.events, **replayed_events}


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
