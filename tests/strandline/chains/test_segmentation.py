"""The fold's step: where a lane is cut, and where it is not."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.chains.segmentation import (
    Lane,
    LaneEvent,
    SegmentationRules,
    TopicComparisonResult,
    TopicComparisonVerdict,
    TopicRun,
    close_open_run,
    compare_pending_with_last_user_message,
    cosine_similarity,
    move_pending_event_into_topic,
    read_workflow_ids,
)
from tests.lanes import finish, segment

RULES = SegmentationRules(
    low=0.3, high=0.7, gap=timedelta(minutes=30), max_open_events=20, lookahead=0
)
START = datetime(2026, 5, 8, 9, 0, tzinfo=UTC)


def turn(
    seq: int,
    angle: float | None = None,
    *,
    minutes: float | None = None,
    role: str = "user",
    type: str = "message",
    session: str = "",
    **more: object,
) -> LaneEvent:
    """An event; its vector points at `angle` degrees, so that cosines are easy to say."""
    vector = (
        None if angle is None else (math.cos(math.radians(angle)), math.sin(math.radians(angle)))
    )
    at = START + timedelta(minutes=seq if minutes is None else minutes)
    new_turn = LaneEvent(UUID(int=seq), seq, session, role, type, at, at, vector=vector)
    return new_turn if not more else LaneEvent(**{**_fields(new_turn), **more})  # pyright: ignore[reportArgumentType]


def _fields(result: LaneEvent) -> dict[str, object]:
    return {name: getattr(result, name) for name in LaneEvent.__slots__}


def lane(*turns: LaneEvent, user: LaneEvent | None = None) -> Lane:
    """Of judged events, the last user message of which is compared with."""
    return Lane(turns, (), user or next((t for t in reversed(turns) if t.is_user_message), None))


def seqs(results: Sequence[TopicRun]) -> list[tuple[str, list[int]]]:
    return [(run.closed_by, [t.seq for t in run.events]) for run in results]


@pytest.mark.parametrize(
    ("angle", "verdict"),
    [
        (0, TopicComparisonVerdict.CONTINUE),
        (45, TopicComparisonVerdict.CONTINUE),
        (46, TopicComparisonVerdict.GRAY),
        (72, TopicComparisonVerdict.GRAY),
        (73, TopicComparisonVerdict.BREAK),
        (180, TopicComparisonVerdict.BREAK),
    ],
)
def test_segmentation_compares_user_messages_by_cosine(
    angle: float, verdict: TopicComparisonVerdict
) -> None:
    comparison = compare_pending_with_last_user_message(
        lane(turn(1, 0)).with_pending_event(turn(2, angle)), RULES
    )
    assert comparison.verdict is verdict
    assert comparison.cosine == pytest.approx(math.cos(math.radians(angle)))


def test_segmentation_thresholds_are_inclusive() -> None:
    """At high it goes on, at low it is asked about: only what is below breaks."""
    exact = SegmentationRules(0.0, 1.0, RULES.gap, 20, 0)
    assert (
        compare_pending_with_last_user_message(
            lane(turn(1, 0)).with_pending_event(turn(2, 0)), exact
        ).verdict
        is TopicComparisonVerdict.CONTINUE
    )
    right = turn(2, vector=(0.0, 1.0))
    assert (
        compare_pending_with_last_user_message(
            lane(turn(1, vector=(1.0, 0.0))).with_pending_event(right), exact
        ).verdict
        is TopicComparisonVerdict.GRAY
    )


@pytest.mark.parametrize(
    ("before", "later", "verdict"),
    [
        (lane(), turn(2, 90), TopicComparisonVerdict.ALONE),
        (lane(turn(1, role="agent")), turn(2, 90), TopicComparisonVerdict.ALONE),
        (lane(turn(1, 0)), turn(2, 90, role="agent"), TopicComparisonVerdict.ALONE),
        (lane(turn(1, 0)), turn(2, 90, type="observation"), TopicComparisonVerdict.ALONE),
        (lane(turn(1, 0)), turn(2, 90), TopicComparisonVerdict.BREAK),
        (lane(turn(1, 0)), turn(2), TopicComparisonVerdict.WAIT),
        (lane(turn(1)), turn(2, 0), TopicComparisonVerdict.WAIT),
        (lane(turn(1)), turn(2, 90, vector_given_up=True), TopicComparisonVerdict.BLIND),
        (lane(turn(1, vector_given_up=True)), turn(2), TopicComparisonVerdict.BLIND),
        (
            lane(turn(1, 0, flow_ids=frozenset({"workflow_id=7", "execution_id=1"}))),
            turn(2, 180, flow_ids=frozenset({"workflow_id=7"})),
            TopicComparisonVerdict.FLOW,
        ),
        (
            lane(turn(1, 0, flow_ids=frozenset({"workflow_id=7"}))),
            turn(2, 180, flow_ids=frozenset({"execution_id=7"})),
            TopicComparisonVerdict.BREAK,
        ),
        (lane(turn(2, role="agent"), user=turn(1, 0)), turn(3, 180), TopicComparisonVerdict.BREAK),
    ],
)
def test_segmentation_selects_turns_to_compare(
    before: Lane, later: LaneEvent, verdict: TopicComparisonVerdict
) -> None:
    assert (
        compare_pending_with_last_user_message(before.with_pending_event(later), RULES).verdict
        is verdict
    )


def test_segmentation_break_precedes_new_message() -> None:
    result, still = segment([turn(1, 0), turn(2, role="agent"), turn(3, 180)], RULES, _never)
    assert seqs(result) == [("break", [1, 2])]
    assert [t.seq for t in still[""].open_events] == [3]


def _never(*_: object) -> bool:
    raise AssertionError("nobody is to be asked")


def test_segmentation_gray_pair_is_asked_with_open_turns() -> None:
    requests: list[tuple[list[int], int]] = []

    def answer(lane: Lane) -> bool:
        requests.append(([t.seq for t in lane.open_events], lane.pending_events[0].seq))
        return lane.pending_events[0].seq != 3

    result, _ = segment([turn(1, 0), turn(2, 60), turn(3, 0), turn(4, 60)], RULES, answer)
    assert requests == [([1], 2), ([1, 2], 3), ([3], 4)]
    assert seqs(result) == [("break", [1, 2])]


def test_segmentation_forced_close_still_compares() -> None:
    turns = [turn(1, 0), *(turn(n, role="agent") for n in range(2, 21)), turn(21, 180)]
    result, still = segment(turns, RULES, _never)
    assert seqs(result) == [("force", list(range(1, 11))), ("break", list(range(11, 21)))]
    assert [t.seq for t in still[""].open_events] == [21]


def test_segmentation_gap_is_forward_between_neighbours() -> None:
    turns = [
        turn(1, minutes=0, role="agent"),
        turn(2, minutes=-500, role="agent"),
        turn(3, minutes=-470, role="agent"),
        turn(4, minutes=-439, role="agent"),
    ]
    result, still = segment(turns, RULES, _never)
    assert seqs(result) == [("gap", [1, 2, 3])]
    assert still[""].last_user_message is None


def test_segmentation_compares_nothing_after_gap() -> None:
    result, still = segment(
        [turn(1, 0), turn(2, 180, minutes=99), turn(3, 180, minutes=100)], RULES, _never
    )
    assert seqs(result) == [("gap", [1])]
    empty, run = close_open_run(still[""], "idle")
    assert (empty, run and run.closed_by) == (Lane(), "idle")
    assert compare_pending_with_last_user_message(
        empty.with_pending_event(turn(4, 0, minutes=101)), RULES
    ) == TopicComparisonResult(TopicComparisonVerdict.ALONE)
    assert close_open_run(empty, "idle") == (Lane(), None)


def test_segmentation_keeps_lanes_apart() -> None:
    mixture = [turn(n, 0 if n % 2 else 180, session="ab"[n % 2]) for n in range(1, 11)]
    result, still = segment(mixture, RULES, _never)
    assert result == []
    assert {name: len(contents.open_events) for name, contents in still.items()} == {"a": 5, "b": 5}


@given(st.integers(0, 10**9), st.integers(2, 9))
def test_segmentation_puts_every_event_in_one_run(seed: int, flush: int) -> None:
    dice = random.Random(seed)
    turns = [
        turn(
            n,
            dice.choice((0.0, 50.0, 90.0, 180.0, None)),
            minutes=n * dice.choice((1, 1, 1, 3)) + dice.choice((0, 0, 0, 40)),
            role=dice.choice(("user", "agent")),
            session=dice.choice("abc"),
        )
        for n in range(1, 80)
    ]
    rules = SegmentationRules(0.3, 0.7, RULES.gap, max(4, flush), dice.choice((0, 1, 3)))

    def by_chance(*_: object) -> bool:
        return dice.random() < 0.5

    result, still = segment(turns, rules, by_chance)
    leases = [t for run in result for t in run.events]
    leases += [t for ln in still.values() for t in (*ln.open_events, *ln.pending_events)]
    assert sorted(t.seq for t in leases) == list(range(1, 80))
    for session in "abc":
        own = [t for t in leases if t.session_id == session]
        assert [t.seq for t in own] == sorted(t.seq for t in own)
    assert all(len({t.session_id for t in run.events}) == 1 for run in result)
    assert all(1 <= len(run.events) < rules.max_open_events for run in result)
    assert all(len(ln.open_events) < rules.max_open_events for ln in still.values())


def test_segmentation_step_does_not_change_its_input() -> None:
    before = lane(turn(1, 0)).with_pending_event(turn(2, 0))
    after, run = move_pending_event_into_topic(before, RULES, breaks=False)
    assert (len(before.open_events), len(after.open_events), run) == (1, 2, None)


WAITING = replace(RULES, lookahead=2)


def test_segmentation_lookahead_delays_judgement() -> None:
    turns = [turn(1, 0), turn(2, 180), turn(3, role="agent"), turn(4, role="agent")]
    result, still = segment(turns[:3], WAITING, _never)
    assert result == []
    assert [t.seq for t in still[""].pending_events] == [2, 3]
    result, still = segment(turns, WAITING, _never)
    assert seqs(result) == [("break", [1])]
    assert [t.seq for t in still[""].open_events] == [2]
    assert seqs(finish(still, WAITING, _never)) == [("idle", [2, 3, 4])]


def test_segmentation_lookahead_stops_at_silence() -> None:
    requests: list[tuple[list[int], list[int]]] = []

    def answer(lane: Lane) -> bool:
        requests.append(([t.seq for t in lane.open_events], [t.seq for t in lane.pending_events]))
        return len(requests) == 1

    turns = [turn(n, (0, 60)[n % 2]) for n in range(1, 5)] + [turn(5, 0, minutes=99)]
    result, still = segment(turns, WAITING, answer)
    assert requests == [([1], [2, 3, 4]), ([1, 2], [3, 4]), ([3], [4])]
    assert seqs(result) == [("break", [1, 2]), ("break", [3]), ("gap", [4])]
    assert [t.seq for t in still[""].pending_events] == [5]


def test_segmentation_never_closes_unjudged_turns() -> None:
    with pytest.raises(AssertionError, match="would lose"):
        close_open_run(Lane().with_pending_event(turn(1)), "idle")


@pytest.mark.parametrize("ahead", [0, 1, 5, 40])
def test_segmentation_lookahead_moves_no_cosine_cut(ahead: int) -> None:
    """Anyone who waits sees more, and compares the same."""
    dice = random.Random(ahead)
    turns = [turn(n, dice.choice((0, 90)), session=dice.choice("ab")) for n in range(1, 60)]

    def end_runs(rules: SegmentationRules) -> list[tuple[str, list[int]]]:
        result, still = segment(turns, rules, _never)
        return sorted(seqs([*result, *finish(still, rules, _never)]))

    assert end_runs(replace(RULES, lookahead=ahead)) == end_runs(RULES)


def test_segmentation_workflow_ids_differ_by_kind() -> None:
    assert read_workflow_ids({"workflow_id": "7", "execution_id": 7, "other": "7"}) == {
        "workflow_id=7",
        "execution_id=7",
    }
    assert read_workflow_ids({"workflow_id": "", "execution_id": None}) == frozenset()
    assert read_workflow_ids({}) == frozenset()


def test_segmentation_cosine_needs_no_unit_vectors() -> None:
    assert cosine_similarity((3.0, 0.0), (0.5, 0.5)) == pytest.approx(math.sqrt(0.5))
    assert cosine_similarity((0.0, 0.0), (1.0, 0.0)) == 0.0
