"""The context of a session: its short-term memory, and related chains."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from uuid_utils.compat import uuid7

from strandline.chains import store_recalls
from strandline.db.database import SnapshotRead
from strandline.embeddings import spaces
from strandline.embeddings.embedder import Embedder
from strandline.llm.tasks import LlmTasks
from strandline.llm.types import PromptEvent, TaskContext
from strandline.log import read as log_read
from strandline.log.trust import least_trusted
from strandline.observability import logger
from strandline.recall.recall import embed_query, make_token
from strandline.sessions import store, store_chains
from strandline.sessions.chains_view import SessionView, to_chain_out
from strandline.sessions.schemas import (
    ChainHit,
    ChainOut,
    ContextOut,
    ContextQuery,
    RecentOut,
    SearchOut,
    SearchRequest,
    TopicOut,
    TopicsOut,
)
from strandline.sessions.store import RecentEvent, ShortTermEvent
from strandline.sessions.store_chains import MatchedChain

_DEFAULT_QUERY_CHAINS = 10
"""How many chains a context with a query returns by default. Answering with a chain warms it;
without this limit all chains of a scope would be warmed alike."""


@dataclass
class _EventGroup:
    """Equal recent events, of which only the newest is shown."""

    event_id: UUID
    count: int = 0


def coalesce(newest_first: Sequence[RecentEvent]) -> list[tuple[UUID, int]]:
    """Coalesce recent events: of events equal in type and in workflow_id or execution_id only
    the newest stays. Returns (event id, number of events it stands for, itself included), newest
    first."""
    groups: list[_EventGroup] = []
    by_key: dict[tuple[str, str, str], _EventGroup] = {}
    for event in newest_first:
        id_fields = (("workflow_id", event.workflow_id), ("execution_id", event.execution_id))
        keys = [(event.type, name, value) for name, value in id_fields if value is not None]
        group = next((by_key[key] for key in keys if key in by_key), None)
        if group is None:
            group = _EventGroup(event.event_id)
            groups.append(group)
        group.count += 1
        for key in keys:  # a hidden event links the group by its other id, too
            by_key.setdefault(key, group)
    return [(group.event_id, group.count) for group in groups]


def read_short_term(
    view: SessionView, limit: int | None = None
) -> list[tuple[ShortTermEvent, int]]:
    """The newest events of a session, or of all scopes in view, coalesced, each with the number of
    events it stands for. At most `limit` and the tuned window, none older than the tuned age;
    newest first."""
    session, max_events = view.session, view.tuning.window_events
    since = view.now - timedelta(seconds=view.tuning.window_seconds)
    recent_events = (
        store.list_recent_in_view(view.access, since)
        if view.is_wide
        else store.list_recent(view.access, session.session_id, session.scope_id, since)
    )
    counts = dict(coalesce(recent_events)[: min(limit or max_events, max_events)])
    rows = store.read_short_term(view.access, list(counts)) if counts else ()
    return [(row, counts[row.event_id]) for row in rows]


def build_context(
    view: SessionView, embedder: Embedder, query: ContextQuery, vector_timeout: float
) -> tuple[ContextOut, list[MatchedChain]]:
    """Build a session's context: short-term memory, and chains, nearest to a query, else the
    latest. Also returns the chains that answer a query, to be recorded as used."""
    session, degraded, space = view.session, list[str](), None
    chain_limit = (
        _DEFAULT_QUERY_CHAINS if query.chains is None and query.query is not None else query.chains
    )
    max_chains = view.tuning.context_chains
    max_chains = max_chains if chain_limit is None else min(max_chains, chain_limit)
    if query.query is None:
        result = store_chains.list_latest(
            view.access, view.only_scope_id, max_chains, session_id=view.only_session_id
        )
    else:
        result, degraded, space = _find_chains(
            view, embedder, query.query, -1.0, max_chains, vector_timeout
        )
    recent = [
        RecentOut(event=log_read.to_event_out(row), count=count, chain_id=row.chain_id)
        for row, count in read_short_term(view, query.limit)
    ]
    chains = [to_chain_out(row, view) for row in result.rows]
    # Short-term memory comes first: chains are cut before it.
    fitting_items = log_read.fit_to_page([*recent, *chains])
    answer = ContextOut(
        session_id=session.session_id,
        scope_id=session.scope_id,
        participants=session.participants,
        recent=_of_type(RecentOut, fitting_items),
        chains=_of_type(ChainOut, fitting_items),
        degraded=degraded
        + (["cut_by_size"] if len(fitting_items) < len(recent) + len(chains) else []),
        token=make_token(view.access, result, space),
    )
    answer_chains = result.rows[: len(answer.chains)] if query.query is not None else ()
    return answer, list(answer_chains)


def _of_type[Model: BaseModel](model_type: type[Model], models: Sequence[BaseModel]) -> list[Model]:
    return [model for model in models if isinstance(model, model_type)]


def search_chains(
    view: SessionView, embedder: Embedder, request: SearchRequest, vector_timeout: float
) -> tuple[SearchOut, list[MatchedChain]]:
    """Search the chains of the view for a question, best first. Also returns their rows."""
    min_similarity, max_chains = request.similarity_threshold, request.limit
    result, degraded, space = _find_chains(
        view, embedder, request.query, min_similarity, max_chains, vector_timeout
    )
    hits = log_read.fit_to_page(
        ChainHit(
            chain=to_chain_out(row, view), similarity=row.similarity, text_score=row.text_score
        )
        for row in result.rows
    )
    answer = SearchOut(
        session_id=view.session.session_id,
        scope_id=view.session.scope_id,
        hits=hits,
        degraded=degraded + (["cut_by_size"] if len(hits) < len(result.rows) else []),
        token=make_token(view.access, result, space),
    )
    return answer, list(result.rows[: len(hits)])


def _find_chains(
    view: SessionView,
    embedder: Embedder,
    question: str,
    min_similarity: float,
    max_chains: int,
    vector_timeout: float,
) -> tuple[SnapshotRead[MatchedChain], list[str], str | None]:
    """The view's chains about a question, the codes for `degraded`, and the embedding space used;
    None where the search was by words alone."""
    vector, degraded = embed_query(embedder, question, vector_timeout)
    result = store_chains.search_chains(
        view.access,
        view.only_scope_id,
        session_id=view.only_session_id,
        question=question,
        vector=vector,
        space=embedder.space,
        min_similarity=min_similarity,
        limit=max_chains,
    )
    return result, degraded, embedder.space if vector else None


def record_use(view: SessionView, answer_chains: Sequence[MatchedChain], space: str) -> bool:
    """Record that an answer contained these chains, which keeps them warm. A failure here does not
    affect the answer, which is already built; returns False if it could not be recorded."""
    min_similarity = spaces.thresholds_for(space, view.tuning).min_relevance
    used_chains = [
        (row.chain_id, row.scope_id, row.participants)
        for row in answer_chains
        if row.text_score or (row.similarity is not None and row.similarity >= min_similarity)
    ]
    if not used_chains:
        return True
    try:
        store_recalls.record_chains(view.access, uuid7(), used_chains, view.now)
    except Exception as error:  # without the record the chain only cools sooner
        logger.warning("recall not recorded", extra={"error": type(error).__name__})
        return False
    return True


def list_topics(view: SessionView, llm: LlmTasks, *, subject: str, deadline: float) -> TopicsOut:
    """The topics of a session's short-term memory: those of its chains, and one for events that are
    in no chain yet. The language model names the latter, which counts towards `subject`'s rate
    limit. `deadline` is in time.monotonic() seconds."""
    rows_by_chain: dict[UUID | None, list[ShortTermEvent]] = {}
    for row, _ in read_short_term(view):
        rows_by_chain.setdefault(row.chain_id, []).insert(0, row)
    topic_list: list[TopicOut] = []
    for chain_id, rows in rows_by_chain.items():
        topic, made_by, trust = rows[0].topic, rows[0].topic_by, rows[0].trust
        if chain_id is None:
            topic, made_by = _name_topic(view, llm, rows, subject, deadline)
        if topic is not None:
            topic_list.append(
                TopicOut.model_validate(
                    {"topic": topic, "chain_id": chain_id, "made_by": made_by}
                    | {"event_ids": [row.event_id for row in rows]}
                    | {"trust": trust or least_trusted(row.origin for row in rows)}
                )
            )
    return TopicsOut(session_id=view.session.session_id, topics=topic_list)


def _name_topic(
    view: SessionView, llm: LlmTasks, rows: Sequence[ShortTermEvent], subject: str, deadline: float
) -> tuple[str | None, dict[str, Any] | None]:
    """Name the topic of events that are in no chain yet. Returns it and what named it; (None, None)
    where no event has text."""
    events = [
        PromptEvent(
            row.seq,
            row.speaker,
            row.role,
            row.type,
            row.content,
            row.occurred_at or row.recorded_at,
        )
        for row in rows
        if row.content
    ]
    if not events:
        return None, None
    task = TaskContext(
        tenant=view.access.caller.tenant,
        subject=subject,
        participants=tuple(view.session.participants),
        scope_id=str(view.session.scope_id),
        deadline=deadline,
    )
    result = llm.topic(task, events)
    made_by = {"model": result.model, "prompt": result.prompt, "fell_back": result.fallback_reason}
    return result.value.topic, made_by
