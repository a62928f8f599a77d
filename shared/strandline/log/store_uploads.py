"""SQL for uploads. An upload is visible to its writer alone until an event cites it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.db.connection import Connection, fetch_tenant_ids
from strandline.db.database import TenantDb


@dataclass(frozen=True)
class CitedCidStatus:
    """What the database knows of a cited CID, for this writer: that it may be cited, an upload, or
    nothing.

    Where a CID has several uploads, each has a row, newest first: at the first citation of a CID
    that is not citable. At later citations of the CID, the newest upload stands for all.
    """

    place: int
    cid: str
    citable: bool
    stored_mime_type: str | None
    """The media type of the earliest event that holds this payload and names a type."""
    upload_id: UUID | None
    size: int | None
    mime_type: str | None
    file_name: str | None


def look_up_cited_payloads(
    access: TenantDb, payloads: Sequence[Mapping[str, object]]
) -> Sequence[CitedCidStatus]:
    """Look up the payloads that requests cite. `payloads` holds {place, cid, participants}; `place`
    is the item's number in the request. A CID is citable if append accepts it. Uploads of other
    writers are invisible."""
    return access.fetch(
        CitedCidStatus,
        """
        with payloads as (
            select w.place, w.cid, permission.is_citable is not null as citable,
                earliest.mime_type as stored_mime_type
            from jsonb_to_recordset(%(payloads)s::jsonb)
                as w (place int, cid text, participants text[])
            left join lateral (  -- forces index lookups, whatever the planner's estimate
                (select 1 as is_citable from blobs b
                 where b.tenant_id = current_tenant() and b.cid = w.cid
                    and b.writer = current_writer())
                union all
                (select 1 from events e
                 where e.tenant_id = current_tenant() and e.blob_cid = w.cid
                    and (e.participants @> w.participants or current_writer() <> '*')
                 limit 1)
                limit 1) permission on true
            left join lateral (
                select e.mime_type from events e
                where e.tenant_id = current_tenant() and e.blob_cid = w.cid
                    and e.mime_type is not null
                order by e.recorded_at, e.event_id limit 1) earliest on true),
        ranked as (
            select *, row_number() over (partition by cid order by citable, place) = 1 as is_first
            from payloads)
        select w.place, w.cid, w.citable, w.stored_mime_type, u.upload_id, u.size, u.mime_type,
            u.file_name
        from ranked w
        left join lateral (
            select * from (  -- forces the index of CIDs: in the order of ids, all might be read
                select * from uploads u
                where u.tenant_id = current_tenant() and u.writer = current_writer()
                    and u.cid = w.cid and u.remove_at > now()
                offset 0) u
            order by u.upload_id desc
            limit case when w.citable or not w.is_first then 1 end) u on true
        order by w.place, u.upload_id desc
        """,
        {"payloads": json.dumps(payloads)},
    )


@dataclass(frozen=True)
class PendingUpload:
    """An upload that was announced and has not expired."""

    upload_id: UUID
    remove_at: datetime


@dataclass(frozen=True)
class StoredPayloadOrPendingUpload:
    """What the database knows of a payload that a writer wants to upload."""

    stored_size: int | None
    """The payload's size in bytes, if this writer may cite it, no matter who the participants
    are."""
    upload_id: UUID | None
    remove_at: datetime | None

    @property
    def pending_upload(self) -> PendingUpload | None:
        """The same upload, if it was announced before."""
        if self.upload_id is None or self.remove_at is None:
            return None
        return PendingUpload(self.upload_id, self.remove_at)


def find_stored_payload_or_pending_upload(
    access: TenantDb, cid: str, size: int, mime_type: str | None, name: str | None, seconds: int
) -> StoredPayloadOrPendingUpload:
    """Find out whether the payload is already stored, or the same upload is pending for at least
    `seconds` more."""
    (status,) = access.fetch(
        StoredPayloadOrPendingUpload,
        """
        select coalesce(
                (select b.size from blobs b
                 where b.tenant_id = current_tenant() and b.cid = %(cid)s
                    and b.writer = current_writer()),
                (select e.blob_size from events e
                 where e.tenant_id = current_tenant() and e.blob_cid = %(cid)s
                    and current_writer() <> '*' limit 1)) as stored_size,
            u.upload_id, u.remove_at
        from (values (true)) single_row
        left join lateral (
            select * from uploads u
            where u.tenant_id = current_tenant() and u.writer = current_writer()
                and u.cid = %(cid)s and u.size = %(size)s
                and u.mime_type is not distinct from %(mime_type)s
                and u.file_name is not distinct from %(name)s
                and u.remove_at > now() + make_interval(secs => %(seconds)s)
            order by u.upload_id desc limit 1) u on true
        """,
        {"cid": cid, "size": size, "mime_type": mime_type, "name": name, "seconds": seconds},
    )
    return status


def create_upload(
    access: TenantDb, cid: str, size: int, mime_type: str | None, name: str | None, seconds: int
) -> PendingUpload:
    """Record an upload of this writer, to be removed after `seconds`."""
    (upload,) = access.fetch(
        PendingUpload,
        """
        insert into uploads
            (tenant_id, upload_id, writer, cid, size, mime_type, file_name, remove_at)
        values (current_tenant(), %(upload_id)s, current_writer(), %(cid)s, %(size)s,
            %(mime_type)s, %(name)s, now() + make_interval(secs => %(seconds)s))
        returning upload_id, remove_at
        """,
        {
            "upload_id": uuid7(),
            "cid": cid,
            "size": size,
            "mime_type": mime_type,
            "name": name,
            "seconds": seconds,
        },
    )
    return upload


def list_tenants_with_expired_uploads(connection: Connection) -> list[str]:
    """List the tenants that have expired uploads."""
    return fetch_tenant_ids(connection, "select * from tenants_with_expired_uploads(now())", ())


@dataclass(frozen=True)
class _WriterRow:
    writer: str


def list_writers_with_expired_uploads(access: TenantDb, limit: int) -> list[str]:
    """List up to `limit` writers with expired uploads in this tenant. Only background work may call
    it."""
    rows = access.fetch(
        _WriterRow, "select * from writers_of_expired_uploads(now(), %(limit)s)", {"limit": limit}
    )
    return [row.writer for row in rows]


@dataclass(frozen=True)
class _UploadIdRow:
    upload_id: UUID


def list_expired_uploads(access: TenantDb, limit: int) -> list[UUID]:
    """List up to `limit` expired uploads of this writer, the longest expired first."""
    rows = access.fetch(
        _UploadIdRow,
        "select upload_id from uploads where writer = current_writer() and remove_at <= now()"
        " order by remove_at limit %(limit)s",
        {"limit": limit},
    )
    return [row.upload_id for row in rows]


def delete_expired_upload_rows(access: TenantDb, upload_ids: Sequence[UUID]) -> None:
    """Delete the rows of these expired uploads of this writer. Their objects must already be
    removed."""
    with access.transaction():
        access.execute(
            "delete from uploads where upload_id = any (%(upload_ids)s) and remove_at <= now()",
            {"upload_ids": list(upload_ids)},
        )


@dataclass(frozen=True)
class PayloadMediaTypeAndName:
    """The media type and file name under which an event holds its payload."""

    event_id: UUID
    mime_type: str | None
    file_name: str | None


def read_payload_media_types_and_names(
    access: TenantDb, event_ids: Sequence[UUID]
) -> Sequence[PayloadMediaTypeAndName]:
    """The media types and file names of the payloads of those events that are visible."""
    return access.fetch(
        PayloadMediaTypeAndName,
        "select event_id, mime_type, file_name from events"
        " where tenant_id = current_tenant() and event_id = any (%(event_ids)s)",
        {"event_ids": list(event_ids)},
    )
