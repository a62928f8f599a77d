"""SQL for events: append them, and read them back."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from pydantic_core import to_json

from strandline.cursors import Position
from strandline.db.database import SnapshotRead, TenantDb
from strandline.log import fulltext_input
from strandline.log.cid import EventColumns, ModelWrittenSpan
from strandline.log.event_builder import NewEvent
from strandline.log.fulltext_input import sanitize_for_parser


@dataclass(frozen=True)
class AppendOutcome:
    """What the database did with an item. `outcome` is created, replayed, conflict, or a refusal's
    code."""

    n: int
    outcome: str
    event_id: UUID | None
    scope_id: UUID | None
    seq: int | None
    cid: str | None
    recorded_at: datetime | None
    blob_size: int | None
    stored: dict[str, Any] | None
    work_enqueued: bool | None


_FIELD_READERS: Sequence[Callable[[str], Any]] = (
    int,
    str,
    UUID,
    UUID,
    int,
    str,
    datetime.fromisoformat,
    int,
    json.loads,
    "t".__eq__,
)
"""Converts each field of AppendOutcome, in order, from Postgres' text format."""


def append_events(
    access: TenantDb, items: Sequence[NewEvent], atomic: bool
) -> Sequence[AppendOutcome]:
    """Store the items by one function call in one round trip; one outcome per item. If `atomic` and
    any item is neither created nor replayed, nothing is stored."""
    document = dump_append_items([to_append_item(access, item) for item in items])
    rows = access.call_function(
        "select * from append_events($1, $2, $3, $4, $5)", document, "true" if atomic else "false"
    )
    return parse_append_outcomes(rows)


def to_append_item(access: TenantDb, item: NewEvent) -> dict[str, object]:
    """An item as the database's functions store it: with the HMAC of its key, by which the key of
    an erased event is recognised."""
    fields = item.as_json()
    if item.key_channel is not None and item.source_event_key is not None:
        fields["key_hash"] = access.sealer.hash_key(
            access.caller.writer, item.key_channel, item.source_event_key
        )
    return fields


def dump_append_items(items: Sequence[Mapping[str, object]]) -> str:
    """The items as the database's functions take them."""
    return to_json(items).decode()


def parse_append_outcomes(rows: Sequence[Sequence[bytes | None]]) -> list[AppendOutcome]:
    """The rows of such a function."""
    return [AppendOutcome(*map(_parse_column_value, _FIELD_READERS, row)) for row in rows]


def _parse_column_value(reader: Callable[[str], Any], value: bytes | None) -> Any:
    return None if value is None else reader(value.decode())


@dataclass(frozen=True)
class _RejectionRow:
    n: int
    refusal: str | None


def preview_rejections(access: TenantDb, items: Sequence[NewEvent]) -> dict[int, str | None]:
    """The items that an append would not store as the log stands, by item number: the code of the
    refusal, or None where the item's key is already stored. (That of an erased event is not.)"""
    rows = access.fetch(
        _RejectionRow,
        """
        with items as materialized (
            select i from jsonb_populate_recordset(null::append_item, %(items)s::jsonb) i),
        refusals as materialized (
            select append_refusals(array(select i from items))
                || erased_key_refusals(array(select i from items)) as codes),
        existing_keys as (
            select (items.i).n as n, (items.i).source_event_key is not null and exists (
                select from event_keys k
                where k.tenant_id = current_tenant() and k.writer = current_writer()
                    and k.channel = (items.i).key_channel
                    and k.source_event_key = (items.i).source_event_key) as is_used
            from items)
        select existing_keys.n,
            case when not existing_keys.is_used
                then refusals.codes ->> existing_keys.n::text end as refusal
        from existing_keys, refusals where existing_keys.is_used
            or refusals.codes ? existing_keys.n::text
        """,
        {
            "items": dump_append_items(
                [{**to_append_item(access, i), "content": None, "pieces": []} for i in items]
            )
        },
    )
    return {row.n: row.refusal for row in rows}


@dataclass
class Event(EventColumns):
    """An event as stored in the log, with its edges and, for its writer, its key."""

    event_id: UUID
    scope_id: UUID
    seq: int
    recorded_at: datetime
    cid: str | None
    edges: list[dict[str, Any]]
    source_event_key: str | None
    """The key that it was sent with, if the reader wrote it."""

    def __post_init__(self) -> None:
        parts = cast("list[dict[str, Any]]", self.parts)  # jsonb, as it comes from the driver
        self.parts = [ModelWrittenSpan(part["chars"], part["model"]) for part in parts]


def get_event(access: TenantDb, event_id: UUID) -> Event | None:
    """One visible event, or None."""
    rows = access.fetch(
        Event,
        """
        select e.*, k.source_event_key
        from event_rows e
        left join event_keys k on k.tenant_id = current_tenant() and k.event_id = e.event_id
        where e.event_id = %(event_id)s
        """,
        {"event_id": event_id},
    )
    return rows[0] if rows else None


def find_earliest_by_cid(access: TenantDb, cid: str) -> Event | None:
    """The earliest visible event whose block has this CID, or None. A CID is not unique."""
    rows = access.fetch(
        Event,
        """
        select e.*, k.source_event_key
        from event_rows e
        left join event_keys k on k.tenant_id = current_tenant() and k.event_id = e.event_id
        where e.cid = %(cid)s
        order by e.recorded_at, e.event_id limit 1
        """,
        {"cid": cid},
    )
    return rows[0] if rows else None


@dataclass(frozen=True)
class Payload:
    """A payload that the caller may download; `size` is in bytes."""

    cid: str
    size: int
    mime_type: str | None
    file_name: str | None


def find_payload(access: TenantDb, cid: str) -> Payload | None:
    """The payload of a visible event, or one that this writer uploaded; else None."""
    rows = access.fetch(
        Payload,
        """
        (select e.blob_cid as cid, e.blob_size as size, e.mime_type, e.file_name from events e
         where e.tenant_id = current_tenant() and e.blob_cid = %(cid)s and e.erased_at is null
         order by e.recorded_at, e.event_id limit 1)
        union all
        (select b.cid, b.size, null, null from blobs b
         where b.tenant_id = current_tenant() and b.cid = %(cid)s and b.writer = current_writer()
            and current_viewer() = array[b.writer])  -- the writer alone reads; never for '*'
        limit 1
        """,
        {"cid": cid},
    )
    return rows[0] if rows else None


@dataclass
class ListedEvent(Event):
    """An event on a page of a list, with the database snapshot that the list shows."""

    pg_snapshot: str
    available: int
    """The number of events found before the page was cut. One more than the limit means that there
    is a next page."""


MAX_LISTED_SCOPES = 200
"""A view of more scopes than this is wide: lists do not read each of its scopes."""


def list_newest(
    access: TenantDb,
    *,
    filters: Mapping[str, object],
    scope_id: UUID | None,
    text: str | None,
    after: Position | None,
    limit: int,
    page_bytes: int,
) -> SnapshotRead[ListedEvent]:
    """The visible events after the position `after`, newest first; events of the same time are
    ordered by scope and seq. A page ends at `limit` events or `page_bytes` of content. Later pages
    show the database snapshot of the first. `text` is a web search; the filter `contains` a text in
    the content, in any case. A session limits the view to its scopes. For a wide view, or an
    admin's without a list of scopes, the tenant's newest events are read first."""
    return access.read_snapshot(
        ListedEvent,
        """
        with candidate_scopes as materialized (
            select case when %(scope_id)s::uuid is not null then array[%(scope_id)s::uuid]
                else scopes_in_view_up_to(%(max_scopes)s + 1) end as scope_ids),
        view as materialized (
            select case when %(session_id)s::text is null then scope_ids
                else scopes_with_session(%(session_id)s, scope_ids,
                    %(max_scopes)s + 1) end as scope_ids
            from candidate_scopes),
        view_size as materialized (select cardinality(scope_ids) <= %(max_scopes)s as is_small
            from view),
        matches as (
            select e.* from (select unnest(scope_ids) as scope_id from view, view_size
                where is_small and not %(has_text)s) view
            cross join lateral (
                select e.event_id, e.recorded_at, e.scope_id, e.seq, page_bytes(e) as bytes
                from events e
                where e.tenant_id = current_tenant() and e.scope_id = view.scope_id
                    and is_listed(e, %(filter)s, %(pg_snapshot)s, %(at)s, %(after)s, %(seq)s)
                order by e.seq desc limit %(limit)s + 1
            ) e
            union all
            select few.* from view, view_size, newest_matches_in_few_scopes(scope_ids,
                %(filter)s, %(text)s, %(pg_snapshot)s, %(at)s, %(after)s, %(seq)s,
                %(limit)s + 1) few
            where is_small and %(has_text)s
            union all
            select many.* from view_size, newest_in_many_scopes(
                %(filter)s, %(text)s, %(pg_snapshot)s, %(at)s, %(after)s, %(seq)s,
                %(limit)s + 1) many
            where is_small is not true),
        page as (
            select w.event_id, row_number() over newest as place, sum(w.bytes) over newest as bytes
            from matches w
            window newest as (order by w.recorded_at desc, w.scope_id desc, w.seq desc)
            order by w.recorded_at desc, w.scope_id desc, w.seq desc limit %(limit)s + 1)
        select e.*, k.source_event_key,
            coalesce(%(pg_snapshot)s, pg_current_snapshot())::text as pg_snapshot,
            (select count(*) from page) as available
        from page p join event_rows e on e.event_id = p.event_id
        left join event_keys k on k.tenant_id = current_tenant() and k.event_id = p.event_id
        where p.place = 1 or p.place <= %(limit)s and p.bytes <= %(page_bytes)s
        order by p.place
        """,
        {
            "filter": json.dumps(filters),
            "scope_id": scope_id,
            "session_id": filters.get("session_id"),
            "text": text and sanitize_for_parser(fulltext_input.to_websearch_query(text)),
            "has_text": text is not None or "contains" in filters,
            "pg_snapshot": after and after.pg_snapshot,
            "at": after and after.at,
            "after": after and after.row_id,
            "seq": after and after.seq,
            "max_scopes": MAX_LISTED_SCOPES,
            "limit": limit,
            "page_bytes": page_bytes,
        },
    )


def read_feed(
    access: TenantDb, scope_id: UUID, after_seq: int, limit: int, page_bytes: int
) -> Sequence[Event]:
    """A scope's events after `after_seq`, in order: at most `limit`, or `page_bytes` of content."""
    return access.fetch(
        Event,
        """
        with page as (
            select e.event_id, sum(e.bytes) over (order by e.seq) as bytes,
                row_number() over (order by e.seq) as place
            from (select e.event_id, e.seq, page_bytes(e) as bytes from events e
                  where e.tenant_id = current_tenant() and e.scope_id = %(scope_id)s
                      and e.seq > %(after_seq)s and e.erased_at is null
                  order by e.seq limit %(limit)s) e)
        select e.*, k.source_event_key
        from page p join event_rows e on e.event_id = p.event_id
        left join event_keys k on k.tenant_id = current_tenant() and k.event_id = p.event_id
        where p.place = 1 or p.bytes <= %(page_bytes)s
        order by e.seq
        """,
        {"scope_id": scope_id, "after_seq": after_seq, "limit": limit, "page_bytes": page_bytes},
    )
