"""The promoter job: write what warm chains say into the knowledge graph, one transaction for each
chain."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from strandline.chains import heat
from strandline.config import get_settings
from strandline.graph import store_promotion
from strandline.graph.extraction import ChainExtraction, extract_chain, store_extraction
from strandline.graph.promotion import Promotion, build_promotion
from strandline.graph.store_promotion import DueChain
from strandline.graph.store_vectors import enqueue_scopes
from strandline.graph.store_write import compute, lock_scopes, write_observations
from strandline.jobs import store_failures
from strandline.jobs.runner import JobResources, Lease, LeaseLost, Shard, error_code
from strandline.llm.tasks import LlmTasks
from strandline.observability import logger
from strandline.tenants.store_due import read_tuning
from strandline.tuning import Tuning

name = "promoter"
_CHAINS_PER_PAGE = 50
"""How many chains are listed at a time."""
_RESERVED_SECONDS = 60.0
"""With less time left than this no further chain is begun: a model may take 20 s, twice."""
_OUT_OF_TIME = "out_of_time"
_METRICS = {
    "chains_evaluated": "ChainsEvaluated",
    "chains_promoted": "ChainsPromoted",
    "extraction_failures": "ExtractionFailures",
    "statements_dropped": "StatementsDropped",
    "nodes": "NodesWritten",
    "edges": "EdgesWritten",
    "edges_corrected": "EdgesCorrected",
}
"""The metrics of a shard's counts."""
_FELL_BACK = (
    "The chain is in the knowledge graph as the heuristic model reads it. Retry this job when the"
    " model is available."
)
_FAILED = (
    "The chain is not in the knowledge graph. The promoter tries it again by itself, and when this"
    " job is retried. docs/graph.md says what the reason means."
)

type _ListChains = Callable[[Collection[UUID]], Sequence[DueChain]]


@dataclass
class _Work:
    """A tenant's promotions of one job."""

    lease: Lease
    llm: LlmTasks
    tuning: Tuning
    now: datetime
    patience: timedelta
    """How long after a chain's last change to wait for the model."""
    totals: Counter[str] = field(default_factory=Counter[str])
    chain_ids: set[UUID] = field(default_factory=set[UUID])
    """Chains that this job has looked at."""

    @property
    def is_out_of_time(self) -> bool:
        return (
            time.monotonic() > self.lease.deadline - _RESERVED_SECONDS
            or self.lease.is_out_of_time()
        )


def plan(resources: JobResources, now: datetime, tenant: str | None) -> Sequence[Shard]:
    """List one shard per tenant with a chain that is due. With `tenant`, only that tenant, whether
    or not it has work."""
    if tenant is not None:
        return [Shard(tenant)]
    tuning = get_settings().tuning
    tenants = store_promotion.list_tenants(
        resources.database.connection(),
        tuning.promotion_parameters(),
        tuning.heat_parameters(),
        now,
    )
    return [Shard(tenant) for tenant in tenants]


def shard(resources: JobResources, lease: Lease, shard: Shard, now: datetime) -> Mapping[str, int]:
    """Promote one tenant's warm chains, those first that an admin has asked to retry. Returns
    counts. A chain that fails stops no other."""
    del shard
    work = _make_work(resources, lease, now)
    for chain in store_promotion.list_retries(lease.access, _CHAINS_PER_PAGE):
        if not work.is_out_of_time:
            _promote(work, chain, is_retry=True)
    with lease.transaction():
        store_promotion.drop_vain_retries(lease.access, now)
    if work.tuning.ltm_enabled:
        _promote_all(
            work,
            lambda exclude_ids: store_promotion.list_due(
                lease.access, now, exclude_ids, _CHAINS_PER_PAGE
            ),
        )
    return _finish(work)


def promote_cold_chains(resources: JobResources, lease: Lease, now: datetime) -> Mapping[str, int]:
    """Promote the tenant's chains that are about to be archived, for the archiver. Returns counts.
    It waits for no model: the heuristic model answers while that is away."""
    work = _make_work(resources, lease, now)
    work.patience = timedelta(0)
    _promote_all(
        work,
        lambda exclude_ids: store_promotion.list_cold(
            lease.access, now, exclude_ids, _CHAINS_PER_PAGE
        ),
    )
    return _finish(work)


def finish(resources: JobResources, now: datetime) -> None:
    """Do nothing: a promotion leaves nothing to clean up."""
    del resources, now


def _make_work(resources: JobResources, lease: Lease, now: datetime) -> _Work:
    tuning = read_tuning(lease.access, get_settings().tuning)
    patience = timedelta(minutes=tuning.model_patience_minutes)
    return _Work(lease, resources.llm, tuning, now, patience)


def _promote_all(work: _Work, list_chains: _ListChains) -> None:
    """Promote chains until none is listed that was not looked at, or the time is up."""
    while not work.is_out_of_time and (chains := list_chains(work.chain_ids)):
        for chain in chains:
            if work.is_out_of_time:
                return
            _promote(work, chain, is_retry=False)


def _finish(work: _Work) -> Mapping[str, int]:
    work.llm.store_call_records(work.lease.access)
    counters = work.lease.tally.counters
    counters.update({metric: work.totals[key] for key, metric in _METRICS.items()})
    counters.update(work.llm.take_metrics())
    return {key: count for key, count in work.totals.items() if count}


def _promote(work: _Work, chain: DueChain, *, is_retry: bool) -> None:
    """Promote one chain, and record how that ended. Raises LeaseLost."""
    access = work.lease.access
    work.chain_ids.add(chain.chain_id)
    work.totals["chains_evaluated"] += 1
    try:
        _promote_chain(work, chain, is_retry=is_retry)
    except LeaseLost:
        raise
    except Exception as error:  # the other chains are still promoted
        reason = error_code(error)
        work.totals["extraction_failures"] += 1
        log_fields = {"scopes": [chain.scope_id], "reason": reason}
        logger.warning("chain not promoted", extra=log_fields)
        with work.lease.transaction():
            store_failures.record_failure(
                access,
                kind=store_failures.PROMOTE_KIND,
                scope_id=chain.scope_id,
                participants=chain.participants,
                reason=reason,
                advice=_FAILED,
                ref=chain.chain_id,
            )


def _promote_chain(work: _Work, chain: DueChain, *, is_retry: bool) -> None:
    start = time.monotonic()
    extraction = extract_chain(
        work.lease.access,
        work.llm,
        chain,
        job=str(work.lease.shard_lease.job_id),
        deadline=work.lease.deadline,
        may_ask=work.tuning.ltm_kg_enabled,
        is_retry=is_retry,
    )
    _sample(work, "ExtractionMilliseconds", start)
    if _is_postponed(work, chain, extraction):
        work.totals["chains_postponed"] += 1
        return
    state = heat.HeatState(chain.importance, chain.density, chain.strength, chain.accessed_at)
    factors = heat.compute_factors(state, work.now, work.tuning)
    promotion = build_promotion(
        chain,
        extraction.evidence_by_number,
        extraction.extraction,
        persona=work.tuning.persona,
        # Not the heat of this moment: the same chain is written again after a replay.
        heat=factors.base,
    )
    work.lease.tally.samples.setdefault("ChainHeat", []).append(factors.heat)
    start = time.monotonic()
    is_written = _write(work, chain, extraction, promotion, is_retry=is_retry)
    _sample(work, "GraphWriteMilliseconds", start)
    if is_written:
        with work.lease.transaction():  # a writer of events locks the same rows in another order
            enqueue_scopes(work.lease.access, [chain.scope_id])
        work.totals["chains_promoted"] += 1
        work.totals["nodes"] += len(promotion.nodes)
        work.totals["edges"] += len(promotion.edges)
        work.totals["edges_corrected"] += promotion.corrections
        work.totals["statements_dropped"] += sum(promotion.drops.values())
        work.totals["extraction_failures"] += extraction.fallback_reason is not None


def _is_postponed(work: _Work, chain: DueChain, extraction: ChainExtraction) -> bool:
    """Whether the model is expected back soon enough, or the time is up: the chain stays due."""
    if extraction.fallback_reason == _OUT_OF_TIME:
        return True
    return extraction.waits_for_model and work.now - chain.accessed_at < work.patience


def _write(
    work: _Work,
    chain: DueChain,
    extraction: ChainExtraction,
    promotion: Promotion,
    *,
    is_retry: bool,
) -> bool:
    """Write a chain's part of the graph in one transaction. Returns whether it was: not where the
    chain has a newer version meanwhile, or lost an event, and is due again by itself."""
    access = work.lease.access
    with work.lease.transaction():
        if not store_promotion.lock_unchanged(access, chain):
            return False
        lock_scopes(access, [chain.scope_id])
        target_ids = store_promotion.withdraw(
            access, chain.chain_id, chain.version, is_retry=is_retry
        )
        halves = work.tuning.edge_confidence == "halving"
        write_observations(access, promotion.nodes, promotion.edges, halves_confidence=halves)
        compute(access, target_ids, halves_confidence=halves)
        store_extraction(access, chain, extraction)
        store_promotion.mark_promoted(access, chain.chain_id, chain.version)
        if extraction.fallback_reason is not None:
            store_failures.record_failure(
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
                access, store_failures.PROMOTE_KIND, [chain.chain_id], work.now
            )
    return True


def _sample(work: _Work, metric: str, start: float) -> None:
    milliseconds = round((time.monotonic() - start) * 1000, 1)
    work.lease.tally.samples.setdefault(metric, []).append(milliseconds)
