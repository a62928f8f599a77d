"""Words that resemble the times that questions name, and times that are easily misread."""

from datetime import date

import pytest

from strandline.recall.question_mentions import parse_names_and_dates

TODAY = date(2026, 6, 10)  # a Wednesday


@pytest.mark.parametrize(
    "question",
    [
        "What did I weigh half a year ago?",
        "What was decided 2.5 weeks ago?",
        "¿Qué pasó hace un mes y medio?",
        "Qu'a-t-elle dit il y a un an et demi ?",
        "Что было двадцать лет назад?",
        "What is in invoice INV-2026-05?",
        "What is in ticket TCK-2026-05-204?",
        "Did the temperature fall 2025 times?",
        "Who said that he comes on Friday?",
        "Wer hat gesagt, dass er am Freitag kommt?",
        "¿Quién dijo que viene el viernes?",
        "Qui a dit qu'il vient vendredi ?",
        "Chi ha detto che viene venerdì?",
        "Wie heeft gezegd dat hij vrijdag komt?",
        "Quem disse que vem na sexta?",
        "Кто сказал, что приедет в пятницу?",
        "Pourquoi la réunion a-t-elle été reportée à vendredi ?",
        "Perché la riunione è stata spostata a venerdì?",
    ],
)
def test_question_date_misreadings_are_no_times(question: str) -> None:
    assert parse_names_and_dates(question, TODAY).times == []


@pytest.mark.parametrize(
    ("question", "days", "fits"),
    [
        (
            "What happened last year in March?",
            ("2025-03-08", "2026-03-08", "2025-04-08"),
            [1, 0, 0],
        ),
        (
            "What happened in March last year?",
            ("2025-03-08", "2026-03-08", "2025-04-08"),
            [1, 0, 0],
        ),
        ("Who came last year, on 8 March?", ("2025-03-08", "2026-03-08", "2025-04-08"), [2, 0, 0]),
        ("Was war im März letzten Jahres?", ("2025-03-08", "2026-03-08", "2025-04-08"), [1, 0, 0]),
        ("¿Qué pasó en marzo del año pasado?", ("2025-03-08", "2026-03-08"), [1, 0]),
        ("Qu'a-t-on fait en mars de l'année dernière ?", ("2025-03-08", "2026-03-08"), [1, 0]),
        ("Что было в марте прошлого года?", ("2025-03-08", "2026-03-08"), [1, 0]),
        ("Did May cost more than last year?", ("2025-03-08", "2024-03-08"), [1, 0]),
        ("What changed on 2026-05-20T14:00?", ("2026-05-20", "2026-05-21"), [2, 1]),
        ("What does app-2026-05-20_1.log say?", ("2026-05-20", "2026-05-21"), [2, 1]),
        ("What was said ten days ago?", ("2026-05-31", "2026-06-09"), [2, 0]),
        ("Was war vor zehn Tagen?", ("2026-05-31", "2026-06-09"), [2, 0]),
        ("Что было десять дней назад?", ("2026-05-31", "2026-06-09"), [2, 0]),
        ("Was passierte letztes Jahr?", ("2025-05-31", "2026-05-31"), [1, 0]),
        ("Wer kam am Freitagabend?", ("2026-06-05", "2026-06-04"), [2, 1]),
        ("Who said that he was here on Friday?", ("2026-06-05", "2026-06-04"), [2, 1]),
    ],
)
def test_question_date_misreadings_leave_what_is_meant(
    question: str, days: tuple[str, ...], fits: list[float]
) -> None:
    request = parse_names_and_dates(question, TODAY)
    assert [request.score_day_match(date.fromisoformat(day)) for day in days] == fits
