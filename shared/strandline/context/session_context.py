"""The context of a session: its short-term memory, related chains, and what the knowledge graph
holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from pydantic import BaseModel
from uuid_utils.compat import uuid7

from strandline.chains import store_recalls
from strandline.context.schemas import (
    ChainHit,
    ChainSearchRequest,
    ContextOut,
    RecentEventOut,
    SearchOut,
    SessionContextQuery,
)
from strandline.context.short_term_memory import read_short_term_events
from strandline.db.database import TenantDb
from strandline.embeddings.embedder import Embedder
from strandline.graph.search.read_for_recall import NOTHING, read_relevant_graph
from strandline.graph.search.schemas import RelevantEdge, RelevantGraph, RelevantNode
from strandline.log import read as log_read
from strandline.log.read import take_models_fitting_response
from strandline.observability import logger
from strandline.recall.recall import make_read_token
from strandline.recall.relevance import compute_odds
from strandline.recall.search import SearchResult, search
from strandline.sessions import store_chains
from strandline.sessions.chains_view import SessionReadContext, to_chain_out
from strandline.sessions.schemas import ChainOut
from strandline.sessions.store_chains import MatchedChain

_DEFAULT_QUERY_CHAINS = 10
"""The default number of chains in a context with a query. A chain in an answer is warmed; without
this limit, all chains of a scope would be warmed alike."""
_CHAIN_EVENTS = 20
"""The maximum number of the best events whose chains answer a question."""
_CHAIN_ODDS = 0.5
"""By default, a chain answers if the odds of its best event are at least this share of the best
chain's."""


@dataclass(frozen=True)
class ChainSearchResult:
    """The chains of a context, and the search for its question."""

    chains: Sequence[MatchedChain]
    search: SearchResult | None
    """The search; None without a question."""
    read_token: str


def find_relevant_or_latest_chains(
    view: SessionReadContext, embedder: Embedder, query: SessionContextQuery, vector_timeout: float
) -> ChainSearchResult:
    """The chains of the view that are relevant to a question, or else the latest."""
    limit = _DEFAULT_QUERY_CHAINS if query.chains is None and query.query else query.chains
    max_chains = view.tuning.context_chains
    max_chains = max_chains if limit is None else min(max_chains, limit)
    if query.query is None:
        result = store_chains.list_latest_chains(
            view.access, view.only_scope_id, max_chains, session_id=view.only_session_id
        )
        return ChainSearchResult(result.rows, None, make_read_token(view.access, result, None))
    search = search_events_in_view(
        view, embedder, query.query, vector_timeout, needs_breadth=query.needs_breadth
    )
    share = 0.0 if query.needs_breadth else None
    rows = list_relevant_chains_in_view(
        view, embedder.space, search, query.min_relevance, share, max_chains
    )
    return ChainSearchResult(
        rows, search, make_read_token(view.access, search.result, search.space)
    )


def build_session_context(
    view: SessionReadContext, embedder: Embedder, query: SessionContextQuery, vector_timeout: float
) -> tuple[ContextOut, list[MatchedChain]]:
    """Build a session's context: short-term memory, and chains: those relevant to a query, or else
    the latest. Also returns the chains that answer a query, to be recorded as used."""
    session = view.session
    matches = find_relevant_or_latest_chains(view, embedder, query, vector_timeout)
    recent = [
        RecentEventOut(event=log_read.to_event_out(row), count=count, chain_id=row.chain_id)
        for row, count in read_short_term_events(view, query.limit)
    ]
    chains = [to_chain_out(row, view) for row in matches.chains]
    # Short-term memory comes first: chains are cut before it.
    fitting_items = log_read.take_models_fitting_response([*recent, *chains])
    answer = ContextOut(
        session_id=session.session_id,
        scope_id=session.scope_id,
        participants=session.participants,
        known=matches.search.answer_probability if matches.search else None,
        recent=filter_by_type(RecentEventOut, fitting_items),
        chains=filter_by_type(ChainOut, fitting_items),
        degraded=(matches.search.list_degradations(query.min_relevance) if matches.search else [])
        + (["cut_by_size"] if len(fitting_items) < len(recent) + len(chains) else []),
        not_yet_embedded=matches.search.unembedded_event_count if matches.search else None,
        not_yet_folded=matches.search.unfolded_event_count if matches.search else None,
        read_token=matches.read_token,
    )
    return answer, list(matches.chains[: len(answer.chains)]) if matches.search else []


def filter_by_type[Model: BaseModel](
    model_type: type[Model], models: Sequence[BaseModel]
) -> list[Model]:
    """The models of this type, in their order."""
    return [model for model in models if isinstance(model, model_type)]


def search_events_in_view(
    view: SessionReadContext,
    embedder: Embedder,
    question: str,
    vector_timeout: float,
    *,
    needs_breadth: bool = False,
) -> SearchResult:
    """Search the view's events for a question."""
    return search(
        view.access,
        embedder,
        question,
        now=view.now,
        vector_timeout=vector_timeout,
        filters={"session_id": view.only_session_id} if view.only_session_id else {},
        min_known=view.tuning.min_known,
        scopes=[view.only_scope_id] if view.only_scope_id else None,
        needs_breadth=needs_breadth,
    )


def list_relevant_chains_in_view(
    view: SessionReadContext,
    space: str,
    search: SearchResult,
    min_relevance: float | None,
    share: float | None,
    limit: int,
) -> Sequence[MatchedChain]:
    """The chains of the view that contain the best of the events found, best first."""
    return list_relevant_chains(
        view.access,
        space,
        search,
        min_relevance,
        limit,
        share=share,
        scope_id=view.only_scope_id,
        session_id=view.only_session_id,
    )


def list_relevant_chains(
    access: TenantDb,
    space: str,
    search: SearchResult,
    min_relevance: float | None,
    limit: int = _DEFAULT_QUERY_CHAINS,
    *,
    share: float | None = None,
    scope_id: UUID | None = None,
    session_id: str | None = None,
) -> Sequence[MatchedChain]:
    """The chains that contain the best of the events found, best first; limited to one scope, and
    one session of it, if given. With `min_relevance`, those with an event of at least this
    relevance; 0 keeps every chain that contains an event found. With `share`, those whose odds are
    at least this share of the best chain's; by default half of them, or all with
    `min_relevance`."""
    relevance = _map_relevance_by_event_id(search, min_relevance)
    if not relevance:
        return ()
    rows = store_chains.list_relevant_chains(
        access,
        scope_id,
        session_id=session_id,
        relevance=relevance,
        vector=search.vector,
        space=space,
        limit=limit,
    )
    if share is None:
        share = _CHAIN_ODDS if min_relevance is None else 0.0
    floor = share * compute_odds(rows[0].relevance or 0.0) if rows else 0.0
    # Equal odds need not be equal floats.
    return [row for row in rows if compute_odds(row.relevance or 0.0) >= floor - 1e-9]


def _map_relevance_by_event_id(
    search: SearchResult, min_relevance: float | None
) -> dict[UUID, float]:
    """The relevance of the events whose chains may answer the question, by id. A statement is in no
    chain."""
    events = [
        event
        for event in search.select_relevant_events(min_relevance)
        if not event.candidate.is_statement
    ]
    if min_relevance is None:
        events = events[:_CHAIN_EVENTS]
    return {event.candidate.event_id: event.relevance for event in events}


def record_chain_use(view: SessionReadContext, answer_chains: Sequence[MatchedChain]) -> bool:
    """Record that an answer contained these chains, which keeps them warm. A failure here does not
    affect the answer, which is already built. Returns False if nothing was recorded."""
    used_chains = [(row.chain_id, row.scope_id, row.participants) for row in answer_chains]
    if not used_chains:
        return True
    try:
        store_recalls.record_recalled_chains(view.access, uuid7(), used_chains, view.now)
    except Exception as error:  # without the record the chain only cools sooner
        logger.warning("recall not recorded", extra={"error": type(error).__name__})
        return False
    return True


def search_session_chains_and_graph(
    view: SessionReadContext, embedder: Embedder, request: ChainSearchRequest, vector_timeout: float
) -> tuple[SearchOut, list[MatchedChain]]:
    """Search the chains of the view for a question, best first, and read the graph's contents about
    it. Also returns the chains' rows."""
    search = search_events_in_view(view, embedder, request.query, vector_timeout)
    rows = list_relevant_chains_in_view(
        view,
        embedder.space,
        search,
        request.min_relevance,
        request.similarity_threshold,
        request.limit,
    )
    hits = [
        ChainHit(
            chain=to_chain_out(row, view),
            relevance=search.round_calibrated_relevance(row.relevance or 0.0),
            similarity=row.similarity,
        )
        for row in rows
    ]
    graph = NOTHING
    if view.tuning.contexts_read_graph and not view.only_session:
        graph = read_relevant_graph(view.access, request.query, search.vector, embedder.space)
    items = [*hits, *graph.nodes, *graph.edges]
    fitting = take_models_fitting_response(items)
    answer = SearchOut(
        session_id=view.session.session_id,
        scope_id=view.session.scope_id,
        known=search.answer_probability,
        hits=filter_by_type(ChainHit, fitting),
        graph=RelevantGraph(
            nodes=filter_by_type(RelevantNode, fitting), edges=filter_by_type(RelevantEdge, fitting)
        ),
        degraded=search.list_degradations(request.min_relevance)
        + (["cut_by_size"] if len(fitting) < len(items) else []),
        not_yet_embedded=search.unembedded_event_count,
        not_yet_folded=search.unfolded_event_count,
        read_token=make_read_token(view.access, search.result, search.space),
    )
    return answer, list(rows[: len(answer.hits)])
