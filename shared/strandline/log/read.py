"""Read events back: one, a tree, a page, a scope's feed, a memory by CID."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import to_json

from strandline.aws.blobs import Blobs
from strandline.cursors import Cursors, Position
from strandline.db.database import Access
from strandline.errors import NotFound
from strandline.log import store, store_scopes
from strandline.log.cid import Edge, block_cid, cid_bytes, encode
from strandline.log.schemas import (
    PAGE_BYTES,
    BlobOut,
    EventOut,
    EventPage,
    EventQuery,
    EventTree,
    FeedPage,
    FileOut,
    PartOut,
    ScopeEvents,
    ScopeOut,
    ScopePage,
)
from strandline.log.store import Event


def shown(event: Event) -> EventOut:
    """An event as its readers see it."""
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
            "parts": _parts(event),
            "blob": blob,
            "name": event.file_name,
        }
    )


def _parts(event: Event) -> list[PartOut] | None:
    if not event.parts:
        return None
    parts: list[PartOut] = []
    start = 0
    for part in event.parts:
        parts.append(
            PartOut(
                content=event.content and event.content[start : start + part.chars],
                chars=part.chars,
                model=part.model,
            )
        )
        start += part.chars
    return parts


def fitting[Model: BaseModel](
    models: Iterable[Model], besides: Callable[[Model], int] = lambda _: 0
) -> list[Model]:
    """As many as one answer holds, and one at least. Counted as they go over the wire: escapes and
    parts can make an event several times what it is in the log, by which the store ends pages.
    `besides`: bytes that a model brings into the answer around it."""
    taken: list[Model] = []
    size = 0
    for model in models:
        size += len(model.model_dump_json().encode()) + besides(model)
        if taken and size > PAGE_BYTES:
            break
        taken.append(model)
    return taken


def get_event(access: Access, event_id: UUID) -> EventOut:
    """One event in view. Raises NotFound."""
    event = store.get(access, event_id)
    if event is None:
        raise NotFound
    return shown(event)


def query_events(access: Access, query: EventQuery) -> EventTree:
    """Raw events as a rooted tree: query, scopes, events by seq; a page is the newest."""
    narrowing = query.narrowing()
    of = _of("events/query", access, narrowing, query.scope_id, query.text)
    after = of.decode(query.cursor)
    seen = store.newest(
        access,
        narrowing=narrowing,
        scope_id=query.scope_id,
        text=query.text,
        after=after,
        limit=query.limit,
        page_bytes=PAGE_BYTES,
    )
    met = set[UUID]()

    def scope_bytes(event: EventOut) -> int:
        """Of the participants, which stand beside a scope's events once more."""
        if event.scope_id in met:
            return 0
        met.add(event.scope_id)
        return sum(len(to_json(name)) + 1 for name in event.participants)

    page = fitting(map(shown, seen.rows), scope_bytes)
    by_scope: dict[UUID, list[EventOut]] = {}
    for event in page:
        by_scope.setdefault(event.scope_id, []).append(event)
    return EventTree(
        query={**narrowing, "participants": access.asker.viewer, "text": query.text},
        mark=of.seal_mark(after.mark if after else seen.mark),
        scopes=[
            ScopeEvents(
                scope_id=scope_id,
                participants=found[0].participants,
                events=sorted(found, key=lambda e: e.seq),
            )
            for scope_id, found in by_scope.items()
        ],
        next_cursor=_next(seen.rows[: len(page)], of),
    )


def list_events(access: Access, limit: int, cursor: str | None) -> EventPage:
    """Everything in view, newest first."""
    of = _of("memories/list", access)
    rows = store.newest(
        access,
        narrowing={},
        scope_id=None,
        text=None,
        after=of.decode(cursor),
        limit=limit,
        page_bytes=PAGE_BYTES,
    ).rows
    page = fitting(map(shown, rows))
    return EventPage(events=page, next_cursor=_next(rows[: len(page)], of))


def _of(name: str, access: Access, *narrowed: object) -> Cursors:
    return Cursors(access.sealer, access.asker.tenant, name, access.asker.viewer, *narrowed)


def _next(rows: Sequence[store.Listed], of: Cursors) -> str | None:
    """Where the next page begins, if the list goes on: a page ends by bytes or by number."""
    if not rows or rows[0].available == len(rows):
        return None
    last = rows[-1]
    return of.encode(Position(last.mark, last.recorded_at, last.scope_id, last.seq))


def list_scopes(access: Access, limit: int, cursor: str | None) -> ScopePage:
    """Scopes in view, newest first."""
    of = _of("scopes", access)
    rows = store_scopes.newest(access, of.decode(cursor), limit)
    page = fitting(ScopeOut.model_validate(vars(row)) for row in rows)
    if len(page) < limit and len(page) == len(rows):
        return ScopePage(scopes=page, next_cursor=None)
    last = rows[len(page) - 1]
    after = Position(last.mark, last.created_at, last.scope_id)
    return ScopePage(scopes=page, next_cursor=of.encode(after))


def get_scope(access: Access, scope_id: UUID) -> ScopeOut:
    """One scope in view. Raises NotFound."""
    scope = store_scopes.get(access, scope_id)
    if scope is None:
        raise NotFound
    return ScopeOut.model_validate(vars(scope))


def feed(access: Access, scope_id: UUID, after_seq: int, limit: int) -> FeedPage:
    """A scope's events past a seq, in order: the only feed. Raises NotFound."""
    scope = get_scope(access, scope_id)
    page = fitting(map(shown, store.feed(access, scope_id, after_seq, limit, PAGE_BYTES)))
    return FeedPage(
        scope_id=scope_id,
        last_seq=max(scope.last_seq, page[-1].seq if page else 0),
        events=page,
        next_after_seq=page[-1].seq if page else after_seq,
    )


def get_memory(access: Access, cid: str) -> EventOut:
    """The earliest event in view whose block has this CID. Raises NotFound."""
    return shown(_by_cid(access, cid))


def get_block(access: Access, cid: str) -> bytes:
    """The block itself: DAG-CBOR that hashes to the CID. Raises NotFound."""
    event = _by_cid(access, cid)
    block = encode(event, [Edge(edge["cid"], edge["weight"]) for edge in event.edges])
    assert block_cid(block) == cid, "a block is a view of its row"
    return block


def _by_cid(access: Access, cid: str) -> Event:
    cid_bytes(cid)
    event = store.earliest_by_cid(access, cid)
    if event is None:
        raise NotFound
    return event


def get_file(access: Access, blobs: Blobs, cid: str, seconds: int) -> FileOut:
    """A URL that fetches a payload for a short while. Raises NotFound."""
    cid_bytes(cid)
    payload = store.payload(access, cid)
    if payload is None:
        raise NotFound
    return FileOut(
        cid=cid,
        url=blobs.url(access.asker.tenant, cid, payload.mime_type, payload.file_name, seconds),
        expires_at=datetime.now(UTC) + timedelta(seconds=seconds),
        size=payload.size,
        mime_type=payload.mime_type,
        name=payload.file_name,
    )
