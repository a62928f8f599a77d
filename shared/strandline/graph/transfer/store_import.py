"""SQL that stores the rows of an import in the transaction of its statements, some thousand rows at
a time."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.graph.fields.store_write import SET_TOPIC_SALIENCE

_ROWS = 5000
"""The number of rows for one SQL statement."""

type Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class _Id:
    id: UUID


def find_stored_sources(access: TenantDb, source_ids: Sequence[UUID]) -> frozenset[UUID]:
    """Those of these sources that the tenant's graph already rests on, in scopes that the caller
    may write into. They are the sources of what was exported from this
    graph."""
    rows = access.fetch(
        _Id,
        """
        select s.id from unnest(%(ids)s::uuid[]) s (id)
        where exists (
                select from graph_observations o
                where o.tenant_id = current_tenant() and o.source_id = s.id)
            or exists (
                select from topic_field_revisions r
                where r.tenant_id = current_tenant() and r.event_id = s.id)
        """,
        {"ids": list(source_ids)},
    )
    return frozenset(row.id for row in rows)


def add_nodes(access: TenantDb, rows: Rows) -> int:
    """Add the nodes that do not exist. Returns how many were added. None of them holds until it is
    computed, because two facts of one name must not hold at once."""
    return _execute_in_batches(
        access,
        """
        insert into graph_nodes (tenant_id, node_id, scope_id, participants, type, name, name_hash,
            ordinal, identity, trust, valid_from, valid_to, created_at, updated_at)
        select current_tenant(), d.node_id, d.scope_id, d.participants, d.type, d.name,
            decode(d.name_hash, 'hex'), d.ordinal, decode(d.name_hash, 'hex'), d.trust,
            d.observed_at, d.observed_at, d.observed_at, d.observed_at
        from jsonb_to_recordset(%(rows)s::jsonb) d
            (node_id uuid, scope_id uuid, participants text[], type text, name text,
            name_hash text, ordinal int, trust text, observed_at timestamptz)
        on conflict (tenant_id, node_id) do nothing
        """,
        rows,
    )


def add_edges(access: TenantDb, rows: Rows) -> int:
    """Add the edges that do not exist. Returns how many were added."""
    return _execute_in_batches(
        access,
        """
        insert into graph_edges (tenant_id, edge_id, scope_id, participants, from_id, to_id, type,
            label, trust, valid_from, created_at, last_seen)
        select current_tenant(), d.edge_id, d.scope_id, d.participants, d.from_id, d.to_id, d.type,
            d.label, d.trust, d.observed_at, d.observed_at, d.observed_at
        from jsonb_to_recordset(%(rows)s::jsonb) d
            (edge_id uuid, scope_id uuid, participants text[], from_id uuid, to_id uuid, type text,
            label text, trust text, observed_at timestamptz)
        on conflict (tenant_id, edge_id) do nothing
        """,
        rows,
    )


def add_observations(access: TenantDb, rows: Rows) -> None:
    """Add observations, each with the statement that it cites."""
    _execute_in_batches(
        access,
        """
        with said as materialized (
            select * from jsonb_to_recordset(%(rows)s::jsonb) d
                (target_id uuid, source_id uuid, scope_id uuid, participants text[], patch jsonb,
                confidence float8, heat float8, trust text, observed_at timestamptz,
                valid_from timestamptz)),
        stored as (
            insert into graph_observations (tenant_id, target_id, source_id, scope_id, participants,
                patch, confidence, heat, trust, observed_at, valid_from)
            select current_tenant(), target_id, source_id, scope_id, participants, patch,
                confidence, heat, trust, observed_at, valid_from
            from said)
        insert into graph_sources (tenant_id, target_id, source_id, event_id, scope_id,
            participants)
        select current_tenant(), target_id, source_id, source_id, scope_id, participants from said
        """,
        rows,
    )


def list_nodes_without_observations(access: TenantDb, node_ids: Sequence[UUID]) -> Sequence[UUID]:
    """Those of these nodes that have no observation."""
    rows = access.fetch(
        _Id,
        """
        select n.id from unnest(%(ids)s::uuid[]) n (id)
        except
        select o.target_id from graph_observations o
        where o.tenant_id = current_tenant() and o.target_id = any (%(ids)s)
        """,
        {"ids": list(node_ids)},
    )
    return [row.id for row in rows]


def suspend_facts_until_computed(access: TenantDb, ids: Sequence[UUID]) -> None:
    """Make these facts not hold until they are computed, like newly added ones."""
    access.execute(
        """
        update graph_nodes set valid_to = updated_at
        where tenant_id = current_tenant() and node_id = any (%(ids)s) and type = 'fact'
            and valid_to is null
        """,
        {"ids": list(ids)},
    )


def delete_newest_revision_observations(access: TenantDb, fields: Rows) -> None:
    """Delete the observation that the newest revision of each of these fields made of its topic."""
    _execute_in_batches(
        access,
        """
        delete from graph_observations o
        using jsonb_to_recordset(%(rows)s::jsonb) d (node_id uuid, field text)
        join topic_fields f on f.tenant_id = current_tenant() and f.node_id = d.node_id
            and f.field = d.field
        join topic_field_revisions r on r.tenant_id = f.tenant_id and r.node_id = f.node_id
            and r.field = f.field and r.revision = f.revision
        where o.tenant_id = r.tenant_id and o.target_id = r.node_id and o.source_id = r.event_id
        """,
        fields,
    )


def add_revisions(access: TenantDb, fields: Rows, revisions: Rows) -> None:
    """Add fields that are new, and revisions in the order of their positions, after a field's
    existing ones. The salience of an existing field does not change."""
    _execute_in_batches(
        access,
        """
        insert into topic_fields (tenant_id, node_id, field, scope_id, participants, field_type,
            revision, salience)
        select current_tenant(), d.node_id, d.field, d.scope_id, d.participants, d.field_type, 1,
            d.salience
        from jsonb_to_recordset(%(rows)s::jsonb) d
            (node_id uuid, field text, scope_id uuid, participants text[], field_type text,
            salience float8)
        on conflict (tenant_id, node_id, field) do update set field_type = excluded.field_type
        """,
        fields,
    )
    _execute_in_batches(access, _ADD_REVISIONS, revisions)
    ids = list({UUID(row["node_id"]) for row in fields})
    access.execute(
        """
        update topic_fields f set revision = n.revision
        from (
            select r.node_id, r.field, max(r.revision) as revision from topic_field_revisions r
            where r.tenant_id = current_tenant() and r.node_id = any (%(ids)s)
            group by r.node_id, r.field) n
        where f.tenant_id = current_tenant() and f.node_id = n.node_id and f.field = n.field
            and f.revision <> n.revision
        """,
        {"ids": ids},
    )
    access.execute(SET_TOPIC_SALIENCE, {"ids": ids})


_ADD_REVISIONS: LiteralString = """
    insert into topic_field_revisions (tenant_id, node_id, field, revision, scope_id, participants,
        value, valid_from, why_changed, impact_expected, ref_id, event_id, recorded_at)
    select current_tenant(), d.node_id, d.field, coalesce((
            select max(r.revision) from topic_field_revisions r
            where r.tenant_id = current_tenant() and r.node_id = d.node_id
                and r.field = d.field), 0)
            + row_number() over (partition by d.node_id, d.field order by d.place),
        d.scope_id, d.participants, coalesce(d.value, 'null'), d.valid_from, d.why_changed,
        d.impact_expected, d.ref_id, d.source_id, d.observed_at
    from jsonb_to_recordset(%(rows)s::jsonb) d
        (place int, node_id uuid, field text, scope_id uuid, participants text[], value jsonb,
        valid_from timestamptz, why_changed text, impact_expected text, ref_id uuid, source_id uuid,
        observed_at timestamptz)
"""


def _execute_in_batches(access: TenantDb, statement: LiteralString, rows: Rows) -> int:
    """Run a statement for these rows, some thousand at a time. Returns how many rows it changed."""
    return sum(
        access.execute(statement, {"rows": json.dumps(rows[start : start + _ROWS])})
        for start in range(0, len(rows), _ROWS)
    )
