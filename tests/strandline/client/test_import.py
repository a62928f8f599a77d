"""Importing the client costs little, and needs httpx2 and pydantic alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.strandline.client.promised_modules import LIST_MODULES, PROMISED_MODULES

pytestmark = pytest.mark.integration


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


def test_client_import_of_package_loads_no_module(repository: Path) -> None:
    code = "import strandline, sys; print(*[n for n in sys.modules if n.startswith('strandline')])"
    assert run(code, repository).split() == ["strandline"]
    unknown = "import strandline\ntry: strandline.Colour\nexcept AttributeError as e: print(e)"
    assert run(unknown, repository).strip() == "module 'strandline' has no attribute 'Colour'"
