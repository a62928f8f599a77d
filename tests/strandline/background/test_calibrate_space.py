"""An embedding space is measured once, with texts that ship, and means the same from then on."""

import importlib
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

import pytest

from strandline.background.calibrate_space import (
    ensure_calibrated,
    measure_space,
    read_calibration_text_groups,
)
from strandline.db.database import Caller, Database, TenantDb
from strandline.embeddings.embedder import Embedder, Purpose
from strandline.embeddings.local import LocalEmbedder
from strandline.embeddings.minilm import EnglishEmbedder
from strandline.embeddings.space_figures import SHIPPED_FIGURES, PairCosines
from strandline.embeddings.store_space_figures import (
    read_figures,
    read_thresholds,
    store_figures,
)
from strandline.errors import EmbeddingUnavailable
from strandline.recall import calibrations
from strandline.tuning import DEFAULTS
from tests.strandline.embeddings.fake_embedders import WordEmbedder, fail_texts
from tests.support import Gateway, ScratchDatabase

SHARE = 0.7
"""The part that all vectors of a shifted space have in common."""
ANNA = "user:anna"


class ShiftedEmbedder:
    """The shipped model in a space of its own: every cosine c is 0.7 + 0.3 c there. It counts its
    texts."""

    space = "shifted/898"

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.dimensions = embedder.dimensions + 1
        self.embedded_texts: list[str] = []

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """As the protocol says."""
        self.embedded_texts += texts
        vectors = self._embedder.embed(texts, timeout=timeout, purpose=purpose)
        factor = math.sqrt(1 - SHARE)
        return [[math.sqrt(SHARE), *(factor * value for value in vector)] for vector in vectors]


@pytest.fixture
def database(scratch_db: ScratchDatabase) -> Iterator[Database]:
    opened = Database(scratch_db.url)
    yield opened
    opened.close()


def connect(database: Database, gateway: Gateway, tenant: str = "acme") -> TenantDb:
    gateway.key(tenant)
    return database.connect_as(Caller.background(tenant))


def in_one_minute() -> float:
    return time.monotonic() + 60


@pytest.mark.parametrize("model", [LocalEmbedder, EnglishEmbedder])
def test_calibrate_space_gives_figures_that_ship(
    model: type[LocalEmbedder] | type[EnglishEmbedder],
) -> None:
    measured, shipped = measure_space(model()), SHIPPED_FIGURES[model.space]
    for kind, pairs in measured._asdict().items():
        assert pairs == pytest.approx(getattr(shipped, kind), abs=0.003), kind


def test_calibrate_space_texts_are_many_and_different() -> None:
    texts = read_calibration_text_groups()
    languages = Counter(text.language for text in texts)
    assert languages["en"] >= 30
    assert len(languages) >= 10
    assert sum(languages.values()) - languages["en"] >= 30
    strings = [part for text in texts for part in text[1:]]
    assert len(set(strings)) == len(strings) == 4 * len(texts)
    assert 20 < fmean(map(len, strings)) < 120


def test_calibrate_space_moves_figures_with_the_space(embedder: Embedder) -> None:
    plain, shifted = SHIPPED_FIGURES[embedder.space], measure_space(ShiftedEmbedder(embedder))
    for kind, pairs in plain._asdict().items():
        expected = PairCosines(
            SHARE + (1 - SHARE) * pairs.mean,
            (1 - SHARE) * pairs.deviation,
            SHARE + (1 - SHARE) * pairs.related,
        )
        assert getattr(shifted, kind) == pytest.approx(expected, abs=0.002), kind


def test_calibrate_space_measures_once(
    database: Database, gateway: Gateway, embedder: Embedder
) -> None:
    model = ShiftedEmbedder(embedder)
    access = connect(database, gateway)
    assert read_figures(access, model.space) is None
    figures = ensure_calibrated(access, model, in_one_minute())
    count = len(model.embedded_texts)
    assert count == 5 * len(read_calibration_text_groups())
    assert ensure_calibrated(access, model, in_one_minute()) == figures
    other = connect(database, gateway, "other")
    assert read_figures(other, model.space) is None
    assert ensure_calibrated(other, model, in_one_minute()) == figures
    assert len(model.embedded_texts) == count


def test_calibrate_space_keeps_what_was_decided(
    database: Database, gateway: Gateway, embedder: Embedder, scratch_db: ScratchDatabase
) -> None:
    access = connect(database, gateway)
    first = ensure_calibrated(access, ShiftedEmbedder(embedder), in_one_minute())
    drifted = WordEmbedder(ShiftedEmbedder.space)
    drifted.before_embed = fail_texts()
    assert ensure_calibrated(access, drifted, in_one_minute()) == first
    assert len(scratch_db.rows("select from space_figures")) == 1


def test_calibrate_space_yields_to_another_process(
    database: Database, gateway: Gateway, embedder: Embedder
) -> None:
    """It stored its figures while this one measured."""
    access, late = connect(database, gateway), WordEmbedder()
    first = SHIPPED_FIGURES[embedder.space]

    def store_first(texts: Sequence[str]) -> None:
        with access.transaction():
            store_figures(access, late.space, first)

    late.before_embed = store_first
    assert ensure_calibrated(access, late, in_one_minute()) == first


def test_calibrate_space_leaves_nothing_half_done(
    database: Database, gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    access, model = connect(database, gateway), WordEmbedder()
    model.before_embed = fail_texts()
    with pytest.raises(EmbeddingUnavailable):
        ensure_calibrated(access, model, in_one_minute())
    with pytest.raises(EmbeddingUnavailable):
        ensure_calibrated(access, WordEmbedder(), time.monotonic() - 1)
    assert scratch_db.rows("select from space_figures") == []
    model.before_embed = lambda texts: None
    ensure_calibrated(access, model, in_one_minute())
    assert len(scratch_db.rows("select from space_figures")) == 1


def test_calibrate_space_serves_recall_like_the_shipped(
    gateway: Gateway,
    embedder: Embedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same question of the same memory in both spaces has one `known` and one order."""
    use = make_use(monkeypatch)
    answers: list[list[Any]] = []
    for model, tenant in ((embedder, "acme"), (ShiftedEmbedder(embedder), "other")):
        use(model)
        key = gateway.key(tenant, user=ANNA)
        tell(gateway, key)
        gateway.sweep()
        answers.append([ask(gateway, key, query) for query in QUESTIONS])
    for plain, shifted in zip(*answers, strict=True):
        assert shifted["known"] == pytest.approx(plain["known"], abs=0.02)
        assert [hit["text"] for hit in shifted["hits"]] == [hit["text"] for hit in plain["hits"]]
    assert answers[1][-1]["known"] < 0.5 < answers[1][0]["known"]
    # the figures come with the candidates: no statement of their own
    monkeypatch.delattr(calibrations, "read_figures")
    again = ask(gateway, key, QUESTIONS[0])
    assert again["hits"] == answers[1][0]["hits"]
    assert again["known"] == answers[1][0]["known"]


def test_calibrate_space_sweep_says_what_fails(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, use = WordEmbedder("words/64", 64), make_use(monkeypatch)
    use(model)
    key = gateway.key(user=ANNA)
    tell(gateway, key)
    model.before_embed = fail_texts()
    gateway.sweep()
    assert scratch_db.rows("select from space_figures") == []
    reasons = scratch_db.rows("select distinct reason from job_shards where state = 'failed'")
    assert reasons == [("embedding_unavailable",)]
    model.before_embed = lambda texts: None
    gateway.run_job("sweeper", "acme")
    assert scratch_db.rows("select space from space_figures") == [("words/64",)]


def test_calibrate_space_of_no_meaning_asks_everything(
    database: Database, gateway: Gateway
) -> None:
    access, model = connect(database, gateway), WordEmbedder()
    assert not ensure_calibrated(access, model, in_one_minute()).is_usable
    thresholds = read_thresholds(access, model.space, DEFAULTS)
    assert (thresholds.low, thresholds.high) == (-1, 1)


QUESTIONS = (
    "When is the boat painted?",
    "Who repairs the sail?",
    "What is the capital of Mongolia?",
)
TEXTS = (
    "The boat will be painted on the first weekend of May, in dark blue.",
    "Ingrid repairs the torn sail for ninety euros.",
    "We need new ropes and two fenders before the season starts.",
)


def tell(gateway: Gateway, key: str) -> None:
    events = [
        {
            "participants": [ANNA],
            "role": "user",
            "speaker": ANNA,
            "content": text,
            "session_id": "s",
        }
        for text in TEXTS
    ]
    reply = gateway.call("POST", "/api/v1/events/batch", {"events": events}, key=key)
    assert reply.body["failed"] == 0, reply.text


def ask(gateway: Gateway, key: str, query: str) -> Any:
    reply = gateway.call("POST", "/api/v1/recall", {"query": query, "min_relevance": 0}, key=key)
    assert reply.status == 200, reply.text
    return reply.body


def make_use(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that gives query and sweeper another embedder."""

    def use(embedder: object) -> None:
        for name in ("query", "sweeper", "worker"):
            service = importlib.import_module(f"functions.{name}.handler").resources
            monkeypatch.setitem(service.__dict__, "embedder", embedder)

    return use
