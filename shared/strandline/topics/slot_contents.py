"""The contents of a tree's slots while it grows: stored contents are read, and those of changed
inner slots are summarised bottom-up, those of one level in parallel."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import groupby
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.derived_ids import to_uuid8
from strandline.embeddings.similarity_thresholds import Thresholds
from strandline.embeddings.vector_formats import pack_vector
from strandline.llm.parallel import run_all_in_parallel
from strandline.llm.tasks import LlmTasks
from strandline.llm.types import ModelResult, TaskContext, TopicTreePart, TopicTreePartsSummary
from strandline.log.trust_ranks import least_trusted
from strandline.topics import hashes, store_growth
from strandline.topics.store_builds import ScopeToBuild
from strandline.topics.store_growth import StoredNode
from strandline.topics.tree import TopicTree
from strandline.topics.vectors import MeanVector

_MIN_PAUSE_SECONDS = 1.0

type Result = ModelResult[TopicTreePartsSummary]


def summarise_slots(
    llm: LlmTasks, task: TaskContext, slots: Sequence[Sequence[TopicTreePart]], end: float
) -> list[Result]:
    """The overviews of slots, in order. Each slot is given as its parts. As many requests run at
    once as the process allows. A request that is over the rate limit of the minute is sent again in
    the next minute, unless that is past `end` (in time.monotonic() seconds): then the heuristic
    model writes the overview."""
    results: dict[int, Result] = {}
    waiting = list(range(len(slots)))
    while waiting:
        calls = [partial(llm.overview, task, slots[number]) for number in waiting]
        results |= zip(waiting, run_all_in_parallel(llm, calls), strict=True)
        waits = {number: _get_rate_limit_wait_seconds(results[number]) for number in waiting}
        waiting = [number for number, seconds in waits.items() if seconds is not None]
        pause = max((waits[number] or 0.0 for number in waiting), default=0.0)
        pause = max(pause, _MIN_PAUSE_SECONDS)
        if not waiting or time.monotonic() + pause >= end:
            break
        time.sleep(pause)
    return [results[number] for number in range(len(slots))]


def _get_rate_limit_wait_seconds(result: Result) -> float | None:
    """The seconds after which the model may be asked again; None if the result is final."""
    return result.retry_after if result.fallback_reason == "rate_limited" else None


@dataclass(frozen=True)
class BuildContext:
    """The resources and limits with which scopes are grown."""

    access: TenantDb
    llm: LlmTasks
    space: str
    thresholds: Thresholds
    job_id: UUID
    now: datetime
    end: float
    """In time.monotonic() seconds: after it, no further chain version is inserted."""
    model_end: float
    """In time.monotonic() seconds: model answers are not awaited after it."""


@dataclass
class SlotContentBuilder:
    """The contents that were read or created, by id."""

    builder: BuildContext
    scope: ScopeToBuild
    nodes: dict[UUID, StoredNode] = field(default_factory=dict[UUID, StoredNode])

    def read_vectors(self, tree: TopicTree, slots: Collection[UUID]) -> Mapping[UUID, MeanVector]:
        """The vectors of slots whose content is known."""
        node_ids = {slot: tree.node_ids[slot] for slot in slots}
        self._read_missing_nodes(node_ids.values())
        return {
            slot: vector
            for slot, node_id in node_ids.items()
            if (vector := self.nodes[node_id].vector)
        }

    def renew_inner_nodes(self, tree: TopicTree) -> list[StoredNode]:
        """Give every changed inner slot its content, bottom-up. A content that is already stored is
        reused without calling the model. Returns the new contents."""
        slots = tree.changed_inner_slots()
        children = {child for slot in slots for child in tree.children(slot)}
        self._read_missing_nodes(
            [tree.node_ids[child] for child in children if child in tree.node_ids]
        )
        digests = self._hash_slots(tree, slots)
        ids = {slot: to_uuid8(digest) for slot, digest in digests.items()}
        self._read_missing_nodes(ids.values())
        new_nodes: list[StoredNode] = []
        for _, level in groupby(slots, key=tree.depth):
            new_nodes += self._renew_slots_of_level(tree, list(level), digests)
        return new_nodes

    def _renew_slots_of_level(
        self, tree: TopicTree, slots: Sequence[UUID], digests: Mapping[UUID, bytes]
    ) -> list[StoredNode]:
        """Give slots that do not depend on each other their content. Returns the new contents."""
        ids = {slot: to_uuid8(digests[slot]) for slot in slots}
        new_slots = [slot for slot in slots if ids[slot] not in self.nodes]
        children = [
            [self.nodes[tree.node_ids[child]] for child in tree.children(slot)]
            for slot in new_slots
        ]
        new_nodes = [
            _make_inner_node(digests[slot], below, tree.vector(slot), overview)
            for slot, below, overview in zip(
                new_slots, children, self._ask_overviews(children), strict=True
            )
        ]
        self.nodes |= {node.node_id: node for node in new_nodes}
        for slot in slots:
            tree.set_content(slot, ids[slot])
        return new_nodes

    def _read_missing_nodes(self, node_ids: Collection[UUID]) -> None:
        missing = {node_id for node_id in node_ids if node_id not in self.nodes}
        self.nodes |= store_growth.read_stored_nodes(self.builder.access, missing)

    def _hash_slots(self, tree: TopicTree, slots: Sequence[UUID]) -> dict[UUID, bytes]:
        """The content hashes of changed inner slots. `slots` lists each slot after those below
        it."""
        builder, digests = self.builder, dict[UUID, bytes]()
        source = builder.llm.name_model_and_prompt("overview")
        for slot in slots:
            children = [
                digests[child]
                if child in digests
                else self.nodes[tree.node_ids[child]].content_hash
                for child in tree.children(slot)
            ]
            tenant = builder.access.caller.tenant
            digests[slot] = hashes.hash_inner(
                tenant, self.scope.scope_id, builder.space, source, children
            )
        return digests

    def _ask_overviews(
        self, slots: Sequence[Sequence[StoredNode]]
    ) -> list[ModelResult[TopicTreePartsSummary]]:
        """The model's summaries of slots. Each slot is given as the contents of its children."""
        builder, scope = self.builder, self.scope
        task = TaskContext(
            tenant=builder.access.caller.tenant,
            subject=str(scope.scope_id),
            participants=tuple(scope.participants),
            scope_id=str(scope.scope_id),
            job=str(builder.job_id),
            deadline=builder.model_end,
        )
        parts = [[_to_topic_tree_part(child) for child in children] for children in slots]
        return summarise_slots(builder.llm, task, parts, builder.model_end)


def _to_topic_tree_part(node: StoredNode) -> TopicTreePart:
    return TopicTreePart(
        node.topic, node.summary, node.started_at, node.last_event_at, node.event_count
    )


def _make_inner_node(
    digest: bytes,
    children: Sequence[StoredNode],
    vector: MeanVector | None,
    result: ModelResult[TopicTreePartsSummary],
) -> StoredNode:
    """The content of an inner slot, made from the contents of its children and the model's
    summary."""
    provenance = {
        "model": result.model,
        "prompt": result.prompt,
        "fell_back": result.fallback_reason,
    }
    return StoredNode(
        node_id=to_uuid8(digest),
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
        vector_bytes=pack_vector(vector.values) if vector else None,
        vector_count=vector.weight if vector else 0,
        models={"summary": provenance},
    )
