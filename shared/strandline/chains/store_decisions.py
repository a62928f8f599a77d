"""SQL for the decisions of folds."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.chains.decisions import FoldDecision
from strandline.db.database import TenantDb


def list_decisions_between_seqs(
    access: TenantDb, scope_id: UUID, first: int, last: int
) -> Sequence[FoldDecision]:
    """List a scope's decisions that take effect between two seqs, both included."""
    return access.fetch(
        FoldDecision,
        """
        select event_id, kind, attempt, at_seq, body from decisions
        where scope_id = %(scope_id)s and at_seq between %(first)s and %(last)s
        order by at_seq, kind, attempt
        """,
        {"scope_id": scope_id, "first": first, "last": last},
    )


def list_decisions_about_events(
    access: TenantDb, scope_id: UUID, event_ids: Sequence[UUID], kinds: Sequence[str]
) -> Sequence[FoldDecision]:
    """List a scope's decisions of these kinds about these events."""
    if not event_ids:
        return []
    return access.fetch(
        FoldDecision,
        """
        select event_id, kind, attempt, at_seq, body from decisions
        where scope_id = %(scope_id)s and event_id = any (%(event_ids)s)
            and kind = any (%(kinds)s)
        order by at_seq, attempt
        """,
        {"scope_id": scope_id, "event_ids": list(event_ids), "kinds": list(kinds)},
    )


def insert_decisions(
    access: TenantDb, scope_id: UUID, participants: Sequence[str], decisions: Sequence[FoldDecision]
) -> None:
    """Store decisions, in the transaction of the fold that makes them. The compare-and-swap of
    `fold_no` ensures that no other worker has stored the same decisions before."""
    if not decisions:
        return
    access.execute(
        """
        insert into decisions
            (tenant_id, decision_id, scope_id, participants, event_id, kind, attempt, at_seq, body,
            subject)
        select current_tenant(), r.decision_id, %(scope_id)s, %(participants)s, r.event_id, r.kind,
            r.attempt, r.at_seq, r.body, case r.kind when 'slots' then r.body ->> 'subject' end
        from jsonb_to_recordset(%(rows)s::jsonb) r
            (decision_id uuid, event_id uuid, kind text, attempt int, at_seq bigint, body jsonb)
        """,
        {
            "scope_id": scope_id,
            "participants": list(participants),
            "rows": json.dumps(
                [
                    {
                        "decision_id": str(uuid7()),
                        "event_id": str(decision.event_id),
                        "kind": decision.kind,
                        "attempt": decision.attempt,
                        "at_seq": decision.at_seq,
                        "body": decision.body,
                    }
                    for decision in decisions
                ]
            ),
        },
    )


def insert_new_decisions(
    access: TenantDb, scope_id: UUID, participants: Sequence[str], decisions: Sequence[FoldDecision]
) -> None:
    """Store those of these decisions that are not stored yet. In a transaction."""
    event_ids, kinds = [d.event_id for d in decisions], sorted({d.kind for d in decisions})
    existing = {
        (d.event_id, d.kind)
        for d in list_decisions_about_events(access, scope_id, event_ids, kinds)
    }
    insert_decisions(
        access,
        scope_id,
        participants,
        [item for item in decisions if (item.event_id, item.kind) not in existing],
    )


@dataclass(frozen=True)
class _Count:
    n: int


def count_decisions_about_event(access: TenantDb, event_id: UUID, kind: str) -> int:
    """How many decisions of this kind were stored about an event."""
    (row,) = access.fetch(
        _Count,
        "select count(*) as n from decisions where event_id = %(event_id)s and kind = %(kind)s"
        " and scope_id = (select scope_id from events where event_id = %(event_id)s)",
        {"event_id": event_id, "kind": kind},
    )
    return row.n
