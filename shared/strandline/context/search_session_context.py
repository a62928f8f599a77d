"""Search a session's context: its chains and the knowledge graph."""

from strandline.context.schemas import SearchOut
from strandline.embeddings.embedder import Embedder
from strandline.graph.search.read_for_recall import NOTHING, read_known_graph
from strandline.graph.search.schemas import KnownEdge, KnownGraph, KnownNode
from strandline.log.read import fit_to_page
from strandline.recall.recall import make_read_token
from strandline.sessions.chains_view import SessionReadContext, to_chain_out
from strandline.sessions.context import (
    filter_by_type,
    list_relevant_chains_in_view,
    search_events_in_view,
)
from strandline.sessions.schemas_context import ChainHit, SearchRequest
from strandline.sessions.store_chains import MatchedChain


def search_session(
    view: SessionReadContext, embedder: Embedder, request: SearchRequest, vector_timeout: float
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
            relevance=search.to_probability(row.relevance or 0.0),
            similarity=row.similarity,
        )
        for row in rows
    ]
    graph = NOTHING
    if view.tuning.contexts_read_graph and not view.only_session:
        graph = read_known_graph(view.access, request.query, search.vector, embedder.space)
    items = [*hits, *graph.nodes, *graph.edges]
    fitting = fit_to_page(items)
    answer = SearchOut(
        session_id=view.session.session_id,
        scope_id=view.session.scope_id,
        known=search.known,
        hits=filter_by_type(ChainHit, fitting),
        graph=KnownGraph(
            nodes=filter_by_type(KnownNode, fitting), edges=filter_by_type(KnownEdge, fitting)
        ),
        degraded=search.list_degradations(request.min_relevance)
        + (["cut_by_size"] if len(fitting) < len(items) else []),
        read_token=make_read_token(view.access, search.result, search.space),
    )
    return answer, list(rows[: len(answer.hits)])
