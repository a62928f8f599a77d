"""Refine the best hits of a search: add the events that they cite, fit them to a budget, and sort
them by time."""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.recall import store_cited_events
from strandline.recall.relevance import ScoredEvent
from strandline.recall.schemas import Hit, RecallRequest

_MAX_SEEDS = 10
"""The number of best hits whose edges are followed."""


def find_cited_events(
    access: TenantDb, best: Sequence[ScoredEvent], request: RecallRequest
) -> list[UUID]:
    """The events that the best hits cite, directly or through others: those with the greatest
    product of relevance and edge weights, at most `expand`, without the hits themselves."""
    if not request.expand or not best:
        return []
    return store_cited_events.list_cited_events(
        access,
        [(event.candidate.event_id, event.relevance) for event in best[:_MAX_SEEDS]],
        [event.candidate.event_id for event in best],
        request.to_filter(),
        request.expand,
    )


def fit_to_budget(hits: Iterable[Hit], max_tokens: int | None) -> list[Hit]:
    """The hits whose texts fit the budget, in their order; a hit that does not fit is left out. A
    token is four bytes of UTF-8, rounded up."""
    fitting: list[Hit] = []
    tokens_left = max_tokens
    for hit in hits:
        tokens = -(-len((hit.text or "").encode()) // 4)
        if tokens_left is None:
            fitting.append(hit)
        elif tokens <= tokens_left:
            fitting.append(hit)
            tokens_left -= tokens
    return fitting


def sort_by_time(hits: Sequence[Hit], cited_ids: Callable[[UUID], Iterable[UUID]]) -> list[Hit]:
    """Sort the hits so that none comes before one that it cites, and otherwise oldest first by when
    they happened, and by id."""
    hit_by_id = {hit.event_id: hit for hit in hits}
    waits_for = {hit.event_id: _keep_hits(cited_ids(hit.event_id), hit_by_id) for hit in hits}
    waiting: dict[UUID, list[UUID]] = {}
    for event_id, dependencies in waits_for.items():
        for cited_id in dependencies:
            waiting.setdefault(cited_id, []).append(event_id)
    ready = [_time_key(hit) for hit in hits if not waits_for[hit.event_id]]
    heapq.heapify(ready)
    result: list[Hit] = []
    while ready:
        event_id = heapq.heappop(ready)[1]
        result.append(hit_by_id[event_id])
        for later_id in waiting.get(event_id, ()):
            waits_for[later_id].discard(event_id)
            if not waits_for[later_id]:
                heapq.heappush(ready, _time_key(hit_by_id[later_id]))
    return result


def _keep_hits(event_ids: Iterable[UUID], hit_by_id: Mapping[UUID, Hit]) -> set[UUID]:
    return {event_id for event_id in event_ids if event_id in hit_by_id}


def _time_key(hit: Hit) -> tuple[datetime, UUID]:
    return hit.occurred_at, hit.event_id
