"""The dates that questions name in English, and the periods before, after and between them."""

from datetime import date

import pytest

from strandline.recall.question_mentions import parse_names_and_dates

TODAY = date(2026, 6, 10)  # a Wednesday


def fit(question: str, *days: str) -> list[float]:
    """How well days fit the times that a question names."""
    request = parse_names_and_dates(question, TODAY)
    return [request.score_day_match(date.fromisoformat(day)) for day in days]


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
        "on october 11",
        "on the 11th of october, 2025",
    ],
)
def test_calendar_dates_day_in_any_form(words: str) -> None:
    assert fit(f"What happened {words}?", "2025-10-11", "2025-10-12", "2025-11-11") == [2, 1, 0]


@pytest.mark.parametrize(
    ("words", "inside", "outside"),
    [
        ("in March", "2026-03-30", "2026-04-01"),
        ("in march", "2026-03-30", "2026-04-01"),
        ("in March 2025", "2025-03-01", "2026-03-01"),
        ("may 2025", "2025-05-01", "2026-05-01"),
        ("last April", "2026-04-02", "2026-05-01"),
        ("in late May", "2026-05-20", "2026-06-01"),
        ("at the end of may", "2026-05-20", "2026-06-01"),
        ("in 2025", "2025-07-01", "2026-07-01"),
        ("in 2025-03", "2025-03-09", "2025-04-09"),
        ("last week", "2026-06-01", "2026-06-08"),
        ("last month", "2026-05-31", "2026-06-01"),
        ("last year", "2025-12-31", "2026-01-01"),
        ("last summer", "2026-06-02", "2026-05-30"),
        ("last winter", "2026-01-15", "2026-05-15"),
        ("two weeks ago", "2026-05-27", "2026-06-07"),
        ("a month ago", "2026-05-11", "2026-06-09"),
    ],
)
def test_calendar_dates_period_relative_to_today(words: str, inside: str, outside: str) -> None:
    assert fit(f"What happened {words}?", inside, outside) == [1, 0]


@pytest.mark.parametrize(
    ("words", "inside", "outside"),
    [
        ("before 3 May", "2026-05-02", "2026-05-03"),
        ("before May 3rd, 2025", "2025-05-02", "2025-05-03"),
        ("before the 3rd of May", "2026-05-02", "2026-05-03"),
        ("before 2026-05-03", "2026-05-02", "2026-05-03"),
        ("before October", "2025-09-30", "2025-10-01"),
        ("before may", "2026-04-30", "2026-05-01"),
        ("before 2025", "2024-12-31", "2025-01-01"),
        ("before yesterday", "2026-06-08", "2026-06-09"),
        ("before last week", "2026-05-31", "2026-06-01"),
        ("after 3 May", "2026-05-04", "2026-05-03"),
        ("after 29 February", "2024-03-01", "2024-02-29"),
        ("after October", "2025-11-01", "2025-10-31"),
        ("after February 2024", "2024-03-01", "2024-02-29"),
        ("after 2024", "2025-01-01", "2024-12-31"),
        ("after last year", "2026-01-01", "2025-12-31"),
        ("the week before 3 May", "2026-04-26", "2026-05-03"),
        ("the week before 3 May", "2026-05-02", "2026-04-25"),
        ("two weeks before 3 May", "2026-04-19", "2026-05-02"),
    ],
)
def test_calendar_dates_before_and_after_date(words: str, inside: str, outside: str) -> None:
    assert fit(f"What happened {words}?", inside, outside) == [1, 0]


def test_calendar_dates_several_months() -> None:
    days = "2026-03-09", "2026-05-09", "2026-04-09"
    assert fit("What happened in March, May and June?", *days) == [1, 1, 0]
    for words in ("between March and May", "from march to may"):
        assert fit(f"What happened {words}?", *days, "2026-06-01") == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("words", "inside", "outside"),
    [
        ("between 14 and 20 May", "2026-05-17", "2026-05-21"),
        ("between the 14th and the 20th of May", "2026-05-14", "2026-05-13"),
        ("between 14 May and 20 May", "2026-05-20", "2026-05-21"),
        ("from 14 to 20 May 2025", "2025-05-17", "2026-05-17"),
        ("between 14 and 20 May", "2024-05-17", "2024-06-17"),  # of any year, as a day alone
        ("14-20 May", "2026-05-15", "2026-05-13"),
        ("May 14th to 20th", "2026-05-15", "2026-05-13"),
        ("2026-05-14 to 2026-05-20", "2026-05-15", "2026-05-13"),
        ("from 20 December to 5 January", "2026-01-02", "2026-01-06"),
        ("from 20 December 2024 to 5 January 2025", "2024-12-31", "2025-12-31"),
        ("between 8 June and 12 June", "2026-06-11", "2026-06-13"),  # it has begun
    ],
)
def test_calendar_dates_period_between_days(words: str, inside: str, outside: str) -> None:
    assert fit(f"What happened {words}?", inside, outside) == [2, 0]


def test_calendar_dates_no_period_that_ends_before_it_begins() -> None:
    days = "2026-05-05", "2026-05-12", "2026-08-01"
    assert fit("What did we do in room 12 - 5 May?", *days) == [2, 1, 0]
    assert fit("What did we do from 12 to 5 May?", *days) == [2, 1, 0]


@pytest.mark.parametrize(
    ("words", "inside", "outside"),
    [
        ("since 14 May", "2026-06-09", "2026-05-13"),
        ("since the 14th of May", "2026-05-14", "2025-06-01"),
        ("since March", "2026-05-01", "2026-02-28"),
        ("since 2025", "2026-05-01", "2024-12-31"),
    ],
)
def test_calendar_dates_period_since_date(words: str, inside: str, outside: str) -> None:
    assert fit(f"What has happened {words}?", inside, outside) == [1, 0]


@pytest.mark.parametrize(
    "question",
    [
        "May I march on?",
        "When may I start, and may I march?",
        "Which of the 12 may come?",
        "May 3 of us march 3 miles?",
        "What did April say to June?",
        "Is it in April's bag?",
        "This may be late: was it before lunch?",
        "What came after the race?",
        "Who has 12 boats?",
        "",
        "in 1234",
    ],
)
def test_calendar_dates_no_time_in_other_words(question: str) -> None:
    assert parse_names_and_dates(question, TODAY).times == []


@pytest.mark.parametrize("year", [1, 500, 9999])
@pytest.mark.parametrize(
    "words",
    [
        *("999 years ago", "last week", "last winter", "last year", "before yesterday"),
        *("before May", "after 31 December", "999 years after today", "before 29 February"),
    ],
)
def test_calendar_dates_survive_calendar_ends(words: str, year: int) -> None:
    for today in (date(year, 1, 1), date(year, 12, 31)):
        assert len(parse_names_and_dates(f"What happened {words}?", today).times) <= 1


@pytest.mark.parametrize(
    "question",
    ["99 January 2026", "2026-99-99", "999 days ago", "0 May", "before 99 May", "after 2026-13-01"],
)
def test_calendar_dates_survive_impossible_date(question: str) -> None:
    assert fit(f"What happened {question}?", "2026-05-05") in ([0.0], [1.0])


def test_calendar_dates_are_read_in_linear_time() -> None:
    for text in ("May 3 before ", "in March, ", "\ue000 , ", "Will ", "a week before ", "1 of "):
        assert len(parse_names_and_dates(text * (8000 // len(text)), TODAY).times) <= 8000
