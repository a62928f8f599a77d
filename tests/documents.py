"""The documents that tests read, and what stands in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str, language: str) -> list[str]:
    """The fenced parts in a language, "" for what is typed; a list's indentation is not theirs."""
    fences = re.findall(r"^( *)```(\w*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return [
        re.sub(rf"^{indent}", "", inside, flags=re.MULTILINE)
        for indent, kind, inside in fences
        if kind == language
    ]
