"""The bench's own sums: who takes turns with whom, and what the table says of it."""

import json
from collections.abc import Sequence
from pathlib import Path

from strandline.embeddings.embedder import Purpose
from tests.bench import report
from tests.bench.cost import Call, RememberingEmbedder, interleave

CALL = {"write_batch_ms": 0.2, "search_p50_ms": 5.0, "search_p95_ms": 9.0}
COST = {
    "strandline": {"write_ms": 1.5, **CALL},
    "bare_postgres": {"write_ms": 0.5, **CALL, "search_p50_ms": 4.0},
    "writers4": {
        "append": 600.0,
        "handler": 500.0,
        "bare": 1000.0,
        "append_share": 0.6,
        "handler_share": 0.5,
    },
}


def test_bench_cost_sides_take_turns() -> None:
    order: list[str] = []

    def calls(name: str) -> list[Call]:
        return [lambda: order.append(name)] * 5

    took = interleave({"a": calls("a"), "b": calls("b")}, 2)
    assert "".join(order) == "aabb" + "bbaa" + "ab"
    assert {name: len(seconds) for name, seconds in took.items()} == {"a": 5, "b": 5}


def test_bench_cost_table_compares_both_sides() -> None:
    lines = list(report.cost_table(COST))
    assert "| strandline | 1.500 | 0.200 | 5.000 | 9.000 |" in lines
    assert "| bare_postgres | 0.500 | 0.200 | 4.000 | 9.000 |" in lines
    assert "| strandline : bare_postgres | 3.00 | 1.00 | 1.25 | 1.00 |" in lines
    assert "| append service function | 600 | 60% |" in lines
    assert len({line.count("|") for line in lines if "ms" in line or "strandline" in line}) == 1


def test_bench_cost_report_without_costs_keeps_measurements(tmp_path: Path) -> None:
    assert list(report.cost_table({})) == []
    file = tmp_path / "bench.json"
    report.write(file, {"cpus": 2}, quality={"strandline": {"MRR": 0.5}}, cost=COST)
    report.write(file, {"python": "3.13"}, quality={"bare_postgres": {"MRR": 0.4}}, cost={})
    document = json.loads(file.read_bytes())
    assert document["cost"] == COST
    assert document["quality"] == {"strandline": {"MRR": 0.5}, "bare_postgres": {"MRR": 0.4}}
    assert document["environment"] == {"cpus": 2, "python": "3.13"}


class _Lengths:
    """An embedder whose vectors are the lengths of texts, and what it was asked for."""

    space, dimensions = "space", 1

    def __init__(self) -> None:
        self.requests: list[Sequence[str]] = []

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        self.requests.append(texts)
        return [[float(len(text))] for text in texts]


def test_bench_cost_embeds_known_text_once() -> None:
    embedder = RememberingEmbedder(model := _Lengths())
    assert embedder.embed(["a", "bb", "a"], timeout=1.0) == [[1.0], [2.0], [1.0]]
    assert embedder.embed(["bb", "ccc"], timeout=1.0) == [[2.0], [3.0]]
    assert model.requests == [["a", "bb"], ["ccc"]]


def test_bench_cost_keeps_vectors_between_runs(tmp_path: Path) -> None:
    file = tmp_path / "vectors.db"
    assert RememberingEmbedder(_Lengths(), file).embed(["a", "bb"], timeout=1.0) == [[1.0], [2.0]]
    again = RememberingEmbedder(model := _Lengths(), file)
    assert again.embed(["bb", "a", "ccc"], timeout=1.0) == [[2.0], [1.0], [3.0]]
    assert model.requests == [["ccc"]]
