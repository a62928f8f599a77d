"""Templates, kept in build/ for as long as no source of them changes: one takes a second to make,
and the CDK several to start."""

import fcntl
import functools
import hashlib
import importlib.metadata
import re
import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "build" / "templates"
FOLDERS = ("infra", "layers")
"""And of the package what these import."""
PROGRAMS = {
    *("infra/prices.py", "infra/database_figures.py", "infra/cost_tables.py"),
    *("infra/capacity_estimate.py", "infra/preflight.py", "infra/smoke.py"),
    *("infra/first_key.py", "infra/teardown.py", "infra/account_session.py"),
}
"""Of them, what the stack does not import."""
FILES = ("cdk.json", "tests/infra/stacks.py", "tests/infra/synthesis.py")
PACKAGES = ("aws-cdk-lib", "cdk-nag", "constructs")
_IMPORT = re.compile(
    r"^ *(?:import (strandline[\w.]*)|from (strandline[\w.]*) import (\([^)]*\)|.*))", re.MULTILINE
)
MAX_AGE_SECONDS = 86_400.0
"""Templates of other sources are removed after a day."""


def keep(kind: str, props: str, make: Callable[[], str]) -> str:
    """What `make` gives for `given`: a text that rests on these and the sources alone. It is made
    by anyone who needs it first; others wait for it, also in other processes."""
    name = hashlib.sha256(props.encode()).hexdigest()[:32]
    file = _directory() / f"{kind}-{name}.json"
    with _alone_with(file):
        if not file.exists():
            part = file.with_suffix(".part")
            part.write_text(make(), "utf-8")
            part.replace(file)
        return file.read_text("utf-8")


def hash_sources() -> str:
    """Of every file that a template may rest on, and of the packages that make it."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
    digest = hashlib.sha256(f"{sys.version} {versions}".encode())
    for path, data in sorted(read_sources().items()):
        digest.update(f"{path.relative_to(ROOT)}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:32]


def read_sources() -> dict[Path, bytes]:
    """Every file that a template may rest on."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    todo = [*(ROOT / name for name in FILES), *files]
    results: dict[Path, bytes] = {}
    while todo:
        path = todo.pop()
        if path not in results and "__pycache__" not in path.parts:
            results[path] = path.read_bytes()
            name = str(path.relative_to(ROOT))
            # The package itself imports nothing but for those who ask it for the client.
            if path.suffix == ".py" and name not in {*PROGRAMS, "shared/strandline/__init__.py"}:
                todo += _imports(results[path].decode())
    return results


def _imports(text: str) -> Iterator[Path]:
    """The files of the package that a text imports, at its start or later."""
    for module, package, names in _IMPORT.findall(text):
        stems = [module or package, *(f"{package}.{name}" for name in re.findall(r"\w+", names))]
        for stem in stems:
            parts = stem.split(".")
            folders = ["/".join(parts[: n + 1]) for n in range(len(parts))]
            files = (f"{folder}{end}" for folder in folders for end in (".py", "/__init__.py"))
            yield from (path for file in files if (path := ROOT / "shared" / file).exists())


@functools.cache
def _directory() -> Path:
    directory = TEMPLATES / hash_sources()
    directory.mkdir(parents=True, exist_ok=True)
    for other in TEMPLATES.iterdir():
        if other != directory and other.stat().st_mtime < time.time() - MAX_AGE_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    return directory


@contextmanager
def _alone_with(file: Path) -> Generator[None]:
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
