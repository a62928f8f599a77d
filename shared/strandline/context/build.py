"""Build the text of a context: collect what may be shown, and lay it out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.chains import store_recalls
from strandline.context.layout import Layout, Sources, lay_out
from strandline.context.lines import TopicSource
from strandline.context.schemas import (
    DEFAULT_BUDGET,
    DEFAULT_EVENTS,
    Citation,
    ContextTextOut,
    ContextTextRequest,
    CutOut,
)
from strandline.context.sources import to_source
from strandline.db.database import TenantDb
from strandline.embeddings.embedder import Embedder
from strandline.errors import Invalid
from strandline.observability import logger
from strandline.recall.recall import make_token, search
from strandline.recall.store import HitEvent, read_hits
from strandline.sessions import context as session_context
from strandline.sessions import store_chains
from strandline.sessions.chains_view import SessionView
from strandline.sessions.context import FoundChains
from strandline.sessions.schemas_context import ContextQuery
from strandline.sessions.store import Session
from strandline.sessions.store_chains import MatchedChain
from strandline.tuning import Tuning

_LATEST_CHAINS = 10
"""How many chains are read where no question selects them."""
_MAX_USED_EVENTS = 10
"""How many of the best events of a text count as used."""


@dataclass(frozen=True)
class Use:
    """What answered a question, to be recorded as used."""

    chains: Sequence[MatchedChain] = ()
    event_ids: Sequence[UUID] = ()

    @property
    def count(self) -> int:
        """How many events and chains."""
        return len(self.chains) + len(self.event_ids)


def build_context_text(
    access: TenantDb,
    embedder: Embedder,
    request: ContextTextRequest,
    *,
    session: Session | None,
    tuning: Tuning,
    now: datetime,
    vector_timeout: float,
) -> tuple[ContextTextOut, Use]:
    """The context of all that is in view, with the short-term memory of `session`, or of all in
    view, as text. Also returns what answers the question.

    Raises Invalid for a view of the whole tenant without a question or a session: it has no
    short-term memory, so there is nothing to show.
    """
    if not (access.caller.viewer or session or request.query):
        raise Invalid(
            "participants: the whole tenant has no short-term memory; send participants, a "
            "session_id or a query",
            field="participants",
        )
    recent = session_context.list_short_term_of(access, tuning, now, session=session)
    if request.query is None:
        latest = store_chains.list_latest(access, None, _LATEST_CHAINS)
        found = FoundChains(latest.rows, None, make_token(access, latest, None))
    else:
        result = search(
            access,
            embedder,
            request.query,
            now=request.now or now,
            vector_timeout=vector_timeout,
            filters={},
        )
        chains = session_context.list_relevant_chains(
            access, embedder.space, result, request.min_relevance
        )
        found = FoundChains(chains, result, make_token(access, result.result, result.space))
    return _write(access, recent, found, request.min_relevance, request.limit, request.budget)


def build_session_text(
    view: SessionView, embedder: Embedder, query: ContextQuery, vector_timeout: float
) -> tuple[ContextTextOut, Use]:
    """A session's context as text: what `build_context` finds, and the events that answer the
    question. Also returns what answers it."""
    recent = session_context.list_short_term(view, query.limit)
    found = session_context.find_chains(view, embedder, query, vector_timeout)
    budget = query.budget or DEFAULT_BUDGET
    return _write(view.access, recent, found, query.min_relevance, DEFAULT_EVENTS, budget)


def _write(
    access: TenantDb,
    recent: Mapping[UUID, int],
    found: FoundChains,
    min_relevance: float | None,
    max_events: int,
    budget: int,
) -> tuple[ContextTextOut, Use]:
    selected = found.search.select(min_relevance)[:max_events] if found.search else []
    best = [scored.candidate.event_id for scored in selected]
    first_of_chains = [event_id for chain in found.chains for event_id in chain.event_ids[:1]]
    events = read_hits(access, list(dict.fromkeys([*recent, *best, *first_of_chains])))
    layout = lay_out(
        Sources(
            recent=[to_source(events[i], count) for i, count in recent.items() if i in events],
            topics=[_to_topic(chain) for chain in found.chains if chain.event_ids],
            events=[to_source(events[i]) for i in best if i in events],
            is_known=bool(selected) if found.search else None,
        ),
        budget,
    )
    answer = ContextTextOut(
        text=layout.text,
        tokens=layout.tokens,
        known=round(found.search.ranking.known, 4) if found.search else None,
        citations=[
            Citation(n=n, event_id=event_id, source_event_key=_source_key(events, event_id))
            for n, event_id in enumerate(layout.citations, 1)
        ],
        cut=CutOut.model_validate(layout.cut._asdict()),
        degraded=found.search.degraded if found.search else [],
        read_token=found.read_token,
    )
    return answer, _to_use(found, layout, best) if found.search else Use()


def _source_key(events: Mapping[UUID, HitEvent], event_id: UUID) -> str | None:
    event = events.get(event_id)
    return event.source_event_key if event else None


def _to_topic(chain: MatchedChain) -> TopicSource:
    return TopicSource(
        chain_id=chain.chain_id,
        started_at=chain.started_at,
        last_event_at=chain.last_event_at,
        topic=chain.topic,
        summary=chain.summary,
        trust=chain.trust,
        participants=chain.participants,
        event_ids=chain.event_ids,
    )


def _to_use(found: FoundChains, layout: Layout, best: Sequence[UUID]) -> Use:
    """The shown chains, and the best of the shown events that hold words of the question or are
    compared with it by meaning."""
    assert found.search is not None
    candidates, cited, shown = found.search.candidates, set(layout.citations), set(layout.chain_ids)
    return Use(
        [chain for chain in found.chains if chain.chain_id in shown],
        [
            event_id
            for event_id in best[:_MAX_USED_EVENTS]
            if event_id in cited
            and (candidates[event_id].word_bits or candidates[event_id].cosine is not None)
        ],
    )


def record_use(access: TenantDb, use: Use, now: datetime) -> bool:
    """Record that a text showed these, which keeps chains warm: each counts once. A failure here
    does not affect the text, which is already built; returns False if it could not be recorded."""
    recall_id = uuid7()
    used_chains = [(row.chain_id, row.scope_id, row.participants) for row in use.chains]
    try:
        if used_chains:
            store_recalls.record_chains(access, recall_id, used_chains, now)
        if use.event_ids:
            store_recalls.record_events(access, recall_id, use.event_ids, now)
    except Exception as error:  # without the record the chain only cools sooner
        logger.warning("recall not recorded", extra={"error": type(error).__name__})
        return False
    return True
