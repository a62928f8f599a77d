"""Search: find the visible events that may answer a question, by words and by meaning, and score
them. It converts nothing for an answer and reads no payload, so that background work may use it."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from strandline.db.database import SnapshotRead, TenantDb
from strandline.embeddings.embedder import Embedder
from strandline.recall import store
from strandline.recall.calibrations import choose_min_known, read_calibration
from strandline.recall.candidate_search import find_candidates
from strandline.recall.features import QuestionWord
from strandline.recall.looked_up_words import find_looked_up_word_bits
from strandline.recall.passages import Passages, WordMatcher
from strandline.recall.query_vector import NO_QUERY_VECTOR, embed_query
from strandline.recall.question_mentions import parse_names_and_dates
from strandline.recall.relevance import (
    Calibration,
    RankedEvents,
    ScoredEvent,
    merge_further,
    rank_candidates,
)
from strandline.recall.store import CandidateRow
from strandline.recall.store_field_revisions import list_replaced_revisions
from strandline.recall.topic_breadth import NO_TOPICS, TopicEvents, find_topic_events


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
    is_about_now: bool
    """Whether the question names no time, nor asks for what was."""
    min_known: float
    """The threshold of `known` below which an answer is empty by default: the tenant's, else the
    deployment's, else the calibrated one. 0 without a query vector or a calibration."""

    @cached_property
    def matcher(self) -> WordMatcher:
        """Finds the question's words in texts."""
        return WordMatcher(self.words)

    def make_passages(self, event_id: UUID, text: str) -> Passages:
        """The parts of an event's text, by how well they match the question."""
        row = self.candidates.get(event_id)
        return Passages(text, self.matcher, (row and row.passage_cosines) or ())

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
    only_words: bool = False,
) -> SearchResult:
    """Find and score the visible events that may answer a question, in `scopes` or everywhere,
    without statements of a field's value that a later one, within the filters' `until`, replaced.
    `exclude` omits events, such as the question itself if it is stored. `needs_breadth` adds the
    events of the topics of the best ones. Without a query vector within `vector_timeout` seconds,
    or with `only_words`, it searches by words alone and reports this in `degraded`. `min_known` is
    the deployment's threshold, for tenants without one of their own."""
    vector = (
        (None, [NO_QUERY_VECTOR]) if only_words else embed_query(embedder, question, vector_timeout)
    )
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


def _leave_out(
    access: TenantDb,
    rows: Sequence[CandidateRow],
    exclude: Collection[UUID],
    filters: Mapping[str, Any],
) -> list[CandidateRow]:
    """The candidates but for those to exclude and for values of fields that hold no longer."""
    statement_ids = [row.event_id for row in rows if row.is_statement]
    replaced_ids = list_replaced_revisions(access, statement_ids, filters.get("until"))
    return [row for row in rows if row.event_id not in exclude and row.event_id not in replaced_ids]


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
    rows = _leave_out(access, found.result.rows, exclude, filters)
    calibration = read_calibration(access, space, question, head)
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
        is_about_now=parsed.is_about_now,
        min_known=choose_min_known(head, min_known, calibration) if space else 0.0,
    )
