"""Importing the client costs little, and needs httpx2 and pydantic alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

PROMISED_MODULES = 130
"""Most modules that an import of the client loads, those of the standard library among them. Unlike
its time, their count is the same on a busy machine."""
LIST_MODULES = """
import sys
before = set(sys.modules)
from strandline import AsyncStrandline, Strandline
client = Strandline("http://127.0.0.1:1", "key")
modules = sorted(set(sys.modules) - before)
import json
print(json.dumps(modules))
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


def test_client_import_is_small_and_lazy(repository: Path) -> None:
    modules: list[str] = json.loads(run(LIST_MODULES, repository))
    assert len(modules) <= PROMISED_MODULES
    packages = {name.partition(".")[0] for name in modules}
    assert packages - sys.stdlib_module_names == {"strandline"}, "httpx2 and pydantic come with use"


def test_the_package_itself_imports_nothing(repository: Path) -> None:
    code = "import strandline, sys; print(*[n for n in sys.modules if n.startswith('strandline')])"
    assert run(code, repository).split() == ["strandline"]
    unknown = "import strandline\ntry: strandline.Colour\nexcept AttributeError as e: print(e)"
    assert run(unknown, repository).strip() == "module 'strandline' has no attribute 'Colour'"
