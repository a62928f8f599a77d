# ruff: noqa: RUF001 -- questions in many scripts
"""The times that questions name by weekday, by part of a month, and in languages beside English."""

from datetime import date

import pytest

from strandline.languages import STOP_WORDS
from strandline.recall.dates.forms import get_date_forms
from strandline.recall.dates.past_questions import asks_for_what_was
from strandline.recall.dates.words import DATE_WORDS
from strandline.recall.question_mentions import parse_names_and_dates

TODAY = date(2026, 6, 10)  # a Wednesday


def fit(question: str, *days: str, today: date = TODAY) -> list[float]:
    """How well days fit the times that a question names."""
    request = parse_names_and_dates(question, today)
    return [request.score_day_match(date.fromisoformat(day)) for day in days]


@pytest.mark.parametrize(
    ("question", "inside", "outside"),
    [
        ("Where were we this past weekend?", "2026-06-07", "2026-06-08"),
        ("What has changed since last Friday?", "2026-06-09", "2026-06-04"),
        ("What happened before last Friday?", "2026-06-04", "2026-06-05"),
        ("What did we eat last weekend?", "2026-06-06", "2026-06-05"),
        ("Where were we at the weekend?", "2026-06-07", "2026-06-08"),
        ("Was haben wir am Wochenende gemacht?", "2026-06-06", "2026-06-05"),
        ("先週末どこに行った？", "2026-06-06", "2026-06-05"),
    ],
)
def test_question_dates_of_weekend_are_latest(question: str, inside: str, outside: str) -> None:
    assert fit(question, inside, outside) == [1, 0]


@pytest.mark.parametrize(
    "question",
    [
        "What do I have on Tuesdays?",
        "When is swimming on Friday?",
        "What did we do every Friday?",
        "What did Bo say on a Friday?",
        "What did Bo say he would do on Friday?",
        "What did she tell me to bring on Friday?",
        "What must I finish before Friday?",
        "What is the plan for Friday?",
        "Who comes on Friday?",
        "Who wanted to come on Friday?",
        "Who promised to cook on Friday?",
        "Who said he comes on Friday?",
        "Who mentioned that he comes on Friday?",
        "Who asked if we meet on Friday?",
        "Who said they might come on Friday?",
        "Who volunteered to drive on Friday?",
        "What did Mum say happens on Friday?",
        "Is the man who called free on Friday?",
        "Which shops are closed on Friday?",
        "Which shop stays closed on Friday?",
        "Which goods ordered by Bo come on Friday?",
        "What did we plan to eat Friday?",
        "What did we buy Black Friday?",
        "What did the new Friday class do?",
        "What did we move to Friday?",
        "Did Bo want Friday off?",
        "Did Friday work for Bo?",
        "Was the deadline Friday?",
        "On Friday, what was planned?",
        "What was the last Friday of the month?",
        "What did we do on our last Sunday together?",
        "What was said on Friday the 13th?",
        "What were the results of Friday's test?",
        "When was the weekly meeting on Tuesday agreed?",
        "A storm is announced for tonight: what did the vet say?",
        "A babysitter comes tonight: what did Nell say?",
        "Was habe ich am Freitag vor?",
        "Welche Läden haben am Freitag geöffnet?",
        "Was hat Tom gesagt, was wir am Freitag mitbringen sollen?",
        "Wer führt heute die Bücher in dem Betrieb?",
        "Was hat Jette in den letzten Jahren gelernt?",
        "¿Qué tiene María el viernes?",
        "¿Qué hicimos los viernes?",
        "¿Qué dijo Tom que traería el viernes?",
        "Le magasin est-il fermé vendredi ?",
        "Qu'est-ce que j'ai le vendredi ?",
        "Ai-je un congé vendredi ?",
        "Wat moet ik vrijdag doen?",
        "O que temos na sexta?",
        "O que disse a Ana na segunda reunião?",
        "Что у меня за дела в пятницу?",
        "今天星期五吗？",
    ],
)
def test_question_dates_without_weekday_that_was(question: str) -> None:
    assert parse_names_and_dates(question, TODAY).times == []


def test_question_dates_have_no_weekday_beside_date() -> None:
    question = "What was broken on Wednesday morning of the first week, on 15 April?"
    assert fit(question, "2026-04-15", "2026-06-03") == [2, 0]
    question = "What did Maria do last weekend before April 10, 2023?"
    assert fit(question, "2023-04-09", "2026-06-07") == [1, 0]


@pytest.mark.parametrize(
    ("words", "inside", "outside"),
    [
        ("in early May", "2026-05-04", "2026-05-25"),
        ("early in May 2025", "2025-05-04", "2025-05-25"),
        ("at the beginning of May", "2026-05-10", "2026-05-25"),
        ("in the first week of May", "2026-05-07", "2026-05-25"),
        ("in mid-May", "2026-05-15", "2026-05-02"),
        ("in late May", "2026-05-28", "2026-05-10"),
        ("in the last week of May", "2026-05-28", "2026-05-10"),
    ],
)
def test_question_dates_of_part_of_month_fit_its_rest_less(
    words: str, inside: str, outside: str
) -> None:
    assert fit(f"What happened {words}?", inside, outside, "2026-04-15") == [1, 0.5, 0]


@pytest.mark.parametrize(
    ("words", "inside", "outside"),
    [
        ("before the end of May", "2026-05-29", "2026-05-31"),
        ("before early May", "2026-04-30", "2026-05-01"),
        ("after mid-May", "2026-05-24", "2026-05-23"),
        ("since mid-May", "2026-05-08", "2026-05-07"),
        ("between mid-April and early May", "2026-05-13", "2026-05-14"),
        ("by the end of May", "2026-05-01", "2026-06-01"),
    ],
)
def test_question_dates_relate_to_part_of_month(words: str, inside: str, outside: str) -> None:
    assert fit(f"What happened {words}?", inside, outside) == [1, 0]


@pytest.mark.parametrize(
    "question",
    [
        "What did Bo send on 12 Dec?",
        "What did Bo send on Dec 12, 2025?",
        "What did Bo send on Dec. 12th?",
        "Was ist am 12. Dezember passiert?",
        "Was ist am 12. Dezember 2025 passiert?",
        "Was ist am 12.12. passiert?",
        "Was ist am 12.12.2025 passiert?",
        "12. Dezember?",
        "¿Qué dijo el 12 de diciembre?",
        "¿Qué dijo el 12 de diciembre de 2025?",
        "Qu'avons-nous fait le 12 décembre 2025 ?",
        "Qu'avons-nous fait le 12/12/2025 ?",
        "Che cosa abbiamo fatto il 12 dicembre?",
        "Wat is er op 12 december gebeurd?",
        "O que aconteceu no dia 12 de dezembro?",
        "Что было 12 декабря 2025 года?",
        "Что было 12.12.2025?",
        "12月12日に何をしましたか？",
        "2025年12月12日に何がありましたか？",
        "十二月十二日に何がありましたか？",
        "12月12号发生了什么？",
    ],
)
def test_question_dates_of_day_in_many_languages(question: str) -> None:
    assert fit(question, "2025-12-12", "2025-12-13", "2025-11-12") == [2, 1, 0]


@pytest.mark.parametrize(
    ("question", "inside", "outside"),
    [
        ("Was haben wir im Mai gemacht?", "2026-05-04", "2026-04-04"),
        ("Was wissen wir seit Mai?", "2026-05-04", "2026-04-30"),
        ("Was ist nach dem 3. Mai passiert?", "2026-05-04", "2026-05-03"),
        ("Was hat er zwei Wochen vor dem 3. Mai gesagt?", "2026-04-19", "2026-05-02"),
        ("Was war letzte Woche?", "2026-06-01", "2026-06-08"),
        ("Was hat er vor zwei Wochen gesagt?", "2026-05-27", "2026-06-07"),
        ("Was war letzten Winter?", "2026-01-15", "2026-05-15"),
        ("Was war im Jahr 2025?", "2025-05-05", "2026-05-05"),
        ("¿Qué ha pasado desde mayo?", "2026-05-04", "2026-04-30"),
        ("¿Qué pasó antes del 3 de mayo?", "2026-05-02", "2026-05-03"),
        ("¿Qué hicimos la semana pasada?", "2026-06-01", "2026-06-08"),
        ("Que s'est-il passé en mai ?", "2026-05-04", "2026-04-04"),
        ("Que s'est-il passé depuis le 3 mai ?", "2026-05-03", "2026-05-02"),
        ("Que s'est-il passé après le 3 mai ?", "2026-05-04", "2026-05-03"),
        ("Qu'avons-nous fait la semaine dernière ?", "2026-06-01", "2026-06-08"),
        ("Qu'avons-nous fait il y a deux semaines ?", "2026-05-27", "2026-06-07"),
        ("Che cosa è successo a maggio?", "2026-05-04", "2026-04-04"),
        ("Che cosa è successo dopo il 3 maggio?", "2026-05-04", "2026-05-03"),
        ("Che cosa abbiamo fatto la settimana scorsa?", "2026-06-01", "2026-06-08"),
        ("Che cosa abbiamo fatto due settimane fa?", "2026-05-27", "2026-06-07"),
        ("Wat hebben we in mei gedaan?", "2026-05-04", "2026-04-04"),
        ("Wat is er sinds mei gebeurd?", "2026-05-04", "2026-04-30"),
        ("Wat hebben we vorige week gedaan?", "2026-06-01", "2026-06-08"),
        ("Wat hebben we twee weken geleden gedaan?", "2026-05-27", "2026-06-07"),
        ("O que aconteceu em dezembro de 2025?", "2025-12-05", "2026-05-05"),
        ("O que fizemos na semana passada?", "2026-06-01", "2026-06-08"),
        ("O que fizemos há duas semanas?", "2026-05-27", "2026-06-07"),
        ("Что случилось в мае?", "2026-05-04", "2026-04-04"),
        ("Что было после 3 мая?", "2026-05-04", "2026-05-03"),
        ("Что было в 2025 году?", "2025-05-05", "2026-05-05"),
        ("Что мы делали на прошлой неделе?", "2026-06-01", "2026-06-08"),
        ("Что мы делали неделю назад?", "2026-06-03", "2026-06-09"),
        ("三月份伤到了哪里？", "2026-03-05", "2026-04-05"),
        ("5月3日以降に何があった？", "2026-05-03", "2026-05-02"),
        ("5月3日より前に何があった？", "2026-05-02", "2026-05-03"),
        ("先週は何をした？", "2026-06-01", "2026-06-08"),
        ("上周我们做了什么？", "2026-06-01", "2026-06-08"),
        ("两周前发生了什么？", "2026-05-27", "2026-06-07"),
        ("去年夏天去哪了？", "2025-07-01", "2025-05-01"),
    ],
)
def test_question_dates_of_period_in_many_languages(
    question: str, inside: str, outside: str
) -> None:
    assert fit(question, inside, outside) == [1, 0]


@pytest.mark.parametrize(
    "question",
    [
        "Was ist zwischen dem 3. und 8. Mai passiert?",
        "Was ist vom 3.5. bis zum 8.5. passiert?",
        "¿Qué pasó entre el 3 y el 8 de mayo?",
        "¿Qué pasó del 3 al 8 de mayo?",
        "Que s'est-il passé entre le 3 et le 8 mai ?",
        "Que s'est-il passé du 3 au 8 mai ?",
        "Che cosa è successo tra il 3 e l'8 maggio?",
        "Che cosa è successo dal 3 all’8 maggio?",
        "Wat is er gebeurd tussen 3 en 8 mei?",
        "O que aconteceu entre 3 e 8 de maio?",
        "O que aconteceu de 3 a 8 de maio?",
        "Что было с 3 по 8 мая?",
        "5月3日から8日まで何をした？",
        "5月3日到5月8日做了什么？",
    ],
)
def test_question_dates_of_days_in_many_languages(question: str) -> None:
    assert fit(question, "2026-05-05", "2026-05-09", "2026-05-02") == [2, 0, 0]


@pytest.mark.parametrize(
    "question",
    [
        "Was haben wir Anfang Mai gemacht?",
        "¿Qué pasó a principios de mayo?",
        "Que s'est-il passé début mai ?",
        "Che cosa è successo all'inizio di maggio?",
        "Wat hebben we begin mei gedaan?",
        "O que aconteceu no início de maio?",
        "Что случилось в начале мая?",
        "5月の初めに何があった？",
    ],
)
def test_question_dates_of_part_of_month_in_many_languages(question: str) -> None:
    assert fit(question, "2026-05-04", "2026-05-25", "2026-04-04") == [1, 0.5, 0]


@pytest.mark.parametrize(
    "question",
    [
        "Which of the 12 mar the paint?",
        "What did Jan say of the sun?",
        "What did Marco do with 12 mars bars?",
        "What did we see on Mars?",
        "What is hier in the log?",
        "Which version is 12.12.2025?",
        "What did Bo put in mai or a mayo jar?",
        "Was steht in Kapitel 3.2. zu dem Thema?",
        "Was hat August zu uns gesagt?",
        "¿Dónde está la casa de Julio?",
        "¿Vive aquí desde hace tres años?",
        "Quelle est la marque de la barre Mars ?",
        "Il y a combien de jours dans la semaine ?",
        "Что было до 2000 рублей?",
        "三个月的保修期吗？",
        "引っ越しは何月何日だった？",
        "出産予定日の何日前？",
    ],
)
def test_question_dates_are_not_read_in_other_words(question: str) -> None:
    assert parse_names_and_dates(question, TODAY).times == []


@pytest.mark.parametrize(
    "question", ["Wat werd er eerder gezegd?", "Che cosa ci fu?", "Где был мой велосипед?"]
)
def test_question_dates_are_not_now_for_what_was(question: str) -> None:
    assert not parse_names_and_dates(question, TODAY).is_about_now


def test_question_dates_have_words_of_every_language() -> None:
    assert {*DATE_WORDS} == {*STOP_WORDS, "ru"}
    for language in DATE_WORDS:
        forms = get_date_forms(language)
        assert {*forms.months.values()} == {*range(1, 13)}
        assert {*forms.weekday_numbers.values()} == {*range(7)}
        assert len({*forms.units.values()}) == len({*forms.seasons.values()}) + 1 == 5
        assert not asks_for_what_was("", "", language)


@pytest.mark.parametrize("year", [1, 9999])
@pytest.mark.parametrize(
    "question",
    [
        *("What happened on Sunday?", "What was last weekend?", "What was last night?"),
        *("Was war vor 999 Jahren?", "Was war seit Ende Mai?", "Was war vor dem 99. Mai?"),
        *("999年前は？", "昨日は何を？", "13月99日は？", "12月99日は？", "2月30日から3月99日まで"),
    ],
)
def test_question_dates_survive_calendar_ends(question: str, year: int) -> None:
    for today in (date(year, 1, 1), date(year, 12, 31)):
        assert len(parse_names_and_dates(question, today).times) <= 1


def test_question_dates_with_letters_that_match_others() -> None:
    for question in ("What was on 3 APRİL?", "What was on 3 aprıl?", "Was geſchah am 3. Auguſt?"):
        assert len(parse_names_and_dates(question, TODAY).times) == 1


def test_question_dates_are_read_in_linear_time() -> None:
    for text in (
        "was on Friday ",
        "who did ",
        "which told me to ",
        "hat gesagt ",
        "am 3. Mai ",
        "昨日12月3日",
        "ge",
        "el 3 de mayo ",
    ):
        assert len(parse_names_and_dates(text * (8000 // len(text)), TODAY).times) <= 8000
