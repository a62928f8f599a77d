# ruff: noqa: RUF001 -- questions in many scripts
"""The periods up to today, the quarters, and the days without a month that questions name."""

from datetime import date
from time import process_time

import pytest

from strandline.recall.question_mentions import parse_names_and_dates

TODAY = date(2026, 6, 10)  # a Wednesday


def fit(question: str, *days: str, today: date = TODAY) -> list[float]:
    """How well days fit the times that a question names."""
    request = parse_names_and_dates(question, today)
    return [request.score_day_match(date.fromisoformat(day)) for day in days]


@pytest.mark.parametrize(
    ("question", "inside", "outside"),
    [
        ("What did we do this week?", "2026-06-08", "2026-06-07"),
        ("What did I say earlier this week?", "2026-06-08", "2026-06-07"),
        ("What have I spent this month?", "2026-06-01", "2026-05-31"),
        ("How much has Bo drunk this year?", "2026-01-01", "2025-12-31"),
        ("What did we sell this quarter?", "2026-04-01", "2026-03-31"),
        ("What did we sell last quarter?", "2026-03-31", "2026-04-01"),
        ("What happened in the last two weeks?", "2026-05-27", "2026-05-26"),
        ("What is new in the past 10 days?", "2026-05-31", "2026-05-30"),
        ("What changed over the last few days?", "2026-06-06", "2026-06-05"),
        ("What happened over the past couple of weeks?", "2026-05-27", "2026-05-26"),
        ("What happened in the past month?", "2026-05-11", "2026-05-10"),
        ("What happened a few days ago?", "2026-06-04", "2026-06-09"),
        ("What happened a few weeks before 3 May?", "2026-04-05", "2026-05-02"),
        ("What is new since Monday?", "2026-06-08", "2026-06-07"),
        ("What is new since Friday evening?", "2026-06-05", "2026-06-04"),
        ("What is new since Mon?", "2026-06-08", "2026-06-07"),
        ("What is new since yesterday?", "2026-06-10", "2026-06-08"),
        ("What is new since last week?", "2026-06-10", "2026-05-31"),
        ("What is new since the 5th?", "2026-06-05", "2026-06-04"),
        ("What is new since Q2?", "2026-04-01", "2026-03-31"),
        ("What did we sell in Q3?", "2025-09-30", "2025-10-01"),
        ("What did we sell in Q3 2025?", "2025-07-01", "2024-07-01"),
        ("What did we sell in Q3/2025?", "2025-07-01", "2026-07-01"),
        ("What did we sell in the third quarter of the year?", "2025-07-01", "2025-06-30"),
        ("What did we sell in the third quarter of last year?", "2025-07-01", "2024-07-01"),
        ("What did we sell in the 3rd quarter of 2025?", "2025-07-01", "2025-06-30"),
        ("What did we sell in Q3 last year?", "2025-07-01", "2024-07-01"),
        ("What changed between Q1 2025 and Q3 2025?", "2025-09-30", "2025-10-01"),
        ("What did we sell between Q1 and Q3 2025?", "2025-01-01", "2024-12-31"),
        ("What did we sell between Q1 and Q3 2025?", "2025-09-30", "2025-10-01"),
        ("What did we sell from Q1 to Q3 2025?", "2025-05-01", "2026-05-01"),
        ("What did we sell from Q4 to Q1 2025?", "2024-10-01", "2025-04-01"),
        ("What grew between spring and autumn 2025?", "2025-07-01", "2025-12-01"),
        ("Was war zwischen Q1 und Q3 2025?", "2025-05-01", "2026-05-01"),
        ("What did we sell between March and May 2025?", "2025-03-01", "2025-02-28"),
        ("What did we sell from March to May 2025?", "2025-04-15", "2025-06-01"),
        ("What did we sell from November to March 2025?", "2024-11-01", "2025-04-01"),
        ("Was war von März bis Mai 2025?", "2025-03-01", "2025-02-28"),
        ("What did we sell between March and 5 May 2025?", "2025-03-01", "2025-05-06"),
        ("What did we sell in 2025 Q3?", "2025-07-01", "2025-06-30"),
        ("Where were we in summer 2025?", "2025-08-31", "2025-09-01"),
        ("Where were we in the spring of 2025?", "2025-03-01", "2026-03-01"),
        ("Where were we in the winter of 2025?", "2025-01-01", "2026-01-01"),
        ("Wo waren wir im Sommer 2025?", "2025-06-01", "2025-05-31"),
        ("Où étions-nous à l'été 2025 ?", "2025-06-01", "2025-05-31"),
        ("What failed in the last 24 hours?", "2026-06-10", "2026-06-08"),
        ("What failed in the past 36 hours?", "2026-06-08", "2026-06-07"),
        ("Was war in den letzten 48 Stunden?", "2026-06-08", "2026-06-07"),
        ("What happened in Sept?", "2025-09-30", "2025-10-01"),
        ("What changed between Sept and Nov?", "2025-10-15", "2025-12-01"),
        ("What happened the week before last?", "2026-05-31", "2026-06-01"),
        ("What happened the weekend before last?", "2026-05-30", "2026-06-06"),
        ("What did Mr Sonntag say three weeks ago?", "2026-05-20", "2026-06-07"),
        ("Was haben wir diese Woche gemacht?", "2026-06-08", "2026-06-07"),
        ("Was haben wir in den letzten drei Tagen gemacht?", "2026-06-07", "2026-06-06"),
        ("Was war vor ein paar Tagen?", "2026-06-04", "2026-06-09"),
        ("Wer war letzte Woche da?", "2026-06-07", "2026-06-08"),
        ("Was war vorletzte Woche?", "2026-05-25", "2026-06-01"),
        ("Was hat Tom seit Freitag gesagt?", "2026-06-05", "2026-06-04"),
        ("Was war im 3. Quartal?", "2025-07-01", "2025-06-30"),
        ("Was war im dritten Quartal 2025?", "2025-07-01", "2024-07-01"),
        ("¿Qué hice este mes?", "2026-06-01", "2026-05-31"),
        ("¿Qué hicimos en las últimas dos semanas?", "2026-05-27", "2026-05-26"),
        ("¿Qué ha pasado desde el lunes?", "2026-06-08", "2026-06-07"),
        ("¿Qué vendimos en el tercer trimestre de 2025?", "2025-07-01", "2025-06-30"),
        ("Qu'avons-nous fait cette semaine ?", "2026-06-08", "2026-06-07"),
        ("Qu'avons-nous fait ces deux dernières semaines ?", "2026-05-27", "2026-05-26"),
        ("Qu'a-t-il dit il y a quelques jours ?", "2026-06-04", "2026-06-09"),
        ("Qu'avons-nous vendu au troisième trimestre 2025 ?", "2025-07-01", "2025-06-30"),
        ("Che cosa abbiamo fatto quest’anno?", "2026-01-01", "2025-12-31"),
        ("Che cosa abbiamo fatto negli ultimi dieci giorni?", "2026-05-31", "2026-05-30"),
        ("Wat hebben we deze week gedaan?", "2026-06-08", "2026-06-07"),
        ("Wat hebben we de afgelopen twee weken gedaan?", "2026-05-27", "2026-05-26"),
        ("Wat is er sinds maandag gebeurd?", "2026-06-08", "2026-06-07"),
        ("O que a Ana fez esta semana com as crianças?", "2026-06-08", "2026-06-07"),
        ("O que aconteceu há alguns dias?", "2026-06-04", "2026-06-09"),
        ("Что мы делали на этой неделе?", "2026-06-08", "2026-06-07"),
        ("Что мы делали за последние две недели?", "2026-05-27", "2026-05-26"),
        ("Что было в третьем квартале 2025 года?", "2025-07-01", "2025-06-30"),
    ],
)
def test_question_periods_reach_from_day_to_day(question: str, inside: str, outside: str) -> None:
    assert fit(question, inside, outside) == [1, 0]


@pytest.mark.parametrize(
    ("question", "day"),
    [
        ("What happened on the 12th?", "2026-05-12"),
        ("What did Bo say on the 10th about the boat?", "2026-06-10"),
        ("What did we do on the 31st?", "2026-05-31"),
        ("What did Bo say two hours ago?", "2026-06-10"),
        ("Was war vor einer Stunde?", "2026-06-10"),
        ("What did Bo say on Tue?", "2026-06-09"),
        ("What did Bo say on Tue morning?", "2026-06-09"),
        ("What did Bo say last Fri?", "2026-06-05"),
        ("What did we eat two Fridays ago?", "2026-05-29"),
        ("What did we eat the Friday before last?", "2026-05-29"),
        ("Was haben wir am 5. besprochen?", "2026-06-05"),
        ("Was hat Tom am Fr gesagt?", "2026-06-05"),
        ("Was war vorletzten Freitag?", "2026-05-29"),
        ("¿Qué dijo Ana el día 5?", "2026-06-05"),
        ("¿Qué pasó hace dos viernes?", "2026-05-29"),
        ("Qu'avons-nous fait le 5 ?", "2026-06-05"),
        ("Che cosa ha detto Marco il 5?", "2026-06-05"),
        ("Wat heeft Tom op de 5e gezegd?", "2026-06-05"),
        ("O que o Tom disse no dia 5, e por que ele não veio?", "2026-06-05"),
        ("Что было 5 числа?", "2026-06-05"),
        ("Что было две пятницы назад?", "2026-05-29"),
    ],
)
def test_question_periods_of_latest_day(question: str, day: str) -> None:
    assert fit(question, day, "2026-04-09") == [2, 0]


@pytest.mark.parametrize(
    "question",
    [
        "What happened in the week of 6 May?",
        "What happened the week of May 6th?",
        "Was war in der Woche vom 6. Mai?",
        "¿Qué pasó en la semana del 6 de mayo?",
        "Que s'est-il passé la semaine du 6 mai ?",
    ],
)
def test_question_periods_of_week_of_day(question: str) -> None:
    days = "2026-05-04", "2026-05-10", "2026-05-11", "2026-06-06"
    assert fit(question, *days) == [2, 2, 1, 0]


@pytest.mark.parametrize(
    "question",
    [
        "What did Bo leave on the 12th floor?",
        "What did Bo fix on the 12th item?",
        "What did we plant on the 12th and 13th rows?",
        "What is planned on the 12th?",
        "What did Bo say he would do on the 12th?",
        "What did we do on the 45th?",
        "What is the answer to Q3 of the questionnaire?",
        "What did Ann write in Q3 of the questionnaire?",
        "Who scored in the third quarter of the game?",
        "Who fouled out in the third quarter?",
        "Who won in the first quarter-final?",
        "What is in T3?",
        "What did Bo do in his last two weeks at school?",
        "What did Ann do in Bo's last two weeks?",
        "What did she learn in the last two weeks of school?",
        "What did she learn in the last two weeks before her exam?",
        "What did she learn in the last year of school?",
        "What did I do in past years?",
        "What did Bo say until Friday?",
        "Since Monday is a holiday, when do we meet?",
        "Who works from Monday to Friday?",
        "Who sat on sat and sun?",
        "What did Bo install on Sun servers?",
        "Did Mon come?",
        "What did Dec say?",
        "What is in Dec's bag?",
        "What will we do this week?",
        "What do I have this week?",
        "What have I to do this month?",
        "Do I have seven meetings this week?",
        "What is due this quarter?",
        "What did Bo plan for this year?",
        "Was liegt am 12. Pfeiler?",
        "Was machen wir diese Woche?",
        "¿Qué haremos esta semana?",
        "Que ferons-nous cette semaine ?",
        "Quel jour, au deuxième trimestre de grossesse ?",
        "Wat lag er op de 5e verdieping?",
        "Hebben we deze week geld?",
        "Что у нас на этой неделе?",
    ],
)
def test_question_periods_are_not_read_in_other_words(question: str) -> None:
    assert parse_names_and_dates(question, TODAY).times == []


@pytest.mark.parametrize("year", [1, 9999])
@pytest.mark.parametrize(
    "words",
    [
        *("this week", "last quarter", "in the last 999 years", "999 Fridays ago", "on the 31st"),
        *("the week before last", "since Monday", "in the week of 31 December", "since Q4"),
    ],
)
def test_question_periods_survive_calendar_ends(words: str, year: int) -> None:
    for today in (date(year, 1, 1), date(year, 12, 31)):
        assert len(parse_names_and_dates(f"What happened {words}?", today).times) <= 2


@pytest.mark.parametrize(
    "text",
    [
        *(
            "on the 12th ",
            "did on the 12th , ",
            "last 3 ",
            "two Fridays ",
            "Q3 2025 ",
            "since Mon ",
        ),
        *(
            "have been this ",
            "the week of 3 May ",
            "in den letzten 2 ",
            "am 12. ",
            "в 3 ",
            "1",
            " ",
        ),
        *("\n", "?", "week before last "),
    ],
)
def test_question_periods_are_read_in_linear_time(text: str) -> None:
    start = process_time()
    assert len(parse_names_and_dates((text * 8000)[:8000], TODAY).times) <= 8000
    assert process_time() - start < 0.6
