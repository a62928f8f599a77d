"""Extract what a chain says for the graph. A model is asked once and its answer is stored as a
decision, so that a graph that was dropped can be rebuilt identically."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from strandline.chains import store_decisions
from strandline.chains.decisions import FoldDecision
from strandline.db.database import TenantDb
from strandline.graph.promotion import store
from strandline.graph.promotion.extraction_checks import parse_chain_entity
from strandline.graph.promotion.store import ChainToPromote, EvidenceEvent
from strandline.llm.tasks import LlmTasks
from strandline.llm.types import GraphExtraction, ModelResult, PromptEvent, TaskContext

EXTRACTED_KIND = "extracted"
"""The kind of the decision. It refers to the chain's last event."""
_MARGIN_SECONDS = 5.0
"""Seconds of the job's time reserved for the write after a model's answer."""


@dataclass(frozen=True)
class ChainExtraction:
    """An extraction, and the events that it cites."""

    extraction: GraphExtraction
    evidence_by_number: Mapping[int, EvidenceEvent]
    """The chain's events that are evidence, by their numbers in the extraction."""
    decision: FoldDecision | None
    """The decision to store; None if it was stored before, or there is nothing to extract from."""
    fallback_reason: str | None
    """Why the configured model did not answer, if it was expected to."""
    waits_for_model: bool
    """Whether the model can soon be asked again."""


def extract_from_chain(
    access: TenantDb,
    llm: LlmTasks,
    chain: ChainToPromote,
    *,
    job: str,
    deadline: float,
    may_ask: bool,
    is_retry: bool,
) -> ChainExtraction:
    """Extract what a chain's version says from its events. A stored decision is reused, unless this
    is a retry. Must be called outside any transaction. Without `may_ask` the heuristic model
    answers."""
    evidence = store.list_evidence_events(access, chain.chain_id)
    if not evidence:
        return ChainExtraction(_NOTHING, {}, None, None, waits_for_model=False)
    if not is_retry:
        record = store.find_stored_extraction(access, chain, evidence[-1].event_id)
        if record is not None:
            return _restore_stored_extraction(
                record.body, evidence={item.event_id: item for item in evidence}
            )
    task = TaskContext(
        tenant=access.caller.tenant,
        subject=str(chain.scope_id),
        participants=tuple(chain.participants),
        scope_id=str(chain.scope_id),
        job=job,
        deadline=deadline - _MARGIN_SECONDS,
    )
    events = [_to_prompt_event(item) for item in evidence]
    entities = [parse_chain_entity(entity) for entity in chain.entities if entity.get("name")]
    result = llm.extract(task, events, entities, may_ask=may_ask)
    return ChainExtraction(
        result.value,
        dict(enumerate(evidence, 1)),
        _make_extraction_decision(chain, evidence, result),
        result.fallback_reason,
        result.retry_after is not None,
    )


def _make_extraction_decision(
    chain: ChainToPromote, evidence: Sequence[EvidenceEvent], result: ModelResult[GraphExtraction]
) -> FoldDecision:
    body = {
        "chain_id": str(chain.chain_id),
        "version": chain.version,
        "events": [str(item.event_id) for item in evidence],
        "extraction": result.value.model_dump(mode="json"),
        "models": {
            "model": result.model,
            "prompt": result.prompt,
            "fell_back": result.fallback_reason,
        },
    }
    return FoldDecision(evidence[-1].event_id, EXTRACTED_KIND, 0, evidence[-1].seq, body)


def store_extraction_decision(
    access: TenantDb, chain: ChainToPromote, extraction: ChainExtraction
) -> None:
    """Store a new extraction as a decision. Call it in the transaction that writes the graph, after
    locking the chain."""
    decision = extraction.decision
    if decision is None:
        return
    attempt = store_decisions.count_decisions_about_event(access, decision.event_id, EXTRACTED_KIND)
    store_decisions.insert_decisions(
        access,
        chain.scope_id,
        chain.participants,
        [FoldDecision(decision.event_id, decision.kind, attempt, decision.at_seq, decision.body)],
    )


_NOTHING = GraphExtraction(entities=[], facts=[], decisions=[], relations=[])


def _restore_stored_extraction(
    body: Mapping[str, Any], evidence: Mapping[UUID, EvidenceEvent]
) -> ChainExtraction:
    """The stored decision, restricted to the events that still exist."""
    numbers = enumerate(map(UUID, body["events"]), 1)
    evidence_by_number = {number: evidence[item] for number, item in numbers if item in evidence}
    extraction = GraphExtraction.model_validate(body["extraction"])
    reason = body["models"]["fell_back"]
    return ChainExtraction(extraction, evidence_by_number, None, reason, waits_for_model=False)


def _to_prompt_event(item: EvidenceEvent) -> PromptEvent:
    return PromptEvent(
        seq=item.seq,
        speaker=item.speaker,
        role=item.role,
        type=item.type,
        text=item.text,
        said_at=item.said_at,
    )
