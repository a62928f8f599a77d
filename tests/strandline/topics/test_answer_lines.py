"""The lines of an outline say nothing twice, and what is said beside what answers comes sooner."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from strandline.context.lines import ChainLineSource, EventLineSource, make_event_line
from strandline.llm.heuristic.model import HeuristicModel
from strandline.llm.types import TopicTreePart
from strandline.topics.answer_lines import (
    AnswerLines,
    AnswerTexts,
    count_event_line_bytes,
    format_event_prefix,
)
from strandline.topics.walk import rank_with_topic_weight

AT = datetime(2026, 8, 3, 9, tzinfo=UTC)
SLOT, EVENT = UUID(int=1), UUID(int=2)


def topic(summary: str, name: str | None = "pressure channel", days: int = 4) -> ChainLineSource:
    return ChainLineSource(SLOT, AT, AT + timedelta(days=days), name, summary, "tool", [], ())


def line_of(
    source: ChainLineSource, *, keeps_summaries: bool = False, has_summary: bool = True
) -> str:
    lines = AnswerLines(AnswerTexts({SLOT: source}, {}, {}, keeps_summaries), 2000)
    line = lines.get_topic_line(SLOT, has_summary=has_summary)
    return f"{line.start} {line.shown_text}".strip()


def test_answer_line_of_overview_omits_heading() -> None:
    parts = [
        TopicTreePart(name, None, AT, AT + timedelta(days=4), 9 - n)
        for n, name in enumerate(("pressure channel", "outer bank"))
    ]
    overview = HeuristicModel().overview(parts)
    source = topic(overview.summary, overview.topic)
    assert line_of(source) == (
        "- Mon 3 August 2026 to Fri 7 August 2026 (tool): pressure channel; outer bank"
    )
    assert line_of(source, has_summary=False) == (
        "- Mon 3 August 2026 to Fri 7 August 2026, pressure channel (tool):"
    )
    assert line_of(source, keeps_summaries=True).endswith(overview.summary)


@pytest.mark.parametrize(
    ("summary", "text"),
    [
        (
            "pressure channels; outer bank",
            ", pressure channel (tool): pressure channels; outer bank",
        ),
        ("It went down (2026-08-03)", ", pressure channel (tool): It went down (2026-08-03)"),
        ("pressure channel", " (tool): pressure channel"),
    ],
)
def test_answer_line_keeps_other_summary_whole(summary: str, text: str) -> None:
    assert line_of(topic(summary)) == f"- Mon 3 August 2026 to Fri 7 August 2026{text}"


def event(speaker: str = "user:alice", *, day: int = 3) -> EventLineSource:
    said_at = AT.replace(day=day)
    return EventLineSource(EVENT, said_at, (said_at, SLOT, 1), speaker, "user", "Red.")


def test_answer_line_of_event_omits_day_of_topic() -> None:
    lines = AnswerLines(
        AnswerTexts({SLOT: topic("", days=0)}, {EVENT: event()}, {}, keeps_summaries=False), 100
    )
    day = lines.find_day_of_all_events(SLOT)
    assert day == "Mon 3 August 2026"
    assert lines.find_day_of_all_events(None) is None
    line = lines.get_event_line(EVENT)
    assert format_event_prefix(line, day) == " alice: "
    assert format_event_prefix(line, None) == " Mon 3 August 2026, alice: "
    assert count_event_line_bytes(line, 1, day) == len("  [12] alice: Red.\n")
    assert (
        format_event_prefix(make_event_line(event(day=4), 400), day)
        == " Tue 4 August 2026, alice: "
    )


def test_answer_line_topic_of_several_days_has_no_day() -> None:
    assert (
        AnswerLines(
            AnswerTexts({SLOT: topic("")}, {}, {}, keeps_summaries=False), 100
        ).find_day_of_all_events(SLOT)
        is None
    )


def test_answer_line_keeps_date_before_datelike_name() -> None:
    line = make_event_line(event("user:Mon 4 May 2026, bob"), 400)
    assert format_event_prefix(line, "Mon 3 August 2026") == line.start


def test_answer_lines_are_copies() -> None:
    lines = AnswerLines(AnswerTexts({}, {EVENT: event()}, {}, keeps_summaries=False), 100)
    lines.get_event_line(EVENT).text = "Blue."
    assert lines.get_event_line(EVENT).text == "Red."


def test_answer_lines_rank_neighbours_of_best_hit_sooner() -> None:
    a, b, c, d = (UUID(int=n) for n in range(10, 14))
    relevance = {a: 0.9, b: 0.31, c: 0.3, d: 0.1}
    alone = dict(zip((a, b, c, d), "abcd", strict=True))
    assert rank_with_topic_weight(relevance, alone) == [a, b, c, d]
    assert rank_with_topic_weight(relevance, {**alone, c: "a"}) == [a, c, b, d]
    assert rank_with_topic_weight(relevance, {**alone, d: "a"}) == [a, b, c, d]
