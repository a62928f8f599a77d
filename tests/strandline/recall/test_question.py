"""What recall reads of a question besides its meaning: names and times."""

from datetime import UTC, datetime

import pytest

from strandline.recall.question import read_question

NOW = datetime(2026, 6, 10, 8, tzinfo=UTC)  # a Wednesday


def fit(question: str, *days: str) -> list[float]:
    """How well days fit the times that a question names."""
    asked = read_question(question, NOW)
    return [asked.match_time(datetime.fromisoformat(f"{day}T12:00:00Z")) for day in days]


@pytest.mark.parametrize(
    "words",
    [
        "on 11 October",
        "on October 11",
        "on October 11th",
        "on the 11th of October",
        "on 11 October 2025",
        "on October 11th, 2025",
        "on 2025-10-11",
    ],
)
def test_a_day_is_read_in_every_form_that_people_write(words: str) -> None:
    assert fit(f"What happened {words}?", "2025-10-11", "2025-10-12", "2025-11-11") == [2, 1, 0]


@pytest.mark.parametrize(
    ("words", "inside", "outside"),
    [
        ("in March", "2026-03-30", "2026-04-01"),
        ("in March 2025", "2025-03-01", "2026-03-01"),
        ("in 2025", "2025-07-01", "2026-07-01"),
        ("in 2025-03", "2025-03-09", "2025-04-09"),
        ("yesterday", "2026-06-09", "2026-06-08"),
        ("today", "2026-06-10", "2026-06-09"),
        ("last week", "2026-06-01", "2026-06-08"),
        ("last month", "2026-05-31", "2026-06-01"),
        ("last year", "2025-12-31", "2026-01-01"),
        ("last summer", "2026-06-02", "2026-05-30"),
        ("last winter", "2026-01-15", "2026-05-15"),
        ("two weeks ago", "2026-05-27", "2026-06-07"),
        ("a month ago", "2026-05-11", "2026-06-09"),
    ],
)
def test_a_period_is_read_against_the_time_of_the_question(
    words: str, inside: str, outside: str
) -> None:
    assert fit(f"What happened {words}?", inside, outside) == [1, 0]


@pytest.mark.parametrize("question", ["May I march on?", "Who has 12 boats?", "", "in 1234"])
def test_words_that_are_no_time_name_none(question: str) -> None:
    assert read_question(question.replace("May", "may"), NOW).times == []


def test_names_are_whole_words_in_any_case() -> None:
    asked = read_question("What did ALICE tell bob?", NOW)
    assert asked.named({"alice", "bo", "carol"}) == {"alice"}


@pytest.mark.parametrize("year", [1, 500, 9999])
@pytest.mark.parametrize("words", ["999 years ago", "last week", "last winter", "last year"])
def test_the_ends_of_the_calendar_break_nothing(words: str, year: int) -> None:
    for now in (datetime(year, 1, 1, tzinfo=UTC), datetime(year, 12, 31, tzinfo=UTC)):
        assert len(read_question(f"What happened {words}?", now).times) <= 1


@pytest.mark.parametrize("question", ["99 January 2026", "2026-99-99", "999 days ago", "0 May"])
def test_an_impossible_date_fits_nothing_and_breaks_nothing(question: str) -> None:
    assert fit(f"What happened {question}?", "2026-05-05") in ([0.0], [1.0])
