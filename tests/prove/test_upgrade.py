"""`make upgrade` finds the previous code, or says why it cannot; the run itself is `make prove`'s,
because it needs the history that a clone in CI may lack."""

import subprocess
from pathlib import Path

import pytest

from tests.prove.upgrade import (
    CURRENT_TESTS,
    OLDER_TESTS,
    SCHEMA,
    TESTS,
    NoHistory,
    add_migration,
    check_out,
    find_faults,
    find_previous_commit,
    run_tests,
)

TEST = """
from pathlib import Path

def test_the_column_is_there():
    sql = [file.read_text() for file in Path("shared/strandline/db/schema").iterdir()]
    assert not any("drop column" in text for text in sql)
"""
COLUMN_TEST = "tests/test_old.py::test_the_column_is_there"
FAILING_TEST = """
def test_it_fails_anyway():
    assert False
"""


def git(root: Path, *words: str) -> str:
    """git, as nobody in particular."""
    who = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    return subprocess.check_output(["git", *who, *words], cwd=root, text=True).strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A history of three commits, of which the second changed the schema."""
    root = tmp_path / "origin"
    (root / SCHEMA).mkdir(parents=True)
    git(root, "init", "-q")
    (root / "tests").mkdir()
    (root / "tests" / "test_old.py").write_text(TEST)
    for number in (1, 2, 3):
        if number < 3:
            (root / SCHEMA / f"000{number}_grow.sql").write_text(f"select {number};")
        (root / "code").write_text(str(number))
        git(root, "add", ".")
        git(root, "commit", "-q", "-m", f"commit {number}")
    return root


def test_upgrade_takes_last_commit_with_other_schema(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # which only take their time here
    commit = find_previous_commit(clone)
    assert commit is not None
    assert commit == git(clone, "rev-parse", "HEAD~2")
    place = tmp_path / "place"
    place.mkdir()
    check_out(clone, commit, place)
    assert (place / "code").read_text() == "1"
    assert [file.name for file in sorted((place / SCHEMA).iterdir())] == [
        "0001_grow.sql",
        "0002_grow.sql",
    ]
    assert run_tests(place, ["tests", "tests/of_tomorrow"], quiet=True) == set()
    add_migration(place, "alter table t drop column c;")
    assert run_tests(place, ["tests"], quiet=True) == {COLUMN_TEST}


def test_upgrade_ignores_test_failing_on_own_schema(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    place = tmp_path / "place"
    place.mkdir()
    check_out(clone, "HEAD~2", place)
    (place / "tests" / "test_new.py").write_text(FAILING_TEST)
    assert find_faults(place, ["tests"]) == set()
    add_migration(place, "alter table t drop column c;")
    assert find_faults(place, ["tests"]) == {COLUMN_TEST}


def test_upgrade_tests_exist(repository: Path) -> None:
    assert [path for path in CURRENT_TESTS if not (repository / path).exists()] == []


@pytest.mark.parametrize("layout", [CURRENT_TESTS, OLDER_TESTS])
def test_upgrade_finds_tests_in_layout_of_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    files = [
        path if path.endswith(".py") else f"{path}/test_{n}.py" for n, path in enumerate(layout)
    ]
    for file in [*files, "tests/strandline/test_other.py"]:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(FAILING_TEST)
    failures = run_tests(tmp_path, TESTS, quiet=True)
    assert failures == {f"{file}::test_it_fails_anyway" for file in files}


def test_upgrade_from_commit_without_tests_is_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="has none of tests/functions"):
        run_tests(tmp_path, TESTS)


def test_upgrade_skips_migration_changed_before_merge(clone: Path) -> None:
    (clone / SCHEMA / "0003_grow.sql").write_text("select 3;")
    git(clone, "add", ".")
    git(clone, "commit", "-q", "-m", "a first try")
    (clone / SCHEMA / "0003_grow.sql").write_text("select 'three';")
    git(clone, "commit", "-q", "-a", "-m", "the one that is merged")
    assert find_previous_commit(clone) == git(clone, "rev-parse", "HEAD~2")


@pytest.mark.parametrize("change", ["edited", "replaced", "moved here"])
def test_upgrade_refuses_commit_before_baseline(clone: Path, tmp_path: Path, change: str) -> None:
    place = clone / SCHEMA
    if change == "edited":
        (place / "0001_grow.sql").write_text("select 'otherwise';")
    elif change == "replaced":
        (place / "0001_grow.sql").unlink()
        (place / "0001_begin.sql").write_text("select 1;")
    else:
        git(clone, "mv", str(SCHEMA), "elsewhere")
        git(clone, "commit", "-q", "-m", "the schema lay elsewhere")
        place.parent.mkdir(parents=True, exist_ok=True)
        git(clone, "mv", "elsewhere", str(SCHEMA))
    git(clone, "add", ".")
    git(clone, "commit", "-q", "-m", "the baseline")
    assert find_previous_commit(clone) is None
    with pytest.raises(NoHistory, match="HEAD~1 is older than the baseline"):
        check_out(clone, "HEAD~1", tmp_path)
    (place / "0003_grow.sql").write_text("select 3;")
    git(clone, "add", ".")
    git(clone, "commit", "-q", "-m", "a migration after the baseline")
    assert find_previous_commit(clone) == git(clone, "rev-parse", "HEAD~1")


def test_upgrade_takes_last_commit_during_new_migration(
    clone: Path,
) -> None:
    (clone / SCHEMA / "0003_grow.sql").write_text("select 3;")
    assert find_previous_commit(clone) == git(clone, "rev-parse", "HEAD")


def test_upgrade_counts_other_function_revision_as_schema(clone: Path, tmp_path: Path) -> None:
    """The commit's code runs on the functions that lie here, and its own can be put back."""
    functions = clone / SCHEMA.parents[1] / "log" / "functions.sql"
    functions.parent.mkdir()
    for revision in (1, 2):
        functions.write_text(f"-- revision: {revision}\n")
        git(clone, "add", ".")
        git(clone, "commit", "-q", "-m", f"revision {revision}")
    commit = find_previous_commit(clone)
    assert commit is not None
    assert commit == git(clone, "rev-parse", "HEAD~1")
    check_out(clone, commit, tmp_path)
    assert (tmp_path / functions.relative_to(clone)).read_text() == "-- revision: 2\n"
    own = tmp_path / "own_schema" / functions.relative_to(clone)
    assert own.read_text() == "-- revision: 1\n"


def test_upgrade_of_shallow_clone_says_how_to_get_history(clone: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", clone.as_uri(), "shallow")
    with pytest.raises(NoHistory, match="fetch-depth: 0"):
        find_previous_commit(tmp_path / "shallow")
    with pytest.raises(NoHistory, match="no commit v9"):
        check_out(clone, "v9", tmp_path)


def test_upgrade_without_git_checkout_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoHistory, match="no git checkout"):
        find_previous_commit(tmp_path)
