"""`make bench NAME=…` finds each measurement, and says which there are."""

import sys

import pytest

from tests.bench.__main__ import BENCHES, list_benches, main


@pytest.mark.parametrize("name", BENCHES)
def test_bench_name_tells_its_options_and_measures_nothing(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [])
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert "--help" in capsys.readouterr().out


@pytest.mark.parametrize("name", BENCHES)
def test_bench_name_refuses_unknown_option(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [])
    with pytest.raises(SystemExit) as end:
        main([name, "--locomo=absent.json", "--no-such-option"])
    assert end.value.code == 2
    assert "--no-such-option" in capsys.readouterr().err


def test_bench_without_name_lists_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) is None
    assert capsys.readouterr().out.strip() == list_benches()
    assert all(f"  {name} " in list_benches() for name in BENCHES)


def test_bench_of_unknown_name_is_refused() -> None:
    error = main(["recal"])
    assert isinstance(error, str)
    assert error.startswith("NAME: there is no bench recal.")
    assert "  recall " in error
