"""The plugin's files, by the fields that both agents document, and the page that says how to set it
up. `claude plugin validate --strict` and both agents themselves took them; they cannot be part of a
test, as they are no open packages of Python."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from strandline import Strandline
from tests.strandline.adapters.coding_agents.hook_calls import HookCaller, list_stored_texts
from tests.strandline.adapters.coding_agents.transcript_lines import ClaudeTranscript
from tests.strandline.adapters.conftest import ROOT, Users

PLUGIN = ROOT / "shared/strandline/adapters/coding_agents/plugin"
PAGE = (ROOT / "docs/adapters/coding-agents.md").read_text("utf-8")
EVENTS = {"SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd"}
MANIFEST_FIELDS = {
    *("name", "version", "description", "author", "license", "keywords"),
    *("homepage", "repository", "hooks", "mcpServers"),
}
"""Of both agents' manifests; others are refused by a strict check."""


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((PLUGIN / name).read_text("utf-8"))
    return content


@pytest.mark.parametrize("name", [".claude-plugin/plugin.json", ".codex-plugin/plugin.json"])
def test_plugin_manifest_has_documented_fields(name: str) -> None:
    manifest = read(name)
    assert set(manifest) <= MANIFEST_FIELDS
    assert re.fullmatch("[a-z][a-z0-9-]*", manifest["name"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", manifest["version"])
    assert set(manifest["author"]) <= {"name", "email", "url"}
    for field in ("hooks", "mcpServers"):
        assert field not in manifest or (PLUGIN / manifest[field]).is_file()
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert f'version = "{manifest["version"]}"' in project


def test_plugin_marketplace_leads_to_plugin() -> None:
    market = read(".claude-plugin/marketplace.json")
    (plugin,) = market["plugins"]
    assert (PLUGIN / plugin["source"]).resolve() == PLUGIN
    assert plugin["name"] == read(".claude-plugin/plugin.json")["name"]
    assert market["owner"]["name"]


@pytest.mark.parametrize(
    ("name", "agent"), [("hooks/hooks.json", "claude-code"), ("hooks/codex.json", "codex")]
)
def test_plugin_hooks_call_the_command(name: str, agent: str) -> None:
    hooks = read(name)["hooks"]
    assert set(hooks) == EVENTS
    for event, groups in hooks.items():
        ((hook,),) = [group["hooks"] for group in groups]
        assert set(hook) == {"type", "command", "timeout"}
        assert hook["type"] == "command"
        assert shlex.split(hook["command"]) == ["strandline", "hook", "--agent", agent]
        assert hook["timeout"] == (3 if event == "SessionEnd" else 10), "Codex ends it after 3 s"


@pytest.mark.parametrize("name", [".mcp.json", "codex.mcp.json"])
def test_plugin_serves_mcp_by_command(name: str) -> None:
    (server,) = read(name)["mcpServers"].values()
    assert set(server) <= {"command", "args", "env_vars"}
    assert (server["command"], server["args"]) == ("strandline", ["mcp"])


def test_plugin_page_runs_as_it_stands(client: Strandline, users: Users, tmp_path: Path) -> None:
    """Its commands in a shell, with stand-ins for `pip` and for both agents, which keep what they
    are given and call the plugin's hooks as they would."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert sum(len(block.splitlines()) for block in blocks) <= 30
    programs = tmp_path / "bin"
    programs.mkdir()
    code = "from strandline.commands.program import run_and_exit; run_and_exit()"
    for name, line in {
        "strandline": f'exec {shlex.quote(sys.executable)} -c "{code}" "$@"',
        **dict.fromkeys(("pip", "claude", "codex"), 'echo "$(basename "$0") $*" >> "$LOG"'),
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    caller = HookCaller(tmp_path, users.alice, LOG=str(tmp_path / "log"))
    caller.variables["PATH"] = f"{programs}:/usr/bin:/bin"
    del caller.variables["STRANDLINE_HOOK_FOLDER"]
    set_up = (
        blocks[0]
        .replace("https://memory.example", os.environ["STRANDLINE_URL"])
        .replace("strandline_...", os.environ["STRANDLINE_API_KEY"])
        .replace("STRANDLINE_USER=alice", f"STRANDLINE_USER={users.alice}")
    )
    session = ClaudeTranscript(tmp_path / "one.jsonl")
    session.ask("The buoy goes out on Friday.")
    stop = json.dumps(
        {
            "session_id": session.session_id,
            "transcript_path": str(session.path),
            "cwd": str(caller.project),
            "hook_event_name": "Stop",
        }
    )
    command = read("hooks/hooks.json")["hooks"]["Stop"][0]["hooks"][0]["command"]
    script = f"set -e\n{set_up}\necho {shlex.quote(stop)} | {command}\n{blocks[1]}"
    for name in ("STRANDLINE_URL", "STRANDLINE_API_KEY", "STRANDLINE_USER"):
        del caller.variables[name]
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env=caller.variables,
        cwd=caller.project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["stored"], report["waiting"]) == (1, 0)
    assert Path(report["folder"]).is_relative_to(tmp_path / ".local/state/strandline/hooks")
    assert list_stored_texts(client, users.alice) == session.said
    assert (tmp_path / "log").read_text().splitlines() == [
        "pip install strandline",
        f"claude plugin marketplace add {PLUGIN}",
        "claude plugin install strandline@strandline",
        f"codex plugin marketplace add {PLUGIN}",
        "codex plugin add strandline@strandline",
    ]


def test_plugin_hook_imports_little() -> None:
    """No package but the standard library's, no client, no framework: a hook is called at every
    prompt. Of the library none of the slow modules."""
    program = (
        "import sys\n"
        "from strandline.commands import program\n"
        "import strandline.adapters.coding_agents.hook\n"
        "import strandline.adapters.coding_agents.questions\n"
        "print(*sys.modules)"
    )
    output = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(ROOT / "shared"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    modules = set(output.split())
    packages = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    assert packages <= {"__main__", "strandline", "sitecustomize", "usercustomize"}
    slow = {"dataclasses", "inspect", "asyncio", "http.client", "email", "pathlib", "ssl"}
    assert not modules & {*slow, "subprocess", "urllib.parse", "strandline.client.clients"}
