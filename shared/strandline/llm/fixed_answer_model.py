"""The model of last resort: fixed answers that no text can make fail.

It answers where the heuristic model itself failed, so that one event never stops its scope.
"""

from collections.abc import Sequence

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

_MAX_CHARACTERS = 240


class FixedAnswerModel:
    """Answers with the least: the topic continues, and a run's summary is its first words."""

    name = "plain/2"

    def continues(
        self, before: Sequence[PromptEvent], message: PromptEvent, after: Sequence[PromptEvent]
    ) -> TopicContinuation:
        """Always true: a run that grows too long is closed by its length."""
        del before, message, after
        return TopicContinuation(continues=True)

    def summarise(self, events: Sequence[PromptEvent]) -> RunSummary:
        """The beginning of the first text that is not empty; importance 0, as nothing judged it."""
        text_start = next(
            (text for event in events if (text := event.text[:_MAX_CHARACTERS].strip())), ""
        )
        return RunSummary(summary=text_start or f"{len(events)} events.", importance=0.0)

    def merge(self, earlier: RunSummary, later: RunSummary) -> RunSummary:
        """The summary of higher importance."""
        return max(earlier, later, key=lambda summary: summary.importance)

    def topic(self, events: Sequence[PromptEvent]) -> RunTopic:
        """Always null."""
        del events
        return RunTopic(topic=None)

    def entities(self, events: Sequence[PromptEvent]) -> Entities:
        """Always empty."""
        del events
        return Entities(entities=[])

    def overview(self, parts: Sequence[TopicTreePart]) -> TopicTreePartsSummary:
        """How many events there are, and from when to when."""
        count = sum(part.event_count for part in parts)
        start = min(part.started_at for part in parts).date()
        end = max(part.last_event_at for part in parts).date()
        return TopicTreePartsSummary(summary=f"{count} events, {start} to {end}.", topic=None)

    def walk(self, question: str, options: Sequence[TopicWalkOption]) -> TopicWalkChoice:
        """Always the first, if there is one."""
        del question
        return TopicWalkChoice(numbers=[1] if options else [])

    def contradicts(self, first: str, second: str) -> Contradiction:
        """Always false."""
        del first, second
        return Contradiction(contradicts=False)

    def extract(self, events: Sequence[PromptEvent], entities: Sequence[Entity]) -> GraphExtraction:
        """The entities that are named already."""
        del events
        return GraphExtraction(entities=list(entities)[:60], facts=[], decisions=[], relations=[])
