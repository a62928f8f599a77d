"""The house's habits that a machine can check."""

import ast
import functools
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from strandline.admin import routes_usage
from strandline.db.schema_files import BASELINE, list_migrations
from strandline.function_specs import FUNCTIONS, JOBS
from strandline.log import routes_read as log_routes_read
from strandline.recall import routes as recall_routes
from strandline.status import routes as status_routes

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    [*(ROOT / "shared" / "strandline").rglob("*.py"), *(ROOT / "events" / "demo").glob("*.py")]
)
pytestmark = pytest.mark.source


@functools.cache
def parse(source: Path) -> ast.Module:
    """A source of the package."""
    return ast.parse(source.read_text())


def test_conventions_function_has_handler_row_event_and_test() -> None:
    """All jobs have one event."""
    folders = {path.name for path in (ROOT / "functions").iterdir() if path.name != "__pycache__"}
    assert folders == {fn.name for fn in FUNCTIONS}
    for name in folders:
        inside = {p.name for p in (ROOT / "functions" / name).iterdir()} - {"__pycache__"}
        assert inside == {"handler.py"}
        event = "job" if name in {job.name for job in JOBS} else name
        assert list((ROOT / "events").glob(f"{event}*.json")), f"no event for {name}"
        assert list((ROOT / "tests").rglob(f"test_{name}.py")), f"no test for {name}"


def test_conventions_handlers_decide_nothing() -> None:
    for handler in (ROOT / "functions").glob("*/handler.py"):
        assert len(handler.read_text().splitlines()) <= 30, handler


def test_conventions_function_table_matches_routes() -> None:
    from strandline.admin import routes as admin_routes
    from strandline.apidocs import routes as apidocs_routes
    from strandline.console import routes as console_routes
    from strandline.context import routes as context_routes
    from strandline.erasure import routes as erasure_routes
    from strandline.graph import routes as graph_routes
    from strandline.graph.communities import routes_admin as graph_routes_admin
    from strandline.jobs import routes as jobs_routes
    from strandline.log import routes_write as log_routes_write
    from strandline.mcp import routes as mcp_routes
    from strandline.personas import routes as personas_routes
    from strandline.provenance import routes as provenance_routes
    from strandline.sessions import routes_read as sessions_routes_read
    from strandline.sessions import routes_write as sessions_routes_write
    from strandline.topics import routes_admin as topics_routes_admin
    from strandline.topics import routes_read as topics_routes_read

    served = {
        "ingest": set(log_routes_write.ROUTES) | set(sessions_routes_write.ROUTES),
        "query": set(
            log_routes_read.ROUTES
            | recall_routes.ROUTES
            | routes_usage.ROUTES
            | status_routes.ROUTES
        )
        | set(sessions_routes_read.ROUTES | context_routes.ROUTES | topics_routes_read.ROUTES)
        | set(
            provenance_routes.ROUTES
            | graph_routes.ROUTES
            | personas_routes.ROUTES
            | erasure_routes.ROUTES
            | console_routes.ROUTES
        ),
        "admin": set(admin_routes.ROUTES)
        | set(jobs_routes.ROUTES)
        | set(topics_routes_admin.ROUTES)
        | set(graph_routes_admin.ROUTES)
        | set(apidocs_routes.ROUTES),
        "mcp": set(mcp_routes.make_mcp_routes(lambda _: {})),
    }
    assert {fn.name: set(fn.routes) for fn in FUNCTIONS if fn.routes} == served


def test_conventions_events_are_json() -> None:
    for file in (ROOT / "events").glob("*.json"):
        assert json.loads(file.read_text()), file


def test_conventions_migrations_are_numbered_without_gaps() -> None:
    numbers = [migration.number for migration in list_migrations()]
    assert numbers == list(range(BASELINE, BASELINE + len(numbers)))


def test_conventions_service_has_one_python_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    service = tomllib.loads((ROOT / "shared" / "pyproject.toml").read_text())
    version = (ROOT / ".python-version").read_text().strip()
    assert project["tool"]["pyright"]["pythonVersion"] == version
    assert service["project"]["requires-python"] == f">={version},<3.14"
    assert project["project"]["requires-python"] == ">=3.10", "the client's, without an end"
    assert service["project"]["version"] == project["project"]["version"]
    assert service["project"]["dependencies"] == [f"strandline=={project['project']['version']}"]


def test_conventions_distributions_divide_package() -> None:
    """The service leaves out what the client has, and has all else."""
    client = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    service = tomllib.loads((ROOT / "shared" / "pyproject.toml").read_text())["tool"]["hatch"]
    patterns = client["build"]["targets"]["wheel"]["include"]
    wheel = service["build"]["targets"]["wheel"]
    assert wheel["include"] == ["/strandline"]
    assert wheel["exclude"] == [pattern.replace("/shared/", "/", 1) for pattern in patterns]


def test_conventions_shared_is_path_and_no_package() -> None:
    assert not (ROOT / "shared" / "__init__.py").exists()
    assert not list((ROOT / "functions").glob("**/__init__.py"))


def test_conventions_tests_mirror_package_folders() -> None:
    tests = ROOT / "tests" / "strandline"
    rooms = {file.parent.relative_to(tests) for file in tests.rglob("*.py")}
    assert [
        room for room in sorted(rooms) if not (ROOT / "shared/strandline" / room).is_dir()
    ] == []


IMPORT_OF_A_TEST_MODULE = re.compile(
    r"^\s*(?:from tests[\w.]*\.test_\w+ import|import tests[\w.]*\.test_\w+"
    r"|from tests[\w.]* import (?:\([^)]*|[^\n(]*)\btest_\w+)",
    re.MULTILINE,
)


def find_imports_of_test_modules(directory: Path) -> list[str]:
    """Those in programs that a test writes as text, too."""
    return [
        f"{file.relative_to(directory)}: {match[0].strip()}"
        for file in sorted(directory.rglob("*.py"))
        for match in IMPORT_OF_A_TEST_MODULE.finditer(file.read_text())
    ]


def test_conventions_no_module_imports_a_test_module() -> None:
    """What several of them need lies in a helper beside them, which has a name of its subject."""
    assert find_imports_of_test_modules(ROOT / "tests") == []


@pytest.mark.parametrize(
    "planted",
    [
        "from tests.strandline.log.test_blocks import read_car",
        "import tests.test_docs",
        "from tests.strandline.log import test_blocks",
        "from tests.strandline.log import (\n    block_calls,\n    test_blocks,\n)",
        'PROGRAM = """\nimport sys\nfrom tests.test_docs import blocks\n"""',
        "def run():\n    from tests.test_docs import blocks",
    ],
)
def test_conventions_import_of_test_module_is_noticed(tmp_path: Path, planted: str) -> None:
    (tmp_path / "helper.py").write_text(f"{planted}\n")
    assert len(find_imports_of_test_modules(tmp_path)) == 1


def find_tests_without_feature(folder: Path) -> list[str]:
    """The tests whose name holds no word of their file's or folders' names, in any form that begins
    alike, or is over 60 characters: who looks for the tests of a feature searches for its noun."""
    found: list[str] = []
    for file in sorted(folder.rglob("test_*.py")):
        place = file.relative_to(folder).with_suffix("")
        features = {word.removesuffix("s")[:4] for word in re.split(r"[_/]", place.as_posix())} - {
            "test"
        }
        nodes = ast.walk(ast.parse(file.read_text()))
        names = [n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        found += [
            f"{file}: {name}"
            for name in names
            if name.startswith("test_")
            and (
                len(name) > 60
                or not features & {word.removesuffix("s")[:4] for word in name.split("_")[1:]}
            )
        ]
    return found


def test_conventions_test_names_hold_their_feature() -> None:
    assert find_tests_without_feature(ROOT / "tests") == []


@pytest.mark.parametrize("name", ["test_only_this_one", "test_erasure_" + "x" * 60])
def test_conventions_test_name_without_feature_is_noticed(tmp_path: Path, name: str) -> None:
    (tmp_path / "test_erasures.py").write_text(f"def {name}():\n    ...\n")
    assert len(find_tests_without_feature(tmp_path)) == 1


def test_conventions_sub_packages_import_nothing() -> None:
    """The package itself names the client's classes, and imports them when they are first used:
    tests/strandline/client/test_import.py."""
    for init in (ROOT / "shared" / "strandline").glob("*/**/__init__.py"):
        body = ast.parse(init.read_text()).body
        assert len(body) == 1, init
        assert isinstance(body[0], ast.Expr), init


def test_conventions_modules_have_docstrings() -> None:
    assert [source for source in SOURCES if not ast.get_docstring(parse(source))] == []


def test_conventions_functions_are_short() -> None:
    """Thirty lines are the aim; fifty, strings left out, are the bound."""
    long = [
        f"{source.relative_to(ROOT)}: {node.name}"
        for source in SOURCES
        for node in ast.walk(parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and count_lines(node) > 50
    ]
    assert long == []


def count_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Without its strings."""
    text = sum(
        (sub.end_lineno or 0) - sub.lineno
        for sub in ast.walk(function)
        if isinstance(sub, ast.Constant) and isinstance(sub.value, str)
    )
    return (function.end_lineno or 0) - function.lineno + 1 - text


def test_conventions_public_names_have_docstrings() -> None:
    silent = [
        f"{source.name}:{node.name}"
        for source in SOURCES
        for node in parse(source).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert not silent


def test_conventions_handlers_import_only_what_they_need() -> None:
    """All in one process, those with the least needs first: what one has imported is charged to
    those after it. tests/layers/test_runtime.py looks at each in a process of its own."""
    special = {"scheduler": {"psycopg"}, "migrate": {"boto3"}}
    order = sorted(
        FUNCTIONS, key=lambda fn: ([*special, fn.name].index(fn.name), "model" in fn.layers)
    )
    code = "\n".join(
        [
            "import sys",
            *(f"import functions.{fn.name}.handler; print(*sys.modules)" for fn in order),
        ]
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": "shared:.", "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    unwanted = {"jwt", "cryptography", "openai", "moto", "uvicorn"}
    for fn, line in zip(order, process.stdout.splitlines(), strict=True):
        model = set[str]() if "model" in fn.layers else {"onnxruntime", "numpy"}
        assert not {*line.split()} & (unwanted | model | special.get(fn.name, set())), fn.name


def test_conventions_locks_have_hashes_and_no_address() -> None:
    for lock in (ROOT / "requirements").glob("*.lock"):
        text = lock.read_text()
        assert not re.search(r"https?:|file:|index-url|find-links", text), lock
        matches = re.findall(r"^[a-z0-9][\w.\[\]-]*==", text, re.MULTILINE | re.IGNORECASE)
        assert len(matches) > 5
        assert text.count("--hash=sha256:") >= len(matches)


def test_conventions_sql_on_memory_is_literal() -> None:
    """No statement is pasted together: pyright refuses it, and this finds a cast that hides it."""
    casts = [
        f"{source.name}: {line.strip()}"
        for source in SOURCES
        for line in source.read_text().splitlines()
        if "LiteralString" in line and "cast(" in line
    ]
    assert [line.partition(":")[0] for line in casts] == ["schema_files.py"]


def test_conventions_verbs_take_no_http_request() -> None:
    """A verb has explicit arguments. Routes and the edge itself know the HTTP request, and so does
    MCP, which performs operations in a request's name."""
    takers = [
        f"{name}: {function.name}"
        for source in SOURCES
        for name in [str(source.relative_to(ROOT))]
        if not (source.name.startswith("routes") or name.startswith("shared/strandline/http/"))
        if name != "shared/strandline/mcp/operations.py"
        for function in ast.walk(parse(source))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for argument in ast.walk(function.args)
        if isinstance(argument, ast.arg) and argument.annotation
        if re.search(r"\bRequest\b", ast.unparse(argument.annotation))
    ]
    assert takers == []


def test_conventions_packages_import_no_log_routes() -> None:
    """What every writing route needs is in `http`: a writer, its key, the header of its replay."""
    importers = [
        str(source.relative_to(ROOT / "shared" / "strandline"))
        for source in SOURCES
        for node in ast.walk(parse(source))
        if isinstance(node, ast.ImportFrom) and node.module
        if node.module.startswith("strandline.log.routes")
    ]
    assert importers == []


def test_conventions_metrics_decide_nothing() -> None:
    """What a job's metrics count is not what its work goes on by: outcomes are returned."""
    from dataclasses import fields

    from strandline.jobs.worker_resources import JobMetrics

    assert {field.name for field in fields(JobMetrics)} == {
        *("embedded_events", "embedding_ms", "failures", "due_work", "fold_ms"),
        *("cosines", "counters", "samples"),
    }
