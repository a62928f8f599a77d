"""The promoter job: write the content of warm chains into the knowledge graph, one transaction for
each chain."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from strandline.chains import heat
from strandline.config import get_settings
from strandline.graph.nodes.store_missing_vectors import make_scope_work_due
from strandline.graph.nodes.store_observations import (
    lock_scope_graphs,
    recompute_nodes_and_edges,
    write_observations,
)
from strandline.graph.promotion import store
from strandline.graph.promotion.ended_facts import end_replaced_facts
from strandline.graph.promotion.extraction import (
    ChainExtraction,
    extract_from_chain,
    store_extraction_decision,
)
from strandline.graph.promotion.extraction_checks import ChainObservations, build_chain_observations
from strandline.graph.promotion.store import ChainToPromote
from strandline.jobs import store_failures
from strandline.jobs.runner import JobResources, Lease, LeaseLost, Shard, error_code, skip_clean_up
from strandline.llm.tasks import LlmTasks
from strandline.observability import logger
from strandline.tenants.store_tuning import read_tuning
from strandline.tuning import Tuning

name = "promoter"
_CHAINS_PER_PAGE = 50
"""How many chains are listed at a time."""
_RESERVED_SECONDS = 60.0
"""With less time left than this, no further chain is started: a model call may take 20 s, twice."""
_OUT_OF_TIME = "out_of_time"
_METRICS = {
    "chains_evaluated": "ChainsEvaluated",
    "chains_promoted": "ChainsPromoted",
    "extraction_failures": "ExtractionFailures",
    "statements_dropped": "StatementsDropped",
    "nodes": "NodesWritten",
    "edges": "EdgesWritten",
    "edges_corrected": "EdgesCorrected",
    "facts_ended": "FactsEnded",
}
"""The metric for each count of a shard."""
_FELL_BACK = (
    "The chain is in the knowledge graph as the heuristic model reads it. Retry this job when the"
    " model is available."
)
_FAILED = (
    "The chain is not in the knowledge graph. The promoter tries it again automatically, and when"
    " this job is retried. docs/graph.md says what the reason means."
)

type _ListChains = Callable[[Collection[UUID]], Sequence[ChainToPromote]]


@dataclass
class _PromotionRun:
    """One job's promotions for one tenant."""

    lease: Lease
    llm: LlmTasks
    tuning: Tuning
    now: datetime
    patience: timedelta
    """How long after a chain's last change the job waits for the model."""
    totals: Counter[str] = field(default_factory=Counter[str])
    chain_ids: set[UUID] = field(default_factory=set[UUID])
    """Chains that this job has already processed."""

    @property
    def is_out_of_time(self) -> bool:
        return (
            time.monotonic() > self.lease.deadline - _RESERVED_SECONDS
            or self.lease.is_out_of_time()
        )


def plan_shards(resources: JobResources, now: datetime, only_tenant: str | None) -> Sequence[Shard]:
    """List one shard per tenant with a chain that is due. With `only_tenant`, only that tenant,
    whether or not it has work."""
    if only_tenant is not None:
        return [Shard(only_tenant)]
    tuning = get_settings().tuning
    tenants = store.list_due_tenants(
        resources.database.connection(),
        tuning.promotion_due_parameters(),
        tuning.heat_time_parameters(),
        now,
    )
    return [Shard(tenant) for tenant in tenants]


def work_on_shard(
    resources: JobResources, lease: Lease, shard: Shard, now: datetime
) -> Mapping[str, int]:
    """Promote one tenant's warm chains, beginning with those that an admin has asked to retry.
    Returns counts. A failure of one chain does not stop the others."""
    del shard
    run = _prepare_run(resources, lease, now)
    for chain in store.list_chains_to_retry(lease.access, _CHAINS_PER_PAGE):
        if not run.is_out_of_time:
            _promote_and_record_outcome(run, chain, is_retry=True)
    with lease.transaction():
        store.close_orphaned_retries(lease.access, now)
    if run.tuning.ltm_enabled:
        _promote_listed_chains(
            run,
            lambda exclude_ids: store.list_warm_unpromoted_chains(
                lease.access, now, exclude_ids, _CHAINS_PER_PAGE
            ),
        )
    return _record_metrics_of_run(run)


def promote_cold_chains(resources: JobResources, lease: Lease, now: datetime) -> Mapping[str, int]:
    """Promote the tenant's chains that are about to be archived. Returns counts. This does not wait
    for the model: the heuristic model answers while it is unavailable."""
    run = _prepare_run(resources, lease, now)
    run.patience = timedelta(0)
    _promote_listed_chains(
        run,
        lambda exclude_ids: store.list_cold_unpromoted_chains(
            lease.access, now, exclude_ids, _CHAINS_PER_PAGE
        ),
    )
    return _record_metrics_of_run(run)


clean_up_after_run = skip_clean_up
"""A promotion leaves nothing to clean up."""


def _prepare_run(resources: JobResources, lease: Lease, now: datetime) -> _PromotionRun:
    tuning = read_tuning(lease.access, get_settings().tuning)
    patience = timedelta(minutes=tuning.model_patience_minutes)
    return _PromotionRun(lease, resources.llm, tuning, now, patience)


def _promote_listed_chains(run: _PromotionRun, list_chains: _ListChains) -> None:
    """Promote chains until no unprocessed one is listed, or time runs out."""
    while not run.is_out_of_time and (chains := list_chains(run.chain_ids)):
        for chain in chains:
            if run.is_out_of_time:
                return
            _promote_and_record_outcome(run, chain, is_retry=False)


def _record_metrics_of_run(run: _PromotionRun) -> Mapping[str, int]:
    run.llm.store_call_records(run.lease.access)
    counters = run.lease.tally.counters
    counters.update({metric: run.totals[key] for key, metric in _METRICS.items()})
    counters.update(run.llm.take_metrics())
    return {key: count for key, count in run.totals.items() if count}


def _promote_and_record_outcome(
    run: _PromotionRun, chain: ChainToPromote, *, is_retry: bool
) -> None:
    """Promote one chain, and record the outcome. Raises LeaseLost."""
    access = run.lease.access
    run.chain_ids.add(chain.chain_id)
    run.totals["chains_evaluated"] += 1
    try:
        _extract_and_write_chain(run, chain, is_retry=is_retry)
    except LeaseLost:
        raise
    except Exception as error:  # the other chains are still promoted
        reason = error_code(error)
        run.totals["extraction_failures"] += 1
        log_fields = {"scopes": [chain.scope_id], "reason": reason}
        logger.warning("chain not promoted", extra=log_fields)
        with run.lease.transaction():
            store_failures.record_retryable_failure(
                access,
                kind=store_failures.PROMOTE_KIND,
                scope_id=chain.scope_id,
                participants=chain.participants,
                reason=reason,
                advice=_FAILED,
                ref=chain.chain_id,
            )


def _extract_and_write_chain(run: _PromotionRun, chain: ChainToPromote, *, is_retry: bool) -> None:
    start = time.monotonic()
    extraction = extract_from_chain(
        run.lease.access,
        run.llm,
        chain,
        job=str(run.lease.shard_lease.job_id),
        deadline=run.lease.deadline,
        may_ask=run.tuning.ltm_kg_enabled,
        is_retry=is_retry,
    )
    _record_duration(run, "ExtractionMilliseconds", start)
    if _is_promotion_postponed(run, chain, extraction):
        run.totals["chains_postponed"] += 1
        return
    state = heat.HeatInputs(chain.importance, chain.density, chain.strength, chain.accessed_at)
    factors = heat.compute_heat_with_factors(state, run.now, run.tuning)
    promotion = build_chain_observations(
        chain,
        extraction.evidence_by_number,
        extraction.extraction,
        min_persona_confidence=run.tuning.persona,
        # Not the present heat: a replay must write the same chain again.
        heat=factors.base,
    )
    run.lease.tally.samples.setdefault("ChainHeat", []).append(factors.heat)
    start = time.monotonic()
    is_written = _write_chain_to_graph(run, chain, extraction, promotion, is_retry=is_retry)
    _record_duration(run, "GraphWriteMilliseconds", start)
    if is_written:
        with run.lease.transaction():  # writers of events lock the same rows in another order
            make_scope_work_due(run.lease.access, [chain.scope_id])
        run.totals["chains_promoted"] += 1
        run.totals["nodes"] += len(promotion.nodes)
        run.totals["edges"] += len(promotion.edges)
        run.totals["edges_corrected"] += promotion.corrections
        run.totals["statements_dropped"] += sum(promotion.drops.values())
        run.totals["extraction_failures"] += extraction.fallback_reason is not None


def _is_promotion_postponed(
    run: _PromotionRun, chain: ChainToPromote, extraction: ChainExtraction
) -> bool:
    """Whether the chain stays due, because the model is expected back soon enough or time has run
    out."""
    if extraction.fallback_reason == _OUT_OF_TIME:
        return True
    return extraction.waits_for_model and run.now - chain.accessed_at < run.patience


def _write_chain_to_graph(
    run: _PromotionRun,
    chain: ChainToPromote,
    extraction: ChainExtraction,
    promotion: ChainObservations,
    *,
    is_retry: bool,
) -> bool:
    """Write a chain's part of the graph in one transaction. Returns False, and writes nothing, if
    the chain has a newer version or lost an event in the meantime. It is then due again."""
    access = run.lease.access
    with run.lease.transaction():
        if not store.lock_chain_if_unchanged(access, chain):
            return False
        lock_scope_graphs(access, [chain.scope_id])
        target_ids = store.delete_older_chain_observations(
            access, chain.chain_id, chain.version, is_retry=is_retry
        )
        halves = run.tuning.edge_confidence == "halving"
        write_observations(access, promotion.nodes, promotion.edges, combines_by_halving=halves)
        recompute_nodes_and_edges(access, target_ids, combines_by_halving=halves)
        run.totals["facts_ended"] += end_replaced_facts(
            access, chain, promotion, extraction.evidence_by_number
        )
        store_extraction_decision(access, chain, extraction)
        store.mark_chain_promoted(access, chain.chain_id, chain.version)
        if extraction.fallback_reason is not None:
            store_failures.record_retryable_failure(
                access,
                kind=store_failures.PROMOTE_KIND,
                scope_id=chain.scope_id,
                participants=chain.participants,
                reason=extraction.fallback_reason,
                advice=_FELL_BACK,
                ref=chain.chain_id,
            )
        else:
            store_failures.resolve_failures(
                access, store_failures.PROMOTE_KIND, [chain.chain_id], run.now
            )
    return True


def _record_duration(run: _PromotionRun, metric: str, start: float) -> None:
    milliseconds = round((time.monotonic() - start) * 1000, 1)
    run.lease.tally.samples.setdefault(metric, []).append(milliseconds)
