"""Importing the client costs little, and needs httpx2 and pydantic alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

PROMISED_MILLISECONDS = 150  # of the processor
_MEASURE = """
import sys, time
before = set(sys.modules)
start = time.process_time()  # a machine that does other work too makes no import slower
from strandline import AsyncStrandline, Strandline
client = Strandline("http://127.0.0.1:1", "key")
elapsed = time.process_time() - start
import json
print(json.dumps([1000 * elapsed, sorted(set(sys.modules) - before)]))
"""


def run(code: str, repository: Path) -> str:
    """What a program says that has the repository's own packages."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(repository / "shared"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_an_import_is_fast_and_lazy(repository: Path) -> None:
    runs = [json.loads(run(_MEASURE, repository)) for _ in range(5)]
    assert min(milliseconds for milliseconds, _ in runs) <= PROMISED_MILLISECONDS
    modules = {name.partition(".")[0] for name in runs[0][1]}
    assert modules - sys.stdlib_module_names == {"strandline"}, "httpx2 and pydantic come with use"


def test_the_package_itself_imports_nothing(repository: Path) -> None:
    code = "import strandline, sys; print(*[n for n in sys.modules if n.startswith('strandline')])"
    assert run(code, repository).split() == ["strandline"]
    unknown = "import strandline\ntry: strandline.Colour\nexcept AttributeError as e: print(e)"
    assert run(unknown, repository).strip() == "module 'strandline' has no attribute 'Colour'"
