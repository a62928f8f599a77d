"""The fold's steps of lanes, taken in memory: without a database, and with decisions by cosine."""

from collections.abc import Callable, Iterable, Sequence

from strandline.chains.segmentation import (
    Judge,
    Lane,
    LaneEvent,
    LaneStepResult,
    SegmentationRules,
    TopicComparisonVerdict,
    TopicEndJudgement,
    TopicRun,
    compare_pending_with_last_user_message,
    iterate_steps_adding_event,
    iterate_steps_closing_lane,
)

type Continues = Callable[[Lane], bool]
"""Whether a lane's topic goes on at its first pending event: the answer where that is gray."""


def segment(
    turns: Iterable[LaneEvent], rules: SegmentationRules, continues: Continues
) -> tuple[list[TopicRun], dict[str, Lane]]:
    """Adds a scope's events. Gives the closed runs, and the lanes by session."""
    lanes, judge = dict[str, Lane](), _by_cosine(rules, continues)
    runs: list[TopicRun] = []
    for turn in turns:
        runs += _take(lanes, turn.session_id, iterate_steps_adding_event(lanes, turn, rules, judge))
    return runs, lanes


def finish(
    lanes: dict[str, Lane], rules: SegmentationRules, continues: Continues
) -> list[TopicRun]:
    """Closes all lanes as idle. Gives their last runs."""
    judge = _by_cosine(rules, continues)
    return [
        run
        for session in list(lanes)
        for run in _take(
            lanes, session, iterate_steps_closing_lane(lanes, session, rules, judge, "idle")
        )
    ]


def _take(
    lanes: dict[str, Lane], session: str, steps: Iterable[LaneStepResult]
) -> Sequence[TopicRun]:
    runs: list[TopicRun] = []
    for step in steps:
        lanes[session] = step.lane
        runs += [step.closed_run] if step.closed_run else []
    return runs


def _by_cosine(rules: SegmentationRules, continues: Continues) -> Judge:
    def judge(lane: Lane) -> TopicEndJudgement:
        verdict = compare_pending_with_last_user_message(lane, rules).verdict
        is_gray = verdict is TopicComparisonVerdict.GRAY
        return TopicEndJudgement(
            not continues(lane) if is_gray else verdict is TopicComparisonVerdict.BREAK
        )

    return judge
