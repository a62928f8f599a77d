"""Fold one scope: assign events to lanes and lanes to chains, committing each step by
compare-and-swap on `fold_no`.

Everything up to `max_folded_seq` is decided: a replay calls no model, compares no vectors, and
follows the stored decisions (`decisions` lists their kinds). Past it, the fold decides. A decision
commits with the rows that follow from it. If a model was asked whether a topic continues, its
answer commits first, so that it is never asked twice.

`segmentation` has the steps of a lane, `judging` decides where topics end, and `fold_writer`
commits.
"""

from collections.abc import Sequence
from uuid import UUID

from strandline.chains import fold_writer, store, store_decisions
from strandline.chains.decisions import (
    ERASED,
    ChainContent,
    FoldDecision,
    RunContentAndVector,
    make_placeholder_content,
    make_vector_given_up_decision,
)
from strandline.chains.enrichment import decide_content_and_merge_target, embed_summary
from strandline.chains.fold_settings import FoldSettings
from strandline.chains.fold_state import FoldOutcome, FoldState
from strandline.chains.judging import judge_topic_end, log_fold_failure
from strandline.chains.lane_row_conversion import to_lane_event
from strandline.chains.model_questions import make_model_task_context
from strandline.chains.segmentation import (
    Judge,
    Lane,
    LaneEvent,
    LaneStepResult,
    TopicEndJudgement,
    TopicRun,
    iterate_steps_adding_event,
    iterate_steps_closing_lane,
    must_judge_pending_before,
)
from strandline.chains.store_fold_progress import EventToFold
from strandline.chains.versions import ChainVersionContent, EnrichedRun
from strandline.jobs.worker_resources import WorkDeferred
from strandline.permanent_failures import is_permanent_failure


def fold_and_commit_events(state: FoldState, events: Sequence[EventToFold]) -> FoldOutcome | None:
    """Fold the scope's next events, committing after each closed run and at the end. Returns why
    the fold must wait; None if it need not. Raises ConcurrentUpdate."""
    outcome = None
    try:
        is_ready = _apply_due_decisions(state)
        for event in events:
            if not is_ready or state.worker.is_out_of_time():
                break
            is_ready = _fold_event_into_lane(state, event) and _apply_due_decisions(state)
        if not is_ready:
            outcome = FoldOutcome("waits_for_vector")
    except WorkDeferred as error:
        outcome = FoldOutcome("deferred", error.deferral)
    fold_writer.drop_decisions_about_unfolded_events(state)
    fold_writer.commit_fold_changes(state)
    if outcome is not None and outcome.deferral is not None:
        state.worker.llm.store_call_records(state.access)  # not used, but paid for
    return outcome


def _fold_event_into_lane(state: FoldState, event: EventToFold) -> bool:
    """Fold one event, and judge the events that were waiting for it. Returns False, or raises
    WorkDeferred, if that must wait; the event is then not folded."""
    if not event.is_in_lane:
        state.current_seq = event.seq
        return True
    turn, is_settled = to_lane_event(event), event.seq <= state.scope.max_folded_seq
    settings = _set_and_record_fold_settings(state, turn, is_settled)
    for kind, new_decisions in (("echo", state.new_echoes), ("slots", state.new_slots)):
        if turn.event_id in new_decisions and (turn.event_id, kind) not in state.stored_decisions:
            state.pending_decisions.append(new_decisions[turn.event_id])
    if event.is_refused and not event.is_given_up and not is_settled and turn.is_user_message:
        state.pending_decisions.append(
            make_vector_given_up_decision(turn.event_id, turn.seq, "refused")
        )
    if must_judge_pending_before(
        state.get_lane(turn.session_id), turn, settings.segmentation_rules
    ):
        # Committed before this event is: a worker that folds it again must use these settings.
        _record_settings_decision(state, turn, settings, is_settled)
    judge = _make_topic_end_judge(state, settings, is_settled)
    for step in iterate_steps_adding_event(state.lanes, turn, settings.segmentation_rules, judge):
        _apply_lane_step_and_commit_run(state, turn.session_id, step, settings)
        if state.current_seq < turn.seq and not _apply_due_decisions(state):
            return False
    return state.current_seq == turn.seq


def _close_idle_lane(
    state: FoldState, session_id: str, settings: FoldSettings, is_settled: bool
) -> bool:
    """Judge the rest of an idle lane and close it. Returns False if that must wait."""
    judge = _make_topic_end_judge(state, settings, is_settled)
    for step in iterate_steps_closing_lane(
        state.lanes, session_id, settings.segmentation_rules, judge, "idle"
    ):
        _apply_lane_step_and_commit_run(state, session_id, step, settings)
    return state.get_lane(session_id).last_event is None


def _make_topic_end_judge(state: FoldState, settings: FoldSettings, is_settled: bool) -> Judge:
    """The judge of this fold's lanes. It may raise WorkDeferred."""

    def judge(lane: Lane) -> TopicEndJudgement | None:
        if state.compute_folded_seq_with_lane(lane) == state.current_seq:  # one of many at this seq
            state.worker.require_seconds_left()
        judgement = judge_topic_end(state, lane, settings, is_settled=is_settled)
        if judgement is None or not judgement.is_costly:
            return judgement
        fold_writer.commit_model_decisions(state, judgement.new_decisions)
        return TopicEndJudgement(judgement.ends_topic)

    return judge


def _apply_lane_step_and_commit_run(
    state: FoldState, session_id: str, step: LaneStepResult, settings: FoldSettings
) -> None:
    """Set a lane's new state, and commit the run that the step closed. Raises WorkDeferred if the
    run's content must wait; nothing is changed then."""
    run, at_seq = step.closed_run, state.compute_folded_seq_with_lane(step.lane)
    enrichment = _decide_or_restore_run_content(state, run, settings) if run else None
    if run is not None and enrichment is not None and enrichment.is_new:
        state.pending_decisions.append(_wrap_content_as_decision(state, run, enrichment, at_seq))
    state.current_seq = at_seq
    state.pending_decisions += step.new_decisions
    state.set_lane(session_id, step.lane)
    if run is not None:
        _commit_run_or_placeholder(state, run, enrichment)


def _set_and_record_fold_settings(
    state: FoldState, turn: LaneEvent, is_settled: bool
) -> FoldSettings:
    """Make the settings for an event those of the fold, and return them: the decided ones, or else
    the current ones, which are then recorded as a decision."""
    decision = state.stored_decisions.get((turn.event_id, "settings"))
    if decision is not None:
        state.settings = FoldSettings.model_validate(decision.body)
    elif state.settings is None or not is_settled:
        if state.current_settings != state.settings:
            _record_settings_decision(state, turn, state.current_settings, is_settled)
        state.settings = state.current_settings
    return state.settings


def _record_settings_decision(
    state: FoldState, turn: LaneEvent, settings: FoldSettings, is_settled: bool
) -> None:
    """Record that these settings hold from this event on, unless that is recorded already."""
    decision = FoldDecision(
        turn.event_id, "settings", 0, turn.seq, settings.model_dump(mode="json")
    )
    is_stored = (turn.event_id, "settings") in state.stored_decisions
    if not is_settled and not is_stored and decision not in state.pending_decisions:
        state.pending_decisions.append(decision)


def _apply_due_decisions(state: FoldState) -> bool:
    """Apply the stored decisions that take effect at the current seq, except those already applied.
    Returns False, or raises WorkDeferred, if some are left for later."""
    for decision in state.decisions_by_seq.get(state.current_seq, ()):
        state.worker.require_seconds_left()
        if decision.kind == "reformed":
            _replay_and_commit_revision(state, decision)
            continue
        session_id = decision.body["session"]
        last = state.get_lane(session_id).last_event
        if last is None or last.event_id != decision.event_id:
            continue
        assert state.settings is not None, "open events were folded under some settings"
        has_content = (decision.event_id, "formed") in state.stored_decisions
        is_settled = has_content or state.current_seq < state.scope.max_folded_seq
        if not _close_idle_lane(state, session_id, state.settings, is_settled):
            return False
    return True


def _replay_and_commit_revision(state: FoldState, decision: FoldDecision) -> None:
    """In a replay, apply a stored `reformed` decision again, and commit it."""
    chain_id, version = UUID(decision.body["chain_id"]), decision.body["version"]
    head = store.read_chain_head(state.access, chain_id)
    if head is None or head.version != version - 1:
        return
    enrichment = _restore_decided_content(state, decision.body["formed"])
    fold_writer.commit_fold_changes(state, ChainVersionContent(chain_id, version, enrichment))


def _restore_decided_content(state: FoldState, decided_content: object) -> RunContentAndVector:
    """Restore content as it was decided. The vector of its summary is computed again."""
    content = ChainContent.model_validate(decided_content)
    return RunContentAndVector(content, embed_summary(state.worker, content, waits_for_model=True))


def _decide_or_restore_run_content(
    state: FoldState, run: TopicRun, settings: FoldSettings
) -> RunContentAndVector | None:
    """The run's content, either as already decided or decided now. If deciding fails and would fail
    again on the same data, a placeholder. None if all events of the run were erased. Raises
    WorkDeferred.

    Content that lost its text to an erasure is decided again from the remaining events. The chain
    that the run was merged into stays the same.
    """
    decision, joins = state.stored_decisions.get((run.events[-1].event_id, "formed")), None
    if decision is not None:
        if decision.body["rejected"] != ERASED:
            return _restore_decided_content(state, decision.body)
        joins = ChainContent.model_validate(decision.body).joins
    worker, access, scope = state.worker, state.access, state.scope
    task = make_model_task_context(worker, access, scope.scope_id, scope.participants)
    earlier_ids = store.list_event_ids(access, joins) if joins else []
    try:
        enrichment = decide_content_and_merge_target(
            worker,
            access,
            task,
            settings,
            [*earlier_ids, *(turn.event_id for turn in run.events)],
            state.now,
            patience=state.model_patience,
            may_merge=decision is None,
            new_echoes=state.pending_echo_ids,
            new_changes=state.pending_change_ids,
        )
    except Exception as error:
        if not is_permanent_failure(error):
            raise
        enrichment = _log_failure_and_make_placeholder(state, run, error)
    if enrichment is None or joins is None:
        return enrichment
    return enrichment._replace(content=enrichment.content.model_copy(update={"joins": joins}))


def _log_failure_and_make_placeholder(
    state: FoldState, run: TopicRun, error: Exception
) -> RunContentAndVector:
    log_fold_failure(state, "run not summarised", error)
    content = make_placeholder_content(state.now, len(run.events), error)
    return RunContentAndVector(content, None, is_new=True)


def _wrap_content_as_decision(
    state: FoldState, run: TopicRun, enrichment: RunContentAndVector, at_seq: int
) -> FoldDecision:
    event_id = run.events[-1].event_id
    is_again = (event_id, "formed") in state.stored_decisions
    attempt = (
        store_decisions.count_decisions_about_event(state.access, event_id, "formed")
        if is_again
        else 0
    )
    body = enrichment.content.model_dump(mode="json")
    return FoldDecision(event_id, "formed", attempt, at_seq, body)


def _commit_run_or_placeholder(
    state: FoldState, run: TopicRun, enrichment: RunContentAndVector | None
) -> None:
    """Commit a closed run. If the database permanently rejects its newly decided content, commit a
    placeholder instead. Raises ConcurrentUpdate."""
    try:
        fold_writer.commit_fold_changes(state, enrichment and EnrichedRun(run, enrichment))
    except Exception as error:
        if enrichment is None or not enrichment.is_new or not is_permanent_failure(error):
            raise
        last = run.events[-1].event_id
        state.pending_decisions = [
            decision
            for decision in state.pending_decisions
            if (decision.event_id, decision.kind) != (last, "formed")
        ]
        placeholder = _log_failure_and_make_placeholder(state, run, error)
        state.pending_decisions.append(
            _wrap_content_as_decision(state, run, placeholder, state.current_seq)
        )
        fold_writer.commit_fold_changes(state, EnrichedRun(run, placeholder))
