"""The language of a text."""

import pytest

from strandline.languages import READ_CHARS, STOP_WORDS, UNKNOWN, detect_language


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("We moved the meeting to Friday because Ana is ill.", "en"),
        ("¿Cuándo tiene Ana la cita con el dentista?", "es"),
        ("Die Werkstatt in Altona schließt am Freitag um vier.", "de"),
        ("Où est-ce que Paul a garé la voiture ?", "fr"),
        ("Quando arriva il treno per Torino con la nonna?", "it"),
        ("De trein naar Utrecht heeft vandaag een half uur vertraging.", "nl"),
        ("Você já pagou a conta da luz deste mês?", "pt"),
        ("Когда приедет поезд из Казани?", "ru"),
        ("工房の引っ越しは四月二十九日です。", UNKNOWN),
        ("متى يصل القطار؟", UNKNOWN),
    ],
)
def test_language_is_told_from_script_and_frequent_words(text: str, language: str) -> None:
    assert detect_language(text) == language


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ok",
        "def main(): return os.environ['PATH']",
        "per order",  # one word of Italian
        "nobody knows. 人事 is considering it",
        "Café Müller, 4 pm",
    ],
)
def test_language_is_english_without_two_signs_of_another(text: str) -> None:
    assert detect_language(text) == "en"


def test_language_is_that_of_the_beginning() -> None:
    spanish = "La reunión es el viernes por la tarde. "
    english = "The meeting is on Friday. "
    assert detect_language(spanish * 60 + english * READ_CHARS) == "es"
    assert detect_language(english * 999 + spanish * READ_CHARS) == "en"


def test_language_lists_hold_words_in_lower_case() -> None:
    for words in STOP_WORDS.values():
        assert all(word == word.lower() and word.strip() for word in words)
