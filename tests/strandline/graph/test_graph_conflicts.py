"""Contradictions, and what to weigh before something is stored, through the API."""

import importlib
from typing import Any

import pytest

from strandline.config import get_settings
from strandline.graph.conflicts import find_conflicts
from strandline.graph.conflicts import store_similar_facts as conflicts_store
from strandline.llm.provider import ModelReply, ModelRequest
from strandline.llm.tasks import LlmTasks
from strandline.resources import Resources
from tests.strandline.graph.node_search import ask, names, store
from tests.support import Gateway, ScratchDatabase

FACTS: list[dict[str, Any]] = [
    {"type": "fact", "content": "Ada lives in Oslo"},
    {"type": "fact", "content": "Ada lives in Bergen"},
    {"type": "fact", "content": "The ferry leaves at nine", "category": "professional"},
    {"type": "fact", "content": "Ada likes rowing"},
]


def test_graph_conflict_names_two_contradicting_facts(gateway: Gateway) -> None:
    key = gateway.key()
    oslo, bergen, *_ = store(gateway, key, FACTS)
    gateway.sweep()
    conflicts_ = ask(gateway, key, "conflicts")
    (conflict,) = conflicts_["conflicts"]
    assert {fact["id"] for fact in conflict["facts"]} == {oslo, bergen}
    assert conflict["similarity"] >= conflicts_["threshold"]
    assert conflict["tests"] == [
        {
            "test": "deterministic",
            "contradicts": True,
            "reason": "they give different values to what has one at a time",
            "model": None,
        }
    ]
    assert conflicts_["degraded"] == ["no_model"]
    newer, older = (fact["id"] for fact in conflict["facts"])
    assert f"If {newer}, the newer one, holds, invalidate {older}" in conflict["suggestion"]
    assert ask(gateway, key, "conflicts", category="professional")["conflicts"] == []
    assert ask(gateway, key, "conflicts", threshold=0.999)["compared"] == 0
    by_id = ask(gateway, key, "conflicts", node_id=oslo)
    assert [fact["id"] for c in by_id["conflicts"] for fact in c["facts"]] == [newer, older]


def test_graph_conflict_check_reports_facts_not_compared(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = gateway.key()
    oslo, *_ = store(gateway, key, FACTS)
    gateway.sweep()
    monkeypatch.setattr(conflicts_store, "MAX_SCANNED", 4)
    assert ask(gateway, key, "conflicts")["degraded"] == ["no_model"], "all were compared"
    monkeypatch.setattr(conflicts_store, "MAX_SCANNED", 3)
    assert ask(gateway, key, "conflicts")["degraded"] == ["no_model", "facts_cut"]
    one = ask(gateway, key, "conflicts", category="professional")
    assert (one["compared"], one["degraded"]) == (0, ["no_model"]), "one fact is none too many"
    monkeypatch.setattr(conflicts_store, "MAX_PAIRS", 1)
    for subject in ({}, {"content": "Ada lives in Rome"}, {"node_id": oslo}):
        cut = ask(gateway, key, "conflicts", threshold=0.01, **subject)
        assert (cut["compared"], cut["degraded"][-1]) == (1, "pairs_cut")
    advice = ask(gateway, key, "analyze", content="Ada lives in Rome", content_type="statement")
    assert advice["degraded"] == ["no_model", "pairs_cut"]


def test_graph_conflict_is_resolved_by_invalidation(gateway: Gateway) -> None:
    key = gateway.key()
    oslo, *_ = store(gateway, key, FACTS[:1])
    gateway.sweep()
    conflicts_ = ask(gateway, key, "conflicts", content="Ada lives in Bergen")
    (conflict,) = conflicts_["conflicts"]
    assert [fact["id"] for fact in conflict["facts"]] == [None, oslo]
    bergen = {**FACTS[1], "invalidates": oslo, "reason": "She moved."}
    store(gateway, key, [bergen])
    gateway.sweep()
    assert ask(gateway, key, "conflicts")["conflicts"] == []
    assert ask(gateway, key, "conflicts", content="ada lives in bergen.")["conflicts"] == [], (
        "the same is no contradiction"
    )
    again = ask(gateway, key, "conflicts", content="Ada does not live in Bergen")
    assert again["conflicts"][0]["tests"][0]["reason"] == "one denies what the other says"


def test_graph_conflict_check_stores_nothing(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    key = gateway.key()
    store(gateway, key, FACTS)
    before = scratch_db.rows("select count(*) from events")
    ask(gateway, key, "conflicts", content="Ada lives in Rome")
    ask(gateway, key, "analyze", content="Ada lives in Rome", content_type="statement")
    assert scratch_db.rows("select count(*) from events") == before


def test_graph_conflict_analysis_advises_before_storing(gateway: Gateway) -> None:
    key = gateway.key()
    topic = {"type": "topic", "name": "Rowing", "description": "Boats, oars and races."}
    ada = {"type": "entity", "name": "Ada", "kind": "person"}
    fact, *_, ada_id, topic_id = store(gateway, key, [*FACTS, ada, topic])
    gateway.sweep()
    answer = ask(gateway, key, "analyze", content="Ada lives in Rome", content_type="statement")
    advice = {item["code"]: item["node_ids"] for item in answer["weigh"]}
    assert fact in advice["contradicts"]
    assert advice["known_names"] == [ada_id]
    assert len(answer["conflicts"]) == 2
    assert "Ada lives in Oslo" in names({"nodes": answer["related"]})
    assert any(line.startswith("fact: content") for line in answer["store_as"])
    analysis = ask(gateway, key, "analyze", content="Ada lives in OSLO.", content_type="statement")
    assert {item["code"]: item["node_ids"] for item in analysis["weigh"]}["known_already"] == [fact]
    talk = ask(gateway, key, "analyze", content="We rowed a race with new oars.")
    assert topic_id in {item["code"]: item["node_ids"] for item in talk["weigh"]}["near_topic"]
    assert talk["conflicts"] == []
    nothing = ask(gateway, gateway.key("globex"), "analyze", content="Ada lives in Rome")
    assert [item["code"] for item in nothing["weigh"]] == ["nothing_related"]


class Verdicts:
    """A model that says what it is told, and else that two statements contradict each other."""

    name, output_mode = "judge:1", "json_schema"

    def __init__(self) -> None:
        self.script: list[str] = []
        self.prompts: list[str] = []

    def ask(
        self, request: ModelRequest, mode: str, *, is_proven: bool, timeout: float
    ) -> ModelReply:
        """The next line of the script."""
        del mode, is_proven, timeout
        self.prompts.append(request.data)
        return ModelReply(self.script.pop(0) if self.script else '{"contradicts": true}', 1, 1)


def test_graph_conflict_check_asks_and_names_model(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    service: Resources = importlib.import_module("functions.query.handler").resources
    model = Verdicts()
    monkeypatch.setitem(service.__dict__, "llm", LlmTasks(service.database, get_settings(), model))
    key = gateway.key()
    facts = ["user:ada eats no meat", "user:ada eats steak on user:zoe's boat"]
    store(gateway, key, [{"type": "fact", "content": text} for text in facts])
    gateway.sweep()
    conflicts_ = ask(gateway, key, "conflicts", threshold=0.2)
    (conflict,) = conflicts_["conflicts"]
    assert [(test["test"], test["contradicts"]) for test in conflict["tests"]] == [
        ("deterministic", False),
        ("model", True),
    ]
    assert conflict["tests"][1]["model"] == "judge:1"
    (prompt,) = model.prompts
    assert "user:ada" in prompt
    assert "user:zoe" not in prompt, "nobody who was not there is named by id"
    assert scratch_db.rows("select task, outcome from model_calls") == [("contradicts", "ok")]
    model.script = ["no JSON"] * 2
    failed = ask(gateway, key, "conflicts", threshold=0.2)
    assert (failed["conflicts"], failed["degraded"]) == ([], ["model_failed"])
    with monkeypatch.context() as patch:
        patch.setattr(find_conflicts, "_MAX_MODEL_PAIRS", 0)
        assert ask(gateway, key, "conflicts", threshold=0.2)["degraded"] == ["model_cut"]
    model.script = ['{"contradicts": false}']
    denied = ask(gateway, key, "conflicts", threshold=0.2)
    assert (denied["conflicts"], denied["degraded"]) == ([], [])


def test_graph_conflict_check_lists_undecided_similar_facts(gateway: Gateway) -> None:
    key = gateway.key()
    likes, hates = "Nils likes olives on his bread", "Nils hates olives on his bread"
    store(gateway, key, [{"type": "fact", "content": text} for text in (likes, hates)])
    gateway.sweep()
    answer = ask(gateway, key, "conflicts")
    assert answer["conflicts"] == []
    (pair,) = answer["candidates"]
    assert {fact["content"] for fact in pair["facts"]} == {likes, hates}
    assert pair["similarity"] >= answer["threshold"]
    assert not pair["tests"][0]["contradicts"]


def test_graph_conflict_analysis_compares_default_type(gateway: Gateway) -> None:
    key = gateway.key()
    store(gateway, key, [{"type": "fact", "content": "Linnea is allergic to nuts."}])
    gateway.sweep()
    advice = ask(gateway, key, "analyze", content="Linnea is not allergic to nuts.")
    (conflict,) = advice["conflicts"]
    assert conflict["facts"][1]["content"] == "Linnea is allergic to nuts."
    assert "contradicts" in {item["code"] for item in advice["weigh"]}
