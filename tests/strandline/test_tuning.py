"""Thresholds: a tenant's go before the deployment's, and the docs name them all."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from strandline.chains.heat import HeatInputs, StrengthAndAccessTimes, apply_recalls, compute_heat
from strandline.tuning import DEFAULTS, Tuning


def test_tuning_docs_list_thresholds_with_defaults(repository: Path) -> None:
    table = (repository / "docs" / "heat.md").read_text("utf-8").partition("## Thresholds")[2]
    matches = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", table, re.MULTILINE))
    assert list(matches) == list(Tuning.model_fields)
    for name, default in DEFAULTS.model_dump().items():
        if isinstance(default, bool):
            spelt = f"`{str(default).lower()}`"
        else:
            spelt = {None: "calibrated"}.get(default) or (
                f"`{default}`" if isinstance(default, str) else f"{default:g}"
            )
        assert matches[name] == spelt, name


@pytest.mark.parametrize(
    ("recalled", "recall_days"),
    [
        ("never", range(0)),
        ("once, on day 2", range(2, 3)),
        ("every third day", range(3, 15, 3)),
        ("daily", range(1, 15)),
    ],
)
def test_tuning_heat_table_in_docs_follows_formula(
    repository: Path, recalled: str, recall_days: range
) -> None:
    made_at = datetime(2026, 5, 1, tzinfo=UTC)
    state = HeatInputs(importance=0.8, density=1.0, strength=1.0, accessed_at=made_at)
    use = StrengthAndAccessTimes(state.strength, None, made_at)
    heat: dict[int, str] = {}
    for day in range(15):
        now = made_at + timedelta(days=day)
        heat[day] = f"{compute_heat(state, now, DEFAULTS):.2f}"
        if day in recall_days:
            use = apply_recalls(use, [now], DEFAULTS)
            state = state._replace(strength=use.strength, accessed_at=use.accessed_at)
    text = (repository / "docs" / "heat.md").read_text("utf-8")
    days = re.findall(r"\d+", text.partition("| recalled |")[2].partition("\n")[0])
    assert len(days) == 9
    row = text.partition(f"| {recalled} | ")[2].partition(" |\n")[0]
    assert row.split(" | ") == [heat[int(day)] for day in days]


def test_tuning_overrides_change_named_values_only() -> None:
    values = DEFAULTS.with_overrides({"heat_hours": 9.0, "promote": None, "similarity_low": 0.1})
    own = values.model_dump(exclude_defaults=True)
    assert own == {"heat_hours": 9.0, "similarity_low": 0.1}
    assert values.with_overrides({}) == values
    assert values.with_overrides({"hot": 0.9, "of a later release": 1}) == values
    assert values.with_overrides({"similarity_low": None}) == values


@pytest.mark.parametrize(
    "wrong", [{"promote": 2}, {"promote": float("nan")}, {"flush_events": "20"}], ids=str
)
def test_tuning_refuses_invalid_overrides(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        DEFAULTS.with_overrides(wrong)


def test_tuning_heat_time_parameters_are_complete() -> None:
    """A change of any other threshold does not compute chains' moments again."""
    assert set(DEFAULTS.heat_time_parameters()) == {
        *("heat_importance", "heat_density", "heat_hours", "promote", "freezing", "archive_days")
    }
