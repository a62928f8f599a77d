"""The SQL files of the package: tables by subject and by number, and the functions of each room."""

import hashlib
import importlib.resources
import re
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from typing import Any, LiteralString, NamedTuple, cast

import psycopg

BASELINE = 65
"""The number under which `db/schema/NN_subject.sql`, all of them as one, are recorded. Numbered
files after it change tables."""
BASELINE_NAME = "0065_baseline"
FUNCTION_ROOMS = (
    *("db", "llm", "auth", "tenants", "jobs", "log", "chains", "recall", "sessions", "topics"),
    *("graph", "personas", "erasure", "background"),
)
"""Rooms with functions, in the order of the import contract: one may use those before it."""


class Migration(NamedTuple):
    """A numbered file `NNNN_verb_noun.sql`, applied once, never edited or renamed; or the baseline,
    whose files are one."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, in hex."""
        return hash_text(self.text)

    @property
    def is_long(self) -> bool:
        """Whether it may take longer than a Lambda function can run: its first line is `-- long:
        <why>`.

        Such a file is one statement that changes a bounded number of one tenant's rows. It is
        repeated, each time in its own transaction, until it changes none, in every tenant.
        """
        return self.text.startswith("-- long: ")


class FunctionFile(NamedTuple):
    """A room's `functions.sql`: all its functions as they are now. Its first line is `-- revision:
    N`, which rises with every change of the text."""

    room: str
    revision: int
    text: str

    @property
    def name(self) -> str:
        return f"{self.room}/functions.sql"

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, in hex."""
        return hash_text(self.text)

    @property
    def owners(self) -> set[str]:
        """The roles that it makes the owners of functions, besides the schema's owner."""
        return set(re.findall(r"^set local role (\w+);", self.text, re.MULTILINE))


def list_migrations() -> list[Migration]:
    """The baseline and the numbered files after it, in order."""
    subjects = "".join(file.read_text("utf-8") for file in list_baseline_files())
    return [
        Migration(BASELINE, BASELINE_NAME, subjects),
        *_list_numbered_migrations(_schema_folder()),
    ]


def list_baseline_files() -> list[Traversable]:
    """The files of the baseline, in order."""
    files = [
        file for file in _schema_folder().iterdir() if re.fullmatch(r"\d\d_\w+\.sql", file.name)
    ]
    return sorted(files, key=lambda file: file.name)


def list_bridge_migrations() -> list[Migration]:
    """What changed tables and rows between the oldest database that can be adopted and the
    baseline, in order."""
    return list(_list_numbered_migrations(_schema_folder() / "bridge"))


def list_function_files() -> list[FunctionFile]:
    """The rooms' functions, in the order in which they are applied. Raises ValueError where a file
    has no revision."""
    return [
        parse_function_file(room, _read_functions_sql(_package_folder() / room))
        for room in FUNCTION_ROOMS
    ]


def parse_function_file(room: str, text: str) -> FunctionFile:
    """A room's functions, out of the file's text. Raises ValueError."""
    match = re.match(r"-- revision: ([1-9]\d*)\n", text)
    if match is None:
        raise ValueError(f"{room}/functions.sql: its first line is `-- revision: N`")
    return FunctionFile(room, int(match[1]), text)


def read_roles_sql() -> str:
    """What an administrator runs before all others: roles and extensions."""
    return (_schema_folder() / "roles.sql").read_text("utf-8")


def read_baseline_catalogue() -> str:
    """The catalogue of a database at the baseline, as `adoption.describe_catalogue` gives it."""
    return (_schema_folder() / "catalogue.txt").read_text("utf-8")


def execute_sql_text(connection: psycopg.Connection[Any], text: str) -> psycopg.Cursor[Any]:
    """Execute all statements of a file's text."""
    return connection.execute(cast(LiteralString, text))


def hash_text(text: str) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def _list_numbered_migrations(folder: Traversable) -> Iterator[Migration]:
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name):
            yield Migration(int(match[1]), file.name, file.read_text("utf-8"))


def _read_functions_sql(room: Traversable) -> str:
    return (room / "functions.sql").read_text("utf-8")


def _package_folder() -> Traversable:
    return importlib.resources.files("strandline")


def _schema_folder() -> Traversable:
    return _package_folder() / "db" / "schema"
