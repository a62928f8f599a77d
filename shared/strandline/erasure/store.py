"""SQL of erasures: what is selected, what is recorded, and the functions that erase the log."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from strandline.db.connection import Connection
from strandline.db.database import TenantDb
from strandline.tenants.store_due import list_tenant_ids

type Kind = Literal["event", "events", "session", "participant", "scope", "tenant"]


@dataclass(frozen=True)
class Selection:
    """Which events an erasure is about. What is None narrows nothing."""

    kind: Kind
    event_ids: Sequence[UUID] | None = None
    scope_id: UUID | None = None
    session_id: str | None = None
    participant: str | None = None
    """Who said it."""


@dataclass(frozen=True)
class SelectedEvent:
    """An event that a selection names; it may be erased already."""

    event_id: UUID
    scope_id: UUID
    said_by: str | None
    is_erased: bool


def get_selected(access: TenantDb, event_ids: Sequence[UUID]) -> Sequence[SelectedEvent]:
    """Those of these events that the caller can see, erased ones too."""
    return access.fetch(
        SelectedEvent,
        """
        select e.event_id, e.scope_id, coalesce(e.speaker, nullif(e.writer, '*')) as said_by,
            e.erased_at is not null as is_erased
        from events e
        where e.tenant_id = current_tenant() and e.event_id = any (%(event_ids)s::uuid[])
        """,
        {"event_ids": list(event_ids)},
    )


@dataclass(frozen=True)
class _EventId:
    event_id: UUID


_MATCHES = """
    e.tenant_id = current_tenant() and e.erased_at is null
        and (%(event_ids)s::uuid[] is null or e.event_id = any (%(event_ids)s::uuid[]))
        and (%(scope_id)s::uuid is null or e.scope_id = %(scope_id)s::uuid)
        and (%(session_id)s::text is null or e.session_id = %(session_id)s)
        and (%(participant)s::text is null
            or coalesce(e.speaker, nullif(e.writer, '*')) = %(participant)s)
"""
"""The events of a selection in the caller's view, without those that are erased."""


def list_matching(access: TenantDb, selection: Selection, limit: int) -> list[UUID]:
    """The first `limit` events of a selection, by scope and seq."""
    rows = access.fetch(
        _EventId,
        f"select e.event_id from events e where {_MATCHES}"  # noqa: S608 - a constant
        " order by e.scope_id, e.seq limit %(limit)s",
        {**_parameters(selection), "limit": limit},
    )
    return [row.event_id for row in rows]


@dataclass(frozen=True)
class Preview:
    """What an erasure would concern."""

    events: int
    scopes: int
    chains: int
    payloads: int


def preview(access: TenantDb, selection: Selection) -> Preview:
    """Count what a selection names, and what rests on it."""
    (row,) = access.fetch(
        Preview,
        f"""
        with selected as materialized (
            select e.event_id, e.scope_id, e.blob_cid from events e where {_MATCHES})
        select count(*) as events, count(distinct s.scope_id) as scopes,
            count(distinct c.chain_id) as chains, count(distinct s.blob_cid) as payloads
        from selected s left join chain_events c
            on c.tenant_id = current_tenant() and c.event_id = s.event_id
        """,  # noqa: S608 - a constant
        _parameters(selection),
    )
    return row


def _parameters(selection: Selection) -> dict[str, object]:
    return {
        "event_ids": None if selection.event_ids is None else list(selection.event_ids),
        "scope_id": selection.scope_id,
        "session_id": selection.session_id,
        "participant": selection.participant,
    }


# the log ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Total:
    name: str
    total: int


def erase_events(
    access: TenantDb, erasure_id: UUID, event_ids: Sequence[UUID], now: datetime
) -> dict[str, int]:
    """Turn these events into tombstones and clear the log's tables and indexes. Returns how many
    rows of each table. In a transaction, with the scopes locked."""
    inner, outer = access.sealer.mac_pads
    rows = access.fetch(
        _Total,
        "select name, total from erase_events(%(erasure_id)s, %(event_ids)s::uuid[], %(now)s,"
        " %(inner)s, %(outer)s)",
        {
            "erasure_id": erasure_id,
            "event_ids": list(event_ids),
            "now": now,
            "inner": inner,
            "outer": outer,
        },
    )
    return {row.name: row.total for row in rows}


def blank_chains(
    access: TenantDb, chain_ids: Sequence[UUID], scope_ids: Sequence[UUID], now: datetime
) -> dict[str, int]:
    """Empty the texts that rest on these chains, whose events are unlinked already. In a
    transaction."""
    rows = access.fetch(
        _Total,
        "select name, total from blank_chains(%(chain_ids)s::uuid[], %(scope_ids)s::uuid[],"
        " %(now)s)",
        {"chain_ids": list(chain_ids), "scope_ids": list(scope_ids), "now": now},
    )
    return {row.name: row.total for row in rows}


# records ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Erasure:
    """An erasure as it stands."""

    erasure_id: UUID
    participants: list[str]
    kind: Kind
    target: dict[str, Any]
    asked_at: datetime
    asked_by: dict[str, Any]
    hidden_at: datetime | None
    completed_at: datetime | None
    counts: dict[str, int]
    receipt: dict[str, Any] | None
    signature: str | None


_SELECT_ERASURE = """
    select e.erasure_id, e.participants, e.kind, e.target, e.asked_at, e.asked_by, e.hidden_at,
        e.completed_at, e.counts, e.receipt, e.signature
    from erasures e
"""


def add_erasure(
    access: TenantDb,
    erasure_id: UUID,
    kind: Kind,
    target: Mapping[str, object],
    asked_by: Mapping[str, object],
    now: datetime,
) -> None:
    """Record that an erasure was asked for, on behalf of the caller. In a transaction."""
    access.execute(
        "insert into erasures (tenant_id, erasure_id, participants, kind, target, asked_at,"
        " asked_by, due_at) values (current_tenant(), %(erasure_id)s, %(viewer)s::text[], %(kind)s,"
        " %(target)s::jsonb, %(now)s, %(asked_by)s::jsonb, %(now)s)",
        {
            "erasure_id": erasure_id,
            "viewer": list(access.caller.viewer),
            "kind": kind,
            "target": json.dumps(dict(target)),
            "asked_by": json.dumps(dict(asked_by)),
            "now": now,
        },
    )


def add_counts(access: TenantDb, erasure_id: UUID, counts: Mapping[str, int]) -> None:
    """Add to the counts of an erasure. In a transaction."""
    access.execute(
        """
        update erasures set counts = (
            select coalesce(jsonb_object_agg(key, total), '{}') from (
                select key, sum(value::bigint) as total from (
                    select * from jsonb_each_text(counts)
                    union all
                    select * from jsonb_each_text(%(counts)s::jsonb)) both_counts
                group by key having sum(value::bigint) > 0) sums)
        where erasure_id = %(erasure_id)s
        """,
        {"erasure_id": erasure_id, "counts": json.dumps(dict(counts))},
    )


def mark_hidden(
    access: TenantDb, erasure_id: UUID, target: Mapping[str, object], now: datetime
) -> None:
    """Record that nothing of an erasure's events can be read any more. In a transaction."""
    access.execute(
        "update erasures set hidden_at = %(now)s, target = %(target)s::jsonb"
        " where erasure_id = %(erasure_id)s and hidden_at is null",
        {"erasure_id": erasure_id, "target": json.dumps(dict(target)), "now": now},
    )


def get_erasure(access: TenantDb, erasure_id: UUID) -> Erasure | None:
    """A visible erasure, or None."""
    rows = access.fetch(
        Erasure,
        _SELECT_ERASURE + " where e.tenant_id = current_tenant() and e.erasure_id = %(erasure_id)s",
        {"erasure_id": erasure_id},
    )
    return rows[0] if rows else None


def find_erasure_of(access: TenantDb, event_id: UUID) -> Erasure | None:
    """The visible erasure of an event, or None."""
    rows = access.fetch(
        Erasure,
        _SELECT_ERASURE
        + """
        join erased_events d on d.tenant_id = e.tenant_id and d.erasure_id = e.erasure_id
        where d.tenant_id = current_tenant() and d.event_id = %(event_id)s
        """,
        {"event_id": event_id},
    )
    return rows[0] if rows else None


@dataclass(frozen=True)
class ErasedEvent:
    """An event of an erasure."""

    n: int
    """Its place among the scope's erasures."""
    event_id: UUID
    scope_id: UUID
    seq: int
    erasure_id: UUID
    erased_at: datetime


def list_events(access: TenantDb, erasure_id: UUID) -> Sequence[ErasedEvent]:
    """The events of an erasure, by scope and in their order."""
    return access.fetch(
        ErasedEvent,
        "select n, event_id, scope_id, seq, erasure_id, erased_at from erased_events"
        " where tenant_id = current_tenant() and erasure_id = %(erasure_id)s"
        " order by scope_id, n",
        {"erasure_id": erasure_id},
    )


def read_feed(access: TenantDb, scope_id: UUID, after: int, limit: int) -> Sequence[ErasedEvent]:
    """A scope's erasures after the first `after` of them, in order."""
    return access.fetch(
        ErasedEvent,
        "select n, event_id, scope_id, seq, erasure_id, erased_at from erased_events"
        " where tenant_id = current_tenant() and scope_id = %(scope_id)s and n > %(after)s"
        " order by n limit %(limit)s",
        {"scope_id": scope_id, "after": after, "limit": limit},
    )


# the job ------------------------------------------------------------------------------------------


def list_due_tenants(connection: Connection, now: datetime) -> list[str]:
    """Ids of the tenants where an erasure goes on."""
    return list_tenant_ids(connection, "select * from tenants_to_erase(%s)", (now,))


def list_open(access: TenantDb) -> Sequence[Erasure]:
    """The erasures of the tenant that are not complete, oldest first."""
    return access.fetch(
        Erasure,
        _SELECT_ERASURE
        + " where e.tenant_id = current_tenant() and e.completed_at is null order by e.erasure_id",
        {},
    )


@dataclass(frozen=True)
class ErasedChain:
    """A chain that lost events and waits to be formed anew."""

    chain_id: UUID
    scope_id: UUID
    participants: list[str]
    was_promoted: bool
    attempts: int


def list_chains(access: TenantDb, limit: int, max_attempts: int) -> Sequence[ErasedChain]:
    """Up to `limit` chains that wait to be formed anew; those that failed often come last, and
    those that failed `max_attempts` times not at all."""
    return access.fetch(
        ErasedChain,
        "select chain_id, scope_id, participants, was_promoted, attempts from erased_chains"
        " where tenant_id = current_tenant() and attempts < %(max_attempts)s"
        " order by attempts, chain_id limit %(limit)s",
        {"limit": limit, "max_attempts": max_attempts},
    )


def end_chain(access: TenantDb, chain_id: UUID) -> None:
    """Record that a chain is formed anew, or gone. In a transaction."""
    access.execute(
        "delete from erased_chains where chain_id = %(chain_id)s", {"chain_id": chain_id}
    )


def queue_retry(access: TenantDb, job_id: UUID) -> None:
    """Queue a failure to be retried, as an admin does. In a transaction."""
    access.execute(
        "update jobs set state = 'queued', finished_at = null, leased_until = now()"
        " where job_id = %(job_id)s and state = 'failed'",
        {"job_id": job_id},
    )


def count_attempt(access: TenantDb, chain_id: UUID) -> None:
    """Record that forming a chain anew failed. In a transaction."""
    access.execute(
        "update erased_chains set attempts = attempts + 1 where chain_id = %(chain_id)s",
        {"chain_id": chain_id},
    )


@dataclass(frozen=True)
class ErasedPayload:
    """An object that only erased events cited."""

    object: str
    marked_at: datetime | None


def list_payloads(access: TenantDb, after: str, limit: int) -> Sequence[ErasedPayload]:
    """The objects that are to be removed, by name."""
    return access.fetch(
        ErasedPayload,
        "select object, marked_at from erased_payloads"
        " where tenant_id = current_tenant() and object > %(after)s"
        " order by object limit %(limit)s",
        {"after": after, "limit": limit},
    )


@dataclass(frozen=True)
class _Cid:
    cid: str


def list_cited(access: TenantDb, cids: Sequence[str]) -> set[str]:
    """Those of these payloads that an event cites, or that a writer has stored."""
    rows = access.fetch(
        _Cid,
        """
        select c.cid from unnest(%(cids)s::text[]) c (cid)
        where exists (
                select from events e
                where e.tenant_id = current_tenant() and e.blob_cid = c.cid)
            or exists (select from stored_blobs(%(cids)s) s where s.cid = c.cid)
        """,
        {"cids": list(cids)},
    )
    return {row.cid for row in rows}


def list_removing(access: TenantDb, cids: Sequence[str]) -> list[str]:
    """Those of these payloads whose removal was begun and not ended, while no append may rely on
    their bytes. Removals whose time is over are forgotten: they begin again. In a transaction."""
    access.execute("delete from blob_removals where removing_until < clock_timestamp()", {})
    rows = access.fetch(
        _Cid,
        "select cid from blob_removals where cid = any (%(cids)s)"
        " and removing_until > clock_timestamp() + interval '30 seconds'",
        {"cids": list(cids)},
    )
    return [row.cid for row in rows]


def mark_payloads(access: TenantDb, objects: Sequence[str], now: datetime) -> None:
    """Record since when these objects are marked to be removed. In a transaction."""
    access.execute(
        "update erased_payloads set marked_at = %(now)s"
        " where object = any (%(objects)s) and marked_at is null",
        {"objects": list(objects), "now": now},
    )


def end_payloads(access: TenantDb, objects: Sequence[str]) -> None:
    """Record that these objects are removed, or cited by others. In a transaction."""
    access.execute(
        "delete from erased_payloads where object = any (%(objects)s)", {"objects": list(objects)}
    )


@dataclass(frozen=True)
class Remaining:
    """What an erasure still waits for."""

    chains: int
    """That have not failed too often."""
    payloads: int
    marked_at: datetime | None
    """When the last of its objects was marked."""


def count_remaining(access: TenantDb, erasure_id: UUID, max_attempts: int) -> Remaining:
    """What an erasure still waits for."""
    (row,) = access.fetch(
        Remaining,
        """
        select (select count(*) from erased_chains c where c.tenant_id = current_tenant()
                and c.erasure_id = %(erasure_id)s and c.attempts < %(max_attempts)s) as chains,
            (select count(*) from erased_payloads p where p.tenant_id = current_tenant()
                and p.erasure_id = %(erasure_id)s) as payloads,
            (select max(p.marked_at) from erased_payloads p where p.tenant_id = current_tenant()
                and p.erasure_id = %(erasure_id)s) as marked_at
        """,
        {"erasure_id": erasure_id, "max_attempts": max_attempts},
    )
    return row


def postpone(access: TenantDb, erasure_id: UUID, due_at: datetime) -> None:
    """Record when the job goes on with an erasure. In a transaction."""
    access.execute(
        "update erasures set due_at = %(due_at)s"
        " where erasure_id = %(erasure_id)s and completed_at is null",
        {"erasure_id": erasure_id, "due_at": due_at},
    )


def complete(
    access: TenantDb,
    erasure_id: UUID,
    receipt: Mapping[str, object],
    signature: str,
    now: datetime,
) -> None:
    """Record an erasure's receipt: it is complete. In a transaction."""
    access.execute(
        "update erasures set completed_at = %(now)s, due_at = null, receipt = %(receipt)s::jsonb,"
        " signature = %(signature)s"
        " where erasure_id = %(erasure_id)s and completed_at is null",
        {
            "erasure_id": erasure_id,
            "receipt": json.dumps(dict(receipt)),
            "signature": signature,
            "now": now,
        },
    )
