"""What recall and contexts show of a text that is stored as a payload."""

import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest

from strandline.aws import blobs
from strandline.aws.blobs import BlobStore
from strandline.aws.payload_texts import SNIFFED_BYTES, decode_payload_text
from strandline.context.event_selection import (
    AnswerTextOptions,
    ContextTextOptions,
    take_recent_events_to_fill_budget,
)
from strandline.embeddings.embedder import Embedder
from strandline.errors import PayloadMissing, Unavailable
from strandline.log.indexed_text import PIECE_CHARS
from strandline.recall import payload_excerpts
from strandline.recall.features import QuestionWord
from strandline.recall.passages import Passages, WordMatcher
from strandline.recall.payload_excerpts import (
    PAYLOADS_UNREAD,
    PayloadPart,
    choose_excerpt,
    read_payload_parts,
)
from tests.support import Gateway, user_message
from tests.uploads import upload_file

ALICE, BOB = "user:alice", "user:bob"
ANSWER = "The spare key of the boathouse hangs behind the blue heron."
QUESTION = "Where does the spare key of the boathouse hang?"
WEATHER = " ".join(f"Day {n} was cloudy, with a light wind from the west." for n in range(900))
LONG = f"Notes of the summer.\n{WEATHER} {ANSWER} {WEATHER}"
"""A text of 91 KB, so that its event holds none of it."""


@pytest.fixture
def key(gateway: Gateway, embedder: Embedder) -> str:
    embedder.embed(["warm"], timeout=60.0)  # as a function does when it starts
    key = gateway.key()
    for text in (LONG, "The boathouse is shut on Mondays."):
        event = user_message(text, ALICE, session_id="s1")
        reply = gateway.call("POST", "/api/v1/events", event, key=key)
        assert reply.status == 201, reply.text
    return key


def ask(gateway: Gateway, key: str, path: str, **fields: Any) -> Any:
    body = {"query": QUESTION, "participants": [ALICE], **fields}
    reply = gateway.call("POST", path, body, key=key)
    assert reply.status == 200, reply.text
    return reply.body


def find_payload_hit(answer: Any) -> Any:
    return next(hit for hit in answer["hits"] if hit["text"] is None)


@pytest.mark.parametrize("is_embedded", [False, True])
def test_payload_excerpt_stands_in_recall_and_contexts(
    gateway: Gateway, key: str, is_embedded: bool
) -> None:
    if is_embedded:
        gateway.sweep()
    hit = find_payload_hit(ask(gateway, key, "/api/v1/recall"))
    piece = hit["piece"]
    assert hit["excerpt"] == LONG[piece["start_char"] : piece["end_char"]]
    assert ANSWER in hit["excerpt"]
    assert len(hit["excerpt"]) <= 600
    block = ask(gateway, key, "/api/v1/context")
    assert ANSWER in block["text"]
    assert "alice: … " in block["text"]
    assert block["degraded"] == []
    path = "/api/v1/sessions/s1/context"
    query = {"query": QUESTION, "format": "text", "participants": ALICE}
    assert ANSWER in gateway.call("GET", path, key=key, query=query).body["text"]
    answer = gateway.call(
        "POST", "/api/v1/query", {"query": QUESTION, "participants": [ALICE]}, key=key
    )
    assert ANSWER in answer.error["details"]["block"], "what a model is shown"


def test_payload_excerpt_names_its_file_in_context(gateway: Gateway, key: str) -> None:
    event = user_message(f"{WEATHER} {WEATHER} The cat is named Mimi.", ALICE)
    cid = gateway.call("POST", "/api/v1/events", event, key=key).body["blob"]["cid"]
    event = {**user_message("", ALICE), "blob": {"cid": cid}, "name": 'pets", no longer so [1].md'}
    event.pop("content")
    reply = gateway.call("POST", "/api/v1/events", event, key=key)
    assert reply.status == 201, reply.text
    text = ask(gateway, key, "/api/v1/context", query="What is the cat named?")["text"]
    assert 'alice (file "pets_, no longer so _1_.md"): … ' in text
    assert "The cat is named Mimi." in text


def test_payload_excerpt_of_named_file_is_match(gateway: Gateway, key: str) -> None:
    said_before = "The boathouse log of the summer follows."
    for event in (
        user_message(said_before, ALICE, session_id="s2"),
        {**user_message(f"{WEATHER} {WEATHER} {ANSWER} {WEATHER}", ALICE), "session_id": "s2"},
    ):
        reply = gateway.call("POST", "/api/v1/events", event, key=key)
        assert reply.status == 201, reply.text
    cid = reply.body["blob"]["cid"]
    event = {**user_message("", ALICE), "blob": {"cid": cid}, "name": "boathouse-summer.log"}
    event.pop("content")
    reply = gateway.call("POST", "/api/v1/events", event, key=key)
    assert reply.status == 201, reply.text
    question = "What does boathouse-summer.log say about the heron?"
    hits = ask(gateway, key, "/api/v1/recall", query=question, limit=20)["hits"]
    shown = {hit["name"]: hit["excerpt"] for hit in hits if hit["text"] is None}
    assert ANSWER in shown["boathouse-summer.log"]
    question = "Which log of the summer follows, and where is the heron of the boathouse?"
    hits = ask(gateway, key, "/api/v1/recall", query=question, limit=20)["hits"]
    assert all(ANSWER in hit["excerpt"] for hit in hits if hit["text"] is None)


@pytest.mark.parametrize(
    ("codec", "mime_type"),
    [
        ("cp1252", "text/plain"),
        ("latin-1", "text/plain; charset=iso-8859-1"),
        ("utf-16", "text/plain"),
        ("utf-8-sig", "text/plain"),
    ],
)
@pytest.mark.parametrize("is_embedded", [False, True])
def test_payload_excerpt_is_in_character_set_of_file(
    gateway: Gateway, codec: str, mime_type: str, is_embedded: bool
) -> None:
    key, answer = gateway.key(), "Der Schlüssel hängt hinter dem Fischreiher über der Tür."
    weather = " ".join(f"Am Tag {n} wehte ein mäßiger Wind aus Süden." for n in range(900))
    text = f"Tagebuch. {weather} {answer} {weather}"
    upload = upload_file(gateway, key, text.encode(codec), mime_type=mime_type)
    event = {"participants": [ALICE], "role": "user", "blob": {"cid": upload["cid"]}}
    reply = gateway.call("POST", "/api/v1/events", event, key=key)
    assert reply.status == 201, reply.text
    if is_embedded:
        gateway.sweep()
    hit = find_payload_hit(ask(gateway, key, "/api/v1/recall", query="Schlüssel Tür"))
    assert {"schlussel", "tur"} <= {word.replace("ü", "u") for word in hit["why"]}
    assert answer in hit["excerpt"]
    begin = 1 if codec == "utf-8-sig" else 0  # the mark is a character of UTF-8
    piece = hit["piece"]
    assert hit["excerpt"] == text[piece["start_char"] - begin : piece["end_char"] - begin]
    assert answer in ask(gateway, key, "/api/v1/context", query="Schlüssel Tür")["text"]


@pytest.mark.parametrize("charset", ["utf-16", "shift_jis", "gb2312", "made-up"])
@pytest.mark.parametrize("weather", ["It was foggy.", "Es war trüb."])
def test_payload_excerpt_of_content_is_read_as_utf8(
    gateway: Gateway, charset: str, weather: str
) -> None:
    """Whatever character set its `mime_type` names: what is sent as JSON is stored as UTF-8."""
    key = gateway.key()
    body = {
        **user_message(f"{weather} " * 6000 + ANSWER, ALICE),
        "mime_type": f"text/markdown; charset={charset}",
        "source_event_key": "k",
    }
    first, replay = (gateway.call("POST", "/api/v1/events", body, key=key) for _ in "12")
    assert (first.status, replay.status) == (201, 201), replay.text
    assert replay.body["event_id"] == first.body["event_id"]
    assert first.body["blob"] == replay.body["blob"]
    assert first.body["blob"]["mime_type"] == "text/markdown; charset=utf-8"
    assert ANSWER in find_payload_hit(ask(gateway, key, "/api/v1/recall"))["excerpt"]
    other = {**body, "mime_type": "text/markdown"}
    reply = gateway.call("POST", "/api/v1/events", other, key=key)
    assert (reply.status, reply.error["details"]["fields"]) == (409, ["mime_type"])


def test_payload_excerpt_is_of_visible_events_alone(gateway: Gateway, key: str) -> None:
    gateway.sweep()
    for path in ("/api/v1/recall", "/api/v1/context"):
        assert "heron" not in str(ask(gateway, key, path, participants=[BOB]))
    erasing = gateway.key("acme", rights=["erase", "read"])
    event_id = find_payload_hit(ask(gateway, key, "/api/v1/recall"))["event_id"]
    reply = gateway.call("POST", "/api/v1/erasures", {"event_ids": [event_id]}, key=erasing)
    assert reply.status in (200, 202), reply.text
    for path in ("/api/v1/recall", "/api/v1/context"):
        assert "heron" not in str(ask(gateway, key, path))


def test_payload_excerpt_counts_for_token_budget(gateway: Gateway, key: str) -> None:
    answer = ask(gateway, key, "/api/v1/recall", query="boathouse heron", max_tokens=20)
    (hit,) = answer["hits"]
    shown = hit["text"] or hit["excerpt"]
    assert len(shown.encode()) <= 80
    assert answer["did_not_fit"] == 1


def test_payload_excerpt_stands_in_short_term_memory(gateway: Gateway, key: str) -> None:
    path = "/api/v1/sessions/s1/context"
    query: dict[str, object] = {"format": "text", "participants": ALICE}
    for text in (
        ask(gateway, key, "/api/v1/context", query=None)["text"],
        gateway.call("GET", path, key=key, query=query).body["text"],
    ):
        assert "alice: Notes of the summer. ⏎ Day 0 was cloudy" in text
        assert "The boathouse is shut on Mondays." in text
        assert "(a file: " not in text
    asked = {**query, "query": "What is shut on Mondays?", "budget": 2000}
    text = gateway.call("GET", path, key=key, query=asked).body["text"]
    assert "(a file: " not in text


@pytest.mark.parametrize("fault", ["away", "late", "lost"])
def test_payload_excerpt_is_left_out_without_store(
    gateway: Gateway, key: str, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    gateway.sweep()

    def fail(*_: object) -> str:
        if fault == "late":
            time.sleep(0.3)
            return LONG
        raise PayloadMissing if fault == "lost" else Unavailable

    monkeypatch.setattr(BlobStore, "read_text_prefix", fail)
    if fault == "late":
        monkeypatch.setattr(payload_excerpts, "_SECONDS", 0.05)
    answer = ask(gateway, key, "/api/v1/recall")
    hit = find_payload_hit(answer)
    assert hit["excerpt"] is None
    assert "heron" in LONG[hit["piece"]["start_char"] : hit["piece"]["end_char"]]
    degraded = [] if fault == "lost" else ["payloads_unread"]
    assert answer["degraded"] == degraded
    for question in (QUESTION, None):
        block = ask(gateway, key, "/api/v1/context", query=question)
        assert block["degraded"] == degraded
        assert "(a file: " in block["text"]
        assert "The boathouse is shut on Mondays." in block["text"]


def test_payload_excerpt_reads_best_texts_alone(
    gateway: Gateway, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(10):
        event = user_message(f"{WEATHER} {WEATHER} Boat {n} is in the boathouse.", ALICE)
        assert gateway.call("POST", "/api/v1/events", event, key=key).status == 201
    reads: list[str] = []
    read = BlobStore.read_text_prefix

    def count(self: BlobStore, tenant: str, cid: str, *rest: Any) -> str:
        reads.append(cid)
        return read(self, tenant, cid, *rest)

    monkeypatch.setattr(BlobStore, "read_text_prefix", count)
    hits = ask(gateway, key, "/api/v1/recall", limit=20)["hits"]
    assert sum(hit["text"] is None for hit in hits) == 11
    assert len(reads) == len(set(reads)) == sum(bool(hit["excerpt"]) for hit in hits) == 8
    reads.clear()
    ask(gateway, key, "/api/v1/recall", query="What happens on Mondays?", limit=1)
    assert reads == []


@pytest.mark.parametrize(
    ("asked", "reads"),
    [
        ({}, 8),
        ({"budget": 200}, 6),
    ],
)
def test_payload_excerpt_reads_what_short_term_memory_shows(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, asked: dict[str, object], reads: int
) -> None:
    """Of each text the 64 KiB that tell its character set."""
    key = gateway.key()
    for n in range(10):
        event = user_message(f"Day {n}. {WEATHER * 4}", ALICE, session_id="s1")
        assert gateway.call("POST", "/api/v1/events", event, key=key).status == 201
    sizes: list[int] = []

    def count(data: bytes, *rest: Any) -> str:
        sizes.append(len(data))
        return decode_payload_text(data, *rest)

    monkeypatch.setattr(blobs, "decode_payload_text", count)
    query = {"format": "text", "participants": ALICE, **asked}
    reply = gateway.call("GET", "/api/v1/sessions/s1/context", key=key, query=query)
    assert reply.status == 200, reply.text
    assert len(sizes) == reads
    assert set(sizes) == {SNIFFED_BYTES}
    assert "(a file: " not in reply.body["text"]


@pytest.mark.parametrize(
    ("answering", "has_question", "count"),
    [(None, True, 1), (AnswerTextOptions(), True, 4), (None, False, 8)],
)
def test_payload_excerpt_is_read_of_newest_that_fit(
    answering: AnswerTextOptions | None, has_question: bool, count: int
) -> None:
    event: Any = SimpleNamespace(
        content=None, blob_cid="b", blob_size=90_000, mime_type="text/plain", origin="user"
    )
    options = ContextTextOptions(None, None, 2000, answering)
    taken = take_recent_events_to_fill_budget([event] * 20, options, has_question=has_question)
    assert len(taken) == count


def test_payload_excerpt_of_no_candidate_is_from_one_piece() -> None:
    sizes: list[int] = []

    def read_text_prefix(tenant: str, cid: str, size: int, mime_type: str) -> str:
        sizes.append(size)
        return WEATHER

    search: Any = SimpleNamespace(candidates={}, matcher=WordMatcher([]))
    event: Any = SimpleNamespace(
        event_id=uuid4(), blob_cid="b", blob_size=2_000_000, mime_type="text/plain"
    )
    store: Any = SimpleNamespace(read_text_prefix=read_text_prefix)
    assert read_payload_parts(store, "acme", [event], search).by_event
    assert sizes == [PIECE_CHARS]


def test_payload_excerpt_is_read_beyond_two_megabytes() -> None:
    """More than 2 MiB stand before the part that the index names."""
    text = f"{'今日は穏やかで風もない。' * 80_000}予備の鍵は青鷺の後ろにある。"
    start, event_id = 950_000, uuid4()

    def read_text_prefix(tenant: str, cid: str, size: int, mime_type: str) -> str:
        return text.encode()[:size].decode(errors="ignore")

    row = SimpleNamespace(start_char=start, end_char=len(text), passage_cosines=None)
    search: Any = SimpleNamespace(candidates={event_id: row}, matcher=WordMatcher([]))
    event: Any = SimpleNamespace(
        event_id=event_id, blob_cid="b", blob_size=len(text.encode()), mime_type="text/plain"
    )
    store: Any = SimpleNamespace(read_text_prefix=read_text_prefix)
    found = read_payload_parts(store, "acme", [event], search)
    assert found.by_event[event_id].text == text[start:]
    assert found.by_event[event_id].is_last


def test_payload_excerpt_is_documented_where_it_is_missing(gateway: Gateway) -> None:
    schemas = gateway.call("GET", "/openapi.json").body["components"]["schemas"]
    for name in ("RecallAnswer", "ContextTextOut"):
        assert PAYLOADS_UNREAD in schemas[name]["properties"]["degraded"]["description"]


def test_payload_excerpt_of_beginning_leaves_out_blank_lines() -> None:
    text = "\n" * 3000 + WEATHER
    place, excerpt = choose_excerpt(PayloadPart(0, text, is_last=True), WordMatcher([]))
    assert place.start_char == 3000
    assert excerpt.startswith("Day 0 was cloudy")
    assert 500 < len(excerpt) <= 600


def test_payload_excerpt_without_match_is_beginning() -> None:
    matcher = WordMatcher([QuestionWord("heron", 1)])
    place, text = choose_excerpt(PayloadPart(0, WEATHER, is_last=True), matcher)
    assert (place.start_char, WEATHER[: place.end_char]) == (0, text)
    assert text.endswith("from the west.")
    assert 500 < len(text) <= 600


def test_payload_excerpt_is_found_by_meaning_of_its_passages(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: without vectors of its passages the beginning stands there."""
    key = gateway.key(user=ALICE)
    notes = f"Notes of the summer.\n{WEATHER[:3000]} {ANSWER} {WEATHER[:3000]}"
    upload = upload_file(gateway, key, notes.encode(), mime_type="text/markdown", name="notes.md")
    event = {
        "participants": [ALICE],
        "role": "user",
        "type": "upload",
        "blob": {"cid": upload["cid"]},
    }
    reply = gateway.call("POST", "/api/v1/events", event, key=key)
    assert reply.status == 201, reply.text
    gateway.sweep()
    monkeypatch.setattr(WordMatcher, "find", Mock(return_value=[]))
    (hit,) = ask(gateway, key, "/api/v1/recall", min_relevance=0)["hits"]
    assert ANSWER in hit["excerpt"]
    assert ANSWER in ask(gateway, key, "/api/v1/context", budget=400, min_relevance=0)["text"]

    def make_without_cosines(text: str, matcher: WordMatcher, _: object) -> Passages:
        return Passages(text, matcher)

    monkeypatch.setattr(payload_excerpts, "Passages", make_without_cosines)
    (hit,) = ask(gateway, key, "/api/v1/recall", min_relevance=0)["hits"]
    assert hit["excerpt"].startswith("Notes of the summer.")
