"""Where a hook stores and asks, and on whose behalf: by options, else by the environment. Nothing
of it is told from what was said."""

import os
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from strandline.client.service_addresses import normalize_service_url, strip_credential

OPTIONS: Mapping[str, tuple[str, str]] = {
    "--url": ("STRANDLINE_URL", "Address of the service."),
    "--key": ("STRANDLINE_API_KEY", "API key, with the rights read and write."),
    "--user": ("STRANDLINE_USER", "Whose memory it is, as alice."),
    "--agent": ("STRANDLINE_AGENT", "The agent's name, as claude-code."),
    "--project": ("STRANDLINE_PROJECT", "The project's name; by default that of its folder."),
    "--tools": ("STRANDLINE_HOOK_TOOLS", "1: calls and output of tools are stored, too."),
    "--folder": ("STRANDLINE_HOOK_FOLDER", "Where waits what is not stored yet."),
    "--connect": ("STRANDLINE_HOOK_CONNECT", "Seconds to find the service in, by default 0.08."),
}
"""Each option of `strandline hook` with its variable of the environment and what it means."""

_CONNECT_SECONDS = "0.08"
_MAX_CONNECT_SECONDS = 5.0
_MAX_NAME_CHARS = 100
_NAME_CHARS = r"[^\w.@+-]+"


class HookSettings(NamedTuple):
    """What a hook needs to know."""

    url: str
    key: str | None
    user: str
    agent: str
    project: str
    wants_tools: bool
    folder: str
    """Where waits what is for this service and this key."""
    connect_seconds: float

    @property
    def participants(self) -> list[str]:
        """Who takes part in what is said: it makes one scope for a user, an agent and a project."""
        return [self.user, self.agent, self.project]

    @property
    def readers(self) -> list[str]:
        """On whose behalf memory is asked: the user in this project, with any agent."""
        return [self.user, self.project]


def parse_options(arguments: Sequence[str]) -> dict[str, str]:
    """The variables that options set. Raises ValueError for an unknown one or one without a
    value."""
    variables: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name not in OPTIONS:
            raise ValueError(
                f"{word}: no option of strandline hook; there are {', '.join(OPTIONS)}"
            )
        text = value if equals else next(words, None)
        if text is None:
            raise ValueError(f"{name}: give a value, as in {name} VALUE")
        variables[OPTIONS[name][0]] = text
    return variables


def read_hook_settings(variables: Mapping[str, str], cwd: str | None) -> HookSettings:
    """The settings of a hook that an agent calls in a directory. Raises ValueError, which names
    the setting that is missing or wrong."""
    url = normalize_service_url(variables.get("STRANDLINE_URL", ""))
    key = strip_credential("key", variables.get("STRANDLINE_API_KEY"))
    user = variables.get("STRANDLINE_USER", "").strip()
    if not user:
        raise ValueError(
            "user: whose memory is it? Set STRANDLINE_USER, as in STRANDLINE_USER=alice"
        )
    agent = variables.get("STRANDLINE_AGENT", "").strip() or "coding-agent"
    project = variables.get("STRANDLINE_PROJECT", "").strip() or _name_project(variables, cwd)
    return HookSettings(
        url,
        key,
        _qualify("user", user),
        _qualify("agent", agent),
        _qualify("project", project),
        variables.get("STRANDLINE_HOOK_TOOLS", "") not in ("", "0"),
        _choose_folder(variables, url, key),
        _parse_seconds(variables.get("STRANDLINE_HOOK_CONNECT") or _CONNECT_SECONDS),
    )


def _qualify(kind: str, name: str) -> str:
    return name if ":" in name else f"{kind}:{name}"


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _MAX_CONNECT_SECONDS:
        raise ValueError(
            f"STRANDLINE_HOOK_CONNECT: give seconds, above 0 and at most {_MAX_CONNECT_SECONDS:g}"
        )
    return seconds


def _name_project(variables: Mapping[str, str], cwd: str | None) -> str:
    """The name of the project's folder and a number that tells folders of one name apart. The
    folder is the repository's, where there is one."""
    start = os.path.realpath(variables.get("CLAUDE_PROJECT_DIR") or cwd or os.getcwd())
    folder = start
    while not os.path.exists(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            folder = start
            break
        folder = parent
    name = re.sub(_NAME_CHARS, "-", os.path.basename(folder))[:_MAX_NAME_CHARS] or "root"
    return f"{name}-{zlib.crc32(os.fsencode(folder)):08x}"


def _choose_folder(variables: Mapping[str, str], url: str, key: str | None) -> str:
    """One for each service and key: what waits for one tenant is never sent with the key of
    another."""
    home = variables.get("XDG_STATE_HOME") or os.path.join(
        os.path.expanduser("~"), ".local", "state"
    )
    base = variables.get("STRANDLINE_HOOK_FOLDER") or os.path.join(home, "strandline", "hooks")
    whose = f"{url}\n{key}".encode()
    return os.path.join(base, f"{zlib.crc32(whose):08x}{zlib.adler32(whose):08x}")
