"""The page that shows one agent on four memories: ours runs as it stands, and all are counted."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from tests.documents import blocks
from tests.strandline.client.conftest import HttpService, service

__all__ = ["service"]


def agents(repository: Path, level: str = "##") -> dict[str, str]:
    """The code of each section that has some, by its heading."""
    text = (repository / "docs" / "side-by-side.md").read_text("utf-8")
    whole, _, frameworks = text.partition("## In a framework\n")
    sections = re.split(rf"^{level} ", whole if level == "##" else frameworks, flags=re.MULTILINE)[
        1:
    ]
    return {
        section.partition("\n")[0]: code
        for section in sections
        for code in blocks(section, "python")
    }


def count_lines(code: str) -> int:
    """Lines that are neither blank nor a comment."""
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") for line in code.splitlines()
    )


def test_side_by_side_line_counts_are_right(repository: Path) -> None:
    text = (repository / "docs" / "side-by-side.md").read_text("utf-8")
    rows = re.findall(r"^\| \[([^]]+)\]\([^)]+\) \|[^|]+\|[^|]+\| (\d+) \|", text, re.MULTILINE)
    code = agents(repository)
    assert {name: int(count) for name, count in rows} == {
        name: count_lines(each) for name, each in code.items()
    }
    for each in code.values():
        ast.parse(each)
    assert len(rows) == 4


def test_side_by_side_framework_line_counts_are_right(repository: Path) -> None:
    code = agents(repository, "###")
    text = (repository / "docs" / "side-by-side.md").read_text("utf-8")
    rows = re.findall(r"^\| (LangGraph|Strands) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    counts = {
        f"{framework} with {name}": int(count)
        for framework, *each in rows
        for name, count in zip(("Strandline", "mem0", "Zep"), each, strict=True)
    }
    assert counts == {heading: count_lines(each) for heading, each in code.items()}
    assert len(counts) == 6
    for each in code.values():
        compile(each, "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_side_by_side_agent_remembers(
    repository: Path, service: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first conversation told is in the prompt of the second."""
    monkeypatch.setenv("STRANDLINE_URL", service.url)
    monkeypatch.setenv("STRANDLINE_API_KEY", service.gateway.key())
    prompts: list[str] = []

    def ask_model(prompt: str) -> str:
        prompts.append(prompt)
        return "Noted."

    program: dict[str, Any] = {"ask_model": ask_model}
    exec(agents(repository)["Strandline"], program)  # noqa: S102 -- our own page
    assert program["answer"]("alice", "monday", "The buoy goes out on Friday.") == "Noted."
    program["answer"]("alice", "tuesday", "When does the buoy go out?")
    assert "The buoy goes out on Friday." in prompts[1]
    program["answer"]("bo", "tuesday-2", "When does the buoy go out?")
    assert "Friday" not in prompts[2], "another user's memory"
    program["memory"].close()
