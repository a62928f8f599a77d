"""The rooms' functions: each in one file, applied by revision, and owned by whom its file says."""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from strandline.db import migrate as db_migrate
from strandline.db.migrate import apply_newer_function_files, list_migrations, migrate
from strandline.db.schema_files import (
    FUNCTION_ROOMS,
    FunctionFile,
    hash_text,
    list_function_files,
    parse_function_file,
)
from strandline.errors import Misconfigured
from tests.support import OWNER, ScratchDatabase

ROOT = Path(__file__).parents[3]
REVISIONS = Path(__file__).with_name("functions.sha256")
"""A line for each revision of each file, `<sha256>  <room>/functions.sql <revision>`: a change adds
its own, and removes none."""
DEFINITION = re.compile(
    r"^create (?:or replace )?(?:function|aggregate) (\w+)", re.IGNORECASE | re.MULTILINE
)
FUNCTIONS = """
select p.proname::text, p.proowner::regrole::text from pg_proc p
where p.pronamespace = 'public'::regnamespace and not exists (
    select from pg_depend d
    where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
"""


def list_definitions(files: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The files that define each function, given by name and text."""
    results: dict[str, list[str]] = {}
    for name, text in files:
        for function in DEFINITION.findall(text):
            results.setdefault(function, []).append(name)
    return results


def list_files() -> list[tuple[str, str]]:
    """The baseline, and the rooms' functions."""
    baseline = list_migrations()[0]
    rooms = [(file.name, file.text) for file in list_function_files()]
    return [(baseline.name, baseline.text), *rooms]


def find_twice(files: Iterable[tuple[str, str]]) -> set[str]:
    """Functions that are defined more than once, be it with other parameters: those would be
    another function beside the former, and a call could mean either."""
    return {name for name, places in list_definitions(files).items() if len(places) > 1}


def test_sql_function_is_defined_once() -> None:
    assert find_twice(list_files()) == set()


def test_sql_function_defined_twice_is_noticed() -> None:
    again = "create or replace function page_bytes(e events, p int) returns int return 1;"
    assert find_twice([*list_files(), ("recall/functions.sql", again)]) == {"page_bytes"}


def test_sql_function_of_room_is_in_no_numbered_file() -> None:
    rooms = list_definitions((file.name, file.text) for file in list_function_files())
    numbered = list_definitions((file.name, file.text) for file in list_migrations()[1:])
    assert rooms.keys() & numbered.keys() == set()


def find_dropped(base: ScratchDatabase, text: str) -> list[str]:
    """Functions that a numbered file drops, but a file still makes: a new database has them, one
    that has their revision would lose them."""
    signatures = re.findall(r"\bdrop function (?:if exists )?(\w+\([^;]*\));", text)
    return [
        signature
        for signature in signatures
        if base.rows("select to_regprocedure(%s)", signature) != [(None,)]
    ]


def test_sql_function_dropped_has_left_its_file(scratch_db: ScratchDatabase) -> None:
    texts = [file.text for file in list_migrations()[1:]]
    assert [find_dropped(scratch_db, text) for text in texts] == [[]] * len(texts)
    fault = "drop function if exists page_bytes(events); drop function gone();"
    assert find_dropped(scratch_db, fault) == ["page_bytes(events)"]


# whose they are -----------------------------------------------------------------------------------


def list_owners(text: str) -> Iterator[tuple[str, str]]:
    """The functions of a file with the role that makes each."""
    role = OWNER
    for line in text.splitlines():
        if match := re.match(r"set local role (\w+);|reset role;", line):
            role = match[1] or OWNER
        elif match := DEFINITION.match(line):
            yield match[1], role


def find_wrong_owners(base: ScratchDatabase) -> set[tuple[str, str]]:
    """Functions of the database that no file makes, or not in the name of their owner."""
    expected = {pair for file in list_function_files() for pair in list_owners(file.text)}
    owners = dict(re.findall(r"alter function (\w+) owner to (\w+);", list_migrations()[0].text))
    baseline = DEFINITION.findall(list_migrations()[0].text)
    numbered = list_definitions((file.name, file.text) for file in list_migrations()[1:])
    expected |= {(name, owners.get(name, OWNER)) for name in baseline if name not in numbered}
    found = {(name, owner) for name, owner in base.rows(FUNCTIONS) if name not in numbered}
    return found ^ expected


def test_sql_function_has_file_and_owner_named_there(
    scratch_db: ScratchDatabase,
) -> None:
    assert find_wrong_owners(scratch_db) == set()


def test_sql_function_of_other_owner_is_noticed(scratch_db: ScratchDatabase) -> None:
    scratch_db.rows("alter function search_words owner to strandline_planner")
    assert find_wrong_owners(scratch_db) == {
        ("search_words", "strandline_planner"),
        ("search_words", "strandline_search"),
    }


@pytest.mark.parametrize("file", list_function_files(), ids=FUNCTION_ROOMS)
def test_sql_function_file_ends_as_schema_owner(file: FunctionFile) -> None:
    roles = re.findall(r"^(set local role|reset role)\b", file.text, re.MULTILINE)
    assert roles == ["set local role", "reset role"] * (len(roles) // 2)


# what calls them ----------------------------------------------------------------------------------

CALLED = """
select distinct p.proname::text
from pg_depend d join pg_proc p on p.oid = d.refobjid
where d.refclassid = 'pg_proc'::regclass and d.classid <> 'pg_proc'::regclass
    and p.pronamespace = 'public'::regnamespace and d.deptype <> 'e'
"""


def find_misplaced(base: ScratchDatabase) -> set[str]:
    """Functions of rooms that a policy, a trigger, a view, a default, a check or an index calls: a
    release on its way back would keep them, but a change of them is one of the tables."""
    rooms = list_definitions((file.name, file.text) for file in list_function_files())
    return {name for (name,) in base.rows(CALLED) if name in rooms}


def test_sql_function_called_by_table_is_in_migrations(scratch_db: ScratchDatabase) -> None:
    assert find_misplaced(scratch_db) == set()


@pytest.mark.parametrize(
    "statement",
    [
        "create policy planted on events using (is_statement(type))",
        "create index planted on events (is_statement(type))",
        "alter table events add column planted boolean generated always as (is_statement(type))"
        " stored",
        "alter table events add check (is_statement(type)) not valid",
        "create view planted as select is_statement(type) from events",
    ],
)
def test_sql_function_of_room_called_by_table_is_noticed(
    scratch_db: ScratchDatabase, statement: str
) -> None:
    scratch_db.rows(statement)
    assert find_misplaced(scratch_db) == {"is_statement"}


# order --------------------------------------------------------------------------------------------


def list_floors() -> list[set[str]]:
    """The rooms of the import contract, from the ground."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = (
        c
        for c in project["tool"]["importlinter"]["contracts"]
        if c["name"] == "imports between rooms go down only"
    )
    return [set(re.findall(r"\w+", layer)) for layer in reversed(contract["layers"])]


def is_in_order(rooms: Sequence[str]) -> bool:
    floors = list_floors()
    heights = [next(n for n, floor in enumerate(floors) if room in floor) for room in rooms]
    return heights == sorted(heights)


def test_sql_function_rooms_follow_import_contract() -> None:
    package = ROOT / "shared" / "strandline"
    assert {file.parent.name for file in package.glob("**/functions.sql")} == set(FUNCTION_ROOMS)
    assert Counter(FUNCTION_ROOMS).most_common(1)[0][1] == 1
    assert is_in_order(FUNCTION_ROOMS)
    assert not is_in_order(["chains", "log"])


# revisions ----------------------------------------------------------------------------------------


def find_unrecorded(files: Iterable[FunctionFile], lines: Sequence[str]) -> list[str]:
    """Files whose text is not the one of their revision, or whose revisions have a gap."""
    results: list[str] = []
    for file in files:
        own = [line for line in lines if f"  {file.name} " in line]
        expected = [f"  {file.name} {revision}" for revision in range(1, file.revision + 1)]
        is_gapless = [line[64:] for line in own] == expected
        if not is_gapless or own[-1] != f"{file.checksum}{expected[-1]}":
            results.append(f"{file.checksum}  {file.name} {file.revision}")
    return results


def test_sql_function_change_has_new_revision() -> None:
    """A database that has the revision never gets the text again. What fails here is the line to
    add, under a revision that is one higher than the last."""
    lines = REVISIONS.read_text().splitlines()
    assert find_unrecorded(list_function_files(), lines) == []
    assert {line.split()[1] for line in lines} == {file.name for file in list_function_files()}


@pytest.mark.parametrize("revision", [1, 3])
def test_sql_function_change_in_old_revision_is_noticed(revision: int) -> None:
    text = "-- revision: 1\nselect 1;\n"
    line = f"{hash_text(text)}  log/functions.sql 1"
    assert find_unrecorded([parse_function_file("log", text)], [line]) == []
    altered = FunctionFile("log", revision, text + "select 2;\n")
    assert find_unrecorded([altered], [line])


@pytest.mark.parametrize("text", ["", "select 1;", "-- revision: 0\n", "-- revision: one\n"])
def test_sql_function_file_without_revision_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"log/functions\.sql: its first line is"):
        parse_function_file("log", text)


# applying -----------------------------------------------------------------------------------------

ANSWER = """-- revision: {0}
set local role strandline_search;
create or replace function answer() returns int language sql
security definer set search_path = pg_catalog, public, pg_temp as $$ select {0} $$;
revoke execute on function answer from public;
reset role;
"""


def answering(revision: int) -> FunctionFile:
    return parse_function_file("answers", ANSWER.format(revision))


def apply(base: ScratchDatabase, *files: FunctionFile) -> list[str]:
    with psycopg.connect(base.owner_url, autocommit=True) as owner:
        return apply_newer_function_files(owner, files)


def giving[File](*files: File) -> Callable[[], list[File]]:
    """What lists these files, in the place of a release's own."""
    return lambda: list(files)


def read_answer(base: ScratchDatabase) -> list[tuple[Any, ...]]:
    return base.rows(
        "select answer(), p.proowner::regrole::text, p.proacl::text, f.revision"
        " from pg_proc p, schema_functions f where p.proname = 'answer' and f.room = 'answers'"
    )


def test_sql_function_is_replaced_when_revision_rises(scratch_db: ScratchDatabase) -> None:
    rights = "{strandline_search=X/strandline_search}"
    assert apply(scratch_db, answering(1)) == ["answers/functions.sql"]
    assert read_answer(scratch_db) == [(1, "strandline_search", rights, 1)]
    assert apply(scratch_db, answering(1)) == []
    assert apply(scratch_db, answering(2)) == ["answers/functions.sql"]
    assert read_answer(scratch_db) == [(2, "strandline_search", rights, 2)]
    assert scratch_db.rows(
        "select has_schema_privilege('strandline_search', 'public', 'create')"
    ) == [(False,)]


def test_sql_function_newer_is_kept_by_older_release(scratch_db: ScratchDatabase) -> None:
    apply(scratch_db, answering(2))
    assert apply(scratch_db, answering(1)) == []
    assert read_answer(scratch_db)[0][::3] == (2, 2)


def test_sql_function_altered_in_same_revision_is_refused(scratch_db: ScratchDatabase) -> None:
    apply(scratch_db, answering(1))
    altered = answering(1)._replace(text=ANSWER.format(1) + "-- altered\n")
    with pytest.raises(Misconfigured, match=r"answers/functions.sql was altered .* revision 2"):
        apply(scratch_db, altered)
    assert read_answer(scratch_db)[0][0] == 1


def test_sql_function_files_apply_all_or_none(scratch_db: ScratchDatabase) -> None:
    """A file that fails is named, and leaves neither functions nor rights of others behind."""
    faulty = parse_function_file("faults", "-- revision: 1\nselect 1 / 0;\n")
    with pytest.raises(psycopg.errors.DivisionByZero) as error:
        apply(scratch_db, answering(1), faulty)
    assert error.value.__notes__ == ["faults/functions.sql"]
    assert scratch_db.rows("select count(*) from pg_proc where proname = 'answer'") == [(0,)]
    assert apply(scratch_db, answering(1)) == ["answers/functions.sql"]


def test_sql_function_survives_release_rollback(
    scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `migrate` itself: the newer, the older and the newer release one after the other."""
    for revision, answer in ((1, 1), (2, 2), (1, 2), (3, 3)):
        with monkeypatch.context() as release:
            release.setattr(db_migrate, "list_function_files", giving(answering(revision)))
            with psycopg.connect(scratch_db.owner_url, autocommit=True) as owner:
                migrate(owner)
        assert read_answer(scratch_db)[0][0] == answer


def test_sql_function_waits_for_tables_not_long_migration(
    scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    baseline, *newer = list_migrations()
    last = newer[-1].number
    long = baseline._replace(
        number=last + 1,
        name="long.sql",
        text="-- long: planted\nupdate tenants set swept_space = 's' where swept_space is null",
    )
    table = baseline._replace(number=last + 2, name="t.sql", text="create table t (a int)")
    scratch_db.rows("insert into tenants (tenant_id) values ('acme')")
    monkeypatch.setattr(db_migrate, "list_function_files", lambda: [answering(1)])
    for files, applied in (([long, table], []), ([long], ["answers/functions.sql"])):
        monkeypatch.setattr(db_migrate, "list_migrations", giving(baseline, *newer, *files))
        with psycopg.connect(scratch_db.owner_url, autocommit=True) as owner:
            assert migrate(owner, deadline=0) == applied
