"""SQL to read chains: a scope's latest, those about a question, and those of a session."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pgvector import HalfVector

from strandline.chains.store import ChainHead
from strandline.cursors import Position
from strandline.db.database import SnapshotRead, TenantDb
from strandline.log.fulltext import sanitize_for_parser

_CANDIDATES = 200
"""How many index pieces that match a question's words are used to find chains."""


@dataclass(frozen=True)
class ChainView(ChainHead):
    """A chain with the fields of one of its versions, and what readers see beside them."""

    participants: list[str]
    created_at: datetime
    boosted_at: datetime | None
    cold_at: datetime
    promote_until: datetime
    archived_at: datetime | None
    quality: float
    rejected: str | None
    models: dict[str, Any]
    event_ids: list[UUID]
    trust: str
    """The least trusted origin of its events."""


@dataclass(frozen=True)
class MatchedChain(ChainView):
    """A chain that was found, with its scores."""

    similarity: float | None
    text_score: float | None


def list_latest(access: TenantDb, scope_id: UUID, limit: int) -> SnapshotRead[MatchedChain]:
    """A scope's active chains, newest first by their last event."""
    return access.read_snapshot(
        MatchedChain,
        """
        with page as (
            select c.chain_id, c.version from chains c
            where c.tenant_id = current_tenant() and c.scope_id = %(scope_id)s
                and c.status = 'active'
            order by c.last_event_at desc, c.chain_id limit %(limit)s)
        select r.*, null::float8 as similarity, null::float8 as text_score
        from page p join chain_details r on r.chain_id = p.chain_id and r.version = p.version
        order by r.last_event_at desc, r.chain_id
        """,
        {"scope_id": scope_id, "limit": limit},
    )


def search_chains(
    access: TenantDb,
    scope_id: UUID,
    *,
    question: str,
    vector: Sequence[float] | None,
    space: str,
    min_similarity: float,
    limit: int,
) -> SnapshotRead[MatchedChain]:
    """The active chains of a scope nearest to a question, with a cosine of at least
    `min_similarity`. They are followed by chains without a vector (all chains, if the question has
    none), by how well the words of their events match."""
    return access.read_snapshot(
        MatchedChain,
        """
        with nearest as materialized (
            select v.chain_id, 1 - (v.embedding <=> %(vector)s::halfvec) as similarity
            from chain_vectors v
            where %(vector)s::halfvec is not null and v.tenant_id = current_tenant()
                and v.space = %(space)s and v.scope_id = %(scope_id)s
            order by v.embedding <=> %(vector)s::halfvec, v.chain_id limit %(limit)s),
        word_search as materialized (  -- a search by words costs more, and is mostly not needed
            select %(vector)s::halfvec is null or (
                select count(*) from chains c
                where c.tenant_id = current_tenant() and c.scope_id = %(scope_id)s
                    and c.status = 'active') > (
                select count(*) from chain_vectors v
                where v.tenant_id = current_tenant() and v.space = %(space)s
                    and v.scope_id = %(scope_id)s) as words),
        word_matches as materialized (
            select e.chain_id, max(s.rank)::float8 as text_score
            from word_search, search_events(
                to_or_tsquery(%(question)s), array[%(scope_id)s::uuid], '{}',
                case when word_search.words then %(candidates)s else 0 end) s
            join chain_events e on e.tenant_id = current_tenant() and e.event_id = s.event_id
            group by e.chain_id),
        candidates as (
            select n.chain_id, n.similarity, null::float8 as text_score
            from nearest n where n.similarity >= %(min_similarity)s
            union all
            select w.chain_id, null, w.text_score from word_matches w
            where %(vector)s::halfvec is null or not exists (
                select from chain_vectors v
                where v.tenant_id = current_tenant() and v.space = %(space)s
                    and v.scope_id = %(scope_id)s and v.chain_id = w.chain_id)),
        page as (
            select c.chain_id, c.version, f.similarity, f.text_score
            from candidates f join chains c on c.tenant_id = current_tenant()
                and c.chain_id = f.chain_id
            where c.scope_id = %(scope_id)s and c.status = 'active'
            order by f.similarity desc nulls last, f.text_score desc nulls last, c.chain_id
            limit %(limit)s)
        select r.*, p.similarity,
            p.text_score
        from page p join chain_details r on r.chain_id = p.chain_id and r.version = p.version
        order by p.similarity desc nulls last, p.text_score desc nulls last, r.chain_id
        """,
        {
            "scope_id": scope_id,
            "question": sanitize_for_parser(question),
            "vector": None if vector is None else HalfVector(list(vector)).to_text(),
            "space": space,
            "min_similarity": min_similarity,
            "limit": limit,
            "candidates": _CANDIDATES,
        },
    )


@dataclass(frozen=True)
class SessionChain(ChainView):
    """A chain on a page of a session's chains, with the scope's `seq` as of which the list shows
    it."""

    shown_at_seq: int


def list_session_chains(
    access: TenantDb,
    session_id: str,
    scope_id: UUID,
    *,
    statuses: Sequence[str],
    after: Position | None,
    limit: int,
) -> SnapshotRead[SessionChain]:
    """The chains that contain events of a session, newest first by their last event. One more than
    `limit` means that there is a next page. Later pages show the versions that existed at the first
    page."""
    return access.read_snapshot(
        SessionChain,
        """
        with mark as materialized (
            select coalesce(%(seq)s, (
                select v.created_at_seq from chain_versions v
                where v.tenant_id = current_tenant() and v.scope_id = %(scope_id)s
                order by v.created_at_seq desc limit 1)) as seq),
        changed_chains as materialized (  -- since the first page: none for it, few for later pages
            select distinct v.chain_id from chain_versions v
            where v.tenant_id = current_tenant() and v.scope_id = %(scope_id)s
                and %(seq)s is not null and v.created_at_seq > (select seq from mark)),
        page as (
            select t.chain_id, t.version, t.last_event_at from (
                (select c.chain_id, c.version, c.last_event_at
                from chains c
                where c.tenant_id = current_tenant() and c.scope_id = %(scope_id)s
                    and c.status = any (%(statuses)s)
                    and (%(at)s::timestamptz is null
                        or c.last_event_at <= %(at)s
                        and (c.last_event_at, c.chain_id) < (%(at)s, %(place)s::uuid))
                    and not exists (select from changed_chains n where n.chain_id = c.chain_id)
                    and exists (
                        select from chain_versions v
                        where v.tenant_id = c.tenant_id and v.scope_id = c.scope_id
                            and v.session_id = %(session_id)s and v.chain_id = c.chain_id)
                order by c.last_event_at desc, c.chain_id desc limit %(limit)s + 1)
                union all
                select c.chain_id, shown_version.version, shown_version.last_event_at
                from changed_chains n
                join chains c on c.tenant_id = current_tenant() and c.chain_id = n.chain_id
                cross join lateral (
                    select v.version, v.last_event_at from chain_versions v
                    where v.tenant_id = c.tenant_id and v.chain_id = c.chain_id
                        and v.created_at_seq <= (select seq from mark)
                    order by v.version desc limit 1) shown_version
                where c.status = any (%(statuses)s)
                    and (shown_version.last_event_at, c.chain_id) < (%(at)s, %(place)s::uuid)
                    and exists (
                        select from chain_versions v
                        where v.tenant_id = c.tenant_id and v.scope_id = c.scope_id
                            and v.session_id = %(session_id)s and v.chain_id = c.chain_id
                            and v.created_at_seq <= (select seq from mark))) t
            order by t.last_event_at desc, t.chain_id desc limit %(limit)s + 1)
        select r.*, mark.seq as shown_at_seq
        from page p
        join chain_details r on r.chain_id = p.chain_id and r.version = p.version
        cross join mark
        order by p.last_event_at desc, p.chain_id desc
        """,
        {
            "session_id": session_id,
            "scope_id": scope_id,
            "statuses": list(statuses),
            "seq": after and after.seq,
            "at": after and after.at,
            "place": after and after.row_id,
            "limit": limit,
        },
    )
