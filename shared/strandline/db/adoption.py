"""Adopt a database from before the baseline: one that other files created, which are gone.

The bridge brings its tables to the baseline. They are compared with it, and the baseline is
recorded as applied. Its functions follow as those of any database do.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import psycopg

from strandline.db.schema_files import (
    BASELINE,
    Migration,
    execute_sql_text,
    list_bridge_migrations,
    read_baseline_catalogue,
)
from strandline.errors import Misconfigured

_FIRST = "0001_create_tenants.sql"
"""The first migration of every database that has a way to the baseline."""
OLDEST = 55
"""The last migration of the oldest database that can be adopted."""
_SHOWN_DIFFERENCES = 8

_PARTS = ("columns", "constraints", "indexes", "policies", "triggers", "rights")
_TABLES = """
select case c.relkind when 'c' then 'type' when 'v' then 'view' else 'table' end
        || ' ' || c.relname,
    array[
        concat_ws(chr(10), case when c.relkind = 'v' then pg_get_viewdef(c.oid) end, (
            select string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod),
                nullif(a.attcollation, t.typcollation)::regcollation, a.attnotnull, a.attidentity,
                a.attgenerated, pg_get_expr(d.adbin, d.adrelid)), chr(10) order by a.attnum)
            from pg_attribute a
            join pg_type t on t.oid = a.atttypid
            left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
            where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped)),
        -- one that held only for new rows when it was added is as one of the baseline
        (select string_agg(concat(n.conname, ' ', replace(
                pg_get_constraintdef(n.oid), ' NOT VALID', '')), chr(10) order by n.conname)
            from pg_constraint n where n.conrelid = c.oid and n.contype <> 'n'),
        (select string_agg(pg_get_indexdef(i.indexrelid), chr(10) order by x.relname)
            from pg_index i join pg_class x on x.oid = i.indexrelid where i.indrelid = c.oid),
        (select string_agg(concat_ws(' ', p.polname, p.polcmd, p.polpermissive, (
                    select string_agg(coalesce(r.rolname, 'public'), ',' order by r.rolname)
                    from unnest(p.polroles) o left join pg_roles r on r.oid = o),
                pg_get_expr(p.polqual, p.polrelid), '/',
                pg_get_expr(p.polwithcheck, p.polrelid)), chr(10) order by p.polname)
            from pg_policy p where p.polrelid = c.oid),
        (select string_agg(concat(g.tgenabled, pg_get_triggerdef(g.oid)), chr(10)
                order by g.tgname)
            from pg_trigger g where g.tgrelid = c.oid and not g.tgisinternal),
        concat_ws(chr(10), c.relowner::regrole, c.relrowsecurity, c.relforcerowsecurity,
            c.reloptions, (
            select string_agg(x.acl, ',' order by x.acl collate "C")
            from (select unnest(c.relacl)::text as acl) x), (
            select string_agg(x.acl, ',' order by x.acl collate "C")
            from (
                select a.attname || unnest(a.attacl)::text as acl from pg_attribute a
                where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) x))
    ]
from pg_class c
where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v', 'c', 'm', 'f')
    and c.relname not in ('schema_migrations', 'schema_functions')
    and not exists (  -- what an operator's extension brought
        select from pg_depend d
        where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')
"""
_FUNCTIONS = """
select 'function ' || p.proname,
    array[
        pg_get_functiondef(p.oid),
        concat_ws(chr(10), p.proowner::regrole, (
            select string_agg(x.acl, ',' order by x.acl collate "C")
            from (select unnest(p.proacl)::text as acl) x))]
from pg_proc p
where p.pronamespace = 'public'::regnamespace and p.proname = any (%s)
"""
_FUNCTION_PARTS = ("definition", "rights")


def bring_database_to_baseline(
    owner: psycopg.Connection[Any], baseline: Migration, history: Mapping[int, tuple[str, str]]
) -> None:
    """Bring a database from before the baseline to it, all or nothing; does nothing to another one.

    Raises Misconfigured, with the way out, where none leads to the baseline: it is too old, or its
    tables are not those that the files of its history made.
    """
    require_history_leading_to_baseline(history)
    if not history or max(history) >= BASELINE:
        return
    with owner.transaction():
        for file in list_bridge_migrations():
            if file.number not in history:
                execute_sql_text(owner, file.text)
        differences = compare_catalogues(
            read_baseline_catalogue(), describe_catalogue(owner, baseline)
        )
        if differences:
            raise Misconfigured(
                "The database is not as its migrations made it: "
                f"{'; '.join(differences[:_SHOWN_DIFFERENCES])}"
                f"{' and more' if len(differences) > _SHOWN_DIFFERENCES else ''}. Undo what was "
                "changed by hand, then start this again. Nothing was changed."
            )
        owner.execute(
            "insert into schema_migrations (number, name, checksum) values (%s, %s, %s)",
            (baseline.number, baseline.name, baseline.checksum),
        )


def require_history_leading_to_baseline(history: Mapping[int, tuple[str, str]]) -> None:
    """Raise Misconfigured for a database from which no way leads to the baseline."""
    first = history.get(1)
    if first is not None and first[0] != _FIRST:
        raise Misconfigured(
            f"The database was created before this schema's history: its first migration is "
            f"{first[0]}, not {_FIRST}. No migration leads from one to the other: start with an "
            "empty database. After `make run` that means: delete the data directory "
            "(STRANDLINE_DATA_DIR, by default .strandline)."
        )
    if history and max(history) < OLDEST:
        raise Misconfigured(
            f"The database ends at migration {history[max(history)][0]}; this release goes on from"
            f" {OLDEST:04}. First run `migrate` (or `make run`, on this data directory) of a"
            f" release whose last migration is from {OLDEST:04} to {BASELINE - 1:04}, then this"
            " one."
        )


def describe_catalogue(owner: psycopg.Connection[Any], baseline: Migration) -> str:
    """Tables, views, types and the baseline's functions, a line for each, sorted: its name, and a
    short hash of each part of its definition."""
    lines: list[str] = []
    names = re.findall(r"^create function (\w+)", baseline.text, re.MULTILINE)
    with owner.transaction():
        owner.execute("set local search_path = pg_catalog, public")
        for name, parts in [*owner.execute(_TABLES), *owner.execute(_FUNCTIONS, (names,))]:
            lines.append(" ".join([name, *(_short_hash(part) for part in parts)]))
    return "".join(f"{line}\n" for line in sorted(lines))


def compare_catalogues(expected: str, actual: str) -> list[str]:
    """What of `actual` is not as in `expected`, in words: `policies of table events differ`."""
    before, now = _parse_catalogue_hashes(expected), _parse_catalogue_hashes(actual)
    differences = [f"{name} is missing" for name in before.keys() - now.keys()]
    differences += [f"{name} is unknown" for name in now.keys() - before.keys()]
    for name in before.keys() & now.keys():
        parts = _FUNCTION_PARTS if name.startswith("function ") else _PARTS
        differences += [
            f"the {part} of {name} differ"
            for part, one, other in zip(parts, before[name], now[name], strict=True)
            if one != other
        ]
    return sorted(differences)


def _parse_catalogue_hashes(catalogue: str) -> dict[str, list[str]]:
    """The hashes of each object's parts."""
    words = [line.split() for line in catalogue.splitlines()]
    return {" ".join(line[:2]): line[2:] for line in words}


def _short_hash(text: str | None) -> str:
    return hashlib.sha256((text or "").encode()).hexdigest()[:8]
