"""The distributions as they are built, and environments into which they are installed."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = {"strandline": ROOT, "strandline_service": ROOT / "shared"}
"""What is built of which folder."""


@dataclass(frozen=True)
class Installation:
    """An environment, and the wheel that was installed into it."""

    directory: Path
    wheel: Path

    def run(self, code: str, **environment: str) -> str:
        """What a program says in it. It sees nothing of the repository."""
        return self.call("-c", code, **environment)

    def call(self, *arguments: str, **environment: str) -> str:
        """What its Python says of these arguments, likewise. Raises AssertionError with what was
        said where it fails."""
        process = subprocess.run(
            [str(self.directory / "bin" / "python"), "-I", *arguments],
            cwd=self.directory,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout


def _call(folder: Path, *command: str) -> None:
    subprocess.run([sys.executable, "-m", *command], cwd=folder, check=True, capture_output=True)


def build_wheel(name: str, place: Path) -> Path:
    """Build one of the distributions."""
    _call(FOLDERS[name], "hatchling", "build", "-t", "wheel", "-d", str(place))
    (wheel,) = place.glob(f"{name}-*.whl")
    return wheel


def install_client(wheel: Path, place: Path, python: str = sys.executable) -> Installation:
    """An empty environment of a Python, the client's lock, and the wheel."""
    _call(ROOT, "uv", "venv", "--quiet", "--python", python, str(place))
    pip = ("uv", "pip", "install", "--quiet", "--python", str(place))
    _call(ROOT, *pip, "--no-deps", "--require-hashes", "-r", "requirements/client.lock")
    _call(ROOT, *pip, "--no-deps", str(wheel))
    return Installation(place, wheel)


def find_pythons() -> dict[str, str]:
    """Each Python of this machine that the client is for, other than this one: its version, and
    its program."""
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = dict[str, str]()
    for minor in range(10, 20):
        version = f"3.{minor}"
        kept = sorted(home.glob(f"versions/{version}.*/bin/python"))
        program = str(kept[-1]) if kept else shutil.which(f"python{version}")
        if program and minor != sys.version_info.minor:
            found[version] = program
    return found
