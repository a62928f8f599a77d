"""API keys: what makes one, what refuses one, and what is stored of it."""

import base64
import importlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from strandline.admin.keys import make_key
from strandline.auth import store_tenants_and_keys
from strandline.auth.authenticator import Authenticator
from strandline.auth.credentials import AuthRequest
from strandline.config import ServiceSettings
from strandline.db.database import Caller, Database
from strandline.errors import Invalid, Misconfigured, Unauthorized, Unavailable
from strandline.local.lambda_context import LambdaContext
from tests.support import KEY_SECRET, Gateway, ScratchDatabase, user_message, wire_handlers

NOWHERE = "postgresql://app:secret@127.0.0.1:1/nothing"
EVENTS = "/api/v1/events"


@pytest.fixture
def database(scratch_db: ScratchDatabase) -> Iterator[Database]:
    connection = Database(scratch_db.url)
    yield connection
    connection.close()


@pytest.fixture
def token(database: Database) -> str:
    return make_key(database.connect_as(Caller("acme", ())), KEY_SECRET, user="user:alice").token


def checker_of(database: Database, secret: str = KEY_SECRET) -> Authenticator:
    return Authenticator(database, ServiceSettings(database_url="", bucket="", key_secret=secret))


def principal_of(database: Database, headers: dict[str, str], secret: str = KEY_SECRET) -> object:
    return checker_of(database, secret).authenticate(AuthRequest(headers))


# tokens ------------------------------------------------------------------------------------------


def test_api_key_authenticates_tenant_user_and_rights(database: Database) -> None:
    access = database.connect_as(Caller("acme", ()))
    key = make_key(access, KEY_SECRET, user="user:alice", rights=["read"])
    for headers in (
        {"x-api-key": key.token},
        {"authorization": f"Bearer {key.token}"},
        {"authorization": f"bearer   {key.token} "},
        {"x-api-key": f" {key.token} ", "authorization": "Bearer nonsense"},
    ):
        principal = checker_of(database).authenticate(AuthRequest(headers))
        assert (principal.tenant, principal.user, principal.rights) == (
            "acme",
            "user:alice",
            {"read"},
        )


def test_api_key_tampered_anywhere_is_refused(token: str) -> None:
    """And without a connection: the database named here does not exist."""
    nowhere = Database(NOWHERE)
    with pytest.raises(Unavailable):
        principal_of(nowhere, {"x-api-key": token})
    for place, letter in enumerate(token):
        forged_token = token[:place] + ("A" if letter != "A" else "B") + token[place + 1 :]
        with pytest.raises(Unauthorized):
            principal_of(nowhere, {"x-api-key": forged_token})


def test_api_key_has_one_valid_spelling(token: str) -> None:
    last = base64.urlsafe_b64decode(token[-2:] + "==")
    same = [
        token[:-1] + letter
        for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        if base64.urlsafe_b64decode(token[-2:-1] + letter + "==") == last
    ]
    assert len(same) > 1
    accepted = 0
    for spelling in [*same, token + "=", token + "==", token.upper()]:
        try:
            checker_of(Database(NOWHERE)).require_issued_credential(
                AuthRequest({"x-api-key": spelling})
            )
            accepted += 1
        except Unauthorized:
            pass
    assert accepted == 1


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-api-key": ""},
        {"x-api-key": "strandline_"},
        {"x-api-key": "strandline_" + "A" * 86},
        {"x-api-key": "strandline_é"},
        {"x-api-key": "strandline_" + "A" * 100_000},
        {"x-api-key": "sk-other"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "Basic dXNlcjpwYXNz"},
        {"authorization": "Bearer nonsense"},
    ],
    ids=str,
)
def test_api_key_malformed_is_refused_unconnected(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthorized):
        principal_of(Database(NOWHERE), headers)


def test_api_key_of_other_deployment_is_refused(token: str) -> None:
    with pytest.raises(Unauthorized):
        principal_of(
            Database(NOWHERE), {"x-api-key": token}, "another deployment's secret, long enough"
        )


def test_api_key_tokens_are_unique(database: Database) -> None:
    access = database.connect_as(Caller("acme", ()))
    results = {make_key(access, KEY_SECRET).token for _ in range(20)}
    assert len(results) == 20


@pytest.mark.parametrize("rights", [[], ["root"], ["read", "root"]])
def test_api_key_with_unknown_right_is_refused(database: Database, rights: list[str]) -> None:
    with pytest.raises(Invalid):
        make_key(database.connect_as(Caller("acme", ())), KEY_SECRET, rights=rights)


@pytest.mark.parametrize("user", ["", "alice", "user:", "agent:helper", "user:a\x00b", "User:a"])
def test_api_key_with_invalid_user_is_refused(database: Database, user: str) -> None:
    with pytest.raises(Invalid) as error:
        make_key(database.connect_as(Caller("acme", ())), KEY_SECRET, user=user)
    assert error.value.details["field"] == "user"


def test_api_key_user_is_normalised(database: Database) -> None:
    access = database.connect_as(Caller("acme", ()))
    key = make_key(access, KEY_SECRET, user=" user:Zoe\u0308")
    principal = checker_of(database).authenticate(AuthRequest({"x-api-key": key.token}))
    assert principal.user == "user:Zo\u00eb"


# time --------------------------------------------------------------------------------------------


def test_api_key_expired_is_refused_despite_cache(database: Database) -> None:
    access = database.connect_as(Caller("acme", ()))
    soon = datetime.now(UTC) + timedelta(seconds=0.5)
    headers = {"x-api-key": make_key(access, KEY_SECRET, expires_at=soon).token}
    checker = checker_of(database)
    checker.authenticate(AuthRequest(headers))
    time.sleep(0.6)
    with pytest.raises(Unauthorized, match="expired"):
        checker.authenticate(AuthRequest(headers))


def test_api_key_revoked_is_refused_within_one_minute(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a process that was frozen meanwhile."""
    access = database.connect_as(Caller("acme", ()))
    key = make_key(access, KEY_SECRET)
    headers, real, frozen = {"x-api-key": key.token}, time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + frozen[0])
    checker = checker_of(database)
    checker.authenticate(AuthRequest(headers))
    with access.transaction():
        assert store_tenants_and_keys.revoke_key(access, key.key_id)
    frozen[0] += 49
    checker.authenticate(AuthRequest(headers))
    frozen[0] += 1.1
    with pytest.raises(Unauthorized, match="revoked"):
        checker.authenticate(AuthRequest(headers))
    with pytest.raises(Unauthorized, match="revoked"):  # and is not remembered as good
        checker.authenticate(AuthRequest(headers))


def test_api_key_cached_works_without_database(
    database: Database, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker = checker_of(database)
    checker.authenticate(AuthRequest({"x-api-key": token}))
    monkeypatch.setattr(database, "connection", lambda deadline=None: pytest.fail("asked"))  # pyright: ignore
    assert checker.authenticate(AuthRequest({"x-api-key": token})).tenant == "acme"


# what is stored ----------------------------------------------------------------------------------


def test_api_key_token_and_secret_are_not_stored(scratch_db: ScratchDatabase, token: str) -> None:
    dump = str(scratch_db.rows("select k::text from api_keys k"))
    raw = base64.urlsafe_b64decode(token.removeprefix("strandline_") + "==")
    key_id, secret, mac = raw[:16], raw[16:48], raw[48:]
    assert key_id.hex() in dump
    for foreign in (token, token.removeprefix("strandline_"), KEY_SECRET):
        assert foreign not in dump
    for foreign in (secret, mac):
        assert foreign.hex() not in dump
        assert base64.b64encode(foreign).decode()[:40] not in dump
        assert base64.urlsafe_b64encode(foreign).decode()[:40] not in dump


# through the handlers ----------------------------------------------------------------------------


def test_api_key_missing_or_invalid_answers_401(gateway: Gateway) -> None:
    good = gateway.key()
    for key in (None, "garbage", good[:-20] + "A" * 20):
        reply = gateway.call("POST", EVENTS, user_message("x"), key=key)
        assert reply.status == 401
        assert reply.headers["WWW-Authenticate"] == "Bearer"
        assert reply.error["code"] == "unauthorized"
        assert reply.error["retryable"] is False
    bearer = {"Authorization": f"Bearer {good}"}
    assert gateway.call("POST", EVENTS, user_message("x"), headers=bearer).status == 201


def test_api_key_missing_answers_401_for_any_body(gateway: Gateway) -> None:
    for raw in (b"", b"{", b"x" * (4 * 1024 * 1024 + 1)):
        assert gateway.call("POST", EVENTS, raw=raw).status == 401
        assert gateway.call("POST", f"{EVENTS}/batch", raw=raw).status == 401


def test_api_key_forged_answers_401_without_database(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = gateway.key()
    env = {"STRANDLINE_DATABASE_URL": NOWHERE, "STRANDLINE_BUCKET": "b"}
    wire_handlers({**env, "STRANDLINE_KEY_SECRET": KEY_SECRET}, monkeypatch, None)
    made_up = good[:-5] + "AAAAA"
    assert gateway.call("POST", EVENTS, user_message("x"), key=made_up).status == 401
    reply = gateway.call("POST", EVENTS, user_message("x"), key=good)
    assert (reply.status, reply.error["retryable"]) == (503, True)
    assert int(reply.headers["Retry-After"]) > 0


def test_api_key_rights_are_enforced(gateway: Gateway) -> None:
    reader = gateway.key(user="user:alice", rights=["read"])
    writer = gateway.key(user="user:alice", rights=["write"])
    admin = gateway.key(rights=["admin"])
    operator = gateway.key(rights=["operator"])
    reply = gateway.call("POST", EVENTS, user_message("x"), key=reader)
    assert (reply.status, reply.error["details"]) == (403, {"right": "write"})
    assert (
        gateway.call("POST", f"{EVENTS}/batch", {"events": [user_message("x")]}, key=reader).status
        == 403
    )
    assert gateway.call("POST", EVENTS, user_message("x"), key=operator).status == 403
    response = gateway.call("POST", EVENTS, user_message("x"), key=writer)
    assert response.status == 201
    place = f"{EVENTS}/{response.body['event_id']}"
    assert gateway.call("GET", place, key=reader).status == 200
    assert gateway.call("GET", place, key=writer).status == 403
    assert gateway.call("GET", place, key=operator).status == 403
    assert gateway.call("GET", place, key=admin, query={"everybody": "true"}).status == 200
    assert gateway.call("POST", EVENTS, user_message("x"), key=admin).status == 201


def test_api_key_cannot_reach_other_tenant(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    ours = gateway.call("POST", EVENTS, user_message("x" * 70_000), key=gateway.key("acme")).body
    theirs = gateway.key("other", rights=["read", "write", "admin"])
    scope, blob = ours["scope_id"], ours["blob"]["cid"]
    everybody = {"everybody": "true"}
    for path in (
        f"{EVENTS}/{ours['event_id']}",
        f"/api/v1/scopes/{scope}",
        f"/api/v1/scopes/{scope}/events",
        f"/memory/{ours['cid']}",
        f"/ipfs/{ours['cid']}",
        f"/file/{blob}",
    ):
        for query in (everybody, {"participants": "user:alice"}):
            assert gateway.call("GET", path, key=theirs, query=query).status == 404, path
    for path, name in (("/memories/list", "events"), ("/api/v1/scopes", "scopes")):
        assert gateway.call("GET", path, key=theirs, query=everybody).body[name] == []
    params = {"participants": ["user:alice"], "scope_id": scope}
    assert gateway.call("POST", f"{EVENTS}/query", params, key=theirs).body["scopes"] == []
    own = gateway.call("POST", EVENTS, user_message("y"), key=theirs).body
    assert (own["seq"], own["scope_id"] != scope) == (1, True)
    assert scratch_db.rows("select tenant_id, count(*) from events group by 1 order by 1") == [
        ("acme", 1),
        ("other", 1),
    ]


@pytest.mark.parametrize("function", ["ingest", "query", "admin", "worker"])
def test_api_key_secret_is_required_by_every_function(
    scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    env = {"STRANDLINE_DATABASE_URL": scratch_db.url, "STRANDLINE_BUCKET": "b"}
    wire_handlers(env, monkeypatch, None)
    handler = importlib.import_module(f"functions.{function}.handler").lambda_handler
    event: dict[str, Any] = {
        "resource": "/health",
        "httpMethod": "GET",
        "headers": {},
        "Records": [],
    }
    with pytest.raises(Misconfigured, match="STRANDLINE_KEY_SECRET"):
        handler(event, LambdaContext(function, 29))
