"""SQL that checks the grown trees of a build and publishes them as the tenant's next snapshot."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.db.database import TenantDb

_VALIDATE = """
    with recursive grown as materialized (
        select tenant_id, scope_id, participants, tree, (tree -> 'scope' ->> 'cutoff')::bigint
            as cutoff
        from topic_build_scopes where job_id = %(job_id)s and state = 'grown'),
    new_rows as materialized (
        select g.scope_id, r.* from grown g, jsonb_to_recordset(g.tree -> 'rows') r
            (slot uuid, parent_slot uuid, node_id uuid, is_leaf boolean, chain_version int)),
    ended as materialized (
        select scope_id, slot from new_rows
        union all
        select g.scope_id, e.slot::uuid from grown g,
            jsonb_array_elements_text(g.tree -> 'gone') e (slot)),
    kept as (
        select t.scope_id, t.slot, t.parent_slot, t.node_id, t.is_leaf, t.chain_version
        from topic_tree t
        where t.scope_id in (select scope_id from grown) and t.to_version is null
            and (t.scope_id, t.slot) not in (select scope_id, slot from ended)),
    slots as materialized (
        select * from new_rows
        union all
        select * from kept),
    reached as (
        select scope_id, slot from slots where parent_slot is null
        union
        select s.scope_id, s.slot from reached r join slots s
            on s.scope_id = r.scope_id and s.parent_slot = r.slot),
    child_counts as (
        select scope_id, parent_slot, count(*) as n from slots group by scope_id, parent_slot),
    shape as (
        select s.scope_id, count(*) as slots, count(distinct s.slot) as different,
            count(*) filter (where s.parent_slot is null) as roots,
            count(*) filter (where s.is_leaf) as leaves,
            bool_and(s.is_leaf or c.n between 1 and 16) as is_filled,
            bool_and(not s.is_leaf or c.n is null) as is_ended
        from slots s
        left join child_counts c on c.scope_id = s.scope_id and c.parent_slot = s.slot
        group by s.scope_id),
    contents as (
        select s.scope_id, bool_and(n.node_id is not null and n.scope_id = s.scope_id
                and (n.kind = 'leaf') = s.is_leaf
                and (not s.is_leaf or n.chain_id = s.slot
                    and n.chain_version = s.chain_version)) as is_own,
            sum(n.event_count) filter (where s.is_leaf) as events
        from slots s left join topic_nodes n on n.node_id = s.node_id
        group by s.scope_id),
    covered as (
        select s.scope_id, count(*) as links, count(distinct te.event_id) as events,
            count(distinct e.seq) filter (where e.seq <= g.cutoff) as up_to_cutoff,
            bool_and(te.scope_id = s.scope_id and e.scope_id is not distinct from s.scope_id
                and e.seq is not distinct from te.seq) as is_own
        from slots s
        join grown g on g.scope_id = s.scope_id
        join topic_events te on te.chain_id = s.slot and te.since_version <= s.chain_version
        left join events e on e.event_id = te.event_id
        where s.is_leaf
        group by s.scope_id),
    verdicts as (
        select g.scope_id, case
            when shape.roots <> 1 or root.node_id is null then 'not_one_root'
            when shape.different <> shape.slots
                or (select count(*) from reached r where r.scope_id = g.scope_id)
                    <> shape.slots then 'slot_not_reached'
            when (shape.is_filled and shape.is_ended) is not true then 'wrong_child_count'
            when contents.is_own is not true then 'wrong_content'
            when covered.is_own is not true then 'mixed_scopes'
            when covered.links <> covered.events then 'event_under_two_leaves'
            when covered.up_to_cutoff + stated.events <> g.cutoff then 'event_under_no_leaf'
            when (g.tree -> 'scope' ->> 'leaf_count')::bigint <> shape.leaves
                or (g.tree -> 'scope' ->> 'node_count')::bigint <> shape.slots
                or (g.tree -> 'scope' ->> 'event_count')::bigint <> covered.events
                or contents.events <> covered.events
                or (root.leaf_count, root.event_count) <> (shape.leaves, covered.events)
                then 'wrong_counts'
            end as reason
        from grown g
        left join shape using (scope_id)
        left join contents using (scope_id)
        left join covered using (scope_id)
        cross join lateral (  -- in no chain, so under no leaf
            select count(*) as events from events e
            where e.scope_id = g.scope_id and e.seq <= g.cutoff
                and (e.type = 'statement' or e.erased_at is not null)) stated
        left join lateral (
            select n.* from slots s join topic_nodes n on n.node_id = s.node_id
            where s.scope_id = g.scope_id and s.parent_slot is null
                and s.slot = (g.tree -> 'scope' ->> 'root_slot')::uuid
                and s.node_id = (g.tree -> 'scope' ->> 'root_id')::uuid) root on true)
    update topic_build_scopes b set state = 'failed', reason = v.reason, tree = null
    from verdicts v
    where b.job_id = %(job_id)s and b.scope_id = v.scope_id and v.reason is not null
    returning b.scope_id, b.reason
"""
"""`slots` are the trees as they would be published: the rows that the build changed, and the
unchanged rows of the published trees."""


@dataclass(frozen=True)
class TreeDefect:
    """A grown tree that must not be published."""

    scope_id: UUID
    reason: str


def fail_invalid_trees(access: TenantDb, job_id: UUID) -> Sequence[TreeDefect]:
    """Check the grown trees of a build: each has one root, no cycle, no broken link and at most 16
    children per node; its contents belong to its own scope; every event up to the cutoff, except
    statements and erased events, is under exactly one leaf; counts agree. Marks the trees that do
    not pass as failed, and returns them. In a transaction."""
    return access.fetch(
        TreeDefect,
        _VALIDATE,
        {"job_id": job_id},
    )


def activate_next_version(access: TenantDb, base_version: int) -> int | None:
    """Make the version after `base_version` active, if `base_version` still is. Returns the new
    version, or None if another was published meanwhile. In a transaction, which blocks other
    publishers until it ends."""
    params: dict[str, object] = {"base": base_version, "next": base_version + 1}
    if base_version == 0:
        changed_count = access.execute(
            "insert into active_snapshot (tenant_id, version) values (current_tenant(), %(next)s)"
            " on conflict do nothing",
            params,
        )
    else:
        changed_count = access.execute(
            "update active_snapshot set version = %(next)s where version = %(base)s", params
        )
    return base_version + 1 if changed_count else None


def write_grown_trees(access: TenantDb, job_id: UUID, version: int) -> None:
    """Write the grown trees of a build as those of this version: end the rows that they replace,
    and insert the new ones. In a transaction, after `activate_next_version`."""
    params: dict[str, object] = {"job_id": job_id, "version": version}
    for statement in _WRITE_STATEMENTS:
        access.execute(statement, params)


_WRITE_STATEMENTS: tuple[LiteralString, ...] = (
    """
    update topic_tree t set to_version = %(version)s
    from (
        select b.scope_id, r.slot from topic_build_scopes b,
            jsonb_to_recordset(b.tree -> 'rows') r (slot uuid)
        where b.job_id = %(job_id)s and b.state = 'grown'
        union all
        select b.scope_id, e.slot::uuid from topic_build_scopes b,
            jsonb_array_elements_text(b.tree -> 'gone') e (slot)
        where b.job_id = %(job_id)s and b.state = 'grown') ended
    where t.scope_id = ended.scope_id and t.slot = ended.slot and t.to_version is null
    """,
    """
    insert into topic_tree (tenant_id, scope_id, participants, slot, parent_slot, node_id, is_leaf,
        chain_version, from_version)
    select b.tenant_id, b.scope_id, b.participants, r.slot, r.parent_slot, r.node_id, r.is_leaf,
        r.chain_version, %(version)s
    from topic_build_scopes b, jsonb_to_recordset(b.tree -> 'rows') r
        (slot uuid, parent_slot uuid, node_id uuid, is_leaf boolean, chain_version int)
    where b.job_id = %(job_id)s and b.state = 'grown'
    """,
    """
    update snapshot_scopes t set to_version = %(version)s from topic_build_scopes b
    where b.job_id = %(job_id)s and b.state = 'grown' and t.scope_id = b.scope_id
        and t.to_version is null
    """,
    """
    insert into snapshot_scopes (tenant_id, scope_id, participants, from_version, root_slot,
        root_id, cutoff, position, slots, space, leaf_count, node_count, event_count)
    select b.tenant_id, b.scope_id, b.participants, %(version)s, r.root_slot, r.root_id, r.cutoff,
        (b.tree ->> 'position')::bigint, r.slots, r.space, r.leaf_count, r.node_count,
        r.event_count
    from topic_build_scopes b, jsonb_to_record(b.tree -> 'scope') r
        (root_slot uuid, root_id uuid, cutoff bigint, slots int, space text, leaf_count int,
        node_count int, event_count int)
    where b.job_id = %(job_id)s and b.state = 'grown'
    """,
)


@dataclass(frozen=True)
class NewSnapshot:
    """The record of a version, without its trees."""

    version: int
    base_version: int
    repeats_version: int | None
    job_id: UUID | None
    published_at: datetime
    scopes_changed: int
    scopes_failed: Sequence[Mapping[str, str]]
    configuration: Mapping[str, str]


def insert_snapshot(access: TenantDb, snapshot: NewSnapshot) -> None:
    """Record a version, with the counts of its trees. In the transaction that writes the trees."""
    access.execute(
        """
        insert into snapshots (tenant_id, version, snapshot_id, base_version, repeats_version,
            job_id, published_at, scope_count, leaf_count, node_count, event_count, scopes_changed,
            scopes_failed, configuration)
        select current_tenant(), %(version)s, %(snapshot_id)s, %(base_version)s,
            %(repeats_version)s, %(job_id)s, %(published_at)s, count(*),
            coalesce(sum(t.leaf_count), 0), coalesce(sum(t.node_count), 0),
            coalesce(sum(t.event_count), 0), %(scopes_changed)s, %(scopes_failed)s::jsonb,
            %(configuration)s::jsonb
        from snapshot_scopes t where t.to_version is null
        """,
        {
            **vars(snapshot),
            "snapshot_id": uuid7(),
            "scopes_failed": json.dumps(list(snapshot.scopes_failed)),
            "configuration": json.dumps(dict(snapshot.configuration)),
        },
    )
