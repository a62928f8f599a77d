"""Read events back: one, a tree, a page, a scope's feed, a memory by CID."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from strandline import cursors, wire
from strandline.blobs import Blobs
from strandline.cid import Edge, block_cid, cid_bytes, encode
from strandline.cursors import Position
from strandline.db import Access
from strandline.errors import NotFound
from strandline.store import events, scopes
from strandline.store.events import Event


def shown(event: Event) -> wire.EventOut:
    """An event as its readers see it."""
    blob = event.blob_cid and wire.BlobOut(
        cid=event.blob_cid,
        size=event.blob_size or 0,
        mime_type=event.mime_type,
        name=event.file_name,
    )
    return wire.EventOut.model_validate(
        {
            **vars(event),
            "session_id": event.session_id or None,
            "parts": _parts(event),
            "blob": blob,
        }
    )


def _parts(event: Event) -> list[wire.PartOut] | None:
    if not event.parts or event.content is None:
        return None
    parts: list[wire.PartOut] = []
    start = 0
    for part in event.parts:
        parts.append(
            wire.PartOut(content=event.content[start : start + part.chars], model=part.model)
        )
        start += part.chars
    return parts


def get_event(access: Access, event_id: UUID) -> wire.EventOut:
    """One event in view. Raises NotFound."""
    event = events.get(access, event_id)
    if event is None:
        raise NotFound
    return shown(event)


def query_events(access: Access, query: wire.EventQuery) -> wire.EventTree:
    """Raw events as a rooted tree: query, scopes, events by seq; a page is the newest."""
    narrowing = query.narrowing()
    rows = events.newest(
        access,
        narrowing=narrowing,
        scope_id=query.scope_id,
        text=query.text,
        after=cursors.decode(query.cursor),
        limit=query.limit,
        page_bytes=wire.PAGE_BYTES,
    )
    by_scope: dict[UUID, list[events.Listed]] = {}
    for row in rows:
        by_scope.setdefault(row.scope_id, []).append(row)
    return wire.EventTree(
        query={**narrowing, "participants": access.asker.viewer, "text": query.text},
        mark=rows[0].mark if rows else "",
        scopes=[
            wire.ScopeEvents(
                scope_id=scope_id,
                participants=found[0].participants,
                events=[shown(e) for e in sorted(found, key=lambda e: e.seq)],
            )
            for scope_id, found in by_scope.items()
        ],
        next_cursor=_next(rows),
    )


def list_events(access: Access, limit: int, cursor: str | None) -> wire.EventPage:
    """Everything in view, newest first."""
    rows = events.newest(
        access,
        narrowing={},
        scope_id=None,
        text=None,
        after=cursors.decode(cursor),
        limit=limit,
        page_bytes=wire.PAGE_BYTES,
    )
    return wire.EventPage(events=[shown(row) for row in rows], next_cursor=_next(rows))


def _next(rows: Sequence[events.Listed]) -> str | None:
    """Where the next page begins, if the list goes on: a page ends by bytes or by number."""
    if not rows or rows[0].available == len(rows):
        return None
    last = rows[-1]
    return cursors.encode(Position(last.mark, last.recorded_at, last.event_id))


def list_scopes(access: Access, limit: int, cursor: str | None) -> wire.ScopePage:
    """Scopes in view, newest first."""
    rows = scopes.newest(access, cursors.decode(cursor), limit)
    return wire.ScopePage(
        scopes=[wire.ScopeOut.model_validate(vars(row)) for row in rows],
        next_cursor=None
        if len(rows) < limit
        else cursors.encode(Position(rows[-1].mark, rows[-1].created_at, rows[-1].scope_id)),
    )


def get_scope(access: Access, scope_id: UUID) -> wire.ScopeOut:
    """One scope in view. Raises NotFound."""
    scope = scopes.get(access, scope_id)
    if scope is None:
        raise NotFound
    return wire.ScopeOut.model_validate(vars(scope))


def feed(access: Access, scope_id: UUID, after_seq: int, limit: int) -> wire.FeedPage:
    """A scope's events past a seq, in order: the only feed. Raises NotFound."""
    scope = get_scope(access, scope_id)
    rows = events.feed(access, scope_id, after_seq, limit, wire.PAGE_BYTES)
    return wire.FeedPage(
        scope_id=scope_id,
        last_seq=max(scope.last_seq, rows[-1].seq if rows else 0),
        events=[shown(row) for row in rows],
        next_after_seq=rows[-1].seq if rows else after_seq,
    )


def get_memory(access: Access, cid: str) -> wire.EventOut:
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
    event = events.earliest_by_cid(access, cid)
    if event is None:
        raise NotFound
    return event


def get_file(access: Access, blobs: Blobs, cid: str, seconds: int) -> wire.FileOut:
    """A URL that fetches a payload for a short while. Raises NotFound."""
    cid_bytes(cid)
    payload = events.payload(access, cid)
    if payload is None:
        raise NotFound
    return wire.FileOut(
        cid=cid,
        url=blobs.url(access.asker.tenant, cid, payload.mime_type, payload.file_name, seconds),
        expires_at=datetime.now(UTC) + timedelta(seconds=seconds),
        size=payload.size,
        mime_type=payload.mime_type,
        name=payload.file_name,
    )
