"""Recall: answer a question with the visible events that a search finds, each with its source."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.aws.blobs import BlobStore
from strandline.chains import store_recalls
from strandline.db.database import SnapshotRead, TenantDb
from strandline.embeddings.embedder import Embedder
from strandline.log.read import take_models_fitting_response, to_event_out
from strandline.log.store import Event
from strandline.observability import logger
from strandline.recall import store
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
    list_extra_weights,
    rerank_by_weights,
)
from strandline.recall.near_duplicates import DeduplicatedEvents, collapse_near_duplicates
from strandline.recall.payload_excerpts import PayloadParts, choose_excerpt, read_payload_parts
from strandline.recall.relevance import ScoredEvent
from strandline.recall.schemas import Hit, RecallAnswer, RecallRequest, ScoringOut
from strandline.recall.search import SearchResult, search
from strandline.recall.topic_breadth import TOPIC

_MAX_USED_HITS = 10
"""The number of the best hits of an answer that are recorded as used."""


def _deduplicate_and_limit_hits(
    access: TenantDb,
    search_result: SearchResult,
    by_weight: Sequence[ScoredEvent],
    request: RecallRequest,
) -> tuple[DeduplicatedEvents, Sequence[ScoredEvent]]:
    """The events by weight, near-duplicates in one place, and those of them that are hits."""
    spread, words = search_result.topics.spread(by_weight), search_result.words
    groups = collapse_near_duplicates(access, spread, words, request.query, request.limit)
    shown_events = groups.list_events(with_duplicates=request.shows_near_duplicates)
    return groups, shown_events[: request.limit]


def _search_as_requested(
    access: TenantDb,
    embedder: Embedder,
    request: RecallRequest,
    asked_at: datetime,
    vector_timeout: float,
    min_known: float | None,
) -> SearchResult:
    return search(
        access,
        embedder,
        request.query,
        now=asked_at,
        vector_timeout=vector_timeout,
        filters=request.to_json_filter(),
        min_known=min_known,
        needs_breadth=request.needs_breadth,
        only_words=request.only_words,
    )


def recall(
    access: TenantDb,
    embedder: Embedder,
    blobs: BlobStore,
    request: RecallRequest,
    now: datetime,
    vector_timeout: float,
    min_known: float | None,
    sona_id: UUID | None = None,
) -> RecallAnswer:
    """The best hits for a question, best first, or by time; none if no event is relevant enough.
    `min_known` is the deployment's threshold, `sona_id` the sona that the request names."""
    asked_at = request.choose_now(now)
    search_result = _search_as_requested(
        access, embedder, request, asked_at, vector_timeout, min_known
    )
    relevant = search_result.select_relevant_events(request.min_relevance)
    sona = SonaInEmbeddingSpace(sona_id, embedder.space) if sona_id else None
    by_weight, traits = rerank_by_weights(access, relevant, request.weights, asked_at, now, sona)
    groups, best = _deduplicate_and_limit_hits(access, search_result, by_weight, request)
    supporting = find_cited_events(access, best, request.to_json_filter(), request.expand)
    best_ids = [event.candidate.event_id for event in best]
    events = store.read_visible_events(access, best_ids + supporting)
    payloads = read_payload_parts(
        blobs, access.caller.tenant, map(events.get, best_ids), search_result
    )
    scored_hits = [
        _to_hit(scored_event, events, search_result, request, traits, groups.similar, payloads)
        for scored_event in best
        if scored_event.candidate.event_id in events
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
        scoring=_describe_scoring(search_result, request),
        breadth=request.needs_breadth,
        did_not_fit=fitting.left_out,
        degraded=search_result.list_degradations(request.min_relevance)
        + [*payloads.degradations]
        + ["cut_by_size"] * (len(hits) < len(fitting.hits))
        + ["cut_by_budget"] * fitting.is_cut,
        not_yet_embedded=search_result.unembedded_event_count,
        not_yet_folded=search_result.unfolded_event_count,
        read_token=make_read_token(access, search_result.result, search_result.space),
    )


def _describe_scoring(search_result: SearchResult, request: RecallRequest) -> ScoringOut | None:
    if not request.explain:
        return None
    threshold = search_result.min_known or None
    weights = search_result.calibration.features._asdict()
    return ScoringOut(
        min_known=threshold if request.min_relevance is None else None,
        weights=weights | list_extra_weights(request.weights),
    )


def _to_hit(
    scored_event: ScoredEvent,
    events: Mapping[UUID, Event],
    search_result: SearchResult,
    request: RecallRequest,
    traits: Mapping[UUID, ExtraRankingSignals],
    similar: Mapping[UUID, Sequence[UUID]],
    payloads: PayloadParts,
) -> Hit:
    event = events[scored_event.candidate.event_id]
    row = search_result.candidates[event.event_id]
    features = scored_event.features._asdict()
    if event.event_id in traits:
        features |= traits[event.event_id].to_values_by_name()
    piece, excerpt = find_matching_range(event, row, search_result.matcher), None
    if part := payloads.by_event.get(event.event_id):
        piece, excerpt = choose_excerpt(part, search_result.matcher)
    return Hit(
        event_id=event.event_id,
        source_event_key=event.source_event_key,
        speaker=event.speaker,
        occurred_at=row.said_at,
        text=event.content,
        name=event.file_name,
        piece=piece,
        excerpt=excerpt,
        relevance=search_result.round_calibrated_relevance(scored_event.relevance),
        why=list_match_reasons(scored_event, search_result.words)
        + [TOPIC] * search_result.topics.adds(event.event_id),
        superseded_by=None,
        superseded_sentence=None,
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
