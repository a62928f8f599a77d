"""`make bench NAME=pictures`: pictures of the command line in docs/, from real runs against a
service of their own on this machine."""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from strandline import Strandline
from strandline.admin.keys import make_key
from strandline.db.database import Caller, Database
from strandline.local.runtime import make_connection_file_path, run_local_service

ROOT = Path(__file__).parents[2]
WIDTH = 100
_THEME = TerminalTheme(
    (22, 27, 34),
    (214, 222, 230),
    [
        *((48, 54, 61), (255, 123, 114), (126, 231, 135), (227, 179, 65)),
        *((121, 192, 255), (210, 168, 255), (118, 227, 234), (214, 222, 230)),
    ],
    [
        *((110, 118, 129), (255, 161, 152), (163, 240, 170), (242, 204, 96)),
        *((165, 214, 255), (226, 197, 255), (163, 240, 244), (255, 255, 255)),
    ],
)
_QUESTION = "When is the weekly meeting held now?"


class Picture(NamedTuple):
    """A picture, and the commands that it shows."""

    name: str
    title: str
    commands: Sequence[str]


PICTURES = (
    Picture(
        "cli-memory",
        "import, ask, put into a prompt",
        (
            "strandline import conversation.jsonl",
            f"strandline recall '{_QUESTION}' --user mara --limit 3",
            f"strandline context '{_QUESTION}' --user mara --budget 240",
        ),
    ),
    Picture(
        "cli-trials",
        "thirteen scenarios, and a check of what is stored",
        ("strandline simulate", "strandline verify --everybody"),
    ),
    Picture(
        "cli-admin",
        "state, tenants, keys",
        ("strandline status", "strandline tenants list", "strandline keys list --tenant local"),
    ),
)


def render(title: str, runs: Sequence[tuple[str, str]], name: str) -> str:
    """An SVG of commands and what each printed, with its colours. It loads nothing."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    for number, (command, output) in enumerate(runs):
        if number:
            console.print()
        console.print(Text.assemble(("$ ", "bright_black"), (command, "bold bright_blue")))
        console.print(Text.from_ansi(output.rstrip("\n")))
    fonts = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    code_format = fonts.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")
    svg = console.export_svg(
        title=title, theme=_THEME, code_format=code_format, unique_id=f"strandline-{name}"
    )
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def _run(command: str, environment: dict[str, str], folder: Path) -> str:
    """What a command prints. Raises SystemExit where it fails."""
    words = shlex.split(command)
    program = [sys.executable, "-m", "strandline.commands.main", *words[1:]]
    process = subprocess.run(program, env=environment, cwd=folder, capture_output=True, text=True)
    if process.returncode != 0:
        raise SystemExit(
            f"{command}: exit code {process.returncode}\n{process.stdout}{process.stderr}"
        )
    return process.stdout


def _write_conversation(file: Path) -> None:
    """The demo's conversation without what `make demo` alone understands."""
    lines = (ROOT / "events" / "demo" / "conversation.jsonl").read_text().splitlines()
    events: list[dict[str, Any]] = [json.loads(line) for line in lines]
    plain = [event for event in events if not event.keys() & {"content_file", "cites"}]
    file.write_text("".join(f"{json.dumps(event, ensure_ascii=False)}\n" for event in plain))


def _wait_for_vectors(url: str, key: str) -> None:
    """Wait until what was imported has vectors, as whoever asks a minute later finds it. Raises
    SystemExit after a minute."""
    memory, end = Strandline(url, key), time.monotonic() + 60
    while memory.recall(_QUESTION, user="mara", limit=1).not_yet_embedded:
        if time.monotonic() > end:
            raise SystemExit("what was imported has no vectors after a minute")
        time.sleep(0.1)


def _make_keys(directory: Path) -> dict[str, str]:
    """Keys of the service, by what a command needs."""
    place: dict[str, Any] = json.loads(make_connection_file_path(directory).read_text())
    environment = place["environment"]
    with closing(Database(environment["STRANDLINE_DATABASE_URL"])) as database:
        operator = make_key(
            database.connect_as(Caller("operations", ())),
            environment["STRANDLINE_KEY_SECRET"],
            rights=("operator",),
            label="on call",
        )
    return {"operator": operator.token, "memory": place["key"]}


def main() -> int:
    """Write all pictures."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o711)  # the database's account enters it
        directory, folder = Path(parent) / "data", Path(parent) / "here"
        folder.mkdir()
        _write_conversation(folder / "conversation.jsonl")
        with run_local_service(directory, 0) as service:
            keys = _make_keys(directory)
            environment = {
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT / "shared"),
                "STRANDLINE_URL": service.url,
                "COLUMNS": str(WIDTH),
                "FORCE_COLOR": "1",
                "TERM": "xterm-256color",
            }
            for picture in PICTURES:
                runs: list[tuple[str, str]] = []
                for command in picture.commands:
                    operates = command.split()[1] in ("simulate", "tenants", "keys")
                    key = keys["operator" if operates else "memory"]
                    output = _run(command, environment | {"STRANDLINE_API_KEY": key}, folder)
                    if command.split()[1] == "import":
                        _wait_for_vectors(service.url, key)
                    runs.append((command, output.replace(service.url, "http://127.0.0.1:8080")))
                file = ROOT / "docs" / f"{picture.name}.svg"
                file.write_text(render(picture.title, runs, picture.name))
                print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
