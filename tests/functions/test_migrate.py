"""The migrate function, called as a deployment calls it: as Aurora's master user would."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import boto3  # pyright: ignore[reportMissingTypeStubs]
import psycopg
import pytest
from psycopg import sql

from functions.migrate.handler import lambda_handler
from strandline.admin import prepare_release
from strandline.auth.authenticator import Authenticator
from strandline.auth.credentials import AuthRequest
from strandline.aws import secrets
from strandline.config_auth import AuthSettings
from strandline.db import migrate
from strandline.db.database import Database
from strandline.db.migrate import Migration, list_migrations
from strandline.db.schema_files import BASELINE, list_function_files
from strandline.errors import MigrationFailed, Misconfigured, Unavailable
from strandline.local.aws import LocalAws
from strandline.local.lambda_context import REGION, LambdaContext
from strandline.local.postgres import EmbeddedPostgres
from tests.seed_cluster import SETTINGS
from tests.server_directory import make_server_directory
from tests.support import (
    APP,
    EVENTS,
    KEY_SECRET,
    OWNER,
    Gateway,
    ScratchDatabase,
    unique_name,
    user_message,
)

EVENT = json.loads((EVENTS / "migrate.json").read_text())
LAST = list_migrations()[-1].number
EVERY = [file.name for file in (*list_migrations(), *list_function_files())]
MASTER = {"username": "master", "password": "the master's password"}
BOTO3: Any = boto3
FIRST = "select key_id, scopes, revoked_at from api_keys where tenant_id = 'ops'"


def deploy(seconds: float = 600) -> dict[str, Any]:
    """One call of the function, as the deployment makes it: it says nothing."""
    context: Any = LambdaContext("migrate", seconds)
    return lambda_handler({}, context)


@pytest.fixture(scope="module")
def aurora() -> Iterator[EmbeddedPostgres]:
    """A cluster as RDS hands it over: no role of ours, and a master user who is no superuser, but
    may make roles and databases and give `rds_iam`. Aurora lets it create `vector`; here that
    lies in the template, and the rest is made by the master."""
    with (
        make_server_directory() as directory,
        EmbeddedPostgres(directory, durable=False, settings=SETTINGS) as server,
    ):
        with psycopg.connect(server.dsn(), autocommit=True) as superuser:
            superuser.execute(
                sql.SQL("create role master login createrole createdb password {}").format(
                    sql.Literal(MASTER["password"])
                )
            )
            superuser.execute("create role rds_iam nologin")
            superuser.execute("grant rds_iam to master with admin option")
            superuser.execute("create database aurora owner master")
            # Who may do what is for AWS to say; test_sigv4.py shows the token that it is told by.
            rules = server.directory / "pgdata" / "pg_hba.conf"
            ours = f"host all {OWNER},{APP} 127.0.0.1/32 trust\n"
            rules.write_text(ours + rules.read_text())
            superuser.execute("select pg_reload_conf()")
        with psycopg.connect(server.dsn("aurora"), autocommit=True) as superuser:
            superuser.execute("create extension vector")
        yield server


@pytest.fixture
def stage(aurora: EmbeddedPostgres) -> Iterator[ScratchDatabase]:
    """A database of the master's, with nothing in it."""
    name = unique_name()
    with psycopg.connect(aurora.dsn(), autocommit=True) as superuser:
        statement = sql.SQL("create database {} template aurora owner master strategy file_copy")
        superuser.execute(statement.format(sql.Identifier(name)))
    yield ScratchDatabase(aurora, name)
    aurora.drop_database(name)


@pytest.fixture
def first_key(
    stage: ScratchDatabase, aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The function's whole environment; gives the ARN of the operator's secret, whose value is the
    stack's placeholder."""
    del aws
    with closing(BOTO3.client("secretsmanager", region_name=REGION)) as manager:
        results = {
            name: manager.create_secret(Name=unique_name(), SecretString=text)["ARN"]
            for name, text in {
                "SECRETS": json.dumps({"key_secret": KEY_SECRET}),
                "ADMINISTRATOR_SECRET": json.dumps(MASTER | {"engine": "postgres"}),
                "FIRST_KEY_SECRET": "made by the stack",
            }.items()
        }
        place = f"host=127.0.0.1 port={stage.server.port} dbname={stage.name}"
        for name, value in results.items() | {
            ("ADMINISTRATOR_DATABASE_URL", f"{place} user=master"),
            ("OWNER_DATABASE_URL", f"{place} user={OWNER}"),
            ("DATABASE_AUTH", "iam"),
            ("KEY_SECRET", ""),  # for the monkeypatch to take it back
        }:
            monkeypatch.setenv(f"STRANDLINE_{name}", value)
        monkeypatch.setattr(prepare_release, "_RETRY_PAUSES", ())
        yield results["FIRST_KEY_SECRET"]


def roles(stage: ScratchDatabase) -> dict[str, tuple[Any, ...]]:
    rows = stage.rows(
        "select rolname, rolcanlogin, rolsuper, rolbypassrls, rolpassword is null,"
        " pg_has_role(rolname, 'rds_iam', 'member') from pg_authid"
        " where rolname like 'strandline%%'"
    )
    return {name: tuple(rest) for name, *rest in rows}


def put(secret: str, text: str) -> None:
    secrets.write_secret(secret, text)


def rights_of(stage: ScratchDatabase, token: str | None) -> frozenset[str]:
    """What a key may, asked as the application does."""
    place = f"host=127.0.0.1 port={stage.server.port} dbname={stage.name} user={APP}"
    with closing(Database(place, "iam")) as database:
        authenticator = Authenticator(database, AuthSettings(key_secret=KEY_SECRET))
        principal = authenticator.authenticate(AuthRequest({"x-api-key": token or ""}))
    assert principal.tenant == "ops"
    return principal.rights


def test_migrate_sets_up_empty_cluster(stage: ScratchDatabase, first_key: str) -> None:
    assert deploy() == {"applied": EVERY, "left": [], "key": "", "shards": 0}
    result = roles(stage)
    assert result[OWNER] == result[APP] == (True, False, False, True, True)
    narrow = {role for role in result if role not in (OWNER, APP)}
    assert {result[role] for role in narrow} == {(False, False, False, True, False)}
    master = stage.rows("select rolsuper, rolbypassrls from pg_roles where rolname = 'master'")
    assert master == [(False, False)]
    assert stage.rows("select distinct tableowner from pg_tables where schemaname = 'public'") == [
        (OWNER,)
    ]
    assert rights_of(stage, secrets.read_secret(first_key)) == {"operator"}


def test_migrate_second_run_changes_nothing(stage: ScratchDatabase, first_key: str) -> None:
    deploy()
    token, keys = secrets.read_secret(first_key), stage.rows(FIRST)
    assert deploy()["applied"] == []
    assert (secrets.read_secret(first_key), stage.rows(FIRST)) == (token, keys)


def test_migrate_concurrent_runs_apply_each_file_once(
    stage: ScratchDatabase, first_key: str
) -> None:
    start, ends = threading.Barrier(2), list[dict[str, Any]]()

    def run() -> None:
        start.wait()
        ends.append(deploy())

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A long file, which others may work on too, is told by the one who ends it.
    assert sorted(name for one in ends for name in one["applied"]) == sorted(EVERY)
    assert len(stage.rows(FIRST)) == 1
    assert rights_of(stage, secrets.read_secret(first_key)) == {"operator"}


@pytest.mark.parametrize("is_stored", [False, True], ids=["not stored", "stored unheard"])
def test_migrate_failed_secret_leaves_no_key(
    stage: ScratchDatabase, first_key: str, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    write = secrets.write_secret

    def fail(arn: str, text: str) -> None:
        if is_stored:
            write(arn, text)
        raise Unavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(secrets, "write_secret", fail)
        with pytest.raises(Unavailable):
            deploy()
    assert stage.rows(FIRST) == []
    deploy()
    assert len(stage.rows(FIRST)) == 1
    assert rights_of(stage, secrets.read_secret(first_key)) == {"operator"}


def test_migrate_keeps_first_key_revoked_until_asked(
    stage: ScratchDatabase, first_key: str
) -> None:
    deploy()
    stage.rows("update api_keys set revoked_at = now() where tenant_id = 'ops'")
    revoked = stage.rows(FIRST)
    deploy()
    assert stage.rows(FIRST) == revoked
    put(first_key, "another, please")
    deploy()
    assert len(stage.rows(FIRST)) == 2
    assert rights_of(stage, secrets.read_secret(first_key)) == {"operator"}


def test_migrate_renews_first_key_before_it_ends(stage: ScratchDatabase, first_key: str) -> None:
    """With an overlap: whoever copied the earlier one has until its end."""
    deploy()
    before = secrets.read_secret(first_key)
    ((left,),) = stage.rows("select expires_at - now() from api_keys where tenant_id = 'ops'")
    assert timedelta(days=364) < left <= timedelta(days=365)
    for days, keys in ((91, 1), (89, 2)):
        stage.rows(
            "update api_keys set expires_at = now() + %s where tenant_id = 'ops'",
            timedelta(days=days),
        )
        deploy()
        assert len(stage.rows(FIRST)) == keys
    after = secrets.read_secret(first_key)
    assert after != before
    assert [rights_of(stage, token) for token in (before, after)] == [{"operator"}] * 2
    stage.rows("update api_keys set expires_at = now() where tenant_id = 'ops'")
    deploy()
    assert rights_of(stage, secrets.read_secret(first_key)) == {"operator"}, "ended while at rest"
    deploy()
    assert len(stage.rows(FIRST)) == 3


def test_migrate_keeps_key_of_other_deployment_secret(
    stage: ScratchDatabase, first_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy()
    token, keys = secrets.read_secret(first_key), stage.rows(FIRST)
    monkeypatch.setenv("STRANDLINE_KEY_SECRET", "another secret of thirty-two characters")
    deploy()
    assert (secrets.read_secret(first_key), stage.rows(FIRST)) == (token, keys)


def test_migrate_refuses_database_of_other_history(stage: ScratchDatabase, first_key: str) -> None:
    """It has migrations beyond this release's last: it must not pass for a newer one."""
    deploy()
    key = secrets.read_secret(first_key)
    stage.rows("insert into schema_migrations values (1, '0001_create_log.sql', '')")
    stage.rows("insert into schema_migrations values (99, '0099_fill_chain_trust.sql', '')")
    was = stage.rows("select * from schema_migrations order by 1")
    with pytest.raises(Misconfigured, match="created before this schema's history"):
        deploy()
    assert stage.rows("select * from schema_migrations order by 1") == was
    assert secrets.read_secret(first_key) == key


def test_migrate_names_failed_file_without_row(
    stage: ScratchDatabase, first_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy()
    text = "create table t (a text unique); insert into t values ('canary'), ('canary')"
    migration = Migration(LAST + 1, "9999_break.sql", text)
    monkeypatch.setattr(migrate, "list_migrations", lambda: [*list_migrations(), migration])
    with pytest.raises(
        MigrationFailed, match=r"9999_break.sql, t, t_a_key: Unique.*23505"
    ) as error:
        deploy()
    assert "canary" not in str(error.value)
    assert error.value.__suppress_context__
    assert stage.rows("select to_regclass('t')") == [(None,)]


@pytest.mark.parametrize("name", ["OWNER_DATABASE_URL", "SECRETS"])
def test_migrate_names_missing_setting(
    first_key: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    del first_key
    monkeypatch.delenv(f"STRANDLINE_{name}")
    missing = {"SECRETS": "KEY_SECRET"}.get(name, name)
    with pytest.raises(Misconfigured, match=missing):
        deploy()


NO_START: list[tuple[dict[str, str], dict[str, str], str]] = [
    ({"LLM_PROVIDER": "bedrock"}, {}, "LLM_MODEL"),
    ({"LLM_PROVIDER": "openai", "LLM_MODEL": "m", "LLM_SECONDS": "900"}, {}, "LLM_SECONDS"),
    ({}, {"llm_provider": "azure"}, "LLM_API_KEY"),
    ({"EMBEDDING_DIMENSIONS": "3"}, {}, "EMBEDDING_DIMENSIONS"),
    ({"JWT_ISSUER": "i", "JWT_AUDIENCE": "a"}, {}, "put jwt_secret or jwt_jwks into the secret"),
    ({"JWT_ISSUER": "i"}, {"jwt_secret": "j" * 64}, "JWT_AUDIENCE"),
    ({"JWT_ISSUER": "i", "JWT_AUDIENCE": "a"}, {"jwt_jwks": '{"keys": [{}]}'}, "JWT_JWKS"),
]


@pytest.mark.parametrize(("event", "members", "names"), NO_START, ids=[n for *_, n in NO_START])
def test_migrate_refuses_settings_other_functions_refuse(
    stage: ScratchDatabase,
    first_key: str,
    monkeypatch: pytest.MonkeyPatch,
    event: dict[str, str],
    members: dict[str, str],
    names: str,
) -> None:
    for name in {*event, *(m.upper() for m in members)}:
        monkeypatch.setenv(f"STRANDLINE_{name}", event.get(name, ""))
    put(os.environ["STRANDLINE_SECRETS"], json.dumps({"key_secret": KEY_SECRET, **members}))
    with pytest.raises(Misconfigured, match=names):
        deploy()
    assert stage.rows("select to_regclass('events')") == [(None,)], "nothing was begun"
    assert not (secrets.read_secret(first_key) or "").startswith("strandline_")


def test_migrate_accepts_early_jwt_secret(
    stage: ScratchDatabase, first_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del stage, first_key
    monkeypatch.setenv("STRANDLINE_JWT_SECRET", "")
    members = {"key_secret": KEY_SECRET, "jwt_secret": "j" * 64}
    put(os.environ["STRANDLINE_SECRETS"], json.dumps(members))
    assert deploy()["applied"] == EVERY


def test_migrate_refuses_incomplete_administrator_secret(
    first_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_ADMINISTRATOR_SECRET", first_key)
    put(first_key, json.dumps({"password": "canary"}))
    with pytest.raises(Misconfigured, match="ADMINISTRATOR_SECRET") as error:
        deploy()
    assert "canary" not in str(error.value)


def test_migrate_waits_for_sleeping_database(
    stage: ScratchDatabase, first_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del first_key
    connect, tries = prepare_release.connect, list[str]()

    def asleep(url: str, auth: Any) -> Any:
        tries.append(url)
        if len(tries) == 1:
            raise Unavailable("asleep")
        return connect(url, auth)

    monkeypatch.setattr(prepare_release, "connect", asleep)
    with pytest.raises(Unavailable):
        deploy()
    tries.clear()
    monkeypatch.setattr(prepare_release, "_RETRY_PAUSES", (0.0,))
    assert deploy()["applied"] == EVERY
    assert stage.rows("select count(*) from events") == [(0,)]


def test_migrate_needs_only_owner_where_roles_exist(
    scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_OWNER_DATABASE_URL", scratch_db.owner_url)
    assert deploy() == {"applied": [], "left": [], "key": "", "shards": 0}


def test_migrate_continues_long_migration_by_state_machine(
    stage: ScratchDatabase, first_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy()
    text = "-- long: planted\nupdate tenants set tuning = '{}' where tuning is distinct from '{}'"
    number = LAST + 1
    files = [
        *list_migrations(),
        Migration(number, "9998_long.sql", text),
        Migration(number + 1, "9999_short.sql", "create table short (a int)"),
    ]
    monkeypatch.setattr(migrate, "list_migrations", lambda: files)
    with closing(BOTO3.client("sqs", region_name=REGION)) as sqs:
        queue = sqs.create_queue(QueueName=unique_name())["QueueUrl"]
        monkeypatch.setenv("STRANDLINE_JOB_QUEUE_URL", queue)
        cut_off = deploy(seconds=5)
        assert cut_off["applied"] == []
        assert cut_off["left"] == ["9998_long.sql", "9999_short.sql"]
        (message,) = sqs.receive_message(QueueUrl=queue)["Messages"]
        request = json.loads(message["Body"])
        assert (request["job"], bool(request["run"])) == ("migrate", True)
        context: Any = LambdaContext("migrate", 600)
        assert lambda_handler(EVENT | {"run": request["run"]}, context) == {
            "applied": ["9998_long.sql", "9999_short.sql"],
            "left": [],
            "key": "",
            "shards": 0,
        }
        assert "Messages" not in sqs.receive_message(QueueUrl=queue)
        monkeypatch.setenv("STRANDLINE_JOB_QUEUE_URL", "")
        files.append(Migration(number + 2, "9999_long.sql", text))
        with pytest.raises(Misconfigured, match="JOB_QUEUE_URL"):
            deploy(seconds=5)
    assert secrets.read_secret(first_key)


def test_migrate_rollback_keeps_newer_schema(
    stage: ScratchDatabase, first_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CloudFormation calls the older function once more when it undoes a deployment: were that to
    fail, so would the way back."""
    deploy()
    files = list_migrations()[:-1]
    monkeypatch.setattr(migrate, "list_migrations", lambda: files)
    was = stage.rows("select * from schema_migrations order by 1")
    assert deploy() == {"applied": [], "left": [], "key": "", "shards": 0}
    assert stage.rows("select * from schema_migrations order by 1") == was
    assert rights_of(stage, secrets.read_secret(first_key)) == {"operator"}
    stage.rows("delete from schema_migrations where number = %s", LAST)
    # a branch that knew another one: not older, but another
    stage.rows("update schema_migrations set name = '0065_other' where number = %s", BASELINE)
    stage.rows("update schema_migrations set checksum = '' where number = %s", BASELINE)
    with pytest.raises(Misconfigured, match=EVERY[0]):
        deploy()


@pytest.mark.own_sessions  # those of the cache prepare nothing
def test_migrate_added_column_spares_running_code(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    """In the sessions that it has open, with the plans that they keep."""
    key = gateway.key(user="user:alice")

    def append_and_read() -> None:
        messages = [
            user_message(text, session_id="s") for text in ("The tide is in.", "It is out.")
        ]
        reply = gateway.call("POST", "/api/v1/events", messages[0], key=key)
        assert reply.status == 201, reply.text
        several = gateway.call("POST", "/api/v1/events/batch", {"events": messages}, key=key)
        assert [item["status"] for item in several.body["results"]] == [201, 201]
        read = gateway.call("GET", f"/api/v1/events/{reply.body['event_id']}", key=key)
        assert read.body["content"] == "The tide is in."
        response = gateway.call("POST", "/api/v1/recall", {"query": "the tide"}, key=key)
        assert response.body["hits"]

    for _ in range(7):  # a plan is kept after the fifth
        append_and_read()
    ((view,),) = scratch_db.rows("select pg_get_viewdef('event_rows'::regclass)")
    wider = view.replace("FROM events e", ", e.planted FROM events e").rstrip(";")
    scratch_db.rows(
        "alter table events add column planted text;"
        " alter type append_item add attribute planted text;"
        f" create or replace view event_rows with (security_invoker = true) as {wider}"
    )
    assert scratch_db.rows("select distinct planted from event_rows") == [(None,)]
    append_and_read()
