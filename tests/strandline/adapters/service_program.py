"""The service on one machine as a program, for tests that run beside it in another environment.

It says where the service is and with which keys, a line of JSON. Told `restart`, it kills the
service and its database as they are, starts them again at the same address, and says so again. It
ends with its input.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.strandline.local.programs import ROOT, RUN, end_database, migrated_directory, started

_OPTIONS = {
    "key": ("--right", "read", "--right", "write"),
    "erasing_key": ("--right", "read", "--right", "write", "--right", "erase"),
    "key_of_ann": ("--user", "user:ann"),
    "key_of_ben": ("--user", "user:ben"),
}
"""Of each key, as it is made."""


def _serve_until_told(directory: Path, keys: dict[str, str], port: str) -> str:
    """Serve until there is a line of input; the address where it says `restart`, else empty."""
    with started(RUN, directory, STRANDLINE_PORT=port) as program:
        program.wait_for("Ctrl-C stops everything")
        url: str = json.loads((directory / "local.json").read_text())["url"]
        for name, options in _OPTIONS.items():
            keys[name] = keys.get(name) or _make_key(directory, options)
        print(json.dumps({"url": url, **keys}), flush=True)
        again = sys.stdin.readline().strip() == "restart"
        program.kill()
    return url if again else ""


def _make_key(directory: Path, options: tuple[str, ...]) -> str:
    command = ("operate", "keys", "create", "--tenant", "local", *options)
    output = subprocess.run(
        [sys.executable, "-m", "strandline.commands.main", *command],
        env={**os.environ, "STRANDLINE_DATA_DIR": str(directory)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (key,) = re.findall(r"strandline_\S+", output)
    return key


def main() -> None:
    """Run until the input ends."""
    keys: dict[str, str] = {}
    with migrated_directory() as directory:
        port = "0"
        while url := _serve_until_told(directory, keys, port):
            port = str(urlsplit(url).port)
            end_database(directory)


if __name__ == "__main__":
    main()
