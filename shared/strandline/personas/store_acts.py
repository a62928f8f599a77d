"""SQL for acts: the thread of a sona. A caller sees the acts whose events it sees."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.db.database import TenantDb


@dataclass(frozen=True)
class SonaThread:
    """The state of a sona's thread, including acts that the caller cannot see."""

    sona_id: UUID
    merged_into: UUID | None
    head_id: UUID | None
    steps: int


def get_sona_thread(access: TenantDb, sona_id: UUID) -> SonaThread | None:
    """The thread of the writer's sona with this id, even if the sona was merged. None if there is
    no such sona."""
    rows = access.fetch(
        SonaThread,
        "select s.sona_id, s.merged_into, s.head_id, s.steps from sonas s"
        " where s.tenant_id = current_tenant() and s.sona_id = %(sona_id)s",
        {"sona_id": sona_id},
    )
    return rows[0] if rows else None


@dataclass(frozen=True)
class _ThreadLength:
    steps: int


def advance_thread_head(
    access: TenantDb, sona_id: UUID, after: UUID | None, act_id: UUID
) -> int | None:
    """Make an act the head of a thread if the head is `after`. Returns its step, from 1. Returns
    None, and changes nothing, if the head is another act or the sona was merged. In a transaction:
    until it ends nobody else can advance this head."""
    rows = access.fetch(
        _ThreadLength,
        """
        update sonas set head_id = %(act_id)s, steps = steps + 1
        where tenant_id = current_tenant() and sona_id = %(sona_id)s and merged_into is null
            and head_id is not distinct from %(after)s::uuid
        returning steps
        """,
        {"sona_id": sona_id, "after": after, "act_id": act_id},
    )
    return rows[0].steps if rows else None


@dataclass(frozen=True)
class ThreadAct:
    """A step of a thread."""

    act_id: UUID
    previous_id: UUID | None
    event_id: UUID
    scope_id: UUID
    pushed_at: datetime
    step: int
    """Its position in the thread, from 1. Steps that the caller cannot see count too."""


def insert_act(
    access: TenantDb, sona_id: UUID, step: int, act_id: UUID, after: UUID | None, event_id: UUID
) -> ThreadAct | None:
    """Store a step that continues `after` and is tied to a visible event. Returns None if the
    caller cannot see the event. In the transaction of `advance_thread_head`."""
    rows = access.fetch(
        ThreadAct,
        """
        insert into acts (tenant_id, sona_id, step, act_id, previous_id, event_id, scope_id,
            participants)
        select current_tenant(), %(sona_id)s, %(step)s, %(act_id)s, %(after)s::uuid, e.event_id,
            e.scope_id, e.participants
        from events e
        where e.tenant_id = current_tenant() and e.event_id = %(event_id)s
            and e.erased_at is null
        returning act_id, previous_id, event_id, scope_id, pushed_at, step
        """,
        {
            "sona_id": sona_id,
            "step": step,
            "act_id": act_id,
            "after": after,
            "event_id": event_id,
        },
    )
    return rows[0] if rows else None


def find_act_continuing(access: TenantDb, sona_id: UUID, after: UUID | None) -> ThreadAct | None:
    """The visible act that continues `after`; None if there is none."""
    rows = access.fetch(
        ThreadAct,
        """
        select a.act_id, a.previous_id, a.event_id, a.scope_id, a.pushed_at, a.step from acts a
        where a.tenant_id = current_tenant() and a.sona_id = %(sona_id)s
            and a.previous_id is not distinct from %(after)s::uuid
        """,
        {"sona_id": sona_id, "after": after},
    )
    return rows[0] if rows else None


def list_acts_after(access: TenantDb, sona_id: UUID, step: int, limit: int) -> Sequence[ThreadAct]:
    """The visible acts of a thread after a step, in order."""
    return access.fetch(
        ThreadAct,
        """
        select a.act_id, a.previous_id, a.event_id, a.scope_id, a.pushed_at, a.step from acts a
        where a.tenant_id = current_tenant() and a.sona_id = %(sona_id)s and a.step > %(step)s
        order by a.step limit %(limit)s
        """,
        {"sona_id": sona_id, "step": step, "limit": limit},
    )


def list_next_act(access: TenantDb, sona_id: UUID, act_id: UUID) -> Sequence[ThreadAct]:
    """The next visible act after this one, if any. This one must be visible, or have been visible
    until its event was erased."""
    return access.fetch(
        ThreadAct,
        """
        select a.act_id, a.previous_id, a.event_id, a.scope_id, a.pushed_at, a.step from acts a
        where a.tenant_id = current_tenant() and a.sona_id = %(sona_id)s and a.step > (
            select k.step from acts k
            where k.tenant_id = current_tenant() and k.sona_id = %(sona_id)s
                and k.act_id = %(act_id)s
            union all
            select k.step from erased_acts k
            where k.tenant_id = current_tenant() and k.sona_id = %(sona_id)s
                and k.act_id = %(act_id)s)
        order by a.step limit 1
        """,
        {"sona_id": sona_id, "act_id": act_id},
    )
