"""Promise: what an append acknowledged, the next recall finds, with the embedding model down."""

import importlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from strandline.resources import Resources
from tests.strandline.embeddings.fake_embedders import KnownEmbedders, WordEmbedder, fail_texts
from tests.support import Gateway, user_message

ALICE = "user:alice"
APPENDS = 1000
_SYLLABLES = [f"{one}{two}" for one in "bdfklmnprst" for two in ("ara", "eno", "ilu", "oma", "uve")]


@pytest.fixture
def down(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """No question gets a vector, and nobody embeds what is appended."""
    embedder = WordEmbedder()
    embedder.before_embed = fail_texts()
    service: Resources = importlib.import_module("functions.query.handler").resources
    monkeypatch.setitem(service.__dict__, "embedder", embedder)
    monkeypatch.setitem(service.__dict__, "embedders", KnownEmbedders())


def missing(gateway: Gateway, appends: int, **more: object) -> list[int]:
    """Appends that the recall right after them does not find. Each text shares its words with
    others, and each question asks for three of them."""
    chance, key = random.Random(6), gateway.key(user=ALICE)
    losses: list[int] = []
    for n in range(appends):
        words = ["".join(chance.choices(_SYLLABLES, k=2)) for _ in range(8)]
        body = user_message(" ".join(words), ALICE, session_id=f"s{n % 7}")
        receipt: Any = gateway.call("POST", "/api/v1/events", body, key=key).body
        question = {"query": " ".join(chance.sample(words, 3)), **more}
        answer: Any = gateway.call("POST", "/api/v1/recall", question, key=key).body
        assert answer["degraded"] == ["no_query_vector"]
        if receipt["event_id"] not in [hit["event_id"] for hit in answer["hits"]]:
            losses.append(n)
    return losses


@pytest.mark.usefixtures("down")
def test_read_own_writes_recall_finds_every_append(
    gateway: Gateway, proof_size: Callable[[int], int]
) -> None:
    assert missing(gateway, proof_size(APPENDS)) == []


@pytest.mark.usefixtures("down")
def test_read_own_writes_test_detects_recall_elsewhere(gateway: Gateway) -> None:
    assert missing(gateway, 3, session_id="another") == [0, 1, 2]
