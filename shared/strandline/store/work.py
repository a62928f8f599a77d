"""What is due in the background: scopes with events past their last vector, and their leases."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from pgvector import HalfVector
from psycopg.rows import class_row

from strandline.db import Access, Connection, translated

LEASE_SECONDS = 120
"""How long a scope's work belongs to one worker: a batch takes seconds, a dead worker's scope is
taken up again by the sweep."""


@dataclass(frozen=True)
class _Tenant:
    tenant_id: str


def tenants(connection: Connection, space: str, now: datetime) -> list[str]:
    """Tenants with work due, or with events that have no vector in this space."""
    with translated(), connection.cursor(row_factory=class_row(_Tenant)) as cursor:
        rows = cursor.execute("select * from tenants_with_work(%s, %s)", (space, now)).fetchall()
    return [row.tenant_id for row in rows]


def name_unembedded(access: Access, space: str, now: datetime) -> int:
    """Name every scope whose vectors in this space end before its log, as due; gives how many were
    not named yet."""
    return access.execute(
        """
        insert into scope_work (tenant_id, scope_id, participants, due_at)
        select s.tenant_id, s.scope_id, s.participants, %(now)s
        from scopes s
        left join scope_progress p on p.scope_id = s.scope_id and p.space = %(space)s
        where s.last_seq > coalesce(p.embedded_seq, 0)
        on conflict do nothing
        """,
        {"space": space, "now": now},
    )


@dataclass(frozen=True)
class Lease:
    """A scope that is ours for a while."""

    scope_id: UUID
    participants: list[str]
    attempts: int


def lease(
    access: Access, now: datetime, scope_ids: Sequence[UUID] | None, limit: int
) -> Sequence[Lease]:
    """Take due scopes that nobody works on: the ones named, or the longest due."""
    return access.fetch(
        Lease,
        """
        update scope_work w set leased_until = %(now)s + make_interval(secs => %(seconds)s)
        from (
            select scope_id from scope_work
            where due_at <= %(now)s and leased_until <= %(now)s
                and (%(scope_ids)s::uuid[] is null or scope_id = any (%(scope_ids)s))
            order by due_at, scope_id limit %(limit)s for update skip locked) due
        where w.scope_id = due.scope_id
        returning w.scope_id, w.participants, w.attempts
        """,
        {
            "now": now,
            "seconds": LEASE_SECONDS,
            "scope_ids": None if scope_ids is None else list(scope_ids),
            "limit": limit,
        },
    )


@dataclass(frozen=True)
class Unembedded:
    """An event without a vector in the space that is asked for."""

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
    erased: bool


def unembedded(access: Access, scope_id: UUID, space: str, limit: int) -> Sequence[Unembedded]:
    """The next events of a scope to embed, by seq."""
    return access.fetch(
        Unembedded,
        """
        select event_id, scope_id, seq, participants, speaker, left(content, 4000) as content,
            blob_cid, mime_type, file_name, coalesce(occurred_at, recorded_at) as said_at,
            erased_at is not null as erased
        from events
        where scope_id = %(scope_id)s and seq > coalesce((
            select embedded_seq from scope_progress
            where scope_id = %(scope_id)s and space = %(space)s), 0)
        order by seq limit %(limit)s
        """,
        {"scope_id": scope_id, "space": space, "limit": limit},
    )


@dataclass(frozen=True)
class Cached:
    """A text's vector, known from before."""

    text_hash: bytes
    embedding: str


def cached(access: Access, space: str, hashes: Sequence[bytes]) -> Mapping[bytes, str]:
    """Vectors of texts that were embedded before, as Postgres writes them."""
    rows = access.fetch(
        Cached,
        "select text_hash, embedding::text from embedding_cache"
        " where space = %(space)s and text_hash = any (%(hashes)s)",
        {"space": space, "hashes": list(hashes)},
    )
    return {row.text_hash: row.embedding for row in rows}


class Vector(NamedTuple):
    """An event's vector, or why it has none."""

    event: Unembedded
    text_hash: bytes
    embedding: str | None
    refusal: str | None


def as_text(vector: list[float]) -> str:
    """A vector as Postgres reads it."""
    return HalfVector(vector).to_text()


def store_vectors(access: Access, space: str, vectors: Sequence[Vector], last: Unembedded) -> None:
    """Store the vectors of one scope's next events, up to `last`, and that it is embedded so far;
    doing it twice changes nothing. Only erased events among them may be without a vector."""
    rows: list[dict[str, Any]] = [
        {
            "event_id": str(v.event.event_id),
            "text_hash": v.text_hash.hex(),
            "embedding": v.embedding,
            "refusal": v.refusal,
        }
        for v in vectors
    ]
    params: dict[str, object] = {
        "space": space,
        "rows": json.dumps(rows),
        "scope_id": last.scope_id,
        "participants": last.participants,
        "seq": last.seq,
    }
    access.execute(
        """
        insert into event_vectors
            (tenant_id, space, scope_id, event_id, participants, embedding, refusal)
        select current_tenant(), %(space)s, %(scope_id)s, r.event_id, %(participants)s,
            r.embedding::halfvec, r.refusal
        from jsonb_to_recordset(%(rows)s::jsonb) r (event_id uuid, embedding text, refusal text)
        on conflict do nothing
        """,
        params,
    )
    access.execute(
        """
        insert into embedding_cache (tenant_id, space, text_hash, event_id, participants, embedding)
        select distinct on (r.text_hash) current_tenant(), %(space)s, decode(r.text_hash, 'hex'),
            r.event_id, %(participants)s, r.embedding::halfvec
        from jsonb_to_recordset(%(rows)s::jsonb) r (event_id uuid, text_hash text, embedding text)
        where r.embedding is not null order by r.text_hash, r.event_id
        on conflict do nothing
        """,
        params,
    )
    access.execute(
        """
        insert into scope_progress (tenant_id, scope_id, space, participants, embedded_seq)
        values (current_tenant(), %(scope_id)s, %(space)s, %(participants)s, %(seq)s)
        on conflict (tenant_id, scope_id, space) do update
        set embedded_seq = greatest(scope_progress.embedded_seq, excluded.embedded_seq)
        """,
        params,
    )


def settle(access: Access, scope_id: UUID, space: str) -> bool:
    """End a lease: the work is gone if the vectors reach the log's end, else due at once. The
    scope's lock makes this and an append that turns the scope dirty see each other."""
    access.execute(
        "select from scopes where scope_id = %(scope_id)s for no key update", {"scope_id": scope_id}
    )
    done = access.execute(
        """
        delete from scope_work w using scopes s, scope_progress p
        where w.scope_id = %(scope_id)s and s.scope_id = w.scope_id
            and p.scope_id = w.scope_id and p.space = %(space)s and p.embedded_seq >= s.last_seq
        """,
        {"scope_id": scope_id, "space": space},
    )
    if not done:
        access.execute(
            "update scope_work set leased_until = '-infinity', attempts = 0, last_error = null"
            " where scope_id = %(scope_id)s",
            {"scope_id": scope_id},
        )
    return bool(done)


def put_off(access: Access, scope_id: UUID, due_at: datetime, reason: str) -> None:
    """Give a lease back after a failure, to be tried again at `due_at`; the reason is kept."""
    access.execute(
        "update scope_work set leased_until = '-infinity', due_at = %(due_at)s,"
        " attempts = attempts + 1, last_error = %(reason)s where scope_id = %(scope_id)s",
        {"scope_id": scope_id, "due_at": due_at, "reason": reason},
    )
