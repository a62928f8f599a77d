"""Recall: found the moment it was said, seen by whom it may, right when everything is odd."""

import importlib
import time
from collections.abc import Callable
from typing import Any

import pytest

from strandline.resources import Resources
from tests.strandline.embeddings.fake_embedders import (
    KnownEmbedders,
    WordEmbedder,
    delay,
    fail_texts,
)
from tests.support import Gateway, Reply, user_message

ALICE, BOB, CAROL, HELPER = "user:alice", "user:bob", "user:carol", "agent:helper"


def tell(gateway: Gateway, key: str, text: str, *who: str, **more: object) -> Any:
    reply = gateway.call(
        "POST", "/api/v1/events", user_message(text, *(who or (ALICE,)), **more), key=key
    )
    assert reply.status == 201, reply.text
    return reply.body


def recall(gateway: Gateway, key: str, query: str, **more: object) -> Reply:
    reply = gateway.call("POST", "/api/v1/recall", {"query": query, **more}, key=key)
    assert reply.status == 200, reply.text
    return reply


def texts(reply: Reply) -> list[str]:
    return [hit["text"] for hit in reply.body["hits"]]


def use(monkeypatch: pytest.MonkeyPatch, embedder: object) -> None:
    """Give the query function another embedder, and no other that it could reach."""
    service: Resources = importlib.import_module("functions.query.handler").resources
    monkeypatch.setitem(service.__dict__, "embedder", embedder)
    monkeypatch.setitem(service.__dict__, "embedders", KnownEmbedders())


def test_recall_finds_new_event_by_words(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    for n in range(30):
        receipt = tell(gateway, key, f"The {n}th buoy drifts by the lighthouse.")
        hit = recall(gateway, key, f"what about the {n}th buoy?").body["hits"][0]
        assert hit["event_id"] == receipt["event_id"]
        assert f"{n}th" in hit["why"]
        assert "meaning" not in hit["why"], "nothing is embedded yet"


def test_recall_finds_new_event_without_common_word(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    tell(gateway, key, "Old news of the lighthouse.")
    gateway.sweep()
    receipt = tell(gateway, key, "Fresh mackerel.")
    body = recall(gateway, key, "zyzzyva").body
    fresh = [hit for hit in body["hits"] if hit["event_id"] == receipt["event_id"]]
    assert ([hit["why"] for hit in fresh], body["not_yet_embedded"]) == ([[]], 1)


def test_recall_finds_paraphrase_once_embedded(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    receipt = tell(gateway, key, "My dog has to see the vet on Thursday.")
    for other in ("The invoice is overdue.", "Rain all day.", "The compiler crashed again."):
        tell(gateway, key, other)
    gateway.sweep()
    best = recall(gateway, key, "appointment with the animal doctor").body["hits"][0]
    assert (best["event_id"], best["why"]) == (receipt["event_id"], ["meaning"])


def test_recall_hit_tells_content_and_source(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    at, fields = "2026-05-08T13:56:00Z", {"speaker": ALICE, "source_event_key": "k-1"}
    receipt = tell(gateway, key, "The buoy is out.", occurred_at=at, **fields)
    gateway.sweep()
    reply = recall(gateway, key, "Is the buoy out?", include="full", explain=True)
    (hit,) = reply.body["hits"]
    for name in ("event_id", "cid", "scope_id", "seq", "recorded_at"):
        assert hit["event"][name] == receipt[name]
    assert hit["event"]["occurred_at"] == hit["occurred_at"] == "2026-05-08T13:56:00Z"
    assert (hit["event_id"], hit["text"]) == (receipt["event_id"], "The buoy is out.")
    assert (hit["speaker"], hit["source_event_key"]) == (ALICE, "k-1")
    assert hit["why"] == ["buoy", "meaning"]
    assert hit["features"]["words"] == hit["features"]["words_nearby"] > 0
    assert hit["features"]["cosine"] > 1.5  # deviations above what is usual
    assert 0 < hit["relevance"] <= reply.body["known"] <= 1
    assert hit["piece"] is None
    assert reply.body["degraded"] == []
    assert reply.body["read_token"]


def test_recall_of_group_gives_shared_events_only(gateway: Gateway) -> None:
    key = gateway.key()
    groups = [(ALICE, BOB), (ALICE, CAROL), (BOB, CAROL), (ALICE, BOB, CAROL), (ALICE,)]
    for who in groups:
        tell(gateway, key, f"The anchor secret of {' '.join(who)}", *who)

    def check() -> None:
        for names in ([ALICE, BOB, CAROL], [ALICE, BOB], [CAROL], [ALICE], [HELPER]):
            more: dict[str, object] = {"participants": names, "limit": 100, "min_relevance": 0}
            reply = recall(gateway, key, "anchor secret", include="full", **more)
            participants = {tuple(hit["event"]["participants"]) for hit in reply.body["hits"]}
            assert participants == {who for who in groups if set(names) <= set(who)}

    check()  # by words and freshness
    gateway.sweep()
    check()  # by vectors too


FILTERS: list[tuple[dict[str, object], set[str]]] = [
    ({"session_id": "s1"}, {"one"}),
    ({"role": "agent"}, {"two"}),
    ({"speaker": ALICE}, {"one", "three"}),
    ({"type": "observation"}, {"three"}),
    ({"origin": "tool"}, {"three"}),
    ({"channel": "slack"}, {"two"}),
    ({"metadata": {"pier": 3}}, {"three"}),
    ({"since": "2026-05-02T00:00:00Z"}, {"two", "three"}),
    ({"until": "2026-05-02T00:00:00Z"}, {"one"}),
    ({"role": "system"}, set()),
]


@pytest.mark.parametrize("is_embedded", [False, True])
def test_recall_filters_hold_on_every_leg(gateway: Gateway, is_embedded: bool) -> None:
    key = gateway.key()
    who = (ALICE, HELPER)
    day = "2026-05-0{}T00:00:00Z".format
    tell(gateway, key, "tide one", *who, session_id="s1", occurred_at=day(1))
    agent: dict[str, object] = {"role": "agent", "channel": "slack", "occurred_at": day(2)}
    tell(gateway, key, "tide two", *who, **agent)
    visible: dict[str, object] = {"type": "observation", "metadata": {"pier": 3}}
    tell(gateway, key, "tide three", *who, occurred_at=day(3), **visible)
    if is_embedded:
        gateway.sweep()
    for question in ("tide", "zyzzyva"):
        for narrowing, expected in FILTERS:
            more: dict[str, object] = {"participants": [ALICE], "min_relevance": 0}
            reply = recall(gateway, key, question, **more, **narrowing)
            assert {text.split()[1] for text in texts(reply)} == expected, narrowing


def test_recall_refuses_unknown_filter(gateway: Gateway) -> None:
    body = {"query": "tide", "sesion_id": "s"}
    reply = gateway.call("POST", "/api/v1/recall", body, key=gateway.key(user=ALICE))
    assert (reply.status, reply.error["details"]["field"]) == (422, "sesion_id")


@pytest.mark.parametrize("stranger", ["globex", "acme"])
@pytest.mark.parametrize("is_embedded", [False, True])
def test_recall_ignores_events_of_others(
    gateway: Gateway, stranger: str, is_embedded: bool
) -> None:
    """Fifty foreign events that match better, newer and more often."""
    key = gateway.key(user=ALICE)
    questions = ["When does the tide turn?", "zyzzyva", "tide", "the harbour master's boat"]
    for n in range(12):
        tell(gateway, key, f"{n}: the tide turns by the harbour", ALICE, f"agent:{n % 2}")
    if is_embedded:
        gateway.sweep()

    def answers() -> list[tuple[float, Any]]:
        replies = (recall(gateway, key, q, limit=100, min_relevance=0).body for q in questions)
        return [(body["known"], body["hits"]) for body in replies]

    before = answers()
    assert all(len(hits) == 12 for _, hits in before)
    foreign = [
        user_message("tide tide tide harbour master zyzzyva", BOB, f"agent:{n % 5}")
        for n in range(50)
    ]
    bob = gateway.key(stranger, user=BOB)
    reply = gateway.call("POST", "/api/v1/events/batch", {"events": foreign}, key=bob)
    assert reply.body["stored"] == 50
    if is_embedded:
        gateway.sweep()
    assert before == answers()


ODD = [
    "the and of to",
    " ",
    "tide " * 1600,
    "x" * 8000,
    "'\"&|!():*<->\\",
    "''''''",
    "\\",
    "\\\\' | ' : * & !",
    'a\\\'b "c\\"',
    "'; drop table events; --",
    "%s %(x)s {} $1",
    "tide:*A & <2>",
    "🌊🐟 👩‍👩‍👧",
    "潮はいつ変わりますか",
    "متى يتغير المد؟",
    "\u0001\u0002\x7f",
    "e\u0301́ \u202e right to left",
    "http://x.test/a?b=c&d='e'",
    "1e999 NaN -0",
]


def test_recall_answers_odd_questions(gateway: Gateway) -> None:
    requests: list[tuple[str, str, str]] = []
    for n, query in enumerate(ODD):
        key = gateway.key(user=f"user:asker-{n}")
        receipt = tell(gateway, key, query + " tide ", f"user:asker-{n}")
        requests.append((key, query, receipt["event_id"]))
    for answer in ("by words or freshness", "with vectors"):
        for key, query, event_id in requests:
            body = recall(gateway, key, query, limit=100, min_relevance=0).body
            event_ids = [hit["event_id"] for hit in body["hits"]]
            assert (event_ids, body["degraded"]) == ([event_id], []), (query[:40], answer)
        gateway.sweep()


@pytest.mark.parametrize(
    ("before", "seconds"), [(delay(2.0), 1.6), (fail_texts(), 0.9)], ids=["slow", "failing"]
)
def test_recall_answers_by_words_without_query_vector(
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[[Any], None],
    seconds: float,
) -> None:
    key = gateway.key(user=ALICE)
    receipt = tell(gateway, key, "The buoy is out.", ALICE)
    gateway.sweep()
    embedder = WordEmbedder()
    embedder.before_embed = before
    use(monkeypatch, embedder)
    started = time.monotonic()
    reply = recall(gateway, key, "Where is the buoy?")
    assert time.monotonic() - started < seconds
    assert reply.body["degraded"] == ["no_query_vector"]
    assert [hit["event_id"] for hit in reply.body["hits"]] == [receipt["event_id"]]
    assert reply.body["hits"][0]["why"] == ["buoy"]


def test_recall_finds_answer_by_its_question(gateway: Gateway) -> None:
    key = gateway.key()
    who = (ALICE, HELPER)
    question = tell(gateway, key, "Which lens does the lighthouse use?", *who, session_id="a")
    tell(gateway, key, "Unrelated: mackerel.", *who, session_id="b")
    helper: dict[str, object] = {"role": "agent", "session_id": "a"}
    answer = tell(gateway, key, "A second-order Fresnel.", *who, **helper)
    for _ in range(2):
        hits = recall(gateway, key, "lighthouse lens", participants=[ALICE]).body["hits"]
        assert hits[0]["event_id"] == answer["event_id"]
        assert hits[-1]["event_id"] == question["event_id"], "it says nothing itself"
        gateway.sweep()


def test_recall_finds_answer_despite_other_sessions(
    gateway: Gateway,
) -> None:
    key = gateway.key()
    who = (ALICE, HELPER)
    question = tell(gateway, key, "Which lens does the lighthouse use?", *who, session_id="a")
    for n in range(9):
        tell(gateway, key, f"Mackerel {n}.", *who, session_id="b")
    helper: dict[str, object] = {"role": "agent", "session_id": "a"}
    answer = tell(gateway, key, "A second-order Fresnel.", *who, **helper)
    gateway.sweep()
    more: dict[str, object] = {"explain": True, "min_relevance": 0, "limit": 100}
    body = recall(gateway, key, "lighthouse lens", participants=[ALICE], **more).body
    features = {hit["event_id"]: hit["features"] for hit in body["hits"]}
    question_features, answer_features = (
        features[question["event_id"]],
        features[answer["event_id"]],
    )
    assert answer_features["cosine_before"] == question_features["cosine"] > 0.3
    assert answer_features["words_nearby"] == question_features["words"] > 0
    assert question_features["cosine_after"] == answer_features["cosine"]
    others = [f for f in features.values() if f not in (question_features, answer_features)]
    assert len(others) == 9
    assert {f["words_nearby"] for f in others} == {0}, "of another session"


def test_recall_finds_last_word_of_large_payload(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    text = "calm water and no wind today 🌊 " * 4000 + "then a zephyr came"
    tell(gateway, key, text, ALICE)
    for _ in range(2):
        (hit,) = recall(gateway, key, "zephyr", include="full").body["hits"]
        piece = text[hit["piece"]["start_char"] : hit["piece"]["end_char"]]
        assert "zephyr" in piece
        assert len(piece) <= 16 * 1024
        assert hit["text"] is None
        assert hit["event"]["blob"]["size"] == len(text.encode())
        gateway.sweep()


def test_recall_of_hundred_large_hits_fits_answer(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    for _ in range(5):  # 60 KB each, and short enough in characters to be one piece
        events = [user_message("🌊" * 15_000 + " tide", ALICE) for _ in range(20)]
        reply = gateway.call("POST", "/api/v1/events/batch", {"events": events}, key=key)
        assert reply.body["failed"] == 0
    reply = recall(gateway, key, "tide", limit=100)
    assert len(reply.text.encode()) < 5 * 1024 * 1024
    assert reply.body["degraded"] == ["cut_by_size"]
    assert 50 < len(reply.body["hits"]) < 100
    assert len(recall(gateway, key, "tide", limit=20).body["hits"]) == 20


def test_recall_alone_is_degraded_by_broken_model(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = gateway.key(user=ALICE)
    receipt = tell(gateway, key, "The buoy is out.", ALICE)

    def fail(texts: Any) -> None:
        raise RuntimeError("a fault that no error of ours names")

    embedder = WordEmbedder()
    embedder.before_embed = fail
    use(monkeypatch, embedder)
    reply = recall(gateway, key, "Where is the buoy?")
    assert (reply.status, reply.body["degraded"]) == (200, ["no_query_vector"])
    assert reply.body["hits"][0]["event_id"] == receipt["event_id"]
    assert reply.body["not_yet_embedded"] == 1


def test_recall_matches_other_unicode_spelling(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    receipt = tell(gateway, key, "The cafe\u0301 is shut.", ALICE)
    (hit,) = recall(gateway, key, "caf\u00e9").body["hits"]
    assert (hit["event_id"], "caf\u00e9" in hit["why"]) == (receipt["event_id"], True)
