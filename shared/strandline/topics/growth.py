"""The growth of one scope's tree in a build: insert chain versions in order, renew the inner nodes
above them, and record the changes."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import takewhile
from typing import Any
from uuid import UUID

from strandline.chains.decisions import FoldDecision, make_vector_given_up_decision
from strandline.derived_ids import to_uuid8
from strandline.embeddings.vector_formats import pack_vector
from strandline.errors import StrandlineError
from strandline.topics import build_limits, hashes, store_growth, store_tail
from strandline.topics.slot_contents import BuildContext, SlotContentBuilder
from strandline.topics.store_builds import ScopeToBuild
from strandline.topics.store_growth import (
    ChainVersionToInsert,
    EventAndVector,
    ScopeTreeState,
    StoredNode,
)
from strandline.topics.tree import NewLeaf, TopicTree, TreeSettings, TreeSlotRow
from strandline.topics.vectors import MeanVector, compute_weighted_mean

VECTOR_PATIENCE = timedelta(hours=24)
"""How long a scope waits for the vectors of its events."""
_PAGE = 100
"""How many chain versions are read at a time, with the vectors of their events."""


class ChainsChanged(StrandlineError):
    """The scope's chains were dropped, or one of its events was erased, while its tree grew. The
    next build grows the tree again."""

    code = "chains_changed"


@dataclass(frozen=True)
class GrownTree:
    """A scope's tree after its growth, and the rows to store for it."""

    stage: Mapping[str, Any]
    """The tree's row of snapshot_scopes and its changed rows of topic_tree, in the format of
    topic_build_scopes.tree."""
    is_changed: bool
    nodes: Sequence[StoredNode]
    events: Sequence[EventAndVector]
    give_ups: Sequence[FoldDecision]
    summaries: int
    """How many summaries were written."""
    leaves: int
    """How many chain versions were inserted."""


def grow_scope_tree(builder: BuildContext, scope: ScopeToBuild) -> GrownTree | None:
    """Grow a scope's tree with its chain versions up to the build's mark. Returns None while the
    scope is being refolded: its published tree stays. Stores nothing. Must not be called in a
    transaction. Raises ChainsChanged."""
    published = store_growth.read_scope_tree_state(
        builder.access, scope.scope_id, scope.base_version
    )
    if published is None or published.is_being_refolded:
        return None
    is_foreign = published.space != builder.space or published.stale_leaves > 0
    if not is_foreign and scope.mark_position < (published.position or 0):
        return None  # the mark was read during a refold
    growth = _TreeGrowth(builder, scope, published, is_foreign)
    growth.insert_chain_versions()
    return growth.to_grown_tree()


@dataclass
class _TreeGrowth:
    """The growth of one scope's tree. If the published tree belongs to another embedding space or
    to replaced chains, a new tree is grown from scratch."""

    builder: BuildContext
    scope: ScopeToBuild
    published: ScopeTreeState
    is_foreign: bool
    leaf_events: dict[UUID, Sequence[EventAndVector]] = field(
        default_factory=dict[UUID, Sequence[EventAndVector]]
    )
    """The events of new leaves, by slot."""
    give_ups: dict[UUID, FoldDecision] = field(default_factory=dict[UUID, FoldDecision])
    position: int = 0
    leaf_count: int = 0
    is_cut: bool = False
    """Whether growth stopped although the next chain version was ready."""

    def __post_init__(self) -> None:
        builder, scope = self.builder, self.scope
        tenant = builder.access.caller.tenant
        self.base_rows = store_growth.read_tree_slots(
            builder.access, scope.scope_id, scope.base_version
        )
        make_slot = partial(hashes.make_slot_id, tenant, scope.scope_id, builder.space)
        settings = TreeSettings(
            make_slot, builder.thresholds.descend, builder.thresholds.descend_step
        )
        rows: Sequence[TreeSlotRow] = () if self.is_foreign else self.base_rows
        slots = 0 if self.is_foreign else self.published.slots or 0
        self.contents = SlotContentBuilder(builder, scope)
        self.tree = TopicTree(settings, self._read_vectors, rows, slots)
        self.position = 0 if self.is_foreign else self.published.position or 0

    def insert_chain_versions(self) -> None:
        """Insert the chain versions up to the mark, as far as their events are embedded, the
        build's limit allows and time is left."""
        limit = self.position + build_limits.get_max_versions_per_scope(
            has_model=self.builder.llm.has_model
        )
        end = min(limit, self.scope.mark_position)
        predecessor = self._find_previous_chain()
        while self.position < end and time.monotonic() < self.builder.end:
            page = self._read_chain_versions_page(min(_PAGE, end - self.position))
            ready = list(takewhile(self._is_embedded_or_late, page))
            for version, events in self._pair_versions_with_events(ready):
                self._insert_leaf(version, events, predecessor)
                predecessor = version.chain_id
            if len(ready) < len(page):
                return
        self.is_cut = self.position < self.scope.mark_position

    def to_grown_tree(self) -> GrownTree:
        """Renew the inner nodes above what changed, and compare the tree with the published
        one."""
        if self.position == 0:  # nothing is ready: the published tree stays
            return self._make_grown_tree([], [], [], [])
        new_inner_nodes = self.contents.renew_inner_nodes(self.tree)
        rows, base = self.tree.to_rows(), {row.slot: row for row in self.base_rows}
        new_rows = [row for row in rows if base.get(row.slot) != row]
        present = {row.slot for row in rows}
        old_slots = [slot for slot in base if slot not in present]
        leaves = [self.contents.nodes[row.node_id] for row in new_rows if row.is_leaf]
        new_leaves = [leaf for leaf in leaves if leaf.chain_id in self.leaf_events]
        return self._make_grown_tree(new_rows, old_slots, new_leaves, new_inner_nodes)

    def _read_vectors(self, slots: Collection[UUID]) -> Mapping[UUID, MeanVector]:
        return self.contents.read_vectors(self.tree, slots)

    def _find_previous_chain(self) -> UUID | None:
        if self.position == 0:
            return None
        return store_growth.find_chain_by_position(
            self.builder.access, self.scope.scope_id, self.position
        )

    def _read_chain_versions_page(self, limit: int) -> Sequence[ChainVersionToInsert]:
        """Read the next chain versions. Raises ChainsChanged if one of them is missing."""
        page = store_growth.list_next_chain_versions(
            self.builder.access,
            self.scope.scope_id,
            self.builder.space,
            self.position,
            self.scope.mark_position,
            limit,
        )
        if len(page) < limit or page[-1].position != self.position + limit:
            raise ChainsChanged
        return page

    def _is_embedded_or_late(self, version: ChainVersionToInsert) -> bool:
        """Whether the vectors of a version's events are known, or are no longer waited for."""
        since = self.scope.waiting_since
        is_late = since is not None and self.builder.now - since > VECTOR_PATIENCE
        return version.is_embedded or is_late

    def _pair_versions_with_events(
        self, versions: Sequence[ChainVersionToInsert]
    ) -> list[tuple[ChainVersionToInsert, list[EventAndVector]]]:
        """Pair each of these versions with its events, ordered by seq."""
        if not versions:
            return []
        chain_ids = {version.chain_id for version in versions}
        rows = store_growth.list_chain_events_with_vectors(
            self.builder.access, self.scope.scope_id, self.builder.space, chain_ids
        )
        by_chain: dict[UUID, list[EventAndVector]] = {}
        for row in rows:
            by_chain.setdefault(row.chain_id, []).append(row)
        return [
            (
                version,
                [
                    event
                    for event in by_chain.get(version.chain_id, [])
                    if event.since_version <= version.version
                ],
            )
            for version in versions
        ]

    def _insert_leaf(
        self,
        version: ChainVersionToInsert,
        events: Sequence[EventAndVector],
        predecessor: UUID | None,
    ) -> None:
        if not events:
            raise ChainsChanged
        vector = compute_weighted_mean([vector for event in events if (vector := event.vector)])
        node = self._make_leaf_node(version, events, vector)
        self.contents.nodes[node.node_id] = node
        self.leaf_events[version.chain_id] = events
        for event in events:
            if not event.has_row and not event.is_given_up:
                decision = make_vector_given_up_decision(
                    event.event_id, self.scope.mark_seq, "late"
                )
                self.give_ups[event.event_id] = decision
        leaf = NewLeaf(version.chain_id, version.version, node.node_id, vector, predecessor)
        self.tree.insert_leaf(leaf)
        self.position = version.position
        self.leaf_count += 1

    def _make_leaf_node(
        self,
        version: ChainVersionToInsert,
        events: Sequence[EventAndVector],
        vector: MeanVector | None,
    ) -> StoredNode:
        digest = hashes.hash_leaf(
            self.builder.access.caller.tenant,
            self.scope.scope_id,
            version.content_hash,
            self.builder.space,
            vector,
        )
        is_listed = version.rejected is None
        return StoredNode(
            node_id=to_uuid8(digest),
            kind="leaf",
            content_hash=digest,
            chain_id=version.chain_id,
            chain_version=version.version,
            chain_hash=version.content_hash,
            topic=version.topic if is_listed else None,
            summary=version.summary if is_listed else None,
            started_at=version.started_at,
            last_event_at=version.last_event_at,
            event_count=len(events),
            leaf_count=1,
            trust=version.trust,
            vector_bytes=pack_vector(vector.values) if vector else None,
            vector_count=vector.weight if vector else 0,
            models=version.models,
        )

    def _make_grown_tree(
        self,
        new_rows: Sequence[TreeSlotRow],
        old_slots: Sequence[UUID],
        new_leaves: Sequence[StoredNode],
        new_inner_nodes: Sequence[StoredNode],
    ) -> GrownTree:
        stage: dict[str, Any] = {"position": self.position, "is_cut": self.is_cut}
        is_changed = bool(new_rows or old_slots)
        if is_changed:
            stage |= self._make_staged_tree(new_rows, old_slots)
        slots = [leaf.chain_id for leaf in new_leaves if leaf.chain_id]
        return GrownTree(
            stage,
            is_changed,
            [*new_leaves, *new_inner_nodes],
            [event for slot in slots for event in self.leaf_events[slot]],
            list(self.give_ups.values()),
            len(new_inner_nodes),
            self.leaf_count,
        )

    def _make_staged_tree(
        self, new_rows: Sequence[TreeSlotRow], old_slots: Sequence[UUID]
    ) -> dict[str, Any]:
        root = self.contents.nodes[self.tree.node_ids[self.tree.root]]
        return {
            "scope": {
                "root_slot": str(self.tree.root),
                "root_id": str(root.node_id),
                "cutoff": self._find_cutoff(),
                "slots": self.tree.slots_numbered,
                "space": self.builder.space,
                "leaf_count": root.leaf_count,
                "node_count": len(self.tree.node_ids),
                "event_count": root.event_count,
            },
            "rows": [
                {
                    "slot": str(row.slot),
                    "parent_slot": row.parent_slot and str(row.parent_slot),
                    "node_id": str(row.node_id),
                    "is_leaf": row.is_leaf,
                    "chain_version": row.chain_version,
                }
                for row in new_rows
            ],
            "gone": [str(slot) for slot in old_slots],
        }

    def _find_cutoff(self) -> int:
        """The greatest seq such that every event up to it, except statements, is under a leaf."""
        cutoff, seqs = 0, {e.seq for events in self.leaf_events.values() for e in events}
        if not self.is_foreign and self.published.cutoff is not None:
            cutoff = self.published.cutoff
            seqs |= store_growth.list_leaf_seqs_after(
                self.builder.access, self.scope.scope_id, self.scope.base_version, cutoff
            )
        mark = max(cutoff, self.scope.mark_seq)
        gap = store_tail.find_uncovered_seq(
            self.builder.access, self.scope.scope_id, cutoff, mark, seqs
        )
        return mark if gap is None else gap - 1
