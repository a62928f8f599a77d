"""Search a session's context: its chains and the knowledge graph."""

from strandline.context.schemas import SearchOut
from strandline.embeddings.embedder import Embedder
from strandline.graph.reader import NOTHING, read_known
from strandline.graph.schemas_search import KnownEdge, KnownGraph, KnownNode
from strandline.log.read import fit_to_page
from strandline.recall.recall import make_token
from strandline.sessions.chains_view import SessionView, to_chain_out
from strandline.sessions.context import list_relevant_in_view, of_type, search_view
from strandline.sessions.schemas_context import ChainHit, SearchRequest
from strandline.sessions.store_chains import MatchedChain


def search_session(
    view: SessionView, embedder: Embedder, request: SearchRequest, vector_timeout: float
) -> tuple[SearchOut, list[MatchedChain]]:
    """Search the chains of the view for a question, best first, and read the graph's contents about
    it. Also returns the chains' rows."""
    search = search_view(view, embedder, request.query, vector_timeout)
    rows = list_relevant_in_view(
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
    if view.tuning.reads_graph and not view.only_session:
        graph = read_known(view.access, request.query, search.vector, embedder.space)
    items = [*hits, *graph.nodes, *graph.edges]
    fitting = fit_to_page(items)
    answer = SearchOut(
        session_id=view.session.session_id,
        scope_id=view.session.scope_id,
        known=search.known,
        hits=of_type(ChainHit, fitting),
        graph=KnownGraph(nodes=of_type(KnownNode, fitting), edges=of_type(KnownEdge, fitting)),
        degraded=search.note_floor(request.min_relevance)
        + (["cut_by_size"] if len(fitting) < len(items) else []),
        read_token=make_token(view.access, search.result, search.space),
    )
    return answer, list(rows[: len(answer.hits)])
