"""SQL that reads chains: the latest, those relevant to a question, and those of a session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from strandline.chains.store import ChainHead
from strandline.cursors import Position
from strandline.db.database import SnapshotRead, TenantDb
from strandline.embeddings.vector_formats import pack_vector


@dataclass(frozen=True)
class ChainView(ChainHead):
    """A chain with the fields of one of its versions, and further fields shown to readers."""

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
    echo_ids: list[UUID]
    """Those of its events that are echoes (chains/echoes)."""
    trust: str
    """The least trusted origin of its events."""


@dataclass(frozen=True)
class MatchedChain(ChainView):
    """A chain that was found, with its scores."""

    similarity: float | None
    """The cosine similarity of the question and the chain's summary; None if either has no
    vector."""
    relevance: float | None
    """The relevance of the best of its events; None without a question."""


_IN_VIEW: LiteralString = """
    view as materialized (
        select case when %(scope_id)s::uuid is null then scopes_in_view()
                else array[%(scope_id)s::uuid] end as scope_ids,
            case when %(session_id)s::text is not null then array(
                select c.chain_id from chains c
                where c.tenant_id = current_tenant() and c.scope_id = %(scope_id)s
                    and c.session_id = %(session_id)s and c.status = 'active'
                    and not exists (  -- merged with a run of another session
                        select from chain_versions v
                        where v.tenant_id = c.tenant_id and v.chain_id = c.chain_id
                            and v.session_id <> c.session_id)) end as chain_ids)
"""
"""The scopes whose chains are read (one, or all visible ones), and the chains of one session alone,
or null for those of all sessions. It is part of larger statements."""


def list_latest_chains(
    access: TenantDb, scope_id: UUID | None, limit: int, *, session_id: str | None = None
) -> SnapshotRead[MatchedChain]:
    """The active chains of a scope (None: of all visible scopes, with a viewer that is not empty),
    newest first by their last event. With a session of that scope, only chains whose events are all
    in that session."""
    return access.read_snapshot(
        MatchedChain,
        "with"  # noqa: S608
        + _IN_VIEW
        + """,
        heads as (  -- of many scopes only those are read whose newest chain is among the page's
            select head.scope_id
            from view cross join unnest(view.scope_ids) in_view (scope_id)
            cross join lateral (
                select c.scope_id, c.last_event_at, c.chain_id from chains c
                where c.tenant_id = current_tenant() and c.scope_id = in_view.scope_id
                    and c.status = 'active'
                    and (view.chain_ids is null or c.chain_id = any (view.chain_ids))
                order by c.last_event_at desc, c.chain_id limit 1) head
            order by head.last_event_at desc, head.chain_id limit %(limit)s),
        page as (
            select c.chain_id, c.version
            from heads cross join view
            cross join lateral (
                select c.chain_id, c.version, c.last_event_at from chains c
                where c.tenant_id = current_tenant() and c.scope_id = heads.scope_id
                    and c.status = 'active'
                    and (view.chain_ids is null or c.chain_id = any (view.chain_ids))
                order by c.last_event_at desc, c.chain_id limit %(limit)s) c
            order by c.last_event_at desc, c.chain_id limit %(limit)s)
        select r.*, echoes_of(r.scope_id, r.event_ids) as echo_ids,
            null::float8 as similarity, null::float8 as relevance
        from page p
        cross join lateral (
            select * from chain_details r
            where r.chain_id = p.chain_id and r.version = p.version offset 0) r
        order by r.last_event_at desc, r.chain_id
        """,
        {"scope_id": scope_id, "session_id": session_id, "limit": limit},
    )


def list_relevant_chains(
    access: TenantDb,
    scope_id: UUID | None,
    *,
    session_id: str | None,
    relevance: Mapping[UUID, float],
    vector: Sequence[float] | None,
    space: str,
    limit: int,
) -> Sequence[MatchedChain]:
    """The active chains that contain events relevant to a question, best first: the relevance of a
    chain is that of its best event in `relevance`. `vector` is the question's; `scope_id` and
    `session_id` as in `list_latest_chains`."""
    return access.fetch(
        MatchedChain,
        "with"  # noqa: S608
        + _IN_VIEW
        + """,
        relevant as materialized (
            select e.chain_id, max(f.relevance) as relevance
            from unnest(%(event_ids)s::uuid[], %(relevances)s::float8[]) f (event_id, relevance)
            cross join lateral (  -- by key: the planner may read all links for a join
                select e.chain_id from chain_events e
                where e.tenant_id = current_tenant() and e.event_id = f.event_id offset 0) e
            group by e.chain_id),
        page as (
            select c.chain_id, c.version, r.relevance, v.similarity
            from view, relevant r
            join chains c on c.tenant_id = current_tenant() and c.chain_id = r.chain_id
            left join lateral (
                select 1 - (v.embedding <=> %(vector)s::halfvec) as similarity from chain_vectors v
                where v.tenant_id = current_tenant() and v.space = %(space)s
                    and v.scope_id = c.scope_id and v.chain_id = c.chain_id) v on true
            where c.status = 'active'
                and (view.scope_ids is null or c.scope_id = any (view.scope_ids))
                and (view.chain_ids is null or c.chain_id = any (view.chain_ids))
            order by r.relevance desc, c.last_event_at desc, c.chain_id
            limit %(limit)s)
        select r.*, echoes_of(r.scope_id, r.event_ids) as echo_ids,
            p.similarity, p.relevance
        from page p join chain_details r on r.chain_id = p.chain_id and r.version = p.version
        order by p.relevance desc, r.last_event_at desc, r.chain_id
        """,
        {
            "scope_id": scope_id,
            "session_id": session_id,
            "event_ids": list(relevance),
            "relevances": list(relevance.values()),
            "vector": None if vector is None else pack_vector(vector),
            "space": space,
            "limit": limit,
        },
    )


@dataclass(frozen=True)
class SessionChain(ChainView):
    """A chain on a page of a session's chains, with the `seq` of the scope as of which the list
    shows it."""

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
    """The chains that contain events of a session, newest first by their last event. One row more
    than `limit` means that there is a next page. Later pages show the versions that existed at the
    first page."""
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
        select r.*, echoes_of(r.scope_id, r.event_ids) as echo_ids,
            mark.seq as shown_at_seq
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
