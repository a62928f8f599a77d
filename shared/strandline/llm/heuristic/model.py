"""The heuristic model: the tasks of a language model by rules, deterministic and offline."""

from collections.abc import Sequence

from strandline.llm.heuristic import (
    contradiction,
    digest,
    names,
    overview,
    statements,
    topic_continuation,
)
from strandline.llm.types import (
    Contradiction,
    Entities,
    Entity,
    GraphExtraction,
    PromptEvent,
    RunSummary,
    RunTopic,
    TopicContinuation,
    TopicTreePart,
    TopicTreePartsSummary,
    TopicWalkChoice,
    TopicWalkOption,
)

_MAX_CHOICES = 8


class HeuristicModel:
    """The same text always gets the same answer, without waiting. It is the default model, and the
    fallback of every other model. It knows English; of other languages it uses only what their
    letters show. `docs/chains.md` has its figures."""

    name = "heuristic/4"

    def continues(
        self, before: Sequence[PromptEvent], message: PromptEvent, after: Sequence[PromptEvent]
    ) -> TopicContinuation:
        """Whether `message` continues the topic of `before`, as `after` shows. True if `before` is
        empty."""
        return TopicContinuation(
            continues=topic_continuation.continues_topic(before, message, after)
        )

    def summarise(self, events: Sequence[PromptEvent]) -> RunSummary:
        """The sentence of the run that says most, and the run's importance."""
        return RunSummary(
            summary=digest.choose_summary_sentence(events),
            importance=digest.score_importance(events),
        )

    def merge(self, earlier: RunSummary, later: RunSummary) -> RunSummary:
        """The sentence of both that says most. Two runs are more important than either."""
        higher, lower = sorted((earlier.importance, later.importance), reverse=True)
        text = digest.choose_best_sentence(earlier.summary, later.summary)
        return RunSummary(
            summary=text or later.summary, importance=higher + (1 - higher) * lower / 4
        )

    def topic(self, events: Sequence[PromptEvent]) -> RunTopic:
        """The noun phrase of the run that its words support most, if any."""
        return RunTopic(topic=digest.choose_topic_phrase(events))

    def entities(self, events: Sequence[PromptEvent]) -> Entities:
        """Who and what is named, most mentioned first, each once under its longest name."""
        return Entities(entities=names.extract_entities(events))

    def overview(self, parts: Sequence[TopicTreePart]) -> TopicTreePartsSummary:
        """What the parts are about, those of most events first, and from when to when."""
        return overview.describe_topic_tree_parts(parts)

    def walk(self, question: str, options: Sequence[TopicWalkOption]) -> TopicWalkChoice:
        """The parts with the best scores."""
        del question
        numbers = sorted(range(len(options)), key=lambda n: (-options[n].score, n))
        return TopicWalkChoice(numbers=[n + 1 for n in numbers[:_MAX_CHOICES]])

    def contradicts(self, first: str, second: str) -> Contradiction:
        """Whether a rule says that two statements cannot both hold."""
        reason = contradiction.explain_contradiction(first, second)
        return Contradiction(contradicts=reason is not None)

    def extract(self, events: Sequence[PromptEvent], entities: Sequence[Entity]) -> GraphExtraction:
        """The facts, decisions and relations that a few forms of English sentences state, and the
        entities that are named already."""
        return statements.extract_by_sentence_forms(events, entities)
