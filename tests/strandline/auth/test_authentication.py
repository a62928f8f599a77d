"""The ways in through the real handlers: API keys, JWTs, client certificates, and all of them."""

import importlib
import itertools
import json
import ssl
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509

from strandline.admin import certificates
from strandline.auth import authenticator, ttl_cache
from strandline.auth.api_keys import verify_token
from strandline.auth.principals import Principal
from strandline.db.database import Caller
from strandline.errors import Misconfigured
from strandline.http.request import Request
from strandline.http.routes_and_responses import Route
from strandline.resources import Resources
from strandline.tenants.store_audit import AuditContext
from tests.certificates import certificate
from tests.strandline.auth.forged_tokens import forge
from tests.strandline.auth.ways_in import (
    ALICE,
    BY_CERTIFICATE,
    EVENTS,
    HEALTH,
    JWT,
    KEYS,
    TurnOn,
    append,
    enter,
    on,
)
from tests.support import KEY_SECRET, Gateway, Reply, ScratchDatabase, user_message
from tests.tokens import SECRET, ec_key, jwk, jwks, rsa_key, token

__all__ = ["on"]  # fixtures

CERTIFICATES = "/api/v1/admin/tenants/acme/certificates"
NOWHERE = "postgresql://app:secret@127.0.0.1:1/nothing"


def bearer(**claims: object) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(**claims)}"}


# which ways are on -------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [False, True], ids=["any", "all"])
@pytest.mark.parametrize("ways", list(itertools.product((False, True), repeat=3)), ids=str)
def test_authentication_handles_every_mix_of_methods(
    on: TurnOn, monkeypatch: pytest.MonkeyPatch, ways: tuple[bool, ...], every: bool
) -> None:
    """Each way by itself, and all their combinations: a start as in Lambda's init phase, and a
    request with every combination of good credentials."""
    choices = [way for way, is_on in zip((KEYS, JWT, BY_CERTIFICATE), ways, strict=True) if is_on]
    monkeypatch.setenv("STRANDLINE_AUTH_REQUIRE_ALL", str(every))
    key = on(KEYS).key(user="user:alice")
    gateway = on(*choices, AUTH_REQUIRE_ALL=str(every))
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "ingest")
    if not choices:
        with pytest.raises(Misconfigured, match=r"KEY_SECRET.*JWT_SECRET.*CLIENT_CERTIFICATES"):
            Resources(load_auth=True)
        with pytest.raises(Misconfigured):
            append(gateway, key=key)
        return
    Resources(load_auth=True)
    monkeypatch.delenv("AWS_LAMBDA_FUNCTION_NAME")
    enter(gateway, user="user:alice")
    for flags in itertools.product((False, True), repeat=3):
        more: dict[str, Any] = {"key": key if flags[0] else None}
        more |= {"headers": bearer() if flags[1] else {}}
        more |= {"certificate": certificate(ALICE) if flags[2] else None}
        useful = [arguments for arguments, is_on in zip(flags, ways, strict=True) if is_on]
        good = all(useful) if every else any(useful)
        assert append(gateway, **more).status == (201 if good else 401), flags
        assert gateway.call("GET", HEALTH, **more).status == (200 if good else 401), flags


def test_authentication_by_any_method_names_erasure_asker(on: TurnOn) -> None:
    rights = {"JWT_SCOPE_RIGHTS": '{"write": "write", "erase": "erase"}'}
    gateway = on(KEYS, JWT, BY_CERTIFICATE, **rights)
    entry = enter(gateway, rights=["write", "erase"])
    key = gateway.key(rights=["write", "erase"])
    ways: list[dict[str, Any]] = [
        {"headers": bearer(scope="write erase")},
        {"certificate": certificate(ALICE)},
        {"key": key},
    ]
    names: list[Any] = []
    for way in ways:
        event_id = append(gateway, **way).body["event_id"]
        erasure = gateway.call("DELETE", f"{EVENTS}/{event_id}", **way)
        assert erasure.status == 200, erasure.text
        names.append(erasure.body["asked_by"])
    assert names == [
        {"key_id": None, "user": "user:alice"},
        {"key_id": entry.certificate_id.hex, "user": None},
        {"key_id": verify_token(KEY_SECRET, key).key_id, "user": None},
    ]


@pytest.mark.parametrize(
    ("ways", "every", "challenge", "message"),
    [
        ([KEYS], "", "Bearer", "Send an API key (X-API-Key, or Authorization: Bearer)."),
        ([JWT], "", "Bearer", "Send a JWT (Authorization: Bearer, or X-JWT-Token)."),
        ([BY_CERTIFICATE], "", "ClientCertificate", "Send a client certificate (mutual TLS)."),
        (
            [KEYS, JWT, BY_CERTIFICATE],
            "true",
            "Bearer, ClientCertificate",
            "Send an API key (X-API-Key, or Authorization: Bearer) and a JWT (Authorization: "
            "Bearer, or X-JWT-Token) and a client certificate (mutual TLS).",
        ),
    ],
)
def test_authentication_401_names_enabled_methods(
    on: TurnOn, ways: list[Mapping[str, str]], every: str, challenge: str, message: str
) -> None:
    reply = append(on(*ways, AUTH_REQUIRE_ALL=every))
    assert reply.status == 401
    assert reply.headers["WWW-Authenticate"] == challenge
    assert reply.error["message"] == message


@pytest.mark.parametrize("value", ["Bearer wrong", "Bearer", "wrong", "Basic eDp5", "{key}"])
def test_authentication_401_of_wrong_bearer_says_what_key_is(
    on: TurnOn, gateway: Gateway, value: str
) -> None:
    other = {"Authorization": value.format(key=gateway.key())}
    message = (
        "What the Authorization header holds is no credential of this deployment: an API key "
        "begins with strandline_, after the word Bearer."
    )
    for ways in ([KEYS], [KEYS, BY_CERTIFICATE]):
        reply = append(on(*ways), headers=other)
        assert (reply.status, reply.error["message"]) == (401, message)
    reply = append(on(KEYS, JWT), headers=other)
    assert reply.status == 401
    assert reply.error["message"] != message


def test_authentication_401_of_missing_certificate_spares_key(on: TurnOn, gateway: Gateway) -> None:
    reply = append(
        on(KEYS, BY_CERTIFICATE, AUTH_REQUIRE_ALL="true"),
        headers={"Authorization": f"Bearer {gateway.key()}"},
    )
    assert reply.status == 401
    assert reply.error["message"].startswith("Send an API key")


@pytest.mark.parametrize(
    ("ways", "schemes"),
    [
        ([KEYS], [["ApiKey"], ["Bearer"]]),
        ([JWT, BY_CERTIFICATE], [["Jwt"], ["Bearer"], ["ClientCertificate"]]),
        (
            [KEYS, JWT, {"AUTH_REQUIRE_ALL": "true"}],
            [["ApiKey", "Jwt"], ["ApiKey", "Bearer"], ["Bearer", "Jwt"]],
        ),
    ],
)
def test_authentication_openapi_security_lists_enabled_methods(
    on: TurnOn, monkeypatch: pytest.MonkeyPatch, ways: list[Any], schemes: list[list[str]]
) -> None:
    docs = importlib.import_module("strandline.apidocs.routes")
    docs._build_document_json.cache_clear()
    gateway = on(*ways)
    body = gateway.call("GET", "/openapi.json").body
    docs._build_document_json.cache_clear()
    security = body["paths"]["/api/v1/events"]["post"]["security"]
    assert [sorted(way) for way in security] == [sorted(way) for way in schemes]
    assert body["components"]["securitySchemes"].keys() == set(itertools.chain(*schemes))
    assert gateway.call("GET", "/docs").status == 200


@pytest.mark.parametrize("ways", [KEYS, BY_CERTIFICATE, JWT, {}], ids=str)
def test_authentication_start_imports_jwt_only_when_enabled(
    repository: Path, ways: dict[str, str]
) -> None:
    """PyJWT and cryptography cost a cold start 50 ms and more: none without JWTs."""
    environment = {f"STRANDLINE_{name}": value for name, value in ways.items()}
    environment |= {"STRANDLINE_DATABASE_URL": "x", "STRANDLINE_BUCKET": "x"}
    if ways is BY_CERTIFICATE:
        environment["STRANDLINE_CURSOR_SECRET"] = KEY_SECRET
    process = subprocess.run(
        [sys.executable, "-c", "import functions.ingest.handler, sys; print(*sys.modules)"],
        cwd=repository,
        env={
            **environment,
            "PYTHONPATH": "shared:.",
            "PATH": "/usr/bin:/bin",
            "AWS_LAMBDA_FUNCTION_NAME": "ingest",
        },
        capture_output=True,
        text=True,
    )
    modules = {"jwt", "cryptography"} & set(process.stdout.split())
    assert modules == ({"jwt", "cryptography"} if ways is JWT else set())
    assert (process.returncode == 0) is bool(ways)
    assert ("Strandline does not start" in process.stderr) is not bool(ways)


# JWTs --------------------------------------------------------------------------------------------


def test_authentication_jwt_reads_and_writes_as_its_user(on: TurnOn) -> None:
    gateway = on(KEYS, JWT)
    gateway.key("acme")
    for headers in (bearer(), {"X-JWT-Token": token()}):
        reply = append(gateway, headers=headers)
        assert reply.status == 201, reply.text
        place = f"{EVENTS}/{reply.body['event_id']}"
        assert gateway.call("GET", place, headers=headers).status == 200
        assert gateway.call("GET", place, headers=bearer(user_id="bob")).status == 404
        assert gateway.call("GET", place, headers=bearer(scope="write")).status == 403
    others = gateway.call("POST", EVENTS, user_message("x", "user:bob"), headers=bearer())
    assert others.status == 403, "it writes into scopes of its user alone"
    for claim in ({"tenant_id": "globex"}, {"user_id": "bob"}):
        response = gateway.call("POST", EVENTS, user_message("x", **claim), headers=bearer())
        assert (response.status, response.error["details"]["field"]) == (403, next(iter(claim)))
    assert append(gateway, key=token()).status == 401, "X-API-Key is for API keys"


def test_authentication_jwt_makes_no_tenant(
    on: TurnOn, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown is 403, and so for less than a minute after it was made; and the other way round."""
    now = [1000.0]
    monkeypatch.setattr(ttl_cache, "read_uptime", lambda: now[0])
    gateway = on(KEYS, JWT)
    before = scratch_db.rows("select tenant_id from tenants")
    for name in ("acme", "Acme", "acme' or true --", "../acme", "*", "a" * 64, "\u00e4"):
        for _ in range(2):
            reply = append(gateway, headers=bearer(tenant_id=name))
            assert (reply.status, reply.error["code"]) == (403, "forbidden")
    assert scratch_db.rows("select tenant_id from tenants") == before == []
    gateway.key("acme")
    assert append(gateway, headers=bearer()).status == 403, "what was looked up is believed"
    now[0] += 51
    assert append(gateway, headers=bearer()).status == 201


@pytest.mark.parametrize("kind", ["rsa", "hmac"])
def test_authentication_jwt_forged_is_refused(on: TurnOn, kind: str) -> None:
    gateway = on(KEYS, JWT)
    if kind == "rsa":
        key_set = jwks(jwk(rsa_key("rsa"), kid="rsa"), jwk(ec_key("P-256"), kid="ec"))
        gateway = on(KEYS, JWT, JWT_SECRET="", JWT_JWKS=key_set)
    for what, made_for, text in forge():
        if made_for == kind:
            for headers in ({"Authorization": f"Bearer {text}"}, {"X-JWT-Token": text}):
                receipt = append(gateway, headers=headers)
                assert receipt.status == 401, what
                assert text not in receipt.text


def test_authentication_made_up_is_401_without_database(on: TurnOn, gateway: Gateway) -> None:
    key = gateway.key()
    on(KEYS, JWT, BY_CERTIFICATE, DATABASE_URL=NOWHERE)
    assert append(gateway, headers=bearer()).status == 503
    assert append(gateway, headers={"X-JWT-Token": token(SECRET[::-1])}).status == 401
    assert append(gateway, headers=bearer(exp=1)).status == 401
    assert append(gateway, certificate=certificate(ALICE)).status == 503
    old = certificate(ALICE, begins=timedelta(-2), ends=timedelta(-1))
    assert append(gateway, certificate=old).status == 401
    each: list[dict[str, Any]] = [{"key": key}, {"headers": bearer()}]
    each.append({"certificate": certificate(ALICE)})
    for more in each:
        health = gateway.call("GET", HEALTH, **more)
        assert (health.status, health.body["dependencies"]["database"]) == (503, "unavailable")
    on(KEYS, JWT, BY_CERTIFICATE, DATABASE_URL=NOWHERE, AUTH_REQUIRE_ALL="true")
    forged = {"X-JWT-Token": token(SECRET[::-1])}
    assert append(gateway, key=key, headers=forged, certificate=certificate(ALICE)).status == 401


# client certificates -----------------------------------------------------------------------------


def test_authentication_certificate_subject_maps_to_its_entry(on: TurnOn) -> None:
    gateway = on(BY_CERTIFICATE)
    certificate_pem = certificate(ALICE)
    unknown = append(gateway, certificate=certificate_pem)
    assert (unknown.status, unknown.error["message"]) == (
        401,
        "The client certificate's subject is not registered here.",
    )
    gateway = on(BY_CERTIFICATE)  # nobody is believed for a while, too
    enter(gateway, user="user:alice", rights=["read"])
    assert append(gateway, certificate=certificate_pem).status == 403
    page = gateway.call("GET", "/memories/list", certificate=certificate_pem)
    assert (page.status, page.body["events"]) == (200, [])
    bobs = {"participants": "user:bob"}
    assert (
        gateway.call("GET", "/memories/list", query=bobs, certificate=certificate_pem).body[
            "events"
        ]
        == []
    )


def test_authentication_certificate_subject_must_match_exactly(on: TurnOn) -> None:
    gateway = on(BY_CERTIFICATE)
    enter(gateway)
    for other in (
        "CN=alice,O=acme",
        "CN=alice",
        "O=Acme,CN=alice",
        "CN=alice\\,O\\=Acme",
        "CN=alice,O=Acme,C=SE",
        "CN=alice+O=Acme",
        "CN=alice\\ ,O=Acme",
        "CN=ali\u0441e,O=Acme",
        "OU=alice,O=Acme",
    ):
        assert append(gateway, certificate=certificate(other)).status == 401, other
    assert append(gateway, certificate=certificate(ALICE)).status == 201


def test_authentication_certificate_issuer_can_be_named(on: TurnOn) -> None:
    gateway = on(BY_CERTIFICATE)
    enter(gateway, issuer="CN=Ours", user="user:alice")
    assert append(gateway, certificate=certificate(ALICE)).status == 401
    assert append(gateway, certificate=certificate(ALICE, issuer="CN=Ours")).status == 201
    enter(gateway, rights=["read"])
    gateway = on(BY_CERTIFICATE)
    assert append(gateway, certificate=certificate(ALICE)).status == 403
    assert append(gateway, certificate=certificate(ALICE, issuer="CN=Ours")).status == 201


def test_authentication_certificate_revoked_is_not_taken_over(on: TurnOn) -> None:
    """Another tenant's entry of the same subject, which leaves the issuer open."""
    gateway = on(BY_CERTIFICATE)
    enter(gateway, tenant="globex")
    entry = enter(gateway, issuer="CN=Ours")
    ours, theirs = certificate(ALICE, issuer="CN=Ours"), certificate(ALICE)
    assert append(gateway, certificate=ours).status == 201
    access = gateway.database.connect_as(Caller("acme", ()))
    certificates.revoke_certificate(access, AuditContext("a test"), entry.certificate_id)
    gateway = on(BY_CERTIFICATE)
    assert append(gateway, certificate=ours).status == 401
    assert append(gateway, certificate=theirs).status == 201
    enter(gateway, tenant="initech", issuer="CN=Ours")
    gateway = on(BY_CERTIFICATE)
    assert append(gateway, certificate=ours).status == 201, "entered again"


def test_authentication_certificate_revoked_can_be_reentered(on: TurnOn) -> None:
    gateway = on(BY_CERTIFICATE)
    entry = enter(gateway, issuer="CN=Ours")
    access = gateway.database.connect_as(Caller("acme", ()))
    certificates.revoke_certificate(access, AuditContext("a test"), entry.certificate_id)
    enter(gateway)
    assert append(gateway, certificate=certificate(ALICE, issuer="CN=Ours")).status == 201


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        (timedelta(days=-2), timedelta(seconds=-1)),
        (timedelta(seconds=60), timedelta(days=2)),
    ],
)
def test_authentication_certificate_out_of_validity_is_401(
    on: TurnOn, begins: timedelta, ends: timedelta
) -> None:
    gateway = on(BY_CERTIFICATE)
    enter(gateway)
    certificate_pem = certificate(ALICE, begins=begins, ends=ends)
    for path in (EVENTS, HEALTH):
        method, body = ("GET", None) if path == HEALTH else ("POST", user_message("x"))
        assert gateway.call(method, path, body, certificate=certificate_pem).status == 401


def test_authentication_certificate_subject_is_canonicalized(on: TurnOn) -> None:
    gateway = on(BY_CERTIFICATE)
    oid = x509.NameOID
    parts = [(oid.EMAIL_ADDRESS, "a@b.example"), (oid.COMMON_NAME, "a, b"), (oid.USER_ID, "7")]
    rdn = x509.RelativeDistinguishedName([x509.NameAttribute(o, text) for o, text in parts])
    country = x509.RelativeDistinguishedName([x509.NameAttribute(oid.COUNTRY_NAME, "SE")])
    certificate_entry = enter(gateway, "UID=7+CN=a\\, b+emailAddress=a@b.example,C=SE")
    assert certificate_entry.subject == "CN=a\\, b+UID=7+emailAddress=a@b.example,C=SE"
    assert append(gateway, certificate=certificate(x509.Name([country, rdn]))).status == 201


SPOOFS = (
    "X-Client-Cert",
    "X-SSL-Client-Cert",
    "X-Forwarded-Client-Cert",
    "X-Amzn-Mtls-Clientcert",
    "X-SSL-Client-S-DN",
    "SSL_CLIENT_S_DN",
    "Client-Cert",
    "clientCertPem",
    "subjectDN",
)


def test_authentication_certificate_in_header_is_ignored(on: TurnOn) -> None:
    gateway = on(BY_CERTIFICATE)
    enter(gateway)
    pem = ssl.DER_cert_to_PEM_cert(certificate(ALICE))
    for name in SPOOFS:
        for value in (pem, pem.replace("\n", "%0A"), ALICE, f'Subject="{ALICE}"'):
            assert append(gateway, headers={name: value}).status == 401, name
        inside = {**user_message("x"), name: pem, "clientCert": {"clientCertPem": pem}}
        assert gateway.call("POST", EVENTS, inside, query={name: pem}).status == 401, name


def test_authentication_certificate_malformed_is_refused(on: TurnOn) -> None:
    enter(on(BY_CERTIFICATE))
    handler = importlib.import_module("functions.ingest.handler").lambda_handler
    context = SimpleNamespace(get_remaining_time_in_millis=lambda: 9000, function_name="ingest")
    event: dict[str, Any] = {"httpMethod": "POST", "resource": EVENTS, "headers": {}}
    good = certificate(ALICE)
    odd = [  # a version there is not, which a trusted authority might sign; 3 is said as 2
        ssl.DER_cert_to_PEM_cert(good.replace(b"\xa0\x03\2\1\2", b"\xa0\x03\2\1" + number, 1))
        for number in (b"\1", b"\5")
    ]
    for text in ("", "x", "-----BEGIN CERTIFICATE-----", "\u00e9", None, 7, *odd):
        event["requestContext"] = {"identity": {"clientCert": {"clientCertPem": text}}}
        assert handler(event, context)["statusCode"] == 401, text
    event["requestContext"]["identity"]["clientCert"]["clientCertPem"] = ssl.DER_cert_to_PEM_cert(
        good
    )
    assert handler(event, context)["statusCode"] == 400, "which is let in, and says nothing"


def test_authentication_revocation_applies_in_one_minute(
    on: TurnOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a key and of a certificate; `here` is the process that revoked it."""
    now = [1000.0]
    monkeypatch.setattr(ttl_cache, "read_uptime", lambda: now[0])
    gateway = on(KEYS, BY_CERTIFICATE)
    operator = gateway.key("ops", rights=["operator"])
    rights = ["read", "write", "operator"]
    key, entry = gateway.new_key(rights=rights), enter(gateway, rights=rights)
    tenants = "/api/v1/admin/tenants"
    revocable: list[tuple[dict[str, Any], str]] = [
        ({"key": key.token}, f"{tenants}/acme/keys/{key.key_id}"),
        ({"certificate": certificate(ALICE)}, f"{CERTIFICATES}/{entry.certificate_id}"),
    ]
    for more, place in revocable:
        assert gateway.call("GET", tenants, **more).status == 200
        assert append(gateway, **more).status == 201
        for _ in range(2):
            reply = gateway.call("DELETE", place, key=operator)
            assert (reply.status, bool(reply.body["revoked_at"])) == (200, True)
        assert gateway.call("GET", tenants, **more).status == 401, "in the process that revoked it"
        now[0] += 49
        assert append(gateway, **more).status == 201, "another process"
        now[0] += 1.1
        assert append(gateway, **more).status == 401
    again = enter(gateway)
    assert again.certificate_id != entry.certificate_id, "a revoked one is free to be entered"


def test_authentication_certificate_entry_can_expire_first(
    on: TurnOn, scratch_db: ScratchDatabase
) -> None:
    gateway = on(BY_CERTIFICATE)
    enter(gateway)
    scratch_db.rows("update certificate_principals set expires_at = now() - interval '1 second'")
    reply = append(gateway, certificate=certificate(ALICE))
    assert (reply.status, "expired" in reply.error["message"]) == (401, True)


def test_authentication_certificate_entries_are_managed(
    on: TurnOn, scratch_db: ScratchDatabase
) -> None:
    gateway = on(KEYS, BY_CERTIFICATE)
    gateway.key("acme")
    gateway.key("globex")
    operator = gateway.key("ops", rights=["operator"])
    body = {"subject": ALICE, "user": "user:alice", "rights": ["read"], "label": "hers"}
    reply = gateway.call("POST", CERTIFICATES, body, key=operator)
    assert reply.status == 201, reply.text
    for path in (CERTIFICATES, CERTIFICATES.replace("acme", "globex")):
        response = gateway.call("POST", path, body, key=operator)
        assert (response.status, response.error["code"]) == (409, "state_conflict")
    for wrong in (
        {"subject": "alice"},
        {"subject": "CN=alice, O=Acme"},
        {"subject": ""},
        {"subject": "CN=" + "x" * 70},
        {"subject": "CN=#0c01ff"},
        {"issuer": "nobody"},
        {"user": "agent:helper"},
        {"rights": ["root"]},
        {"expires_at": "2020-01-01T00:00:00Z"},
    ):
        answer = gateway.call("POST", CERTIFICATES, {**body, **wrong}, key=operator)
        assert (answer.status, next(iter(wrong)) in answer.text) == (422, True), wrong
    for number in range(2):
        more = {"subject": f"CN={number},O=Acme"}
        assert gateway.call("POST", CERTIFICATES, more, key=operator).status == 201
    first = gateway.call("GET", CERTIFICATES, key=operator, query={"limit": 2}).body
    rest = {"limit": 2, "cursor": first["next_cursor"]}
    second = gateway.call("GET", CERTIFICATES, key=operator, query=rest).body
    subjects = [one["subject"] for one in (*first["certificates"], *second["certificates"])]
    assert subjects == ["CN=1,O=Acme", "CN=0,O=Acme", ALICE]
    place = f"{CERTIFICATES}/{reply.body['certificate_id']}"
    assert gateway.call("GET", place, key=operator).body == reply.body
    assert gateway.call("GET", place.replace("acme", "globex"), key=operator).status == 404
    assert gateway.call("DELETE", place.replace("acme", "globex"), key=operator).status == 404
    assert gateway.call("GET", place, key=gateway.key(rights=["admin"])).status == 403
    trail = scratch_db.rows(
        "select target, details from audit_log where tenant_id = 'acme' and route like 'POST%%'"
        " and outcome = 'done' order by at"
    )
    assert trail[0] == (
        {"certificate_id": reply.body["certificate_id"]},
        {"rights": ["read"], "user": "user:alice", "expires_at": None},
    )
    assert "alice,O" not in json.dumps(trail)


def test_authentication_certificate_of_operator_is_audited(
    on: TurnOn, scratch_db: ScratchDatabase
) -> None:
    gateway = on(BY_CERTIFICATE)
    entry = enter(gateway, "CN=ops", "ops", rights=["operator"])
    body = {"tenant_id": "acme"}
    certificate_pem = certificate("CN=ops")
    reply = gateway.call("POST", "/api/v1/admin/tenants", body, certificate=certificate_pem)
    assert reply.status == 201
    row = "select actor_tenant, actor_key_id from audit_log where tenant_id = 'acme'"
    assert scratch_db.rows(row) == [("ops", entry.certificate_id.hex)]
    for path in ("keys", f"keys/{'0' * 32}/rotate"):
        response = gateway.call(
            "POST", f"/api/v1/admin/tenants/acme/{path}", {}, certificate=certificate_pem
        )
        assert response.status == (409 if path == "keys" else 404)
    assert (
        "not enabled in this deployment"
        in gateway.call(
            "POST", "/api/v1/admin/tenants/acme/keys", {}, certificate=certificate_pem
        ).error["message"]
    )


# several credentials -----------------------------------------------------------------------------


def test_authentication_first_credential_decides_alone(on: TurnOn) -> None:
    """One that does not hold is not made good by another, which may allow more."""
    gateway = on(KEYS, JWT, BY_CERTIFICATE)
    key, certificate_pem = gateway.key(rights=["read"]), certificate(ALICE)
    enter(gateway)
    assert append(gateway, headers=bearer(exp=1), certificate=certificate_pem).status == 401
    assert (
        append(gateway, key="made up", headers=bearer(), certificate=certificate_pem).status == 401
    )
    assert append(gateway, key=key, headers=bearer()).status == 403, "the key only reads"
    assert append(gateway, headers=bearer(scope="read"), certificate=certificate_pem).status == 403
    assert (
        append(gateway, headers={"Authorization": "Basic x"}, certificate=certificate_pem).status
        == 201
    )


def test_authentication_require_all_narrows_by_each(on: TurnOn) -> None:
    gateway = on(KEYS, JWT, BY_CERTIFICATE, AUTH_REQUIRE_ALL="true")
    enter(gateway, rights=["admin"])
    admin, key = gateway.key(rights=["admin"]), gateway.key(rights=["read", "write"])
    bobs = gateway.key(user="user:bob")
    others = gateway.key("globex")

    def ask(key: str, **claims: object) -> Reply:
        return append(gateway, key=key, headers=bearer(**claims), certificate=certificate(ALICE))

    assert ask(key).status == 201
    assert ask(admin).status == 201
    assert ask(admin, scope="admin").status == 201
    assert ask(key, scope="read").status == 403
    assert ask(admin, scope="read").status == 403, "an admin's part in what others give is theirs"
    for reply, words in (
        (ask(others), "different tenants"),
        (ask(bobs), "different users"),
    ):
        assert reply.status == 403
        assert words in reply.error["message"]
    both: dict[str, Any] = {"key": key, "certificate": certificate(ALICE)}
    beyond = gateway.call("POST", EVENTS, user_message("x", "user:bob"), headers=bearer(), **both)
    assert beyond.status == 403, "the user of one binds all"
    one_header = {"Authorization": f"Bearer {key}", "X-JWT-Token": token()}
    assert append(gateway, headers=one_header, certificate=certificate(ALICE)).status == 201


def _first_of_all(one: Principal, other: Principal) -> Principal:
    del other
    return one


def test_authentication_require_all_fault_is_noticed(
    on: TurnOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "_intersect_principals", _first_of_all)
    with pytest.raises(AssertionError):
        test_authentication_require_all_narrows_by_each(on)


def test_authentication_certificate_validity_fault_is_noticed(
    on: TurnOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    from strandline.auth import authenticator, x509_names

    monkeypatch.setattr(
        authenticator.CertificateAuth,
        "verify_offline",
        lambda _, pem: x509_names.parse_certificate_names(pem),  # pyright: ignore
    )
    with pytest.raises(AssertionError):
        test_authentication_certificate_out_of_validity_is_401(
            on, timedelta(days=-2), timedelta(seconds=-1)
        )


# one warm process --------------------------------------------------------------------------------


def interleave(
    gateway: Gateway, base: ScratchDatabase, turns: int, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Two tenants of three users each by turns on warm handlers, every seventh append failing
    half-way: what one met of the other."""
    ingest = importlib.import_module("functions.ingest.handler")
    name = f"POST {EVENTS}"
    real: Route = ingest.ROUTES[name]
    fails = [False]

    def serve(request: Request) -> Any:
        result = real.handler(request)
        if fails[0]:
            raise RuntimeError("half-way: after the principal, before the answer")
        return result

    monkeypatch.setitem(ingest.ROUTES, name, replace(real, handler=serve))
    matches: list[str] = []
    for turn in range(turns):
        tenant, other = ("acme", "globex")[:: 1 if turn % 2 else -1]
        user, fails[0] = f"u{turn // 2 % 3}", turn % 7 == 0
        headers = bearer(tenant_id=tenant, user_id=user)
        body = user_message(f"of {tenant}, {user}.", f"user:{user}")
        reply = gateway.call("POST", EVENTS, body, headers=headers)
        matches += [reply.text] if reply.status != (500 if fails[0] else 201) else []
        text = gateway.call("GET", "/memories/list", query={"limit": 3}, headers=headers).text
        matches += [text] if f"of {other}" in text or f"of {tenant}, {user}." not in text else []
    stray = "select content from events where content <> 'of ' || tenant_id || ', ' || "
    return matches + [str(row) for row in base.rows(f"{stray} substr(participants[1], 6) || '.'")]


def _two_tenants(on: TurnOn) -> Gateway:
    gateway = on(KEYS, JWT, TENANT_REQUESTS_PER_MINUTE="1000000000")
    for tenant in ("acme", "globex"):
        gateway.key(tenant)
    return gateway


def test_authentication_leaves_nothing_for_next_request(
    on: TurnOn,
    scratch_db: ScratchDatabase,
    monkeypatch: pytest.MonkeyPatch,
    proof_size: Callable[[int], int],
) -> None:
    assert interleave(_two_tenants(on), scratch_db, proof_size(2000), monkeypatch) == []


def test_authentication_leak_to_next_request_is_noticed(
    on: TurnOn, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: who asked first is believed to ask for ever."""
    remaining: list[Principal] = []
    real = authenticator.Authenticator.authenticate

    def principal(
        checker: authenticator.Authenticator, request: Any, deadline: Any = None
    ) -> Principal:
        remaining.append(real(checker, request, deadline))
        return remaining[0]

    monkeypatch.setattr(authenticator.Authenticator, "authenticate", principal)
    assert interleave(_two_tenants(on), scratch_db, 10, monkeypatch) != []
