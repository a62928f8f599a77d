"""Thresholds: a tenant's go before the deployment's, and the docs name them all."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from strandline.tuning import DEFAULTS, Tuning
from tests.bench import heat_plot


def test_the_docs_have_each_threshold_with_its_default(repository: Path) -> None:
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


def test_the_plot_in_the_docs_is_the_formulas() -> None:
    assert heat_plot.FILE.read_text("utf-8") == heat_plot.draw()


def test_overrides_change_what_they_name_and_null_changes_nothing() -> None:
    values = DEFAULTS.with_overrides({"heat_hours": 9.0, "promote": None, "similarity_low": 0.1})
    own = values.model_dump(exclude_defaults=True)
    assert own == {"heat_hours": 9.0, "similarity_low": 0.1}
    assert values.with_overrides({}) == values
    assert values.with_overrides({"hot": 0.9, "of a later release": 1}) == values
    assert values.with_overrides({"similarity_low": None}) == values


@pytest.mark.parametrize(
    "wrong", [{"promote": 2}, {"promote": float("nan")}, {"flush_events": "20"}], ids=str
)
def test_overrides_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        DEFAULTS.with_overrides(wrong)


def test_what_heat_goes_by_has_all_that_moves_its_moments() -> None:
    """A change of any other threshold sets no chain's moments anew."""
    assert set(DEFAULTS.heat_time_parameters()) == {
        *("heat_importance", "heat_density", "heat_hours", "promote", "freezing", "archive_days")
    }
