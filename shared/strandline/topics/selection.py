"""Select the candidates for an answer to a references query."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from strandline.db.database import SnapshotRead, TenantDb
from strandline.embeddings.embedder import Embedder
from strandline.recall.query_vector import embed_query
from strandline.recall.relevance import ScoredEvent
from strandline.recall.search import SearchResult, search_with_vector
from strandline.topics import store_references_query, store_tail
from strandline.topics.answer_plan import ManifestEvent, ManifestNode, ManifestScope, WalkMethod
from strandline.topics.schemas_references import ReferencesRequest
from strandline.topics.store_references_query import (
    PinnedScope,
    PublishedSnapshot,
    QueryVector,
    TreeSlotWithHits,
)
from strandline.topics.walk import TreesWithHits, rank_with_topic_weight, walk_trees_by_beam

MAX_EVENTS = 100
MAX_SCOPES = 32
"""The maximum number of trees of an outline, and of those offered to a language model."""
_BYTES_PER_LINE = 40
"""The minimum bytes of a line of an outline, which limits how many topics are read."""
_MAX_USED_EVENTS = 10
"""The number of the best events of an answer that are recorded as used."""
BEAM = WalkMethod(by="beam")


@dataclass
class AnswerSelection:
    """The nodes and events that may be shown, and the snapshot behind them."""

    snapshot: PublishedSnapshot | None
    read: SnapshotRead[PinnedScope]
    scopes: Mapping[UUID, PinnedScope]
    nodes: Mapping[UUID, ManifestNode]
    """By slot. Without a question, each comes after its parent."""
    events: Sequence[ManifestEvent]
    search: SearchResult | None = None
    walk: WalkMethod = BEAM
    degraded: list[str] = field(default_factory=list[str])
    cut_by_width: int = 0
    is_late: bool = False

    @property
    def manifest_scopes(self) -> list[ManifestScope]:
        """The scopes, as part of a plan."""
        return [
            ManifestScope(scope_id=scope_id, cutoff=row.cutoff or 0, mark=row.last_seq or 0)
            for scope_id, row in sorted(self.scopes.items())
        ]

    def list_used_event_ids(self, events: Sequence[ManifestEvent]) -> list[UUID]:
        """The best of the shown events that contain words of the question or have a vector to
        compare it with."""
        if self.search is None:
            return []
        candidates = self.search.candidates
        return [
            event.event_id
            for event in events[:_MAX_USED_EVENTS]
            if (row := candidates.get(event.event_id)) and (row.word_bits or row.cosine is not None)
        ]


@dataclass(frozen=True)
class ReferencesQuestion:
    """A question, and the settings for answering it."""

    access: TenantDb
    embedder: Embedder
    request: ReferencesRequest
    now: datetime
    """The time to which "yesterday" in the question refers."""
    vector_timeout: float
    min_known: float | None
    """The deployment's threshold for `known`."""
    started: float = field(default_factory=time.monotonic)

    @property
    def is_late(self) -> bool:
        """Whether its time limit is reached."""
        return time.monotonic() - self.started >= self.request.time_limit

    @property
    def max_events(self) -> int:
        """The maximum number of events of the answer."""
        return self.request.limit or MAX_EVENTS


@dataclass(frozen=True)
class HitsPlacedInTrees:
    """The search hits of a question, and their places in the pinned snapshot."""

    search: SearchResult
    query: QueryVector
    event_ids: Sequence[UUID]
    """Best first."""
    relevance: Mapping[UUID, float]
    snapshot: PublishedSnapshot | None
    read: SnapshotRead[PinnedScope]
    scopes: Mapping[UUID, PinnedScope]
    forest: TreesWithHits

    @property
    def tail_event_ids(self) -> list[UUID]:
        """The events that no leaf holds."""
        events_in_leaves = {
            event for node in self.forest.nodes.values() for event in node.event_ids
        }
        return [event for event in self.event_ids if event not in events_in_leaves]


def find_hits_and_their_places(
    question: ReferencesQuestion, *, with_roots: bool
) -> HitsPlacedInTrees:
    """Search, pin the active snapshot, and look up the places of the hits in it, all in one
    database snapshot. `with_roots` also looks up the trees closest to the question."""
    request, access = question.request, question.access
    assert request.query is not None
    timeout = min(question.vector_timeout, request.time_limit)
    query_vector = embed_query(question.embedder, request.query, timeout)
    query = QueryVector(query_vector[0], question.embedder.space)
    with access.snapshot_transaction():
        search = search_with_vector(
            access,
            question.embedder,
            request.query,
            query_vector,
            now=question.now,
            filters={},
            min_known=question.min_known,
        )
        best = _select_non_statements(search, request.min_relevance)[: question.max_events]
        hit_scopes = list(dict.fromkeys(event.candidate.scope_id for event in best))
        snapshot, read = store_references_query.read_active_snapshot(
            access, query, hit_scopes, MAX_EVENTS
        )
        rows = list(read.rows)
        if with_roots:
            rows += store_references_query.read_active_snapshot(access, query, None, MAX_SCOPES)[
                1
            ].rows
        relevance = {event.candidate.event_id: event.relevance for event in best}
        nodes = (
            store_references_query.find_leaves_and_ancestors_of_events(
                access, snapshot.version, query, list(relevance)
            )
            if snapshot and relevance
            else ()
        )
    scopes = {row.scope_id: row for row in rows if row.scope_id is not None}
    forest = TreesWithHits({node.slot: node for node in nodes}, relevance)
    event_ids = rank_with_topic_weight(relevance, _get_group_by_event(search, forest))
    return HitsPlacedInTrees(search, query, event_ids, relevance, snapshot, read, scopes, forest)


def _get_group_by_event(
    search: SearchResult, forest: TreesWithHits
) -> Mapping[UUID, UUID | tuple[UUID, str]]:
    """The group of each event: its leaf, or, without a leaf, its session."""
    leaves = {event: node.slot for node in forest.nodes.values() for event in node.event_ids}
    return {
        event: leaves.get(event) or (candidate.scope_id, candidate.session_id)
        for event in forest.relevance_by_event
        for candidate in [search.candidates[event]]
    }


def _select_non_statements(search: SearchResult, min_relevance: float | None) -> list[ScoredEvent]:
    """The events to answer with, best first, without statements, which are under no leaf and not in
    the fresh tail."""
    candidates = search.candidates
    return [
        event
        for event in search.select_relevant_events(min_relevance)
        if not candidates[event.candidate.event_id].is_statement
    ]


def select_events_by_beam(question: ReferencesQuestion, hits: HitsPlacedInTrees) -> AnswerSelection:
    """Select the events that a deterministic beam search reaches from the roots, and those of the
    fresh tail."""
    request = question.request
    walk = walk_trees_by_beam(
        hits.forest,
        depth=request.depth,
        width=request.width,
        is_late=lambda: question.is_late,
    )
    selection = assemble_selection(hits, walk.slot_by_event, hits.event_ids)
    selection.cut_by_width, selection.is_late = walk.cut_by_width, walk.is_late
    return selection


def assemble_selection(
    hits: HitsPlacedInTrees,
    slot_by_event: Mapping[UUID, UUID],
    event_ids: Sequence[UUID],
    scope_by_event: Mapping[UUID, UUID] | None = None,
) -> AnswerSelection:
    """Assemble the selection of these events, each under its slot or in the fresh tail.
    `scope_by_event` gives the scopes of the events that no search found."""
    tail = set(hits.tail_event_ids)
    scopes = {e: candidate.scope_id for e, candidate in hits.search.candidates.items()}
    scopes |= scope_by_event or {}
    events = [
        ManifestEvent(
            event_id=event_id,
            scope_id=scopes[event_id],
            slot=slot_by_event.get(event_id),
            relevance=_round(hits.relevance.get(event_id)),
            text_bytes=None,
        )
        for event_id in event_ids
        if event_id in slot_by_event or event_id in tail
    ]
    slots = {
        slot: None for e in events if e.slot for slot in reversed(hits.forest.path_to_root(e.slot))
    }
    return AnswerSelection(
        hits.snapshot,
        hits.read,
        hits.scopes,
        {slot: to_manifest_node(hits.forest.nodes[slot], hits.forest.relevance) for slot in slots},
        events,
        hits.search,
        degraded=list(hits.search.degraded),
    )


def to_manifest_node(node: TreeSlotWithHits, relevance: Mapping[UUID, float]) -> ManifestNode:
    """A slot, as part of a plan, without its summary."""
    return ManifestNode(
        scope_id=node.scope_id,
        slot=node.slot,
        parent=node.parent_slot,
        node_id=node.node_id,
        is_leaf=node.is_leaf,
        relevance=_round(relevance.get(node.slot)),
        similarity=_round(node.similarity),
        has_summary=False,
        first_event=None,
    )


def _round(number: float | None) -> float | None:
    return None if number is None else round(number, 4)


def select_outline(question: ReferencesQuestion) -> AnswerSelection:
    """Select for an outline without a question: the visible trees from their roots down, newest
    topics first, and the newest events of the fresh tail."""
    access = question.access
    query = QueryVector(None, question.embedder.space)
    with access.snapshot_transaction():
        snapshot, read = store_references_query.read_active_snapshot(
            access, query, None, MAX_SCOPES
        )
        scopes = {row.scope_id: row for row in read.rows if row.scope_id is not None}
        marks = [(s, row.cutoff or 0, row.last_seq or 0) for s, row in scopes.items()]
        version = snapshot.version if snapshot else 0
        tail = store_tail.list_fresh_tail(access, version, marks, question.max_events)
        nodes, is_late = _walk_breadth_first(question, version, query, scopes)
    return AnswerSelection(
        snapshot,
        read,
        scopes,
        {node.slot: to_manifest_node(node, {}) for node in nodes},
        [
            ManifestEvent(
                event_id=event.event_id,
                scope_id=event.scope_id,
                slot=None,
                relevance=None,
                text_bytes=None,
            )
            for event in tail
        ],
        is_late=is_late,
    )


def _walk_breadth_first(
    question: ReferencesQuestion,
    version: int,
    query: QueryVector,
    scopes: Mapping[UUID, PinnedScope],
) -> tuple[list[TreeSlotWithHits], bool]:
    """The slots of the trees, level by level, as many as an outline could hold, and whether the
    time limit was reached."""
    request = question.request
    max_nodes = request.budget * 4 // _BYTES_PER_LINE
    nodes = make_root_slots(scopes)
    level: Sequence[TreeSlotWithHits] = nodes
    for _ in range(request.depth - 1):
        parents = [(n.scope_id, n.slot) for n in level[: request.width] if not n.is_leaf]
        if not parents or len(nodes) >= max_nodes:
            break
        if question.is_late:
            return nodes, True
        room = max_nodes - len(nodes)
        level = store_references_query.list_child_slots(
            question.access, version, query, parents, room
        )
        nodes += level
    return nodes, False


def make_root_slots(scopes: Mapping[UUID, PinnedScope]) -> list[TreeSlotWithHits]:
    """The roots of the scopes' trees."""
    return [
        TreeSlotWithHits(
            scope_id=scope_id,
            slot=row.root_slot,
            parent_slot=None,
            node_id=row.root_id,
            is_leaf=False,
            last_event_at=row.last_recorded_at,
            similarity=row.similarity,
            event_ids=[],
        )
        for scope_id, row in scopes.items()
        if row.root_slot and row.root_id and row.last_recorded_at
    ]
