"""`make bench NAME=…` finds each measurement, and says which there are."""

from importlib.util import find_spec

import pytest

from tests.bench.__main__ import BENCHES, list_benches, main


@pytest.mark.parametrize("name", BENCHES)
def test_bench_name_has_a_module(name: str) -> None:
    spec = find_spec(f"tests.bench.{BENCHES[name].module}")
    assert spec is not None
    assert spec.origin is not None
    with open(spec.origin, encoding="utf-8") as source:
        assert 'if __name__ == "__main__":' in source.read()


def test_bench_without_a_name_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) is None
    assert capsys.readouterr().out.strip() == list_benches()
    assert all(f"  {name} " in list_benches() for name in BENCHES)


def test_bench_of_an_unknown_name_is_refused() -> None:
    error = main(["recal"])
    assert error is not None
    assert error.startswith("NAME: there is no bench recal.")
    assert "  recall " in error
