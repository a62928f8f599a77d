"""Build the JSON tree of an answer."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from strandline.context.lines import count_bytes
from strandline.log.store import Event
from strandline.topics.answer_lines import AnswerTexts
from strandline.topics.answer_plan import ManifestEvent, ManifestNode, ManifestScope
from strandline.topics.outline_text import RenderedOutline
from strandline.topics.schemas_references import (
    FreshTail,
    ReferenceEvent,
    ReferenceRoot,
    ReferenceScope,
    ReferenceTopic,
)
from strandline.topics.store_references_query import NodeTextAndCounts

_MAX_CITATIONS = 10


def build_json_tree(
    outline: RenderedOutline,
    nodes: Mapping[UUID, NodeTextAndCounts],
    events: Mapping[UUID, Event],
    texts: AnswerTexts,
) -> ReferenceRoot:
    """Build the tree that has the same lines as the outline."""
    builder = _JsonTreeBuilder(outline, nodes, events, texts)
    return ReferenceRoot(kind="root", scopes=builder.build_scopes())


class _JsonTreeBuilder:
    def __init__(
        self,
        outline: RenderedOutline,
        nodes: Mapping[UUID, NodeTextAndCounts],
        events: Mapping[UUID, Event],
        texts: AnswerTexts,
    ) -> None:
        self._outline, self._nodes, self._events, self._texts = outline, nodes, events, texts
        self._plan_by_event = {event.event_id: event for event in outline.plan.events}

    def build_scopes(self) -> list[ReferenceScope]:
        scopes = (self._build_scope(scope) for scope in self._outline.plan.scopes)
        return [scope for scope in scopes if scope.topics or scope.fresh_tail.events]

    def _build_scope(self, scope: ManifestScope) -> ReferenceScope:
        roots = [n for n in self._outline.nodes_below[None] if n.scope_id == scope.scope_id]
        tail = [e for e in self._outline.events_below[None] if e.scope_id == scope.scope_id]
        return ReferenceScope(
            kind="scope",
            scope_id=scope.scope_id,
            participants=list(self._texts.participants[scope.scope_id]),
            cutoff=scope.cutoff,
            mark=scope.mark,
            topics=[self._build_topic(root) for root in roots],
            fresh_tail=FreshTail(events=self._build_events(tail)),
        )

    def _build_topic(self, node: ManifestNode) -> ReferenceTopic:
        content = self._nodes[node.node_id]
        below = sorted(
            self._outline.nodes_below[node.slot],
            key=lambda child: self._outline.make_time_sort_key(child.slot),
        )
        events = self._build_events(self._outline.events_below[node.slot])
        topics = [self._build_topic(child) for child in below]
        event_ids = [event.event_id for event in events]
        event_ids += [event_id for topic in topics for event_id in topic.citations]
        return ReferenceTopic(
            kind="leaf" if node.is_leaf else "inner",
            slot=node.slot,
            node_id=node.node_id,
            chain_version=content.chain_version,
            topic=content.topic,
            summary=self._outline.get_shown_summary(node) if node.has_summary else None,
            started_at=content.started_at,
            last_event_at=content.last_event_at,
            event_count=content.event_count,
            leaf_count=content.leaf_count,
            trust=content.trust,
            relevance=node.relevance,
            similarity=node.similarity,
            models=content.models,
            citations=(event_ids or [i for i in [node.first_event] if i])[:_MAX_CITATIONS],
            topics=topics,
            events=events,
        )

    def _build_events(self, plan_events: Sequence[ManifestEvent]) -> list[ReferenceEvent]:
        in_order = self._outline.sort_events_by_time(event.event_id for event in plan_events)
        return [self._build_event(event_id) for event_id in in_order]

    def _build_event(self, event_id: UUID) -> ReferenceEvent:
        event, line = self._events[event_id], self._outline.event_lines[event_id]
        is_whole = not line.is_shortened and (
            event.content is not None and count_bytes(event.content) <= 2 * count_bytes(line.text)
        )
        return ReferenceEvent(
            n=self._outline.numbers[event_id],
            event_id=event_id,
            source_event_key=event.source_event_key,
            speaker=event.speaker,
            occurred_at=event.occurred_at or event.recorded_at,
            text=event.content if is_whole else line.shown_text if event.content else None,
            name=event.file_name,
            relevance=self._plan_by_event[event_id].relevance,
        )
