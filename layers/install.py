"""Installs the packages of a lock into a virtual environment, and shows progress.

    python layers/install.py DIRECTORY LOCK                  (make run, make test)

Installed packages are kept if their pins are in the lock. If the environment has other pins, it is
built again. The program needs only Python's standard library.
"""

import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_LINE_SECONDS = 5.0
"""Seconds between two lines of progress if the output is not a terminal."""
_POLL_SECONDS = 0.5
_PIP = [
    *("-m", "pip", "install", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
    *("--no-compile", "--progress-bar", "off"),  # bytecode is compiled on first use: half the time
]
_ENVIRONMENT = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
}
_PIN = re.compile(r"^[a-z0-9][\w.\[\]-]*==[^\s;\\]+", re.MULTILINE | re.IGNORECASE)


def parse_pins(lock: str) -> set[str]:
    """Every `name==version` of a lock."""
    return set(_PIN.findall(lock))


class SetupError(Exception):
    """A step of the set-up failed; the message says which and why."""


class Setup:
    """Creates or completes one environment."""

    def __init__(self, directory: Path, lock: Path) -> None:
        self._directory, self._lock = directory, lock
        self._python = directory / "bin" / "python"
        self._pins_file = directory / ".installed"
        self._scratch = directory / ".scratch"
        self._child: subprocess.Popen[str] | None = None
        self._progress = _Progress()

    def run(self) -> None:
        """Install what is missing. Raises SetupError."""
        required = parse_pins(self._lock.read_text())
        pins = parse_pins(self._pins_file.read_text()) if self._pins_file.exists() else set[str]()
        if required <= pins and self._python.exists():
            return
        if self._directory.is_symlink():  # its target belongs to somebody else
            raise SetupError(
                f"{self._directory} is a link to another environment and does not match "
                f"{self._lock}: remake it where it lies, or remove the link"
            )
        is_fresh = not pins <= required or not pins or not self._python.exists()
        if is_fresh:
            self._say(f"making {self._directory} with Python {sys.version.split()[0]}")
            venv.EnvBuilder(clear=True, symlinks=True).create(self._directory)
            self._call("pip", ["-m", "ensurepip", "--default-pip"])
        missing = len(required) if is_fresh else len(required - pins)
        self._say(
            f"installing {missing} packages from {self._lock} (a minute or two the first time)"
        )
        self._pins_file.unlink(missing_ok=True)
        self._call("packages", [*_PIP, "-r", str(self._lock)])
        self._pins_file.write_text("".join(f"{pin}\n" for pin in sorted(required)))
        self._progress.end(f"installed {missing} packages in {self._progress.seconds():.0f} s")

    def stop(self, *_: object) -> None:
        """End the program and its child at once, on Ctrl-C."""
        for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C in a terminal sends both
            signal.signal(number, signal.SIG_IGN)
        if self._child is not None and self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)
        os.write(2, b"\nstrandline: interrupted; the next `make` begins it again\n")
        os._exit(130)

    def _say(self, text: str) -> None:
        self._progress.end(f"{text} …")

    def _call(self, step: str, arguments: list[str]) -> None:
        """Run the environment's Python and turn its output into progress."""
        self._scratch.mkdir(exist_ok=True)
        with tempfile.TemporaryFile("w+") as errors:
            self._child = subprocess.Popen(  # noqa: S603 - pip, of the environment
                [str(self._python), "-W", "ignore", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | _ENVIRONMENT | {"TMPDIR": str(self._scratch.absolute())},
                start_new_session=True,  # this program handles Ctrl-C
            )
            assert self._child.stdout is not None
            output: list[str] = []
            for line in _lines(self._child.stdout):
                if line:
                    output.append(line)
                self._show(line)
            if self._child.wait():
                errors.seek(0)
                raise SetupError(f"installing {step} failed: {_reason(errors.read(), output)}")
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _show(self, line: str) -> None:
        """Show a line of pip's output as progress; an empty one means nothing new."""
        if match := re.match(r"(?:Collecting|Requirement already satisfied:) ([^\s=<>;\[]+)", line):
            self._progress.step(f"fetching {match[1]}")
        elif line.startswith("Installing collected packages"):
            self._progress.step("unpacking")
        else:
            self._progress.step("")


class _Progress:
    """One line that is redrawn on a terminal; otherwise a line every few seconds."""

    def __init__(self) -> None:
        self._start = self._last_output = time.monotonic()
        self._activity = ""
        self._terminal = sys.stdout.isatty()

    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def step(self, activity: str) -> None:
        """Show the current activity, or that it continues."""
        self._activity = activity or self._activity
        text = f"strandline:   {self.seconds():3.0f} s  {self._activity}"
        if self._terminal:
            sys.stdout.write(f"\r\x1b[K{text[:78]}")
        elif self._activity and time.monotonic() - self._last_output >= _LINE_SECONDS:
            self._last_output = time.monotonic()
            sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def end(self, text: str) -> None:
        """Print a line that stays."""
        start = "\r\x1b[K" if self._terminal else ""
        sys.stdout.write(f"{start}strandline: {text}\n")
        sys.stdout.flush()
        self._activity, self._last_output = "", time.monotonic()


def _lines(pipe: IO[str]) -> Iterator[str]:
    """The lines of a program until it ends; an empty line whenever it is silent for a while."""
    os.set_blocking(pipe.fileno(), False)
    rest = ""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if not selector.select(_POLL_SECONDS):
                yield ""
                continue
            data = os.read(pipe.fileno(), 65536)
            if not data:
                return
            *whole, rest = (rest + data.decode(errors="replace")).split("\n")
            yield from filter(None, whole)


def _reason(errors: str, output: list[str]) -> str:
    """The reason of the failure in pip's words, without its warnings."""
    lines = [line for line in errors.splitlines() if line and not line.startswith("WARNING")]
    return "\n".join((lines or output)[-12:]) or "it gave no reason"


def main() -> int:
    """Set up the environment. Returns 1 on failure."""
    setup = Setup(Path(sys.argv[1]), Path(sys.argv[2]))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, setup.stop)
    try:
        setup.run()
    except (SetupError, OSError) as error:
        sys.stderr.write(f"\nstrandline: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
