"""Enrich a chain again: call the models once more for its events."""

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from strandline.chains import fold_writer, store, store_decisions
from strandline.chains.decisions import FoldDecision, RunContentAndVector
from strandline.chains.enrichment import decide_content_and_merge_target
from strandline.chains.fold_scope import fold_scope
from strandline.chains.fold_state import FoldState, load_fold_state_and_next_events
from strandline.chains.model_questions import make_model_task_context
from strandline.chains.versions import ChainVersionContent
from strandline.db.database import Caller, TenantDb
from strandline.errors import NotFound, Unavailable
from strandline.jobs.worker_resources import ConcurrentUpdate, WorkDeferred, WorkerResources

_MAX_ATTEMPTS = 8
"""How many times in a row it may lose against another worker before it gives up."""


def retry_enrichment(worker: WorkerResources, tenant: str, chain_id: UUID, now: datetime) -> int:
    """Call the models again for a chain's events. Returns the number of the version with the new
    content. The chain is not merged into another, and an archived chain stays archived.

    Raises NotFound for a chain that does not exist, and Unavailable while its scope is being folded
    or the model cannot be called yet.
    """
    access = worker.database.connect_as(Caller.background(tenant))
    for _ in range(_MAX_ATTEMPTS):
        head = store.read_chain_head(access, chain_id)
        if head is None:
            raise NotFound
        fold_scope(worker, access, head.scope_id, now)
        try:
            return _enrich_chain_again(worker, access, head.scope_id, chain_id, now)
        except ConcurrentUpdate:
            continue
        except WorkDeferred as error:
            worker.llm.store_call_records(access)
            raise Unavailable(
                f"The model cannot be called yet ({error.deferral.reason}). Try again later."
            ) from None
    raise Unavailable("Other workers are folding this chain's scope. Try again.")


def _enrich_chain_again(
    worker: WorkerResources, access: TenantDb, scope_id: UUID, chain_id: UUID, now: datetime
) -> int:
    state, _ = load_fold_state_and_next_events(worker, access, scope_id, now)
    head = store.read_chain_head(
        access, chain_id
    )  # read after fold_no, which each change increments
    if head is None:
        raise NotFound
    if state.current_seq < state.scope.max_folded_seq:
        raise Unavailable("This chain's scope is being folded again. Try again later.")
    settings = state.settings or state.current_settings
    retry_worker = replace(worker, job="retry")
    task = make_model_task_context(retry_worker, access, scope_id, state.scope.participants)
    event_ids = store.list_event_ids(access, chain_id)
    enrichment = decide_content_and_merge_target(
        retry_worker,
        access,
        task,
        settings,
        event_ids,
        now,
        patience=timedelta.max,
        may_merge=False,
    )
    if enrichment is None:
        raise NotFound
    state.pending_decisions.append(
        _make_revision_decision(
            access, state, chain_id, event_ids[-1], head.version + 1, enrichment
        )
    )
    fold_writer.commit_fold_changes(
        state, ChainVersionContent(chain_id, head.version + 1, enrichment)
    )
    return head.version + 1


def _make_revision_decision(
    access: TenantDb,
    state: FoldState,
    chain_id: UUID,
    last_event_id: UUID,
    version: int,
    enrichment: RunContentAndVector,
) -> FoldDecision:
    body = {
        "chain_id": str(chain_id),
        "version": version,
        "formed": enrichment.content.model_dump(mode="json"),
        "fold": state.fold_no,
        "place": 0,
    }
    attempt = store_decisions.count_decisions_about_event(access, last_event_id, "reformed")
    return FoldDecision(last_event_id, "reformed", attempt, state.current_seq, body)
