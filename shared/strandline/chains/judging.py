"""Judge whether a topic ends at a lane's first pending event: by a stored decision, by the cosine
of two user messages, or by a model's answer. Nothing is written here."""

from collections.abc import Mapping
from datetime import timedelta

from strandline.chains.decisions import FOLD_FAILED, FoldDecision, make_vector_given_up_decision
from strandline.chains.fold_settings import FoldSettings
from strandline.chains.fold_state import FoldState
from strandline.chains.model_questions import ask_if_topic_continues, make_model_task_context
from strandline.chains.segmentation import (
    Lane,
    TopicComparisonVerdict,
    TopicEndJudgement,
    compare_pending_with_last_user_message,
)
from strandline.jobs.worker_resources import ConcurrentUpdate
from strandline.llm.heuristic.model import HeuristicModel
from strandline.observability import logger
from strandline.permanent_failures import is_permanent_failure

_VERDICT_METRICS = {
    TopicComparisonVerdict.BREAK: "TopicBreaks",
    TopicComparisonVerdict.GRAY: "TopicUndecided",
    TopicComparisonVerdict.CONTINUE: "TopicContinuations",
}
"""The metric that counts each verdict of a comparison."""


def judge_topic_end(
    state: FoldState, lane: Lane, settings: FoldSettings, *, is_settled: bool
) -> TopicEndJudgement | None:
    """Judge a lane's first pending event; None while that must wait for a vector. `is_settled`: it
    was decided before. If judging fails and would fail again on the same data, the topic continues.
    Raises WorkDeferred while the model should still be waited for."""
    turn = lane.pending_events[0]
    decision = state.stored_decisions.get((turn.event_id, "continues"))
    if decision is not None or is_settled:
        return TopicEndJudgement(decision is not None and not decision.body["continues"])
    try:
        return _judge_by_cosine_or_model(state, lane, settings)
    except Exception as error:
        if not is_permanent_failure(error):
            raise
        log_fold_failure(state, "message not judged", error)
        body = {
            "continues": True,
            "by": "failure",
            "fell_back": FOLD_FAILED,
            "error": type(error).__name__,
        }
        return TopicEndJudgement(False, [_make_topic_continues_decision(state, lane, body)])


def log_fold_failure(state: FoldState, message: str, error: Exception) -> None:
    """Count and log a failure without the error's own text, which may quote memory."""
    log_fields = {"scopes": [state.scope.scope_id], "error": type(error).__name__}
    state.worker.tally.counters["HeuristicFailures"] += 1
    logger.warning(message, extra=log_fields)


def _judge_by_cosine_or_model(
    state: FoldState, lane: Lane, settings: FoldSettings
) -> TopicEndJudgement | None:
    comparison = compare_pending_with_last_user_message(lane, settings.segmentation_rules)
    verdict, give_ups = comparison.verdict, list[FoldDecision]()
    if comparison.cosine is not None:
        state.worker.tally.cosines.append(round(comparison.cosine, 4))
    if verdict is TopicComparisonVerdict.WAIT:
        give_ups = _give_up_overdue_vectors(state, lane, timedelta(hours=settings.vector_hours))
        if not give_ups:
            return None
        verdict = TopicComparisonVerdict.BLIND
    if verdict in _VERDICT_METRICS:
        state.worker.tally.counters[_VERDICT_METRICS[verdict]] += 1
    if verdict is TopicComparisonVerdict.GRAY:
        return _ask_model_if_topic_ends(state, lane, settings, comparison.cosine)
    if verdict is TopicComparisonVerdict.BREAK:
        body = {"continues": False, "by": "cosine", "cosine": comparison.cosine}
        return TopicEndJudgement(True, [_make_topic_continues_decision(state, lane, body)])
    return TopicEndJudgement(False, give_ups)


def _make_topic_continues_decision(
    state: FoldState, lane: Lane, body: Mapping[str, object]
) -> FoldDecision:
    message = lane.pending_events[0].event_id
    return FoldDecision(
        message, "continues", 0, state.compute_folded_seq_with_lane(lane), dict(body)
    )


def _give_up_overdue_vectors(
    state: FoldState, lane: Lane, patience: timedelta
) -> list[FoldDecision]:
    """Give up on the missing vectors if they are overdue; an empty list while at least one of them
    may still come."""
    assert lane.last_user_message is not None, "only a comparison of two user messages waits"
    turns = lane.last_user_message, lane.pending_events[0]
    missing_turns = [turn for turn in turns if turn.vector is None and not turn.vector_given_up]
    if any(state.now - turn.recorded_at < patience for turn in missing_turns):
        return []
    return [
        make_vector_given_up_decision(
            turn.event_id, state.compute_folded_seq_with_lane(lane), "late"
        )
        for turn in missing_turns
    ]


def _ask_model_if_topic_ends(
    state: FoldState, lane: Lane, settings: FoldSettings, cosine: float | None
) -> TopicEndJudgement:
    scope = state.scope
    message, *after = lane.pending_events[: settings.ahead_events + 1]
    result = ask_if_topic_continues(
        state.worker,
        state.access,
        make_model_task_context(state.worker, state.access, scope.scope_id, scope.participants),
        [turn.event_id for turn in lane.open_events],
        message.event_id,
        [turn.event_id for turn in after],
        state.event_cache,
        next_ids=state.next_ids,
        waits_for_model=state.now - lane.pending_events[-1].recorded_at < state.model_patience,
    )
    if result is None:  # erased meanwhile
        raise ConcurrentUpdate
    body = {
        "continues": result.value.continues,
        "by": "model",
        "cosine": cosine,
        "model": result.model,
        "prompt": result.prompt,
        "fell_back": result.fallback_reason,
    }
    return TopicEndJudgement(
        not result.value.continues,
        [_make_topic_continues_decision(state, lane, body)],
        is_costly=result.model != HeuristicModel.name or result.fallback_reason is not None,
    )
