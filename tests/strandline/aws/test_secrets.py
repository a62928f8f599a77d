"""Secrets Manager as a cold start asks it, against one that checks signatures."""

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import boto3  # pyright: ignore[reportMissingTypeStubs]
import pytest

from strandline.aws import secrets
from strandline.config import get_settings
from strandline.errors import Misconfigured, Unavailable
from strandline.local.aws import LocalAws
from strandline.resources import Resources
from tests.support import KEY_SECRET, unique_name

BOTO3: Any = boto3
CANARY = "canary-of-a-secret"


@pytest.fixture
def arn(aws: LocalAws) -> Iterator[str]:
    """A secret without a value."""
    del aws
    with closing(BOTO3.client("secretsmanager")) as manager:
        secret_arn = manager.create_secret(Name=unique_name())["ARN"]
        yield secret_arn
        manager.delete_secret(SecretId=secret_arn, ForceDeleteWithoutRecovery=True)


def adopt(arn: str, members: object, **options: str) -> dict[str, str]:
    """The environment once the secret is read that holds these members."""
    secrets.write_secret(arn, members if isinstance(members, str) else json.dumps(members))
    env = {secrets.SECRETS_VARIABLE: arn, **options}
    secrets.load_secret_into_env(env)
    return env


def test_secret_members_become_settings_unless_set(arn: str) -> None:
    members = {"key_secret": KEY_SECRET, "llm_api_key": "from the secret"}
    env = adopt(arn, members, STRANDLINE_LLM_API_KEY="set", STRANDLINE_KEY_SECRET="")
    assert env["STRANDLINE_KEY_SECRET"] == KEY_SECRET
    assert env["STRANDLINE_LLM_API_KEY"] == "set"


def test_secret_is_not_read_without_its_variable() -> None:
    env: dict[str, str] = {}
    secrets.load_secret_into_env(env)
    assert env == {}


def test_secret_is_read_in_lambda_init_phase(arn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets.write_secret(arn, json.dumps({"key_secret": KEY_SECRET}))
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "ingest")
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", "host=nowhere.invalid")
    monkeypatch.setenv("STRANDLINE_BUCKET", "bucket")
    monkeypatch.setenv("STRANDLINE_KEY_SECRET", "")
    with pytest.raises(Misconfigured, match="STRANDLINE_KEY_SECRET"):
        Resources()
    monkeypatch.setenv(secrets.SECRETS_VARIABLE, arn)
    Resources()
    assert get_settings().key_secret == KEY_SECRET


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"{CANARY} no JSON", "not a JSON object"),
        (json.dumps([CANARY]), "not a JSON object"),
        (json.dumps({"key_secret": [CANARY]}), "'key_secret' is not a string"),
    ],
)
def test_secret_of_invalid_shape_is_refused_unquoted(arn: str, text: str, name: str) -> None:
    with pytest.raises(Misconfigured, match=name) as error:
        adopt(arn, text)
    assert CANARY not in str(error.value)


def test_secret_unknown_member_is_skipped_and_logged(
    arn: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        env = adopt(arn, {"of_tomorrow": CANARY, "key_secret": KEY_SECRET})
    assert set(env) == {secrets.SECRETS_VARIABLE, "STRANDLINE_KEY_SECRET"}
    assert vars(caplog.records[-1])["settings"] == ["of_tomorrow"]
    assert CANARY not in caplog.text


@pytest.mark.parametrize("name", ["jwt_secret", "jwt_jwks"])
def test_secret_jwt_keys_wait_for_issuer(
    arn: str, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """It is put into the secret first: no function that is older may fail for it."""
    members = {"key_secret": KEY_SECRET, name: CANARY}
    with caplog.at_level(logging.WARNING):
        assert set(adopt(arn, members)) == {secrets.SECRETS_VARIABLE, "STRANDLINE_KEY_SECRET"}
    assert vars(caplog.records[-1])["settings"] == [name]
    assert CANARY not in caplog.text
    values = adopt(arn, members, STRANDLINE_JWT_ISSUER="https://issuer.example")
    assert values[f"STRANDLINE_{name.upper()}"] == CANARY
    both = adopt(arn, {**members, "jwt_issuer": "https://issuer.example"})
    assert both[f"STRANDLINE_{name.upper()}"] == CANARY


def test_secret_without_value_prevents_start(arn: str) -> None:
    assert secrets.read_secret(arn) is None
    with pytest.raises(Misconfigured, match="no value yet"):
        secrets.load_secret_into_env({secrets.SECRETS_VARIABLE: arn})


def test_secret_read_with_wrong_signature_fails(arn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of another account")
    with pytest.raises(Misconfigured):
        secrets.read_secret(arn)


class Poor(BaseHTTPRequestHandler):
    """A Secrets Manager that has had better days: it gives `answers` in turn."""

    answers: ClassVar[list[tuple[int, bytes]]] = []

    def do_POST(self) -> None:
        """The next answer."""
        self.rfile.read(int(self.headers["content-length"]))
        status, body = self.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Not a word."""


@pytest.fixture
def poor(aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Poor]]:
    """It, instead of a good one."""
    del aws
    with HTTPServer(("127.0.0.1", 0), Poor) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", address)
        monkeypatch.setattr(secrets, "_RETRY_PAUSES", (0.0, 0.0))
        yield Poor
        server.shutdown()
        thread.join()


GOOD = (200, json.dumps({"SecretString": "told"}).encode())
THROTTLED_ANSWER = (400, b'{"__type":"com.amazonaws#ThrottlingException"}')
DENIED_ANSWER = (400, json.dumps({"__type": "AccessDeniedException", "Message": CANARY}).encode())
BROKEN_ANSWER = (502, b"<html>")


@pytest.mark.parametrize("first", [THROTTLED_ANSWER, BROKEN_ANSWER], ids=["throttled", "broken"])
def test_secret_read_retries_passing_failures(poor: type[Poor], first: tuple[int, bytes]) -> None:
    poor.answers = [first, GOOD]
    assert secrets.read_secret("arn") == "told"
    poor.answers = [first, first, GOOD]
    with pytest.raises(Unavailable, match="endpoint or a NAT gateway"):
        secrets.read_secret("arn")


def test_secret_read_denied_fails_without_retry(poor: type[Poor]) -> None:
    poor.answers = [DENIED_ANSWER, GOOD]
    with pytest.raises(Misconfigured, match="AccessDeniedException") as error:
        secrets.read_secret("arn")
    assert CANARY not in str(error.value)


def test_secret_read_without_connection_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(Unavailable, match="ConnectionRefusedError"):
        secrets.read_secret("arn")


def test_secret_address_follows_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    where: list[str] = []

    def connect(url: str) -> Any:
        where.append(url)
        raise ConnectionRefusedError

    monkeypatch.setattr(secrets, "_make_http_connection", connect)
    for region in ("eu-central-1", "cn-north-1"):
        monkeypatch.setenv("AWS_REGION", region)
        with pytest.raises(Unavailable):
            secrets.read_secret("arn")
    assert sorted(set(where)) == [
        "https://secretsmanager.cn-north-1.amazonaws.com.cn",
        "https://secretsmanager.eu-central-1.amazonaws.com",
    ]
