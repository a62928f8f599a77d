"""What docs/scale.md says a stack serves is what the arithmetic gives."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from infra import capacity_estimate
from infra.capacity_estimate import StackCapacity
from infra.load_settings import load_stage_settings
from infra.prices import FIGURES, LARGE_VIEW, USUAL_VIEW
from strandline.function_specs import FUNCTIONS
from tests.infra.cdk_context import context


def test_capacity_estimate_table_in_docs_is_current() -> None:
    text = capacity_estimate.DOCUMENT.read_text()
    assert capacity_estimate.replace_table_in_document(text) == text, "make scale"
    with pytest.raises(ValueError, match="has no"):
        capacity_estimate.replace_table_in_document(text.replace(capacity_estimate.END, ""))


def test_capacity_estimate_matches_hand_calculation(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 units: 0.7 of a core, 20 ms a recall, 5 ms an event; a tenant takes 15 s of CPU a day, at
    its peak four times as fast: 694 microseconds a second. They cache 6 GiB, a caller 20 MiB."""
    recall = replace(FIGURES.recall[LARGE_VIEW], hot_pages=2560)
    monkeypatch.setattr(capacity_estimate, "FIGURES", replace(FIGURES, recall={LARGE_VIEW: recall}))
    monkeypatch.setattr(capacity_estimate, "CPU_OF_RECALL", 0.020)
    monkeypatch.setattr(capacity_estimate, "CPU_OF_EVENT", 0.005)
    cell = StackCapacity(4)
    assert cell.recalls_per_second == pytest.approx(0.7 / 0.020)
    assert cell.events_per_second == pytest.approx(140)
    assert cell.worker_instances == 7
    assert cell.tenants_at_peak == 1000
    assert cell.cached_tenants == 307
    assert cell.gigabytes_a_year == pytest.approx(1000 * 1000 * 365 * 5 / 1e6)
    assert cell.usd_a_month_at_maximum == pytest.approx(4 * 730 * 0.12)


def test_capacity_estimate_bounds_gateway_rate() -> None:
    for stage in ("dev", "prod"):
        settings = load_stage_settings(context(stage=stage))
        cell = StackCapacity(int(settings.max_capacity))
        assert (
            cell.recalls_per_second
            < cell.accepted_requests_per_second
            <= cell.recalls_per_second / capacity_estimate.BUSY * 1.05
        )
        assert cell.accepted_requests_per_second == settings.request_rate


def test_capacity_estimate_instances_and_quota_match_docs(repository: Path) -> None:
    """Who asks AWS for less cannot deploy: 100 instances stay for what reserves none."""
    reserved = sum(fn.reserved_concurrency for fn in FUNCTIONS)
    guide, text = ((repository / "docs" / name).read_text() for name in ("deploy.md", "scale.md"))
    assert f"{reserved + 100} for the {reserved} that" in guide
    assert f"{reserved} reserved instances hold one each" in text
    assert f"{reserved + 100} for one stack" in text


def test_capacity_estimate_uses_measured_figures(repository: Path) -> None:
    """A figure that is measured again is to be taken over here."""
    docs = repository / "docs"
    text = capacity_estimate.DOCUMENT.read_text()
    recall_ms, event_ms = (FIGURES.recall[USUAL_VIEW].database_ms, FIGURES.event.database_ms)
    assert f"{recall_ms:.1f} ms and {event_ms:.1f} ms of the database's CPU" in text
    proofs, recall = ((docs / name).read_text() for name in ("proofs.md", "recall.md"))
    (write, batch) = re.findall(r"\| Strandline \| (\d\.\d+) \| (\d\.\d+) \|", proofs)[0]
    assert f"({float(write):.2f} ms each)" in text
    assert f"({float(batch):.2f} ms each)" in text
    assert re.search(r"359 to 423 events/s", proofs)
    assert "359 to 423 events a second" in text
    (large,) = re.findall(r"\| one scope \| 100,000 \| 100,000 \| ([\d.]+) \|", recall)
    (small,) = re.findall(r"\| one scope \| 1,000 \| 1,000 \| ([\d.]+) \|", recall)
    (many,) = re.findall(r"\| many scopes, all seen \| 100,000 \| 100,000 \| ([\d.]+) \|", recall)
    waits = f"waits {float(large):.0f} to {float(many):.0f} ms instead of {float(small):.0f}"
    assert waits in text
