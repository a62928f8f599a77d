"""A scope's topic tree as it grows: the parent and children of each slot.

A leaf is a chain version; an inner node represents the nodes below it. The tree depends only on the
sequence of inserted leaves, not on how they were divided among builds (after MemTree, arXiv
2410.14052, with splits as in a B-tree). The root is always an inner node.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from uuid import UUID

from strandline.topics.vectors import MeanVector, compute_cosine_similarity, compute_weighted_mean

MAX_CHILDREN = 16
"""A node with more children is split in two."""
MIN_SPLIT = 5
"""The minimum number of children of a node after a split. With N >= 4 leaves ever inserted, the
depth of the tree stays below 2·log2(N)."""
MIN_FILL = 8
"""A node with at least this many children takes no further leaf as long as one of its children is
an inner node. Otherwise dissimilar leaves would accumulate near the root, and every split of the
root would deepen the tree."""
_MAX_THRESHOLD = 0.9


@dataclass(frozen=True)
class TreeSlotRow:
    """A slot as it is stored."""

    slot: UUID
    parent_slot: UUID | None
    """None: it is the root."""
    node_id: UUID
    is_leaf: bool
    chain_version: int | None


@dataclass(frozen=True)
class NewLeaf:
    """A chain version to insert. `slot` is its chain's id: the leaf replaces an earlier version of
    the same chain."""

    slot: UUID
    chain_version: int
    node_id: UUID
    vector: MeanVector | None
    """None: none of its events has a vector."""
    predecessor: UUID | None
    """The slot of the leaf inserted before this one, if any."""


@dataclass
class _SlotState:
    parent: UUID | None
    is_leaf: bool
    chain_version: int | None = None
    children: set[UUID] = field(default_factory=set[UUID])


@dataclass(frozen=True)
class TreeSettings:
    """The settings that a tree's growth depends on, besides its leaves."""

    make_slot: Callable[[int], UUID]
    """Makes the id of the inner slot with a number."""
    descend_cosine: float
    """The minimum cosine similarity with a child of the root at which a leaf is inserted below it.
    The minimum rises with depth."""
    descend_step: float
    """By so much the minimum rises at each level."""


class TopicTree:
    """A tree, with the vectors loaded so far. `load_vectors` returns the vectors of any stored
    slots in one call."""

    def __init__(
        self,
        settings: TreeSettings,
        load_vectors: Callable[[Collection[UUID]], Mapping[UUID, MeanVector]],
        rows: Iterable[TreeSlotRow] = (),
        slots_numbered: int = 0,
    ) -> None:
        self._settings = settings
        self._load_vectors = load_vectors
        self._vectors: dict[UUID, MeanVector | None] = {}
        self._slots: dict[UUID, _SlotState] = {}
        self.node_ids: dict[UUID, UUID] = {}
        """The content of each slot, if known. Inner slots that changed have none until
        `set_content` is called."""
        self.slots_numbered = slots_numbered
        """How many inner slots were ever numbered."""
        for row in rows:
            self._slots[row.slot] = _SlotState(row.parent_slot, row.is_leaf, row.chain_version)
            self.node_ids[row.slot] = row.node_id
        for slot, state in self._slots.items():
            if state.parent is not None:
                self._slots[state.parent].children.add(slot)
        roots = [slot for slot, state in self._slots.items() if state.parent is None]
        assert len(roots) <= 1, "a tree has one root"
        self.root = roots[0] if roots else self._add_inner_slot(None)
        """The slot of the root; it never changes."""
        self._base_rows = {row.slot: row for row in self.to_rows()} if roots else {}

    def insert_leaf(self, leaf: NewLeaf) -> None:
        """Insert a leaf, replacing an earlier version of its chain if there is one."""
        if leaf.slot in self._slots:
            self._remove_leaf(leaf.slot)
        self._vectors[leaf.slot] = leaf.vector
        self._slots[leaf.slot] = _SlotState(None, True, leaf.chain_version)
        self.node_ids[leaf.slot] = leaf.node_id
        parent = self._find_parent_for_leaf(leaf)
        self._attach(leaf.slot, parent)
        self._forget_contents_upwards(parent)
        self._split_upwards(parent)

    def children(self, slot: UUID) -> list[UUID]:
        """The children of an inner slot, in the order used for its content."""
        return sorted(self._slots[slot].children)

    def parent(self, slot: UUID) -> UUID | None:
        """The parent of a slot; None for the root."""
        return self._slots[slot].parent

    def is_leaf(self, slot: UUID) -> bool:
        """Whether a slot is a leaf."""
        return self._slots[slot].is_leaf

    def vector(self, slot: UUID) -> MeanVector | None:
        """The vector of a slot's current content; None if no event below it has a vector."""
        if slot not in self._vectors:
            self._load_or_compute_vectors([slot])
        return self._vectors[slot]

    def changed_inner_slots(self) -> list[UUID]:
        """The inner slots whose content is not known yet, each after those below it."""
        return sorted(
            (slot for slot in self._slots if slot not in self.node_ids),
            key=lambda slot: (-self.depth(slot), slot),
        )

    def set_content(self, slot: UUID, node_id: UUID) -> None:
        """Set the content of an inner slot that changed."""
        assert slot not in self.node_ids
        self.node_ids[slot] = node_id

    def depth(self, slot: UUID) -> int:
        """The number of ancestors of a slot."""
        depth, parent = 0, self._slots[slot].parent
        while parent is not None:
            depth, parent = depth + 1, self._slots[parent].parent
        return depth

    def leaf_slots(self) -> list[UUID]:
        """The slots of all leaves."""
        return [slot for slot, state in self._slots.items() if state.is_leaf]

    def to_rows(self) -> list[TreeSlotRow]:
        """All slots as rows to store, in order. Every content must be known."""
        return [
            TreeSlotRow(slot, state.parent, self.node_ids[slot], state.is_leaf, state.chain_version)
            for slot, state in sorted(self._slots.items())
        ]

    def list_changed_rows(self) -> tuple[list[TreeSlotRow], list[UUID]]:
        """The rows that were added or changed since the tree was loaded, and the slots that were
        removed."""
        rows = self.to_rows()
        present = {row.slot for row in rows}
        return (
            [row for row in rows if self._base_rows.get(row.slot) != row],
            sorted(slot for slot in self._base_rows if slot not in present),
        )

    def _find_parent_for_leaf(self, leaf: NewLeaf) -> UUID:
        """Find the parent for a leaf: descend to the most similar child as long as it is similar
        enough or the node has MIN_FILL children. A leaf without a vector gets the same parent as
        the leaf before it."""
        if leaf.vector is None:
            before = self._slots.get(leaf.predecessor) if leaf.predecessor else None
            return self.root if before is None or before.parent is None else before.parent
        slot, threshold = self.root, self._settings.descend_cosine
        while inner := [child for child in self.children(slot) if not self.is_leaf(child)]:
            self._load_or_compute_vectors(inner)
            similarity, nearest = max(
                ((self._similarity(leaf.vector, child), child) for child in inner),
                key=lambda pair: (pair[0], pair[1]),
            )
            has_room = len(self._slots[slot].children) < MIN_FILL
            if has_room and similarity < min(threshold, _MAX_THRESHOLD):
                break
            slot, threshold = nearest, threshold + self._settings.descend_step
        return slot

    def _similarity(self, vector: MeanVector, slot: UUID) -> float:
        other = self._vectors[slot]
        return -1.0 if other is None else compute_cosine_similarity(vector, other)

    def _load_or_compute_vectors(self, slots: Sequence[UUID]) -> None:
        """Make the vectors of these slots available: load those of stored contents in one call, and
        compute those of changed inner slots from their children."""
        missing = self._stored_slots_without_vector(slots)
        if missing:
            vectors = self._load_vectors(missing)
            self._vectors |= {slot: vectors.get(slot) for slot in missing}
        for slot in slots:
            if slot not in self._vectors:
                children = self.children(slot)
                self._load_or_compute_vectors(children)
                parts = [part for child in children if (part := self._vectors[child])]
                self._vectors[slot] = compute_weighted_mean(parts)

    def _stored_slots_without_vector(self, slots: Iterable[UUID]) -> set[UUID]:
        """The stored slots without a loaded vector, among these slots and those below the changed
        ones."""
        missing: set[UUID] = set()
        for slot in slots:
            if slot in self._vectors:
                continue
            if slot in self.node_ids:
                missing.add(slot)
            else:
                missing |= self._stored_slots_without_vector(self._slots[slot].children)
        return missing

    def _forget_contents_upwards(self, slot: UUID | None) -> None:
        """Forget the content of a slot and of all of its ancestors."""
        while slot is not None:
            self._vectors.pop(slot, None)
            self.node_ids.pop(slot, None)
            slot = self._slots[slot].parent

    def _attach(self, slot: UUID, parent: UUID) -> None:
        self._slots[slot].parent = parent
        self._slots[parent].children.add(slot)

    def _detach(self, slot: UUID) -> UUID:
        parent = self._slots[slot].parent
        assert parent is not None, "the root stays"
        self._slots[parent].children.remove(slot)
        return parent

    def _add_inner_slot(self, parent: UUID | None) -> UUID:
        slot = self._settings.make_slot(self.slots_numbered)
        self.slots_numbered += 1
        self._slots[slot] = _SlotState(None, False)
        if parent is not None:
            self._attach(slot, parent)
        return slot

    def _delete_slot(self, slot: UUID) -> None:
        del self._slots[slot]
        self._vectors.pop(slot, None)
        self.node_ids.pop(slot, None)

    def _remove_leaf(self, leaf: UUID) -> None:
        """Remove a leaf. An inner slot left with one child is replaced by that child; a root left
        with one inner node takes over its children."""
        parent = self._detach(leaf)
        self._delete_slot(leaf)
        self._forget_contents_upwards(parent)
        children = self._slots[parent].children
        if len(children) == 1:
            (only,) = children
            if parent != self.root:
                above = self._detach(parent)
                self._delete_slot(parent)
                self._attach(only, above)
                parent = above
        if parent == self.root:
            self._flatten_root()

    def _flatten_root(self) -> None:
        children = self._slots[self.root].children
        while len(children) == 1 and not self.is_leaf(only := next(iter(children))):
            below = self._slots[only].children
            self._detach(only)
            self._delete_slot(only)
            for child in below:
                self._attach(child, self.root)

    def _split_upwards(self, slot: UUID) -> None:
        """Split a slot with too many children, then each ancestor that gets too many children by
        it."""
        while len(self._slots[slot].children) > MAX_CHILDREN:
            first, second = self._divide_by_similarity(self.children(slot))
            if slot == self.root:  # it keeps its slot above two new ones
                for group in (first, second):
                    self._move_slots_to_parent(group, self._add_inner_slot(self.root))
                return
            parent = self._slots[slot].parent
            assert parent is not None
            sibling = self._add_inner_slot(parent)
            self._move_slots_to_parent(second, sibling)
            slot = parent

    def _move_slots_to_parent(self, group: Iterable[UUID], parent: UUID) -> None:
        for slot in group:
            self._detach(slot)
            self._attach(slot, parent)

    def _divide_by_similarity(self, slots: Sequence[UUID]) -> tuple[list[UUID], list[UUID]]:
        """Divide slots into two groups of at least MIN_SPLIT slots, around the two least similar
        ones. Slots without a vector fill the smaller group. The first group contains the lowest
        slot with a vector."""
        self._load_or_compute_vectors(slots)
        vectors = {slot: vector for slot in slots if (vector := self._vectors[slot])}
        if len(vectors) < 2:
            return list(slots[: len(slots) // 2]), list(slots[len(slots) // 2 :])
        seeds = min(
            combinations(vectors, 2),
            key=lambda pair: compute_cosine_similarity(*(vectors[s] for s in pair)),
        )
        lean = {
            slot: compute_cosine_similarity(vector, vectors[seeds[0]])
            - compute_cosine_similarity(vector, vectors[seeds[1]])
            for slot, vector in vectors.items()
            if slot not in seeds
        }
        groups = ([seeds[0]], [seeds[1]])
        max_size = len(slots) - MIN_SPLIT
        for slot in sorted(lean, key=lambda slot: (-abs(lean[slot]), slot)):
            side = 0 if lean[slot] >= 0 else 1
            groups[side if len(groups[side]) < max_size else 1 - side].append(slot)
        for slot in slots:
            if slot not in vectors:
                min(groups, key=len).append(slot)
        first, second = sorted(groups, key=lambda group: min(s for s in group if s in vectors))
        return first, second
