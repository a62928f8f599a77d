"""Walk the topic trees with a language model, under deterministic control.

The model sees numbered topics and chooses numbers. Its choice is looked up among the topics that it
was shown, so it cannot name anything else. Topics that it did not choose come after those it chose:
a wrong or malicious choice affects only the order of the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from strandline.llm.tasks import LlmTasks
from strandline.llm.types import TaskContext, TopicTreePart, TopicWalkOption
from strandline.topics import store_references_query, store_tail
from strandline.topics.answer_plan import WalkMethod
from strandline.topics.selection import (
    AnswerSelection,
    HitsPlacedInTrees,
    ReferencesQuestion,
    assemble_selection,
    make_root_slots,
    select_events_by_beam,
)
from strandline.topics.store_references_query import NodeTextAndCounts, TreeSlotWithHits
from strandline.topics.walk import TreesWithHits, walk_trees_by_beam

_MAX_ROUNDS = 3
_MAX_OPTIONS = 40
"""The maximum number of topics offered to the model at once."""
_MAX_LEAF_EVENTS = 10
"""The maximum number of events of a chosen leaf in which no search found one."""


@dataclass
class _ModelChoices:
    """The choices made so far."""

    slots: list[UUID] = field(default_factory=list[UUID])
    """The chosen leaves, and the slots below which the model did not go."""
    leaf_versions: dict[UUID, int] = field(default_factory=dict[UUID, int])
    nodes: dict[UUID, TreeSlotWithHits] = field(default_factory=dict[UUID, TreeSlotWithHits])
    """Every slot that was offered."""
    rounds: int = 0
    prompt: str = ""
    failed: bool = False
    is_late: bool = False


@dataclass(frozen=True)
class ModelWalk:
    """A walk by the configured model."""

    llm: LlmTasks
    task: TaskContext

    def __call__(self, question: ReferencesQuestion, hits: HitsPlacedInTrees) -> AnswerSelection:
        """Select for a question, with the model's choices first. Falls back to the beam search if
        the model gives no usable answer; `degraded` then says so."""
        beam = select_events_by_beam(question, hits)
        if hits.snapshot is None:
            return beam
        choices = self._let_model_choose_slots(question, hits, hits.snapshot.version)
        if choices.failed:
            beam.degraded.append("model_failed")
        beam.is_late = beam.is_late or choices.is_late
        if not choices.rounds:
            return beam
        selection = _merge_choices_with_hits(question, hits, choices)
        selection.degraded, selection.cut_by_width = beam.degraded, beam.cut_by_width
        selection.is_late = beam.is_late
        selection.walk = WalkMethod(
            by="model",
            model=self.llm.model_name,
            prompt=choices.prompt,
            rounds=choices.rounds,
        )
        return selection

    def _let_model_choose_slots(
        self, question: ReferencesQuestion, hits: HitsPlacedInTrees, version: int
    ) -> _ModelChoices:
        choices = _ModelChoices()
        level: Sequence[TreeSlotWithHits] = make_root_slots(hits.scopes)
        if len(level) == 1:
            level = self._list_children(question, hits, version, level)
        for _ in range(_MAX_ROUNDS):
            level = self._select_slots_to_offer(
                hits, [n for n in level if n.slot not in choices.nodes]
            )
            if not level or question.is_late:
                choices.is_late = question.is_late and bool(level)
                break
            contents = store_references_query.read_visible_nodes(
                question.access, [n.node_id for n in level]
            )
            level = [node for node in level if _has_text_to_judge(contents.get(node.node_id))]
            choice = self._ask_model_to_choose(question, hits, level, contents, choices)
            if choice is None:
                break
            for node in choice:
                version_of_chain = contents[node.node_id].chain_version
                if node.is_leaf and version_of_chain is not None:
                    choices.leaf_versions[node.slot] = version_of_chain
            inner = [node for node in choice if not node.is_leaf]
            choices.slots += [node.slot for node in choice]
            level = self._list_children(question, hits, version, inner) if inner else ()
        return choices

    def _ask_model_to_choose(
        self,
        question: ReferencesQuestion,
        hits: HitsPlacedInTrees,
        level: Sequence[TreeSlotWithHits],
        contents: Mapping[UUID, NodeTextAndCounts],
        choices: _ModelChoices,
    ) -> list[TreeSlotWithHits] | None:
        """Ask the model for a choice. Returns the chosen slots, or None if its answer could not be
        used."""
        choices.nodes |= {node.slot: node for node in level}
        options = [_to_walk_option(contents[n.node_id], _score_node(hits, n)) for n in level]
        result = self.llm.walk(self.task, question.request.query or "", options)
        if result.fallback_reason is not None:
            choices.failed = True
            return None
        choices.rounds += 1
        choices.prompt = result.prompt
        return [level[number - 1] for number in dict.fromkeys(result.value.numbers)]

    def _list_children(
        self,
        question: ReferencesQuestion,
        hits: HitsPlacedInTrees,
        version: int,
        parents: Sequence[TreeSlotWithHits],
    ) -> Sequence[TreeSlotWithHits]:
        slots = [(node.scope_id, node.slot) for node in parents]
        limit = _MAX_OPTIONS * len(slots)
        return store_references_query.list_child_slots(
            question.access, version, hits.query, slots, limit
        )

    def _select_slots_to_offer(
        self, hits: HitsPlacedInTrees, level: Sequence[TreeSlotWithHits]
    ) -> list[TreeSlotWithHits]:
        """The slots with the highest scores, at most _MAX_OPTIONS."""
        return sorted(level, key=lambda node: (-_score_node(hits, node), node.slot))[:_MAX_OPTIONS]


def _has_text_to_judge(content: NodeTextAndCounts | None) -> bool:
    """Whether the content has a text to judge: the leaf of a rejected chain has none."""
    return content is not None and bool(content.topic or content.summary)


def _score_node(hits: HitsPlacedInTrees, node: TreeSlotWithHits) -> float:
    if node.slot in hits.forest.nodes:
        return hits.forest.score_slot(node.slot)
    return 0.1 * (node.similarity or 0.0)


def _to_walk_option(content: NodeTextAndCounts, score: float) -> TopicWalkOption:
    part = TopicTreePart(
        content.topic,
        content.summary,
        content.started_at,
        content.last_event_at,
        content.event_count,
    )
    return TopicWalkOption(part, tuple(content.participants), score)


def _merge_choices_with_hits(
    question: ReferencesQuestion, hits: HitsPlacedInTrees, choices: _ModelChoices
) -> AnswerSelection:
    """Merge the hits below chosen slots and in the fresh tail, then the first events of chosen
    leaves without a hit, then the remaining hits."""
    walk = walk_trees_by_beam(
        hits.forest, depth=question.request.depth, width=question.request.width
    )
    chosen_slots, tail = set(choices.slots), set(hits.tail_event_ids)

    def is_chosen(event_id: UUID) -> bool:
        slot = walk.slot_by_event.get(event_id)
        return event_id in tail or (
            slot is not None and bool(chosen_slots.intersection(hits.forest.path_to_root(slot)))
        )

    slots_with_hits = {node.slot for node in hits.forest.nodes.values() if node.event_ids}
    bare = {s: version for s, version in choices.leaf_versions.items() if s not in slots_with_hits}
    extra = (
        store_tail.list_first_events_of_leaves(question.access, bare, _MAX_LEAF_EVENTS)
        if bare
        else ()
    )
    best = [event_id for event_id in hits.event_ids if is_chosen(event_id)]
    rest = [event_id for event_id in hits.event_ids if not is_chosen(event_id)]
    nodes = {
        **choices.nodes,
        **{n.slot: n for n in make_root_slots(hits.scopes)},
        **hits.forest.nodes,
    }
    all_hits = HitsPlacedInTrees(
        hits.search,
        hits.query,
        hits.event_ids,
        hits.relevance,
        hits.snapshot,
        hits.read,
        hits.scopes,
        TreesWithHits(nodes, hits.relevance),
    )
    leaf_events = [event.event_id for event in extra if event.event_id not in hits.relevance]
    return assemble_selection(
        all_hits,
        {**walk.slot_by_event, **{event.event_id: event.slot for event in extra}},
        [*best, *leaf_events, *rest][: question.max_events],
        scope_by_event={event.event_id: event.scope_id for event in extra},
    )
