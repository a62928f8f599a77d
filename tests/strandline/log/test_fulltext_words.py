"""Words that Postgres' parser does not find by itself, in events and in questions."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.log.fulltext_input import sanitize_for_parser
from strandline.log.fulltext_words import prepare_question_for_search, to_indexed_text
from tests.support import Gateway, user_message


def added(text: str) -> set[str]:
    """What is added to a text for the index, in lower case."""
    own, gap, words = to_indexed_text(text).partition(" a a a ")
    assert own == sanitize_for_parser(text)
    return set(words.lower().split()) if gap else set()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the stock_sync_job failed", {"stock", "sync", "job", "stocksyncjob"}),
        ("call parseHTTPHeader first", {"parse", "http", "header"}),
        ("see src/billing/invoice_total.py", {"src", "billing", "invoice", "total", "py"}),
        ("C++, C# and .NET", {"cplusplus", "csharp", "dotnet"}),
        ("JIRA-1043: the avatar", {"1043", "jira1043"}),
        ("merge bugfix/led-412-csv-rows", {"412", "led412"}),
        ("of 2026-01-02, Q-2026-0338, v-1.2", set[str]()),
        ("a C compiler for the net", set[str]()),
        ("工房の家賃", {"工房", "家賃"}),
        ("カフェ", {"カフ", "フェ"}),
        ("las sillas cobradas por Kenji", {"sill", "cobr", "kenji"}),
        ("我们用webfetch抓取网页。配置在config.toml里", {"webfetch", "config.toml", "config"}),
        ("会議はZoomじゃなくてTeamsで", {"zoom", "teams"}),
        ("Jenkins에서 GitHub로", {"jenkins", "github", "hub"}),
        ("off to Xàtiva", {"xativa"}),
        ("José Müller of Łódź", {"jose", "muller", "mueller", "lodz"}),
        ("Jose\u0301 from Århus", {"jose", "arhus", "aarhus"}),
        ("Die Züge fuhren gestern nicht pünktlich.", {"zug"}),
        ("Les voitures étaient garées dans la rue.", {"voitur"}),
        ("Le bambine sono arrivate con la nonna.", {"bambin"}),
        ("De treinen hebben vandaag vertraging.", {"trein"}),
        ("As contas da luz não foram pagas.", {"cont"}),
        ("Поезда из Казани опоздали.", {"поезд"}),
        ("Version 2.13.0 of 2026-01-02", set[str]()),
        ("The plain English sentence, with commas.", set[str]()),
    ],
)
def test_fulltext_words_of_identifiers_and_languages(text: str, words: set[str]) -> None:
    assert added(text) >= words
    assert words or not added(text)


def test_fulltext_words_find_identifier_by_its_number(gateway: Gateway) -> None:
    key = gateway.key()
    for text in ("JIRA-1042: rows of the CSV.", "JIRA-1043: the avatar.", "JIRA-1402: the log."):
        gateway.call("POST", "/api/v1/events", user_message(text), key=key)
    for question in ("jira 1043", "1043", "JIRA-1043", "what of jira1043?"):
        body = {"query": question, "participants": ["user:alice", "agent:helper"]}
        hits = gateway.call("POST", "/api/v1/recall", body, key=key).body["hits"]
        assert hits[0]["text"] == "JIRA-1043: the avatar.", question


def test_fulltext_words_of_question_leave_out_frequent_ones() -> None:
    words = prepare_question_for_search("¿Cuánto cobró Kenji por las sillas?").lower().split()
    assert {"kenji", "sillas?"} <= set(words)
    assert not {"por", "las"} & set(words)
    assert prepare_question_for_search("¿Qué es?").split()[:2] == [
        "¿Qué",
        "es?",
    ]  # or nothing would be left


@given(st.text(max_size=400))
def test_fulltext_words_follow_any_text_unchanged(text: str) -> None:
    assert to_indexed_text(text).startswith(sanitize_for_parser(text))


@pytest.mark.parametrize(
    "unit", ["a_", "aB", "Aa.", "漢字", "C++", "/x", "é_", "a漢", "a.漢", "_" * 9 + "a"]
)
def test_fulltext_words_take_time_in_proportion_to_the_text(unit: str) -> None:
    def seconds(count: int) -> float:
        began = time.process_time()
        to_indexed_text(unit * count)
        return time.process_time() - began

    assert seconds(32_000) < 40 * seconds(4_000) + 0.05


@pytest.mark.integration
@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("The deploy failed in stockSyncJob again.", "stock_sync_job"),
        ("Rewrote it in C# last night.", "csharp"),
        ("大家さんが工房の家賃を上げた。", "家賃"),
        ("Las sillas llegan el martes.", "¿Cuándo llega la silla?"),
        ("Der Zug fährt heute ab Altona.", "Welche Züge fahren?"),
    ],
)
def test_recall_by_words_finds_event_in_any_script(
    gateway: Gateway, text: str, question: str
) -> None:
    key = gateway.key()
    for content in (text, "Nothing of that kind was said here.", "Another matter."):
        reply = gateway.call("POST", "/api/v1/events", user_message(content), key=key)
        assert reply.status == 201, reply.text
    body: dict[str, Any] = {"query": question, "participants": ["user:alice"]}
    hits = gateway.call("POST", "/api/v1/recall", body, key=key).body["hits"]
    assert hits[0]["text"] == text
    assert [word for word in hits[0]["why"] if word != "meaning"]


def test_fulltext_words_of_threads_do_not_mix() -> None:
    texts = [
        "I bambini giocavano nelle strade mentre le madri parlavano con i vicini della nuova casa.",
        "Die Kinder spielten auf den Straßen, während die Mütter mit den Nachbarn redeten.",
        "Los vecinos hablaban de las casas nuevas mientras los niños jugaban en las calles.",
    ]
    expected = [to_indexed_text(text) for text in texts]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(to_indexed_text, texts * 40)) == expected * 40
    finally:
        sys.setswitchinterval(interval)
