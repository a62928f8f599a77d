"""The pages of the adapters: their programs run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.strandline.adapters.conftest import ROOT, Service, Users

OF_COMMANDS = "coding-agents"
"""The page whose commands run in coding_agents/test_hook_plugin.py."""
PAGES = sorted(
    path
    for path in (ROOT / "docs/adapters").glob("*.md")
    if path.stem not in ("README", OF_COMMANDS)
)
SAYS = {
    "agent-framework": ["The buoy goes out on Friday."],
    "claude": [
        "File created successfully at: /memories/tour.md",
        "Here's the content of /memories/tour.md with line numbers:",
        "     1\tThe buoy goes out on Friday.",
    ],
    "google-adk": ["True", "True"],
    "langgraph": ["Noted.", "The buoy goes out on Friday."],
    "llama-index": ["The buoy goes out on Friday."],
    "mem0": [
        "I moor at pier B. {'from': 'phone'}",
        "I moor at pier C.",
        "['ADD', 'UPDATE']",
        "{'results': []}",
    ],
    "openai-agents": ["The buoy goes out on Friday."] * 2,
    "pydantic-ai": ["The buoy goes out on Friday."],
    "strands": ["True", "True"],
}
"""What each program prints."""


def read_program(page: Path) -> str:
    """The first block of Python of a page."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    program: str = blocks[0]
    return program


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_adapter_page_has_program_that_runs(page: Path, service: Service, users: Users) -> None:
    program = read_program(page)
    assert len(program.splitlines()) <= 30
    mine, count = re.subn(r"\balice\b", users.alice, program)
    assert count, "the program has a user"
    output = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", mine],
        env={
            "PYTHONPATH": str(ROOT / "shared"),
            "PATH": "/usr/bin:/bin",
            "STRANDLINE_URL": service.url,
            "STRANDLINE_API_KEY": service.key,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert output.returncode == 0, output.stderr
    assert output.stdout.splitlines() == SAYS[page.stem]


def test_adapter_pages_are_in_index() -> None:
    index = (ROOT / "docs/adapters/README.md").read_text("utf-8")
    assert set(re.findall(r"^\| \[[^]]+\]\(([\w-]+)\.md\)", index, re.MULTILINE)) == {
        *SAYS,
        OF_COMMANDS,
    }
    assert {page.stem for page in PAGES} == set(SAYS)
