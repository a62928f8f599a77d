"""A template that is kept is of these sources, and made once for all who need it."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.infra import kept_templates
from tests.infra.kept_templates import ROOT, hash_sources, keep


@pytest.mark.parametrize(
    "source",
    ["infra/stack.py", "shared/strandline/deployment.py", "tests/infra/stacks.py", "cdk.json"],
)
def test_another_source_has_templates_of_its_own(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, read = hash_sources(), Path.read_bytes
    assert hash_sources() == before

    def edited(path: Path) -> bytes:
        return read(path) + (b"#" if path == ROOT / source else b"")

    monkeypatch.setattr(Path, "read_bytes", edited)
    assert hash_sources() != before


def test_each_is_made_once_whoever_needs_it_and_a_failure_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_templates, "_directory", lambda: tmp_path)
    made: list[str] = []

    def make() -> str:
        made.append("it")
        return json.dumps(len(made))

    def fail() -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        keep("kind", "given", fail)
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(keep, "kind", "given", make) for _ in range(8)]
    texts = [future.result() for future in futures]
    assert (texts, made) == (["1"] * 8, ["it"])
    assert keep("kind", "other", make) == keep("kind", "other", fail) == "2"
    assert keep("another", "given", make) == "3"
