"""SQL for recall: one statement that fuses, by rank, matches by words, by vector, and events too
new for a vector."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pgvector import HalfVector

from strandline.db.database import SnapshotRead, TenantDb
from strandline.log import words_index
from strandline.log.fulltext import sanitize_for_parser
from strandline.log.store import MAX_LISTED_SCOPES, Event


@dataclass(frozen=True)
class RankedEvent(Event):
    """An event that was found, with its ranks and scores."""

    score: float
    text_rank: int | None
    text_score: float | None
    vector_rank: int | None
    cosine: float | None
    fresh_rank: int | None
    start_char: int | None
    end_char: int | None
    fresh: int
    """How many of the visible events that were examined have no vector yet."""


def search_ranked(
    access: TenantDb,
    *,
    question: str,
    vector: list[float] | None,
    space: str,
    filters: Mapping[str, Any],
    limit: int,
) -> SnapshotRead[RankedEvent]:
    """The best `limit` visible events for a question, best first. Without a query vector it
    searches by words and, for events without a vector, by freshness."""
    return access.read_snapshot(
        RankedEvent,
        """
        with view as materialized (select scopes_in_view() as scope_ids),
        by_words as (
            select distinct on (s.event_id) s.event_id, s.rank as score, s.start_char, s.end_char
            from view, search_events(
                to_or_tsquery(%(question)s),
                -- a long list of scopes costs more than it saves: visibility is checked anyway
                case when cardinality(view.scope_ids) <= %(max_scopes)s then view.scope_ids end,
                %(filter)s::jsonb, %(candidates)s) s
            order by s.event_id, s.rank desc),
        by_vector as (
            (select v.event_id, 1 - (v.embedding <=> %(vector)s::halfvec) as score
            from (
                select event_id, space, embedding from event_vectors
                where scope_id = any ((select scope_ids from view)::uuid[])
                union all
                select event_id, space, embedding from event_vectors
                where (select scope_ids from view) is null) v
            where %(vector)s::halfvec is not null and %(filter)s::jsonb = '{}'
                and v.space = %(space)s and v.embedding is not null
            order by v.embedding <=> %(vector)s::halfvec, v.event_id
            limit %(candidates)s)
            union all
            select n.event_id, 1 - n.distance
            from view, nearest_matching_filter(%(vector)s::halfvec, %(space)s, view.scope_ids,
                %(filter)s::jsonb, %(candidates)s) n
            where %(vector)s::halfvec is not null and %(filter)s::jsonb <> '{}'),
        fresh as (  -- every scope with events past its last vector has pending work
            select e.event_id, e.recorded_at
            from (
                select scope_id from scope_work
                where scope_id = any ((select scope_ids from view)::uuid[])
                union all
                select scope_id from scope_work where (select scope_ids from view) is null) w
            left join embedding_progress p on p.scope_id = w.scope_id and p.space = %(space)s
            cross join lateral (
                select e.event_id, e.recorded_at from events e
                -- not coalesce: under a policy the planner would not use the index for it
                where e.scope_id = w.scope_id
                    and e.seq > case when p.embedded_seq is null then 0 else p.embedded_seq end
                    and matches_filter(e, %(filter)s::jsonb)
                order by e.seq desc limit %(max_fresh)s) e
            order by e.recorded_at desc, e.event_id desc limit %(max_fresh)s),
        ranked as (
            select event_id, row_number() over (order by score desc, event_id desc) as text_rank,
                score as text_score, null::bigint as vector_rank, null::float8 as cosine,
                null::bigint as fresh_rank, start_char, end_char
            from by_words
            union all
            select event_id, null, null, row_number() over (order by score desc, event_id), score,
                null, null, null
            from by_vector
            union all
            select event_id, null, null, null, null,
                row_number() over (order by recorded_at desc, event_id desc), null, null
            from fresh),
        top as (
            select event_id,
                sum(coalesce(%(text_weight)s / (%(k)s + text_rank), 0)
                    + coalesce(%(vector_weight)s / (%(k)s + vector_rank), 0)
                    + coalesce(%(fresh_weight)s / (%(k)s + fresh_rank), 0))::float8 as score,
                max(text_rank) as text_rank, max(text_score)::float8 as text_score,
                max(vector_rank) as vector_rank, max(cosine) as cosine,
                max(fresh_rank) as fresh_rank, max(start_char) as start_char,
                max(end_char) as end_char
            from ranked group by event_id
            order by score desc, event_id desc limit %(limit)s)
        select e.*, b.score, b.text_rank, b.text_score, b.vector_rank, b.cosine, b.fresh_rank,
            b.start_char, b.end_char, (select count(*) from fresh) as fresh
        from top b join event_rows e on e.event_id = b.event_id
        order by b.score desc, b.event_id desc
        """,
        {
            "question": sanitize_for_parser(question),
            "vector": None if vector is None else HalfVector(vector).to_text(),
            "space": space,
            "filter": json.dumps(filters),
            "limit": limit,
            "candidates": words_index.CANDIDATES,
            "max_fresh": words_index.MAX_FRESH,
            "max_scopes": MAX_LISTED_SCOPES,
            "k": words_index.RRF_K,
            "text_weight": words_index.TEXT_WEIGHT,
            "vector_weight": words_index.VECTOR_WEIGHT,
            "fresh_weight": words_index.FRESH_WEIGHT,
        },
    )
