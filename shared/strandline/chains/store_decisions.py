"""Decisions: what a fold took from anything but events. They outlive all that is derived."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.db.database import TenantDb


@dataclass(frozen=True)
class Decision:
    """What was decided, and about which event."""

    event_id: UUID
    kind: str
    """One of `services.folding`'s."""
    attempt: int
    """From 0; only a repeated `reformed` has more than one."""
    at_seq: int
    """The scope's mark at which it takes effect."""
    body: dict[str, Any]


def list_between(access: TenantDb, scope_id: UUID, first: int, last: int) -> Sequence[Decision]:
    """What takes effect from one mark of a scope to another, both included."""
    return access.fetch(
        Decision,
        """
        select event_id, kind, attempt, at_seq, body from decisions
        where scope_id = %(scope_id)s and at_seq between %(first)s and %(last)s
        order by at_seq, kind, attempt
        """,
        {"scope_id": scope_id, "first": first, "last": last},
    )


def list_about(
    access: TenantDb, scope_id: UUID, event_ids: Sequence[UUID], kinds: Sequence[str]
) -> Sequence[Decision]:
    """What of these kinds was decided about these events."""
    if not event_ids:
        return []
    return access.fetch(
        Decision,
        """
        select event_id, kind, attempt, at_seq, body from decisions
        where scope_id = %(scope_id)s and event_id = any (%(event_ids)s)
            and kind = any (%(kinds)s)
        order by at_seq, attempt
        """,
        {"scope_id": scope_id, "event_ids": list(event_ids), "kinds": list(kinds)},
    )


def add_decisions(
    access: TenantDb, scope_id: UUID, participants: Sequence[str], decisions: Sequence[Decision]
) -> None:
    """Keep what was decided, in the transaction of the fold that goes by it. The compare-and-swap
    of fold_no has made sure that nobody decided the same before."""
    if not decisions:
        return
    access.execute(
        """
        insert into decisions
            (tenant_id, decision_id, scope_id, participants, event_id, kind, attempt, at_seq, body)
        select current_tenant(), r.decision_id, %(scope_id)s, %(participants)s, r.event_id, r.kind,
            r.attempt, r.at_seq, r.body
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


@dataclass(frozen=True)
class _Count:
    n: int


def count_attempts(access: TenantDb, event_id: UUID, kind: str) -> int:
    """How often something of this kind was decided about an event."""
    (row,) = access.fetch(
        _Count,
        "select count(*) as n from decisions where event_id = %(event_id)s and kind = %(kind)s"
        " and scope_id = (select scope_id from events where event_id = %(event_id)s)",
        {"event_id": event_id, "kind": kind},
    )
    return row.n
