"""`make upgrade`: does the code that ran before go on serving on this release's schema?

Takes the last commit with another schema than lies here (or the one that is named), lays the schema
of here over it (tables and functions), and runs that commit's own tests of its functions, log,
chains, recall, background work and connections. A test that fails is run again with that commit's
own schema, as a commit between two releases may have tests that fail anyway. Then it plants a
migration that takes a column away, and those tests must notice.

The history of the schema begins at its baseline: a commit with a file of tables that is not here,
or not the same here, is passed over, and refused where it is named. While no commit since the
baseline has another schema, only the planted fault is tried, on the code of the last commit.

What lists the catalogue or the files of the schema by name (tests/strandline/db, but for two of its
files) is not run: what a newer schema adds is no fault of it. Nor are the proofs: they are the same
code at greater sizes.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from strandline.db.schema_files import BASELINE

ROOT = Path(__file__).parents[2]
SCHEMA = Path("shared/strandline/db/schema")
_FUNCTIONS = "shared/strandline/**/functions.sql"
_ORDER = Path("shared/strandline/db/schema_files.py")
"""The rooms whose functions are applied."""
_PATHS = (str(SCHEMA), f":(glob){_FUNCTIONS}")
"""What git finds the schema by."""
_OWN_SCHEMA = Path("own_schema")
CURRENT_TESTS = (
    "tests/functions",
    "tests/strandline/admin",
    "tests/strandline/apidocs",
    "tests/strandline/auth",
    "tests/strandline/background",
    "tests/strandline/chains",
    "tests/strandline/context",
    "tests/strandline/erasure",
    "tests/strandline/graph",
    "tests/strandline/jobs",
    "tests/strandline/llm",
    "tests/strandline/log",
    "tests/strandline/mcp",
    "tests/strandline/personas",
    "tests/strandline/recall",
    "tests/strandline/sessions",
    "tests/strandline/tenants",
    "tests/strandline/topics",
    "tests/strandline/db/test_database.py",
    "tests/strandline/db/test_lost_connections.py",
    "tests/strandline/db/test_migrate.py",
)
CATALOGUE_TESTS = ("tests/strandline/erasure/test_data_inventory.py",)
"""Those among them that list all tables by name: a newer schema may have more."""
OLDER_TESTS = ("tests/strandline/services", "tests/strandline/test_db.py")
"""What a commit of the older layout has in their place."""
TESTS = (*CURRENT_TESTS, *OLDER_TESTS)
"""A commit's tests are those of them that it has."""
MAX_CHANGES = 50
"""How many changes of the schema are looked at, back from now."""
PROCESSES = ("-p", "xdist", "-n", "2", "--dist", "worksteal")
"""How its tests share a machine of two processors."""
FAULT = "alter table jobs drop column advice;\n"
FAULT_TESTS = ("tests/strandline/jobs/test_jobs.py", "tests/functions/test_jobs.py")
"""Where it lies, and where an older commit has it."""


class NoHistory(Exception):
    """The commit before cannot be had here; says what to do."""


def find_previous_commit(root: Path) -> str | None:
    """The last commit with another schema than lies in `root`, whose files of tables are here; None
    where there is none since the baseline. Raises NoHistory."""
    others = _list_other_schemas(root)
    return next((commit for commit in others if _is_since_baseline(root, commit)), None)


def _list_other_schemas(root: Path) -> Iterator[str]:
    """The commits before each change of the schema, the newest first. One of them may have a
    migration that a branch changed again before it was merged."""
    head = _git(root, "rev-parse", "HEAD")
    if head is None:
        raise NoHistory(f"{root} is no git checkout: run this in a clone.")
    if _git(root, "status", "--porcelain", "--", *_PATHS):
        yield head
    changes = _git(root, "rev-list", f"-{MAX_CHANGES}", "HEAD", "--", *_PATHS) or ""
    for n, change in enumerate(changes.split()):
        commit = _git(root, "rev-parse", "--verify", "--quiet", f"{change}^")
        if commit is None and n == 0:
            raise NoHistory(
                "The history ends before the last change of the schema: `git fetch --unshallow`,"
                " or `fetch-depth: 0` where CI checks out."
            )
        if commit is None or not _has_schema(root, commit):
            return
        yield commit


def _is_since_baseline(root: Path, commit: str) -> bool:
    """Whether each of that commit's files of tables lies in `root`, the same: none is ever
    edited."""
    if not _has_schema(root, commit):
        return False  # another schema, or the same one before it was moved here
    numbered = f"{SCHEMA}/[0-9]*.sql"
    added = ("--no-renames", "--diff-filter=a")  # lower case: all but what was added since
    return _git(root, "diff", "--name-only", *added, commit, "--", numbered) == ""


def _has_schema(root: Path, commit: str) -> bool:
    return _git(root, "cat-file", "-e", f"{commit}:{SCHEMA}") is not None


def check_out(root: Path, commit: str, directory: Path) -> None:
    """That commit's tree in `directory`, with the schema of `root`. Raises NoHistory."""
    archive = directory / "tree.tar"
    if _git(root, "archive", "--output", str(archive), commit) is None:
        raise NoHistory(f"There is no commit {commit} here: fetch it, tags and all.")
    if not _is_since_baseline(root, commit):
        archive.unlink()
        raise NoHistory(
            f"{commit} is older than the baseline of the schema: it has files of tables that are "
            "not here, or not the same here. Its code cannot run on this schema: name a later one."
        )
    with tarfile.open(archive) as tree:
        tree.extractall(directory, filter="data")
    archive.unlink()
    _move_schema(directory, directory / _OWN_SCHEMA)
    for file in _list_schema(root):
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / file, directory / file)


def _list_schema(root: Path) -> list[Path]:
    """The files of tables and functions in a tree."""
    files = [*root.joinpath(SCHEMA).rglob("*"), *root.glob(_FUNCTIONS), root / _ORDER]
    return [file.relative_to(root) for file in files if file.is_file()]


def _move_schema(directory: Path, target: Path) -> None:
    """Move the schema of one tree into another, in the place of the one that is there."""
    for file in _list_schema(directory):
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).rename(target / file)


def run_tests(
    directory: Path, tests: Sequence[str], *, quiet: bool = False, again: bool = False
) -> frozenset[str]:
    """Those of `tests` that `directory` has and that fail; with `again`, of those that failed last.
    Raises FileNotFoundError where it has none."""
    cache = directory / ".failures"
    if not again:
        shutil.rmtree(cache, ignore_errors=True)
    present_tests = [test for test in tests if (directory / test).exists()]
    if not present_tests:  # pytest without a path would run all there are
        raise FileNotFoundError(f"{directory} has none of {', '.join(tests)}")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "pytest", "-q", *PROCESSES, "-o", f"cache_dir={cache}"]
    command += [f"--ignore={file}" for file in CATALOGUE_TESTS]
    command += ["--last-failed"] if again else []
    result = subprocess.run(
        [*command, *present_tests],
        check=False,
        cwd=directory,
        env=environment,
        capture_output=quiet,
        text=True,
    )
    if result.returncode not in (0, 1):  # 1: tests failed; the others: none ran
        raise RuntimeError(f"pytest ended with {result.returncode} in {directory}: {result.stdout}")
    if result.returncode == 0:
        return frozenset()
    return frozenset(json.loads((cache / "v/cache/lastfailed").read_text()))


def find_faults(directory: Path, tests: Sequence[str]) -> frozenset[str]:
    """The tests that fail on the schema that was laid over, and pass on the commit's own."""
    failures = run_tests(directory, tests)
    if not failures:
        return failures
    newer = directory / "newer_schema"
    _move_schema(directory, newer)
    _move_schema(directory / _OWN_SCHEMA, directory)
    own_failures = run_tests(directory, tests, quiet=True, again=True)
    _move_schema(directory, directory / _OWN_SCHEMA)
    _move_schema(newer, directory)
    for test in sorted(own_failures):
        print(f"upgrade: {test} fails on that commit's own schema too", flush=True)
    return failures - own_failures


def add_migration(directory: Path, text: str) -> None:
    """A further migration."""
    names = [file.name for file in (directory / SCHEMA).glob("[0-9][0-9][0-9][0-9]_*.sql")]
    number = max((int(name[:4]) for name in names), default=BASELINE) + 1
    (directory / SCHEMA / f"{number:04}_plant_a_fault.sql").write_text(text)


def main(arguments: Sequence[str]) -> int:
    """0 when the previous code passes and the planted fault is noticed."""
    with tempfile.TemporaryDirectory(prefix="strandline-upgrade-") as directory:
        checkout = Path(directory)
        try:
            commit = arguments[0] if arguments else find_previous_commit(ROOT)
            check_out(ROOT, commit or "HEAD", checkout)
        except NoHistory as none:
            print(f"upgrade: {none}", file=sys.stderr)
            return 2
        if commit is None:
            print("upgrade: the schema is at its baseline: no older code runs on it", flush=True)
        else:
            print(f"upgrade: the code of {commit} on the schema that lies here", flush=True)
            if faults := find_faults(checkout, TESTS):
                print(f"upgrade: {len(faults)} tests fail on this schema alone:", *sorted(faults))
                print("upgrade: a release must expand before it contracts: docs/upgrade.md")
                return 1
        add_migration(checkout, FAULT)
        if not run_tests(checkout, FAULT_TESTS, quiet=True):
            print("upgrade: a column was taken away, and nothing noticed", file=sys.stderr)
            return 1
        print(f"upgrade: passed; without a column that it uses ({FAULT.strip()}) it did not")
    return 0


def _git(root: Path, *words: str) -> str | None:
    """What git says; None where it refuses."""
    result = subprocess.run(["git", *words], check=False, cwd=root, capture_output=True, text=True)
    return result.stdout.strip() if result.returncode == 0 else None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
