"""Which events a context's text takes: it ends where relevance ends, not where the budget does."""

import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strandline.context import event_selection
from strandline.context.event_selection import ContextTextOptions, choose_answer_events
from strandline.recall.features import CandidateEvent, EventScoreFeatures
from strandline.recall.relevance import ScoredEvent
from strandline.recall.topic_breadth import NO_TOPICS

MANY = 30


def make_scored(n: int, relevance: float, **fields: Any) -> ScoredEvent:
    """An event of a speaker of its own, so that none is a near-duplicate."""
    values: dict[str, Any] = {
        "event_id": uuid.UUID(int=n),
        "scope_id": uuid.UUID(int=1),
        "session_id": "s",
        "seq": n,
        "place": n,
        "speaker": f"user:{n}",
        "said_at": datetime(2026, 5, 8, tzinfo=UTC),
        "said_on": date(2026, 5, 8),
        "word_bits": 0,
        "cosine": 0.2,
        "passage_cosines": None,
        "text_bytes": 100,
        "question_bytes": 0,
        "is_statement": False,
        "author": None,
        "says_nothing": False,
        **fields,
    }
    features = EventScoreFeatures(*[0.0] * len(EventScoreFeatures._fields))
    return ScoredEvent(CandidateEvent(**values), features, relevance, relevance)


def choose(
    events: Sequence[ScoredEvent],
    *,
    is_calibrated: bool = True,
    min_relevance: float | None = None,
    is_about_now: bool = False,
    limit: int | None = None,
) -> list[int]:
    """The numbers of the events of a text whose budget holds all."""

    def select(minimum: float | None) -> list[ScoredEvent]:
        return [event for event in events if event.relevance >= (minimum or 0)]

    search = SimpleNamespace(
        select_relevant_events=select,
        topics=NO_TOPICS,
        words=[],
        candidates={event.candidate.event_id: event.candidate for event in events},
        calibration=SimpleNamespace(is_calibrated=is_calibrated),
        is_about_now=is_about_now,
    )
    options = ContextTextOptions(min_relevance, limit, 8000)
    groups, is_weak, _ = choose_answer_events(cast("Any", None), cast("Any", search), options)
    assert not is_weak
    return [event.candidate.event_id.int for event in groups.events]


def fall(relevant: int) -> list[ScoredEvent]:
    """So many relevant events, and then others."""
    return [make_scored(n, 0.5 if n <= relevant else 0.01) for n in range(1, MANY + 1)]


def test_event_selection_ends_with_relevance(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(fall(12)) == list(range(1, 13))
    monkeypatch.setattr(event_selection, "_RELEVANT_ODDS", 0.0)
    assert len(choose(fall(12))) == MANY, "the planted fault: as many as the budget holds"


def test_event_selection_keeps_the_first_events_of_any_relevance() -> None:
    assert choose(fall(1)) == list(range(1, 9))


def test_event_selection_keeps_all_down_to_last_relevant_event() -> None:
    events = fall(9)
    events[19] = make_scored(20, 0.4)
    assert choose(events) == list(range(1, 21))


def test_event_selection_keeps_equally_unlikely_events() -> None:
    events = [make_scored(n, 0.02) for n in range(1, MANY + 1)]
    assert len(choose(events)) == MANY


def test_event_selection_keeps_new_event_with_word_of_question() -> None:
    events = fall(9)
    events[14] = make_scored(15, 0.001, cosine=None, word_bits=1)
    assert choose(events) == list(range(1, 16))
    events[14] = make_scored(15, 0.001, cosine=None)
    assert choose(events) == list(range(1, 10))


def test_event_selection_keeps_all_without_calibration() -> None:
    assert len(choose(fall(12), is_calibrated=False)) == MANY


def test_event_selection_keeps_what_the_caller_asks_for() -> None:
    assert len(choose(fall(12), min_relevance=0)) == MANY
    assert len(choose(fall(12), min_relevance=0.005)) == MANY


def test_event_selection_puts_newest_of_the_best_second(monkeypatch: pytest.MonkeyPatch) -> None:
    events = fall(12)
    events[6] = make_scored(7, 0.5, said_at=datetime(2026, 5, 9, tzinfo=UTC))
    events[10] = make_scored(11, 0.5, said_at=datetime(2026, 5, 10, tzinfo=UTC))
    assert choose(events, is_about_now=True) == [1, 7, *range(2, 7), *range(8, 13)]
    assert choose(events) == list(range(1, 13)), "a question about another time"
    monkeypatch.setattr(event_selection, "_NEWEST_OF", 1)
    assert choose(events, is_about_now=True) == list(range(1, 13)), "the planted fault"


def test_event_selection_takes_newest_of_what_people_said() -> None:
    """An agent repeats what people said, later."""
    events = fall(12)
    events[6] = make_scored(7, 0.5, said_at=datetime(2026, 5, 9, tzinfo=UTC), author="agent")
    assert choose(events, is_about_now=True) == list(range(1, 13))


def test_event_selection_keeps_order_within_limit() -> None:
    events = fall(12)
    events[6] = make_scored(7, 0.5, said_at=datetime(2026, 5, 9, tzinfo=UTC))
    assert choose(events, is_about_now=True, limit=2) == [1, 2]
