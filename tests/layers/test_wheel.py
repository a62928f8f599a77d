"""What `pip install strandline` gives: the built wheel in an environment with what the client's
lock names and nothing else."""

import json
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from strandline import Strandline
from strandline.function_specs import FUNCTIONS
from tests.strandline.client.conftest import serve_http
from tests.strandline.client.test_import import PROMISED_MILLISECONDS
from tests.strandline.local.programs import data_directory, started
from tests.support import Gateway
from tests.test_docs import blocks

PROMISED_MEGABYTES = 20
_SHORT = 15
"""Lines of the README's first program."""


@dataclass(frozen=True)
class Installation:
    """An environment, and the wheel that was installed into it."""

    directory: Path
    wheel: Path

    def run(self, code: str, **environment: str) -> str:
        """What a program says in it. It sees nothing of the repository."""
        return subprocess.run(
            [str(self.directory / "bin" / "python"), "-I", "-c", code],
            cwd=self.directory,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An empty environment, the client's lock, and the wheel."""
    root = Path(__file__).parents[2]
    place = tmp_path_factory.mktemp("wheel")

    def call(*command: str) -> None:
        subprocess.run([sys.executable, "-m", *command], cwd=root, check=True, capture_output=True)

    call("hatchling", "build", "-t", "wheel", "-d", str(place))
    (wheel,) = place.glob("*.whl")
    environment = place / "venv"
    call("uv", "venv", "--quiet", "--python", sys.executable, str(environment))
    pip = ("uv", "pip", "install", "--quiet", "--python", str(environment), "--no-deps")
    call(*pip, "--require-hashes", "-r", "requirements/client.lock")
    call(*pip, str(wheel))
    return Installation(environment, wheel)


def test_the_readme_s_first_program_runs_as_it_stands(
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


def test_it_is_small_and_fast_and_needs_little(installation: Installation) -> None:
    packages = next(installation.directory.glob("lib/python*/site-packages"))
    files = [path for path in packages.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files if "__pycache__" not in path.parts)
    assert size < PROMISED_MEGABYTES * 1_000_000
    code = """
        import time, sys, json
        start = time.perf_counter()
        from strandline import Strandline
        print(json.dumps(1000 * (time.perf_counter() - start)))
        """
    lines = "\n".join(line.strip() for line in code.splitlines())
    times = [json.loads(installation.run(lines)) for _ in range(5)]
    assert min(times) <= PROMISED_MILLISECONDS
    matches = re.findall(r"^Requires-Dist: ([\w.-]+)[^;\n]*$", _metadata(installation.wheel), re.M)
    assert matches == ["click", "httpx2", "pydantic", "rich"]
    print(f"{size / 1e6:.1f} MB, import {min(times):.0f} ms")


def test_every_verb_can_be_read_without_the_service_s_packages(installation: Installation) -> None:
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
            verb.declaration.answer
            count += 1
print(count)
"""
    assert int(installation.run(code)) > 60


def test_the_wheel_has_the_package_and_its_data(
    installation: Installation, repository: Path
) -> None:
    with zipfile.ZipFile(installation.wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    source = repository / "shared"
    texts = {
        str(path.relative_to(source))
        for path in (source / "strandline").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    bundle = "strandline/local/bundle"
    handlers = {f"{bundle}/functions/{fn.name}/handler.py" for fn in FUNCTIONS}
    assert names == texts | handlers | {f"{bundle}/job.asl.json"}
    extras = set(re.findall(r"^Provides-Extra: (\w+)$", _metadata(installation.wheel), re.M))
    assert extras == {"functions", "graph", "local", "model", "service"}


@pytest.mark.proof
def test_an_installed_wheel_runs_the_service(installation: Installation) -> None:
    """With the service's packages of this environment, and nothing of the repository."""
    (packages,) = installation.directory.glob("lib/python*/site-packages")
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


def test_without_the_service_s_packages_run_says_what_to_install(
    installation: Installation,
) -> None:
    code = "import sys; from strandline.commands.main import main; sys.exit(main(['run']))"
    command = [str(installation.directory / "bin" / "python"), "-I", "-c", code]
    process = subprocess.run(command, cwd=installation.directory, capture_output=True, text=True)
    assert process.returncode == 1
    assert "pip install 'strandline[service]'" in process.stderr
    assert "Traceback" not in process.stderr


def _metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()
