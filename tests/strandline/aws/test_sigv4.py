"""Signatures: those of botocore, byte for byte, without botocore."""

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import boto3  # pyright: ignore[reportMissingTypeStubs]
import psycopg
import pytest
from botocore import auth  # pyright: ignore[reportMissingTypeStubs]
from botocore.awsrequest import AWSRequest  # pyright: ignore[reportMissingTypeStubs]
from botocore.credentials import Credentials  # pyright: ignore[reportMissingTypeStubs]
from psycopg import sql

from strandline.aws.sigv4 import Signer
from strandline.db import connection as db_connection
from strandline.db.database import Caller, Database
from strandline.errors import Misconfigured, Unavailable
from strandline.local.postgres import EmbeddedPostgres
from tests.support import APP, OWNER, PASSWORDS, TEMPLATE, ScratchDatabase, unique_name

NOW = datetime(2026, 5, 8, 13, 56, 7, tzinfo=UTC)
_SIGN_TOKEN: Any = db_connection._sign_token.__wrapped__  # pyright: ignore[reportPrivateUsage]
BOTO3: Any = boto3
AUTH: Any = auth
AWS = {
    "AWS_REGION": "eu-central-1",
    "AWS_ACCESS_KEY_ID": "ASIAEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret/with+signs",
}
SESSION = {"AWS_SESSION_TOKEN": "IQoJb3/JpZ2lu+X2Vj=="}


class FixedClock(datetime):
    """A clock that shows one time."""

    at = NOW

    @classmethod
    def now(cls, tz: Any = None) -> "FixedClock":
        """That time."""
        return cls.fromtimestamp(cls.at.timestamp(), tz)


@pytest.fixture
def fixed_clock(monkeypatch: pytest.MonkeyPatch) -> type[FixedClock]:
    """botocore's clock and ours stand still."""
    monkeypatch.setattr(auth, "get_current_datetime", lambda: NOW.replace(tzinfo=None))
    monkeypatch.setattr(db_connection, "datetime", FixedClock)
    FixedClock.at = NOW
    return FixedClock


@pytest.mark.parametrize("temporary", [SESSION, {}], ids=["temporary", "lasting"])
def test_sigv4_database_token_equals_boto3(
    fixed_clock: type[FixedClock], temporary: dict[str, str]
) -> None:
    del fixed_clock
    signer = Signer.from_env(AWS | temporary)
    host, user = "db.cluster-x.eu-central-1.rds.amazonaws.com", "strandline_app"
    rds = BOTO3.session.Session(
        AWS["AWS_ACCESS_KEY_ID"],
        AWS["AWS_SECRET_ACCESS_KEY"],
        temporary.get("AWS_SESSION_TOKEN"),
        AWS["AWS_REGION"],
    ).client("rds")
    assert signer.sign_database_token(host, 5432, user, NOW) == rds.generate_db_auth_token(
        DBHostname=host, Port=5432, DBUsername=user
    )


@pytest.mark.parametrize("temporary", [SESSION, {}], ids=["temporary", "lasting"])
def test_sigv4_signed_request_equals_botocore(
    fixed_clock: type[FixedClock], temporary: dict[str, str]
) -> None:
    del fixed_clock
    url, body = "https://secretsmanager.eu-central-1.amazonaws.com/", b'{"SecretId":"x"}'
    query = {"content-type": "application/x-amz-json-1.1", "x-amz-target": "secretsmanager.Get"}
    ours = Signer.from_env(AWS | temporary).make_signed_post_headers(
        "secretsmanager", url, body, query, NOW
    )
    request: Any = AWSRequest("POST", url, query, body)
    credentials = Credentials(
        AWS["AWS_ACCESS_KEY_ID"],
        AWS["AWS_SECRET_ACCESS_KEY"],
        temporary.get("AWS_SESSION_TOKEN"),
    )
    AUTH.SigV4Auth(credentials, "secretsmanager", AWS["AWS_REGION"]).add_auth(request)
    theirs = {name.lower(): value for name, value in request.headers.items()}
    assert {**ours, "host": ""} == {**theirs, "host": ""}


def test_sigv4_signer_names_missing_and_hides_secrets() -> None:
    with pytest.raises(Misconfigured, match=r"AWS_REGION, AWS_SECRET_ACCESS_KEY"):
        Signer.from_env({"AWS_ACCESS_KEY_ID": "x"})
    text = repr(Signer.from_env(AWS | SESSION))
    assert AWS["AWS_SECRET_ACCESS_KEY"] not in text
    assert SESSION["AWS_SESSION_TOKEN"] not in text


def test_sigv4_cold_start_does_not_import_botocore() -> None:
    imports = "import sys, strandline.db.database, strandline.aws.secrets"
    program = f"{imports}; print('botocore.auth' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": "shared"}
    output = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
    assert output == "False\n"


@pytest.fixture
def iam_database(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ScratchDatabase, str]]:
    """A database, and its address without a password. Anyone who connects as the app must bring the
    token of the stopped clock: it is the role's password while this lasts."""
    base = ScratchDatabase(server, unique_name())
    server.clone_database(TEMPLATE, base.name)
    for name, value in (AWS | SESSION).items():
        monkeypatch.setenv(name, value)
    url = f"host=127.0.0.1 port={server.port} dbname={base.name} user={APP} sslmode=prefer"
    signer = Signer.from_env(AWS | SESSION)
    _set_password(base, signer.sign_database_token("127.0.0.1", server.port, APP, NOW))
    monkeypatch.setattr(db_connection, "_sign_token", functools.lru_cache(_SIGN_TOKEN))
    try:
        yield base, url
    finally:
        _set_password(base, PASSWORDS[APP])
        server.drop_database(base.name)


def _set_password(base: ScratchDatabase, password: str) -> None:
    with psycopg.connect(base.admin_url, autocommit=True) as administrator:
        administrator.execute(
            sql.SQL("alter role {} password {}").format(sql.Identifier(APP), sql.Literal(password))
        )


def test_sigv4_database_token_lasts_ten_minutes(
    iam_database: tuple[ScratchDatabase, str], fixed_clock: type[FixedClock]
) -> None:
    """RDS limits how many new tokens it verifies in a second, and a token lasts 15 minutes."""
    base, url = iam_database
    with closing(Database(url, "iam")) as database:
        first = database.connection()
        fixed_clock.at = NOW.replace(minute=59)
        first.close()
        first = database.connection()  # the role's password is still the first token
        fixed_clock.at = NOW.replace(hour=14)  # an open connection outlives its token
        assert database.connection() is first
        first.close()
        with pytest.raises(Unavailable):
            database.connect_as(Caller("acme", ()))
        signer = Signer.from_env(AWS | SESSION)
        _set_password(
            base, signer.sign_database_token("127.0.0.1", base.server.port, APP, fixed_clock.at)
        )
        assert database.connection().info.user == APP


def test_sigv4_login_without_token_fails(
    iam_database: tuple[ScratchDatabase, str], fixed_clock: type[FixedClock]
) -> None:
    del fixed_clock
    _, url = iam_database
    with closing(Database(url)) as without, pytest.raises(Unavailable):
        without.connection()
    with closing(Database(url.replace(APP, OWNER), "iam")) as other, pytest.raises(Unavailable):
        other.connection()
