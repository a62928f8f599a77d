"""Where topics end: the fold's step, lane by lane, from nothing but what it is given.

A lane is a session's part of a scope. Its open events become a run, which becomes a chain, where
the topic breaks at a user's message, where it grew too long, where nobody spoke for a while, and
where a stored decision says that nobody did. A message is judged a few events later, in the light
of what came next: whether people turn to something shows best in their going on with it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Literal
from uuid import UUID

type CloseReason = Literal["break", "force", "gap", "idle"]


@dataclass(frozen=True, slots=True)
class Turn:
    """An event as the fold sees it."""

    event_id: UUID
    seq: int
    session_id: str
    role: str
    type: str
    said_at: datetime
    """By the caller's clock, or ours where the caller gave none."""
    recorded_at: datetime
    flow_ids: frozenset[str] = frozenset()
    """Its workflow and execution ids, see `flows`."""
    vector: Sequence[float] | None = None
    """Of user messages; of other events it is not looked at."""
    vector_given_up: bool = False
    """Its vector was refused, or is not waited for any longer."""

    @property
    def is_user_message(self) -> bool:
        """A user's message: here alone a topic can break."""
        return self.role == "user" and self.type == "message"


@dataclass(frozen=True, slots=True)
class SegmentationRules:
    """What topics are cut by."""

    low: float
    """Cosine below which the topic breaks."""
    high: float
    """From here it goes on; in between somebody is asked."""
    gap: timedelta
    """A longer silence closes a lane."""
    max_open_events: int
    """So many open events close the older half."""
    lookahead: int
    """So many later events of its lane are waited for before an event is judged."""


@dataclass(frozen=True, slots=True)
class Lane:
    """What is open of a session in a scope, in order."""

    open_turns: tuple[Turn, ...] = ()
    """The topic under way, as far as it is judged."""
    pending_turns: tuple[Turn, ...] = ()
    """What came after, and is not judged yet."""
    last_user_turn: Turn | None = None
    """The latest judged user message to compare with: it may be closed already, where the older
    half was closed by force."""

    @property
    def last_turn(self) -> Turn | None:
        """Its latest event; none where nothing is open."""
        return (
            (*self.open_turns[-1:], *self.pending_turns[-1:])[-1]
            if self.open_turns or self.pending_turns
            else None
        )

    def with_turn(self, turn: Turn) -> "Lane":
        """With its next event."""
        return replace(self, pending_turns=(*self.pending_turns, turn))


@dataclass(frozen=True, slots=True)
class TopicRun:
    """Events that belong together, and what ended them."""

    turns: tuple[Turn, ...]
    closed_by: CloseReason


class TopicVerdict(Enum):
    """What two user messages say about the topic."""

    ALONE = "alone"
    """Nothing to compare: no user's message, none before it, or nothing open."""
    FLOW = "flow"
    """The same workflow or execution: it goes on."""
    BLIND = "blind"
    """One of them will have no vector: it goes on."""
    WAIT = "wait"
    """One of them has no vector yet: the fold stops before this event."""
    CONTINUE = "continue"
    GRAY = "gray"
    """Somebody must be asked."""
    BREAK = "break"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A verdict, and the cosine it rests on, where it rests on one."""

    verdict: TopicVerdict
    cosine: float | None = None


def compare_topic(lane: Lane, rules: SegmentationRules) -> Comparison:
    """Whether the lane's topic goes on with the first event that is not judged."""
    previous, turn = lane.last_user_turn, lane.pending_turns[0]
    if not turn.is_user_message or previous is None or not lane.open_turns:
        return Comparison(TopicVerdict.ALONE)
    if previous.flow_ids & turn.flow_ids:
        return Comparison(TopicVerdict.FLOW)
    if previous.vector_given_up or turn.vector_given_up:
        return Comparison(TopicVerdict.BLIND)
    if previous.vector is None or turn.vector is None:
        return Comparison(TopicVerdict.WAIT)
    similarity = cosine_similarity(previous.vector, turn.vector)
    if similarity >= rules.high:
        return Comparison(TopicVerdict.CONTINUE, similarity)
    return Comparison(
        TopicVerdict.BREAK if similarity < rules.low else TopicVerdict.GRAY, similarity
    )


def judge_next(
    lane: Lane, rules: SegmentationRules, *, breaks: bool
) -> tuple[Lane, TopicRun | None]:
    """The lane with its first event that was not judged in its topic, and the run that this closed,
    if any. `breaks`: the topic ended before that event, by `compare` or by who was asked. One event
    closes one run at most: after a break it is alone, and `flush` is more than that."""
    turn, *pending = lane.pending_turns
    closed_run = TopicRun(lane.open_turns, "break") if breaks and lane.open_turns else None
    open_turns = (turn,) if breaks else (*lane.open_turns, turn)
    if closed_run is None and len(open_turns) >= rules.max_open_events:
        half = len(open_turns) // 2
        closed_run, open_turns = TopicRun(open_turns[:half], "force"), open_turns[half:]
    return Lane(
        open_turns,
        tuple(pending),
        turn if turn.is_user_message else None if breaks else lane.last_user_turn,
    ), closed_run


def close_lane(lane: Lane, closed_by: CloseReason) -> tuple[Lane, TopicRun | None]:
    """An empty lane, and all that was open, which is judged, as a run: what comes next is compared
    with nothing."""
    assert not lane.pending_turns, "what is not judged would be lost"
    return Lane(), TopicRun(lane.open_turns, closed_by) if lane.open_turns else None


def is_after_gap(lane: Lane, turn: Turn, rules: SegmentationRules) -> bool:
    """Between the lane's last event and this one lies a gap. Clocks that go back show none."""
    return lane.last_turn is not None and turn.said_at - lane.last_turn.said_at > rules.gap


type ContinuesPredicate = Callable[[Lane], bool]
"""Whether a lane's topic goes on with its first event that is not judged."""


def segment_scope(
    turns: Iterable[Turn], rules: SegmentationRules, continues: ContinuesPredicate
) -> tuple[list[TopicRun], dict[str, Lane]]:
    """A whole scope folded at once, in order of seq: the closed runs, in the order of their
    closing, and what stays open by session. `continues` answers where the verdict is gray; a
    vector that is missing is not waited for."""
    lanes: dict[str, Lane] = {}
    closed_runs: list[TopicRun] = []
    for turn in turns:
        lane = lanes.get(turn.session_id, Lane())
        if is_after_gap(lane, turn, rules):
            closed_runs += finish_lane(lane, rules, continues, "gap")
            lane = Lane()
        lane, newly_closed = _judge_pending(lane.with_turn(turn), rules, continues, rules.lookahead)
        closed_runs += newly_closed
        lanes[turn.session_id] = lane
    return closed_runs, lanes


def finish_lane(
    lane: Lane, rules: SegmentationRules, continues: ContinuesPredicate, closed_by: CloseReason
) -> list[TopicRun]:
    """A lane's last runs, where nothing more is waited for."""
    lane, closed_runs = _judge_pending(lane, rules, continues, 0)
    _, last = close_lane(lane, closed_by)
    return [*closed_runs, *([last] if last else [])]


def _judge_pending(
    lane: Lane, rules: SegmentationRules, continues: ContinuesPredicate, lookahead: int
) -> tuple[Lane, Sequence[TopicRun]]:
    """The lane with all but so many events judged, and what that closed."""
    closed_runs: list[TopicRun] = []
    while len(lane.pending_turns) > lookahead:
        verdict = compare_topic(lane, rules).verdict
        is_gray = verdict is TopicVerdict.GRAY
        breaks = not continues(lane) if is_gray else verdict is TopicVerdict.BREAK
        lane, closed_run = judge_next(lane, rules, breaks=breaks)
        closed_runs += [closed_run] if closed_run else []
    return lane, closed_runs


def read_flow_ids(metadata: dict[str, object]) -> frozenset[str]:
    """The workflow and execution ids in an event's metadata, each with its kind."""
    return frozenset(
        f"{name}={metadata[name]}"
        for name in ("workflow_id", "execution_id")
        if metadata.get(name) not in (None, "")
    )


def cosine_similarity(first: Sequence[float], second: Sequence[float]) -> float:
    """How alike two vectors point, from -1 to 1; of one without length 0. Neither has to be of
    length 1: stored ones are rounded."""
    length = math.sqrt(math.sumprod(first, first) * math.sumprod(second, second))
    return math.sumprod(first, second) / length if length else 0.0
