"""SQL that reads a snapshot's trees level by level: roots, topics below one, given contents."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.topics.store_references_query import IN_VERSION


@dataclass(frozen=True)
class TopicRow:
    """A topic: a place in a tree, with its content."""

    kind: str
    scope_id: UUID
    participants: list[str]
    slot: UUID | None
    parent_slot: UUID | None
    node_id: UUID
    chain_version: int | None
    topic: str | None
    summary: str | None
    started_at: datetime
    last_event_at: datetime
    event_count: int
    leaf_count: int
    trust: str
    models: dict[str, Any]
    cutoff: int | None
    erased_at: datetime | None


_CONTENT: LiteralString = """n.node_id, n.chain_version, n.topic, n.summary, n.started_at,
            n.last_event_at, n.event_count, n.leaf_count, n.trust, n.models, n.erased_at"""


def list_root_topics(
    access: TenantDb,
    version: int,
    scope_id: UUID | None,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[TopicRow]:
    """The roots of the visible trees of a version, those with the newest events first."""
    last_at, last_id = after or (None, None)
    return access.fetch(
        TopicRow,
        "with view as materialized (select scopes_in_view() as scope_ids) select"  # noqa: S608
        " n.kind, t.scope_id, t.participants, t.root_slot as slot, null::uuid as parent_slot,"
        " t.cutoff, "
        + _CONTENT
        + """
        from snapshot_scopes t
        join topic_nodes n on n.tenant_id = t.tenant_id and n.node_id = t.root_id
        where t.tenant_id = current_tenant()
            and ((select scope_ids from view) is null
                or t.scope_id = any ((select scope_ids from view)::uuid[]))
            and (%(scope_id)s::uuid is null or t.scope_id = %(scope_id)s)
            and (%(last_at)s::timestamptz is null
                or (n.last_event_at, t.scope_id) < (%(last_at)s::timestamptz, %(last_id)s::uuid))
            and"""
        + IN_VERSION
        + " order by n.last_event_at desc, t.scope_id desc limit %(limit)s",
        {
            "version": version,
            "scope_id": scope_id,
            "last_at": last_at,
            "last_id": last_id,
            "limit": limit,
        },
    )


def list_topics_below(
    access: TenantDb,
    version: int,
    place: tuple[UUID, UUID],
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[TopicRow]:
    """The topics directly below a place, by scope and slot, in a version's tree, in the order of
    time."""
    last_at, last_slot = after or (None, None)
    return access.fetch(
        TopicRow,
        "select n.kind, t.scope_id, t.participants, t.slot, t.parent_slot,"  # noqa: S608
        " null::bigint as cutoff, "
        + _CONTENT
        + """
        from topic_tree t
        join topic_nodes n on n.tenant_id = t.tenant_id and n.node_id = t.node_id
        where t.tenant_id = current_tenant() and t.scope_id = %(scope_id)s
            and t.parent_slot = %(slot)s
            and (%(last_at)s::timestamptz is null
                or (n.started_at, t.slot) > (%(last_at)s::timestamptz, %(last_slot)s::uuid))
            and"""
        + IN_VERSION
        + " order by n.started_at, t.slot limit %(limit)s",
        {
            "version": version,
            "scope_id": place[0],
            "slot": place[1],
            "last_at": last_at,
            "last_slot": last_slot,
            "limit": limit,
        },
    )


def list_topic_contents(access: TenantDb, node_ids: Sequence[UUID]) -> Sequence[TopicRow]:
    """Those of these contents that are visible, whichever snapshots show them, in this order."""
    return access.fetch(
        TopicRow,
        "select n.kind, n.scope_id, n.participants, n.chain_id as slot,"  # noqa: S608
        " null::uuid as parent_slot, null::bigint as cutoff, "
        + _CONTENT
        + """
        from unnest(%(node_ids)s::uuid[]) with ordinality a (node_id, place)
        join topic_nodes n on n.tenant_id = current_tenant() and n.node_id = a.node_id
        order by a.place
        """,
        {"node_ids": list(node_ids)},
    )
