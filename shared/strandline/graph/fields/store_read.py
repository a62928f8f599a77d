"""SQL that reads the fields of topics and their revisions, joined over the scopes in view."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.db.database import SnapshotRead, TenantDb

MAX_SERVED = 500
"""How many of a field's revisions are served, the newest first."""


@dataclass(frozen=True)
class TopicAcrossScopes:
    """A topic, joined over the scopes in view."""

    name: str
    archived: bool
    salience: float
    """The mean salience of its fields. A field's salience is the maximum over the members."""
    member_ids: list[UUID]


def find_topic_across_scopes(
    access: TenantDb, topic_id: UUID, as_of: datetime | None
) -> TopicAcrossScopes | None:
    """The topic with this id, joined with the topics of its name in view. None if it is not in
    view, is not a topic or did not exist yet."""
    rows = access.fetch(
        TopicAcrossScopes,
        """
        with members as materialized (
            select node_id from topic_members(%(topic_id)s, %(as_of)s::timestamptz))
        select (array_agg(g.name) filter (where g.node_id = %(topic_id)s))[1] as name,
            bool_and(g.archived) as archived, array_agg(g.node_id order by g.node_id) as member_ids,
            coalesce((
                select avg(f.salience) from (
                    select max(f.salience) as salience from members m
                    join topic_fields f on f.tenant_id = current_tenant()
                        and f.node_id = m.node_id
                    group by f.field) f), 0) as salience
        from members m
        join graph_nodes g on g.tenant_id = current_tenant() and g.node_id = m.node_id
        having bool_or(g.node_id = %(topic_id)s)
        """,
        {"topic_id": topic_id, "as_of": as_of},
    )
    return rows[0] if rows else None


@dataclass(frozen=True)
class FieldRow:
    """A field of a topic, with its current revision, if it has one."""

    field: str
    field_type: str
    salience: float
    node_id: UUID | None
    revision: int | None
    value: Any
    valid_from: datetime | None
    why_changed: str | None
    impact_expected: str | None
    ref_id: UUID | None
    event_id: UUID | None
    recorded_at: datetime | None
    available: int
    """How many fields there are on this page and after it, counted up to one more than fits on the
    page."""


@dataclass(frozen=True)
class FieldPageQuery:
    """Which fields of a topic to read."""

    topic_id: UUID
    at: datetime
    """The time at which revisions must hold to be current."""
    as_of: datetime | None = None
    field: str | None = None
    """Only this field."""
    after: str | None = None
    """Only fields after this one."""
    limit: int = 1
    with_values: bool = True


def list_fields(access: TenantDb, page: FieldPageQuery, page_bytes: int) -> Sequence[FieldRow]:
    """Fields of a topic in the order of their names' code points. Returns one more than `limit` if
    there are more, and fewer if their values exceed `page_bytes`; the last one may exceed it."""
    return access.fetch(
        FieldRow,
        """
        with members as materialized (
            select node_id from topic_members(%(topic_id)s, %(as_of)s::timestamptz)),
        page as materialized (
            select f.field,
                (array_agg(f.field_type order by f.node_id <> %(topic_id)s, f.node_id))[1]
                    as field_type,
                max(f.salience) as salience
            from members m
            join topic_fields f on f.tenant_id = current_tenant() and f.node_id = m.node_id
            where (%(field)s::text is null or f.field = %(field)s)
                and (%(after)s::text is null or f.field collate "C" > %(after)s)
                and (%(as_of)s::timestamptz is null or exists (
                    select from topic_field_revisions r
                    where r.tenant_id = current_tenant() and r.node_id = f.node_id
                        and r.field = f.field and r.recorded_at <= %(as_of)s))
            group by f.field
            order by f.field collate "C" limit %(limit)s + 1)
        select sized.* from (
            select p.field, p.field_type, p.salience, c.node_id, c.revision, c.value, c.valid_from,
                c.why_changed, c.impact_expected, c.ref_id, c.event_id, c.recorded_at,
                count(*) over () as available,
                sum(octet_length(c.value::text)) over (order by p.field collate "C"
                    rows between unbounded preceding and 1 preceding) as bytes_before
            from page p
            left join lateral (
                select r.* from members m
                cross join lateral (
                    select r.* from topic_field_revisions r
                    where r.tenant_id = current_tenant() and r.node_id = m.node_id
                        and r.field = p.field
                        and r.valid_from <= greatest(%(at)s::timestamptz, r.recorded_at)
                        and (%(as_of)s::timestamptz is null or r.recorded_at <= %(as_of)s)
                    order by r.revision desc limit 1) r
                order by r.recorded_at desc, r.node_id desc limit 1) c on %(with_values)s) sized
        where coalesce(sized.bytes_before, 0) <= %(page_bytes)s
        order by sized.field collate "C"
        """,
        {**vars(page), "page_bytes": page_bytes},
    )


@dataclass(frozen=True)
class RevisionRow:
    """A revision of a field."""

    node_id: UUID
    revision: int
    value: Any
    valid_from: datetime
    why_changed: str
    impact_expected: str
    ref_id: UUID | None
    event_id: UUID
    recorded_at: datetime


@dataclass(frozen=True)
class RevisionWithCounts(RevisionRow):
    """A revision in a list."""

    available: int
    """How many revisions there are on this page and after it, counted up to one more than fits on
    the page."""
    total: int
    """How many revisions of the field are in view, up to `as_of`."""


@dataclass(frozen=True)
class RevisionPageQuery:
    """Which revisions of a field to read: those before a position in the list."""

    topic_id: UUID
    field: str
    limit: int
    as_of: datetime | None = None
    at: datetime | None = None
    """None: start with the newest."""
    node_id: UUID | None = None
    revision: int | None = None


def list_revisions(
    access: TenantDb, page: RevisionPageQuery, page_bytes: int
) -> SnapshotRead[RevisionWithCounts]:
    """A page of the newest MAX_SERVED revisions of a field, newest first. Returns one more than
    `limit` if there are more, and fewer if their values exceed `page_bytes`; the last one may
    exceed it."""
    return access.read_snapshot(
        RevisionWithCounts,
        """
        with members as materialized (
            select node_id from topic_members(%(topic_id)s, %(as_of)s::timestamptz)),
        newest as materialized (
            select r.* from members m
            cross join lateral (
                select r.* from topic_field_revisions r
                where r.tenant_id = current_tenant() and r.node_id = m.node_id
                    and r.field = %(field)s
                    and (%(as_of)s::timestamptz is null or r.recorded_at <= %(as_of)s)
                order by r.revision desc limit %(served)s) r
            order by r.recorded_at desc, r.node_id desc, r.revision desc limit %(served)s),
        listed as materialized (
            select * from newest n
            where %(at)s::timestamptz is null
                or (n.recorded_at, n.node_id, n.revision)
                    < (%(at)s, %(node_id)s::uuid, %(revision)s)
            order by n.recorded_at desc, n.node_id desc, n.revision desc limit %(limit)s + 1)
        select sized.* from (
            select n.node_id, n.revision, n.value, n.valid_from, n.why_changed, n.impact_expected,
                n.ref_id, n.event_id, n.recorded_at, count(*) over () as available, (
                    select count(*) from members m
                    join topic_field_revisions r on r.tenant_id = current_tenant()
                        and r.node_id = m.node_id and r.field = %(field)s
                    where %(as_of)s::timestamptz is null or r.recorded_at <= %(as_of)s) as total,
                sum(octet_length(n.value::text)) over (
                    order by n.recorded_at desc, n.node_id desc, n.revision desc
                    rows between unbounded preceding and 1 preceding) as bytes_before
            from listed n) sized
        where coalesce(sized.bytes_before, 0) <= %(page_bytes)s
        order by sized.recorded_at desc, sized.node_id desc, sized.revision desc
        """,
        {**vars(page), "page_bytes": page_bytes, "served": MAX_SERVED},
    )
