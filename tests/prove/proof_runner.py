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

PARALLEL_PARTS = 2
"""Parts that run side by side: as many as the promised machine has processors."""
CASES = 20_000
"""Requests that are made up against the API, at full size."""
GRACE_SECONDS = 10.0
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
    runs_alone: bool = False
    """It measures time: nothing else may run beside it."""


@dataclass(frozen=True)
class PartResult:
    """What became of a part."""

    part: Part
    seconds: float
    status: int | None
    """Its exit status; None where it was over its bound."""
    output: str

    @property
    def has_passed(self) -> bool:
        """Whether it ended by itself, and well."""
        return self.status == 0

    @property
    def verdict(self) -> str:
        """In words."""
        if self.status is None and self.seconds < self.part.seconds:
            return "STOPPED: the whole is over its bound"
        if self.status is None:
            return f"STOPPED: over its bound of {self.part.seconds:,.0f} s"
        return "passed" if self.has_passed else f"FAILED with {self.status}"


def run_parts(parts: Sequence[Part], directory: Path, seconds: float) -> list[PartResult]:
    """Run those that may share the machine two at a time, then the others one by one, and end
    within so many `seconds` whatever the parts' own bounds: what runs then is stopped, what has not
    begun does not. Says what each said once it ends. What they print goes into files of `directory`
    meanwhile. However this ends, none of them is left running."""
    running = _Processes()
    deadline = time.monotonic() + seconds - GRACE_SECONDS
    results: list[PartResult] = []
    try:
        for runs_alone, workers in ((False, PARALLEL_PARTS), (True, 1)):
            with ThreadPoolExecutor(workers) as pool:
                selected = [part for part in parts if part.runs_alone == runs_alone]
                futures = [
                    pool.submit(_run_part, part, directory, running, deadline) for part in selected
                ]
                try:
                    results += [future.result() for future in futures]
                except BaseException:
                    running.stop()  # before the pool waits for its threads
                    raise
    finally:
        running.stop()
    return results


def render_table(results: Sequence[PartResult]) -> str:
    """Each part with its time and what became of it."""
    width = max([len(result.part.name) for result in results], default=0)
    lines = [
        f"{result.part.name:{width}}  {result.seconds:7.1f} s  {result.verdict}"
        for result in results
    ]
    failed_count = sum(not result.has_passed for result in results)
    verdict = (
        f"{failed_count} of {len(results)} parts did not pass"
        if failed_count
        else f"{len(results)} parts passed"
    )
    return "\n".join(["", *lines, verdict])


def count_cases(results: Sequence[PartResult]) -> int:
    """Cases that parts say to have sent."""
    return sum(int(number) for result in results for number in _CASES.findall(result.output))


class _Processes:
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


def _run_part(part: Part, directory: Path, processes: _Processes, deadline: float) -> PartResult:
    start = time.monotonic()
    file = directory / f"{part.name.replace(' ', '-')}.txt"
    program = processes.start(part, file) if start < deadline else None
    if program is None:
        return PartResult(part, 0, None, "")
    try:
        status = program.wait(min(part.seconds, deadline - start))
    except subprocess.TimeoutExpired:
        status = None
    processes.end(program)
    seconds = time.monotonic() - start
    lines = file.read_text(errors="replace").splitlines()
    output = "\n".join(line for line in lines if _NOISE not in line)
    result = PartResult(part, seconds, status, output)
    print(f"== {part.name}: {result.verdict}, {seconds:.1f} s\n{output}\n", flush=True)
    return result
