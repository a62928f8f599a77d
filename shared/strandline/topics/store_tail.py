"""SQL for the events under the leaves of a version, and for its fresh tail."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.topics.store_references_query import IN_VERSION


@dataclass(frozen=True)
class EventPositionInScope:
    """An event's position in its scope."""

    event_id: UUID
    scope_id: UUID
    seq: int


def list_fresh_tail(
    access: TenantDb, version: int, scopes: Sequence[tuple[UUID, int, int]], limit: int
) -> Sequence[EventPositionInScope]:
    """The fresh tail of scopes, newest first: the events past the cutoff and up to the mark that
    are under no leaf, without statements. A scope is given as its id, its cutoff (0 without a tree)
    and its mark."""
    # The `offset 0` fences stop a planner with the statistics of small tables from joining a whole
    # tree per event.
    return access.fetch(
        EventPositionInScope,
        ""  # noqa: S608
        """
        select e.event_id, e.scope_id, e.seq
        from unnest(%(scope_ids)s::uuid[], %(cutoffs)s::bigint[], %(marks)s::bigint[])
            s (scope_id, cutoff, mark)
        cross join lateral (
            select e.event_id, e.scope_id, e.seq, e.recorded_at from events e
            where e.tenant_id = current_tenant() and e.scope_id = s.scope_id
                and e.seq > s.cutoff and e.seq <= s.mark and e.erased_at is null
                and not is_statement(e.type)
                and not exists (
                    select from (
                        select * from topic_events l
                        where l.tenant_id = e.tenant_id and l.event_id = e.event_id offset 0) l
                    cross join lateral (
                        select * from topic_tree t
                        where t.tenant_id = l.tenant_id and t.scope_id = l.scope_id
                            and t.slot = l.chain_id and"""
        + IN_VERSION
        + """ offset 0) t
                    where t.is_leaf and l.since_version <= t.chain_version)
            order by e.seq desc limit %(limit)s) e
        order by e.recorded_at desc, e.scope_id, e.seq desc limit %(limit)s
        """,
        {
            "version": version,
            "scope_ids": [scope_id for scope_id, _, _ in scopes],
            "cutoffs": [cutoff for _, cutoff, _ in scopes],
            "marks": [mark for _, _, mark in scopes],
            "limit": limit,
        },
    )


def list_events_under_leaves(
    access: TenantDb, version: int, scope_id: UUID
) -> Sequence[EventPositionInScope]:
    """All events under the leaves of a scope's tree, in order. An event is listed once per leaf
    that holds it."""
    return access.fetch(
        EventPositionInScope,
        ""  # noqa: S608
        """
        select e.event_id, e.scope_id, e.seq
        from topic_tree t
        join topic_events e on e.tenant_id = t.tenant_id and e.chain_id = t.slot
            and e.since_version <= t.chain_version
        where t.tenant_id = current_tenant() and t.scope_id = %(scope_id)s and t.is_leaf and"""
        + IN_VERSION
        + """ order by e.seq, e.event_id
        """,
        {"version": version, "scope_id": scope_id},
    )


@dataclass(frozen=True)
class _Seq:
    seq: int


def find_uncovered_seq(
    access: TenantDb, scope_id: UUID, after: int, mark: int, leaf_seqs: Collection[int]
) -> int | None:
    """The seq of the first event of a scope past `after`, up to the mark, that should be under a
    leaf and is not in `leaf_seqs`; None if there is none. Statements and erased events belong under
    no leaf."""
    rows = access.fetch(
        _Seq,
        """
        select e.seq from events e
        where e.scope_id = %(scope_id)s and e.seq > %(after)s and e.seq <= %(mark)s
            and not is_statement(e.type) and e.erased_at is null
            and e.seq <> all (%(covered)s::bigint[])
        order by e.seq limit 1
        """,
        {"scope_id": scope_id, "after": after, "mark": mark, "covered": list(leaf_seqs)},
    )
    return rows[0].seq if rows else None


@dataclass(frozen=True)
class EventUnderLeaf(EventPositionInScope):
    """An event under a leaf."""

    slot: UUID


def list_first_events_of_leaves(
    access: TenantDb, leaves: Mapping[UUID, int], limit: int
) -> Sequence[EventUnderLeaf]:
    """List the first events of leaves, at most `limit` of each, in order. A leaf is given as a
    chain and its version."""
    return access.fetch(
        EventUnderLeaf,
        """
        select e.event_id, e.scope_id, e.seq, e.chain_id as slot
        from unnest(%(slots)s::uuid[], %(versions)s::int[]) leaf (slot, version)
        cross join lateral (
            select * from topic_events e
            where e.tenant_id = current_tenant() and e.chain_id = leaf.slot
                and e.since_version <= leaf.version
            order by e.seq limit %(limit)s) e
        order by e.chain_id, e.seq
        """,
        {"slots": list(leaves), "versions": list(leaves.values()), "limit": limit},
    )
