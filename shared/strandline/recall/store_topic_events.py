"""SQL for questions that need breadth: the events of the topics that the best hits belong to."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.embeddings.vector_formats import pack_vector
from strandline.recall.store import CandidateRow

_MAX_EVENTS_PER_TOPIC = 200
"""The maximum number of events that are read of one topic."""


@dataclass(slots=True)
class TopicEventRow(CandidateRow):
    """An event of a topic. As it was not found by its words, these are not known."""

    topic: str
    """What the events of one topic have in common: the id of their chain, or their lane."""


def read_events_of_seed_topics(
    access: TenantDb,
    seed_ids: Sequence[UUID],
    *,
    question_vector: Sequence[float] | None,
    space: str,
    filters: Mapping[str, Any],
    max_topics: int,
) -> Sequence[TopicEventRow]:
    """The visible events of the topics of the seeds, which are best first, as far as they match the
    filters: those of a seed's chain, rejected ones left out, or, of a seed that is in no chain yet,
    those of its lane that are in none either, from the first seed on. The first `max_topics` topics
    count, and of each its first 200 events. A statement has no topic."""
    return access.fetch(
        TopicEventRow,
        """
        with tenant as materialized (
            select coalesce(max(t.time_zone), 'UTC') as time_zone
            from tenants t where t.tenant_id = current_tenant()),
        seeds as materialized (
            select s.n, e.scope_id, e.seq, c.chain_id,
                case when c.chain_id is null then e.session_id end as tail_of
            from unnest(%(seed_ids)s::uuid[]) with ordinality s (event_id, n)
            cross join lateral (  -- by key: the planner may read all events for a join
                select e.scope_id, e.session_id, e.seq from events e
                where e.tenant_id = current_tenant() and e.event_id = s.event_id
                    and e.erased_at is null and not is_statement(e.type) offset 0) e
            left join lateral (
                select c.chain_id from chain_events c
                where c.tenant_id = current_tenant() and c.event_id = s.event_id offset 0) c
                on true),
        topics as materialized (
            select s.chain_id, s.scope_id, s.tail_of, min(s.n) as n, min(s.seq) as seq
            from seeds s
            where not exists (
                select from chains c
                where c.tenant_id = current_tenant() and c.chain_id = s.chain_id
                    and c.status = 'rejected')
            group by s.chain_id, s.scope_id, s.tail_of
            order by min(s.n) limit %(max_topics)s),
        members as (
            select t.chain_id::text as topic, c.event_id
            from topics t cross join lateral (
                select c.event_id from chain_events c
                where c.tenant_id = current_tenant() and c.chain_id = t.chain_id
                order by c.seq limit %(max_events)s) c
            union all
            select concat(t.scope_id, ' ', t.tail_of), e.event_id
            from topics t cross join lateral (
                select e.event_id from events e
                where e.scope_id = t.scope_id and e.session_id = t.tail_of and e.seq >= t.seq
                    and e.erased_at is null and not is_statement(e.type)
                    and not exists (
                        select from chain_events c
                        where c.tenant_id = current_tenant() and c.event_id = e.event_id)
                order by e.seq limit %(max_events)s) e)
        select m.topic, e.event_id, e.scope_id, e.session_id, e.seq, 0::bigint as place, e.speaker,
            said.at as said_at,
            greatest(least((said.at at time zone tenant.time_zone)::date, date '9999-12-31'),
                date '0001-01-01') as said_on,
            0::bigint as word_bits, v.cosine, v.passage_cosines,
            coalesce(octet_length(e.content), 0) as text_bytes,
            0 as question_bytes, false as is_statement,
            case when e.type = 'observation' then 'tool'
                when e.role = 'agent' then 'agent' end as author,
            says_nothing(e.content, e.role = 'agent' and e.type = 'message') as says_nothing,
            null::int as start_char, null::int as end_char, false as is_fresh,
            null::text[] as words, null::bigint[] as document_counts,
            null::bigint as events_in_view, null::float8[] as sampled_cosines,
            null::float8[] as sampled_tool_cosines,
            null::float8 as min_known, null::jsonb as space_figures, null::date as today,
            null::bigint as unfolded_events
        from members m
        cross join tenant
        cross join lateral (
            select * from events e
            where e.tenant_id = current_tenant() and e.event_id = m.event_id
                and e.erased_at is null and matches_filter(e, %(filter)s::jsonb) offset 0) e
        cross join lateral (select coalesce(e.occurred_at, e.recorded_at) as at) said
        left join lateral (
            select 1 - (v.embedding <=> %(vector)s::halfvec) as cosine,
                case when v.passages is not null and %(vector)s::halfvec is not null then array(
                    select 1 - (p.embedding <=> %(vector)s::halfvec)
                    from unnest(v.passages) with ordinality p (embedding, n)
                    order by p.n) end as passage_cosines
            from event_vectors v
            where v.space = %(space)s and v.scope_id = e.scope_id and v.event_id = e.event_id
                and v.embedding is not null offset 0) v on true
        """,
        {
            "seed_ids": list(seed_ids),
            "vector": None if question_vector is None else pack_vector(question_vector),
            "space": space,
            "filter": json.dumps(filters),
            "max_topics": max_topics,
            "max_events": _MAX_EVENTS_PER_TOPIC,
        },
    )
