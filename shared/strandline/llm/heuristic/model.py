"""The deterministic twin: a language model's tasks by rules alone, with no dice and no network."""

from collections.abc import Sequence

from strandline.llm.heuristic import cohesion, digest, names
from strandline.llm.types import Continues, Entities, PromptEvent, Summary, Topic


class HeuristicModel:
    """The same answer for the same text, always, and at once: good enough to be the default, and
    what every other model falls back to. It knows English; of other languages it tells what their
    letters show. `docs/chains.md` says how good it is."""

    name = "twin/3"

    def continues(
        self, before: Sequence[PromptEvent], message: PromptEvent, after: Sequence[PromptEvent]
    ) -> Continues:
        """Does `message` go on with the topic of `before`, as `after` shows? Yes, if nothing was
        before."""
        return Continues(continues=cohesion.continues_topic(before, message, after))

    def summarise(self, events: Sequence[PromptEvent]) -> Summary:
        """The run's weightiest sentences, each with who said it, and its importance."""
        return Summary(summary=digest.summarise(events), importance=digest.score_importance(events))

    def merge(self, earlier: Summary, later: Summary) -> Summary:
        """The weightiest sentences of both. Two runs weigh more than the weightier of them."""
        higher, lower = sorted((earlier.importance, later.importance), reverse=True)
        text = digest.merge_summaries(earlier.summary, later.summary)
        return Summary(summary=text or later.summary, importance=higher + (1 - higher) * lower / 4)

    def topic(self, events: Sequence[PromptEvent]) -> Topic:
        """A phrase of the run that its words speak of most."""
        return Topic(topic=digest.name_topic(events))

    def entities(self, events: Sequence[PromptEvent]) -> Entities:
        """Who and what is named, the most mentioned first, each once under its longest name."""
        return Entities(entities=names.extract_entities(events))
