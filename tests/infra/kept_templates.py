"""Templates, kept in build/ for as long as no source of them changes: one takes a second to make,
and the CDK several to start."""

import fcntl
import functools
import hashlib
import importlib.metadata
import shutil
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "templates"
FOLDERS = ("infra", "layers", "shared/strandline")
FILES = ("cdk.json", "tests/infra/stacks.py", "tests/infra/synthesis.py")
PACKAGES = ("aws-cdk-lib", "cdk-nag", "constructs")
MAX_AGE_SECONDS = 86_400.0
"""Templates of other sources are removed after a day."""


def keep(kind: str, given: str, make: Callable[[], str]) -> str:
    """What `make` gives for `given`: a text that rests on these and the sources alone. It is made
    by whoever needs it first; others wait for it, also in other processes."""
    name = hashlib.sha256(given.encode()).hexdigest()[:32]
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
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in sorted([*(ROOT / name for name in FILES), *files]):
        if "__pycache__" not in path.parts:
            data = path.read_bytes()
            digest.update(f"{path.relative_to(ROOT)}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:32]


@functools.cache
def _directory() -> Path:
    directory = KEPT / hash_sources()
    directory.mkdir(parents=True, exist_ok=True)
    for other in KEPT.iterdir():
        if other != directory and other.stat().st_mtime < time.time() - MAX_AGE_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    return directory


@contextmanager
def _alone_with(file: Path) -> Generator[None]:
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
