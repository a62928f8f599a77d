"""The shape of the code in figures: for the working tree, and for a commit beside it.

    python -m tests.bench.house [--before COMMIT] [--list] [--draw COUNT]

Only files that git tracks are measured, as they are in the working tree or in the commit.
Production code lies in `shared/strandline`, `infra`, `functions`, `events/demo`. What is counted:

- modules by folder, without `__init__.py`; lines of modules and of functions, everything included;
- identifiers: every place that binds a name (functions, classes, parameters, variables, attributes,
  fields, aliases), without `self`, `cls` and `_`;
- bare participles: identifiers of one word, leading and trailing underscores aside, that end in
  "ed" or are one of the irregular participles in house.json. Not counted: words that are no
  participles ("seed"), the field's terms ("expired"), forms that are also a base form ("put",
  "read", "set", "run"), and annotated fields of a class that are fields of the API, which keep
  their names;
- places to touch in seven walks, from one example of each that exists already. A walk's marker in
  house.json is a regular expression. Each production file in Python or JSON that matches counts as
  one place, and all SQL files together as one, because a change to the schema is one migration. A
  mention in a comment counts: such a change has to read it. A file that a target of
  the tree's Makefile writes is no place; house.json names both. What a marker does not name is not
  counted, so the figures compare two trees and are no absolute effort. A dash says that a marker
  matches nothing: it needs the new name as a further alternative.

`--list` adds the names and files behind the figures of the working tree. `--draw` prints nothing
but so many definitions as a reader meets them, by chance that the commit seeds: a stranger who says
what each does, without its body, tells whether names say enough.
"""

import argparse
import ast
import io
import json
import random
import re
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from statistics import median, quantiles
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
PRODUCTION = ("shared/strandline", "infra", "functions", "events/demo")
LONG = 350
"""More lines than this make a module too long."""
NONE = "-"


class Walk(NamedTuple):
    """A change that somebody makes one day, and what marks an example of it."""

    what: str
    marker: re.Pattern[str]


class Vocabulary(NamedTuple):
    """The words and walks of house.json."""

    irregular: frozenset[str]
    exceptions: frozenset[str]
    """Words that do not count."""
    api_fields: frozenset[str]
    walks: Mapping[str, Walk]
    generated: Mapping[str, str]
    """Files that a command writes, and the target of the Makefile that does."""


class Tree(NamedTuple):
    """The files of a working tree or a commit."""

    root: Path
    paths: Sequence[PurePosixPath]

    def production(self, *suffixes: str) -> list[PurePosixPath]:
        """The production files with one of these endings."""
        return [
            path
            for path in self.paths
            if path.suffix in suffixes and any(path.is_relative_to(top) for top in PRODUCTION)
        ]

    def text(self, path: PurePosixPath) -> str:
        """A file's text."""
        return (self.root / path).read_text(encoding="utf-8")

    def lines(self, path: PurePosixPath) -> int:
        """A file's number of lines; 0 where it does not exist."""
        return len(self.text(path).splitlines()) if path in self.paths else 0


def read_vocabulary() -> Vocabulary:
    """The words and walks that ship beside this module."""
    data = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    exceptions = frozenset([*data["not_participles"], *data["terms"]])
    walks = {
        name: Walk(entry["what"], re.compile(entry["marker"]))
        for name, entry in data["walks"].items()
    }
    irregular, api_fields = frozenset(data["irregular"]), frozenset(data["api_fields"])
    return Vocabulary(irregular, exceptions, api_fields, walks, data["generated"])


def working_tree(root: Path) -> Tree:
    """The files that git tracks, as they are now."""
    names = _git(root, "ls-files", "-z").decode().split("\0")
    paths = [PurePosixPath(name) for name in names if name and (root / name).is_file()]
    return Tree(root, paths)


def commit_tree(root: Path, commit: str, directory: Path) -> Tree:
    """The files of a commit, written into an empty directory."""
    archive = io.BytesIO(_git(root, "archive", "--format=tar", commit))
    with tarfile.open(fileobj=archive) as tar:
        tar.extractall(directory, filter="data")
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return Tree(directory, [PurePosixPath(path.relative_to(directory)) for path in files])


def _git(root: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True).stdout


def modules(tree: Tree) -> list[PurePosixPath]:
    """The production modules in Python."""
    return [path for path in tree.production(".py") if path.name != "__init__.py"]


def function_lengths(module: ast.Module) -> list[int]:
    """The lines of each function, from `def` to its end; decorators not counted."""
    return [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def identifiers(module: ast.Module) -> list[str]:
    """The names that a module binds, each as often as it does."""
    names = (name for node in ast.walk(module) for name in _names_of(node))
    return [name for name in names if name not in ("self", "cls", "_")]


def _names_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.arg(arg=name):
            yield name
        case ast.TypeVar(name=name) | ast.ParamSpec(name=name) | ast.TypeVarTuple(name=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
            yield name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name
        case _:
            pass


def fields(module: ast.Module) -> list[str]:
    """The annotated fields of a module's classes."""
    return [
        line.target.id
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef)
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    ]


def is_bare_participle(name: str, vocabulary: Vocabulary) -> bool:
    """Whether an identifier is a single participle."""
    bare = name.strip("_")
    word = bare.lower()
    if "_" in bare or re.search("[a-z][A-Z]", bare):
        return False
    participle = word.endswith("ed") or word in vocabulary.irregular
    return participle and word not in vocabulary.exceptions


def participles(
    tree: Tree, vocabulary: Vocabulary, paths: Sequence[PurePosixPath] | None = None
) -> tuple[Counter[str], int]:
    """The bare participles of these modules or of production's, and how many identifiers there
    are in all."""
    trees = [ast.parse(tree.text(path)) for path in paths or modules(tree)]
    names = Counter(name for module in trees for name in identifiers(module))
    counter = Counter(name for module in trees for name in fields(module))
    counts = Counter({n: count for n, count in names.items() if is_bare_participle(n, vocabulary)})
    counts -= Counter({n: count for n, count in counter.items() if n in vocabulary.api_fields})
    return counts, names.total()


def list_generated(tree: Tree, vocabulary: Vocabulary) -> set[str]:
    """The files that nobody edits by hand, because the tree's Makefile has the target for it."""
    makefile = PurePosixPath("Makefile")
    text = tree.text(makefile) if makefile in tree.paths else ""
    return {
        path
        for path, target in vocabulary.generated.items()
        if re.search(rf"^{target}:", text, re.MULTILINE)
    }


def places(tree: Tree, vocabulary: Vocabulary, walk: Walk) -> list[str]:
    """The production files that a walk touches, all SQL as one."""
    generated = list_generated(tree, vocabulary)
    files = [p for p in tree.production(".py", ".json", ".sql") if str(p) not in generated]
    matches = [path for path in files if walk.marker.search(tree.text(path))]
    texts = [str(path) for path in matches if path.suffix != ".sql"]
    return [*texts, "SQL"] if len(texts) < len(matches) else texts


def figures(tree: Tree, vocabulary: Vocabulary) -> dict[str, str]:
    """What the table shows of a tree, by row."""
    paths = modules(tree)
    lengths = {path: tree.lines(path) for path in paths}
    functions = [n for path in paths for n in function_lengths(ast.parse(tree.text(path)))]
    counts, names = participles(tree, vocabulary)
    rows = {
        "modules": len(paths),
        "module lines: median, p90, max": _spread(list(lengths.values())),
        f"modules over {LONG} lines": sum(n > LONG for n in lengths.values()),
        "functions": len(functions),
        "function lines: median, p90, max": _spread(functions),
        "identifiers": names,
        "bare participles per 1,000": f"{1000 * counts.total() / names:.1f}" if names else NONE,
        "production lines, Python": sum(tree.lines(path) for path in tree.production(".py")),
        "production lines, SQL": sum(tree.lines(path) for path in tree.production(".sql")),
        "tracked files": len(tree.paths),
        "tracked bytes": sum((tree.root / path).stat().st_size for path in tree.paths),
        "README lines": tree.lines(PurePosixPath("README.md")),
        "DECISIONS lines": tree.lines(PurePosixPath("DECISIONS.md")),
    }
    for name, walk in vocabulary.walks.items():
        rows[f"places to touch: {name}"] = len(places(tree, vocabulary, walk)) or NONE
    folders = Counter(str(path.parent) for path in paths)
    rows |= {f"modules in {folder}": folders[folder] for folder in sorted(folders)}
    return {row: f"{value:,}" if isinstance(value, int) else value for row, value in rows.items()}


def _spread(values: Sequence[int]) -> str:
    if not values:
        return NONE
    tenths = quantiles(values, n=10, method="inclusive")
    return f"{median(values):g}, {tenths[-1]:g}, {max(values)}"


def table(columns: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The figures of some trees side by side, by the tree's title; rows as they come first."""
    rows = list(dict.fromkeys(row for column in columns.values() for row in column))
    # A folder that only one tree has stays among the folders: they are last in every column.
    rows.sort(key=lambda row: row if row.startswith("modules in ") else "")
    cells = [["", *columns]]
    cells += [[row, *(column.get(row, NONE) for column in columns.values())] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    ]


def details(tree: Tree, vocabulary: Vocabulary) -> Iterator[str]:
    """The names and files behind the figures of a tree."""
    counts, _ = participles(tree, vocabulary)
    yield "bare participles: " + ", ".join(f"{name} {n}" for name, n in counts.most_common())
    long = [path for path in modules(tree) if tree.lines(path) > LONG]
    yield f"over {LONG} lines: " + ", ".join(f"{path} {tree.lines(path)}" for path in long)
    for name, walk in vocabulary.walks.items():
        yield f"{name} ({walk.what}): " + ", ".join(places(tree, vocabulary, walk))


def definitions(tree: Tree) -> Iterator[str]:
    """Production's functions, methods and classes as `module: Class.name(parameters)`; those inside
    a function and special methods are left out."""
    for path in modules(tree):
        module = ".".join(path.with_suffix("").parts).removeprefix("shared.")
        yield from (f"{module}: {name}" for name in _definitions_of(ast.parse(tree.text(path))))


def _definitions_of(body: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[str]:
    for node in body.body:
        if isinstance(node, ast.ClassDef):
            yield prefix + node.name
            yield from _definitions_of(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[:2] != "__":
            names = [a.arg for a in [*node.args.args, *node.args.kwonlyargs]]
            parameters = [name for name in names if name not in ("self", "cls")]
            yield f"{prefix}{node.name}({', '.join(parameters)})"


def main() -> None:
    """Print the table, and what is behind it, or a draw of definitions."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.house", description="Measures the shape of the code."
    )
    parser.add_argument("--before", metavar="COMMIT", help="show this commit beside it")
    parser.add_argument("--list", action="store_true", help="add the names and files counted")
    parser.add_argument("--draw", type=int, metavar="COUNT", help="print so many definitions")
    arguments = parser.parse_args()
    vocabulary = read_vocabulary()
    now = working_tree(ROOT)
    if arguments.draw:
        chance = random.Random(_git(ROOT, "rev-parse", "HEAD").decode().strip())
        names = list(definitions(now))
        print("\n".join(chance.sample(names, min(arguments.draw, len(names)))))
        return
    columns: dict[str, Mapping[str, str]] = {}
    if arguments.before:
        with tempfile.TemporaryDirectory() as directory:
            before = commit_tree(ROOT, arguments.before, Path(directory))
            columns[arguments.before] = figures(before, vocabulary)
    columns["now"] = figures(now, vocabulary)
    lines = table(columns)
    if arguments.list:
        lines += ["", *details(now, vocabulary)]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
