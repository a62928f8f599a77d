"""What a chain's extraction says for the graph, held against the chain's events: what they do not
bear out is dropped.

A tool's output and a document may name things and state facts about them. What they say about a
person is a fact only where a person or an agent says it too, and nothing of theirs decides
anything. So text that poses as somebody else changes nothing about that person.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, get_args

from strandline.graph.nodes.edge_type_rules import resolve_relation_type
from strandline.graph.nodes.identity import normalise_name
from strandline.graph.nodes.node_types import NodeType
from strandline.graph.nodes.observations import EdgeObservation, NodeObservation, ObservationSource
from strandline.graph.promotion.drafts import EdgeDraft, NodeDraft, NodeKey
from strandline.graph.promotion.grounding import (
    contains_name,
    has_forms_of_name,
    is_grounded,
    is_speaker,
    list_invented_words,
    list_words,
)
from strandline.graph.promotion.store import ChainToPromote, EvidenceEvent
from strandline.llm.heuristic.statements import capitalize_display_name
from strandline.llm.types import (
    Entity,
    EntityKind,
    ExtractedDecision,
    ExtractedFact,
    ExtractedRelation,
    GraphExtraction,
)
from strandline.log.trust_ranks import least_trusted

_FIRST_HAND = frozenset({"user", "agent", "system"})
"""Origins whose events may state something about a person."""
_PERSONAL = frozenset({"personal", "preference", "relationship"})
_POSES = re.compile(r"\b(?:i|me|my|mine|we|us|our|you|your)\b", re.IGNORECASE)
"""Words in the first or second person: a tool's output that has them may pose as a person."""
_KINDS: frozenset[str] = frozenset(get_args(EntityKind.__value__))


@dataclass(frozen=True)
class ChainObservations:
    """What is written for a chain, and counts of what was dropped or corrected."""

    nodes: Sequence[NodeObservation]
    edges: Sequence[EdgeObservation]
    drops: Mapping[str, int]
    """How many statements were dropped, by reason: `ungrounded`, `without_origin`, `unsure`."""
    corrections: int
    """How many relations became RELATES_TO because their name is unknown."""


def build_chain_observations(
    chain: ChainToPromote,
    evidence_by_number: Mapping[int, EvidenceEvent],
    extraction: GraphExtraction,
    *,
    min_persona_confidence: float,
    heat: float,
) -> ChainObservations:
    """Build the observations of this version of a chain. `evidence_by_number` maps the numbers that
    the extraction cites to events. A fact about a person needs at least the confidence
    `min_persona_confidence`."""
    invented_words = list_invented_words(
        extraction, evidence_by_number.values(), chain.participants
    )
    builder = _ObservationsBuilder(
        chain, evidence_by_number, min_persona_confidence, heat, invented_words
    )
    builder.register_people()
    for entity in extraction.entities:
        builder.add_entity(entity)
    for fact in extraction.facts:
        builder.add_fact(fact)
    for decision in extraction.decisions:
        builder.add_decision(decision)
    for relation in extraction.relations:
        builder.add_relation(relation)
    builder.add_topic()
    return builder.build()


class _ObservationsBuilder:
    """Collects nodes by their identity, and edges by their ends."""

    def __init__(
        self,
        chain: ChainToPromote,
        evidence_by_number: Mapping[int, EvidenceEvent],
        min_persona_confidence: float,
        heat: float,
        invented_words: frozenset[str],
    ) -> None:
        self._chain, self._evidence = chain, evidence_by_number
        self._min_persona_confidence, self._heat = min_persona_confidence, heat
        self._invented_words = invented_words
        self._drafts: dict[NodeKey, NodeDraft] = {}
        self._edges: dict[tuple[NodeKey, NodeKey, str], EdgeDraft] = {}
        self._people: dict[str, str] = {}
        self._entities: dict[str, Entity] = {}
        self._texts = {
            event.event_id: normalise_name(event.text) for event in evidence_by_number.values()
        }
        self._words = list_words(self._texts.values())
        self._drops = Counter[str]()
        self._corrections = 0

    def register_people(self) -> None:
        """Register the participants, and the people that the chain names."""
        for participant in self._chain.participants:
            name = capitalize_display_name(participant)
            kind = "person" if participant.startswith("user:") else "other"
            self._entities[normalise_name(name)] = Entity(name=name, kind=kind)
            self._people[normalise_name(name)] = name
        for entity in self._chain.entities:
            person = parse_chain_entity(entity)
            self._entities.setdefault(normalise_name(person.name), person)
            if person.kind == "person":
                self._people[normalise_name(person.name)] = person.name

    def add_entity(self, entity: Entity) -> None:
        """Add an entity that is named in its events; a person only if events of people or agents
        name it. The kind that the chain gives an entity takes precedence."""
        name = normalise_name(entity.name)
        mentions = [event for event in self._evidence.values() if self._text_has_name(event, name)]
        if entity.kind == "person" and name not in self._entities:  # even if no event has it so
            self._people.setdefault(name, entity.name)
        is_named = mentions or name in self._entities
        if not name or not (is_named or has_forms_of_name(self._words, name)):
            return
        existing = self._entities.setdefault(name, entity)
        if existing.kind == "other":
            self._entities[name] = Entity(name=existing.name, kind=entity.kind)
        if self._entities[name].kind == "person":
            self._people.setdefault(name, existing.name)
        if name in self._people:
            mentions = self.select_events_of_people_and_agents(mentions)
        if mentions:
            self._add_entity_node(name, self._prefer_people_and_agents(mentions))

    def add_fact(self, fact: ExtractedFact) -> None:
        """Add a fact that its events support; a fact about a person only if events of people or
        agents do."""
        events = self.find_events(fact.events)
        is_personal = fact.category in _PERSONAL or self._is_about_people(fact)
        if is_personal:
            events = self.select_events_of_people_and_agents(events)
            if fact.confidence < self._min_persona_confidence:
                self._drops["unsure"] += 1
                return
        events = self._prefer_people_and_agents(events)
        if _POSES.search(fact.content) and not self.select_events_of_people_and_agents(events):
            return
        if self.is_supported_by_events(fact.content, events):
            key = self.add_node(
                "fact", fact.content, events, fact.confidence, {"category": fact.category}
            )
            self.link_to_subjects(key, "fact_entity", fact.about, events)

    def add_decision(self, decision: ExtractedDecision) -> None:
        """Add a decision that people's or agents' events support, its rationale if they do too."""
        events = self.select_events_of_people_and_agents(self.find_events(decision.events))
        if not self.is_supported_by_events(decision.title, events):
            return
        spoken = [event for event in self._evidence.values() if event.origin in _FIRST_HAND]
        rationale = self._keep_if_supported(decision.rationale, spoken)
        patch = {"status": "active"} | ({"rationale": rationale} if rationale else {})
        key = self.add_node("decision", decision.title, events, decision.confidence, patch)
        self.link_to_subjects(key, "decision_entity", decision.about, events)

    def add_relation(self, stated: ExtractedRelation) -> None:
        """Add a relation between two entities that are both named in its events."""
        ends = [normalise_name(stated.source), normalise_name(stated.target)]
        events = self.find_events(stated.events)
        if any(end in self._people for end in ends):
            events = self.select_events_of_people_and_agents(events)
        events = [
            event
            for event in self._prefer_people_and_agents(events)
            if all(self._text_has_name(event, end) or is_speaker(event, end) for end in ends)
        ]
        if not events or ends[0] == ends[1] or any(end not in self._entities for end in ends):
            self._drops["ungrounded"] += 1
            return
        relation = resolve_relation_type(
            stated.relation.upper(), "entity", "entity", has_label=False, field=""
        )
        self._corrections += relation.corrected_from is not None
        keys = [self._add_entity_node(end, events) for end in ends]
        nuance = self._keep_if_supported(stated.nuance, events)
        edge = self._add_edge(keys[0], keys[1], relation.type, events, nuance)
        edge.confidences.append(stated.confidence)

    def add_topic(self) -> None:
        """Add the chain's topic, if it has one, and link everything that was added before to it."""
        topic = (self._chain.topic or "").strip()
        if not normalise_name(topic) or not self._drafts:
            return
        others = dict(self._drafts)
        events = self._prefer_people_and_agents(self._evidence.values())
        key = self.add_node("topic", topic, events, None, {})
        for other, draft in others.items():
            self._add_edge(other, key, f"{other[0]}_topic", list(draft.events.values()), None)

    def add_node(
        self,
        node_type: NodeType,
        name: str,
        events: Sequence[EvidenceEvent],
        confidence: float | None,
        patch: Mapping[str, Any],
    ) -> NodeKey:
        """Add a node, or add further events and fields to it."""
        key = (node_type, normalise_name(name))
        draft = self._drafts.setdefault(key, NodeDraft(node_type, name.strip()))
        draft.patch |= patch
        draft.confidence = confidence if draft.confidence is None else draft.confidence
        draft.events |= {event.event_id: event for event in events}
        return key

    def link_to_subjects(
        self,
        key: NodeKey,
        edge_type: str,
        about: Sequence[str],
        events: Sequence[EvidenceEvent],
    ) -> None:
        """Link a fact or a decision to the entities that it is about."""
        for name in dict.fromkeys(map(normalise_name, about)):
            if name in self._entities:
                self._add_edge(key, self._add_entity_node(name, events), edge_type, events, None)

    def find_events(self, numbers: Iterable[int]) -> list[EvidenceEvent]:
        """The events with these numbers, as far as they exist."""
        events = [self._evidence[number] for number in numbers if number in self._evidence]
        return list({event.event_id: event for event in events}.values())

    def select_events_of_people_and_agents(
        self, events: Sequence[EvidenceEvent]
    ) -> list[EvidenceEvent]:
        """The events of people and agents. Counts a drop if there are none."""
        evidence = [event for event in events if event.origin in _FIRST_HAND]
        self._drops["without_origin"] += bool(events) and not evidence
        return evidence

    def is_supported_by_events(self, text: str, events: Sequence[EvidenceEvent]) -> bool:
        """Whether the events contain enough of a statement's words. Counts a drop if not."""
        if not events or not normalise_name(text):
            return False
        is_supported = is_grounded(text, events, self._invented_words)
        self._drops["ungrounded"] += not is_supported
        return is_supported

    def _keep_if_supported(self, text: str | None, events: Sequence[EvidenceEvent]) -> str | None:
        """What is said beside a statement; None if the events do not support it."""
        return text if text and self.is_supported_by_events(text, events) else None

    def build(self) -> ChainObservations:
        """The result: each node and edge with the events that it cites."""
        numbers = {key: number for number, key in enumerate(self._drafts)}
        nodes = [
            NodeObservation(
                self._make_source(draft.events.values()),
                draft.type,
                draft.name,
                draft.patch,
                draft.confidence,
                self._heat,
            )
            for draft in self._drafts.values()
        ]
        edges = [
            EdgeObservation(
                self._make_source(edge.events.values()),
                numbers[start],
                numbers[end],
                edge_type,
                patch={"nuance": edge.nuance} if edge.nuance else {},
                confidence=fmean(edge.confidences) if edge.confidences else None,
                heat=self._heat,
            )
            for (start, end, edge_type), edge in self._edges.items()
        ]
        return ChainObservations(nodes, edges, self._drops, self._corrections)

    def _add_entity_node(self, name: str, events: Sequence[EvidenceEvent]) -> NodeKey:
        """Add an entity by its normalised name. Tools and documents can name an entity but not set
        its kind: a log must not turn a person into a product."""
        entity = self._entities[name]
        is_told = any(event.origin in _FIRST_HAND for event in events)
        patch = {"category": entity.kind} if is_told and entity.kind != "other" else {}
        return self.add_node("entity", entity.name, events, None, patch)

    def _add_edge(
        self,
        start: NodeKey,
        end: NodeKey,
        edge_type: str,
        events: Sequence[EvidenceEvent],
        nuance: str | None,
    ) -> EdgeDraft:
        edge = self._edges.setdefault((start, end, edge_type), EdgeDraft(nuance))
        edge.events |= {event.event_id: event for event in events}
        edge.nuance = edge.nuance or nuance
        return edge

    def _is_about_people(self, fact: ExtractedFact) -> bool:
        about, content = {normalise_name(name) for name in fact.about}, normalise_name(fact.content)
        return bool(about & self._people.keys()) or any(
            contains_name(content, name) for name in self._people
        )

    def _text_has_name(self, event: EvidenceEvent, name: str) -> bool:
        return contains_name(self._texts[event.event_id], name)

    def _prefer_people_and_agents(self, events: Iterable[EvidenceEvent]) -> list[EvidenceEvent]:
        """The events of people and agents, or all events if there are none. So a tool that repeats
        what people say does not lower its trust; each log file that holds a name would."""
        evidence = list(events)
        return [event for event in evidence if event.origin in _FIRST_HAND] or evidence

    def _make_source(self, events: Collection[EvidenceEvent]) -> ObservationSource:
        return ObservationSource(
            source_id=self._chain.chain_id,
            version=self._chain.version,
            scope_id=self._chain.scope_id,
            participants=self._chain.participants,
            event_ids=[event.event_id for event in events],
            trust=least_trusted(event.origin for event in events),
            observed_at=max(event.recorded_at for event in events),
            valid_from=min(event.said_at for event in events),
        )


def parse_chain_entity(entity: Mapping[str, str]) -> Entity:
    """Convert an entity of a chain's version."""
    kind = entity.get("kind", "other")
    entity_kind = kind if kind in _KINDS else "other"
    return Entity.model_validate({"name": entity["name"][:200], "kind": entity_kind})
