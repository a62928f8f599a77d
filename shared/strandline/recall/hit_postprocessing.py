"""Refine the best hits of a search: add the events that they cite and what was said later in the
same slot, fit them to a budget, and sort them by time."""

import heapq
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from strandline.chains.slot_decisions import (
    EarlierText,
    StatementInMessage,
    find_later_statements,
    put_each_after_its_change,
)
from strandline.db.database import TenantDb
from strandline.log.read import to_event_out
from strandline.log.store import Event
from strandline.recall import store
from strandline.recall.features import QuestionWord
from strandline.recall.passages import Passages, WordMatcher
from strandline.recall.payload_excerpts import MAX_EXCERPT_CHARS
from strandline.recall.relevance import ScoredEvent
from strandline.recall.schemas import Hit, HitNearDuplicates, RecallRequest, TextRange

BYTES_PER_TOKEN = 4
"""A token counts as four bytes of UTF-8, regardless of the model's tokenizer."""
_MAX_SIMILAR = 20
"""The maximum number of near-duplicates that a hit names."""
_MAX_SEEDS = 10
"""The number of best hits whose edges are followed."""
_LONG_CHARS = 1000
"""Of a text with more characters a hit names the part that matches."""
_MAX_DEPTH = 3
"""The maximum number of consecutive edges followed."""
_EDGES_PER_EVENT = 5
"""The maximum number of edges followed from one event: those with the greatest weight."""


@dataclass(frozen=True)
class _EventId:
    event_id: UUID


def list_transitively_cited_event_ids(
    access: TenantDb,
    seeds: Sequence[tuple[UUID, float]],
    exclude_ids: Sequence[UUID],
    filters: Mapping[str, object],
    limit: int,
) -> list[UUID]:
    """The visible events that match the filters and are cited by the seeds, directly or through
    others, ordered by the product of the seed's weight and the edge weights, greatest first. Events
    in `exclude_ids` are left out. An edge leads only to events visible to all readers of its
    event."""
    rows = access.fetch(
        _EventId,
        """
        with recursive walk as (
            select s.event_id, s.weight, 0 as depth
            from jsonb_to_recordset(%(seeds)s::jsonb) s (event_id uuid, weight float8)
            union all
            select m.cited_id, heat_term(w.weight, m.weight), w.depth + 1  -- without underflow
            from walk w
            cross join lateral (
                select m.cited_id, m.weight from memory_edges m
                where m.tenant_id = current_tenant() and m.event_id = w.event_id
                order by m.weight desc, m.cited_id limit %(edges_per_event)s) m
            where w.depth < %(max_depth)s),
        reached as materialized (
            select w.event_id, max(w.weight) as weight from walk w
            where w.depth > 0 and w.event_id <> all (%(exclude_ids)s::uuid[])
            group by w.event_id)
        select r.event_id
        from reached r
        cross join lateral (  -- by key: the planner may read all events for a join
            select from events e
            where e.tenant_id = current_tenant() and e.event_id = r.event_id
                and e.erased_at is null and matches_filter(e, %(filter)s::jsonb) offset 0) e
        order by r.weight desc, r.event_id desc limit %(limit)s
        """,
        {
            "seeds": json.dumps([{"event_id": str(i), "weight": weight} for i, weight in seeds]),
            "exclude_ids": list(exclude_ids),
            "filter": json.dumps(filters),
            "edges_per_event": _EDGES_PER_EVENT,
            "max_depth": _MAX_DEPTH,
            "limit": limit,
        },
    )
    return [row.event_id for row in rows]


type LogPlace = tuple[datetime, UUID, int]
"""When an event was recorded, its scope and its seq: the order of the log."""

EDGE: Sequence[str] = ("edge",)
"""The reason given for an event that was not found but is cited by one that was."""
_LATER = "later"
"""The reason given for an event that may have changed what the next hit states."""
_RELEVANT_SHARE = 0.25
"""What changed a hit of less than this share of the best relevance takes no other hit's place."""


def make_hit_near_duplicates(event_ids: Sequence[UUID]) -> HitNearDuplicates | None:
    """The near-duplicates of a hit, newest first; None if it has none."""
    if not event_ids:
        return None
    return HitNearDuplicates(count=len(event_ids), event_ids=list(event_ids[:_MAX_SIMILAR]))


def make_unscored_hit(event: Event, request: RecallRequest, why: Sequence[str]) -> Hit:
    """The hit of an event that was not scored, but goes with one that was."""
    return Hit(
        event_id=event.event_id,
        source_event_key=event.source_event_key,
        speaker=event.speaker,
        occurred_at=event.occurred_at or event.recorded_at,
        text=event.content,
        name=event.file_name,
        piece=None,
        excerpt=None,
        relevance=None,
        why=list(why),
        superseded_by=None,
        superseded_sentence=None,
        features=None,
        event=to_event_out(event) if request.include == "full" else None,
        similar=None,
    )


def make_hits_of_cited_events(
    events: Mapping[UUID, Event],
    event_ids: Iterable[UUID],
    found_hits: Iterable[Hit],
    request: RecallRequest,
) -> list[Hit]:
    """The hits of the events that found hits cite, but for those that are hits already."""
    shown_ids = {hit.event_id for hit in found_hits}
    return [
        make_unscored_hit(events[event_id], request, EDGE)
        for event_id in event_ids
        if event_id in events and event_id not in shown_ids
    ]


def put_superseding_events_before_hits(
    access: TenantDb, found_hits: Sequence[Hit], edge_hits: Sequence[Hit], request: RecallRequest
) -> list[Hit]:
    """The found hits, at most `limit`, each directly after the event that may have changed what it
    states, which was found too, or not, where the hit is relevant; then the hits of edges. Each
    names that event. With a filter, which such an event may not pass, all stay as they are but for
    that name."""
    texts = [
        EarlierText(hit.event_id, hit.speaker, hit.occurred_at, hit.text)
        for hit in (*found_hits, *edge_hits)
        if hit.text
    ]
    statements = find_later_statements(access, texts, request.as_of)
    hits, cited_hits = (
        [_with_superseded_by(hit, statements) for hit in some] for some in (found_hits, edge_hits)
    )
    if request.has_filters:
        return [*hits, *cited_hits]
    places = {hit.event_id: place for place, hit in enumerate(hits)}
    floor = _RELEVANT_SHARE * max((hit.relevance or 0.0 for hit in hits), default=0.0)
    later = {
        hit.event_id: hit.superseded_by
        for hit in hits
        if hit.superseded_by
        and (hit.superseded_by in places or hit.relevance is None or hit.relevance >= floor)
    }
    hit_by_id = {hit.event_id: hit for hit in hits}
    if missing := set(later.values()) - places.keys():
        for event in store.read_visible_events(access, sorted(missing)).values():
            hit = make_unscored_hit(event, request, ())
            hit_by_id[event.event_id] = _with_superseded_by(hit, statements)
    for earlier_id, newer_id in later.items():
        newer = hit_by_id.get(newer_id)
        comes_later = places.get(newer_id, len(hits)) > places[earlier_id]
        if newer is not None and comes_later and _LATER not in newer.why:
            why = [*newer.why, _LATER]
            hit_by_id[newer_id] = newer.model_copy(update={"why": why})
    ordered = put_each_after_its_change(places, later, hit_by_id)
    shown_hits = [hit_by_id[event_id] for event_id in ordered][: request.limit]
    joined_ids = {hit.event_id for hit in shown_hits}
    return [*shown_hits, *(hit for hit in cited_hits if hit.event_id not in joined_ids)]


def _with_superseded_by(hit: Hit, later: Mapping[UUID, StatementInMessage]) -> Hit:
    statement = later.get(hit.event_id)
    if statement is None:
        return hit
    mark = {
        "superseded_by": statement.event.event_id,
        "superseded_sentence": statement.earlier_sentence,
    }
    return hit.model_copy(update=mark)


def find_cited_events(
    access: TenantDb,
    best: Sequence[ScoredEvent],
    filters: Mapping[str, object],
    expand: int,
    exclude_ids: Sequence[UUID] | None = None,
) -> list[UUID]:
    """The events that the best hits cite, directly or through others: those with the greatest
    product of relevance and edge weights, at most `expand`, without those of `exclude_ids`, by
    default the hits themselves."""
    if not expand or not best:
        return []
    seeds = [(event.candidate.event_id, event.relevance) for event in best[:_MAX_SEEDS]]
    if exclude_ids is None:
        exclude_ids = [event.candidate.event_id for event in best]
    return list_transitively_cited_event_ids(access, seeds, exclude_ids, filters, expand)


def find_matching_range(
    event: Event, row: store.CandidateRow, matcher: WordMatcher
) -> TextRange | None:
    """The part of a long text, or the indexed part of a payload's text, that matches the question;
    None where none does, or only the payload's meaning or name."""
    if event.blob_cid:
        if row.start_char is None or not row.end_char:  # 0: only its name matched
            return None
        return TextRange(start_char=row.start_char, end_char=row.end_char)
    if len(event.content or "") <= _LONG_CHARS:
        return None
    passages = Passages(event.content or "", matcher, row.passage_cosines or ())
    best_passages = passages.find_best(MAX_EXCERPT_CHARS)
    return (
        TextRange(start_char=best_passages[0], end_char=best_passages[1]) if best_passages else None
    )


def list_match_reasons(event: ScoredEvent, words: Sequence[QuestionWord]) -> list[str]:
    """The question's words that an event holds, rarest first, and `meaning` if it is similar."""
    matches = [word for n, word in enumerate(words) if event.candidate.word_bits >> n & 1]
    rarest_first = [word.text for word in sorted(matches, key=lambda word: word.events)]
    return rarest_first + (["meaning"] if event.is_similar_to_question else [])


class HitsWithinBudget(NamedTuple):
    """The hits of a budget."""

    hits: Sequence[Hit]
    left_out: int
    """How many hits do not fit."""
    is_cut: bool = False
    """Whether a hit is cut to fit."""


def fit_to_budget(hits: Sequence[Hit], max_tokens: int | None) -> HitsWithinBudget:
    """The hits whose texts fit the budget, in their order. One that does not fit is cut to its
    `piece`, and left out if that does not fit either. If none fits, the first one is cut to fit: an
    empty answer would say that nothing is stored. A token is four bytes of UTF-8, rounded up."""
    if max_tokens is None:
        return HitsWithinBudget(hits, 0)
    fitting: list[Hit] = []
    tokens_left, is_cut = max_tokens, False
    for hit in hits:
        for shown_hit in (hit, _cut_to_piece(hit)):
            shown_text = shown_hit.text or shown_hit.excerpt or ""
            tokens = -(-len(shown_text.encode()) // BYTES_PER_TOKEN)
            if tokens <= tokens_left:
                fitting.append(shown_hit)
                tokens_left -= tokens
                is_cut |= shown_hit.text != hit.text
                break
    if fitting or not hits:
        return HitsWithinBudget(fitting, len(hits) - len(fitting), is_cut)
    room = max_tokens * BYTES_PER_TOKEN - len("…".encode())
    field = "excerpt" if hits[0].text is None else "text"
    beginning = (hits[0].text or hits[0].excerpt or "").encode()[:room].decode(errors="ignore")
    best = hits[0].model_copy(update={field: f"{beginning}…"})
    return HitsWithinBudget([best], len(hits) - 1, is_cut=True)


def _cut_to_piece(hit: Hit) -> Hit:
    """The hit with the part of its text that matches, if it names one."""
    if hit.piece is None or hit.text is None:
        return hit
    first, last = hit.piece.start_char, hit.piece.end_char
    before, after = "…" if first else "", "…" if last < len(hit.text) else ""
    return hit.model_copy(update={"text": f"{before}{hit.text[first:last]}{after}"})


def sort_cited_first_then_by_time(
    hits: Sequence[Hit],
    cited_ids: Callable[[UUID], Iterable[UUID]],
    get_log_place: Callable[[UUID], LogPlace],
) -> list[Hit]:
    """Sort the hits so that none comes before one that it cites, and otherwise oldest first by when
    they happened. Those of one time are in the order of the log: a question before its answer."""

    def sort_key(hit: Hit) -> tuple[datetime, LogPlace, UUID]:
        return hit.occurred_at, get_log_place(hit.event_id), hit.event_id

    hit_by_id = {hit.event_id: hit for hit in hits}
    waits_for = {
        hit.event_id: _select_ids_of_hits(cited_ids(hit.event_id), hit_by_id) for hit in hits
    }
    waiting: dict[UUID, list[UUID]] = {}
    for event_id, dependencies in waits_for.items():
        for cited_id in dependencies:
            waiting.setdefault(cited_id, []).append(event_id)
    ready = [sort_key(hit) for hit in hits if not waits_for[hit.event_id]]
    heapq.heapify(ready)
    result: list[Hit] = []
    while ready:
        event_id = heapq.heappop(ready)[-1]
        result.append(hit_by_id[event_id])
        for later_id in waiting.get(event_id, ()):
            waits_for[later_id].discard(event_id)
            if not waits_for[later_id]:
                heapq.heappush(ready, sort_key(hit_by_id[later_id]))
    return result


def _select_ids_of_hits(event_ids: Iterable[UUID], hit_by_id: Mapping[UUID, Hit]) -> set[UUID]:
    return {event_id for event_id in event_ids if event_id in hit_by_id}


def sort_hits_cited_first_then_by_time(
    hits: Sequence[Hit], events: Mapping[UUID, Event]
) -> list[Hit]:
    """Like `sort_cited_first_then_by_time`, where `events` are those that were read. An event that
    was not read is a later statement, and comes last."""

    def list_cited(event_id: UUID) -> list[UUID]:
        edges = events[event_id].edges if event_id in events else ()
        return [UUID(edge["event_id"]) for edge in edges]

    def get_log_place(event_id: UUID) -> LogPlace:
        if event_id not in events:
            return datetime.max.replace(tzinfo=UTC), event_id, 0
        event = events[event_id]
        return event.recorded_at, event.scope_id, event.seq

    return sort_cited_first_then_by_time(hits, list_cited, get_log_place)
