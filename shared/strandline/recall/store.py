"""SQL for recall: one statement that finds the candidates for a question, by words, by vector, and
among events too new for a vector; and one that reads the best."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from strandline.db.database import SnapshotRead, TenantDb
from strandline.db.pipeline import RowQuery
from strandline.embeddings.space_figures import TEXTS_VERSION
from strandline.embeddings.vector_formats import pack_vector
from strandline.log.fulltext_words import prepare_question_for_search
from strandline.log.passage_spans import LONG_CHARS
from strandline.log.store import MAX_LISTED_SCOPES, Event
from strandline.recall.cosine_scale import SAMPLED_EVENTS
from strandline.recall.features import WINDOW, CandidateEvent

CANDIDATES = 200
"""How many results of each list, by words and by vector, are ranked."""
MAX_FRESH = 50
"""How many events without a vector yet are ranked, the newest."""
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
    space_figures: dict[str, Any] | None
    """What was measured of the embedding space for the tenant."""
    today: date | None
    """The day of `now` in the tenant's time zone."""
    unfolded_events: int | None
    """The number of visible events that no fold has read yet, regardless of the filter."""


def count_filter_matches(rows: Sequence[CandidateRow]) -> int | None:
    """The number of events that pass a filter, if all of them with a vector are candidates; else
    None."""
    with_vector = sum(row.cosine is not None for row in rows)
    return len(rows) if with_vector < CANDIDATES else None


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
        select * from search_candidates(
            %(question)s, %(spellings)s::text[], %(max_words)s, %(vector)s::halfvec, %(space)s,
            %(texts_version)s, %(filter)s::jsonb, %(scopes)s::uuid[], %(max_scopes)s,
            %(large_view)s, %(candidates)s, %(max_fresh)s, %(far)s, %(sampled)s,
            %(long_bytes)s, %(now)s::timestamptz)
        """,
        {
            "question": prepare_question_for_search(question),
            "max_words": _MAX_WORDS,
            "spellings": list(spellings),
            "vector": None if vector is None else pack_vector(vector),
            "space": space,
            "texts_version": TEXTS_VERSION,
            "filter": json.dumps(filters),
            "scopes": None if scopes is None else list(scopes),
            "candidates": CANDIDATES,
            "max_fresh": MAX_FRESH,
            "max_scopes": MAX_LISTED_SCOPES,
            "far": WINDOW + 1,
            "sampled": SAMPLED_EVENTS,
            "long_bytes": LONG_CHARS,
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


def read_events_and_session_neighbours(
    access: TenantDb, event_ids: Sequence[UUID], beside_ids: Sequence[UUID], with_later: int
) -> tuple[dict[UUID, Event], Sequence[SessionNeighbour]]:
    """Read the visible ones of `event_ids`, by id, and what stands beside `beside_ids`: the event
    before each of them in its session, for the first `with_later` of them the two events after it,
    and for the others that ask a question the one after it, in no particular order. Statements have
    no neighbours and are not neighbours."""
    neighbours, events = access.fetch_pair(
        _make_session_neighbours_query(beside_ids, with_later), make_visible_events_query(event_ids)
    )
    return {event.event_id: event for event in events}, neighbours


def _make_session_neighbours_query(
    event_ids: Sequence[UUID], with_later: int
) -> RowQuery[SessionNeighbour]:
    return RowQuery(
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
