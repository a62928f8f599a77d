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

type Closing = Literal["break", "force", "gap", "idle"]


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
    flows: frozenset[str] = frozenset()
    """Its workflow and execution ids, see `flows`."""
    vector: Sequence[float] | None = None
    """Of user messages; of other events it is not looked at."""
    given_up: bool = False
    """Its vector was refused, or is not waited for any longer."""

    @property
    def asks(self) -> bool:
        """A user's message: here alone a topic can break."""
        return self.role == "user" and self.type == "message"


@dataclass(frozen=True, slots=True)
class Rules:
    """What topics are cut by."""

    low: float
    """Cosine below which the topic breaks."""
    high: float
    """From here it goes on; in between somebody is asked."""
    gap: timedelta
    """A longer silence closes a lane."""
    flush: int
    """So many open events close the older half."""
    ahead: int
    """So many later events of its lane are waited for before an event is judged."""


@dataclass(frozen=True, slots=True)
class Lane:
    """What is open of a session in a scope, in order."""

    open: tuple[Turn, ...] = ()
    """The topic under way, as far as it is judged."""
    ahead: tuple[Turn, ...] = ()
    """What came after, and is not judged yet."""
    user: Turn | None = None
    """The latest judged user message to compare with: it may be closed already, where the older
    half was closed by force."""

    @property
    def last(self) -> Turn | None:
        """Its latest event; none where nothing is open."""
        return (*self.open[-1:], *self.ahead[-1:])[-1] if self.open or self.ahead else None

    def joined(self, turn: Turn) -> "Lane":
        """With its next event."""
        return replace(self, ahead=(*self.ahead, turn))


@dataclass(frozen=True, slots=True)
class Run:
    """Events that belong together, and what ended them."""

    turns: tuple[Turn, ...]
    closed_by: Closing


class Verdict(Enum):
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
class Compared:
    """A verdict, and the cosine it rests on, where it rests on one."""

    verdict: Verdict
    cosine: float | None = None


def compare(lane: Lane, rules: Rules) -> Compared:
    """Whether the lane's topic goes on with the first event that is not judged."""
    before, turn = lane.user, lane.ahead[0]
    if not turn.asks or before is None or not lane.open:
        return Compared(Verdict.ALONE)
    if before.flows & turn.flows:
        return Compared(Verdict.FLOW)
    if before.given_up or turn.given_up:
        return Compared(Verdict.BLIND)
    if before.vector is None or turn.vector is None:
        return Compared(Verdict.WAIT)
    alike = cosine(before.vector, turn.vector)
    if alike >= rules.high:
        return Compared(Verdict.CONTINUE, alike)
    return Compared(Verdict.BREAK if alike < rules.low else Verdict.GRAY, alike)


def step(lane: Lane, rules: Rules, *, breaks: bool) -> tuple[Lane, Run | None]:
    """The lane with its first event that was not judged in its topic, and the run that this closed,
    if any. `breaks`: the topic ended before that event, by `compare` or by who was asked. One event
    closes one run at most: after a break it is alone, and `flush` is more than that."""
    turn, *ahead = lane.ahead
    closed = Run(lane.open, "break") if breaks and lane.open else None
    held = (turn,) if breaks else (*lane.open, turn)
    if closed is None and len(held) >= rules.flush:
        half = len(held) // 2
        closed, held = Run(held[:half], "force"), held[half:]
    return Lane(held, tuple(ahead), turn if turn.asks else None if breaks else lane.user), closed


def close(lane: Lane, closed_by: Closing) -> tuple[Lane, Run | None]:
    """An empty lane, and all that was open, which is judged, as a run: what comes next is compared
    with nothing."""
    assert not lane.ahead, "what is not judged would be lost"
    return Lane(), Run(lane.open, closed_by) if lane.open else None


def silent(lane: Lane, turn: Turn, rules: Rules) -> bool:
    """Between the lane's last event and this one lies a gap. Clocks that go back show none."""
    return lane.last is not None and turn.said_at - lane.last.said_at > rules.gap


type Continues = Callable[[Lane], bool]
"""Whether a lane's topic goes on with its first event that is not judged."""


def runs(
    turns: Iterable[Turn], rules: Rules, continues: Continues
) -> tuple[list[Run], dict[str, Lane]]:
    """A whole scope folded at once, in order of seq: the closed runs, in the order of their
    closing, and what stays open by session. `continues` answers where the verdict is gray; a
    vector that is missing is not waited for."""
    lanes: dict[str, Lane] = {}
    found: list[Run] = []
    for turn in turns:
        lane = lanes.get(turn.session_id, Lane())
        if silent(lane, turn, rules):
            found += finish(lane, rules, continues, "gap")
            lane = Lane()
        lane, closed = _judged(lane.joined(turn), rules, continues, rules.ahead)
        found += closed
        lanes[turn.session_id] = lane
    return found, lanes


def finish(lane: Lane, rules: Rules, continues: Continues, closed_by: Closing) -> list[Run]:
    """A lane's last runs, where nothing more is waited for."""
    lane, found = _judged(lane, rules, continues, 0)
    _, last = close(lane, closed_by)
    return [*found, *([last] if last else [])]


def _judged(
    lane: Lane, rules: Rules, continues: Continues, ahead: int
) -> tuple[Lane, Sequence[Run]]:
    """The lane with all but so many events judged, and what that closed."""
    found: list[Run] = []
    while len(lane.ahead) > ahead:
        verdict = compare(lane, rules).verdict
        gray = verdict is Verdict.GRAY
        breaks = not continues(lane) if gray else verdict is Verdict.BREAK
        lane, closed = step(lane, rules, breaks=breaks)
        found += [closed] if closed else []
    return lane, found


def flows(metadata: dict[str, object]) -> frozenset[str]:
    """The workflow and execution ids in an event's metadata, each with its kind."""
    return frozenset(
        f"{name}={metadata[name]}"
        for name in ("workflow_id", "execution_id")
        if metadata.get(name) not in (None, "")
    )


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """How alike two vectors point, from -1 to 1; of one without length 0. Neither has to be of
    length 1: stored ones are rounded."""
    length = math.sqrt(math.sumprod(one, one) * math.sumprod(other, other))
    return math.sumprod(one, other) / length if length else 0.0
