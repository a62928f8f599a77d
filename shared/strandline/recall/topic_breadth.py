"""Questions that need a list, an order or a summary: the events of the topics of the best hits, and
an order in which each topic has its say."""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.recall.relevance import RankedEvents, ScoredEvent
from strandline.recall.store_topic_events import TopicEventRow, read_events_of_seed_topics

_SEEDS, _MAX_TOPICS = 20, 10
"""The number of the best events whose topics are read, and the maximum number of topics."""
TOPIC = "topic"
"""The reason given for an event that was not found but belongs to the topic of one that was."""
_REPETITION = 0.25
"""How much less an event counts for each better one of its topic, and for each of its session, in
deviations of a cosine."""
_MAX_SPREAD = 200
"""The number of events that are ordered so: an answer has no more."""

type _Group = tuple[UUID | str, tuple[UUID, str]]


@dataclass(frozen=True)
class TopicEvents:
    """The topics that the best events belong to."""

    topic_by_event_id: Mapping[UUID, str]
    rows: Sequence[TopicEventRow]
    """Those of their events that were not found."""

    @cached_property
    def _added_ids(self) -> frozenset[UUID]:
        return frozenset(row.event_id for row in self.rows)

    def adds(self, event_id: UUID) -> bool:
        """Whether an event was not found, and stands in the answer for its topic."""
        return event_id in self._added_ids

    def spread(self, events: Sequence[ScoredEvent]) -> list[ScoredEvent]:
        """The events, best first, where an event counts less for each better one of its topic, and
        for each of its session: what was said often leaves room for what was said elsewhere.
        Without topics the order stays."""
        if not self.topic_by_event_id:
            return list(events)
        # in their order, which weights may have changed, and as far apart as their scores are
        scores = sorted((event.score for event in events), reverse=True)
        groups: dict[_Group, deque[tuple[float, ScoredEvent]]] = defaultdict(deque)
        for score, event in zip(scores, events, strict=True):
            groups[self._get_group(event)].append((score, event))
        count_by_part: Counter[object] = Counter()
        spread: list[ScoredEvent] = []
        while groups and len(spread) < _MAX_SPREAD:
            group = max(groups, key=lambda one: _score_next(groups[one], one, count_by_part))
            spread.append(groups[group].popleft()[1])
            count_by_part.update(group)
            if not groups[group]:
                del groups[group]
        spread_ids = {event.candidate.event_id for event in spread}
        return spread + [event for event in events if event.candidate.event_id not in spread_ids]

    def _get_group(self, event: ScoredEvent) -> _Group:
        """What an event shares with others: its topic, and its session."""
        candidate = event.candidate
        session = (candidate.scope_id, candidate.session_id)
        return self.topic_by_event_id.get(candidate.event_id, candidate.event_id), session


def _score_next(
    group: Sequence[tuple[float, ScoredEvent]], key: _Group, count_by_part: Counter[object]
) -> float:
    """The score of the best event of a group, less for each event of its topic and session that
    comes before it."""
    return group[0][0] - _REPETITION * sum(count_by_part[part] for part in key)


NO_TOPICS = TopicEvents({}, ())
"""Of a question about one thing."""


def find_topic_events(
    access: TenantDb,
    ranking: RankedEvents,
    exclude: Collection[UUID],
    question_vector: Sequence[float] | None,
    space: str,
    filters: Mapping[str, Any],
) -> TopicEvents:
    """The visible events of the topics of the best events, in one statement, as far as they match
    the filters and are not excluded."""
    seeds = [event.candidate for event in ranking.events if not event.candidate.says_nothing]
    rows = read_events_of_seed_topics(
        access,
        [seed.event_id for seed in seeds[:_SEEDS]],
        question_vector=question_vector,
        space=space,
        filters=filters,
        max_topics=_MAX_TOPICS,
    )
    ranked_ids = {event.candidate.event_id for event in ranking.events}
    return TopicEvents(
        {row.event_id: row.topic for row in rows},
        [row for row in rows if row.event_id not in ranked_ids and row.event_id not in exclude],
    )
