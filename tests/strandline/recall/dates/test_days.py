# ruff: noqa: RUF001 -- questions in many scripts
"""The days that questions name by weekday, or by how long ago they were."""

from datetime import date

import pytest

from strandline.recall.question_mentions import parse_names_and_dates

TODAY = date(2026, 6, 10)  # a Wednesday


@pytest.mark.parametrize(
    ("question", "inside", "outside"),
    [
        ("What did Bo say on Friday?", "2026-06-05", "2026-06-04"),
        ("What did Bo say on Wednesday?", "2026-06-03", "2026-06-10"),
        ("Bo said it last Friday: what was it?", "2026-06-05", "2026-06-06"),
        ("What went wrong last Thursday?", "2026-06-04", "2026-06-05"),
        ("On Tuesday evening, who rang, and what did he say?", "2026-06-09", "2026-06-02"),
        ("Who called on Tuesday evening?", "2026-06-09", "2026-06-02"),
        ("What happened on Monday and Tuesday?", "2026-06-09", "2026-06-10"),
        ("What did I do Friday night about the plan?", "2026-06-05", "2026-06-04"),
        ("What did I say this morning?", "2026-06-10", "2026-06-09"),
        ("What did I eat tonight?", "2026-06-10", "2026-06-09"),
        ("What did I eat last night?", "2026-06-09", "2026-06-10"),
        ("Was hat Tom am Freitag gesagt?", "2026-06-05", "2026-06-04"),
        ("Was hat Dr. Meier am Freitagabend gesagt?", "2026-06-05", "2026-06-04"),
        ("Was hat Tom letzten Freitag gesagt?", "2026-06-05", "2026-06-04"),
        ("Weißt du, was am Freitag passiert ist?", "2026-06-05", "2026-06-04"),
        ("Was haben wir heute besprochen?", "2026-06-10", "2026-06-09"),
        ("¿Qué compré el viernes?", "2026-06-05", "2026-06-04"),
        ("¿Qué pasó el viernes?", "2026-06-05", "2026-06-04"),
        ("¿Qué dice María del viernes pasado?", "2026-06-05", "2026-06-04"),
        ("Qu'est-ce que Tom a dit vendredi ?", "2026-06-05", "2026-06-04"),
        ("Qu'a dit Tom vendredi dernier ?", "2026-06-05", "2026-06-04"),
        ("Che cosa ha detto Marco venerdì?", "2026-06-05", "2026-06-04"),
        ("Che cosa dice Marco di venerdì scorso?", "2026-06-05", "2026-06-04"),
        ("Wat heeft Tom vrijdag gezegd?", "2026-06-05", "2026-06-04"),
        ("Wat zei Tom afgelopen vrijdag?", "2026-06-05", "2026-06-04"),
        ("O que o Tom disse na sexta-feira?", "2026-06-05", "2026-06-04"),
        ("O que eu comprei no sábado?", "2026-06-06", "2026-06-05"),
        ("O que o Tom disse na segunda?", "2026-06-08", "2026-06-09"),
        ("O que o Tom diz da sexta passada?", "2026-06-05", "2026-06-04"),
        ("Что сказал Том в пятницу?", "2026-06-05", "2026-06-04"),
        ("Что было в прошлую пятницу?", "2026-06-05", "2026-06-04"),
        ("先週の金曜日に誰が来た？", "2026-06-05", "2026-06-04"),
        ("上周五谁来了？", "2026-06-05", "2026-06-04"),
        ("What happened yesterday?", "2026-06-09", "2026-06-08"),
        ("What happened today?", "2026-06-10", "2026-06-09"),
        ("Was haben wir vorgestern gemacht?", "2026-06-08", "2026-06-09"),
        ("¿Qué hicimos ayer?", "2026-06-09", "2026-06-08"),
        ("Qu'avons-nous fait hier ?", "2026-06-09", "2026-06-08"),
        ("Che cosa ha detto Marco ieri?", "2026-06-09", "2026-06-08"),
        ("O que fizemos ontem?", "2026-06-09", "2026-06-08"),
        ("昨天说了什么？", "2026-06-09", "2026-06-08"),
        ("What did we discuss Friday?", "2026-06-05", "2026-06-04"),
        ("What did Bo drink Friday night?", "2026-06-05", "2026-06-04"),
        ("What did Tom write Friday about the plan?", "2026-06-05", "2026-06-04"),
        ("What did I tell Bo Friday?", "2026-06-05", "2026-06-04"),
        ("Who won on Sunday?", "2026-06-07", "2026-06-06"),
        ("Do you know who won on Sunday?", "2026-06-07", "2026-06-06"),
        ("Who texted me on Friday?", "2026-06-05", "2026-06-04"),
        ("Who called Friday?", "2026-06-05", "2026-06-04"),
        ("Who cut the grass on Friday?", "2026-06-05", "2026-06-04"),
        ("What else broke on Friday?", "2026-06-05", "2026-06-04"),
        ("Which of the parcels arrived on Friday?", "2026-06-05", "2026-06-04"),
        ("Did anyone want cake on Friday?", "2026-06-05", "2026-06-04"),
        ("What did the plant need on Friday?", "2026-06-05", "2026-06-04"),
        ("Who called to make an appointment on Friday?", "2026-06-05", "2026-06-04"),
        ("When Bo wanted to leave, what did Ann say on Friday?", "2026-06-05", "2026-06-04"),
        ("Which bill that was due did I pay on Friday?", "2026-06-05", "2026-06-04"),
        ("What did Bo say on Friday we should buy?", "2026-06-05", "2026-06-04"),
        ("What happened the day before yesterday?", "2026-06-08", "2026-06-09"),
        ("What happened two days ago?", "2026-06-08", "2026-06-09"),
        ("What happened two days before yesterday?", "2026-06-07", "2026-06-09"),
        ("What happened the day after 3 June?", "2026-06-04", "2026-06-03"),
        ("Was war vor zwei Tagen?", "2026-06-08", "2026-06-09"),
        ("Qu'a-t-il dit avant-hier ?", "2026-06-08", "2026-06-09"),
        ("¿Qué hicimos hace tres días?", "2026-06-07", "2026-06-08"),
        ("三日前に何をした？", "2026-06-07", "2026-06-08"),
    ],
)
def test_question_days_are_latest(question: str, inside: str, outside: str) -> None:
    request = parse_names_and_dates(question, TODAY)
    days = (inside, outside, "2026-04-09")
    fits = [request.score_day_match(date.fromisoformat(day)) for day in days]
    assert fits == [2, 1, 0], "as where the day's date is named"
