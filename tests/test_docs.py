"""What the documents point to is there, and what they show can be read."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from strandline.function_specs import FUNCTIONS
from tests.documents import DOCUMENTS, ROOT, blocks


def anchors(text: str) -> set[str]:
    """Of a document's headings, as they are made from the words."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


def dead_links(document: Path, text: str) -> list[str]:
    """Links into the repository that lead nowhere."""
    dead: list[str] = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        file = document.parent / path if path else document
        there = file == document or file.exists()
        if not there or (anchor and anchor not in anchors(file.read_text())):
            dead.append(link)
    return dead


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_docs_links_resolve(document: Path) -> None:
    text = document.read_text()
    assert dead_links(document, text) == []
    assert dead_links(document, f"{text} [a](#no-such-heading) [b](no-such-file.md)") == [
        "#no-such-heading",
        "no-such-file.md",
    ]


def test_docs_readme_is_short_and_index_has_every_page() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
    matches = set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "README.md").read_text()))
    assert matches == {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}


def test_docs_policies_are_json_and_commands_are_shell() -> None:
    text = (ROOT / "docs" / "deploy.md").read_text()
    policies = [json.loads(block) for block in blocks(text, "json")]
    assert len(policies) == 2
    for name in ("deploy.md", "upgrade.md", "runbook.md"):
        for block in blocks((ROOT / "docs" / name).read_text(), ""):
            placed = re.sub(r"<[^<>\n]+>", "placeholder", block)
            read = subprocess.run(["bash", "-n"], input=placed, text=True, capture_output=True)
            assert read.returncode == 0, (block, read.stderr)


def test_docs_drill_names_every_function() -> None:
    """Those whose aliases go back, and those that hold a limit while a database is restored."""
    text = (ROOT / "docs" / "upgrade.md").read_text()

    def list_ids(name: str) -> set[str]:
        results = re.search(rf"^{name}=.*$", text, re.MULTILINE)
        assert results
        command = f"{results[0]}\necho $(for f in ${name}; do echo $f; done)"
        return set(subprocess.check_output(["bash", "-c", command], cwd=ROOT, text=True).split())

    assert list_ids("deployed") == {fn.name for fn in FUNCTIONS}
    assert list_ids("bounded") == {fn.name for fn in FUNCTIONS if "database" in fn.needs}
    results = re.search(r"feeds=\$\(for f in ([\w ]+);", text)
    assert results
    assert set(results[1].split()) == {fn.name for fn in FUNCTIONS if fn.queue}
