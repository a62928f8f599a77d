"""An adapter imports its framework and no other; the client imports none."""

import itertools
import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.strandline.adapters.conftest import ROOT

FRAMEWORKS: dict[tuple[str, ...], set[str]] = {
    ("agent_framework",): {"agent_framework"},
    ("claude",): {"anthropic"},
    ("google_adk",): {"google"},
    ("langgraph", "langgraph_agents"): {"langgraph", "langchain_core"},
    ("llama_index",): {"llama_index"},
    ("openai_agents",): {"agents", "openai", "mcp"},
    ("pydantic_ai",): {"pydantic_ai", "pydantic_graph"},
    ("strands", "strands_sessions"): {"strands", "mcp", "boto3"},
}
"""The packages of frameworks that modules may import."""
NEUTRAL = (
    *("agent_memory", "client_pairs", "event_batches", "keyed_values"),
    *("session_records", "step_runners"),
    *("memory_file_store", "memory_file_texts", "memory_files"),
    *("mem0", "mem0_records", "mem0_shapes", "mem0_verbs"),
    *("value_filters", "value_names", "namespace_topics"),
)
ALL = set[str]().union(*FRAMEWORKS.values())


def list_packages(modules: Sequence[str]) -> set[str]:
    """The packages of frameworks that an import of modules of the adapters brings."""
    names = ", ".join(f"strandline.adapters.{module}" for module in modules)
    program = (
        f"import json, sys, strandline.client.clients, {names}; print(json.dumps([*sys.modules]))"
    )
    output = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={"PYTHONPATH": str(ROOT / "shared"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {name.partition(".")[0] for name in json.loads(output)} & ALL


@pytest.mark.parametrize("modules", FRAMEWORKS, ids=lambda modules: modules[0])
def test_adapter_import_brings_its_framework_alone(modules: tuple[str, ...]) -> None:
    packages = list_packages(modules)
    assert packages <= FRAMEWORKS[modules]
    assert packages


def test_adapter_imports_of_neutral_modules_bring_no_framework() -> None:
    assert list_packages(NEUTRAL) == set()
    files = {path.stem for path in (ROOT / "shared/strandline/adapters").glob("*.py")}
    assert files == {"__init__", *NEUTRAL, *itertools.chain(*FRAMEWORKS)}
