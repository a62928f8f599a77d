"""The contents of a tree's slots while it grows: those that are stored, and those of changed inner
slots, which are summarised from below."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.llm.tasks import LlmTasks
from strandline.llm.types import ModelResult, Overview, TaskContext, TopicPart
from strandline.log.trust import least_trusted
from strandline.topics import hashes, store_growth
from strandline.topics.store_build import BuildScope
from strandline.topics.store_growth import Node, pack_vector
from strandline.topics.tree import Tree
from strandline.topics.vectors import MeanVector


@dataclass(frozen=True)
class Builder:
    """What scopes are grown with."""

    access: TenantDb
    llm: LlmTasks
    space: str
    descend_cosine: float
    job_id: UUID
    now: datetime
    end: float
    """In time.monotonic() seconds: no further chain version is taken in after it."""
    model_end: float
    """In time.monotonic() seconds: a model that answers later is not waited for."""


@dataclass
class Contents:
    """The contents that were read or are new, by id."""

    builder: Builder
    scope: BuildScope
    nodes: dict[UUID, Node] = field(default_factory=dict[UUID, Node])

    def load_vectors(self, tree: Tree, slots: Collection[UUID]) -> Mapping[UUID, MeanVector]:
        """The vectors of slots whose content is known."""
        node_ids = {slot: tree.node_ids[slot] for slot in slots}
        self._read(node_ids.values())
        return {
            slot: vector
            for slot, node_id in node_ids.items()
            if (vector := self.nodes[node_id].vector)
        }

    def renew_inner_nodes(self, tree: Tree) -> list[Node]:
        """Give every changed inner slot its content, from below. A content that is stored already
        is used again, and no model is asked. Returns the new contents."""
        slots = tree.changed_inner_slots()
        children = {child for slot in slots for child in tree.children(slot)}
        self._read([tree.node_ids[child] for child in children if child in tree.node_ids])
        digests = self._hash_slots(tree, slots)
        ids = {slot: hashes.to_uuid(digest) for slot, digest in digests.items()}
        self._read(ids.values())
        new_nodes: list[Node] = []
        for slot in slots:
            if ids[slot] not in self.nodes:
                node = self._describe_slot(tree, slot, digests[slot])
                self.nodes[node.node_id] = node
                new_nodes.append(node)
            tree.set_content(slot, ids[slot])
        return new_nodes

    def _read(self, node_ids: Collection[UUID]) -> None:
        missing = {node_id for node_id in node_ids if node_id not in self.nodes}
        self.nodes |= store_growth.read_nodes(self.builder.access, missing)

    def _hash_slots(self, tree: Tree, slots: Sequence[UUID]) -> dict[UUID, bytes]:
        """The content hashes of changed inner slots, which come after those below them."""
        builder, digests = self.builder, dict[UUID, bytes]()
        source = builder.llm.name_source("overview")
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

    def _describe_slot(self, tree: Tree, slot: UUID, digest: bytes) -> Node:
        """The content of an inner slot, whose children have theirs; its summary is the model's."""
        children = [self.nodes[tree.node_ids[child]] for child in tree.children(slot)]
        vector = tree.vector(slot)
        result = self._ask_overview(children)
        provenance = {
            "model": result.model,
            "prompt": result.prompt,
            "fell_back": result.fallback_reason,
        }
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
            models={"summary": provenance},
        )

    def _ask_overview(self, children: Sequence[Node]) -> ModelResult[Overview]:
        builder, scope = self.builder, self.scope
        task = TaskContext(
            tenant=builder.access.caller.tenant,
            subject=str(scope.scope_id),
            participants=tuple(scope.participants),
            scope_id=str(scope.scope_id),
            job=str(builder.job_id),
            deadline=builder.model_end,
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
