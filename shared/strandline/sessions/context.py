"""What a session's agent should have in mind: its short-term memory, and the chains beside it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from uuid_utils.compat import uuid7

from strandline.chains import store_recalls
from strandline.db.database import Look
from strandline.embeddings import spaces
from strandline.embeddings.embedder import Embedder
from strandline.llm.tasks import Reasoner
from strandline.llm.types import Said, Task
from strandline.log import read as log_read
from strandline.log.trust import least
from strandline.observability import logger
from strandline.recall.recall import query_vector, token_of
from strandline.sessions import store, store_chains
from strandline.sessions.chains_view import Reading, chain_shown
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
from strandline.sessions.store import Glimpse, Recent
from strandline.sessions.store_chains import FoundChain

_ANSWERS = 10
"""Chains that a context's query is answered with, where it names no number: being given as an
answer warms a chain, so that all of a scope's would be warmed alike."""


@dataclass
class _Group:
    """Recent events of which the newest is shown."""

    event_id: UUID
    count: int = 0


def coalesced(newest_first: Sequence[Glimpse]) -> list[tuple[UUID, int]]:
    """The events that stay where of those equal in type and in workflow_id or execution_id only the
    newest is shown (A-24), and for how many each stands, itself included; newest first."""
    groups: list[_Group] = []
    by_key: dict[tuple[str, str, str], _Group] = {}
    for event in newest_first:
        named = (("workflow_id", event.workflow_id), ("execution_id", event.execution_id))
        keys = [(event.type, name, value) for name, value in named if value is not None]
        group = next((by_key[key] for key in keys if key in by_key), None)
        if group is None:
            group = _Group(event.event_id)
            groups.append(group)
        group.count += 1
        for key in keys:  # what an event hidden by one of its ids is equal to by the other, too
            by_key.setdefault(key, group)
    return [(group.event_id, group.count) for group in groups]


def short_term(reading: Reading, limit: int | None = None) -> list[tuple[Recent, int]]:
    """The newest events of a session, coalesced, each with for how many it stands: no more than
    the window holds, none older than it lasts; newest first."""
    session, most = reading.session, reading.tuning.window_events
    since = reading.now - timedelta(seconds=reading.tuning.window_seconds)
    glimpses = store.recent(reading.access, session.session_id, session.scope_id, since)
    counts = dict(coalesced(glimpses)[: min(limit or most, most)])
    rows = store.shown(reading.access, list(counts)) if counts else ()
    return [(row, counts[row.event_id]) for row in rows]


def context(
    reading: Reading, embedder: Embedder, asked: ContextQuery, vector_seconds: float
) -> tuple[ContextOut, list[FoundChain]]:
    """Short-term memory and chains of the session's scope: nearest to a query, else the latest;
    with the chains that were given as an answer to a query."""
    session, degraded, space = reading.session, list[str](), None
    wanted = _ANSWERS if asked.chains is None and asked.query is not None else asked.chains
    most = reading.tuning.context_chains
    most = most if wanted is None else min(most, wanted)
    if asked.query is None:
        found = store_chains.latest(reading.access, session.scope_id, most)
    else:
        found, degraded, space = _about(reading, embedder, asked.query, -1.0, most, vector_seconds)
    recent = [
        RecentOut(event=log_read.shown(row), count=count, chain_id=row.chain_id)
        for row, count in short_term(reading, asked.limit)
    ]
    chains = [chain_shown(row, reading) for row in found.rows]
    fit = log_read.fitting([*recent, *chains])  # short-term memory first: chains give way to it
    answer = ContextOut(
        session_id=session.session_id,
        scope_id=session.scope_id,
        participants=session.participants,
        recent=_of_type(RecentOut, fit),
        chains=_of_type(ChainOut, fit),
        degraded=degraded + (["cut_by_size"] if len(fit) < len(recent) + len(chains) else []),
        token=token_of(reading.access, found, space),
    )
    given = found.rows[: len(answer.chains)] if asked.query is not None else ()
    return answer, list(given)


def _of_type[Model: BaseModel](wanted: type[Model], models: Sequence[BaseModel]) -> list[Model]:
    return [model for model in models if isinstance(model, wanted)]


def search(
    reading: Reading, embedder: Embedder, asked: SearchRequest, vector_seconds: float
) -> tuple[SearchOut, list[FoundChain]]:
    """Chains of the session's scope that answer a question, best first; and their rows."""
    least, most = asked.similarity_threshold, asked.limit
    found, degraded, space = _about(reading, embedder, asked.query, least, most, vector_seconds)
    hits = log_read.fitting(
        ChainHit(
            chain=chain_shown(row, reading), similarity=row.similarity, text_score=row.text_score
        )
        for row in found.rows
    )
    answer = SearchOut(
        session_id=reading.session.session_id,
        scope_id=reading.session.scope_id,
        hits=hits,
        degraded=degraded + (["cut_by_size"] if len(hits) < len(found.rows) else []),
        token=token_of(reading.access, found, space),
    )
    return answer, list(found.rows[: len(hits)])


def _about(
    reading: Reading, embedder: Embedder, question: str, least: float, most: int, seconds: float
) -> tuple[Look[FoundChain], list[str], str | None]:
    """The scope's chains about a question, how the search was degraded, and the embedding space
    that it went by."""
    vector, degraded = query_vector(embedder, question, seconds)
    found = store_chains.about(
        reading.access,
        reading.session.scope_id,
        question=question,
        vector=vector,
        space=embedder.space,
        least=least,
        limit=most,
    )
    return found, degraded, embedder.space if vector else None


def record_use(reading: Reading, given: Sequence[FoundChain], space: str) -> bool:
    """Record that these chains were given as an answer, if they are one: what keeps them warm. The
    caller's answer is made already and is given whatever happens here; tells whether it was
    recorded."""
    least = spaces.thresholds(space, reading.tuning).relevant
    used = [
        (row.chain_id, row.scope_id, row.participants)
        for row in given
        if row.text_score or (row.similarity is not None and row.similarity >= least)
    ]
    if not used:
        return True
    try:
        store_recalls.record(reading.access, uuid7(), used, reading.now)
    except Exception as error:  # the caller has its answer; a lost record makes a chain cool sooner
        logger.warning("recall not recorded", extra={"error": type(error).__name__})
        return False
    return True


def topics(reading: Reading, reasoner: Reasoner, *, subject: str, deadline: float) -> TopicsOut:
    """What a session's short-term memory is about: the topics of the chains that hold it, and of
    what is in none yet. That is asked of the reasoner, and counts towards `subject`'s rate."""
    runs: dict[UUID | None, list[Recent]] = {}
    for row, _ in short_term(reading):
        runs.setdefault(row.chain_id, []).insert(0, row)
    named: list[TopicOut] = []
    for chain_id, rows in runs.items():
        topic, made_by, trust = rows[0].topic, rows[0].topic_by, rows[0].trust
        if chain_id is None:
            topic, made_by = _asked(reading, reasoner, rows, subject, deadline)
        if topic is not None:
            named.append(
                TopicOut.model_validate(
                    {"topic": topic, "chain_id": chain_id, "made_by": made_by}
                    | {"event_ids": [row.event_id for row in rows]}
                    | {"trust": trust or least(row.origin for row in rows)}
                )
            )
    return TopicsOut(session_id=reading.session.session_id, topics=named)


def _asked(
    reading: Reading, reasoner: Reasoner, rows: Sequence[Recent], subject: str, deadline: float
) -> tuple[str | None, dict[str, Any] | None]:
    """The topic of open events by seq, and who named it; nothing where none of them has a text."""
    said = [
        Said(r.seq, r.speaker, r.role, r.type, r.content, r.occurred_at or r.recorded_at)
        for r in rows
        if r.content
    ]
    if not said:
        return None, None
    task = Task(
        tenant=reading.access.asker.tenant,
        subject=subject,
        participants=tuple(reading.session.participants),
        scope_id=str(reading.session.scope_id),
        deadline=deadline,
    )
    done = reasoner.topic(task, said)
    made_by = {"model": done.model, "prompt": done.prompt, "fell_back": done.fell_back}
    return done.value.topic, made_by
