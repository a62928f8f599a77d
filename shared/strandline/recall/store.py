"""SQL for recall: one statement that finds the candidates for a question, by words, by vector, and
among events too new for a vector; and one that reads the best."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from pgvector import HalfVector

from strandline.db.database import SnapshotRead, TenantDb
from strandline.db.pipeline import RowQuery
from strandline.log import indexed_text
from strandline.log.fulltext_words import prepare_question_for_search
from strandline.log.store import MAX_LISTED_SCOPES, Event
from strandline.recall.cosine_scale import SAMPLED_EVENTS
from strandline.recall.features import WINDOW, CandidateEvent

_MAX_WORDS = 60
"""The maximum number of words of a question that are searched for: each has one bit of a bigint."""
_LARGE_VIEW = 5_000
"""A view with more events is large: only some of the events that contain a word are scored, and
vectors are found by their bit codes."""


@dataclass(slots=True)
class CandidateRow(CandidateEvent):
    """A candidate. The first row also holds the fields that are common to all candidates."""

    start_char: int | None
    end_char: int | None
    is_fresh: bool
    """Whether it is among the newest events that have no vector yet."""
    words: list[str] | None
    document_counts: list[int] | None
    """The number of visible events that contain each word, regardless of the filter."""
    events_in_view: int | None
    """The number of visible events, regardless of the filter."""
    sampled_cosines: list[float] | None
    """The question's cosines with events spread evenly over the view, regardless of the filter, but
    for tools' output; empty without a vector."""
    sampled_tool_cosines: list[float] | None
    """Those with the tools' output of that sample."""
    min_known: float | None
    """The tenant's own threshold."""
    today: date | None
    """The day of `now` in the tenant's time zone."""
    unfolded_events: int | None
    """The number of visible events that no fold has read yet, regardless of the filter."""


def count_filter_matches(rows: Sequence[CandidateRow]) -> int | None:
    """The number of events that pass a filter, if all of them with a vector are candidates; else
    None."""
    with_vector = sum(row.cosine is not None for row in rows)
    return len(rows) if with_vector < indexed_text.CANDIDATES else None


def search_candidate_events(
    access: TenantDb,
    *,
    question: str,
    vector: Sequence[float] | None,
    space: str,
    filters: Mapping[str, Any],
    now: datetime,
    scopes: Sequence[UUID] | None = None,
    spellings: Sequence[str] = (),
) -> SnapshotRead[CandidateRow]:
    """Find the visible events that may answer a question asked at `now`, in no particular order:
    those that contain its rarest words, those closest to its vector, and the newest without a
    vector. `scopes` limits the search to these scopes. `spellings` are further words in the index's
    form, the last of `words`."""
    return access.read_snapshot(
        CandidateRow,
        """
        with question as materialized (
            select question_words(%(question)s, %(max_words)s) || %(spellings)s::text[] as words),
        tenant as materialized (
            select coalesce(max(t.time_zone), 'UTC') as time_zone,
                max((t.tuning ->> 'min_known')::float8) as min_known
            from tenants t where t.tenant_id = current_tenant()),
        view as materialized (
            select v.scope_ids, v.events,
                v.events > %(large_view)s and %(filter)s::jsonb = '{}' as is_large,
                -- a long list of scopes costs more than it saves: visibility is checked anyway
                case when cardinality(v.scope_ids) <= %(max_scopes)s or %(scopes)s is not null
                    then v.scope_ids end as few_scope_ids
            from read_view(%(scopes)s::uuid[], case when %(filter)s::jsonb = '{}'
                then %(large_view)s end) v),
        -- a tombstone has no CID, and is in no index any more
        erased as materialized (
            select e.event_id from events e
            where e.erased_at is not null and e.cid is not null
                and e.scope_id = any ((select scope_ids from view)::uuid[])
            union all
            select e.event_id from events e
            where e.erased_at is not null and e.cid is not null
                and (select scope_ids from view) is null),
        size as materialized (
            select greatest(view.events - (select count(*) from erased)
                - count_erased(view.scope_ids), 0) as events from view),
        by_words as materialized (
            select w.* from question, view, size, search_words(
                question.words, view.few_scope_ids, %(filter)s::jsonb, size.events,
                %(candidates)s) w
            where not view.is_large
            union all
            select w.* from question, view, size, search_words_in_large_view(
                question.words, view.few_scope_ids, size.events, %(candidates)s) w
            where view.is_large),
        by_vector as (
            (select v.event_id, 1 - (v.embedding <=> %(vector)s::halfvec) as cosine
            from (
                select event_id, space, embedding from event_vectors
                where scope_id = any ((select scope_ids from view)::uuid[])
                union all
                select event_id, space, embedding from event_vectors
                where (select scope_ids from view) is null) v
            where %(vector)s::halfvec is not null and %(filter)s::jsonb = '{}'
                and not (select is_large from view)
                and v.space = %(space)s and v.embedding is not null
                and not exists (select from erased where erased.event_id = v.event_id)
            order by v.embedding <=> %(vector)s::halfvec, v.event_id
            limit %(candidates)s)
            union all
            select n.event_id, 1 - n.distance
            from view, nearest_by_code(%(vector)s::halfvec, %(space)s, view.scope_ids,
                %(candidates)s) n
            where %(vector)s::halfvec is not null and view.is_large
            union all
            select n.event_id, 1 - n.distance
            from view, nearest_matching_filter(%(vector)s::halfvec, %(space)s, view.scope_ids,
                %(filter)s::jsonb, %(candidates)s) n
            where %(vector)s::halfvec is not null and %(filter)s::jsonb <> '{}'),
        -- every scope with events that have no vector or are not folded has pending work
        pending_scopes as materialized (
            select scope_id from scope_work
            where scope_id = any ((select scope_ids from view)::uuid[])
            union all
            select scope_id from scope_work where (select scope_ids from view) is null),
        -- A process hears of a switch within a minute. What it asks until then, in the space that
        -- was left, finds what came since as it finds what has no vector yet.
        is_left as materialized (
            select exists (
                select from space_switches s
                where s.tenant_id = current_tenant() and s.from_space = %(space)s
                    and s.ended_at > now() - interval '2 minutes' and s.switched) as yes),
        fresh as (
            select e.event_id
            from (
                select scope_id from pending_scopes
                union all
                select s.scope_id from scopes s
                where (select yes from is_left)
                    and s.scope_id not in (select scope_id from pending_scopes)
                    and ((select scope_ids from view) is null
                        or s.scope_id = any ((select scope_ids from view)::uuid[]))) w
            left join embedding_progress p on p.scope_id = w.scope_id and p.space = %(space)s
            cross join lateral (
                select e.event_id, e.recorded_at from events e
                -- not coalesce: under a policy the planner would not use the index for it
                where e.scope_id = w.scope_id
                    and e.seq > case when p.embedded_seq is null then 0 else p.embedded_seq end
                    and matches_filter(e, %(filter)s::jsonb)
                order by e.seq desc limit %(max_fresh)s) e
            order by e.recorded_at desc, e.event_id desc limit %(max_fresh)s),
        candidates as materialized (
            select c.event_id, max(c.word_bits) as word_bits, max(c.start_char) as start_char,
                max(c.end_char) as end_char, max(c.cosine) as cosine,
                bool_or(c.is_fresh) as is_fresh
            from (
                (select distinct on (w.event_id) w.event_id, w.word_bits, w.start_char, w.end_char,
                    null::float8 as cosine, false as is_fresh
                from by_words w where w.event_id is not null
                order by w.event_id, w.weight desc)
                union all
                select event_id, null, null, null, cosine, false from by_vector
                union all
                select event_id, null, null, null, null, true from fresh) c
            group by c.event_id),
        in_lanes as (  -- in order, so that the sum of steps below needs no further sort
            select c.*, e.scope_id, lane.session_id, e.seq, e.speaker,
                e.type = 'statement' as is_statement,
                case when e.type = 'observation' then 'tool'
                    when e.role = 'agent' and e.type in ('message', 'thought', 'action')
                    then 'agent' end as author,
                coalesce(e.occurred_at, e.recorded_at) as said_at,
                coalesce(octet_length(e.content), 0) as text_bytes,
                coalesce(octet_length(substring(right(e.content, 300)
                    from '([^.!?\u3002\uff01\uff1f\u061f\n]*[?\uff1f\u061f])\\s*$')), 0)
                    as question_bytes,
                says_nothing(e.content, e.role = 'agent' and e.type = 'message')
                    as says_nothing,
                lag(e.seq) over (
                    partition by e.scope_id, lane.session_id collate "C" order by e.seq)
                    as seq_before,
                row_number() over (
                    order by e.scope_id, lane.session_id collate "C", e.seq) as n
            from candidates c
            cross join lateral (  -- by key: the planner may read all events for a join
                select * from events e
                where e.event_id = c.event_id and e.erased_at is null offset 0) e
            cross join lateral (  -- a statement is alone
                select case when e.type = 'statement' then e.event_id::text
                    else e.session_id end as session_id) lane)
        select f.event_id, f.scope_id, f.session_id, f.seq, f.speaker, f.said_at,
            sum(steps.events) over (
                partition by f.scope_id, f.session_id collate "C" order by f.seq)::bigint as place,
            greatest(least((f.said_at at time zone tenant.time_zone)::date, date '9999-12-31'),
                date '0001-01-01') as said_on,
            f.question_bytes, f.is_statement, f.author, f.text_bytes, f.says_nothing,
            coalesce(f.word_bits, 0) as word_bits,
            coalesce(f.cosine, stored.cosine) as cosine, f.start_char, f.end_char, f.is_fresh,
            head.words, head.document_counts, head.events_in_view, head.sampled_cosines,
            head.sampled_tool_cosines, head.min_known, head.today, head.unfolded_events
        from in_lanes f
        cross join lateral (
            select count(*) as events from (
                select from events e
                where f.seq_before < f.seq - 1
                    and e.scope_id = f.scope_id and e.session_id = f.session_id
                    and e.seq > f.seq_before and e.seq <= f.seq and e.erased_at is null
                    and not is_statement(e.type)
                order by e.seq limit %(far)s) e) counted
        cross join lateral (  -- how many events of its lane it is after the candidate before it
            select case
                when f.seq_before is null then 0
                when f.seq_before = f.seq - 1 then 1
                else counted.events end as events) steps
        cross join tenant
        left join lateral (
            select question.words, (select document_counts from by_words limit 1),
                size.events as events_in_view,
                sample.cosines as sampled_cosines, sample.tool_cosines as sampled_tool_cosines,
                (select coalesce(sum(s.last_seq - s.folded_seq), 0)::bigint
                    from pending_scopes w cross join lateral (
                        select s.last_seq, s.folded_seq from scopes s
                        where s.tenant_id = current_tenant() and s.scope_id = w.scope_id
                        offset 0) s) as unfolded_events,
                tenant.min_known,
                greatest(least((%(now)s::timestamptz at time zone tenant.time_zone)::date,
                    date '9999-12-31'), date '0001-01-01') as today
            from question, size, view, sample_view(
                %(vector)s::halfvec, %(space)s, view.scope_ids, %(sampled)s) sample) head
            on f.n = 1
        left join lateral (
            select 1 - (v.embedding <=> %(vector)s::halfvec) as cosine from event_vectors v
            where f.cosine is null and v.space = %(space)s and v.scope_id = f.scope_id
                and v.event_id = f.event_id and v.embedding is not null offset 0) stored on true
        """,
        {
            "question": prepare_question_for_search(question),
            "max_words": _MAX_WORDS - len(spellings),
            "spellings": list(spellings),
            "vector": None if vector is None else HalfVector(list(vector)).to_text(),
            "space": space,
            "filter": json.dumps(filters),
            "scopes": None if scopes is None else list(scopes),
            "candidates": indexed_text.CANDIDATES,
            "max_fresh": indexed_text.MAX_FRESH,
            "max_scopes": MAX_LISTED_SCOPES,
            "far": WINDOW + 1,
            "sampled": SAMPLED_EVENTS,
            "large_view": _LARGE_VIEW,
            "now": now,
        },
    )


def read_visible_events(access: TenantDb, event_ids: Sequence[UUID]) -> Mapping[UUID, Event]:
    """Read those of these events that are visible, by id."""
    query = make_visible_events_query(event_ids)
    rows = access.fetch(query.row_type, query.statement, query.params)
    return {row.event_id: row for row in rows}


def make_visible_events_query(event_ids: Sequence[UUID]) -> RowQuery[Event]:
    """The query for those of these events that are visible."""
    return RowQuery(
        Event,
        """
        select e.*, k.source_event_key
        from event_rows e
        left join event_keys k on k.tenant_id = current_tenant() and k.event_id = e.event_id
        where e.event_id = any (%(event_ids)s)
        """,
        {"event_ids": list(event_ids)},
    )


@dataclass
class SessionNeighbour(Event):
    """An event of a session, near another one."""

    of_id: UUID
    """The id of the other event."""
    place: int
    """-1: directly before it; 1, 2: the first and second after it."""
    says_nothing: bool
    """Whether it could answer no question, as `CandidateEvent.says_nothing`."""


def read_session_neighbours(
    access: TenantDb, event_ids: Sequence[UUID], with_later: int
) -> Sequence[SessionNeighbour]:
    """The event before each of these visible events in its session, for the first `with_later` of
    them the two events after it, and for the others that ask a question the one after it, in no
    particular order. Statements have no neighbours and are not neighbours."""
    return access.fetch(
        SessionNeighbour,
        """
        select b.*, k.source_event_key, e.event_id as of_id, near.place,
            says_nothing(b.content, b.role = 'agent' and b.type = 'message') as says_nothing
        from unnest(%(event_ids)s::uuid[]) with ordinality shown (event_id, n)
        cross join lateral (
            select e.event_id, e.scope_id, e.session_id, e.seq,
                case when shown.n <= %(with_later)s then 2
                    when right(e.content, 100) ~ '[?\uff1f\u061f]\\s*$' then 1
                    else 0 end as later_count
            from events e
            where e.event_id = shown.event_id and not is_statement(e.type) offset 0) e
        cross join lateral (
            (select e2.event_id, -1 as place from events e2
            where e2.scope_id = e.scope_id and e2.session_id = e.session_id
                and e2.seq < e.seq and e2.erased_at is null and not is_statement(e2.type)
            order by e2.seq desc limit 1)
            union all
            select later.event_id, row_number() over (order by later.seq)::int from (
                select e2.event_id, e2.seq from events e2
                where e.later_count > 0
                    and e2.scope_id = e.scope_id and e2.session_id = e.session_id
                    and e2.seq > e.seq and e2.erased_at is null and not is_statement(e2.type)
                order by e2.seq limit e.later_count) later) near
        cross join lateral (
            select * from event_rows r where r.event_id = near.event_id offset 0) b
        left join event_keys k on k.tenant_id = current_tenant() and k.event_id = b.event_id
        """,
        {"event_ids": list(event_ids), "with_later": with_later},
    )
