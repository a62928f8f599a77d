"""The beam goes down to the best slots of each level, the same way every time."""

import random
import uuid
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from strandline.topics.store_references_query import TreeSlotWithHits
from strandline.topics.walk import TreesWithHits, walk_trees_by_beam

SCOPE, AT = uuid.UUID(int=1), datetime(2026, 5, 8, tzinfo=UTC)


def node(
    number: int, parent: int | None, events: list[int], similarity: float | None = None
) -> TreeSlotWithHits:
    return TreeSlotWithHits(
        SCOPE,
        uuid.UUID(int=number),
        None if parent is None else uuid.UUID(int=parent),
        uuid.UUID(int=1000 + number),
        bool(events),
        AT,
        similarity,
        [uuid.UUID(int=event) for event in events],
    )


def forest(relevance: dict[int, float], *nodes: TreeSlotWithHits) -> TreesWithHits:
    by_event = {uuid.UUID(int=event): number for event, number in relevance.items()}
    return TreesWithHits({one.slot: one for one in nodes}, by_event)


def slots(walk: dict[uuid.UUID, uuid.UUID]) -> dict[int, int]:
    return {event.int: slot.int for event, slot in walk.items()}


TREE = (
    node(1, None, []),
    node(2, 1, []),
    node(3, 1, [30]),
    node(4, 2, [40]),
    node(5, 2, [50, 51]),
)
RELEVANCE = {30: 0.2, 40: 0.1, 50: 0.9, 51: 0.3}


def test_topic_walk_reaches_leaves() -> None:
    walk = walk_trees_by_beam(forest(RELEVANCE, *TREE), depth=9, width=9)
    assert slots(dict(walk.slot_by_event)) == {30: 3, 40: 4, 50: 5, 51: 5}
    assert (walk.cut_by_width, walk.is_late) == (0, False)


def test_topic_walk_follows_best_of_each_level() -> None:
    walk = walk_trees_by_beam(forest(RELEVANCE, *TREE), depth=9, width=1)
    assert slots(dict(walk.slot_by_event)) == {50: 5, 51: 5}
    assert walk.cut_by_width == 2


def test_topic_walk_breaks_ties_by_similarity() -> None:
    pair = (node(1, None, []), node(2, 1, [20], 0.1), node(3, 1, [30], 0.5))
    walk = walk_trees_by_beam(forest({20: 0.4, 30: 0.4}, *pair), depth=9, width=1)
    assert slots(dict(walk.slot_by_event)) == {30: 3}


def test_topic_walk_hangs_deeper_events_below_last_level() -> None:
    walk = walk_trees_by_beam(forest(RELEVANCE, *TREE), depth=2, width=9)
    assert slots(dict(walk.slot_by_event)) == {30: 3, 40: 2, 50: 2, 51: 2}
    assert walk.is_late is False
    late = walk_trees_by_beam(forest(RELEVANCE, *TREE), depth=9, width=9, is_late=lambda: True)
    assert slots(dict(late.slot_by_event)) == {30: 1, 40: 1, 50: 1, 51: 1}
    assert late.is_late is True


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 6))
def test_topic_walk_places_or_counts_every_event(seed: int, depth: int, width: int) -> None:
    dice = random.Random(seed)
    nodes = [node(1, None, [])]
    for number in range(2, 2 + dice.randrange(1, 30)):
        parent = dice.choice([one for one in nodes if not one.is_leaf]).slot.int
        events = [1000 * number + n for n in range(dice.choice((0, 1, 3)))]
        nodes.append(node(number, parent, events, dice.random()))
    relevance = {event.int: dice.random() for one in nodes for event in one.event_ids}
    dice.shuffle(nodes)
    walk = walk_trees_by_beam(forest(relevance, *nodes), depth=depth, width=width)
    assert len(walk.slot_by_event) + walk.cut_by_width == len(relevance)
    dice.shuffle(nodes)
    again = walk_trees_by_beam(forest(relevance, *nodes), depth=depth, width=width)
    assert dict(again.slot_by_event) == dict(walk.slot_by_event)
