"""SQL of erasures: their records, and the functions that erase rows of the log."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.erasure.store_selections import Kind

# the log ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _NamedTotal:
    name: str
    total: int


def erase_events(
    access: TenantDb, erasure_id: UUID, event_ids: Sequence[UUID], now: datetime
) -> dict[str, int]:
    """Turn these events into tombstones and clear the log's tables and indexes. Returns the number
    of rows in each table. In a transaction, with the scopes locked."""
    inner, outer = access.sealer.compute_hmac_pads
    rows = access.fetch(
        _NamedTotal,
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


def blank_derived_texts(
    access: TenantDb, chain_ids: Sequence[UUID], scope_ids: Sequence[UUID], now: datetime
) -> dict[str, int]:
    """Empty the texts that rest on these chains, whose events are already unlinked. In a
    transaction."""
    rows = access.fetch(
        _NamedTotal,
        "select name, total from blank_chains(%(chain_ids)s::uuid[], %(scope_ids)s::uuid[],"
        " %(now)s)",
        {"chain_ids": list(chain_ids), "scope_ids": list(scope_ids), "now": now},
    )
    return {row.name: row.total for row in rows}


@dataclass(frozen=True)
class _UploadCount:
    uploads: int


def delete_uploads_of_writer(access: TenantDb, erasure_id: UUID, writer: str | None) -> int:
    """Delete the uploads of a writer, or of all writers (None); for a bound user, only that user's
    own. The job removes their objects. Returns the number of uploads. In a transaction."""
    (row,) = access.fetch(
        _UploadCount,
        "select forget_uploads(%(erasure_id)s, %(writer)s) as uploads",
        {"erasure_id": erasure_id, "writer": writer},
    )
    return row.uploads


@dataclass(frozen=True)
class DroppedChainDecisions:
    """Stored decisions about chains that were deleted before the chains were folded again."""

    total: int
    chain_ids: list[UUID]
    """The chains that were promoted with one of the erased events."""


def delete_decisions_of_unfolded_chains(
    access: TenantDb, event_ids: Sequence[UUID]
) -> DroppedChainDecisions:
    """Delete the decisions about chains that wait to be folded again and may rest on these events.
    In a transaction, with the scopes locked, before the events are erased."""
    (row,) = access.fetch(
        DroppedChainDecisions,
        "select total, chain_ids from drop_pending_decisions(%(event_ids)s::uuid[])",
        {"event_ids": list(event_ids)},
    )
    return row


# records ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Erasure:
    """The present state of an erasure."""

    erasure_id: UUID
    participants: list[str]
    kind: Kind
    target: dict[str, Any]
    asked_at: datetime
    asked_by: dict[str, Any]
    hidden_at: datetime
    cleared_at: datetime | None
    """When all its events had become tombstones; None: marks still hide some of them."""
    vacuumed_at: datetime | None
    """When the vacuum began that removed the rows this erasure cleared."""
    vacuums: int
    """How many vacuums were tried."""
    completed_at: datetime | None
    counts: dict[str, int]
    receipt: dict[str, Any] | None
    signature: str | None


SELECT_ERASURE = """
    select e.erasure_id, e.participants, e.kind, e.target, e.asked_at, e.asked_by, e.hidden_at,
        e.cleared_at, e.vacuumed_at, e.vacuums, e.completed_at, e.counts, e.receipt, e.signature
    from erasures e
"""
"""Columns of an Erasure."""


@dataclass(frozen=True)
class RequestKey:
    """Identifies repeated requests, so that they find the erasure of the first one. HMACs, in
    hex."""

    request_hash: str
    """HMAC of the request's key, or of the name of the session that it erases."""
    fingerprint: str | None = None
    """HMAC of everything that a request with a key contains."""


def insert_erasure(
    access: TenantDb,
    erasure_id: UUID,
    kind: Kind,
    target: Mapping[str, object],
    asked_by: Mapping[str, object],
    now: datetime,
    key: RequestKey | None = None,
) -> None:
    """Record an erasure on behalf of the caller. Its events are hidden once the current transaction
    commits."""
    access.execute(
        "insert into erasures (tenant_id, erasure_id, participants, kind, target, asked_at,"
        " asked_by, hidden_at, due_at, request_hash, fingerprint) values (current_tenant(),"
        " %(erasure_id)s, %(viewer)s::text[], %(kind)s, %(target)s::jsonb, %(now)s,"
        " %(asked_by)s::jsonb, %(now)s, %(now)s, decode(%(request_hash)s, 'hex'),"
        " decode(%(fingerprint)s, 'hex'))",
        {
            "erasure_id": erasure_id,
            "viewer": list(access.caller.viewer),
            "kind": kind,
            "target": json.dumps(dict(target)),
            "asked_by": json.dumps(dict(asked_by)),
            "now": now,
            "request_hash": key and key.request_hash,
            "fingerprint": key and key.fingerprint,
        },
    )


def lock_request_key(access: TenantDb, key: RequestKey) -> None:
    """Serialise requests with this key until the end of the transaction."""
    access.execute(
        "select pg_advisory_xact_lock(hashtextextended("
        "current_tenant() || ' erasure ' || %(request_hash)s, 0))",
        {"request_hash": key.request_hash},
    )


def add_erasure_counts(access: TenantDb, counts: Mapping[UUID, Mapping[str, int]]) -> None:
    """Add to the counts of these erasures. In a transaction."""
    access.execute(
        """
        update erasures e set counts = (
            select coalesce(jsonb_object_agg(key, total), '{}') from (
                select key, sum(value::bigint) as total from (
                    select * from jsonb_each_text(e.counts)
                    union all
                    select * from jsonb_each_text(more.counts)) both_counts
                group by key having sum(value::bigint) > 0) sums)
        from jsonb_each(%(counts)s::jsonb) more (erasure_id, counts)
        where e.tenant_id = current_tenant() and e.erasure_id = more.erasure_id::uuid
        """,
        {"counts": json.dumps({str(one): dict(totals) for one, totals in counts.items()})},
    )


def mark_erasure_cleared(access: TenantDb, erasure_id: UUID) -> None:
    """Record that all events of an erasure are tombstones. In a transaction, at its end."""
    access.execute(
        "update erasures set cleared_at = clock_timestamp(), cleared_xid = pg_current_xact_id()"
        " where erasure_id = %(erasure_id)s and cleared_at is null",
        {"erasure_id": erasure_id},
    )


def mark_erasure_hidden(access: TenantDb, erasure_id: UUID) -> None:
    """Record that nothing of an erasure can be read from now on. Must be the last statement of the
    erasure's transaction, because others read its events while the transaction waits for locks."""
    access.execute(
        "update erasures set hidden_at = clock_timestamp(),"
        " cleared_at = case when cleared_at is not null then clock_timestamp() end"
        " where erasure_id = %(erasure_id)s",
        {"erasure_id": erasure_id},
    )


def get_erasure(access: TenantDb, erasure_id: UUID) -> Erasure | None:
    """A visible erasure, or None."""
    rows = access.fetch(
        Erasure,
        SELECT_ERASURE + " where e.tenant_id = current_tenant() and e.erasure_id = %(erasure_id)s",
        {"erasure_id": erasure_id},
    )
    return rows[0] if rows else None


def find_erasure_of_event(access: TenantDb, event_id: UUID) -> Erasure | None:
    """The visible erasure of an event, or None."""
    rows = access.fetch(
        Erasure,
        SELECT_ERASURE  # noqa: S608 - a constant
        + """
        where e.tenant_id = current_tenant() and e.erasure_id in (
            select d.erasure_id from erased_events d
            where d.tenant_id = current_tenant() and d.event_id = %(event_id)s
            union all
            select m.erasure_id from events_marked(array[%(event_id)s::uuid]) m)
        order by e.erasure_id limit 1
        """,
        {"event_id": event_id},
    )
    return rows[0] if rows else None


@dataclass(frozen=True)
class RepeatedErasure:
    """The erasure that an earlier request with the same key started."""

    erasure_id: UUID
    is_same: bool
    """Whether the earlier request had the same content."""


def find_erasure_by_request_key(
    access: TenantDb, key: RequestKey, scope_id: UUID | None = None
) -> RepeatedErasure | None:
    """The newest visible erasure of a request with this key. With `scope_id`, only of that
    scope."""
    rows = access.fetch(
        RepeatedErasure,
        """
        select e.erasure_id,
            coalesce(e.fingerprint = decode(%(fingerprint)s, 'hex'), true) as is_same
        from erasures e
        where e.tenant_id = current_tenant()
            and e.request_hash = decode(%(request_hash)s, 'hex')
            and (%(scope_id)s::text is null or e.target ->> 'scope_id' = %(scope_id)s)
        order by e.erasure_id desc limit 1
        """,
        {**vars(key), "scope_id": scope_id and str(scope_id)},
    )
    return rows[0] if rows else None


@dataclass(frozen=True)
class _ErasureId:
    erasure_id: UUID


def list_erasures_of_events(access: TenantDb, event_ids: Sequence[UUID]) -> list[UUID]:
    """The visible erasures of those of these events that are tombstones."""
    rows = access.fetch(
        _ErasureId,
        """
        select distinct e.erasure_id from erased_events d
        join erasures e on e.tenant_id = d.tenant_id and e.erasure_id = d.erasure_id
        where d.tenant_id = current_tenant() and d.event_id = any (%(event_ids)s::uuid[])
        order by e.erasure_id
        """,
        {"event_ids": list(event_ids)},
    )
    return [row.erasure_id for row in rows]


@dataclass(frozen=True)
class ErasedEvent:
    """An event of an erasure."""

    n: int
    """Its number among the scope's erased events."""
    event_id: UUID
    scope_id: UUID
    seq: int
    erasure_id: UUID
    erased_at: datetime


def list_erased_events(access: TenantDb, erasure_id: UUID) -> Sequence[ErasedEvent]:
    """The events of an erasure, ordered by scope and number."""
    return access.fetch(
        ErasedEvent,
        "select n, event_id, scope_id, seq, erasure_id, erased_at from erased_events"
        " where tenant_id = current_tenant() and erasure_id = %(erasure_id)s"
        " order by scope_id, n",
        {"erasure_id": erasure_id},
    )


def list_erased_events_after(
    access: TenantDb, scope_id: UUID, after: int, limit: int
) -> Sequence[ErasedEvent]:
    """The erased events of a scope after the first `after`, in order."""
    return access.fetch(
        ErasedEvent,
        "select n, event_id, scope_id, seq, erasure_id, erased_at from erased_events"
        " where tenant_id = current_tenant() and scope_id = %(scope_id)s and n > %(after)s"
        " order by n limit %(limit)s",
        {"scope_id": scope_id, "after": after, "limit": limit},
    )
