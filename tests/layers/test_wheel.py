"""What `pip install .` gives: the client's wheel in an environment with what its lock names and
nothing else, on each Python of this machine; and the service's beside it."""

import functools
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from strandline import Strandline
from strandline.function_specs import FUNCTIONS
from tests.documents import blocks
from tests.layers.wheels import (
    FOLDERS,
    Installation,
    build_wheel,
    find_pythons,
    install_client,
)
from tests.strandline.client.conftest import serve_http
from tests.strandline.client.promised_modules import LIST_MODULES, PROMISED_MODULES
from tests.strandline.local.programs import data_directory, started
from tests.support import Gateway

PROMISED_MEGABYTES = 20
_SHORT = 15
"""Lines of the README's first program."""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The built distributions by name."""
    place = tmp_path_factory.mktemp("wheels")
    return {name: build_wheel(name, place) for name in FOLDERS}


@pytest.fixture(scope="module")
def installation(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An environment with the client alone."""
    return install_client(wheels["strandline"], tmp_path_factory.mktemp("client") / "venv")


def test_wheel_runs_first_program_of_readme(
    installation: Installation, gateway: Gateway, repository: Path
) -> None:
    (program,) = blocks((repository / "README.md").read_text(), "python")
    assert len(program.splitlines()) <= _SHORT
    with serve_http() as url:
        here, count = re.subn(r"http://127\.0\.0\.1:8080", url, program)
        here, keys = re.subn(r"strandline_\.\.\.", gateway.key(), here)
        assert count == keys == 1
        assert installation.run(here) == "The buoy goes out on Friday.\n"
        prompt = installation.run(f"{here}\nprint(prompt)")
    assert "Is the Petrel free on Friday?" in prompt
    assert "Yes, from nine to three." in prompt, "what the first run stored"


def test_wheel_of_client_is_small_and_needs_little(installation: Installation) -> None:
    packages = next(installation.directory.glob("lib/python*/site-packages"))
    files = [path for path in packages.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files if "__pycache__" not in path.parts)
    assert size < PROMISED_MEGABYTES * 1_000_000
    assert len(json.loads(installation.run(LIST_MODULES))) <= PROMISED_MODULES
    matches = re.findall(r"^Requires-Dist: ([\w.-]+)[^;\n]*$", _metadata(installation.wheel), re.M)
    assert matches == ["click", "httpx2", "pydantic", "rich", "typing-extensions"]


def test_wheel_of_client_has_verbs_without_service_packages(installation: Installation) -> None:
    """All types of answers import, and all signatures resolve."""
    code = """
import inspect
from strandline.client import answers, clients, sessions, graph, admin, writer, writer_async
from strandline.client.verb_declarations import Pages, Verb
for name in answers.MODULE_OF:
    getattr(answers, name).model_json_schema()
count = 0
for owner in (clients.Strandline, sessions.Session, graph.Graph, admin.Admin):
    for _, verb in inspect.getmembers_static(owner):
        if isinstance(verb, Verb | Pages):
            verb.declaration.answer_type
            count += 1
print(count)
"""
    assert int(installation.run(code)) > 60


def test_wheel_files_are_in_one_wheel_each(wheels: dict[str, Path], repository: Path) -> None:
    client, service = (list_files(wheel) for wheel in wheels.values())
    source = repository / "shared"
    texts = {
        str(path.relative_to(source))
        for path in (source / "strandline").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    bundle = "strandline/local/bundle"
    handlers = {f"{bundle}/functions/{fn.name}/handler.py" for fn in FUNCTIONS}
    assert not client & service
    assert client | service == texts | handlers | {f"{bundle}/job.asl.json"}
    extras = {
        name: set(re.findall(r"^Provides-Extra: ([\w-]+)$", _metadata(wheel), re.M))
        for name, wheel in wheels.items()
    }
    assert extras == {
        "strandline": {
            *("agent-framework", "claude", "google-adk", "langgraph", "llama-index"),
            *("openai-agents", "pydantic-ai", "service", "strands"),
        },
        "strandline_service": {"all", "functions", "graph", "local", "model"},
    }


def test_wheel_of_client_has_files_checked_for_its_python(
    wheels: dict[str, Path], repository: Path
) -> None:
    program = [sys.executable, "layers/client_files.py"]
    output = subprocess.run(program, cwd=repository, capture_output=True, text=True, check=True)
    modules = {name for name in list_files(wheels["strandline"]) if name.endswith(".py")}
    assert modules == {line.removeprefix("shared/") for line in output.stdout.splitlines()}


def list_files(wheel: Path) -> set[str]:
    """What a wheel installs."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


# other Pythons -----------------------------------------------------------------------------------

PYTHONS = find_pythons()
COMPILE_AND_IMPORT = """
import compileall, importlib, pathlib, pkgutil, warnings
warnings.simplefilter("error")
import strandline
frameworks = {"agent_framework", "agents", "google", "langchain_core", "langgraph", "pydantic_ai"}
frameworks |= {"anthropic", "llama_index", "strands"}
assert compileall.compile_dir(pathlib.Path(strandline.__file__).parent, quiet=1, force=True)
names = [module.name for module in pkgutil.walk_packages(strandline.__path__, "strandline.")]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = error.name.partition(".")[0]
        if not name.startswith("strandline.adapters.") or package not in frameworks:
            raise
from strandline.client import answers
for name in answers.MODULE_OF:
    getattr(answers, name).model_json_schema()
print(len(names))
"""
HERMETIC = (
    *("client/test_requests.py", "client/test_hostile_answers.py"),
    *("commands/test_import_files.py", "commands/test_hostile_service.py"),
)
"""Tests of the client that need no service."""


def of_old_pythons(versions: Sequence[str]) -> list[Any]:
    """A parameter for each; the oldest stands for all in `make test`."""
    return [
        pytest.param(version, marks=[pytest.mark.proof] if number else [])
        for number, version in enumerate(versions)
    ]


@pytest.fixture(scope="module")
def old_pythons(
    wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Installation]:
    """The client's environment of a Python."""

    @functools.cache
    def make(version: str) -> Installation:
        place = tmp_path_factory.mktemp("old") / "venv"
        return install_client(wheels["strandline"], place, PYTHONS[version])

    return make


@pytest.mark.parametrize("version", of_old_pythons([*PYTHONS]))
def test_wheel_of_client_imports_on_other_pythons(
    old_pythons: Callable[[str], Installation], version: str
) -> None:
    assert int(old_pythons(version).run(COMPILE_AND_IMPORT)) > 100


def test_wheel_of_client_needs_client_packages_only(
    installation: Installation,
) -> None:
    assert int(installation.run(COMPILE_AND_IMPORT)) > 100


@pytest.mark.proof
@pytest.mark.parametrize("version", [*PYTHONS])
def test_wheel_of_client_and_cli_work_on_other_pythons(
    old_pythons: Callable[[str], Installation], version: str, gateway: Gateway, tmp_path: Path
) -> None:
    program = str(Path(__file__).parent / "client_program.py")
    key = gateway.key(rights=("read", "write", "admin"))
    with serve_http() as url:
        said = old_pythons(version).call(program, url, key, str(tmp_path))
    assert said.endswith("all of it works\n"), said


@pytest.mark.proof
@pytest.mark.parametrize("version", [*PYTHONS])
def test_wheel_of_client_passes_own_tests_on_other_pythons(
    old_pythons: Callable[[str], Installation], version: str, repository: Path
) -> None:
    directory = old_pythons(version).directory
    own = ["pytest", "hypothesis"]  # what this Python gets of them
    pip = ["-m", "uv", "pip", "install", "--quiet", "--python", str(directory), *own]
    subprocess.run([sys.executable, *pip], check=True, capture_output=True)
    tests = [str(repository / "tests" / "strandline" / name) for name in HERMETIC]
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", "-c", "/dev/null"]
    options += ["-k", "not memory_does_not_grow"]  # it measures the source tree
    process = subprocess.run(
        [str(directory / "bin" / "python"), "-m", "pytest", *options, *tests],
        cwd=directory,
        env={"PYTHONPATH": str(repository), "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-1000:]
    assert " passed" in process.stdout


@pytest.mark.parametrize("version", of_old_pythons([*PYTHONS]))
def test_wheel_run_on_other_python_says_so(
    old_pythons: Callable[[str], Installation], version: str
) -> None:
    code, error = run_service_of(old_pythons(version), "run")
    assert code == 1
    assert f"The service runs on Python 3.13, and this is Python {version}: " in error
    assert "Traceback" not in error


# the service -------------------------------------------------------------------------------------


@pytest.mark.proof
def test_wheel_of_service_runs_service(installation: Installation, wheels: dict[str, Path]) -> None:
    """With the service's packages of this environment, and nothing of the repository."""
    (packages,) = installation.directory.glob("lib/python*/site-packages")
    pip = ["-m", "uv", "pip", "install", "--quiet", "--no-deps"]
    service = str(wheels["strandline_service"])
    python = ["--python", str(installation.directory)]
    subprocess.run([sys.executable, *pip, *python, service], check=True, capture_output=True)
    command = (sys.executable, "-P", "-m", "strandline.commands.main", "run")
    with (
        data_directory() as directory,
        started(command, directory, PYTHONPATH=str(packages)) as program,
    ):
        program.wait_for("Ctrl-C stops everything")
        place = json.loads((directory / "local.json").read_text())
        with Strandline(place["url"], place["key"]) as memory:
            memory.add("The buoy goes out on Friday.", user="alice")
            assert memory.recall("When does the buoy go out?", user="alice").hits
            assert memory.admin.start_job("builder").kind == "builder"
        program.interrupt()
        assert program.end(30) == 0
        assert not program.traceback


def test_wheel_without_service_says_what_to_install(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    installation = install_client(wheels["strandline"], tmp_path / "venv")
    for words in (["run"], ["operate", "migrate"], ["operate", "keys", "list", "--tenant", "acme"]):
        code, error = run_service_of(installation, *words)
        assert code == 1
        assert "pip install . './shared[all]'" in error
        assert "Traceback" not in error
    assert run_service_of(installation, "operate", "keys", "create", "--help") == (0, "")


def run_service_of(installation: Installation, *words: str) -> tuple[int, str]:
    """The exit code of a command that needs the service, and what it says of the cause."""
    command = [str(installation.directory / "bin" / "strandline"), *words]
    process = subprocess.run(command, cwd=installation.directory, capture_output=True, text=True)
    return process.returncode, process.stderr


def _metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()
