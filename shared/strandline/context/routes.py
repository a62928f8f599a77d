"""HTTP routes of contexts: stored memory for an agent's prompt, and the topics of a
session's short-term memory."""

from datetime import UTC, datetime

from strandline.config import get_settings
from strandline.context import session_context, short_term_memory
from strandline.context.build import build_context_text, build_session_context_text
from strandline.context.schemas import (
    ChainSearchRequest,
    ContextTextOut,
    ContextTextRequest,
    SearchOut,
    SessionContextOut,
    SessionContextQuery,
    TopicsOut,
)
from strandline.context.session_context import search_session_chains_and_graph
from strandline.context.used_sources import UsedSources, record_used_sources
from strandline.db.database import TenantDb
from strandline.errors import Invalid, NotFound, StateConflict
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.log.store_scopes import can_see_any_scope
from strandline.schemas import ParticipantsQuery
from strandline.sessions import sessions
from strandline.sessions.chains_view import SessionReadContext
from strandline.sessions.routes_read import open_session_for_reading
from strandline.sessions.routes_write import SESSION, find_named_session
from strandline.sessions.schemas import ScopeIdQuery
from strandline.sessions.store import Session
from strandline.sessions.store_chains import MatchedChain
from strandline.tenants.store_tuning import read_tuning


def post_context(request: Request) -> Response:
    """Get stored memory for a prompt, as one block of text. The text contains short-term memory,
    then what the knowledge graph holds about `query`, topics, and the events that answer `query`.
    Each part is ordered by time, and the whole fits `budget` tokens. Topics contain only sentences
    that no shown event contains. With a query, short-term memory takes at most a tenth of the
    budget, the knowledge graph a sixteenth, and topics what events leave, but at most a quarter
    before events for a list, an order or a summary. An event that is short, or answers a question
    in a sentence, is shown with the one before it. Stored text is data between two tags: it cannot
    close them, start a line or pass for a citation. The same answer gives the same text. The chains
    and events that answer the query are warmed."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(ContextTextRequest)
    session = _find_session(request, body)
    members = [*(body.participants or ()), *(query.participants or ())]
    access = request.connect_reader(
        query,
        sessions.resolve_reading_participants(session, members or None) if session else members,
    )
    now, settings = datetime.now(UTC), get_settings()
    response, use = build_context_text(
        access,
        request.embedder,
        request.resources.blobs,
        body,
        session=session,
        tuning=(
            settings.tuning.with_overrides(session.tuning)
            if session
            else read_tuning(access, settings.tuning)
        ),
        now=now,
        vector_timeout=settings.query_vector_seconds,
    )
    if not response.citations and not can_see_any_scope(access):
        response.degraded.append("no_scope_in_view")
    if body.query is not None:
        _record_text_use_and_metrics(request, access, use, response, now)
    return json_response(response)


def _find_session(request: Request, body: ContextTextRequest) -> Session | None:
    """The session that the body names, if any. Raises Invalid for a scope without a session;
    NotFound or StateConflict as `find_named_session`."""
    if body.session_id is None:
        if body.scope_id is not None:
            raise Invalid(
                "scope_id: selects one of several sessions of the same name; send session_id "
                "with it",
                field="scope_id",
            )
        return None
    return sessions.require_readable_session(
        find_named_session(request, body.session_id, body.scope_id)
    )


def get_context(request: Request) -> Response:
    """Get a session's context for its agent: short-term memory, and chains of its participants,
    either those closest to `query` or the latest. Short-term memory is the newest 10 events of the
    last hour (both can be tuned). Of events of one type that share a workflow_id or an
    execution_id, only the newest is returned, with their count. When the session is read on behalf
    of only some of its participants (because of `participants`, or because the tenant's agents
    share), events and chains are those of all scopes in which these took part. With `format=text`,
    the answer is one block of text for a prompt, as from POST /api/v1/context. The chains that
    answer a query are warmed."""
    query = request.parse_query(SessionContextQuery)
    view = open_session_for_reading(
        request, query, query.participants, only_session=query.only_session
    )
    embedder, timeout = request.embedder, get_settings().query_vector_seconds
    if query.format == "text":
        text, use = build_session_context_text(
            view, embedder, request.resources.blobs, query, timeout
        )
        if query.query is not None:
            _record_text_use_and_metrics(request, view.access, use, text, view.now)
        return json_response(text)
    response, chains = session_context.build_session_context(view, embedder, query, timeout)
    if query.query is not None:
        record_chain_use_and_metrics(request, view, chains, response.degraded)
    return json_response(response)


def search_context(request: Request) -> Response:
    """Search the chains of a session's participants by meaning, best first. Each chain is returned
    with its event ids. When the search is on behalf of only some of the session's participants, the
    chains are those of all scopes in which these took part. Chains that answer the question are
    warmed. `graph` contains what the knowledge graph holds about the things that the question
    names."""
    query, body = request.parse_query(ScopeIdQuery), request.parse_body(ChainSearchRequest)
    view = open_session_for_reading(
        request, query, body.participants, only_session=body.only_session
    )
    embedder = request.embedder
    response, chains = search_session_chains_and_graph(
        view, embedder, body, get_settings().query_vector_seconds
    )
    record_chain_use_and_metrics(request, view, chains, response.degraded)
    request.metrics |= {
        "GraphNodesRead": len(response.graph.nodes),
        "GraphEdgesRead": len(response.graph.edges),
    }
    return json_response(response)


def record_chain_use_and_metrics(
    request: Request, view: SessionReadContext, chains: list[MatchedChain], degradations: list[str]
) -> None:
    """Record that an answer contained these chains, and count it."""
    is_recorded = session_context.record_chain_use(view, chains)
    request.metrics |= {
        "SearchHits": len(chains),
        "RecallsDegraded": int(bool(degradations)),
        "RecallsNotRecorded": int(not is_recorded),
    }


def get_topics(request: Request) -> Response:
    """Name the topics of a session's short-term memory. The answer states which model named
    each."""
    view = open_session_for_reading(request, request.parse_query(ScopeIdQuery))
    llm = request.resources.llm
    # Not the scope's subject: these calls must not use up the rate of the scope's fold.
    subject = request.principal.user or f"key:{request.principal.key_id}"
    response = short_term_memory.list_short_term_topics(
        view, llm, subject=subject, deadline=request.deadline
    )
    llm.store_call_records(view.access)
    request.metrics |= llm.take_metrics()
    return json_response(response)


def _record_text_use_and_metrics(
    request: Request, access: TenantDb, use: UsedSources, answer: ContextTextOut, now: datetime
) -> None:
    is_recorded = record_used_sources(access, use, now)
    request.metrics |= {
        "SearchHits": use.count,
        "RecallsDegraded": int(bool(answer.degraded)),
        "RecallsNotRecorded": int(not is_recorded),
    }


ROUTES = {
    "POST /api/v1/context": Route(
        post_context,
        "read",
        {200: ContextTextOut},
        query=ParticipantsQuery,
        body=ContextTextRequest,
        errors=(NotFound, StateConflict),
    ),
    f"GET {SESSION}/context": Route(
        get_context,
        "read",
        {200: SessionContextOut},
        query=SessionContextQuery,
        errors=(StateConflict,),
    ),
    f"POST {SESSION}/context/search": Route(
        search_context,
        "read",
        {200: SearchOut},
        query=ScopeIdQuery,
        body=ChainSearchRequest,
        errors=(StateConflict,),
    ),
    f"GET {SESSION}/analysis/topics": Route(
        get_topics,
        "read",
        {200: TopicsOut},
        query=ScopeIdQuery,
        errors=(StateConflict,),
    ),
}
