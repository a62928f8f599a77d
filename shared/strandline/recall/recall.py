"""Recall: find visible events by words and by meaning, each with its source."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.chains import store_recalls
from strandline.db.database import SnapshotRead, TenantDb
from strandline.embeddings.embedder import Embedder
from strandline.log.read import take_models_fitting_response, to_event_out
from strandline.log.store import Event
from strandline.observability import logger
from strandline.recall import store
from strandline.recall.candidate_search import find_candidates
from strandline.recall.features import QuestionWord
from strandline.recall.hit_postprocessing import (
    EDGE,
    find_cited_events,
    find_matching_range,
    fit_to_budget,
    list_match_reasons,
    make_hit_near_duplicates,
    make_hits_of_cited_events,
    put_superseding_events_before_hits,
    sort_hits_cited_first_then_by_time,
)
from strandline.recall.importance import (
    ExtraRankingSignals,
    SonaInEmbeddingSpace,
    rerank_by_weights,
)
from strandline.recall.looked_up_words import find_looked_up_word_bits
from strandline.recall.near_duplicates import DeduplicatedEvents, collapse_near_duplicates
from strandline.recall.passages import WordMatcher
from strandline.recall.query_vector import embed_query
from strandline.recall.question_mentions import parse_names_and_dates
from strandline.recall.read_calibration import choose_min_known, read_calibration
from strandline.recall.relevance import (
    Calibration,
    RankedEvents,
    ScoredEvent,
    merge_further,
    rank_candidates,
)
from strandline.recall.schemas import Hit, RecallAnswer, RecallRequest
from strandline.recall.store import CandidateRow
from strandline.recall.topic_breadth import NO_TOPICS, TOPIC, TopicEvents, find_topic_events

_MAX_USED_HITS = 10
"""The number of the best hits of an answer that are recorded as used."""


@dataclass(frozen=True)
class SearchResult:
    """The result of a search."""

    ranking: RankedEvents
    candidates: Mapping[UUID, CandidateRow]
    topics: TopicEvents
    """The topics of the best events, of a question that needs breadth."""
    words: Sequence[QuestionWord]
    looked_up_bits: int
    """The words that the question looks up, as in `CandidateEvent.word_bits`."""
    result: SnapshotRead[CandidateRow]
    vector: Sequence[float] | None
    """The question's vector."""
    degraded: list[str]
    space: str | None
    """The embedding space that was searched; None without a query vector."""
    calibration: Calibration
    min_known: float
    """The threshold of `known` below which an answer is empty by default: the tenant's, else the
    deployment's, else the calibrated one. 0 without a query vector or a calibration."""

    @cached_property
    def matcher(self) -> WordMatcher:
        """Finds the question's words in texts."""
        return WordMatcher(self.words)

    @property
    def unembedded_event_count(self) -> int:
        """How many of the newest events have no vector yet."""
        return sum(row.is_fresh for row in self.result.rows)

    @property
    def unfolded_event_count(self) -> int:
        """How many visible events are not folded yet."""
        return next((n for row in self.result.rows if (n := row.unfolded_events) is not None), 0)

    @property
    def answer_probability(self) -> float | None:
        """The probability that there is an answer; None in an embedding space without a
        calibration."""
        return round(self.ranking.answer_probability, 4) if self.calibration.is_calibrated else None

    def round_calibrated_relevance(self, relevance: float) -> float | None:
        """A relevance as shown in answers; None in an embedding space without a calibration."""
        return round(relevance, 4) if self.calibration.is_calibrated else None

    def list_degradations(self, min_relevance: float | None) -> list[str]:
        """The codes for `degraded`: those of the search, and whether `min_relevance` is ignored."""
        is_ignored = bool(min_relevance) and not self.calibration.is_calibrated
        return self.degraded + (["not_calibrated"] if is_ignored else [])

    def select_relevant_events(self, min_relevance: float | None) -> list[ScoredEvent]:
        """Select the events to answer with, best first: those with at least this relevance; by
        default all, or, if the question probably has no answer, only those with the word that it
        looks up. An event without a vector that contains a word of the question is kept, because
        its relevance is uncertain. Without a calibration, no event is left out."""
        events = self.ranking.events
        if min_relevance is None:
            floor = math.inf if self.ranking.answer_probability < self.min_known else 0.0
        else:
            floor = min_relevance
        if floor == 0 or not self.calibration.is_calibrated:
            return list(events)
        is_exempt = self.space is not None
        looked_up_bits = self.looked_up_bits if min_relevance is None else 0
        return [
            event
            for event in events
            if event.relevance >= floor
            or event.candidate.word_bits & looked_up_bits
            or (is_exempt and event.candidate.cosine is None and event.candidate.word_bits)
        ]


def search(
    access: TenantDb,
    embedder: Embedder,
    question: str,
    *,
    now: datetime,
    vector_timeout: float,
    filters: Mapping[str, Any],
    min_known: float | None,
    scopes: Sequence[UUID] | None = None,
    exclude: Collection[UUID] = (),
    needs_breadth: bool = False,
) -> SearchResult:
    """Find and score the visible events that may answer a question, in `scopes` or everywhere.
    `exclude` omits events, such as the question itself if it is stored. `needs_breadth` adds the
    events of the topics of the best ones. Without a query vector
    within `vector_timeout` seconds, it searches by words alone and reports this in `degraded`.
    `min_known` is the deployment's threshold, for tenants without one of their own."""
    vector = embed_query(embedder, question, vector_timeout)
    return search_with_vector(
        access,
        embedder,
        question,
        vector,
        now=now,
        filters=filters,
        min_known=min_known,
        scopes=scopes,
        exclude=exclude,
        needs_breadth=needs_breadth,
    )


def search_with_vector(
    access: TenantDb,
    embedder: Embedder,
    question: str,
    query_vector: tuple[list[float] | None, list[str]],
    *,
    now: datetime,
    filters: Mapping[str, Any],
    min_known: float | None,
    scopes: Sequence[UUID] | None = None,
    exclude: Collection[UUID] = (),
    needs_breadth: bool = False,
) -> SearchResult:
    """Like `search`, with the result of `embed_query` for the question. It calls no model, so it
    may run in a `snapshot_transaction`."""
    vector, degradations = query_vector
    space = embedder.space if vector else None
    found = find_candidates(
        access,
        question=question,
        vector=vector,
        space=embedder.space,
        filters=filters,
        now=now,
        scopes=scopes,
    )
    head, words, in_view, samples = found.head, found.words, found.events_in_view, found.samples
    rows = [row for row in found.result.rows if row.event_id not in exclude]
    calibration = read_calibration(access, space, question)
    parsed = parse_names_and_dates(question, (head and head.today) or now.date())
    searched_count = store.count_filter_matches(rows) if filters and vector else None
    ranking = rank_candidates(parsed, words, rows, in_view, calibration, searched_count, *samples)
    topics = NO_TOPICS
    if needs_breadth:
        topics = find_topic_events(access, ranking, exclude, vector, embedder.space, filters)
        ranking = merge_further(ranking, topics.rows, parsed, words, in_view, calibration, *samples)
    return SearchResult(
        ranking=ranking,
        candidates={row.event_id: row for row in (*rows, *topics.rows)},
        topics=topics,
        words=words,
        looked_up_bits=find_looked_up_word_bits(question, words),
        result=found.result,
        vector=vector,
        degraded=degradations,
        space=space,
        calibration=calibration,
        min_known=choose_min_known(head, min_known, calibration) if space else 0.0,
    )


def _choose_events(
    access: TenantDb,
    search_result: SearchResult,
    by_weight: Sequence[ScoredEvent],
    request: RecallRequest,
) -> tuple[DeduplicatedEvents, Sequence[ScoredEvent]]:
    """The events by weight, near-duplicates in one place, and those of them that are hits."""
    spread, words = search_result.topics.spread(by_weight), search_result.words
    groups = collapse_near_duplicates(access, spread, words, request.query, request.limit)
    shown = groups.list_events(with_duplicates=request.shows_near_duplicates)
    return groups, shown[: request.limit]


def recall(
    access: TenantDb,
    embedder: Embedder,
    request: RecallRequest,
    now: datetime,
    vector_timeout: float,
    min_known: float | None,
    sona_id: UUID | None = None,
) -> RecallAnswer:
    """The best hits for a question, best first, or by time; none if no event is relevant enough.
    `min_known` is the deployment's threshold, `sona_id` the sona that the request names."""
    asked_at = request.choose_now(now)
    search_result = search(
        access,
        embedder,
        request.query,
        now=asked_at,
        vector_timeout=vector_timeout,
        filters=request.to_json_filter(),
        min_known=min_known,
        needs_breadth=request.needs_breadth,
    )
    relevant = search_result.select_relevant_events(request.min_relevance)
    sona = SonaInEmbeddingSpace(sona_id, embedder.space) if sona_id else None
    by_weight, traits = rerank_by_weights(access, relevant, request.weights, asked_at, now, sona)
    groups, best = _choose_events(access, search_result, by_weight, request)
    supporting = find_cited_events(access, best, request.to_json_filter(), request.expand)
    events = store.read_visible_events(access, [e.candidate.event_id for e in best] + supporting)
    scored_hits = [
        _to_hit(scored, events, search_result, request, traits, groups.similar)
        for scored in best
        if scored.candidate.event_id in events
    ]
    edge_hits = make_hits_of_cited_events(events, supporting, scored_hits, request)
    all_hits = put_superseding_events_before_hits(access, scored_hits, edge_hits, request)
    fitting = fit_to_budget(all_hits, request.max_tokens)
    hits = take_models_fitting_response(fitting.hits)
    if request.orders_by_time:
        hits = sort_hits_cited_first_then_by_time(hits, events)
    return RecallAnswer(
        known=search_result.answer_probability,
        hits=hits,
        breadth=request.needs_breadth,
        did_not_fit=fitting.left_out,
        degraded=search_result.list_degradations(request.min_relevance)
        + ["cut_by_size"] * (len(hits) < len(fitting.hits))
        + ["cut_by_budget"] * fitting.is_cut,
        not_yet_embedded=search_result.unembedded_event_count,
        not_yet_folded=search_result.unfolded_event_count,
        read_token=make_read_token(access, search_result.result, search_result.space),
    )


def _to_hit(
    scored_event: ScoredEvent,
    events: Mapping[UUID, Event],
    search_result: SearchResult,
    request: RecallRequest,
    traits: Mapping[UUID, ExtraRankingSignals],
    similar: Mapping[UUID, Sequence[UUID]],
) -> Hit:
    event = events[scored_event.candidate.event_id]
    row = search_result.candidates[event.event_id]
    features = scored_event.features._asdict()
    if event.event_id in traits:
        features |= traits[event.event_id].to_values_by_name()
    return Hit(
        event_id=event.event_id,
        source_event_key=event.source_event_key,
        speaker=event.speaker,
        occurred_at=row.said_at,
        text=event.content,
        name=event.file_name,
        piece=find_matching_range(event, row, search_result.matcher),
        relevance=search_result.round_calibrated_relevance(scored_event.relevance),
        why=list_match_reasons(scored_event, search_result.words)
        + [TOPIC] * search_result.topics.adds(event.event_id),
        superseded_by=None,
        features=features if request.explain else None,
        event=to_event_out(event) if request.include == "full" else None,
        similar=make_hit_near_duplicates(similar.get(event.event_id, ())),
    )


def record_use_of_hits(access: TenantDb, answer: RecallAnswer, now: datetime) -> bool:
    """Record that an answer contained these events, which keeps their chains warm. A failure here
    does not affect the answer, which is already built. Returns False if nothing was recorded."""
    own_hits = [hit for hit in answer.hits if hit.why != list(EDGE)]
    # ties go to the newer event, as in an answer by relevance
    by_rank = sorted(own_hits, key=lambda hit: (hit.relevance or 0.0, hit.event_id), reverse=True)
    best = by_rank[:_MAX_USED_HITS]
    used_events = [hit.event_id for hit in best if hit.why]
    try:
        if answer.hits:
            event_ids = [hit.event_id for hit in answer.hits]
            store_recalls.record_recalled_events(access, uuid7(), used_events, now, event_ids)
    except Exception as error:  # without the record the chain only cools sooner
        logger.warning("recall not recorded", extra={"error": type(error).__name__})
        return False
    return True


def make_read_token[Row](access: TenantDb, result: SnapshotRead[Row], space: str | None) -> str:
    """An opaque token of what an answer was based on: database snapshot, clock, embedding space. It
    contains the time and so always differs: it does not reveal whether anything was written in
    between."""
    token_fields = {
        "v": 1,
        "mark": result.pg_snapshot,
        "now": result.now.isoformat(),
        "space": space,
    }
    return access.sealer.seal("token", access.caller.tenant, token_fields)
