"""A switch between the models that ship, and between two of a provider."""

import importlib
import json
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from strandline.config import get_settings
from strandline.embeddings.embedder import LOCAL_DIMENSIONS, LOCAL_MODEL, Embedder
from strandline.embeddings.factory import make_embedder
from strandline.embeddings.local import LocalEmbedder
from strandline.embeddings.minilm import EnglishEmbedder
from strandline.embeddings.reachable import ReachableEmbedders, require_valid_previous
from strandline.errors import Misconfigured
from strandline.function_specs import FUNCTIONS
from tests.model_server import ModelServer, Says, error
from tests.strandline.background.switches import (
    ask,
    found_by_vector,
    process_due_work,
    read_space,
    say,
)
from tests.strandline.embeddings.fake_embedders import WordEmbedder
from tests.support import NO_LIMITS_SETTINGS, Gateway, ScratchDatabase

PARAPHRASES = {
    "The boat is tied up at the northern quay.": "where did we moor the vessel",
    "My sister is allergic to peanuts.": "which food makes her ill",
    "We rented a cabin in the mountains for August.": "the hut that we hire in the summer",
}


def start_again(patch: pytest.MonkeyPatch, **settings: str) -> None:
    """Every function has these settings of embedding, and the models that they name."""
    for name, value in settings.items():
        patch.setenv(f"STRANDLINE_{name}", value)
    patch.setenv("STRANDLINE_QUERY_VECTOR_SECONDS", "10")  # however busy the machine is
    get_settings.cache_clear()
    embedder = make_embedder(get_settings())
    if get_settings().embedding_provider == "local":
        embedder.embed(["warm"], timeout=5.0)  # as a function does when it starts
    for name in [fn.name for fn in FUNCTIONS if "database" in fn.needs]:
        handler: Any = importlib.import_module(f"functions.{name}.handler")
        patch.setitem(handler.resources.__dict__, "embedder", embedder)
        patch.setitem(handler.resources.__dict__, "embedders", ReachableEmbedders(get_settings()))
        handler.resources.__dict__.pop("authenticator", None)


def test_switch_from_english_model_to_both_needs_no_setting(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = gateway.key()
    ids = say(gateway, key, *PARAPHRASES)
    gateway.sweep()
    assert read_space(scratch_db) == EnglishEmbedder.space
    before = [ask(gateway, key, question) for question in PARAPHRASES.values()]
    assert [found_by_vector(answer)[0] for answer in before] == ids
    start_again(monkeypatch)
    for question, answer in zip(PARAPHRASES.values(), before, strict=True):
        assert ask(gateway, key, question)["hits"] == answer["hits"]
    (newest,) = say(gateway, key, "The dentist moved my appointment to Thursday.")
    process_due_work(gateway)
    assert found_by_vector(ask(gateway, key, "when will my teeth be examined"))[0] == newest
    gateway.sweep()
    assert read_space(scratch_db) == f"{LOCAL_MODEL}/{LOCAL_DIMENSIONS}"
    start_again(monkeypatch)
    after = [ask(gateway, key, question) for question in PARAPHRASES.values()]
    assert [found_by_vector(answer)[0] for answer in after] == ids
    assert found_by_vector(ask(gateway, key, "when will my teeth be examined"))[0] == newest
    start_again(monkeypatch, EMBEDDING_MODEL="minilm-l6-v2-int8")
    assert [ask(gateway, key, q)["hits"] for q in PARAPHRASES.values()] == [
        answer["hits"] for answer in after
    ], "and back, while it is filled"


def test_switch_models_that_ship_are_loaded_once() -> None:
    both = LocalEmbedder()
    others = ReachableEmbedders(NO_LIMITS_SETTINGS)
    assert others.choose(both, EnglishEmbedder.space) is both.english
    english = EnglishEmbedder()
    found = others.choose(english, LocalEmbedder.space)
    assert isinstance(found, LocalEmbedder)
    assert others.choose(english, LocalEmbedder.space) is found
    assert others.choose(english, None) is english
    assert others.choose(english, "openai:nobody/3") is english
    assert others.find(english, "openai:nobody/3") is None


class Provider:
    """Two models of one provider, as local HTTP servers."""

    def __init__(self, server: ModelServer, model: Embedder) -> None:
        self.server, self._model = server, model
        self.server.otherwise = self._embed

    def _embed(self, request: dict[str, Any]) -> Says:
        vectors = self._model.embed(request["input"], timeout=1.0)
        data = [{"object": "embedding", "index": n, "embedding": v} for n, v in enumerate(vectors)]
        return Says(json.dumps({"object": "list", "data": data}).encode())

    @property
    def texts(self) -> list[str]:
        """All that it was asked to embed."""
        return [text for request in self.server.requests for text in request["input"]]


@pytest.fixture
def providers() -> Iterator[tuple[Provider, Provider]]:
    servers = ModelServer(), ModelServer()
    threads = [Thread(target=server.serve_forever, args=(0.01,)) for server in servers]
    for thread in threads:
        thread.start()
    yield (
        Provider(servers[0], WordEmbedder("a", 64)),
        Provider(servers[1], WordEmbedder("b", 96)),
    )
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        server.server_close()
        thread.join()


def test_switch_between_models_of_provider_asks_previous_one(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    providers: tuple[Provider, Provider],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = providers
    key = gateway.key()
    own = {
        "EMBEDDING_PROVIDER": "openai",
        "EMBEDDING_MODEL": "first",
        "EMBEDDING_DIMENSIONS": "64",
        "EMBEDDING_BASE_URL": first.server.url,
        "EMBEDDING_API_KEY": "key-1",
        "EMBEDDING_TEXT_PREFIX": "passage: ",
        "EMBEDDING_QUESTION_PREFIX": "query: ",
    }
    start_again(monkeypatch, **own)
    (rope,) = say(gateway, key, "harbour mooring rope")
    gateway.sweep()
    assert read_space(scratch_db) == "openai:first+passage: /64"
    start_again(
        monkeypatch,
        **{f"PREVIOUS_{name}": value for name, value in own.items()},
        EMBEDDING_MODEL="second",
        EMBEDDING_DIMENSIONS="96",
        EMBEDDING_BASE_URL=second.server.url,
        EMBEDDING_API_KEY="key-2",
        EMBEDDING_TEXT_PREFIX="",
        EMBEDDING_QUESTION_PREFIX="",
    )
    second.server.otherwise = lambda request: error(503)
    gateway.sweep()
    answer = ask(gateway, key, "mooring rope")
    assert found_by_vector(answer) == [rope]
    assert first.texts[-1] == "query: mooring rope"
    assert {h["authorization"] for h in first.server.headers} == {"Bearer key-1"}
    assert {h["authorization"] for h in second.server.headers} == {"Bearer key-2"}
    assert read_space(scratch_db) == "openai:first+passage: /64"
    second.server.otherwise = Provider(second.server, WordEmbedder("b", 96)).server.otherwise
    gateway.sweep()
    assert read_space(scratch_db) == "openai:second/96"
    monkeypatch.delenv("STRANDLINE_PREVIOUS_EMBEDDING_PROVIDER")
    start_again(monkeypatch)
    asked_count = len(first.texts)
    assert found_by_vector(ask(gateway, key, "mooring rope")) == [rope]
    assert len(first.texts) == asked_count
    assert second.texts[-1] == "mooring rope"


@pytest.mark.parametrize("missing", ["MODEL", "DIMENSIONS"])
def test_switch_needs_whole_previous_model(
    gateway: Gateway, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused where a setting is judged, and told by health where it came through."""
    del gateway
    previous = {"PROVIDER": "openai", "MODEL": "first", "DIMENSIONS": "64"}
    for name, value in previous.items():
        if name != missing:
            monkeypatch.setenv(f"STRANDLINE_PREVIOUS_EMBEDDING_{name}", value)
    get_settings.cache_clear()
    with pytest.raises(Misconfigured) as refusal:
        require_valid_previous(get_settings())
    assert "STRANDLINE_PREVIOUS_EMBEDDING_" in refusal.value.message
    english = EnglishEmbedder()
    assert ReachableEmbedders(get_settings()).find(english, "openai:first/64") is None
