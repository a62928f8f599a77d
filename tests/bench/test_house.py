"""The figures of a small tree that is made for it, counted by hand."""

import ast
import subprocess
from pathlib import Path

import pytest

from tests.bench import house
from tests.bench.house import NONE

VOCABULARY = house.read_vocabulary()
MAX_PARTICIPLES = 4 / 1000
"""Of all identifiers of production code."""
MAX_PARTICIPLES_IN_TESTS = 15 / 1000
CONFIG = '''\
"""Settings."""

appends_per_minute: int = 10


class Answer:
    """What a caller gets."""

    stored: int
    told: str

    def __init__(self, asked: str, _: int) -> None:
        """Three lines."""
        self.found = asked


def seed(speed: int) -> int:
    """Two lines and a docstring."""
    need = said = speed
    with_found = need
    return said + with_found
'''
FILES = {
    "shared/strandline/__init__.py": '"""Not counted."""\n',
    "shared/strandline/config.py": CONFIG,
    "shared/strandline/store/quotas.py": 'LIMIT = "appends_per_minute"\n' + "\n" * 350,
    "shared/strandline/migrations/0001.sql": "-- appends_per_minute\nselect 1;\n",
    "shared/strandline/migrations/0002.sql": "-- appends_per_minute\n",
    "infra/stack.py": "from a import b as given, c as given\n",
    "tests/test_all.py": 'seen = "appends_per_minute"\n',
    "README.md": "# One\n\nTwo\n",
}


def git(root: Path, *arguments: str) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *author, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one commit."""
    place = tmp_path / "planted"
    for name, text in FILES.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    git(place, "init", "-q")
    git(place, "add", ".")
    git(place, "commit", "-qm", "planted")
    return place


def test_house_counts_figures_of_tree(root: Path) -> None:
    (root / "infra" / "draft.py").write_text("told = 1\n")  # git does not track it
    result = house.figures(house.working_tree(root), VOCABULARY)
    assert result == {
        "modules": "3",
        "module lines: median, p90, max": "21, 285, 351",
        "modules over 350 lines": "1",
        "functions": "2",
        "function lines: median, p90, max": "4, 4.8, 5",
        # appends_per_minute Answer stored told __init__ asked found seed speed need said with_found
        # LIMIT given given
        "identifiers": "15",
        "bare participles per 1,000": "400.0",  # told asked found said given given
        "production lines, Python": "374",
        "production lines, SQL": "3",
        "tracked files": "8",
        "tracked bytes": f"{sum(len(text) for text in FILES.values()):,}",
        "README lines": "3",
        "DECISIONS lines": "0",
        "places to touch: quota": "3",  # both modules, and SQL once
        "places to touch: event field": NONE,
        "places to touch: job": NONE,
        "places to touch: node type": NONE,
        "places to touch: topic boundary": NONE,
        "places to touch: ranking": NONE,
        "places to touch: why a 409": NONE,
        "modules in infra": "1",
        "modules in shared/strandline": "1",
        "modules in shared/strandline/store": "1",
    }


def test_house_reads_commit_as_it_was(root: Path, tmp_path: Path) -> None:
    first = house.figures(house.working_tree(root), VOCABULARY)
    (root / "README.md").unlink()
    (root / "infra" / "stack.py").write_text("kept = 1\n")
    git(root, "add", ".")
    now = house.figures(house.working_tree(root), VOCABULARY)
    before = house.figures(house.commit_tree(root, "HEAD", tmp_path / "before"), VOCABULARY)
    assert before == first
    assert {row for row in now if now[row] != before[row]} == {
        "identifiers",
        "bare participles per 1,000",
        "tracked files",
        "tracked bytes",
        "README lines",
    }


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("asked", True),
        ("_KEPT", True),
        ("Said", True),
        ("told_", True),
        ("Unembedded", True),
        ("was_asked", False),
        ("TwiceAsked", False),
        ("seed", False),
        ("expired", False),
        ("put", False),
        ("READ", False),
        ("ask", False),
    ],
)
def test_house_recognises_bare_participles(name: str, counts: bool) -> None:
    assert house.is_bare_participle(name, VOCABULARY) is counts


def test_house_counts_every_bound_name() -> None:
    code = """
import a as b
async def c(d, /, e, *f, g, **h):
    for i, (j, *k) in e: l.m = i
    try: pass
    except e as n: global o
    with e as p: q: int = [r for r in e]
    match e:
        case {"x": s, **t}: pass
        case [*u] as v: pass
    return (w := lambda x: e)
type y[z, *A, **B] = int
"""
    names = house.identifiers(ast.parse(code))
    assert sorted(names) == sorted("bcdefghijkmnpqrstuvwxyzAB")


@pytest.mark.source
def test_house_lists_definitions_for_draw(root: Path) -> None:
    assert list(house.definitions(house.working_tree(root))) == [
        "strandline.config: Answer",
        "strandline.config: seed(speed)",
    ]


def test_house_names_have_few_bare_participles() -> None:
    """`make house LIST=1` names those there are. A reader has to guess a name right: `found` is
    rows, candidates or a session, whichever it is."""
    counts, identifiers = house.participles(house.working_tree(house.ROOT), VOCABULARY)
    assert counts.total() <= MAX_PARTICIPLES * identifiers, counts.most_common(20)


@pytest.mark.source
@pytest.mark.parametrize("folder", ["tests", "layers"])
def test_house_tests_and_layers_have_few_bare_participles(folder: str) -> None:
    tree = house.working_tree(house.ROOT)
    paths = [path for path in tree.paths if path.suffix == ".py" and path.is_relative_to(folder)]
    counts, identifiers = house.participles(tree, VOCABULARY, paths)
    assert counts.total() <= MAX_PARTICIPLES_IN_TESTS * identifiers, counts.most_common(20)


@pytest.mark.source
def test_house_modules_are_short() -> None:
    tree = house.working_tree(house.ROOT)
    long = {str(path): tree.lines(path) for path in house.modules(tree)}
    assert {path: lines for path, lines in long.items() if lines > house.LONG} == {}


def test_house_table_shows_figures_of_one_tree_only() -> None:
    columns = {
        "abc": {"lines": "10", "modules in a": "1", "modules in c": "3"},
        "now": {"lines": "9", "modules in b": "22", "modules in c": "4"},
    }
    assert house.table(columns) == [
        "              abc  now",
        "lines          10    9",
        f"modules in a    1    {NONE}",
        f"modules in b    {NONE}   22",
        "modules in c    3    4",
    ]


@pytest.mark.source
@pytest.mark.parametrize("name", VOCABULARY.walks)
def test_house_walk_finds_its_example(name: str) -> None:
    """A change that renames an example adds its name to the marker, and leaves the former one."""
    tree = house.working_tree(house.ROOT)
    assert house.places(tree, VOCABULARY, VOCABULARY.walks[name])


@pytest.mark.source
def test_house_new_event_field_takes_few_places() -> None:
    tree = house.working_tree(house.ROOT)
    field = house.places(tree, VOCABULARY, VOCABULARY.walks["event field"])
    assert "shared/strandline/client/memory.py" in field
    assert len(field) <= 5
    assert "SQL" in field


def test_house_generated_file_is_no_place(root: Path) -> None:
    quota = VOCABULARY.walks["quota"]
    vocabulary = VOCABULARY._replace(generated={"shared/strandline/config.py": "settings"})
    before = house.places(house.working_tree(root), vocabulary, quota)
    (root / "Makefile").write_text("settings: ## write them\n\tpython settings.py\n")
    git(root, "add", "Makefile")
    after = house.places(house.working_tree(root), vocabulary, quota)
    assert [place for place in before if place not in after] == ["shared/strandline/config.py"]
