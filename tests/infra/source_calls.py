"""What the source asks of AWS as it is written, in every place, whether a test comes to it or not.

A file is scanned whatever it imports and by whatever name, so that neither an alias nor a client
handed on hides a call. An operation counts as a client's method, as a name in quotes (of a
paginator, of what is signed or presigned, of getattr) and as a waiter's.
"""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, get_args

import botocore

from strandline.aws import client_factory

ROOT = Path(__file__).parents[2]
WRAPPERS = {
    "aws/blobs": "blobs",
    "aws/object_removal": "blobs",  # what BlobStore is one of
    "aws/work_queue": "work_queue",
    "aws/run_requests": "job_queue",
    "aws/scheduler": "run_starter",
    "aws/secrets": "secrets",
}
"""The modules that ask AWS, and what code calls their things, with or without an underscore."""
_MAKERS = re.compile(r"(aio)?(boto3?|botocore|s3transfer)(\.\w+)*")
_HARMLESS = ("botocore.config", "botocore.exceptions")
"""Of them, with what no client can be made."""
_BOTOCORE: Any = botocore
"""It has no types."""


class Place(NamedTuple):
    """A function of the source; what is called while a module is imported has no name."""

    file: str
    name: str


class Asks(NamedTuple):
    """A place, and what is asked in it: an operation, or a method of what asks AWS."""

    place: Place
    what: str


def sources() -> dict[str, str]:
    """What is deployed, by the file's place in the repository."""
    files = [*(ROOT / "shared/strandline").rglob("*.py"), *(ROOT / "functions").rglob("*.py")]
    texts = {str(file.relative_to(ROOT)): file.read_text() for file in files}
    return {name: text for name, text in texts.items() if "/strandline/local/" not in name}


@cache
def names() -> Mapping[str, str]:
    """How an operation may be spelled, or a waiter that asks it, and the operation."""
    session: Any = import_module("botocore.session").get_session()
    with_waiters = session.get_component("data_loader").list_available_services("waiters-2")
    results: dict[str, str] = {}
    for service in (
        *get_args(client_factory.make_client.__annotations__["service"]),
        "secretsmanager",
    ):
        for operation in session.get_service_model(service).operation_names:
            results |= {operation: operation, _BOTOCORE.xform_name(operation): operation}
        if service in with_waiters:
            model = session.get_waiter_model(service)
            for name in model.waiter_names:
                results[_BOTOCORE.xform_name(name)] = model.get_waiter(name).operation
    return results


def find_asks(texts: Mapping[str, str]) -> set[Asks]:
    """Every operation in these files, and where."""
    return {one for file, text in texts.items() for one in _read(file, text).calls}


def passed_on(texts: Mapping[str, str]) -> set[Asks]:
    """Every method of what asks AWS that these files call, as "blobs.put", and where."""
    return {one for file, text in texts.items() for one in _read(file, text).passed_on}


def makers(texts: Mapping[str, str]) -> set[Asks]:
    """Where these files import, or name, what makes clients of its own."""
    return {
        one
        for file, text in texts.items()
        for one in _read(file, text).imported
        if _MAKERS.fullmatch(one.what) and not one.what.startswith(_HARMLESS)
    }


def method(place: Place) -> str:
    """A place as `passed_on` calls it, if it is one of what asks AWS; otherwise ""."""
    module = place.file.removeprefix("shared/strandline/").removesuffix(".py")
    wrapper = WRAPPERS.get(module)
    return f"{wrapper}.{place.name.rpartition('.')[2]}" if wrapper else ""


def on_the_way() -> list[Place]:
    """The places of the source that are being run, the innermost first."""
    results, frame = list[Place](), sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if name := _place_of(frame.f_code.co_filename):
            within = frame.f_code.co_qualname.split(".")
            results.append(Place(name, ".".join(part for part in within if part[0] != "<")))
        frame = frame.f_back
    return results


@cache
def _place_of(filename: str) -> str:
    """A file's place in the repository if it is deployed, otherwise empty."""
    file = Path(filename)
    name = str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else ""
    return name if name in _deployed_modules() else ""


def within_reach(texts: Mapping[str, str], function: str) -> set[str]:
    """The files that a function imports, at its start or later, and what these import."""
    first = f"functions/{function}/handler.py"
    results, todo = {first}, [first]
    while todo:
        file = todo.pop()
        imports = {one for one in _imported_files(file, texts[file]) if one in texts} - results
        results |= imports
        todo += imports
    return results


@cache
def _imported_files(file: str, text: str) -> frozenset[str]:
    """Where the modules that a file imports may lie."""
    paths = {one.what.replace(".", "/") for one in _read(file, text).imported}
    # Of `from a.b import c` the last part may be a module or a name in one.
    stems = paths | {path.rpartition("/")[0] for path in paths}
    return frozenset(f"{folder}{stem}.py" for stem in stems for folder in ("shared/", ""))


@cache
def _deployed_modules() -> frozenset[str]:
    return frozenset(sources())


class _Read(NamedTuple):
    """What stands in a file."""

    calls: list[Asks]
    passed_on: list[Asks]
    imported: list[Asks]
    """Modules, or names in them, or what is in quotes."""


@cache
def _read(file: str, text: str) -> _Read:
    read = _Read([], [], [])
    for place, node in _nodes(ast.parse(text), Place(file, "")):
        read.imported.extend(Asks(place, module) for module in _imports(node))
        if operation := names().get(_spell(node)):
            read.calls.append(Asks(place, operation))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute | ast.Name):
            of = node.value
            owner = (of.attr if isinstance(of, ast.Attribute) else of.id).strip("_")
            if owner in WRAPPERS.values():
                read.passed_on.append(Asks(place, f"{owner}.{node.attr}"))
    return read


def _nodes(node: ast.AST, place: Place) -> Iterator[tuple[Place, ast.AST]]:
    """Every node, with the function or class that it stands in."""
    for child in ast.iter_child_nodes(node):
        inner = place
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = place._replace(name=f"{place.name}.{child.name}".strip("."))
        yield inner, child
        yield from _nodes(child, inner)


def _spell(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _imports(node: ast.AST) -> list[str]:
    """Modules that a node imports, or names in quotes."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return [_spell(node)] if isinstance(node, ast.Constant) else []
