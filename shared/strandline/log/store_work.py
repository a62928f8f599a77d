"""SQL for background work: scopes with events that are not embedded or folded yet, and the leases
on them."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import LiteralString, NamedTuple
from uuid import UUID

from strandline.db.connection import Connection, fetch_tenant_ids
from strandline.db.database import TenantDb
from strandline.db.packed_vectors import PackedVector, PackedVectors

STUCK_ATTEMPTS = 5
"""A scope's work is stuck after this many attempts in a row without progress: an operator must look
at it."""
LEASE_SECONDS = 120
"""How long a lease lasts: a batch takes seconds, and the sweep takes over a dead worker's scope."""


def list_tenants_with_work(connection: Connection, space: str) -> list[str]:
    """List the tenants with work that is due, or with events that have no vector in this space."""
    return fetch_tenant_ids(connection, "select * from tenants_with_work(%s, now())", (space,))


def enqueue_unfinished_scopes(access: TenantDb, space: str) -> int:
    """Enqueue every scope whose vectors in this space, fold, or indexed texts end before its log.
    Returns how many were not in the queue yet."""
    return access.execute(
        """
        insert into scope_work (tenant_id, scope_id, participants, due_at)
        select s.tenant_id, s.scope_id, s.participants, now()
        from scopes s
        left join embedding_progress p on p.scope_id = s.scope_id and p.space = %(space)s
        where s.last_seq > least(coalesce(p.embedded_seq, 0), s.folded_seq, s.indexed_seq)
        order by s.scope_id  -- the same order as append's, so that they cannot deadlock
        on conflict do nothing
        """,
        {"space": space},
    )


@dataclass(frozen=True)
class ScopeLease:
    """A scope whose work this worker has leased."""

    scope_id: UUID
    participants: list[str]
    attempts: int
    """Earlier attempts in a row that made no progress."""
    last_error: str | None
    reading_space: str | None
    """The embedding space that the tenant read then; None: no event was ever embedded."""


def lease_due_scopes(
    access: TenantDb, scope_ids: Sequence[UUID] | None, limit: int
) -> Sequence[ScopeLease]:
    """Lease due scopes that no worker has: those in `scope_ids`, or for None those due longest. The
    attempt is counted now: a worker that is killed cannot report a failure."""
    return access.fetch(
        ScopeLease,
        """
        with due_scopes as materialized (  -- once: evaluated again, it would lease the next ones
            select scope_id from scope_work
            where due_at <= now() and leased_until <= now()
                and (%(scope_ids)s::uuid[] is null or scope_id = any (%(scope_ids)s))
            order by due_at, scope_id limit %(limit)s for update skip locked)
        update scope_work w set leased_until = now() + make_interval(secs => %(seconds)s),
            attempts = w.attempts + 1
        from due_scopes where w.scope_id = due_scopes.scope_id
        returning w.scope_id, w.participants, w.attempts - 1 as attempts, w.last_error, (
            select coalesce(t.reading_space, t.swept_space) from tenants t
            where t.tenant_id = current_tenant()) as reading_space
        """,
        {
            "seconds": LEASE_SECONDS,
            "scope_ids": None if scope_ids is None else list(scope_ids),
            "limit": limit,
        },
    )


@dataclass(frozen=True)
class UnembeddedEvent:
    """An event without a vector in the requested space."""

    event_id: UUID
    scope_id: UUID
    seq: int
    participants: list[str]
    speaker: str | None
    content: str | None
    blob_cid: str | None
    mime_type: str | None
    file_name: str | None
    said_at: datetime
    is_erased: bool


def list_unembedded_events(
    access: TenantDb, scope_ids: Sequence[UUID], space: str, limit: int
) -> Sequence[UnembeddedEvent]:
    """The next events of these scopes to embed, by scope and seq."""
    return access.fetch(
        UnembeddedEvent,
        """
        select e.event_id, e.scope_id, e.seq, e.participants, e.speaker,
            left(e.content, 10000) as content, e.blob_cid, e.mime_type, e.file_name,
            coalesce(e.occurred_at, e.recorded_at) as said_at, e.erased_at is not null as is_erased
        from unnest(%(scope_ids)s) scope_id
        cross join lateral (  -- computed here: under a policy, a sum or coalesce uses no index
            select coalesce(max(p.embedded_seq), 0) as embedded_seq,
                coalesce(max(p.embedded_seq), 0) + %(limit)s as last_seq
            from embedding_progress p
            where p.scope_id = scope_id.scope_id and p.space = %(space)s) p
        cross join lateral (
            select * from events e
            where e.scope_id = scope_id.scope_id and e.seq > p.embedded_seq
                and e.seq <= p.last_seq  -- no gaps, no sort
            order by e.seq limit %(limit)s) e
        order by e.scope_id, e.seq limit %(limit)s
        """,
        {"scope_ids": list(scope_ids), "space": space, "limit": limit},
    )


@dataclass(frozen=True)
class CachedVector:
    """The cached vector of a text."""

    text_hash: bytes
    embedding: bytes


def read_cached_vectors(
    access: TenantDb, space: str, hashes: Sequence[bytes]
) -> Mapping[bytes, PackedVector]:
    """The cached vectors of texts, by hash. Texts that are not cached are absent."""
    rows = access.fetch(
        CachedVector,
        "select text_hash, halfvec_send(embedding) as embedding from embedding_cache"
        " where space = %(space)s and text_hash = any (%(hashes)s)",
        {"space": space, "hashes": list(hashes)},
    )
    return {row.text_hash: PackedVector(row.embedding) for row in rows}


def make_scope_due_now(access: TenantDb, scope_id: UUID) -> bool:
    """Make a scope's work due now, without touching its lease. Returns False where it has no work.
    Call it in a transaction."""
    return bool(
        access.execute(
            "update scope_work set due_at = least(due_at, now()) where scope_id = %(scope_id)s",
            {"scope_id": scope_id},
        )
    )


class EventVector(NamedTuple):
    """An event's vector, or the reason why it has none."""

    event: UnembeddedEvent
    text_hash: bytes
    embedding: PackedVector | None
    refusal: str | None
    passages: Sequence[PackedVector] | None = None
    """The vectors of the passages of a long text, in order."""


SELECT_VECTORS: LiteralString = """
    select r.*, case when r.passage_count is not null then (%(passages)s::halfvec[])
        [r.passages_before + 1 : r.passages_before + r.passage_count] end as passages
    from rows from (
        jsonb_to_recordset(%(rows)s::jsonb) as (scope_id uuid, event_id uuid, participants text[],
            text_hash text, refusal text, passages_before int, passage_count int),
        unnest(%(embeddings)s::halfvec[])) as r (scope_id, event_id, participants, text_hash,
            refusal, passages_before, passage_count, embedding)
"""
"""The rows of vectors, with the parameters of `make_vector_params`."""


def store_event_vectors(
    access: TenantDb, space: str, vectors: Sequence[EventVector], events: Sequence[UnembeddedEvent]
) -> None:
    """Store the vectors of `events` and the progress of their scopes. Idempotent. `events` must be
    as `list_unembedded_events` returned them: the next ones of each scope. Only erased events among
    them may lack a vector. Call it in a transaction."""
    access.execute(
        "with vectors as materialized ("  # noqa: S608
        + SELECT_VECTORS
        + """),
        new_vectors as (
            insert into event_vectors
                (tenant_id, space, scope_id, event_id, participants, embedding, refusal, passages)
            select current_tenant(), %(space)s, r.scope_id, r.event_id, r.participants,
                r.embedding, r.refusal, r.passages
            from vectors r
            on conflict do nothing)
        insert into embedding_cache (tenant_id, space, text_hash, event_id, participants, embedding)
        select distinct on (r.text_hash) current_tenant(), %(space)s, decode(r.text_hash, 'hex'),
            r.event_id, r.participants, r.embedding
        from vectors r
        where r.embedding is not null order by r.text_hash, r.event_id
        on conflict do nothing
        """,
        {"space": space, **make_vector_params(vectors)},
    )
    last_events = {event.scope_id: event for event in events}
    access.execute(
        """
        insert into embedding_progress (tenant_id, scope_id, space, participants, embedded_seq)
        select current_tenant(), r.scope_id, %(space)s, r.participants, r.seq
        from jsonb_to_recordset(%(progress)s::jsonb) r
            (scope_id uuid, participants text[], seq bigint)
        order by r.scope_id
        on conflict (tenant_id, scope_id, space) do update
        set embedded_seq = greatest(embedding_progress.embedded_seq, excluded.embedded_seq)
        """,
        {
            "space": space,
            "progress": json.dumps(
                [
                    {"scope_id": str(e.scope_id), "participants": e.participants, "seq": e.seq}
                    for e in last_events.values()
                ]
            ),
        },
    )


def make_vector_params(vectors: Sequence[EventVector]) -> dict[str, object]:
    """The parameters of SELECT_VECTORS."""
    counts = [len(v.passages or ()) for v in vectors]
    return {
        "rows": json.dumps(
            [
                {
                    "scope_id": str(v.event.scope_id),
                    "event_id": str(v.event.event_id),
                    "participants": v.event.participants,
                    "text_hash": v.text_hash.hex(),
                    "refusal": v.refusal,
                    "passages_before": before,
                    "passage_count": None if v.passages is None else len(v.passages),
                }
                for v, before in zip(vectors, accumulate(counts, initial=0), strict=False)
            ]
        ),
        "embeddings": PackedVectors(v.embedding for v in vectors),
        "passages": PackedVectors(passage for v in vectors for passage in v.passages or ()),
    }


def extend_leases(access: TenantDb, scope_ids: Collection[UUID]) -> None:
    """Extend the leases of scopes on which this worker goes on working. In a transaction."""
    access.execute(
        "update scope_work set leased_until = now() + make_interval(secs => %(seconds)s)"
        " where scope_id = any (%(scope_ids)s)",
        {"seconds": LEASE_SECONDS, "scope_ids": list(scope_ids)},
    )


def record_fold_progress(access: TenantDb, scope_id: UUID) -> None:
    """Record that the fold made progress: extend the lease, if there is one, and reset the
    attempts."""
    access.execute(
        "update scope_work set leased_until = now() + make_interval(secs => %(seconds)s),"
        " attempts = 0 where scope_id = %(scope_id)s and leased_until > now()",
        {"seconds": LEASE_SECONDS, "scope_id": scope_id},
    )


def release_scope_leases(
    access: TenantDb,
    scope_ids: Sequence[UUID],
    space: str,
    *,
    reading_space: str,
    made_progress: bool,
) -> int:
    """End leases. A scope's work is removed if its vectors in `space`, fold and indexed texts reach
    the end of its log and its nodes have vectors, else it is due at once; returns how many were
    removed. None is removed once the tenant reads another space than `reading_space`, for which
    `space` was chosen: the lock of the tenant makes this and a switch see each other. If the work
    `made_progress`, the rest is due from now: it is not overdue, as failed work is. Locking the
    scopes, always in the same order, makes this and an append that makes a scope dirty see each
    other."""
    params: dict[str, object] = {
        "scope_ids": list(scope_ids),
        "space": space,
        "reading_space": reading_space,
        "made_progress": made_progress,
    }
    access.execute_all(
        (
            "select from tenants where tenant_id = current_tenant() for key share",
            "select from scopes where scope_id = any (%(scope_ids)s) order by scope_id"
            " for no key update",
        ),
        params,
    )
    removed_count = access.execute(
        """
        delete from scope_work w using scopes s, embedding_progress p
        where w.scope_id = any (%(scope_ids)s) and s.scope_id = w.scope_id
            and p.scope_id = w.scope_id and p.space = %(space)s and p.embedded_seq >= s.last_seq
            and s.folded_seq >= s.last_seq and s.indexed_seq >= s.last_seq
            and %(reading_space)s = (
                select coalesce(t.reading_space, t.swept_space) from tenants t
                where t.tenant_id = current_tenant())
            and not exists (  -- a node of the graph that waits for its vector
                select from graph_nodes g where g.tenant_id = current_tenant()
                    and g.scope_id = w.scope_id and g.space is null)
        """,
        params,
    )
    access.execute(
        "update scope_work set leased_until = '-infinity', attempts = 0, last_error = null,"
        " due_at = case when %(made_progress)s then now() else due_at end"
        " where scope_id = any (%(scope_ids)s)",
        params,
    )
    return removed_count


def postpone_scopes(
    access: TenantDb, scope_ids: Sequence[UUID], seconds: int, reason: str, *, failed: bool = True
) -> None:
    """Return leases, to be tried again in `seconds`: after a failure, or to wait (which does not
    count as an attempt). The reason is stored."""
    access.execute(
        "update scope_work set leased_until = '-infinity',"
        " due_at = now() + make_interval(secs => %(seconds)s),"
        " attempts = case when %(is_failure)s then greatest(attempts, 1)"
        " else greatest(attempts - 1, 0) end, last_error = %(reason)s"
        " where scope_id = any (%(scope_ids)s)",
        {
            "scope_ids": list(scope_ids),
            "seconds": seconds,
            "reason": reason,
            "is_failure": failed,
        },
    )
