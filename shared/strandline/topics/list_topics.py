"""Read a snapshot's trees level by level."""

from datetime import datetime
from uuid import UUID

from strandline.cursors import Cursors, Position
from strandline.db.database import TenantDb
from strandline.errors import NotFound
from strandline.topics import store_snapshot_admin, store_topic_pages
from strandline.topics.schemas_topics import TopicOut, TopicsPage, TopicsQuery, TopicsSnapshot
from strandline.topics.store_snapshot_admin import SnapshotRecord
from strandline.topics.store_topic_pages import TopicRow

_PG_SNAPSHOT = "1:1:"
"""A constant in place of a database snapshot: the trees of a version do not change."""


def list_topics(access: TenantDb, query: TopicsQuery) -> TopicsPage:
    """The topics that a query asks for. Raises NotFound for a version that does not exist, and
    Malformed for an invalid cursor."""
    if query.node_id is not None:
        rows = store_topic_pages.list_topic_contents(access, query.node_id)
        return TopicsPage(snapshot=None, topics=[*map(_to_topic_out, rows)], next_cursor=None)
    snapshot = _find_snapshot(access, query.version)
    if snapshot is None:
        return TopicsPage(snapshot=None, topics=[], next_cursor=None)
    rows, cursor = _list_page(access, snapshot, query)
    return TopicsPage(
        snapshot=TopicsSnapshot(
            version=snapshot.version,
            snapshot_id=snapshot.snapshot_id,
            published_at=snapshot.published_at,
            active=snapshot.is_active,
        ),
        topics=[*map(_to_topic_out, rows)],
        next_cursor=cursor,
    )


def _find_snapshot(access: TenantDb, version: int | None) -> SnapshotRecord | None:
    """The snapshot of a version, or the active one; None if none was published yet."""
    active_version = store_snapshot_admin.read_active_version(access)
    if version is None and active_version == 0:
        return None
    snapshot = store_snapshot_admin.get_snapshot(access, version or active_version)
    if snapshot is None:
        raise NotFound("There is no snapshot with this version; old ones are collected.")
    return snapshot


def _list_page(
    access: TenantDb, snapshot: SnapshotRecord, query: TopicsQuery
) -> tuple[list[TopicRow], str | None]:
    """A page of the topics below a place, or of the roots, and the cursor of the next one."""
    filters = access.caller.viewer, snapshot.version, query.scope_id, query.slot
    cursors = Cursors(access.sealer, access.caller.tenant, "topics", *filters)
    position = cursors.decode(query.cursor)
    after = position and (position.at, position.row_id)
    if query.slot is not None and query.scope_id is not None:
        place = query.scope_id, query.slot
        rows = store_topic_pages.list_topics_below(
            access, snapshot.version, place, after, query.limit + 1
        )
    else:
        rows = store_topic_pages.list_root_topics(
            access, snapshot.version, query.scope_id, after, query.limit + 1
        )
    page = list(rows[: query.limit])
    if len(rows) == len(page):
        return page, None
    last_at, last_id = _read_sort_key(page[-1])
    return page, cursors.encode(Position(_PG_SNAPSHOT, last_at, last_id, snapshot.version))


def _read_sort_key(row: TopicRow) -> tuple[datetime, UUID]:
    """By what a page is sorted: topics below one by their beginning, roots by their newest
    event."""
    if row.parent_slot is None or row.slot is None:
        return row.last_event_at, row.scope_id
    return row.started_at, row.slot


def _to_topic_out(row: TopicRow) -> TopicOut:
    return TopicOut.model_validate(row, from_attributes=True)
