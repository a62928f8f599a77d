"""SQL that reads the graph for an export, scope by scope, in pages by key. One snapshot covers the
whole export."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.graph.nodes.node_types import NodeType
from strandline.graph.nodes.store_joined import ScopeEdge
from strandline.graph.transfer.store_known import StatedRevision

PAGE = 2000
"""Rows of a page."""


@dataclass(frozen=True)
class ExportScope:
    """A scope in view that has a graph."""

    scope_id: UUID
    participants: list[str]
    rows: int
    """The number of its nodes, edges, observations and revisions."""


def _iter_pages[Row](read_page: Callable[[Row | None], Sequence[Row]]) -> Iterator[Row]:
    """The rows of all pages. `read_page` returns the page after a row, or the first page for
    None."""
    last: Row | None = None
    while True:
        page = read_page(last)
        yield from page
        if len(page) < PAGE:
            return
        last = page[-1]


def _make_page_start_params(row: object, *columns: str) -> dict[str, object]:
    """The position of a row, from which the next page begins: its values of these columns, or nulls
    for None."""
    return {column: getattr(row, column, None) for column in columns}


def list_scopes_with_graph(access: TenantDb, scope_id: UUID | None) -> Sequence[ExportScope]:
    """The scopes in view that have a graph, or the one of this id."""
    return access.fetch(
        ExportScope,
        """
        with sizes as (
            select scope_id, participants, count(*) as rows from graph_nodes
            where %(scope_id)s::uuid is null or scope_id = %(scope_id)s group by 1, 2
            union all
            select scope_id, participants, count(*) from graph_edges
            where %(scope_id)s::uuid is null or scope_id = %(scope_id)s group by 1, 2
            union all
            select scope_id, participants, count(*) from graph_observations
            where %(scope_id)s::uuid is null or scope_id = %(scope_id)s group by 1, 2
            union all
            select scope_id, participants, count(*) from topic_field_revisions
            where %(scope_id)s::uuid is null or scope_id = %(scope_id)s group by 1, 2)
        select scope_id, participants, sum(rows)::bigint as rows from sizes
        group by scope_id, participants
        """,
        {"scope_id": scope_id},
    )


@dataclass(frozen=True)
class _ScopeId:
    scope_id: UUID


def is_scope_in_view(access: TenantDb, scope_id: UUID) -> bool:
    """Whether the caller sees this scope."""
    rows = access.fetch(
        _ScopeId,
        "select scope_id from scopes where tenant_id = current_tenant() and scope_id = %(id)s",
        {"id": scope_id},
    )
    return bool(rows)


@dataclass(frozen=True)
class ExportNode:
    """A stored node."""

    node_id: UUID
    type: NodeType
    name: str
    name_hash: bytes
    ordinal: int
    identity: bytes
    properties: dict[str, Any]
    confidence: float
    weight: int
    heat: float
    trust: str
    valid_from: datetime
    valid_to: datetime | None
    archived: bool
    salience: float
    space: str | None
    vector: str | None


def iter_nodes(access: TenantDb, scope_id: UUID, *, with_vectors: bool) -> Iterator[ExportNode]:
    """The nodes of a scope by type, name and ordinal."""
    return _iter_pages(lambda last: _list_nodes_after(access, scope_id, last, with_vectors))


def _list_nodes_after(
    access: TenantDb, scope_id: UUID, last: ExportNode | None, with_vectors: bool
) -> Sequence[ExportNode]:
    return access.fetch(
        ExportNode,
        """
        select node_id, type, name, name_hash, ordinal, identity, properties, confidence,
            weight, heat, trust, valid_from, valid_to, archived, salience,
            case when %(with_vectors)s then space end as space,
            case when %(with_vectors)s then embedding::text end as vector
        from graph_nodes
        where tenant_id = current_tenant() and scope_id = %(scope_id)s
            and (%(type)s::text is null
                or (type, name_hash, ordinal) > (%(type)s, %(name_hash)s::bytea, %(ordinal)s))
        order by type, name_hash, ordinal limit %(limit)s
        """,
        {
            **_make_page_start_params(last, "type", "name_hash", "ordinal"),
            "scope_id": scope_id,
            "with_vectors": with_vectors,
            "limit": PAGE,
        },
    )


def list_edges_from(access: TenantDb, from_ids: Sequence[UUID]) -> Sequence[ScopeEdge]:
    """The edges that lead from these nodes."""
    return access.fetch(
        ScopeEdge,
        """
        select edge_id, from_id, to_id, type, label, properties, confidence, weight, heat, trust,
            valid_from, valid_to
        from graph_edges where tenant_id = current_tenant() and from_id = any (%(ids)s)
        """,
        {"ids": list(from_ids)},
    )


@dataclass(frozen=True)
class ExportObservation:
    """A source's observation of a node or an edge, with the source."""

    target_id: UUID
    name: str | None
    """The name of the node, if a chain observed one."""
    source_id: UUID
    is_statement: bool
    """True if the source is a statement, False if it is a chain."""
    patch: dict[str, Any]
    confidence: float | None
    heat: float | None
    trust: str
    observed_at: datetime
    valid_from: datetime
    event_ids: list[UUID]
    speakers: list[str]
    role: str | None
    """The role of the statement's event. The next three fields also describe the statement."""
    speaker: str | None
    content: str | None
    said_at: datetime | None
    """For an imported statement, when it was originally stated."""


def iter_observations(access: TenantDb, scope_id: UUID) -> Iterator[ExportObservation]:
    """The observations of a scope, in the order in which they were made. Observations of one source
    with the same time and trust are adjacent."""
    return _iter_pages(lambda last: _list_observations_after(access, scope_id, last))


def _list_observations_after(
    access: TenantDb, scope_id: UUID, last: ExportObservation | None
) -> Sequence[ExportObservation]:
    place = _make_page_start_params(last, "observed_at", "source_id", "trust", "target_id")
    return access.fetch(
        ExportObservation,
        """
        with page as materialized (
            select * from graph_observations o
            where o.tenant_id = current_tenant() and o.scope_id = %(scope_id)s
                and (%(observed_at)s::timestamptz is null
                    or (o.observed_at, o.source_id, o.trust, o.target_id)
                        > (%(observed_at)s, %(source_id)s::uuid, %(trust)s::text,
                            %(target_id)s::uuid))
            order by o.observed_at, o.source_id, o.trust, o.target_id limit %(limit)s)
        select p.target_id, n.name, p.source_id, p.source_version is null as is_statement,
            p.patch, p.confidence, p.heat, p.trust, p.observed_at, p.valid_from,
            cited.event_ids, cited.speakers, e.role, e.speaker, e.content,
            e.occurred_at as said_at
        from page p
        cross join lateral (
            select coalesce(array_agg(c.event_id order by c.seq), '{}') as event_ids,
                coalesce(array_agg(distinct c.speaker)
                    filter (where c.speaker is not null), '{}') as speakers
            from graph_sources s
            cross join lateral (  -- by key, whatever the planner knows of new rows
                select c.event_id, c.seq, c.speaker from events c
                where c.tenant_id = s.tenant_id and c.event_id = s.event_id offset 0) c
            where s.tenant_id = p.tenant_id and s.target_id = p.target_id
                and s.source_id = p.source_id) cited
        left join lateral (
            select e.role, e.speaker, e.content, e.occurred_at from events e
            where e.tenant_id = p.tenant_id and e.event_id = p.source_id
                and p.source_version is null offset 0) e on true
        left join lateral (
            select n.name from graph_nodes n
            where n.tenant_id = p.tenant_id and n.node_id = p.target_id
                and p.source_version is not null offset 0) n on true
        order by p.observed_at, p.source_id, p.trust, p.target_id
        """,
        {**place, "scope_id": scope_id, "limit": PAGE},
    )


@dataclass(frozen=True)
class ExportRevision(StatedRevision):
    """A revision of a topic's field, with its statement."""

    recorded_at: datetime
    role: str
    speaker: str | None
    content: str


def iter_revisions(access: TenantDb, scope_id: UUID) -> Iterator[ExportRevision]:
    """The revisions of the fields of a scope's topics, in the order in which they were stated."""
    return _iter_pages(lambda last: _list_revisions_after(access, scope_id, last))


def _list_revisions_after(
    access: TenantDb, scope_id: UUID, last: ExportRevision | None
) -> Sequence[ExportRevision]:
    place = _make_page_start_params(last, "recorded_at", "source_id")
    return access.fetch(
        ExportRevision,
        """
        with page as materialized (
            select * from topic_field_revisions r
            where r.tenant_id = current_tenant() and r.scope_id = %(scope_id)s
                and (%(recorded_at)s::timestamptz is null
                    or (r.recorded_at, r.event_id) > (%(recorded_at)s, %(source_id)s::uuid))
            order by r.recorded_at, r.event_id limit %(limit)s)
        select p.node_id, p.field, p.value, p.valid_from, p.why_changed, p.impact_expected,
            p.ref_id, p.event_id as source_id, p.recorded_at, e.origin as trust, e.role, e.speaker,
            e.content, coalesce(e.occurred_at, p.recorded_at) as said_at
        from page p
        cross join lateral (
            select e.origin, e.role, e.speaker, e.content, e.occurred_at from events e
            where e.tenant_id = p.tenant_id and e.event_id = p.event_id offset 0) e
        order by p.recorded_at, p.event_id
        """,
        {**place, "scope_id": scope_id, "limit": PAGE},
    )


@dataclass(frozen=True)
class ExportField:
    """A field of a topic."""

    node_id: UUID
    field: str
    field_type: str
    salience: float


def list_fields(access: TenantDb, scope_id: UUID) -> Sequence[ExportField]:
    """The fields of a scope's topics."""
    return access.fetch(
        ExportField,
        """
        select f.node_id, f.field, f.field_type, f.salience from graph_nodes g
        join topic_fields f on f.tenant_id = g.tenant_id and f.node_id = g.node_id
        where g.tenant_id = current_tenant() and g.scope_id = %(scope_id)s and g.type = 'topic'
        """,
        {"scope_id": scope_id},
    )
