"""The growth of one scope's tree in a build: take in chain versions in their order, renew what is
above them, and say what changed."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import takewhile
from typing import Any
from uuid import UUID

from strandline.chains.decisions import Decision, give_up_vector
from strandline.db.database import TenantDb
from strandline.errors import StrandlineError
from strandline.llm.tasks import LlmTasks
from strandline.llm.types import ModelResult, Overview, TaskContext, TopicPart
from strandline.log.trust import least_trusted
from strandline.topics import hashes, store_growth
from strandline.topics.store_build import BuildScope
from strandline.topics.store_growth import LeafEvent, NewVersion, Node, ScopeTree, pack_vector
from strandline.topics.tree import NewLeaf, Tree, TreeRow, TreeSettings
from strandline.topics.vectors import MeanVector, mean

MAX_VERSIONS = 2000
"""How many chain versions of a scope a build takes in at most."""
MAX_VERSIONS_WITH_MODEL = 200
"""The same where a language model writes the summaries: it takes seconds for each."""
VECTOR_PATIENCE = timedelta(hours=24)
"""How long a scope waits for the vectors of its events."""
_PAGE = 100
"""How many chain versions are read at a time, with the vectors of their events."""


class ChainsChanged(StrandlineError):
    """The scope's chains were dropped while its tree grew. The next build grows it again."""

    code = "chains_changed"


@dataclass(frozen=True)
class Builder:
    """What scopes are grown with."""

    access: TenantDb
    llm: LlmTasks
    space: str
    descend_cosine: float
    job_id: UUID
    now: datetime
    deadline: float
    """In time.monotonic() seconds: a model that answers later is not waited for."""
    is_out_of_time: Callable[[], bool]


@dataclass(frozen=True)
class GrownTree:
    """A scope's tree after its growth, and what has to be stored for it."""

    stage: Mapping[str, Any]
    """Its row of snapshot_scopes and the changed rows of topic_tree, as topic_build_scopes keeps
    them."""
    is_changed: bool
    nodes: Sequence[Node]
    events: Sequence[LeafEvent]
    give_ups: Sequence[Decision]
    summaries: int
    """How many summaries were written."""
    leaves: int
    """How many chain versions were taken in."""


def grow_scope(builder: Builder, scope: BuildScope) -> GrownTree | None:
    """Grow a scope's tree with its chain versions up to the build's mark. None while its chains are
    being folded again: its published tree stays. Stores nothing. Must not be called in a
    transaction. Raises ChainsChanged."""
    published = store_growth.read_scope_tree(builder.access, scope.scope_id, scope.base_version)
    if published is None or published.is_being_refolded:
        return None
    is_foreign = published.space != builder.space or published.stale_leaves > 0
    if not is_foreign and scope.mark_position < (published.position or 0):
        return None  # the mark was read while they were
    growth = _Growth(builder, scope, published, is_foreign)
    growth.take_versions()
    return growth.finish()


@dataclass
class _Growth:
    """The growth of one scope's tree. A tree of another space, or of other chains, is grown from
    nothing."""

    builder: Builder
    scope: BuildScope
    published: ScopeTree
    is_foreign: bool
    nodes: dict[UUID, Node] = field(default_factory=dict[UUID, Node])
    """Contents that were read or are new, by id."""
    leaf_events: dict[UUID, Sequence[LeafEvent]] = field(
        default_factory=dict[UUID, Sequence[LeafEvent]]
    )
    """The events of new leaves, by slot."""
    give_ups: dict[UUID, Decision] = field(default_factory=dict[UUID, Decision])
    position: int = 0
    leaf_count: int = 0
    is_cut: bool = False
    """It stopped although the next chain version was ready."""

    def __post_init__(self) -> None:
        builder, scope = self.builder, self.scope
        tenant = builder.access.caller.tenant
        self.base_rows = store_growth.read_rows(builder.access, scope.scope_id, scope.base_version)
        make_slot = partial(hashes.make_slot_id, tenant, scope.scope_id, builder.space)
        settings = TreeSettings(make_slot, builder.descend_cosine)
        rows: Sequence[TreeRow] = () if self.is_foreign else self.base_rows
        slots = 0 if self.is_foreign else self.published.slots or 0
        self.tree = Tree(settings, self._load_vectors, rows, slots)
        self.position = 0 if self.is_foreign else self.published.position or 0

    def take_versions(self) -> None:
        """Insert the chain versions up to the mark: as many as are embedded, as a build takes, and
        as the time allows."""
        has_model = self.builder.llm.has_model
        limit = self.position + (MAX_VERSIONS_WITH_MODEL if has_model else MAX_VERSIONS)
        end = min(limit, self.scope.mark_position)
        predecessor = self._find_predecessor()
        while self.position < end and not self.builder.is_out_of_time():
            page = self._read_page(min(_PAGE, end - self.position))
            ready = list(takewhile(self._is_ready, page))
            for version, events in self._with_events(ready):
                self._insert(version, events, predecessor)
                predecessor = version.chain_id
            if len(ready) < len(page):
                return
        self.is_cut = self.position < self.scope.mark_position

    def finish(self) -> GrownTree:
        """Renew the inner nodes above what changed, and compare the tree with the published
        one."""
        if self.position == 0:  # nothing is ready: what is published stays
            return self._make_grown([], [], [], 0)
        new_inner_nodes, summaries = self._renew_inner_nodes()
        rows, base = self.tree.rows(), {row.slot: row for row in self.base_rows}
        changed = [row for row in rows if base.get(row.slot) != row]
        present = {row.slot for row in rows}
        gone = [slot for slot in base if slot not in present]
        leaves = [self.nodes[row.node_id] for row in changed if row.is_leaf]
        new_leaves = [leaf for leaf in leaves if leaf.chain_id in self.leaf_events]
        return self._make_grown(changed, gone, [*new_leaves, *new_inner_nodes], summaries)

    def _find_predecessor(self) -> UUID | None:
        if self.position == 0:
            return None
        return store_growth.find_chain_at(self.builder.access, self.scope.scope_id, self.position)

    def _read_page(self, limit: int) -> Sequence[NewVersion]:
        """The next chain versions. Raises ChainsChanged where one of them is missing."""
        page = store_growth.list_versions(
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

    def _is_ready(self, version: NewVersion) -> bool:
        """Whether the vectors of a version's events are known, or not waited for."""
        since = self.scope.waiting_since
        is_late = since is not None and self.builder.now - since > VECTOR_PATIENCE
        return version.is_embedded or is_late

    def _with_events(
        self, versions: Sequence[NewVersion]
    ) -> list[tuple[NewVersion, list[LeafEvent]]]:
        """These versions, each with its events by seq."""
        if not versions:
            return []
        chain_ids = {version.chain_id for version in versions}
        rows = store_growth.list_events(
            self.builder.access, self.scope.scope_id, self.builder.space, chain_ids
        )
        by_chain: dict[UUID, list[LeafEvent]] = {}
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

    def _insert(
        self, version: NewVersion, events: Sequence[LeafEvent], predecessor: UUID | None
    ) -> None:
        if not events:
            raise ChainsChanged
        vector = mean([vector for event in events if (vector := event.vector)])
        node = self._make_leaf(version, events, vector)
        self.nodes[node.node_id] = node
        self.leaf_events[version.chain_id] = events
        for event in events:
            if not event.has_row and not event.is_given_up:
                decision = give_up_vector(event.event_id, self.scope.mark_seq, "late")
                self.give_ups[event.event_id] = decision
        leaf = NewLeaf(version.chain_id, version.version, node.node_id, vector, predecessor)
        self.tree.insert(leaf)
        self.position = version.position
        self.leaf_count += 1

    def _make_leaf(
        self, version: NewVersion, events: Sequence[LeafEvent], vector: MeanVector | None
    ) -> Node:
        digest = hashes.hash_leaf(
            self.builder.access.caller.tenant,
            self.scope.scope_id,
            version.content_hash,
            self.builder.space,
            vector,
        )
        is_listed = version.rejected is None
        return Node(
            node_id=hashes.to_uuid(digest),
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
            packed=pack_vector(vector),
            vector_count=vector.weight if vector else 0,
            models=version.models,
        )

    def _load_vectors(self, slots: Collection[UUID]) -> Mapping[UUID, MeanVector]:
        node_ids = {slot: self.tree.node_ids[slot] for slot in slots}
        self._read_nodes(node_ids.values())
        return {
            slot: vector
            for slot, node_id in node_ids.items()
            if (vector := self.nodes[node_id].vector)
        }

    def _read_nodes(self, node_ids: Collection[UUID]) -> None:
        missing = {node_id for node_id in node_ids if node_id not in self.nodes}
        self.nodes |= store_growth.read_nodes(self.builder.access, missing)

    def _renew_inner_nodes(self) -> tuple[list[Node], int]:
        """Give every changed inner slot its content, from below. A content that is stored already
        is used again, and no model is asked. Returns the new nodes, and how many summaries were
        written."""
        tree, slots = self.tree, self.tree.changed_inner_slots()
        self._read_nodes(
            [
                tree.node_ids[child]
                for slot in slots
                for child in tree.children(slot)
                if child in tree.node_ids
            ]
        )
        digests = self._hash_inner_slots(slots)
        ids = {slot: hashes.to_uuid(digest) for slot, digest in digests.items()}
        self._read_nodes(ids.values())
        new_nodes: list[Node] = []
        for slot in slots:
            if ids[slot] not in self.nodes:
                node = self._describe_slot(slot, digests[slot])
                self.nodes[node.node_id] = node
                new_nodes.append(node)
            tree.set_content(slot, ids[slot])
        return new_nodes, len(new_nodes)

    def _hash_inner_slots(self, slots: Sequence[UUID]) -> dict[UUID, bytes]:
        builder, scope_id, digests = self.builder, self.scope.scope_id, dict[UUID, bytes]()
        source = builder.llm.name_source("overview")
        for slot in slots:
            children = [
                digests[child]
                if child in digests
                else self.nodes[self.tree.node_ids[child]].content_hash
                for child in self.tree.children(slot)
            ]
            digests[slot] = hashes.hash_inner(
                builder.access.caller.tenant, scope_id, builder.space, source, children
            )
        return digests

    def _describe_slot(self, slot: UUID, digest: bytes) -> Node:
        """The content of an inner slot, whose children have theirs; its summary is the model's."""
        children = [self.nodes[self.tree.node_ids[child]] for child in self.tree.children(slot)]
        vector = self.tree.vector(slot)
        result = self._ask_overview(children)
        return Node(
            node_id=hashes.to_uuid(digest),
            kind="inner",
            content_hash=digest,
            chain_id=None,
            chain_version=None,
            chain_hash=None,
            topic=result.value.topic,
            summary=result.value.summary,
            started_at=min(child.started_at for child in children),
            last_event_at=max(child.last_event_at for child in children),
            event_count=sum(child.event_count for child in children),
            leaf_count=sum(child.leaf_count for child in children),
            trust=least_trusted(child.trust for child in children),
            packed=pack_vector(vector),
            vector_count=vector.weight if vector else 0,
            models={
                "summary": {
                    "model": result.model,
                    "prompt": result.prompt,
                    "fell_back": result.fallback_reason,
                }
            },
        )

    def _ask_overview(self, children: Sequence[Node]) -> ModelResult[Overview]:
        builder, scope = self.builder, self.scope
        task = TaskContext(
            tenant=builder.access.caller.tenant,
            subject=str(scope.scope_id),
            participants=tuple(scope.participants),
            scope_id=str(scope.scope_id),
            job=str(builder.job_id),
            deadline=builder.deadline,
        )
        parts = [
            TopicPart(
                child.topic,
                child.summary,
                child.started_at,
                child.last_event_at,
                child.event_count,
            )
            for child in children
        ]
        return builder.llm.overview(task, parts)

    def _make_grown(
        self, changed: Sequence[TreeRow], gone: Sequence[UUID], nodes: Sequence[Node], count: int
    ) -> GrownTree:
        is_changed = bool(changed or gone)
        stage: dict[str, Any] = {
            "position": self.position,
            "is_cut": self.is_cut,
        }
        if is_changed:
            stage |= self._stage_tree(changed, gone)
        new_slots = {node.chain_id for node in nodes}
        events = [e for slot in new_slots if slot for e in self.leaf_events.get(slot, ())]
        give_ups = list(self.give_ups.values())
        return GrownTree(stage, is_changed, nodes, events, give_ups, count, self.leaf_count)

    def _stage_tree(self, changed: Sequence[TreeRow], gone: Sequence[UUID]) -> dict[str, Any]:
        root = self.nodes[self.tree.node_ids[self.tree.root]]
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
                for row in changed
            ],
            "gone": [str(slot) for slot in gone],
        }

    def _find_cutoff(self) -> int:
        """The greatest seq up to which every event is under a leaf."""
        cutoff, seqs = 0, {e.seq for events in self.leaf_events.values() for e in events}
        if not self.is_foreign and self.published.cutoff is not None:
            cutoff = self.published.cutoff
            seqs |= store_growth.list_seqs_after(
                self.builder.access, self.scope.scope_id, self.scope.base_version, cutoff
            )
        while cutoff + 1 in seqs:
            cutoff += 1
        return cutoff
