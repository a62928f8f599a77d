"""SQL that stores revisions of topics' fields, and the salience that uses of the fields add."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.graph.fields.store_read import RevisionRow
from strandline.graph.nodes.store_observations import lock_scope_graphs
from strandline.recall.store_importance import FoldedAnswer

FIRST_SALIENCE = 1.0
MAX_SALIENCE = 10.0
USE_SALIENCE = 0.1
"""The salience that one use adds."""


@dataclass(frozen=True)
class NewRevision:
    """A revision to store."""

    node_id: UUID
    field: str
    scope_id: UUID
    participants: Sequence[str]
    field_type: str | None
    """None: the type stays unchanged."""
    value: Any
    valid_from: datetime
    why_changed: str
    impact_expected: str
    ref_id: UUID | None
    event_id: UUID
    recorded_at: datetime


def find_revision_of_statement(access: TenantDb, event_id: UUID) -> RevisionRow | None:
    """The revision that a statement stored."""
    rows = access.fetch(
        RevisionRow,
        "select node_id, revision, value, valid_from, why_changed, impact_expected, ref_id,"
        " event_id, recorded_at from topic_field_revisions"
        " where tenant_id = current_tenant() and event_id = %(event_id)s",
        {"event_id": event_id},
    )
    return rows[0] if rows else None


@dataclass(frozen=True)
class NewestFieldRevision:
    """A field's newest revision. Without values if the topic does not have the field yet."""

    event_id: UUID | None
    ref_id: UUID | None
    ref_name: str | None


def read_newest_field_revision(
    access: TenantDb, node_id: UUID, field: str
) -> NewestFieldRevision | None:
    """The newest revision of a topic's field. None if the topic does not exist any more."""
    rows = access.fetch(
        NewestFieldRevision,
        """
        select r.event_id, ref.node_id as ref_id, ref.name as ref_name
        from graph_nodes g
        left join topic_fields f on f.tenant_id = current_tenant() and f.node_id = g.node_id
            and f.field = %(field)s
        left join topic_field_revisions r on r.tenant_id = current_tenant()
            and r.node_id = f.node_id and r.field = f.field and r.revision = f.revision
        left join graph_nodes ref on ref.tenant_id = current_tenant() and ref.node_id = r.ref_id
        where g.tenant_id = current_tenant() and g.node_id = %(node_id)s
        """,
        {"node_id": node_id, "field": field},
    )
    return rows[0] if rows else None


def delete_topic_observation(access: TenantDb, node_id: UUID, event_id: UUID) -> None:
    """Delete a revision's observation of its topic, before the field's next revision adds its own.
    In a transaction in which the topic is then computed. So a topic has one observation of each
    field, and computing it costs the same after any number of revisions."""
    access.execute(
        "delete from graph_observations where tenant_id = current_tenant()"
        " and target_id = %(node_id)s and source_id = %(event_id)s",
        {"node_id": node_id, "event_id": event_id},
    )


def add_revision(access: TenantDb, new: NewRevision) -> RevisionRow:
    """Store a revision as the field's newest, and the field if it is new. In a transaction. Two
    writers of a field wait for each other."""
    (row,) = access.fetch(
        RevisionRow,
        """
        with head as (
            insert into topic_fields as f (tenant_id, node_id, field, scope_id, participants,
                field_type, revision, salience)
            values (current_tenant(), %(node_id)s, %(field)s, %(scope_id)s,
                %(participants)s::text[], coalesce(%(field_type)s::text, 'text'), 1,
                %(first_salience)s)
            on conflict (tenant_id, node_id, field) do update set revision = f.revision + 1,
                field_type = coalesce(%(field_type)s::text, f.field_type)
            returning f.revision)
        insert into topic_field_revisions (tenant_id, node_id, field, revision, scope_id,
            participants, value, valid_from, why_changed, impact_expected, ref_id, event_id,
            recorded_at)
        select current_tenant(), %(node_id)s, %(field)s, head.revision, %(scope_id)s,
            %(participants)s::text[], %(value)s::jsonb, %(valid_from)s, %(why_changed)s,
            %(impact_expected)s, %(ref_id)s::uuid, %(event_id)s, %(recorded_at)s
        from head
        returning node_id, revision, value, valid_from, why_changed, impact_expected, ref_id,
            event_id, recorded_at
        """,
        {
            **vars(new),
            "participants": list(new.participants),
            "value": json.dumps(new.value),
            "first_salience": FIRST_SALIENCE,
        },
    )
    access.execute(SET_TOPIC_SALIENCE, {"ids": [new.node_id]})
    return row


# The mean salience of the fields of these topics.
SET_TOPIC_SALIENCE: LiteralString = """
    update graph_nodes g set salience = f.salience
    from (
        select f.node_id, avg(f.salience) as salience from topic_fields f
        where f.tenant_id = current_tenant() and f.node_id = any (%(ids)s::uuid[])
        group by f.node_id) f
    where g.tenant_id = current_tenant() and g.node_id = f.node_id
"""


@dataclass(frozen=True)
class _FieldUses:
    node_id: UUID
    scope_id: UUID
    field: str
    uses: int


def raise_salience_of_used_fields(access: TenantDb, answers: Sequence[FoldedAnswer]) -> None:
    """Raise the salience of the fields whose revisions these answers contained, once for each
    answer, and of their topics. In a transaction."""
    rows = [
        {"recall_id": str(answer.recall_id), "event_ids": [str(one) for one in answer.event_ids]}
        for answer in answers
    ]
    field_uses = access.fetch(
        _FieldUses,
        """
        select r.node_id, r.scope_id, r.field, count(distinct a.recall_id)::int as uses
        from jsonb_to_recordset(%(rows)s::jsonb) a (recall_id uuid, event_ids uuid[])
        cross join lateral unnest(a.event_ids) given (event_id)
        cross join lateral (  -- by key: the planner may read all revisions for a join
            select r.node_id, r.scope_id, r.field from topic_field_revisions r
            where r.tenant_id = current_tenant() and r.event_id = given.event_id offset 0) r
        group by r.node_id, r.scope_id, r.field
        """,
        {"rows": json.dumps(rows)},
    )
    if not field_uses:
        return
    lock_scope_graphs(access, {row.scope_id for row in field_uses})
    uses = [
        {"node_id": str(row.node_id), "field": row.field, "uses": row.uses} for row in field_uses
    ]
    access.execute(
        """
        update topic_fields f
        set salience = least(%(most)s, round((f.salience + %(step)s * u.uses)::numeric, 6))
        from jsonb_to_recordset(%(uses)s::jsonb) u (node_id uuid, field text, uses int)
        where f.tenant_id = current_tenant() and f.node_id = u.node_id and f.field = u.field
        """,
        {"uses": json.dumps(uses), "most": MAX_SALIENCE, "step": USE_SALIENCE},
    )
    access.execute(SET_TOPIC_SALIENCE, {"ids": [row.node_id for row in field_uses]})
