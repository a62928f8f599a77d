"""Parts of `make prove`: programs that run within a bound, and what became of them."""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

AT_ONCE = 2
"""Parts that run side by side: as many as the promised machine has processors."""
GRACE_SECONDS = 20.0
"""From the interrupt, which lets a part put away its servers, to its kill."""
_CASES = re.compile(r"^schemathesis, share \d+: (\d+) cases", re.MULTILINE)
_NOISE = '{"level":'


@dataclass(frozen=True)
class Part:
    """One program of the proofs."""

    name: str
    command: tuple[str, ...]
    seconds: float
    """It may take so many."""
    alone: bool = False
    """It measures time: nothing else may run beside it."""


@dataclass(frozen=True)
class Ended:
    """What became of a part."""

    part: Part
    seconds: float
    status: int | None
    """Its exit status; None where it was over its bound."""
    said: str

    @property
    def passed(self) -> bool:
        """Whether it ended by itself, and well."""
        return self.status == 0

    @property
    def verdict(self) -> str:
        """In words."""
        if self.status is None:
            return f"STOPPED: over its bound of {self.part.seconds:,.0f} s"
        return "passed" if self.passed else f"FAILED with {self.status}"


def run(parts: Sequence[Part], place: Path) -> list[Ended]:
    """Run those that may share the machine two at a time, then the others one by one; says what
    each said once it ends. What they print goes into files of `place` meanwhile. However this
    ends, none of them is left running."""
    running = _Running()
    ended: list[Ended] = []
    try:
        for alone, at_once in ((False, AT_ONCE), (True, 1)):
            with ThreadPoolExecutor(at_once) as pool:
                chosen = [part for part in parts if part.alone == alone]
                waiting = [pool.submit(_run, part, place, running) for part in chosen]
                try:
                    ended += [one.result() for one in waiting]
                except BaseException:
                    running.stop()  # before the pool waits for its threads
                    raise
    finally:
        running.stop()
    return ended


def table(ended: Sequence[Ended]) -> str:
    """Each part with its time and what became of it."""
    width = max([len(one.part.name) for one in ended], default=0)
    lines = [f"{one.part.name:{width}}  {one.seconds:7.1f} s  {one.verdict}" for one in ended]
    bad = sum(not one.passed for one in ended)
    verdict = f"{bad} of {len(ended)} parts did not pass" if bad else f"{len(ended)} parts passed"
    return "\n".join(["", *lines, verdict])


def cases(ended: Sequence[Ended]) -> int:
    """Cases that parts say to have sent."""
    return sum(int(number) for one in ended for number in _CASES.findall(one.said))


class _Running:
    """The programs that run; after `stop` none is started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._programs: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def start(self, part: Part, file: Path) -> subprocess.Popen[bytes] | None:
        """In a group of its own, so that it can be ended with all that it started."""
        with self._lock, file.open("wb") as out:
            if self._stopped:
                return None
            environment = os.environ | {"PYTHONUNBUFFERED": "1"}
            program = subprocess.Popen(
                part.command,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
            self._programs.add(program)
            return program

    def end(self, program: subprocess.Popen[bytes]) -> None:
        """Interrupt it if it still runs, then kill what is left of its group."""
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                program.wait(GRACE_SECONDS)
            with suppress(ProcessLookupError):  # all of them ended
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
        with self._lock:
            self._programs.discard(program)

    def stop(self) -> None:
        """End all of them."""
        with self._lock:
            self._stopped = True
            programs = [*self._programs]
        for program in programs:
            self.end(program)


def _run(part: Part, place: Path, running: _Running) -> Ended:
    began = time.monotonic()
    file = place / f"{part.name.replace(' ', '-')}.txt"
    program = running.start(part, file)
    if program is None:
        return Ended(part, 0, None, "")
    try:
        status = program.wait(part.seconds)
    except subprocess.TimeoutExpired:
        status = None
    running.end(program)
    seconds = time.monotonic() - began
    lines = file.read_text(errors="replace").splitlines()
    said = "\n".join(line for line in lines if _NOISE not in line)
    ended = Ended(part, seconds, status, said)
    print(f"== {part.name}: {ended.verdict}, {seconds:.1f} s\n{said}\n", flush=True)
    return ended
