"""Trees by themselves, over thousands of leaves: depth, fill, and growth in pieces."""

import random
import uuid
from collections.abc import Collection, Mapping
from math import log2
from uuid import UUID

import pytest

from strandline.topics import hashes
from strandline.topics.tree import MAX_CHILDREN, NewLeaf, TopicTree, TreeSettings
from strandline.topics.vectors import MeanVector, round_to_float16
from tests.strandline.topics.world import random_vector

SCOPE = UUID(int=1)
SETTINGS = TreeSettings(
    lambda number: hashes.make_slot_id("acme", SCOPE, "space", number), 0.3, 0.1
)
KINDS = ("random", "clustered", "identical", "none", "mixed")


class Store:
    """What is stored of a tree: its rows, and the vectors by content."""

    def __init__(self, settings: TreeSettings = SETTINGS) -> None:
        self.settings = settings
        self.vectors: dict[UUID, MeanVector | None] = {}
        self.tree = TopicTree(settings, self.load)

    def load(self, slots: Collection[UUID]) -> Mapping[UUID, MeanVector]:
        results = {slot: self.vectors[self.tree.node_ids[slot]] for slot in slots}
        return {slot: vector for slot, vector in results.items() if vector}

    def end_build(self, *, reload: bool) -> None:
        """Give changed slots their content; then go on with what was stored alone."""
        for slot in self.tree.changed_inner_slots():
            vector, node_id = self.tree.vector(slot), uuid.uuid4()
            self.vectors[node_id] = vector
            self.tree.set_content(slot, node_id)
        if reload:
            rows, slots = self.tree.to_rows(), self.tree.slots_numbered
            self.tree = TopicTree(self.settings, self.load, rows, slots)

    def insert(self, leaf: NewLeaf) -> None:
        self.vectors[leaf.node_id] = leaf.vector
        self.tree.insert_leaf(leaf)


def make_leaves(kind: str, count: int, seed: int, merges: float) -> list[NewLeaf]:
    rng, leaves, slots = random.Random(seed), list[NewLeaf](), list[UUID]()
    for _ in range(count):
        if slots and rng.random() < merges:
            slot = rng.choice(slots)
        else:
            slot = UUID(int=rng.getrandbits(128), version=4)
            slots.append(slot)
        form = rng.choice(KINDS[:4]) if kind == "mixed" else kind
        vector = None
        if form != "none":
            source = random.Random(7) if form == "identical" else rng
            group = rng.randrange(5) if form == "clustered" else None
            vector = MeanVector(round_to_float16(random_vector(source, group)), rng.randrange(1, 9))
        node_id = UUID(int=rng.getrandbits(128), version=4)
        predecessor = leaves[-1].slot if leaves else None
        leaves.append(NewLeaf(slot, 1 + len(leaves), node_id, vector, predecessor))
    return leaves


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("merges", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("seed", range(2))
def test_topic_tree_keeps_depth_fill_and_leaves(kind: str, merges: float, seed: int) -> None:
    store = Store()
    present: dict[UUID, NewLeaf] = {}
    for number, leaf in enumerate(make_leaves(kind, 300, seed, merges), start=1):
        store.insert(leaf)
        present[leaf.slot] = leaf
        if number % 13 and number > 20:
            continue
        tree = store.tree
        assert sorted(tree.leaf_slots()) == sorted(present)
        if number >= 4:
            assert max(tree.depth(slot) for slot in tree.leaf_slots()) <= 2 * log2(number)
        below = [tree.children(s) for s in _inner_slots(tree)]
        assert all(1 <= len(children) <= MAX_CHILDREN for children in below)
        assert len({child for children in below for child in children}) == sum(map(len, below))


def _inner_slots(tree: TopicTree) -> set[UUID]:
    results, open_slots = set[UUID](), [tree.root]
    while open_slots:
        slot = open_slots.pop()
        results.add(slot)
        open_slots += [child for child in tree.children(slot) if not tree.is_leaf(child)]
    return results


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_topic_tree_is_same_wherever_builds_end(kind: str, seed: int) -> None:
    leaves, shapes = make_leaves(kind, 160, seed, 0.3), list[object]()
    for pieces in (1, 7, 40):
        store, rng = Store(), random.Random(pieces)
        for leaf in leaves:
            store.insert(leaf)
            if pieces > 1 and rng.random() < pieces / len(leaves):
                store.end_build(reload=True)
        store.end_build(reload=False)
        rows = store.tree.to_rows()
        shapes.append([(r.slot, r.parent_slot, r.is_leaf, r.chain_version) for r in rows])
    assert shapes[0] == shapes[1] == shapes[2]


def deepest_over_bound(settings: TreeSettings) -> float:
    """By how many levels a tree of unlike leaves exceeds its bound at most."""
    store, excess = Store(settings), -1.0
    for number, leaf in enumerate(make_leaves("random", 400, 1, 0.0), start=1):
        store.insert(leaf)
        if number >= 4:
            depth = max(store.tree.depth(slot) for slot in store.tree.leaf_slots())
            excess = max(excess, depth - 2 * log2(number))
    return excess


def test_topic_tree_test_detects_missing_minimum_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: where nothing is alike, leaves pile up at the root, and each of its splits makes the
    tree deeper."""
    unlike = TreeSettings(SETTINGS.make_slot, 0.9, 0.1)
    assert deepest_over_bound(unlike) <= 0
    monkeypatch.setattr("strandline.topics.tree.MIN_FILL", 10_000)
    assert deepest_over_bound(unlike) > 0
