"""An adapter imports its framework and no other; the client imports none."""

import json
import subprocess
import sys

import pytest

from tests.strandline.adapters.conftest import ROOT

FRAMEWORKS = {
    "langgraph": {"langgraph", "langchain_core"},
    "langgraph_agents": {"langgraph", "langchain_core"},
    "openai_agents": {"agents", "openai", "mcp"},
    "strands": {"strands", "mcp", "boto3"},
    "strands_sessions": {"strands", "mcp", "boto3"},
}
"""The packages of frameworks that an adapter may import."""
NEUTRAL = (
    *("client_pairs", "keyed_values", "session_records", "step_runners"),
    *("value_filters", "value_names", "value_topics"),
)
ALL = set[str]().union(*FRAMEWORKS.values())


def list_packages(module: str) -> set[str]:
    """The packages of frameworks that an import of a module brings."""
    program = f"import {module}, json, sys; print(json.dumps(sorted(sys.modules)))"
    output = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={"PYTHONPATH": str(ROOT / "shared"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {name.partition(".")[0] for name in json.loads(output)} & ALL


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_adapter_import_brings_its_framework_alone(name: str) -> None:
    packages = list_packages(f"strandline.adapters.{name}")
    assert packages <= FRAMEWORKS[name]
    assert packages


def test_adapter_imports_of_neutral_modules_bring_no_framework() -> None:
    modules = ", ".join(f"strandline.adapters.{name}" for name in NEUTRAL)
    assert list_packages(f"strandline, {modules}, strandline.client.clients") == set()
    files = {path.stem for path in (ROOT / "shared/strandline/adapters").glob("*.py")}
    assert files == {*NEUTRAL, *FRAMEWORKS, "__init__"}
