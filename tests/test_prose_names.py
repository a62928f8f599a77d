"""Prose names only what exists: a rename reaches docstrings, comments and documents too."""

import ast
import builtins
import io
import keyword
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.source
ROOT = Path(__file__).parent.parent
FOLDERS = [
    *(ROOT / "shared" / "strandline", ROOT / "infra", ROOT / "functions", ROOT / "events"),
    ROOT / "layers",
]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
SETTINGS_FILES = [ROOT / name for name in ("Makefile", "pyproject.toml", "cdk.json")]
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
COMPOUND = re.compile(r"\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+\b|\b_?[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")
"""A word that can only be an identifier: with an underscore, or with capitals inside."""
BLOCK = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"[A-Za-z_][\w.]*(?:\(\))?")
"""A span that is an identifier, dotted or called: each of its words must exist."""
ACTION = re.compile(r"[a-z][a-z0-9-]*:[A-Z]\w+")
"""An IAM action, such as s3:GetObject: tests/infra/test_operator_permissions.py knows them."""
FILE = re.compile(r"(?:[\w-]+/)*[\w-]+\.(?:py|sql|sh|toml)")
RAISES = re.compile(r"\b[Rr]aises?\s+((?:[^.\"#]|\.(?=\w))*)")
CLASS = re.compile(r"(?<![`'\w.])[A-Z]\w*[a-z]\w*")
STRING = re.compile(r"""^\w*("{3}|'{3}|"|')(.*)\1$""", re.DOTALL)
SQL = re.compile(r"\b(select|insert|update|delete|with|where|set|grant|create|alter|values)\b")
FOREIGN = {
    # AWS, its states, and what the CDK composes
    *("CloudFormation", "CloudStorage", "CloudWatch", "EventBridge", "HeadBucket", "StringValue"),
    *(
        "AccessDenied",
        "ApiRestCloudWatchRole",
        "ReleaseSchema",
        "AssumeRole",
        "DescribeStacks",
        "StackStatus",
    ),
    *("AccountLimit", "AllRequests", "BytesDownloaded", "BytesUploaded", "FilterId", "Throttles"),
    *("CloudWatchLogsReadOnlyAccess", "CloudWatchReadOnlyAccess"),
    *("AWSStepFunctionsReadOnlyAccess", "AmazonEventBridgeSchedulerReadOnlyAccess"),
    *("batchItemFailures", "MasterUserSecret", "AgentCore", "stringValue"),
    # Postgres, the kernel, macOS and Debian
    *("backend_xmin", "default_transaction_read_only", "initdb", "psql", "ts_rank_cd", "xip_list"),
    *("sun_path", "tcp_user_timeout", "mmdebstrap", "index_cleanup"),
    # other products, papers, formats and libraries
    *("LangGraph", "MemTree", "LoCoMo", "im_start", "lc_messages", "BaseRouter", "current_event"),
    *("nbf", "jku", "x5c", "x5u", "mem0/memory/main.py", "telemetry.py", "thread/client.py"),
    *("add_messages", "create_event", "get_last_k_turns", "retrieve_memory_records", "group_id"),
    *("CreateSession", "GetContext", "SearchMemory", "StoreInteraction", "source_agent"),
    *("claude_desktop_config", "BlobPayloadBytes", "BlobStorageOps", "user/client.py"),
    # frameworks that adapters are for
    *("create_react_agent", "post_model_hook", "pre_model_hook", "MemoryManager", "memory_manager"),
    *("RepositorySessionManager", "session_manager", "StoreBackend", "AsyncAnthropic"),
    *("memory_20250818", "tool_runner", "tool_use", "is_error", "view_range", "memory_tools"),
    *("PreloadMemoryTool", "memory_service", "context_providers", "ReActAgent", "insert_method"),
    *("LlamaIndex", "from_defaults"),
    # examples and placeholders
    *("E7", "Zigbee", "quennell", "a_a_a_", "NNNN_verb_noun", "NN_subject"),
}
"""Names of others, and what stands for a name."""
OTHERS = re.compile(r"memos_\w+|\w+_(?:total|latency_seconds|distribution)|pg_\w+|[0-9a-f]{7}")
"""Metrics of Athena, which docs/metrics.md translates, Postgres's catalogue, and commits."""
CAPITALS = {"CIDv1", "KiB", "Manager", "MiB", "Region", "Unicode"}
"""Capitalised words of a sentence about errors that are no classes."""


def split_source(text: str) -> tuple[str, str]:
    """The code of a source with its strings, and its docstrings with its comments."""
    code, prose = split_tokens(text)
    return " ".join(token.string for token in code), "\n".join(prose)


@cache
def split_tokens(text: str) -> tuple[list[tokenize.TokenInfo], list[str]]:
    """The tokens of a source's code, and its docstrings and comments."""
    docstrings = {
        (statement.lineno, statement.col_offset)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    }
    code: list[tokenize.TokenInfo] = []
    prose: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or token.start in docstrings:
            prose.append(token.string)
        else:
            code.append(token)
    return code, prose


def list_identifiers(token: tokenize.TokenInfo) -> list[str]:
    """The names of a token: of a string those in a key, a path or SQL, none in a sentence."""
    if token.type == tokenize.NAME:
        return [token.string]
    if token.type == tokenize.STRING:
        match = STRING.match(token.string)
        content = match[2] if match else ""
    elif token.type == tokenize.FSTRING_MIDDLE:
        content = token.string
    else:
        return []
    return WORD.findall(content) if " " not in content.strip() or SQL.search(content) else []


def list_names(folder: Path) -> Iterator[str]:
    """The names of a folder: of code, SQL, data and files. Prose and sentences have none."""
    for path in folder.rglob("*"):
        yield from WORD.findall(path.name)
        if path.suffix == ".py":
            for token in split_tokens(path.read_text())[0]:
                yield from list_identifiers(token)
        elif path.suffix == ".sql":
            yield from WORD.findall(re.sub(r"--.*", "", path.read_text()))
        elif path.suffix in {".json", ".jsonl"}:
            yield from re.findall(r'"(\w+)"', path.read_text())
        elif path.suffix in {".html", ".txt"}:
            yield from WORD.findall(path.read_text())


@cache
def list_known() -> set[str]:
    """Every name that prose may use."""
    known = FOREIGN.union(dir(builtins), keyword.kwlist, *map(list_names, FOLDERS))
    for path in SETTINGS_FILES:
        known.update(WORD.findall(re.sub(r"##.*", "", path.read_text())))
    for path in (ROOT / "tests").rglob("*"):
        known.update(WORD.findall(path.name))
        if path.suffix == ".py":
            known.update(re.findall(r"^ *(?:def |class )?(\w+)(?=\(|:| =)", path.read_text(), re.M))
    return known


@cache
def list_files() -> list[str]:
    """The paths of the project's files, with a slash before each."""
    folders = [*FOLDERS, ROOT / "tests", ROOT / "shared"]
    paths = [path for folder in folders for path in folder.rglob("*.*")]
    return [f"/{path.relative_to(ROOT)}" for path in [*ROOT.glob("*"), *paths]]


def is_file(path: str) -> bool:
    """Whether the project has a file with a path that ends so."""
    return any(one.endswith(f"/{path}") for one in list_files())


def is_known(name: str, known: set[str]) -> bool:
    """Whether something bears the name. A setting's variable stands for its field, and `_end` or
    `begin_` for a longer name. Other names in capitals are SQL's, AWS's and Athena's."""
    if name in known or OTHERS.fullmatch(name):
        return True
    if name.endswith("_"):
        return any(one.startswith(name) for one in known)
    if name.startswith("_"):
        return any(one.endswith((name[1:], name[1:].lower())) for one in known)
    field = name.removeprefix("STRANDLINE_")
    return name.isupper() and (field == name or field in known or field.lower() in known)


def list_missing(prose: str, known: set[str], *, compounds_outside: bool = True) -> list[str]:
    """Identifiers in the prose that nothing bears: between backticks every one, elsewhere, if
    `compounds_outside`, those that can be nothing else."""
    names: set[str] = set()
    for span in SPAN.findall(BLOCK.sub("", prose)):
        if ACTION.fullmatch(span):
            continue
        if FILE.fullmatch(span):
            if Path(span).stem not in FOREIGN and not is_file(span):
                names.add(span)
            continue
        names.update((WORD if NAME.fullmatch(span) else COMPOUND).findall(span))
    if compounds_outside:
        names.update(COMPOUND.findall(prose))
    return sorted(name for name in names if not is_known(name, known))


def list_missing_errors(prose: str, known: set[str]) -> list[str]:
    """What a docstring says that its function raises, and what is no class."""
    classes = {name for sentence in RAISES.findall(prose) for name in CLASS.findall(sentence)}
    return sorted(classes - known - CAPITALS)


def list_sources() -> list[Path]:
    """The sources whose docstrings and comments are read."""
    return [source for folder in FOLDERS for source in sorted(folder.rglob("*.py"))]


def test_prose_names_in_code_exist() -> None:
    missing = {
        str(source.relative_to(ROOT)): names
        for source in list_sources()
        if (names := list_missing(split_source(source.read_text())[1], list_known()))
    }
    assert missing == {}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_prose_names_in_documents_exist(document: Path) -> None:
    assert list_missing(document.read_text(), list_known(), compounds_outside=False) == []


def test_prose_names_of_raised_classes_exist() -> None:
    missing = {
        str(source.relative_to(ROOT)): names
        for source in list_sources()
        for _, prose in [split_source(source.read_text())]
        if (names := list_missing_errors(prose, list_known()))
    }
    assert missing == {}


def test_prose_names_check_reports_removed_name() -> None:
    code, prose = split_source(
        '"""Calls `fold_lane`, or OldFolder."""\n\n\ndef fold_lane() -> None:  # as read_chain\n'
        '    """See `read_chain`, `keeper`, `chains/form.py`. Raises Deferred, or ValueError."""\n'
    )
    known = {*WORD.findall(code), "ValueError"}
    assert list_missing(prose, known) == ["OldFolder", "chains/form.py", "keeper", "read_chain"]
    assert list_missing_errors(prose, known) == ["Deferred"]


def test_prose_names_check_reports_removed_setting() -> None:
    known = {"llm_model", "llm_base_url"}
    text = "`STRANDLINE_LLM_MODEL`, `_BASE_URL`, `STRANDLINE_LLM_NAME`, `_TONE`; `VACUUM`"
    assert list_missing(text, known) == ["STRANDLINE_LLM_NAME", "_TONE"]


def test_prose_names_check_ignores_sentences_in_code() -> None:
    code, _ = split_tokens('message = "the keeper fails"\nkey = "breaker_open"\n')
    assert {name for token in code for name in list_identifiers(token)} == {
        *("message", "key", "breaker_open")
    }
