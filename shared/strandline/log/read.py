"""Read events: one by id, a query as a tree, a page, a scope's feed, a memory by CID."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import to_json

from strandline.aws.blobs import BlobStore
from strandline.cursors import Cursors, Position
from strandline.db.database import TenantDb
from strandline.errors import Gone, NotFound
from strandline.log import store, store_erasure_marks, store_scopes
from strandline.log.cid import cid_to_bytes
from strandline.log.schemas_fields import BlobOut
from strandline.log.schemas_read import (
    PAGE_BYTES,
    AgentMessagePartOut,
    EventOut,
    EventPage,
    EventQuery,
    EventTree,
    FeedPage,
    PresignedPayloadUrl,
    ScopeEvents,
    ScopeOut,
    ScopePage,
)
from strandline.log.store import Event
from strandline.log.store_erasure_marks import decode_cursor_unless_erased_since


def to_event_out(event: Event) -> EventOut:
    """Convert an event for a response."""
    blob = event.blob_cid and BlobOut(
        cid=event.blob_cid,
        size=event.blob_size or 0,
        mime_type=event.mime_type,
        name=event.file_name,
    )
    return EventOut.model_validate(
        {
            **vars(event),
            "session_id": event.session_id or None,
            "parts": _split_content_into_parts(event),
            "blob": blob,
            "name": event.file_name,
        }
    )


def _split_content_into_parts(event: Event) -> list[AgentMessagePartOut] | None:
    if not event.parts:
        return None
    parts: list[AgentMessagePartOut] = []
    start = 0
    for part in event.parts:
        parts.append(
            AgentMessagePartOut(
                content=event.content and event.content[start : start + part.chars],
                chars=part.chars,
                model=part.model,
            )
        )
        start += part.chars
    return parts


def take_models_fitting_response[Model: BaseModel](
    models: Iterable[Model], extra_bytes: Callable[[Model], int] = lambda _: 0
) -> list[Model]:
    """As many models as fit into one response, and at least one. The size is counted as serialised
    JSON: escapes and parts can make an event several times its size in the log, by which the store
    limits pages. `extra_bytes` counts bytes that a model adds to the response around it."""
    page: list[Model] = []
    size = 0
    for model in models:
        size += len(model.model_dump_json().encode()) + extra_bytes(model)
        if page and size > PAGE_BYTES:
            break
        page.append(model)
    return page


def get_event(access: TenantDb, event_id: UUID) -> EventOut:
    """One visible event. Raises NotFound, and Gone for an erased one."""
    event = store.get_event(access, event_id)
    if event is None:
        tombstone = store_erasure_marks.find_tombstone(access, event_id)
        if tombstone is None:
            raise NotFound
        raise Gone(
            "This event was erased.",
            scope_id=str(tombstone.scope_id),
            seq=tombstone.seq,
            erased_at=tombstone.erased_at.isoformat(),
        )
    return to_event_out(event)


def query_events(access: TenantDb, query: EventQuery) -> EventTree:
    """Raw events as a tree of query, scopes, and events by seq. A page holds the newest events.
    Raises Malformed for an invalid cursor, Gone for one from before an erasure."""
    narrowing = query.to_json_filter()
    is_exact = query.mode == "exact"
    filters = {**narrowing, "contains": query.text} if is_exact else narrowing
    words = None if is_exact else query.text
    cursors = _make_cursors("events/query", access, filters, query.scope_id, words)
    after = decode_cursor_unless_erased_since(access, cursors, query.cursor)
    result = store.list_newest(
        access,
        filters=filters,
        scope_id=query.scope_id,
        text=words,
        after=after,
        limit=query.limit,
        page_bytes=PAGE_BYTES,
    )
    page = _take_events_fitting_tree(map(to_event_out, result.rows))
    return EventTree(
        query={
            **narrowing,
            "participants": access.caller.viewer,
            "mode": query.mode,
            "text": query.text,
        },
        mark=cursors.seal_snapshot(after.pg_snapshot if after else result.pg_snapshot),
        scopes=_group_by_scope(page),
        next_cursor=_next_cursor(result.rows[: len(page)], cursors),
    )


def _take_events_fitting_tree(events: Iterable[EventOut]) -> list[EventOut]:
    """The events that fit into a page which names the participants once per scope."""
    counted_scopes = set[UUID]()

    def scope_bytes(event: EventOut) -> int:
        if event.scope_id in counted_scopes:
            return 0
        counted_scopes.add(event.scope_id)
        return sum(len(to_json(name)) + 1 for name in event.participants)

    return take_models_fitting_response(events, scope_bytes)


def _group_by_scope(events: Sequence[EventOut]) -> list[ScopeEvents]:
    """Scopes in the order of their first event here, each with its events by seq."""
    by_scope: dict[UUID, list[EventOut]] = {}
    for event in events:
        by_scope.setdefault(event.scope_id, []).append(event)
    return [
        ScopeEvents(
            scope_id=scope_id,
            participants=scope_events[0].participants,
            events=sorted(scope_events, key=lambda event: event.seq),
        )
        for scope_id, scope_events in by_scope.items()
    ]


def list_events(access: TenantDb, limit: int, cursor: str | None) -> EventPage:
    """All visible events, newest first. Raises Malformed for an invalid cursor, Gone for one from
    before an erasure."""
    cursors = _make_cursors("memories/list", access)
    rows = store.list_newest(
        access,
        filters={},
        scope_id=None,
        text=None,
        after=decode_cursor_unless_erased_since(access, cursors, cursor),
        limit=limit,
        page_bytes=PAGE_BYTES,
    ).rows
    page = take_models_fitting_response(map(to_event_out, rows))
    return EventPage(events=page, next_cursor=_next_cursor(rows[: len(page)], cursors))


def _make_cursors(name: str, access: TenantDb, *filters: object) -> Cursors:
    return Cursors(access.sealer, access.caller.tenant, name, access.caller.viewer, *filters)


def _next_cursor(rows: Sequence[store.ListedEvent], cursors: Cursors) -> str | None:
    """The cursor of the next page, or None at the end of the list. A page ends by bytes or by
    count."""
    if not rows or rows[0].available == len(rows):
        return None
    last = rows[-1]
    return cursors.encode(Position(last.pg_snapshot, last.recorded_at, last.scope_id, last.seq))


def list_scopes(access: TenantDb, limit: int, cursor: str | None) -> ScopePage:
    """The visible scopes, newest first. Raises Malformed for an invalid cursor."""
    cursors = _make_cursors("scopes", access)
    rows = store_scopes.list_newest(access, cursors.decode(cursor), limit)
    page = take_models_fitting_response(ScopeOut.model_validate(vars(row)) for row in rows)
    if len(page) < limit and len(page) == len(rows):
        return ScopePage(scopes=page, next_cursor=None)
    last = rows[len(page) - 1]
    after = Position(last.pg_snapshot, last.created_at, last.scope_id)
    return ScopePage(scopes=page, next_cursor=cursors.encode(after))


def get_scope(access: TenantDb, scope_id: UUID) -> ScopeOut:
    """One visible scope. Raises NotFound."""
    scope = store_scopes.get_scope(access, scope_id)
    if scope is None:
        raise NotFound
    return ScopeOut.model_validate(vars(scope))


def read_feed(access: TenantDb, scope_id: UUID, after_seq: int, limit: int) -> FeedPage:
    """The events of a scope after `after_seq`, in order. Raises NotFound."""
    scope = get_scope(access, scope_id)
    page = take_models_fitting_response(
        map(to_event_out, store.read_feed(access, scope_id, after_seq, limit, PAGE_BYTES))
    )
    return FeedPage(
        scope_id=scope_id,
        last_seq=max(scope.last_seq, page[-1].seq if page else 0),
        events=page,
        next_after_seq=page[-1].seq if page else after_seq,
    )


def get_memory(access: TenantDb, cid: str) -> EventOut:
    """The earliest visible event whose block has this CID. Raises NotFound, or Invalid for a
    malformed CID."""
    return to_event_out(_get_earliest_event_by_cid(access, cid))


def _get_earliest_event_by_cid(access: TenantDb, cid: str) -> Event:
    cid_to_bytes(cid)
    event = store.find_earliest_by_cid(access, cid)
    if event is None:
        raise NotFound
    return event


def presign_payload_download(
    access: TenantDb, blobs: BlobStore, cid: str, seconds: int
) -> PresignedPayloadUrl:
    """A presigned URL of a payload, valid for `seconds`. Raises NotFound, or Invalid for a
    malformed CID."""
    cid_to_bytes(cid)
    payload = store.find_payload(access, cid)
    if payload is None:
        raise NotFound
    return PresignedPayloadUrl(
        cid=cid,
        url=blobs.presign_get(
            access.caller.tenant, cid, payload.mime_type, payload.file_name, seconds
        ),
        expires_at=datetime.now(UTC) + timedelta(seconds=seconds),
        size=payload.size,
        mime_type=payload.mime_type,
        name=payload.file_name,
    )
