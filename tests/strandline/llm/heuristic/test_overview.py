"""The heuristic model's summary of parts of a topic tree."""

from datetime import UTC, datetime, timedelta

import pytest

from strandline.llm.fixed_answer_model import FixedAnswerModel
from strandline.llm.heuristic.model import HeuristicModel
from strandline.llm.heuristic.overview import OVERVIEW_CHARACTERS
from strandline.llm.types import TopicTreePart

AT = datetime(2026, 5, 8, 9, 30, tzinfo=UTC)


def part(
    topic: str | None, events: int = 3, summary: str | None = "What was said.", days: int = 0
) -> TopicTreePart:
    return TopicTreePart(topic, summary, AT, AT + timedelta(days=days), events)


def test_overview_names_weightiest_topics_and_dates() -> None:
    parts = [part("the buoy", 2), part("the launch", 9, days=4), part("The buoy", 3)]
    overview = HeuristicModel().overview(parts)
    assert overview.summary == "the launch; the buoy (2026-05-08 to 2026-05-12)"
    assert overview.topic == "the launch"


def test_overview_uses_summary_without_topic() -> None:
    overview = HeuristicModel().overview([part(None, 5), part("the buoy", 2)])
    assert overview.summary == "What was said; the buoy (2026-05-08)"
    assert overview.topic == "the buoy"


def test_overview_counts_rejected_chains() -> None:
    overview = HeuristicModel().overview([part(None, 2, None), part(None, 4, None)])
    assert (overview.summary, overview.topic) == ("6 events without a topic (2026-05-08)", None)


@pytest.mark.parametrize("size", [1, 2, 7, 16])
@pytest.mark.parametrize("text", ["x" * 4000, "word " * 800, "\n\n a \u202e b", "🌊" * 300, " "])
def test_overview_is_short_and_never_empty(size: int, text: str) -> None:
    """Whatever the parts say, and however much."""
    parts = [part(None if n % 2 else f"{n}{text}"[:200], n + 1, text, n) for n in range(size)]
    for model in (HeuristicModel(), FixedAnswerModel()):
        overview = model.overview(parts)
        assert 0 < len(overview.summary) <= OVERVIEW_CHARACTERS
        assert "\n" not in overview.summary
    if size > 7:
        assert "more (" in HeuristicModel().overview(parts).summary
