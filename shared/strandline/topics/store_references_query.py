"""SQL of the references query: the pinned snapshot and its trees, the leaves that hold events, and
the fresh tail.

The rows of `topic_tree` are valid for an interval of versions. Every statement here takes the
version that the query pinned; 0 is that of a tenant without a snapshot.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from strandline.db.database import SnapshotRead, TenantDb
from strandline.db.pipeline import RowQuery
from strandline.embeddings.vector_formats import pack_vector

IN_VERSION: LiteralString = """
    t.from_version <= %(version)s and (t.to_version is null or t.to_version > %(version)s)"""
"""The condition that a row `t` of topic_tree or snapshot_scopes is valid in a version, as a part of
statements."""


@dataclass(frozen=True)
class PublishedSnapshot:
    """A published snapshot."""

    version: int
    snapshot_id: UUID
    published_at: datetime
    configuration: dict[str, Any]


@dataclass(frozen=True)
class PinnedScope:
    """A visible scope with its tree in the pinned snapshot. The first row also gives the snapshot;
    its scope is None if no scope is visible."""

    version: int | None
    snapshot_id: UUID | None
    published_at: datetime | None
    configuration: dict[str, Any] | None
    scope_id: UUID | None
    participants: list[str] | None
    last_seq: int | None
    last_recorded_at: datetime | None
    cutoff: int | None
    """None: the snapshot has no tree of the scope."""
    root_slot: UUID | None
    root_id: UUID | None
    similarity: float | None


@dataclass(frozen=True)
class QueryVector:
    """The vector and the space that nodes are compared with."""

    vector: Sequence[float] | None
    """None: nodes are not compared."""
    space: str

    @property
    def sql_parameters(self) -> dict[str, object]:
        """The parameters for statements."""
        vector = None if self.vector is None else pack_vector(self.vector)
        return {"vector": vector, "space": self.space}


_PIN: LiteralString = """
    with view as materialized (
        select coalesce(%(scope_ids)s::uuid[], scopes_in_view()) as scope_ids),
    pin as materialized (
        select s.version, s.snapshot_id, s.published_at, s.configuration
        from active_snapshot a
        join snapshots s on s.tenant_id = a.tenant_id and s.version = a.version
        where a.tenant_id = current_tenant()),
    in_view as (
        select scope_id, participants, last_seq, last_recorded_at from scopes
        where tenant_id = current_tenant()
            and scope_id = any ((select scope_ids from view)::uuid[])
        union all
        select scope_id, participants, last_seq, last_recorded_at from scopes
        where tenant_id = current_tenant() and (select scope_ids from view) is null)
    select pin.version, pin.snapshot_id, pin.published_at, pin.configuration, s.scope_id,
        s.participants, s.last_seq, s.last_recorded_at, s.cutoff, s.root_slot, s.root_id,
        s.similarity
    from (select 1) one left join pin on true
    left join lateral (
        select v.*, tree.cutoff, tree.root_slot, tree.root_id, tree.similarity
        from in_view v
        left join lateral (
            select t.cutoff, t.root_slot, t.root_id,
                case when n.space = %(space)s
                    then 1 - (n.embedding <=> %(vector)s::halfvec) end as similarity
            from snapshot_scopes t
            join topic_nodes n on n.tenant_id = t.tenant_id and n.node_id = t.root_id
            where t.tenant_id = current_tenant() and t.scope_id = v.scope_id
                and t.from_version <= pin.version
                and (t.to_version is null or t.to_version > pin.version)) tree on true
        order by tree.similarity desc nulls last, v.last_recorded_at desc, v.scope_id
        limit %(limit)s) s on true
    order by s.similarity desc nulls last, s.last_recorded_at desc, s.scope_id
    """
"""The first row also gives the snapshot."""


def read_active_snapshot(
    access: TenantDb, query: QueryVector, scope_ids: Sequence[UUID] | None, limit: int
) -> tuple[PublishedSnapshot | None, SnapshotRead[PinnedScope]]:
    """The active snapshot, and those of these scopes (None: of all visible scopes) whose trees are
    closest to the query, or, without a query vector, the newest; at most `limit`."""
    read = access.read_snapshot(
        PinnedScope,
        _PIN,
        {"scope_ids": _optional_list(scope_ids), "limit": limit, **query.sql_parameters},
    )
    head = read.rows[0]
    if head.version is None:
        return None, read
    assert head.snapshot_id
    assert head.published_at
    assert head.configuration is not None
    return PublishedSnapshot(
        head.version, head.snapshot_id, head.published_at, head.configuration
    ), read


def _optional_list(scope_ids: Sequence[UUID] | None) -> list[UUID] | None:
    return None if scope_ids is None else list(scope_ids)


@dataclass(frozen=True)
class TreeSlotWithHits:
    """A slot of a scope's tree."""

    scope_id: UUID
    slot: UUID
    parent_slot: UUID | None
    node_id: UUID
    is_leaf: bool
    last_event_at: datetime
    similarity: float | None
    """The cosine similarity with the query; None unless both have a vector in the same space."""
    event_ids: list[UUID]
    """For a leaf, the requested events that it holds; for other slots, empty."""


def find_leaves_and_ancestors_of_events(
    access: TenantDb, version: int, query: QueryVector, event_ids: Sequence[UUID]
) -> Sequence[TreeSlotWithHits]:
    """The leaves that hold these events, and all of their ancestors. Visible events without a leaf
    are in the fresh tail."""
    return access.fetch(
        TreeSlotWithHits,
        "with recursive"  # noqa: S608
        """
        hits as materialized (
            select leaf.scope_id, leaf.slot, array_agg(h.event_id order by h.place) as event_ids
            from unnest(%(event_ids)s::uuid[]) with ordinality h (event_id, place)
            cross join lateral (
                select t.scope_id, t.slot from topic_events e
                join topic_tree t on t.tenant_id = e.tenant_id and t.scope_id = e.scope_id
                    and t.slot = e.chain_id
                where e.tenant_id = current_tenant() and e.event_id = h.event_id and t.is_leaf
                    and e.since_version <= t.chain_version and"""
        + IN_VERSION
        + """ offset 0) leaf
            group by leaf.scope_id, leaf.slot),
        path as (
            select scope_id, slot from hits
            union
            select t.scope_id, t.parent_slot
            from path p join topic_tree t on t.tenant_id = current_tenant()
                and t.scope_id = p.scope_id and t.slot = p.slot and"""
        + IN_VERSION
        + """ where t.parent_slot is not null)
        select t.scope_id, t.slot, t.parent_slot, t.node_id, t.is_leaf, n.last_event_at,
            case when n.space = %(space)s
                then 1 - (n.embedding <=> %(vector)s::halfvec) end as similarity,
            coalesce(h.event_ids, '{}') as event_ids
        from path p
        join topic_tree t on t.tenant_id = current_tenant() and t.scope_id = p.scope_id
            and t.slot = p.slot and"""
        + IN_VERSION
        + """
        join topic_nodes n on n.tenant_id = t.tenant_id and n.node_id = t.node_id
        left join hits h on h.scope_id = t.scope_id and h.slot = t.slot
        order by t.scope_id, t.slot
        """,
        {"version": version, "event_ids": list(event_ids), **query.sql_parameters},
    )


def list_child_slots(
    access: TenantDb,
    version: int,
    query: QueryVector,
    parents: Sequence[tuple[UUID, UUID]],
    limit: int,
) -> Sequence[TreeSlotWithHits]:
    """The children of these slots (each given as its scope and slot), closest to the query first,
    or, without a query vector, newest first."""
    return access.fetch(
        TreeSlotWithHits,
        ""  # noqa: S608
        """
        select t.scope_id, t.slot, t.parent_slot, t.node_id, t.is_leaf, n.last_event_at,
            case when n.space = %(space)s
                then 1 - (n.embedding <=> %(vector)s::halfvec) end as similarity,
            '{}'::uuid[] as event_ids
        from unnest(%(scope_ids)s::uuid[], %(slots)s::uuid[]) p (scope_id, slot)
        cross join lateral (
            select * from topic_tree t
            where t.tenant_id = current_tenant() and t.scope_id = p.scope_id
                and t.parent_slot = p.slot and"""
        + IN_VERSION
        + """ offset 0) t
        join topic_nodes n on n.tenant_id = t.tenant_id and n.node_id = t.node_id
        order by similarity desc nulls last, n.last_event_at desc, t.slot limit %(limit)s
        """,
        {
            "version": version,
            "scope_ids": [scope_id for scope_id, _ in parents],
            "slots": [slot for _, slot in parents],
            "limit": limit,
            **query.sql_parameters,
        },
    )


@dataclass(frozen=True)
class NodeTextAndCounts:
    """The text and figures of a node."""

    node_id: UUID
    scope_id: UUID
    participants: list[str]
    chain_id: UUID | None
    chain_version: int | None
    topic: str | None
    summary: str | None
    started_at: datetime
    last_event_at: datetime
    event_count: int
    leaf_count: int
    trust: str
    models: dict[str, Any]
    is_erased: bool = False
    """Whether its text was deleted because an event below it was erased."""


def read_visible_nodes(
    access: TenantDb, node_ids: Collection[UUID]
) -> Mapping[UUID, NodeTextAndCounts]:
    """Read those of these nodes that are visible, by id."""
    if not node_ids:
        return {}
    query = make_visible_nodes_query(node_ids)
    rows = access.fetch(query.row_type, query.statement, query.params)
    return {row.node_id: row for row in rows}


def make_visible_nodes_query(node_ids: Collection[UUID]) -> RowQuery[NodeTextAndCounts]:
    """The query for those of these nodes that are visible."""
    return RowQuery(
        NodeTextAndCounts,
        """
        select node_id, scope_id, participants, chain_id, chain_version, topic, summary, started_at,
            last_event_at, event_count, leaf_count, trust, models,
            erased_at is not null as is_erased
        from topic_nodes where tenant_id = current_tenant() and node_id = any (%(node_ids)s)
        """,
        {"node_ids": list(node_ids)},
    )


@dataclass(frozen=True)
class _FirstEvent:
    slot: UUID
    event_id: UUID


def read_first_event_of_slots(
    access: TenantDb, version: int, slots: Sequence[tuple[UUID, UUID]]
) -> Mapping[UUID, UUID]:
    """For each of these slots (given as its scope and slot), one of its events: the first event of
    the first leaf below it."""
    if not slots:
        return {}
    rows = access.fetch(
        _FirstEvent,
        "with recursive"  # noqa: S608
        """
        below as (
            select t.slot as top, t.scope_id, t.slot, t.is_leaf, t.chain_version
            from unnest(%(scope_ids)s::uuid[], %(slots)s::uuid[]) s (scope_id, slot)
            join topic_tree t on t.tenant_id = current_tenant() and t.scope_id = s.scope_id
                and t.slot = s.slot and"""
        + IN_VERSION
        + """
            union all
            select b.top, b.scope_id, child.slot, child.is_leaf, child.chain_version
            from below b cross join lateral (
                select t.slot, t.is_leaf, t.chain_version from topic_tree t
                where t.tenant_id = current_tenant() and t.scope_id = b.scope_id
                    and t.parent_slot = b.slot and"""
        + IN_VERSION
        + """ order by t.slot limit 1) child
            where not b.is_leaf)
        select b.top as slot, e.event_id
        from below b cross join lateral (
            select e.event_id from topic_events e
            where e.tenant_id = current_tenant() and e.chain_id = b.slot
                and e.since_version <= b.chain_version
            order by e.seq limit 1) e
        where b.is_leaf
        """,
        {
            "version": version,
            "scope_ids": [scope_id for scope_id, _ in slots],
            "slots": [slot for _, slot in slots],
        },
    )
    return {row.slot: row.event_id for row in rows}
