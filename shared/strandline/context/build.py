"""Build the text of a context: collect the candidates, and lay them out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from uuid import UUID

from strandline.aws.blobs import BlobStore
from strandline.chains.slot_decisions import StatementInMessage
from strandline.context import session_context
from strandline.context.event_arrangement import (
    add_neighbours,
    find_outdated_statement_ids,
    find_statements_changing_events,
    get_occurred_or_recorded_time,
    put_events_after_their_changes,
)
from strandline.context.event_selection import (
    AnswerTextOptions,
    ContextTextOptions,
    choose_answer_events,
    take_events_to_fill_budget,
    take_recent_events_to_fill_budget,
)
from strandline.context.event_source_conversion import to_chain_line_source, to_event_line_source
from strandline.context.graph_knowledge import find_knowledge
from strandline.context.layout import ContextLineSources, LaidOutText, lay_out_within_budget
from strandline.context.lines import KnowledgeLineSource
from strandline.context.schemas import (
    DEFAULT_BUDGET,
    Citation,
    ContextTextOut,
    ContextTextRequest,
    LeftOutCountsOut,
    SessionContextQuery,
)
from strandline.context.session_context import ChainSearchResult
from strandline.context.short_term_memory import (
    list_short_term_event_counts,
    list_short_term_event_counts_of_session,
)
from strandline.context.used_sources import UsedSources, select_used_sources
from strandline.db.database import TenantDb
from strandline.embeddings.embedder import Embedder
from strandline.errors import Invalid
from strandline.log.store import Event
from strandline.recall.hit_postprocessing import find_cited_events
from strandline.recall.importance import rerank_by_weights
from strandline.recall.near_duplicates import DeduplicatedEvents
from strandline.recall.payload_excerpts import PayloadParts, read_payload_parts
from strandline.recall.recall import make_read_token
from strandline.recall.relevance import ScoredEvent
from strandline.recall.schemas import QuestionTime
from strandline.recall.search import search
from strandline.recall.store import SessionNeighbour, read_events_and_session_neighbours
from strandline.sessions import store_chains
from strandline.sessions.chains_view import SessionReadContext
from strandline.sessions.store import Session
from strandline.tuning import Tuning

_LATEST_CHAINS = 10
"""The number of chains read without a question."""


def build_context_text(
    access: TenantDb,
    embedder: Embedder,
    blobs: BlobStore,
    request: ContextTextRequest,
    *,
    session: Session | None,
    tuning: Tuning,
    now: datetime,
    vector_timeout: float,
    answering: AnswerTextOptions | None = None,
) -> tuple[ContextTextOut, UsedSources]:
    """Build the context of everything visible as text, with the short-term memory of `session`, or,
    without a question, of everything visible. Also returns the events and chains that answer the
    question. A text for an answer (`answering`) also marks the events that were added later than
    they happened.

    Raises Invalid for a view of the whole tenant without a question or a session: it has no
    short-term memory, so there is nothing to show.
    """
    if not (access.caller.viewer or session or request.query):
        raise Invalid(
            "participants: the whole tenant has no short-term memory; send participants, a "
            "session_id or a query",
            field="participants",
        )
    recent: Mapping[UUID, int] = {}
    if session or request.query is None:  # the newest events of others rarely help with a question
        recent = list_short_term_event_counts_of_session(access, tuning, now, session=session)
    exclude = answering.exclude if answering else ()
    recent = {event_id: count for event_id, count in recent.items() if event_id not in exclude}
    matches, knowledge = _find_chains_and_knowledge(
        access, embedder, request, tuning, now, vector_timeout, answering
    )
    limits = ContextTextOptions(
        request.min_relevance,
        request.limit,
        request.budget,
        answering,
        expand=request.expand,
        today=request.choose_now(now),
        as_of=request.as_of,
        question=request.query or "",
        needs_breadth=request.needs_breadth,
    )
    return _compose_context_text(access, blobs, recent, knowledge, matches, limits)


def _find_chains_and_knowledge(
    access: TenantDb,
    embedder: Embedder,
    request: ContextTextRequest,
    tuning: Tuning,
    now: datetime,
    vector_timeout: float,
    answering: AnswerTextOptions | None,
) -> tuple[ChainSearchResult, Sequence[KnowledgeLineSource]]:
    """Find the chains and events that answer the question, and what the graph holds about it;
    without a question, the latest chains."""
    if request.query is None:
        latest = store_chains.list_latest_chains(access, None, _LATEST_CHAINS)
        return ChainSearchResult(latest.rows, None, make_read_token(access, latest, None)), ()
    result = search(
        access,
        embedder,
        request.query,
        now=request.choose_now(now),
        vector_timeout=vector_timeout,
        filters=request.to_filter_until_as_of(),
        min_known=tuning.min_known,
        exclude=answering.exclude if answering else (),
        needs_breadth=request.needs_breadth,
    )
    share = 0.0 if request.needs_breadth else None
    chains = session_context.list_relevant_chains(
        access, embedder.space, result, request.min_relevance, share=share
    )
    knowledge: Sequence[KnowledgeLineSource] = ()
    if request.as_of is None:
        knowledge = find_knowledge(access, tuning, request.query, result.vector, embedder.space)
    else:
        chains = [chain for chain in chains if chain.last_event_at <= request.as_of]
    token = make_read_token(access, result.result, result.space)
    if answering:
        events, asked_at = result.ranking.events, request.choose_now(now)
        by_weight, _ = rerank_by_weights(
            access, events, answering.weights, asked_at, now, answering.sona
        )
        result = replace(result, ranking=replace(result.ranking, events=by_weight))
    return ChainSearchResult(chains, result, token), knowledge


def build_session_context_text(
    view: SessionReadContext,
    embedder: Embedder,
    blobs: BlobStore,
    query: SessionContextQuery,
    vector_timeout: float,
) -> tuple[ContextTextOut, UsedSources]:
    """Build a session's context as text: what `build_session_context` finds, and the events that
    answer the question. Also returns the events and chains that answer it."""
    recent = list_short_term_event_counts(view, query.limit)
    matches = session_context.find_relevant_or_latest_chains(view, embedder, query, vector_timeout)
    knowledge: Sequence[KnowledgeLineSource] = ()
    if matches.search and query.query is not None and not view.only_session:
        vector = matches.search.vector
        knowledge = find_knowledge(view.access, view.tuning, query.query, vector, embedder.space)
    limits = ContextTextOptions(query.min_relevance, None, query.budget or DEFAULT_BUDGET)
    limits = replace(limits, is_one_session=view.only_session, today=view.now)
    limits = replace(limits, question=query.query or "", needs_breadth=query.needs_breadth)
    return _compose_context_text(view.access, blobs, recent, knowledge, matches, limits)


def _compose_context_text(
    access: TenantDb,
    blobs: BlobStore,
    recent: Mapping[UUID, int],
    knowledge: Sequence[KnowledgeLineSource],
    matches: ChainSearchResult,
    request: ContextTextOptions,
) -> tuple[ContextTextOut, UsedSources]:
    groups, is_weak, newest_id, best = _choose_best_events(access, recent, matches, request)
    relevant, duplicate_ids = groups.events, groups.duplicate_ids
    top = best if is_weak else _insert_cited_events_after_first(access, relevant, best, request)
    around, used = (0, ()) if is_weak else (request.count_of_events_with_neighbours, best)
    event_ids = [*recent, *top, *_list_first_cited_ids(matches, knowledge)]
    events, neighbours = _read_events_until_as_of(access, event_ids, best, around, request.as_of)
    neighbours = [n for n in neighbours if n.event_id in events and n.event_id not in duplicate_ids]
    found_ids = add_neighbours(top, events, neighbours, around)
    compared_ids = [*recent, *found_ids] if matches.search else []
    later = _find_changing_statements(access, compared_ids, events, request)
    found_ids = [*(later[i].event.event_id for i in recent if i in later), *found_ids]
    event_ids = put_events_after_their_changes(access, found_ids, events, later)
    shown_ids = {*recent, *event_ids}.difference(request.excluded_ids)
    payloads = _read_payload_parts(access, blobs, matches, events, best, recent, request)
    make_source = partial(
        to_event_line_source,
        ended=find_outdated_statement_ids(access, events.values(), request.as_of),
        later={i: one for i, one in later.items() if one.event.event_id in shown_ids},
        similar=groups.similar,
        notes_late=request.answering is not None,
        search=matches.search,
        payload_parts=payloads.by_event,
        beside={n.event_id for n in neighbours}.difference(top),
        newest_id=newest_id,
    )
    layout = lay_out_within_budget(
        ContextLineSources(
            recent=[make_source(events[i], count) for i, count in recent.items() if i in events],
            topics=[to_chain_line_source(chain) for chain in matches.chains if chain.event_ids],
            events=[make_source(events[i]) for i in event_ids if i not in request.excluded_ids],
            is_known=bool(relevant) and not is_weak if matches.search else None,
            more_events=len(relevant) - len(best),
            knowledge=[source for source in knowledge if source.event_ids[0] in events],
            recent_share=request.answering.recent_share if request.answering else None,
            today=request.today,
            event_share=request.event_share,
            pending=matches.search.unembedded_event_count if matches.search else 0,
        ),
        request.budget,
    )
    answer = _to_context_response(layout, matches, events, request, payloads.degradations)
    return answer, select_used_sources(matches, layout, used) if matches.search else UsedSources()


def _choose_best_events(
    access: TenantDb,
    recent: Mapping[UUID, int],
    matches: ChainSearchResult,
    request: ContextTextOptions,
) -> tuple[DeduplicatedEvents, bool, UUID | None, list[UUID]]:
    """What `choose_answer_events` gives, and those of its events that the budget may hold; nothing
    without a question."""
    if not matches.search:
        return DeduplicatedEvents(()), False, None, []
    groups, is_weak, newest_id = choose_answer_events(access, matches.search, request)
    best = take_events_to_fill_budget(groups.events, matches.search, recent, request)
    return groups, is_weak, newest_id, best


def _read_payload_parts(
    access: TenantDb,
    blobs: BlobStore,
    matches: ChainSearchResult,
    events: Mapping[UUID, Event],
    best: Iterable[UUID],
    recent: Iterable[UUID],
    request: ContextTextOptions,
) -> PayloadParts:
    shown = {i: event for i, event in events.items() if i not in request.excluded_ids}
    newest = take_recent_events_to_fill_budget(
        [shown[i] for i in recent if i in shown], request, has_question=matches.search is not None
    )
    read = map(shown.get, dict.fromkeys([*best, *(event.event_id for event in newest)]))
    return read_payload_parts(blobs, access.caller.tenant, read, matches.search)


def _list_first_cited_ids(
    matches: ChainSearchResult, knowledge: Sequence[KnowledgeLineSource]
) -> list[UUID]:
    """The events that the lines of topics and of what is known cite if no other is shown."""
    of_chains = [event_id for chain in matches.chains for event_id in chain.event_ids[:1]]
    return of_chains + [event_id for source in knowledge for event_id in source.event_ids[:2]]


def _read_events_until_as_of(
    access: TenantDb,
    event_ids: Iterable[UUID],
    best: Sequence[UUID],
    around: int,
    as_of: datetime | None,
) -> tuple[dict[UUID, Event], Sequence[SessionNeighbour]]:
    """The visible ones of these events and of the neighbours of `best`, by id, but for what
    happened after `as_of`; and all these neighbours."""
    read, neighbours = read_events_and_session_neighbours(
        access, list(dict.fromkeys(event_ids)), best, around
    )
    events: dict[UUID, Event] = {event.event_id: event for event in neighbours} | read
    if as_of is not None:
        events = {
            i: event for i, event in events.items() if get_occurred_or_recorded_time(event) <= as_of
        }
    return events, neighbours


def _find_changing_statements(
    access: TenantDb,
    event_ids: Sequence[UUID],
    events: Mapping[UUID, Event],
    request: ContextTextOptions,
) -> Mapping[UUID, StatementInMessage]:
    """The later statements that may have changed what these events state; of one session, as far as
    they are among the events."""
    later = find_statements_changing_events(access, event_ids, events, request.as_of)
    if not request.is_one_session:
        return later
    return {i: statement for i, statement in later.items() if statement.event.event_id in events}


def _insert_cited_events_after_first(
    access: TenantDb,
    relevant: Sequence[ScoredEvent],
    best: Sequence[UUID],
    request: ContextTextOptions,
) -> Sequence[UUID]:
    """The best events with those that they cite, which stand after the first, so that a budget that
    does not hold all has room for them."""
    period = QuestionTime(as_of=request.as_of).to_filter_until_as_of()
    cited_ids = find_cited_events(access, relevant, period, request.expand, best[:1])
    return list(dict.fromkeys([*best[:1], *cited_ids, *best[1:]]))


def _to_context_response(
    layout: LaidOutText,
    matches: ChainSearchResult,
    events: Mapping[UUID, Event],
    request: ContextTextOptions,
    degradations: Sequence[str],
) -> ContextTextOut:
    return ContextTextOut(
        text=layout.text,
        tokens=layout.token_count,
        known=matches.search.answer_probability if matches.search else None,
        breadth=request.needs_breadth,
        citations=[
            Citation(
                n=n, event_id=event_id, source_event_key=_get_source_event_key(events, event_id)
            )
            for n, event_id in enumerate(layout.citations, 1)
        ],
        cut=LeftOutCountsOut.model_validate(layout.cut._asdict()),
        degraded=[
            *(matches.search.list_degradations(request.min_relevance) if matches.search else ()),
            *degradations,
        ],
        not_yet_embedded=matches.search.unembedded_event_count if matches.search else None,
        not_yet_folded=matches.search.unfolded_event_count if matches.search else None,
        read_token=matches.read_token,
    )


def _get_source_event_key(events: Mapping[UUID, Event], event_id: UUID) -> str | None:
    event = events.get(event_id)
    return event.source_event_key if event else None
