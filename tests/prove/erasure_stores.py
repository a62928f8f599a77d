"""Every byte that a deployment stores, and erasures that complete."""

from contextlib import closing

import psycopg
from psycopg import sql

from strandline.local.aws import LocalAws, make_local_client
from tests.support import Gateway, ScratchDatabase

ERASURES = "/api/v1/erasures"
WHO = ("user:alice", "agent:helper")
KEPT_WORD, ERASED_WORD = "keptword", "zqxkato"
"""A word of what stays, and one of what goes."""
_TABLES = """
    select c.relname::text from pg_class c
    where c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace order by 1
"""


def every_row(base: ScratchDatabase) -> dict[str, str]:
    """All rows of the database as text, by table; and what the planner keeps of columns."""
    results: dict[str, str] = {}
    with psycopg.connect(base.admin_url) as admin:
        for (name,) in admin.execute(_TABLES).fetchall():
            statement = sql.SQL("select coalesce(string_agg(t::text, '\n'), '') from {} t")
            (results[name],) = (
                admin.execute(statement.format(sql.Identifier(name))).fetchone() or ""
            )
        statistics = admin.execute("select s::text from pg_stats s").fetchall()
        results["pg_stats"] = "\n".join(text for (text,) in statistics)
    return {name: text.lower() for name, text in results.items()}


def every_object(aws: LocalAws) -> dict[tuple[str, str], str]:
    """All versions of all objects of the bucket as text, by key and version."""
    results: dict[tuple[str, str], str] = {}
    with closing(make_local_client("s3")) as s3:
        pages = s3.get_paginator("list_object_versions").paginate(Bucket=aws.bucket)
        for version in (one for page in pages for one in page.get("Versions", [])):
            key, version_id = version["Key"], version["VersionId"]
            response = s3.get_object(Bucket=aws.bucket, Key=key, VersionId=version_id)
            with closing(response["Body"]) as body:
                results[key, version_id] = f"{key} {body.read().decode(errors='replace')}".lower()
    return results


def every_byte(base: ScratchDatabase, aws: LocalAws) -> str:
    """All rows of the database and its statistics of columns as text, and all versions of all
    objects of the bucket."""
    return "\n".join([*every_row(base).values(), *every_object(aws).values()])


def empty_bucket(aws: LocalAws) -> None:
    """Delete all versions of all objects."""
    with closing(make_local_client("s3")) as s3:
        for key, version in every_object(aws):
            s3.delete_object(Bucket=aws.bucket, Key=key, VersionId=version)


def complete(gateway: Gateway, base: ScratchDatabase, tenant: str = "acme") -> None:
    """Let the job end, and the time of payloads pass. Raises AssertionError where it does not."""
    for _ in range(12):
        gateway.run_job("eraser", tenant)
        for table in ("blob_removals", "erased_payloads"):
            base.rows(f"update {table} set marked_at = marked_at - interval '1 hour'")  # noqa: S608
        if base.rows("select 1 from erasures where completed_at is null") == []:
            return
    raise AssertionError(base.rows("select * from erased_chains"))
