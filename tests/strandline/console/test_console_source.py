"""The form of the console's source: nothing that could make text into HTML or script, and nothing
from another origin."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from strandline.console.routes import PAGE

pytestmark = pytest.mark.source
MAX_LINES = 350
FORBIDDEN = re.compile(
    r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|setHTML\w*|document\.write\w*|createContextualFragment"
    r"|DOMParser|parseFromString|srcdoc|eval|Function|localStorage|cookie|indexedDB|postMessage)\b"
    r"|\bstyle\s*:|import\(|javascript:",
)
OTHER_ORIGIN = re.compile(r"(?:https?:)?//(?!www\.w3\.org/2000/svg)[a-z0-9.-]+\.[a-z]{2,}")


def find_forbidden_words(files: Sequence[Path]) -> list[str]:
    """What makes HTML or script of text, keeps a key beyond the tab, or loads from elsewhere."""
    return [
        f"{file.name}: {match[0]}"
        for file in files
        for pattern in (FORBIDDEN, OTHER_ORIGIN)
        for match in pattern.finditer(file.read_text())
    ]


def test_console_source_makes_no_html_of_text() -> None:
    assert find_forbidden_words(sorted(PAGE.glob("*.js"))) == []


@pytest.mark.parametrize(
    "planted",
    [
        "it.innerHTML = text",
        'h("p", {style: "color: red"})',
        "eval(text)",
        "localStorage.setItem(name, key)",
        'import("./other.js")',
        'fetch("https://example.com/x")',
    ],
)
def test_console_source_planted_fault_is_noticed(tmp_path: Path, planted: str) -> None:
    (tmp_path / "planted.js").write_text(f"{planted}\n")
    assert len(find_forbidden_words([tmp_path / "planted.js"])) == 1


def test_console_source_files_are_short() -> None:
    lines = {file.name: len(file.read_text().splitlines()) for file in PAGE.glob("*.js")}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}
