"""Walk from the roots of trees to the leaves that hold events, by a deterministic beam search."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from strandline.topics.store_references_query import TreeSlotWithHits

_SIMILARITY_WEIGHT = 0.1
"""The weight of a node's cosine similarity with the question, relative to the relevance of the best
event below it."""

TOPIC_WEIGHT = 0.25
"""The weight of the mean relevance of the best TOPIC_EVENTS events of an event's topic, relative to
the event's own relevance. At twice as much, less of the conversations with agents is found."""
TOPIC_EVENTS = 3


@dataclass
class TreesWithHits:
    """Slots of trees, and the events that were found below them."""

    nodes: Mapping[UUID, TreeSlotWithHits]
    """By slot. All ancestors of each slot are included."""
    relevance_by_event: Mapping[UUID, float]
    relevance: dict[UUID, float] = field(default_factory=dict[UUID, float])
    """The relevance of the best event below each slot."""

    def __post_init__(self) -> None:
        for node in self.nodes.values():
            best = max((self.relevance_by_event[e] for e in node.event_ids), default=None)
            if best is None:
                continue
            for slot in self.path_to_root(node.slot):
                self.relevance[slot] = max(best, self.relevance.get(slot, 0.0))

    def path_to_root(self, slot: UUID) -> list[UUID]:
        """A slot and its ancestors, up to the root."""
        slots: list[UUID] = []
        current: UUID | None = slot
        while current is not None and current not in slots:
            slots.append(current)
            current = self.nodes[current].parent_slot if current in self.nodes else None
        return slots

    def score_slot(self, slot: UUID) -> float:
        """The score of a slot for the beam search."""
        similarity = self.nodes[slot].similarity or 0.0
        return self.relevance.get(slot, 0.0) + _SIMILARITY_WEIGHT * similarity


@dataclass(frozen=True)
class BeamWalkResult:
    """The result of a walk."""

    slot_by_event: Mapping[UUID, UUID]
    """The slot under which each event is shown: its leaf, or the deepest slot reached on the way to
    it."""
    cut_by_width: int
    """The number of events below slots that were not followed."""
    is_late: bool
    """Whether the time limit was reached before the leaves."""


def walk_trees_by_beam(
    forest: TreesWithHits, *, depth: int, width: int, is_late: Callable[[], bool] = lambda: False
) -> BeamWalkResult:
    """Walk down level by level, following the best `width` slots of each level, for at most `depth`
    levels. The root is the first level. Ties go to the lower slot."""
    children: dict[UUID | None, list[UUID]] = defaultdict(list)
    for node in forest.nodes.values():
        children[node.parent_slot].append(node.slot)
    stops: list[UUID] = []
    level, late = children[None], False
    for number in range(depth):
        level = sorted(level, key=lambda slot: (-forest.score_slot(slot), slot))[:width]
        late = is_late()
        if late or number + 1 == depth:
            stops += level
            break
        stops += [slot for slot in level if forest.nodes[slot].is_leaf]
        level = [child for slot in level for child in children[slot]]
    slot_by_event, is_stop = dict[UUID, UUID](), set(stops)
    cut = 0
    for node in forest.nodes.values():
        stop = next((slot for slot in forest.path_to_root(node.slot) if slot in is_stop), None)
        if stop is None:
            cut += len(node.event_ids)
        else:
            slot_by_event |= dict.fromkeys(node.event_ids, stop)
    return BeamWalkResult(
        slot_by_event, cut, late and any(not forest.nodes[s].is_leaf for s in stops)
    )


def rank_with_topic_weight[Group](
    relevance_by_event: Mapping[UUID, float], group_by_event: Mapping[UUID, Group]
) -> list[UUID]:
    """Order the events, best first: by their relevance, and by how much of their group was found.
    An answer is often found beside similar events."""
    by_group: dict[Group, list[float]] = defaultdict(list)
    for event, group in group_by_event.items():
        by_group[group].append(relevance_by_event[event])
    weights = {
        group: TOPIC_WEIGHT * sum(sorted(relevances, reverse=True)[:TOPIC_EVENTS]) / TOPIC_EVENTS
        for group, relevances in by_group.items()
    }
    return sorted(
        relevance_by_event, key=lambda e: -(relevance_by_event[e] + weights[group_by_event[e]])
    )
