"""When recall and contexts answer with nothing, and who sets from when on."""

import importlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from strandline.config import get_settings
from strandline.db.database import Caller
from strandline.embeddings.embedder import Embedder
from strandline.recall.store import search_candidate_events
from strandline.resources import Resources
from tests.chains import add_chain
from tests.saved_rows import SavedFixture
from tests.strandline.embeddings.fake_embedders import KnownEmbedders, WordEmbedder, fail_texts
from tests.support import Gateway, ScratchDatabase, user_message

ALICE = "user:alice"
ACME, SESSION = "/api/v1/admin/tenants/acme", "/api/v1/sessions/s"
KNOWN_QUESTION, UNKNOWN_QUESTION = (
    "Where is the red buoy?",
    "Who was the first president of Mongolia?",
)
type Tell = Callable[..., Any]


TEXTS = ("The red buoy is by the lighthouse.", "Bread rises overnight.", "Rain all day.")


@pytest.fixture(scope="module")
def saved_key() -> SavedFixture[str]:
    """The rows of `key`."""
    return SavedFixture()


@pytest.fixture
def key(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, saved_key: SavedFixture[str]
) -> str:
    """A key of a memory of three embedded events."""

    def tell_and_embed() -> str:
        new_key = gateway.key(user=ALICE)
        for text in TEXTS:
            tell(new_key, text, session_id="s")
        gateway.sweep()
        return new_key

    return saved_key.lay_down(scratch_db, tell_and_embed)


def recall(gateway: Gateway, key: str, query: str, **more: object) -> Any:
    reply = gateway.call("POST", "/api/v1/recall", {"query": query, **more}, key=key)
    assert reply.status == 200, reply.text
    return reply.body


def texts(body: Any) -> list[str]:
    return [hit["text"] for hit in body["hits"]]


def tune(gateway: Gateway, **thresholds: object) -> None:
    operator = gateway.key("ops", rights=["operator"])
    reply = gateway.call("PATCH", ACME, {"tuning": thresholds}, key=operator)
    assert reply.status == 200, reply.text


def use(monkeypatch: pytest.MonkeyPatch, embedder: object) -> None:
    """Give the query function another embedder, and no other that it could reach."""
    service: Resources = importlib.import_module("functions.query.handler").resources
    monkeypatch.setitem(service.__dict__, "embedder", embedder)
    monkeypatch.setitem(service.__dict__, "embedders", KnownEmbedders())


# the threshold -----------------------------------------------------------------------------------


def test_recall_threshold_refuses_unknown_question(gateway: Gateway, key: str) -> None:
    answer, refusal = (recall(gateway, key, query) for query in (KNOWN_QUESTION, UNKNOWN_QUESTION))
    assert texts(answer)[0] == "The red buoy is by the lighthouse."
    assert (refusal["hits"], refusal["degraded"]) == ([], [])
    assert 0 < refusal["known"] < 0.0926 < answer["known"]
    whole = recall(gateway, key, UNKNOWN_QUESTION, min_relevance=0)
    assert (len(whole["hits"]), whole["known"]) == (3, refusal["known"])


def test_recall_threshold_is_same_on_every_route(
    gateway: Gateway, key: str, scratch_db: ScratchDatabase, embedder: Embedder
) -> None:
    event_ids = [str(row[0]) for row in scratch_db.rows("select event_id from events order by seq")]
    add_chain(gateway, scratch_db, event_ids[:2], embedder=embedder)
    for query, is_known in ((KNOWN_QUESTION, True), (UNKNOWN_QUESTION, False)):
        body = gateway.call("POST", f"{SESSION}/context/search", {"query": query}, key=key).body
        assert len(body["hits"]) == is_known
        json = gateway.call("GET", f"{SESSION}/context", key=key, query={"query": query}).body
        assert len(json["chains"]) == is_known
        text = gateway.call("POST", "/api/v1/context", {"query": query}, key=key).body
        assert ("No event clearly answers" in text["text"]) is not is_known
        assert body["known"] == json["known"] == text["known"]


@pytest.mark.parametrize(
    ("min_known", "hits"), [(0, (3, 3)), (0.0, (3, 3)), (1, (0, 0)), (None, (3, 0))]
)
def test_recall_threshold_is_set_by_tenant(
    gateway: Gateway, key: str, min_known: float | None, hits: tuple[int, int]
) -> None:
    tune(gateway, min_known=min_known)
    assert (
        tuple(len(texts(recall(gateway, key, q))) for q in (KNOWN_QUESTION, UNKNOWN_QUESTION))
        == hits
    )
    for query in (KNOWN_QUESTION, UNKNOWN_QUESTION):
        assert len(texts(recall(gateway, key, query, min_relevance=0))) == 3


def test_recall_threshold_defaults_to_deployment(
    gateway: Gateway, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_TUNING", '{"min_known": 1.0}')
    get_settings.cache_clear()
    search = {"query": KNOWN_QUESTION}
    assert texts(recall(gateway, key, KNOWN_QUESTION)) == []
    assert "No event clearly" in gateway.call("POST", "/api/v1/context", search, key=key).text
    json = gateway.call("GET", f"{SESSION}/context", key=key, query=search | {"format": "text"})
    assert "No event clearly" in json.text
    tune(gateway, min_known=0.0)
    assert len(texts(recall(gateway, key, KNOWN_QUESTION))) == 3
    assert "No event clearly" not in gateway.call("POST", "/api/v1/context", search, key=key).text


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("lighthouse", TEXTS[0]),
        ("Lighthouse?", TEXTS[0]),
        ("red buoy", TEXTS[0]),
        ("lighthause", TEXTS[0]),
        ("Mongolia bread", TEXTS[1]),
        ("Where is the rain?", TEXTS[2]),
        ("Mongolia", None),
        ("Is there bread in Mongolia?", None),
    ],
)
def test_recall_threshold_never_hides_a_word_that_stands_in_view(
    gateway: Gateway, key: str, query: str, first: str | None
) -> None:
    """Whoever looks up a word gets what holds it, whatever is thought of the answer."""
    tune(gateway, min_known=1)
    assert texts(recall(gateway, key, query)) == ([] if first is None else [first])
    assert texts(recall(gateway, key, query, min_relevance=1)) == []
    text = gateway.call("POST", "/api/v1/context", {"query": query}, key=key).body["text"]
    assert first is None or first in text


# events without a vector -------------------------------------------------------------------------


def test_recall_threshold_spares_unembedded_word_match(
    gateway: Gateway, key: str, tell: Tell
) -> None:
    tell(key, "Fresh mackerel.")
    tune(gateway, min_known=1)
    assert texts(recall(gateway, key, UNKNOWN_QUESTION)) == []
    for more in ({}, {"min_relevance": 1}):
        answer = recall(gateway, key, "Was a mackerel the president of Mongolia?", **more)
        assert texts(answer) == ["Fresh mackerel."]
    assert recall(gateway, key, UNKNOWN_QUESTION)["not_yet_embedded"] == 1
    assert len(texts(recall(gateway, key, UNKNOWN_QUESTION, min_relevance=0))) == 4


def test_recall_threshold_degraded_keeps_min_relevance(
    gateway: Gateway, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(gateway, min_known=1)
    word_embedder = WordEmbedder()
    word_embedder.before_embed = fail_texts()
    use(monkeypatch, word_embedder)
    answer = recall(gateway, key, KNOWN_QUESTION)
    assert answer["degraded"] == ["no_query_vector"]
    best, *others = [hit["relevance"] for hit in answer["hits"]]
    assert others, "by their neighbour"
    assert 0 < others[0] < best - 0.02 < 1
    for floor, count in ((0, 1 + len(others)), (best - 0.01, 1), (best + 0.01, 0), (1, 0)):
        assert len(texts(recall(gateway, key, KNOWN_QUESTION, min_relevance=floor))) == count


# other embedding spaces --------------------------------------------------------------------------


def test_recall_threshold_needs_calibration(
    gateway: Gateway,
    key: str,
    monkeypatch: pytest.MonkeyPatch,
    scratch_db: ScratchDatabase,
) -> None:
    event_ids = [str(row[0]) for row in scratch_db.rows("select event_id from events order by seq")]
    add_chain(gateway, scratch_db, event_ids[:2])
    tune(gateway, min_known=1)
    use(monkeypatch, WordEmbedder())
    for query, more, degraded in (
        (KNOWN_QUESTION, {}, []),
        ("Was the president red?", {"min_relevance": 0}, []),
        (KNOWN_QUESTION, {"min_relevance": 0.99}, ["not_calibrated"]),
    ):
        body = {"query": query, **more}
        result = recall(gateway, key, query, **more)
        assert {hit["relevance"] for hit in result["hits"]} == {None}
        chains = gateway.call("POST", f"{SESSION}/context/search", body, key=key).body
        assert [hit["relevance"] for hit in chains["hits"]] == [None]
        json = gateway.call("GET", f"{SESSION}/context", key=key, query=body).body
        assert len(json["chains"]) == 1
        text = gateway.call("POST", "/api/v1/context", body, key=key).body
        assert "No event clearly" not in text["text"]
        for answer in (result, chains, json, text):
            assert (answer["known"], answer["degraded"]) == (None, degraded)
    assert (
        recall(gateway, key, KNOWN_QUESTION)["hits"][0]["text"]
        == "The red buoy is by the lighthouse."
    )


# filters -----------------------------------------------------------------------------------------


def test_recall_threshold_ignores_other_sessions(gateway: Gateway, tell: Tell) -> None:
    """A filtered search is one of the events that pass."""
    crowd, alone = gateway.key(user=ALICE), gateway.key("globex", user=ALICE)
    tell(alone, "The red buoy is by the lighthouse.", session_id="s")
    tell(crowd, "The red buoy is by the lighthouse.", session_id="s")
    bread = [user_message(f"Bread number {n} rises.", session_id="t") for n in range(60)]
    reply = gateway.call("POST", "/api/v1/events/batch", {"events": bread}, key=crowd)
    assert reply.body["stored"] == 60
    gateway.sweep()
    query = "What shines out there at sea?"
    expected = recall(gateway, alone, query)["known"]
    assert recall(gateway, crowd, query, session_id="s")["known"] == pytest.approx(
        expected, abs=0.001
    )
    assert recall(gateway, crowd, query)["known"] < expected


def test_recall_threshold_filter_keeps_word_counts(
    gateway: Gateway, key: str, tell: Tell, embedder: Embedder
) -> None:
    tell(key, "Nothing of it.", session_id="t")
    gateway.sweep()
    access = gateway.database.connect_as(Caller("acme", (ALICE,)))
    vector = embedder.embed([KNOWN_QUESTION], timeout=60)[0]
    for filters, contents in (({}, 4), ({"session_id": "t"}, 1), ({"session_id": "none"}, 0)):
        rows = search_candidate_events(
            access,
            question=KNOWN_QUESTION,
            vector=vector,
            space=embedder.space,
            filters=filters,
            now=datetime.now(UTC),
        ).rows
        assert len(rows) == contents
        if rows:
            counts = dict(zip(rows[0].words or [], rows[0].document_counts or [], strict=True))
            assert counts == {"buoy": 1, "red": 1}, filters
            assert rows[0].events_in_view == 4


def test_recall_threshold_and_weights_are_explained(gateway: Gateway, key: str) -> None:
    """`known` stands beside what it was compared with, and a score is the sum of its parts."""
    path, body = "/api/v1/recall", {"query": KNOWN_QUESTION, "explain": True}
    answer = gateway.call("POST", path, body, key=key).body
    scoring, weights = answer["scoring"], answer["scoring"]["weights"]
    assert 0 < scoring["min_known"] <= answer["known"]
    scores = [sum(weights[n] * v for n, v in hit["features"].items()) for hit in answer["hits"]]
    assert scores == sorted(scores, reverse=True)
    unknown = gateway.call("POST", path, {**body, "query": UNKNOWN_QUESTION}, key=key).body
    assert (unknown["hits"], unknown["known"] < unknown["scoring"]["min_known"]) == ([], True)
    own = gateway.call("POST", path, {**body, "min_relevance": 0.1}, key=key).body
    assert own["scoring"]["min_known"] is None
    weighted = gateway.call("POST", path, {**body, "weights": {"recency": 0.5}}, key=key).body
    assert weighted["scoring"]["weights"]["recency"] > 0
    assert "importance" not in weighted["scoring"]["weights"]
    assert gateway.call("POST", path, {"query": "x"}, key=key).body["scoring"] is None


def test_recall_threshold_is_none_by_words_alone(gateway: Gateway, key: str) -> None:
    path, body = "/api/v1/recall", {"query": "the bread", "only_words": True, "explain": True}
    answer = gateway.call("POST", path, body, key=key).body
    assert (answer["degraded"], answer["scoring"]["min_known"]) == (["no_query_vector"], None)
    assert texts(answer)[0] == TEXTS[1]
    assert {hit["features"]["cosine"] for hit in answer["hits"]} == {0.0}
