"""The only module of the fold that writes: everything since the last commit, in one transaction."""

from collections.abc import Sequence

from strandline.chains import store_decisions, store_fold_progress
from strandline.chains.decisions import FoldDecision
from strandline.chains.fold_state import FoldState
from strandline.chains.lane_row_conversion import to_lane_row
from strandline.chains.store_fold_progress import LaneRow
from strandline.chains.versions import (
    ChainVersionContent,
    EnrichedRun,
    write_revision,
    write_run_as_chain_version,
)
from strandline.jobs import store_failures
from strandline.jobs.worker_resources import ConcurrentUpdate
from strandline.log import store_work


def commit_fold_changes(
    state: FoldState, version: EnrichedRun | ChainVersionContent | None = None
) -> None:
    """Commit everything since the last commit, and with it a closed run or a chain's new content,
    in one transaction. Raises ConcurrentUpdate; then nothing was committed."""
    has_changes = (
        state.current_seq > state.committed_seq or state.changed_lanes or state.pending_decisions
    )
    if version is None and not has_changes:
        return
    with state.access.transaction():
        _advance_folded_seq_and_store_decisions(state)
        if isinstance(version, EnrichedRun):
            write_run_as_chain_version(state, version)
        elif version is not None:
            write_revision(state, version)
        _save_changed_lanes(state)
        store_work.record_fold_progress(state.access, state.scope.scope_id)
    state.worker.renew()
    state.worker.llm.store_call_records(state.access)
    state.worker.tally.counters["EventsFolded"] += state.current_seq - state.committed_seq
    if state.pending_echo_ids:
        state.worker.tally.counters["EchoesFound"] += len(state.pending_echo_ids)
    state.fold_no, state.committed_seq = state.fold_no + 1, state.current_seq
    state.changed_lanes.clear()
    state.pending_decisions.clear()


def commit_model_decisions(state: FoldState, new_decisions: Sequence[FoldDecision]) -> None:
    """Commit the decisions made from a model's answer, before their effects on the event that they
    are about. Raises ConcurrentUpdate."""
    later_decisions = [item for item in state.pending_decisions if item.at_seq > state.current_seq]
    drop_decisions_about_unfolded_events(state)
    state.pending_decisions += new_decisions
    commit_fold_changes(state)
    state.pending_decisions = later_decisions


def drop_decisions_about_unfolded_events(state: FoldState) -> None:
    """Forget the pending decisions about an event that is not folded yet."""
    state.pending_decisions = [
        item for item in state.pending_decisions if item.at_seq <= state.current_seq
    ]


def _advance_folded_seq_and_store_decisions(state: FoldState) -> None:
    """Move the scope's `folded_seq` and store the pending decisions."""
    access, scope = state.access, state.scope
    if not store_fold_progress.try_advance_folded_seq(
        access, scope.scope_id, state.fold_no, state.current_seq
    ):
        raise ConcurrentUpdate
    store_decisions.insert_decisions(
        access, scope.scope_id, scope.participants, state.pending_decisions
    )
    _record_topic_end_fallback(state)


def _record_topic_end_fallback(state: FoldState) -> None:
    """If the heuristic model judged topics instead of the configured model, record one visible
    failure of the scope."""
    reasons = [
        decision.body.get("fell_back")
        for decision in state.pending_decisions
        if decision.kind == "continues"
    ]
    reason = next((candidate for candidate in reversed(reasons) if candidate), None)
    if reason is not None:
        store_failures.record_retryable_failure(
            state.access,
            kind=store_failures.CONTINUES_KIND,
            scope_id=state.scope.scope_id,
            participants=state.scope.participants,
            reason=reason,
            advice="The heuristic model judged where topics end. That is decided and is not"
            " judged again. Check the model, so that it judges the next messages.",
            ref=state.scope.scope_id,
        )


def _save_changed_lanes(state: FoldState) -> None:
    """Store the changed lanes, and delete those of them that are empty."""
    open_rows: list[LaneRow] = []
    closed_sessions: list[str] = []
    for session_id in sorted(state.changed_lanes):
        lane = state.lanes[session_id]
        if lane.last_event and state.settings:
            open_rows.append(to_lane_row(session_id, lane, state.settings.segmentation_rules))
        else:
            closed_sessions.append(session_id)
    scope = state.scope
    store_fold_progress.save_lanes(
        state.access, scope.scope_id, scope.participants, open_rows, closed_sessions
    )
