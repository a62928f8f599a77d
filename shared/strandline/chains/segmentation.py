"""Where topics end: the pure part of the fold, lane by lane, without database or clock.

A lane is a session's part of a scope. Its open events become a closed run, and the run becomes a
chain, when the topic breaks at a user message, when the run has grown too long, when a gap follows,
or when a stored decision says that the lane is idle. A message is judged a few events later,
together with the events that follow it, because they show best whether a new topic has begun.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Literal
from uuid import UUID

from strandline.chains.decisions import FoldDecision

type CloseReason = Literal["break", "force", "gap", "idle"]
"""Why a run was closed: topic break, forced by length, a gap, or an idle lane."""


@dataclass(frozen=True, slots=True)
class LaneEvent:
    """The properties of an event that segmentation uses."""

    event_id: UUID
    seq: int
    session_id: str
    role: str
    type: str
    said_at: datetime
    """By the caller's clock, or by the server's if the caller gave no time."""
    recorded_at: datetime
    flow_ids: frozenset[str] = frozenset()
    """Its workflow and execution ids, see `read_workflow_ids`."""
    vector: Sequence[float] | None = None
    """Of user messages only; the vectors of other events are not used."""
    vector_given_up: bool = False
    """Whether the model refused its text, or its vector is no longer waited for."""

    @property
    def is_user_message(self) -> bool:
        """Whether it is a user's message: a topic can break only here."""
        return self.role == "user" and self.type == "message"


@dataclass(frozen=True, slots=True)
class SegmentationRules:
    """The thresholds for dividing a lane into topics."""

    low: float
    """A cosine below this breaks the topic."""
    high: float
    """A cosine of at least this continues the topic. Between the two thresholds, a model is
    asked."""
    gap: timedelta
    """A longer pause between two events closes a lane."""
    max_open_events: int
    """At this many open events, the older half is closed."""
    lookahead: int
    """How many later events of its lane an event waits for before it is judged."""


@dataclass(frozen=True, slots=True)
class Lane:
    """The open events of a session in a scope, in order."""

    open_events: tuple[LaneEvent, ...] = ()
    """The judged events of the current topic."""
    pending_events: tuple[LaneEvent, ...] = ()
    """The events after the judged ones, which are not judged yet."""
    last_user_message: LaneEvent | None = None
    """The latest judged user message, with which the next one is compared. It may be in a closed
    run already, if the older half was closed by force."""

    @property
    def last_event(self) -> LaneEvent | None:
        """The lane's latest event; None for an empty lane."""
        return (
            (*self.open_events[-1:], *self.pending_events[-1:])[-1]
            if self.open_events or self.pending_events
            else None
        )

    def with_pending_event(self, event: LaneEvent) -> "Lane":
        """The lane with its next event added as pending."""
        return replace(self, pending_events=(*self.pending_events, event))


@dataclass(frozen=True, slots=True)
class TopicRun:
    """Consecutive events of a lane on one topic, and why the run was closed."""

    events: tuple[LaneEvent, ...]
    closed_by: CloseReason


class TopicComparisonVerdict(Enum):
    """The result of comparing two user messages."""

    ALONE = "alone"
    """There is nothing to compare: not a user message, none before it, or no open events."""
    FLOW = "flow"
    """Both belong to the same workflow or execution, so the topic continues."""
    BLIND = "blind"
    """One of them will never have a vector, so the topic continues."""
    WAIT = "wait"
    """One of them has no vector yet, so the fold stops before this event."""
    CONTINUE = "continue"
    """The cosine is at least `high`."""
    GRAY = "gray"
    """The cosine is between the thresholds: a model must decide."""
    BREAK = "break"
    """The cosine is below `low`."""


@dataclass(frozen=True, slots=True)
class TopicComparisonResult:
    """A verdict, and the cosine similarity that it is based on, if any."""

    verdict: TopicComparisonVerdict
    cosine: float | None = None


def compare_pending_with_last_user_message(
    lane: Lane, rules: SegmentationRules
) -> TopicComparisonResult:
    """Compare the lane's first pending event with its latest user message."""
    previous, event = lane.last_user_message, lane.pending_events[0]
    if not event.is_user_message or previous is None or not lane.open_events:
        return TopicComparisonResult(TopicComparisonVerdict.ALONE)
    if previous.flow_ids & event.flow_ids:
        return TopicComparisonResult(TopicComparisonVerdict.FLOW)
    if previous.vector_given_up or event.vector_given_up:
        return TopicComparisonResult(TopicComparisonVerdict.BLIND)
    if previous.vector is None or event.vector is None:
        return TopicComparisonResult(TopicComparisonVerdict.WAIT)
    similarity = cosine_similarity(previous.vector, event.vector)
    if similarity >= rules.high:
        return TopicComparisonResult(TopicComparisonVerdict.CONTINUE, similarity)
    return TopicComparisonResult(
        TopicComparisonVerdict.BREAK if similarity < rules.low else TopicComparisonVerdict.GRAY,
        similarity,
    )


def move_pending_event_into_topic(
    lane: Lane, rules: SegmentationRules, *, breaks: bool
) -> tuple[Lane, TopicRun | None]:
    """Move the lane's first pending event into its topic. Returns the new lane and the run that
    this closed, if any. `breaks`: whether the topic ended before that event, by
    `compare_pending_with_last_user_message` or by a model's answer. One event closes at most one
    run: after a break the event is alone, and `max_open_events` is larger than that."""
    event, *pending_events = lane.pending_events
    closed_run = TopicRun(lane.open_events, "break") if breaks and lane.open_events else None
    open_events = (event,) if breaks else (*lane.open_events, event)
    if closed_run is None and len(open_events) >= rules.max_open_events:
        half = len(open_events) // 2
        closed_run, open_events = TopicRun(open_events[:half], "force"), open_events[half:]
    return Lane(
        open_events,
        tuple(pending_events),
        event if event.is_user_message else None if breaks else lane.last_user_message,
    ), closed_run


def close_open_run(lane: Lane, closed_by: CloseReason) -> tuple[Lane, TopicRun | None]:
    """Close the open run of a lane whose events are all judged. Returns an empty lane and that run,
    if any. The next event is compared with nothing."""
    assert not lane.pending_events, "an empty lane would lose its pending events"
    return Lane(), TopicRun(lane.open_events, closed_by) if lane.open_events else None


def is_after_gap(lane: Lane, event: LaneEvent, rules: SegmentationRules) -> bool:
    """Whether there is a gap between the lane's last event and this one. If the clock goes
    backwards, there is no gap."""
    return lane.last_event is not None and event.said_at - lane.last_event.said_at > rules.gap


@dataclass(frozen=True, slots=True)
class TopicEndJudgement:
    """Whether the topic ends before a lane's first pending event, and the decisions made to find
    out."""

    ends_topic: bool
    new_decisions: Sequence[FoldDecision] = ()
    is_costly: bool = False
    """Whether a model was called. If so, the decisions are committed before they are used, because
    the next step may be deferred. The heuristic model gives the same answer again at no cost."""


@dataclass(frozen=True, slots=True)
class LaneStepResult:
    """A lane after one step, the run that the step closed, if any, and the decisions behind it."""

    lane: Lane
    closed_run: TopicRun | None = None
    new_decisions: Sequence[FoldDecision] = ()


type Judge = Callable[[Lane], TopicEndJudgement | None]
"""Judges a lane's first pending event. Returns None if no verdict is possible yet."""


def iterate_steps_adding_event(
    lanes: Mapping[str, Lane], event: LaneEvent, rules: SegmentationRules, judge: Judge
) -> Iterator[LaneStepResult]:
    """The steps that add an event to its lane. `lanes` holds the open lanes by session id: the
    caller stores each step's lane there before it takes the next step.

    Only the last step's lane contains the event. If `judge` returns None, the steps end before the
    step that needs the verdict.
    """
    while must_judge_pending_before(lane := lanes.get(event.session_id, Lane()), event, rules):
        step = _judge_first_pending_event(lane, rules, judge)
        if step is None:
            return
        yield step
    if is_after_gap(lane, event, rules):
        yield _restart_lane_after_gap(lane, event, rules)
        return
    lane = lane.with_pending_event(event)
    is_due = len(lane.pending_events) > rules.lookahead
    step = _judge_first_pending_event(lane, rules, judge) if is_due else LaneStepResult(lane)
    if step is not None:
        yield step


def iterate_steps_closing_lane(
    lanes: Mapping[str, Lane],
    session_id: str,
    rules: SegmentationRules,
    judge: Judge,
    closed_by: CloseReason,
) -> Iterator[LaneStepResult]:
    """The steps that judge a lane to its end, without waiting for further events, and close it.
    `lanes` and `judge` are as for `iterate_steps_adding_event`; the last step's lane is empty."""
    while (lane := lanes.get(session_id, Lane())).pending_events:
        step = _judge_first_pending_event(lane, rules, judge)
        if step is None:
            return
        yield step
    yield LaneStepResult(*close_open_run(lane, closed_by))


def must_judge_pending_before(lane: Lane, event: LaneEvent, rules: SegmentationRules) -> bool:
    """Whether the lane's first pending event must be judged before `event` is added. No event waits
    across a gap, nor for more events than `rules` allow, which may have changed."""
    max_pending = 0 if is_after_gap(lane, event, rules) else rules.lookahead
    return len(lane.pending_events) > max_pending


def _judge_first_pending_event(
    lane: Lane, rules: SegmentationRules, judge: Judge
) -> LaneStepResult | None:
    """Judge the lane's first pending event; None if that must wait."""
    judgement = judge(lane)
    if judgement is None:
        return None
    if any(decision.kind == "vector_given_up" for decision in judgement.new_decisions):
        event, *later_events = lane.pending_events
        event = replace(event, vector_given_up=event.vector is None)
        lane = replace(lane, pending_events=(event, *later_events))
    lane, closed_run = move_pending_event_into_topic(lane, rules, breaks=judgement.ends_topic)
    return LaneStepResult(lane, closed_run, judgement.new_decisions)


def _restart_lane_after_gap(
    lane: Lane, event: LaneEvent, rules: SegmentationRules
) -> LaneStepResult:
    """Close the open run of a lane whose events are all judged, and start the lane again with the
    event after the gap."""
    lane, closed_run = close_open_run(lane, "gap")
    lane = lane.with_pending_event(event)
    if not rules.lookahead:
        lane, _ = move_pending_event_into_topic(lane, rules, breaks=False)
    return LaneStepResult(lane, closed_run)


def read_workflow_ids(metadata: dict[str, object]) -> frozenset[str]:
    """The workflow and execution ids in an event's metadata, each prefixed with its kind."""
    return frozenset(
        f"{name}={metadata[name]}"
        for name in ("workflow_id", "execution_id")
        if metadata.get(name) not in (None, "")
    )


def cosine_similarity(first: Sequence[float], second: Sequence[float]) -> float:
    """The cosine similarity of two vectors, from -1 to 1; 0 if one of them has length 0. The
    vectors need not have length 1, because stored vectors are rounded."""
    length = math.sqrt(math.sumprod(first, first) * math.sumprod(second, second))
    return math.sumprod(first, second) / length if length else 0.0
