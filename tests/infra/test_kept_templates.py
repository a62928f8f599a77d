"""A template that is kept is of these sources, and made once for all who need it."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.infra import kept_templates
from tests.infra.kept_templates import ROOT, hash_sources, keep, read_sources


@pytest.mark.parametrize(
    "source",
    [
        *("infra/stack.py", "infra/job.asl.json", "tests/infra/stacks.py", "cdk.json"),
        *("shared/strandline/function_specs.py", "shared/strandline/observability.py"),
    ],
)
def test_kept_templates_differ_by_source(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, read = hash_sources(), Path.read_bytes
    assert hash_sources() == before

    def edit(path: Path) -> bytes:
        return read(path) + (b"#" if path == ROOT / source else b"")

    monkeypatch.setattr(Path, "read_bytes", edit)
    assert hash_sources() != before


def test_kept_templates_survive_unrelated_change() -> None:
    sources = {str(path.relative_to(ROOT)) for path in read_sources()}
    assert not sources & {"shared/strandline/chains/store.py", "shared/strandline/log/append.py"}
    assert not [name for name in sources if name.endswith(".sql")]


@pytest.mark.proof
def test_kept_templates_sources_cover_imports() -> None:
    """By the interpreter, in a process that makes templates and nothing else."""
    program = (
        "import sys, tests.infra.synthesis\n"
        "print(*(m.__file__ for n, m in sys.modules.items() if n.startswith('strandline')))"
    )
    process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"shared{os.pathsep}."},
        capture_output=True,
        text=True,
        check=True,
    )
    paths = {Path(name) for name in process.stdout.split()}
    assert ROOT / "shared/strandline/function_specs.py" in paths
    assert paths <= read_sources().keys()


def test_kept_templates_are_made_once_and_failures_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_templates, "_directory", lambda: tmp_path)
    results: list[str] = []

    def make() -> str:
        results.append("it")
        return json.dumps(len(results))

    def fail() -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        keep("kind", "given", fail)
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(keep, "kind", "given", make) for _ in range(8)]
    texts = [future.result() for future in futures]
    assert (texts, results) == (["1"] * 8, ["it"])
    assert keep("kind", "other", make) == keep("kind", "other", fail) == "2"
    assert keep("another", "given", make) == "3"
