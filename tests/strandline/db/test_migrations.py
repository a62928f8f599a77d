"""What files of tables may say: a release expands the schema, and what it takes away or narrows was
out of use a release ago (docs/upgrade.md). And each is written once: no file is edited."""

import re
from pathlib import Path

import pytest

from strandline.db.schema_files import BASELINE, hash_text, list_baseline_files, list_migrations

CHECKSUMS = Path(__file__).with_name("migrations.sha256")
"""A line for each file of tables, as `sha256sum` prints it. A new one adds its own, printed by
`cd shared/strandline/db/schema && sha256sum NNNN_*.sql`."""
SAYS_SINCE_WHEN = re.compile(r"^\s*-- contract: since \d+\.\d+\.\d+\b", re.MULTILINE)
COLUMN = r'(?:"[^"]+"|\w+)'
CONTRACTING = {
    "takes away": re.compile(
        r"\bdrop (?:table|column|(?:materialized )?view|type|domain|function|procedure|schema"
        r"|sequence|role|extension)\b|\balter table\b.*"
        rf"\bdrop (?!constraint\b|default\b|not\b|expression\b|identity\b){COLUMN}"
    ),
    "renames": re.compile(r"\balter\b.*\brename\b"),
    # An append_item is read from a JSON object, in which the previous code has an attribute less.
    "changes a type": re.compile(
        rf"\balter (?:column )?{COLUMN} (?:set data )?type\b"
        r"|\balter type (?!append_item add attribute [\w\[\] ]+$).*\battribute\b"
    ),
    "asks for what was not asked": re.compile(
        rf"\bset not null\b|\badd (?:column )?{COLUMN} (?!.*\bdefault\b)[^,]*\bnot null\b"
    ),
    "takes a right away": re.compile(r"\brevoke\b.*\bfrom\b.*\bstrandline_app\b"),
    "empties": re.compile(r"\btruncate\b"),
}


def contracting(text: str) -> list[str]:
    """What of a migration could break the code that runs while it is applied, and after a way back:
    each statement in a few words, unless a comment before it says since which release no code has
    needed it."""
    results: list[str] = []
    for statement in text.split(";"):
        if SAYS_SINCE_WHEN.search(statement):
            continue
        bare = re.sub(r"--[^\n]*", " ", statement).lower()
        words = " ".join(bare.split())
        results += [
            f"{why}: {words}" for why, pattern in CONTRACTING.items() if pattern.search(words)
        ]
    return results


def test_migration_removes_nothing_former_code_needs() -> None:
    newer = {
        file.name: contracting(file.text) for file in list_migrations() if file.number > BASELINE
    }
    assert {name: result for name, result in newer.items() if result} == {}


def test_migration_files_are_never_edited_or_removed() -> None:
    """Databases recorded the checksums of what they applied, and refuse any other file."""
    files = {file.name: file.read_text() for file in list_baseline_files()}
    files |= {file.name: file.text for file in list_migrations()[1:]}
    checksums = [f"{hash_text(text)}  {name}" for name, text in files.items()]
    assert sorted(checksums) == sorted(CHECKSUMS.read_text().splitlines())


def test_migration_baseline_changes_no_data() -> None:
    """It runs on an empty database only: whatever it would change is not there."""
    for file in list_baseline_files():
        outside = re.sub(r"\$\$.*?\$\$|--[^\n]*", "", file.read_text(), flags=re.DOTALL)
        wrong = re.findall(
            r"^(?:update|insert|delete|drop|truncate|alter type)\b.*", outside, re.MULTILINE
        )
        assert wrong == [], file.name
    assert not list_migrations()[0].is_long


@pytest.mark.parametrize(
    "fault",
    [
        "drop table sessions",
        "alter table sessions drop column title",
        "ALTER TABLE sessions\n    drop title",
        'alter table sessions drop "title"',
        "alter table sessions rename to talks",
        "alter table sessions rename column title to name",
        "alter table events alter column seq type int",
        "alter table events alter seq set data type int",
        "alter type append_outcome add attribute more int",
        "alter type append_item add attribute more int, drop attribute n",
        "alter type append_item drop attribute n",
        "alter table events alter column content set not null",
        "alter table events add column more text not null",
        "alter table events add more text not null check (more <> '')",
        "drop function tenants_to_sweep(text, timestamptz)",
        "revoke select on events from strandline_app",
        "truncate recalls",
        "create table t (a int); drop table sessions",
        "-- contract: soon\ndrop table sessions",
        "-- contract: since 0.2.0\ndrop table one; drop table two",
    ],
)
def test_migration_check_finds_contracting_statement(fault: str) -> None:
    assert len(contracting(fault)) == 1


@pytest.mark.parametrize(
    "fine",
    [
        "create table t (a int not null, b text not null)",
        "alter table events add column more text, add column most int not null default 0",
        "alter table events add column more text not null default ''",
        "alter type append_item add attribute more text[]",
        "alter table events alter column content drop not null, alter column seq drop default",
        "alter table events drop constraint events_check, add constraint c check (seq > 0)",
        "revoke execute on function f from public",
        "create index i on events (tenant_id)",
        "-- rename nothing\nselect 1",
        "-- no code names it any more\n-- contract: since 0.2.0\ndrop table sessions",
    ],
)
def test_migration_check_passes_expanding_statement(fine: str) -> None:
    assert contracting(fine) == []
