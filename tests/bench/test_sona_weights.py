"""The bench of a sona's weight: its measures are right, and they are in the output."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench import personas, recall_quality
from tests.bench.growth_data import StoredVectors
from tests.bench.personas import WEIGHTS, Figure, summarize, table

PLAIN: dict[str, Any] = {"references": {}, "corpora": {}, "elsewhere": {}}


def read_measures() -> dict[str, Any]:
    """Two questions: each weight gains a tenth of its own for one, and nothing for the other."""
    rows = [
        {weight: Figure(0.5 + weight / 10, 0.25) for weight in WEIGHTS},
        {weight: Figure(0.5, 0.75) for weight in WEIGHTS},
    ]
    return {"roles": "roles", "questions": 2, "groups": summarize({"own sona": rows})}


def test_sona_weights_gain_is_mean_over_questions() -> None:
    by_weight = read_measures()["groups"]["own sona"]
    assert by_weight["0"] == {"R@10": 0.5, "MRR": 0.5}
    assert by_weight["0.2"] == {"R@10": 0.51, "MRR": 0.5}
    assert list(by_weight) == [f"{weight:g}" for weight in WEIGHTS]
    lines = table(read_measures())
    assert "| as it is | 0.500 / 0.500 |" in lines
    assert "| weight 0.2 | +0.010 / +0.000 |" in lines


def test_sona_weights_output_has_figures_of_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure_plain(*_: object) -> dict[str, Any]:
        return {**PLAIN}

    def show_nothing(_: object) -> list[str]:
        return []

    monkeypatch.setattr(recall_quality, "measure", measure_plain)
    monkeypatch.setattr(recall_quality.references_quality, "table", show_nothing)
    monkeypatch.setattr(recall_quality.recall_inputs, "LocalEmbedder", StoredVectors)
    monkeypatch.setattr(personas, "measure", read_measures)
    out = tmp_path / "recall.json"
    monkeypatch.setattr(sys, "argv", ["bench", "--out", str(out)])
    recall_quality.main()
    assert json.loads(out.read_text())["personas"] == read_measures()
    assert "| weight 0.2 | +0.010 / +0.000 |" in capsys.readouterr().out
