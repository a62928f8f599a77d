"""How long a hook of a coding agent takes, beside an import of the package: 200 calls of each, with
the service that STRANDLINE_URL and STRANDLINE_API_KEY name, and with none.

The calls of all rows take turns, so that what else the machine does falls on all of them alike.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
_PROGRAM = "from strandline.commands.program import run_and_exit; run_and_exit()"
"""What the installed command does; `-m` would import more."""
_AWAY = "http://127.0.0.1:9"
_EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact")
_DELIVERY_SECONDS = 0.3
"""After a hook that stores: what it starts is no part of it."""


class Row(NamedTuple):
    """One kind of call, and the milliseconds of each."""

    name: str
    command: Sequence[str]
    variables: Mapping[str, str]
    content: str
    wall: list[float]
    cpu: list[float]


def make_rows(folder: Path) -> list[Row]:
    """All kinds of calls, with a transcript of a few turns."""
    transcript = folder / "transcript.jsonl"
    lines = [
        {"type": "user", "uuid": str(uuid.uuid4()), "message": {"role": "user", "content": text}}
        for text in ("The buoy goes out on Friday.", "The report is due in October.")
    ]
    transcript.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "shared"),
        # An installed package is compiled; here a call that is not measured compiles it.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "STRANDLINE_USER": "bench",
        "STRANDLINE_HOOK_FOLDER": str(folder / "hooks"),
    }
    rows = [Row("`import strandline`", ("-c", "import strandline"), variables, "", [], [])]
    for place, url in (("", variables["STRANDLINE_URL"]), (", service away", _AWAY)):
        for event in _EVENTS:
            payload: dict[str, Any] = {
                "session_id": "bench",
                "transcript_path": str(transcript),
                "cwd": str(folder),
                "hook_event_name": event,
                "prompt": "When does the buoy go out?",
            }
            command = ("-c", _PROGRAM, "hook")
            settings = {**variables, "STRANDLINE_URL": url}
            rows.append(Row(f"{event}{place}", command, settings, json.dumps(payload), [], []))
    return rows


def measure_call(row: Row) -> None:
    """Make one call, and add its times."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, *row.command],
        env=row.variables,
        input=row.content,
        text=True,
        capture_output=True,
        check=True,
    )
    row.wall.append((time.perf_counter() - start) * 1000)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    row.cpu.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)
    if row.name.startswith(("Stop", "PreCompact")):
        time.sleep(_DELIVERY_SECONDS)


def format_table(rows: Sequence[Row]) -> str:
    """A table in Markdown."""
    lines = ["| call | median | p95 | processor, median |", "|---|---|---|---|"]
    for row in rows:
        wall, cpu = sorted(row.wall), sorted(row.cpu)
        p95 = wall[min(len(wall) - 1, int(len(wall) * 0.95))]
        lines.append(
            f"| {row.name} | {wall[len(wall) // 2]:.0f} ms | {p95:.0f} ms | "
            f"{cpu[len(cpu) // 2]:.0f} ms |"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200, help="of each kind")
    calls: int = parser.parse_args().calls
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        rows = make_rows(Path(folder))
        for n in range(1 + calls):
            for row in rows:
                measure_call(row)
                if not n:
                    row.wall.clear()
                    row.cpu.clear()
        print(format_table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
