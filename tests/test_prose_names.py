"""Docstrings and comments name only what exists: a rename reaches the prose too."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.source
ROOT = Path(__file__).parent.parent
FOLDERS = [ROOT / "shared" / "strandline", ROOT / "infra", ROOT / "functions", ROOT / "events"]
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
COMPOUND = re.compile(r"\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+\b|\b_?[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")
"""A word that can only be an identifier: with an underscore, or with capitals inside."""
FOREIGN = {
    *("CloudFormation", "CloudStorage", "CloudWatch", "EventBridge", "HeadBucket", "MemTree"),
    *("StringValue", "test_permissions"),
    *("im_start", "lc_messages", "pg_ctl", "pg_hba", "sun_path", "tcp_user_timeout", "xip_list"),
}
"""Names of others: of AWS, macOS, a paper, chat templates, Postgres, the kernel and the tests."""


def split_source(text: str) -> tuple[str, str]:
    """The code of a source with its strings, and its docstrings with its comments."""
    docstrings = {
        (statement.lineno, statement.col_offset)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    }
    code: list[str] = []
    prose: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_prose = token.type == tokenize.COMMENT or token.start in docstrings
        (prose if is_prose else code).append(token.string)
    return " ".join(code), "\n".join(prose)


def list_names(folder: Path) -> Iterator[str]:
    """Every word of a folder outside its prose: of code, SQL, data and file names."""
    for path in folder.rglob("*"):
        yield from WORD.findall(path.name)
        if path.suffix == ".py":
            yield from WORD.findall(split_source(path.read_text())[0])
        elif path.suffix in {".sql", ".json", ".html", ".txt"}:
            yield from WORD.findall(path.read_text())


def list_missing(prose: str, known: set[str]) -> list[str]:
    """Identifiers in the prose that nothing bears."""
    return sorted({name for name in COMPOUND.findall(prose) if name not in known})


def test_docstrings_and_comments_name_what_exists() -> None:
    known = FOREIGN.union(*map(list_names, FOLDERS))
    missing = {
        str(source.relative_to(ROOT)): names
        for folder in FOLDERS
        for source in sorted(folder.rglob("*.py"))
        if (names := list_missing(split_source(source.read_text())[1], known))
    }
    assert missing == {}


def test_a_name_that_is_gone_is_reported() -> None:
    code, prose = split_source(
        '"""Calls `fold_lane`, or OldFolder."""\n\n\ndef fold_lane() -> None:  # as read_chain\n'
        '    """See `read_chain`."""\n'
    )
    assert list_missing(prose, set(WORD.findall(code))) == ["OldFolder", "read_chain"]
