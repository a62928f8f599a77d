"""Calls of `strandline hook` as an agent makes them: a process for each, JSON on its input."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strandline import Strandline
from tests.strandline.adapters.conftest import ROOT

COMMAND = (sys.executable, "-m", "strandline.commands.program", "hook")
NOBODY = "http://127.0.0.1:9"
"""An address at which nobody listens."""


class HookCaller:
    """A developer's machine: a folder for what waits, a project, settings."""

    def __init__(self, folder: Path, user: str, **settings: str) -> None:
        self.project = folder / "buoys"
        (self.project / ".git").mkdir(parents=True)
        self.state = folder / "state"
        self.variables = {
            **{name: os.environ[name] for name in ("STRANDLINE_URL", "STRANDLINE_API_KEY")},
            "STRANDLINE_USER": user,
            "STRANDLINE_HOOK_FOLDER": str(self.state),
            "PYTHONPATH": str(ROOT / "shared"),
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            **settings,
        }

    def start(
        self, event: str, transcript: Any, *arguments: str, **more: Any
    ) -> subprocess.Popen[str]:
        """A hook under way."""
        payload: Mapping[str, Any] = {
            "session_id": transcript.session_id,
            "transcript_path": str(transcript.path),
            "cwd": str(self.project),
            "hook_event_name": event,
            **more,
        }
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            env=self.variables,
            cwd=self.project,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(payload))
        process.stdin.close()
        process.stdin = None
        return process

    def call(self, event: str, transcript: Any, *arguments: str, **more: Any) -> dict[str, Any]:
        """What a hook says."""
        process = self.start(event, transcript, *arguments, **more)
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
        return json.loads(output) if output else {}

    def call_until_answered(self, event: str, transcript: Any, **more: Any) -> dict[str, Any]:
        """What a hook gives the agent. On a busy machine a question may take longer than a hook
        waits, and the next ones stay silent for half a minute: it is asked again."""
        deadline = time.monotonic() + 120
        while not (answer := self.call(event, transcript, **more)):
            assert time.monotonic() < deadline, f"{event} gave nothing"
            time.sleep(1)
        given: dict[str, Any] = answer["hookSpecificOutput"]
        return given

    def flush(self, expected_code: int = 0) -> dict[str, Any]:
        """Store what waits; what became of messages."""
        done = subprocess.run(
            [*COMMAND, "--flush"],
            env=self.variables,
            cwd=self.project,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == expected_code, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    @property
    def folder(self) -> Path:
        """Where waits what is not stored yet."""
        (folder,) = self.state.iterdir()
        return folder

    def list_texts_on_disk(self) -> list[str]:
        """What waits there, the oldest first."""
        return [
            json.loads(line)["content"]
            for path in sorted((self.folder / "segments").iterdir())
            for line in path.read_text().splitlines()
        ]

    def wait_for_texts_on_disk(self, expected: Sequence[str]) -> None:
        """Until these wait, and no others: a hook's process that stores may begin later."""
        deadline = time.monotonic() + 60
        while self.list_texts_on_disk() != expected:
            assert time.monotonic() < deadline, self.list_texts_on_disk()
            time.sleep(0.1)

    def kill_delivery(self) -> None:
        """SIGKILL the process that stores, wherever it is."""
        for process in self._list_deliveries():
            os.kill(process, signal.SIGKILL)

    def wait_for_delivery(self) -> None:
        """Until no process stores any more."""
        deadline = time.monotonic() + 60
        while self._list_deliveries():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def _list_deliveries(self) -> list[int]:
        lines = subprocess.run(
            ["ps", "-axww", "-o", "pid=,stat=,command="], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        words = [line.split() for line in lines if str(self.state) in line]
        return [
            int(word[0]) for word in words if "delivery" in " ".join(word) and word[1][0] != "Z"
        ]

    def assert_files_are_private(self) -> None:
        """Nobody else on the machine may read what waits."""
        assert stat.S_IMODE(self.folder.stat().st_mode) == 0o700
        for path in self.folder.rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def list_stored_texts(client: Strandline, user: str, session_id: str | None = None) -> list[str]:
    """What is stored of a user, in order."""
    events = [*client.get_all(user=user, page_size=500)][::-1]
    return [str(event.content) for event in events if session_id in (None, event.session_id)]
