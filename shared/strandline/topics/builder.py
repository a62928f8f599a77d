"""The builder job: add new chain versions to the topic trees of the scopes, and publish all trees
together as the tenant's next snapshot."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from strandline.chains import store_decisions
from strandline.config import get_settings
from strandline.db.database import Caller
from strandline.embeddings.store_space_figures import read_thresholds
from strandline.errors import StrandlineError
from strandline.jobs import store_failures
from strandline.jobs.runner import JobResources, Lease, LeaseLost, Shard, error_code, skip_clean_up
from strandline.jobs.store_failures import ScopeFailure
from strandline.observability import logger
from strandline.tenants.store_spaces import read_space
from strandline.topics import build_limits, store_builds, store_growth, store_publish
from strandline.topics.growth import ChainsChanged, GrownTree, grow_scope_tree
from strandline.topics.slot_contents import BuildContext
from strandline.topics.store_builds import ScopeGrowthOutcome, ScopeToBuild
from strandline.topics.store_publish import NewSnapshot

name = "builder"
_RESERVED_SECONDS = 60.0
"""With less time left than this, no further scope is begun. The rest is reserved for finishing the
current scope and for the publish."""


_METRICS = {
    "snapshots_published": "SnapshotsPublished",
    "scopes_grown": "TreesGrown",
    "scopes_failed": "TreesFailed",
    "summaries": "TreeSummaries",
}
"""The metric of each count of a shard."""
_ADVICE = (
    "The scope keeps the topic tree that it had; what is newer is in the fresh tail. Every build"
    " tries it again. docs/topics.md says what the reason means."
)
"""The advice shown to an admin for a scope that failed."""


class BuildOvertaken(StrandlineError):
    """Another version was published since the build began, so this build cannot be published."""

    code = "overtaken"


def plan_shards(resources: JobResources, now: datetime, only_tenant: str | None) -> Sequence[Shard]:
    """List the shards of the tenants with a due build: one for every 50 waiting scopes, at most 16
    per tenant. With `only_tenant`, list only its shards, whether or not a build is due."""
    if only_tenant is not None:
        access = resources.database.connect_as(Caller.background(only_tenant))
        return _make_shards(only_tenant, store_builds.count_waiting_scopes(access))
    due_tenants = store_builds.list_due_tenants(resources.database.connection(), now)
    return [shard for due in due_tenants for shard in _make_shards(due.tenant_id, due.scopes)]


def work_on_shard(
    resources: JobResources, lease: Lease, shard: Shard, now: datetime
) -> Mapping[str, int]:
    """Grow the trees of a shard's scopes one after the other. A scope that fails does not stop the
    others. The tenant's last shard publishes the build. Returns counts. Raises BuildOvertaken."""
    builder = _make_build_context(resources, lease, now)
    job_id, totals = builder.job_id, Counter[str]()
    with lease.transaction():
        store_builds.lock_build(lease.access, job_id)
        store_builds.drop_build_if_overtaken(lease.access, job_id)
        store_builds.begin_build(lease.access, job_id, builder.space)
        store_builds.fail_interrupted_scopes(lease.access, job_id, shard.shard)
    for scope in store_builds.list_waiting_scopes(lease.access, job_id, shard.shard):
        if time.monotonic() > builder.end or lease.is_out_of_time():
            break
        _grow_tree_of_scope(builder, lease, scope, totals)
    builder.llm.store_call_records(lease.access)
    with lease.transaction():
        totals["scopes_postponed"] += store_builds.postpone_waiting_scopes(
            lease.access, job_id, shard.shard
        )
    _publish_build_if_last_shard(builder, lease, totals)
    counters = {metric: totals[key] for key, metric in _METRICS.items()}
    lease.tally.counters.update(counters)
    lease.tally.counters.update(builder.llm.take_metrics())
    return {key: count for key, count in totals.items() if count}


clean_up_after_run = skip_clean_up
"""The rows of an unpublished build are deleted later by the collection."""


def _make_shards(tenant: str, scopes: int) -> list[Shard]:
    return [Shard(tenant, number) for number in range(build_limits.count_shards(scopes))]


def _make_build_context(resources: JobResources, lease: Lease, now: datetime) -> BuildContext:
    # The model may be another than the configured one while that one's space is filled: until the
    # switch, trees grow in the space that is read.
    space = resources.embedder_of(read_space(lease.access).reading_space).space
    return BuildContext(
        lease.access,
        resources.llm,
        space,
        read_thresholds(lease.access, space, get_settings().tuning),
        lease.shard_lease.job_id,
        now,
        end=lease.deadline - _RESERVED_SECONDS,
        model_end=lease.deadline - _RESERVED_SECONDS / 2,
    )


def _grow_tree_of_scope(
    builder: BuildContext, lease: Lease, scope: ScopeToBuild, totals: Counter[str]
) -> None:
    """Grow one scope's tree and record how that ended. Raises LeaseLost."""
    job_id, scope_id = builder.job_id, scope.scope_id
    with lease.transaction():
        store_builds.mark_scope_begun(lease.access, job_id, scope_id)
    try:
        tree = grow_scope_tree(builder, scope)
        with lease.transaction():
            state = _store_grown_tree(builder, scope, tree)
    except LeaseLost:
        raise
    except Exception as error:  # the other scopes are still grown
        reason = error_code(error)
        tenant = lease.access.caller.tenant
        extra = {"tenant": tenant, "scopes": [scope_id], "reason": reason}
        logger.warning("tree not grown", extra=extra)
        with lease.transaction():
            store_builds.record_scope_result(
                lease.access, job_id, scope_id, "failed", reason=reason
            )
        return
    totals[f"scopes_{state}"] += 1
    if tree is not None:
        totals["versions_taken"] += tree.leaves
        totals["summaries"] += tree.summaries


def _store_grown_tree(builder: BuildContext, scope: ScopeToBuild, tree: GrownTree | None) -> str:
    """Store the result of a scope's growth, to be published with the other scopes. Returns the
    scope's state. In a transaction."""
    access, state = builder.access, "unchanged"
    if store_builds.was_event_erased_since(access, scope):
        raise ChainsChanged  # the texts that were read may be those of erased events
    if tree is not None and tree.is_changed:
        state = "grown"
        store_growth.insert_nodes(
            access, scope.scope_id, scope.participants, builder.space, tree.nodes
        )
        store_growth.insert_leaf_events(access, scope.scope_id, scope.participants, tree.events)
        store_decisions.insert_new_decisions(
            access, scope.scope_id, scope.participants, tree.give_ups
        )
    stage = None if tree is None else tree.stage
    if not store_builds.record_scope_result(
        access, builder.job_id, scope.scope_id, state, tree=stage
    ):
        raise BuildOvertaken
    return state


def _publish_build_if_last_shard(builder: BuildContext, lease: Lease, totals: Counter[str]) -> None:
    """Publish the build, unless another shard is still working or the build was published before.
    Raises BuildOvertaken, in which case nothing is changed."""
    access, job_id = lease.access, builder.job_id
    with lease.transaction():
        store_builds.lock_build(access, job_id)
        state = store_builds.read_build_progress(access, job_id)
        if state.open_scopes or state.published_version is not None:
            return
        store_publish.fail_invalid_trees(access, job_id)
        outcomes = store_builds.list_scope_outcomes(access, job_id)
        failed = _record_and_resolve_scope_failures(builder, outcomes)
        grown_count = sum(outcome.state == "grown" for outcome in outcomes)
        totals["scopes_failed"] += len(failed)
        if grown_count:
            version = store_publish.activate_next_version(access, state.base_version)
            if version is None:
                raise BuildOvertaken
            store_publish.write_grown_trees(access, job_id, version)
            reasons = [{"scope_id": str(item.scope_id), "reason": item.reason} for item in failed]
            snapshot = _make_new_snapshot(builder, version, job_id, grown_count, reasons)
            store_publish.insert_snapshot(access, snapshot)
            totals["snapshots_published"] += 1
        store_builds.update_backlog(access, job_id, builder.now)


def _record_and_resolve_scope_failures(
    builder: BuildContext, outcomes: Sequence[ScopeGrowthOutcome]
) -> list[ScopeGrowthOutcome]:
    """Record each failed scope as a failure that an admin can retry, and resolve the earlier
    failures of the other scopes. Returns the failed scopes. In a transaction."""
    failed = [outcome for outcome in outcomes if outcome.state == "failed"]
    kind = store_failures.GROW_KIND
    if failed:
        failures = [ScopeFailure(o.scope_id, o.participants, o.reason) for o in failed]
        store_failures.record_scope_failures(builder.access, kind, failures, _ADVICE, builder.now)
    well = [o.scope_id for o in outcomes if o.state != "failed" and not o.reason]
    store_failures.resolve_failures(builder.access, kind, well, builder.now)
    return failed


def _make_new_snapshot(
    builder: BuildContext,
    version: int,
    job_id: UUID,
    grown_count: int,
    reasons: Sequence[Mapping[str, str]],
) -> NewSnapshot:
    model, prompt = builder.llm.name_model_and_prompt("overview")
    return NewSnapshot(
        version=version,
        base_version=version - 1,
        repeats_version=None,
        job_id=job_id,
        published_at=builder.now,
        scopes_changed=grown_count,
        scopes_failed=reasons,
        configuration={"space": builder.space, "model": model, "prompt": prompt},
    )
