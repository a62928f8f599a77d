"""The model of last resort: answers without a rule that a text could break.

It answers where the heuristic model itself failed, so that one event never stops its scope.
"""

from collections.abc import Sequence

from strandline.llm.types import Continues, Entities, PromptEvent, Summary, Topic

UNTITLED = "Untitled"
_MAX_CHARACTERS = 240


class PlainModel:
    """Says as little as can be said: the topic goes on, and a run is its first words."""

    name = "plain/1"

    def continues(
        self, before: Sequence[PromptEvent], message: PromptEvent, after: Sequence[PromptEvent]
    ) -> Continues:
        """Always: a run too long is closed by its length."""
        del before, message, after
        return Continues(continues=True)

    def summarise(self, events: Sequence[PromptEvent]) -> Summary:
        """The first text's beginning; without importance, which nobody judged."""
        text_start = next(
            (text for event in events if (text := event.text[:_MAX_CHARACTERS].strip())), ""
        )
        return Summary(summary=text_start or f"{len(events)} events.", importance=0.0)

    def merge(self, earlier: Summary, later: Summary) -> Summary:
        """The weightier of the two."""
        return max(earlier, later, key=lambda summary: summary.importance)

    def topic(self, events: Sequence[PromptEvent]) -> Topic:
        """None that could be named."""
        del events
        return Topic(topic=UNTITLED)

    def entities(self, events: Sequence[PromptEvent]) -> Entities:
        """Nobody."""
        del events
        return Entities(entities=[])
