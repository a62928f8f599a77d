"""Tenants and keys, called as API Gateway calls them: what an operator may, and nobody else."""

import importlib
import itertools
import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from strandline.admin import routes as admin_routes
from strandline.admin import routes_usage
from strandline.admin.schemas import KeyRight, LimitsIn
from strandline.auth.principals import RIGHTS, Principal
from strandline.context import routes as context_routes
from strandline.db.database import Caller
from strandline.http.request import Request
from strandline.local.lambda_context import LambdaContext
from strandline.log import routes_read as log_routes_read
from strandline.log import routes_write as log_routes_write
from strandline.recall import routes as recall_routes
from strandline.resources import Resources
from strandline.sessions import routes_read as sessions_routes_read
from strandline.sessions import routes_write as sessions_routes_write
from strandline.status import routes as status_routes
from tests.support import EVENTS, Gateway, Reply, ScratchDatabase, user_message

TENANTS = "/api/v1/admin/tenants"
ACME = f"{TENANTS}/acme"
EVENT = "/api/v1/events"


@pytest.fixture
def operator(gateway: Gateway) -> str:
    """An operator's key; acme and globex are there, with a key of no rights worth having."""
    gateway.key("acme", rights=["read"])
    gateway.key("globex", rights=["read"])
    return gateway.key("ops", rights=["operator"])


def make(gateway: Gateway, operator: str, tenant: str = "acme", **changes: object) -> Any:
    """A new key, as its one answer shows it."""
    reply = gateway.call("POST", f"{TENANTS}/{tenant}/keys", changes, key=operator)
    assert reply.status == 201, reply.text
    return reply.body


def appends(gateway: Gateway, token: str) -> int:
    """What becomes of an append with this credential."""
    return gateway.call("POST", EVENT, user_message("x"), key=token).status


def restart(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process of this function: it remembers no key."""
    module = importlib.import_module(f"functions.{function}.handler")
    before: Resources = vars(module)["resources"]
    fresh = Resources()
    vars(fresh)["database"] = before.database
    monkeypatch.setattr(module, "resources", fresh)


def test_admin_serves_recorded_gateway_request(gateway: Gateway, operator: str) -> None:
    event = json.loads((EVENTS / "admin.json").read_text())
    event["headers"]["X-Api-Key"] = operator
    handler = importlib.import_module("functions.admin.handler").lambda_handler
    answer = handler(event, LambdaContext("admin", 29))
    assert answer["statusCode"] == 200
    assert [key["rights"] for key in json.loads(answer["body"])["keys"]] == [["read"]]


# tenants -----------------------------------------------------------------------------------------


def test_admin_tenant_is_created_once_shown_and_limited(gateway: Gateway, operator: str) -> None:
    body = {"tenant_id": "initech", "appends_per_minute": 7}
    reply = gateway.call("POST", TENANTS, body, key=operator)
    none = dict.fromkeys(LimitsIn.model_fields) | {"appends_per_minute": 7}
    assert (reply.status, reply.body["tenant_id"], reply.body["limits"]) == (201, "initech", none)
    again = gateway.call("POST", TENANTS, {**body, "appends_per_minute": 9}, key=operator)
    assert (again.status, again.error["details"]) == (409, {"field": "tenant_id"})
    place = f"{TENANTS}/initech"
    response = gateway.call("GET", place, key=operator)
    assert (response.status, response.body["limits"]) == (200, none)
    assert {use["name"]: use["limit"] for use in response.body["usage"]["quotas"]}["appends"] == 7
    for change, limits in (
        ({"requests_per_minute": 0}, none | {"requests_per_minute": 0}),
        ({"stored_bytes": 5}, none | {"requests_per_minute": 0, "stored_bytes": 5}),
        (
            {"requests_per_minute": None, "appends_per_minute": None},
            none | {"appends_per_minute": None, "stored_bytes": 5},
        ),
        ({}, none | {"appends_per_minute": None, "stored_bytes": 5}),
    ):
        answer = gateway.call("PATCH", place, change, key=operator)
        assert (answer.status, answer.body["limits"]) == (200, limits)
        assert gateway.call("GET", place, key=operator).body["limits"] == limits


def test_admin_tenant_limits_survive_concurrent_changes(gateway: Gateway, operator: str) -> None:
    names = list(LimitsIn.model_fields)

    def change(value: int) -> None:
        body = {names[value - 30]: value}
        assert gateway.call("PATCH", ACME, body, key=operator).status == 200

    for _ in range(5):
        gateway.call("PATCH", ACME, dict.fromkeys(names, 0), key=operator)
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(change, range(30, 30 + len(names))))
        assert gateway.call("GET", ACME, key=operator).body["limits"] == dict(
            zip(names, itertools.count(30), strict=False)
        )


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "tenant_id"),
        ({"tenant_id": "Acme"}, "tenant_id"),
        ({"tenant_id": "a" * 64}, "tenant_id"),
        ({"tenant_id": "a\n"}, "tenant_id"),
        ({"tenant_id": "new", "appends_per_minute": -1}, "appends_per_minute"),
        ({"tenant_id": "new", "appends_per_minute": 10**9 + 1}, "appends_per_minute"),
        ({"tenant_id": "new", "stored_bytes": 2**63}, "stored_bytes"),
        ({"tenant_id": "new", "requests_per_minute": "5"}, "requests_per_minute"),
        ({"tenant_id": "new", "budget": 5}, "budget"),
    ],
    ids=str,
)
def test_admin_tenant_create_refuses_invalid_body(
    gateway: Gateway,
    operator: str,
    scratch_db: ScratchDatabase,
    body: dict[str, object],
    field: str,
) -> None:
    reply = gateway.call("POST", TENANTS, body, key=operator)
    assert (reply.status, reply.error["details"]["field"]) == (422, field)
    assert scratch_db.rows("select count(*) from tenants") == [(3,)]


def test_admin_tenant_list_pages_each_once(gateway: Gateway, operator: str) -> None:
    for name in ("b", "a-1", "a0", "zz", "9"):
        assert gateway.call("POST", TENANTS, {"tenant_id": name}, key=operator).status == 201
    ids: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = gateway.call("GET", TENANTS, key=operator, query={"limit": 3} | cursor)
        assert page.status == 200
        ids += [tenant["tenant_id"] for tenant in page.body["tenants"]]
        if page.body["next_cursor"] is None:
            break
        cursor = {"cursor": page.body["next_cursor"]}
        gateway.call("POST", TENANTS, {"tenant_id": f"0{len(ids)}"}, key=operator)
    assert sorted(ids) == sorted({"acme", "globex", "ops", "b", "a-1", "a0", "zz", "9"})
    page = gateway.call("GET", f"{TENANTS}/b/audit", key=operator, query={"limit": 1})
    foreign = gateway.call(
        "GET", TENANTS, key=gateway.key("acme", rights=["operator"]), query={"limit": 1}
    )
    texts = [page.body["next_cursor"], foreign.body["next_cursor"], f"{cursor['cursor'][:-2]}AA"]
    assert all(texts)
    for wrong, status in (
        *((text, 400) for text in (*texts, "acme", "A", "x' or true --", "")),
        ("a\x00", 422),
    ):
        reply = gateway.call("GET", TENANTS, key=operator, query={"cursor": wrong})
        assert reply.status == status, wrong


# keys --------------------------------------------------------------------------------------------


def test_admin_key_is_created_as_requested_and_works(gateway: Gateway, operator: str) -> None:
    until = datetime.now(UTC) + timedelta(days=3)
    key_body = make(
        gateway,
        operator,
        user=" user:Zoe\u0308",
        rights=["write", "read", "write"],
        label="phone",
        expires_at=until.isoformat(),
    )
    public = {name: value for name, value in key_body.items() if name != "token"}
    assert (key_body["user"], key_body["rights"], key_body["label"]) == (
        "user:Zo\u00eb",
        ["read", "write"],
        "phone",
    )
    assert datetime.fromisoformat(key_body["expires_at"]) == until
    place = f"{ACME}/keys/{key_body['key_id']}"
    assert gateway.call("GET", place, key=operator).body == public
    assert gateway.call("GET", f"{ACME}/keys", key=operator).body["keys"][0] == public
    mine = gateway.call(
        "POST", EVENT, user_message("hello", key_body["user"]), key=key_body["token"]
    )
    assert mine.status == 201
    assert (
        gateway.call("POST", EVENT, user_message("hello", "user:bob"), key=key_body["token"]).status
        == 403
    )
    assert make(gateway, operator)["rights"] == ["read", "write"]


def test_admin_key_rights_in_api_match_known_rights() -> None:
    assert KeyRight.__value__.__args__ == RIGHTS


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"rights": []}, "rights"),
        ({"rights": ["root"]}, "rights.0"),
        ({"rights": "read"}, "rights"),
        ({"user": "alice"}, "user"),
        ({"user": ""}, "user"),
        ({"user": "agent:helper"}, "user"),
        ({"user": "user:a\x00b"}, "user"),
        ({"label": "x" * 201}, "label"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "9999-12-31T23:59:59Z"}, "expires_at"),
        ({"expires_at": "tomorrow"}, "expires_at"),
        ({"token": "mine"}, "token"),
        ({"tenant_id": "globex"}, "tenant_id"),
    ],
    ids=str,
)
def test_admin_key_create_refuses_invalid_body(
    gateway: Gateway,
    operator: str,
    scratch_db: ScratchDatabase,
    body: dict[str, object],
    field: str,
) -> None:
    reply = gateway.call("POST", f"{ACME}/keys", body, key=operator)
    assert (reply.status, reply.error["details"]["field"]) == (422, field)
    assert scratch_db.rows("select count(*) from api_keys") == [(3,)]


def test_admin_key_create_refuses_unknown_tenant(
    gateway: Gateway, operator: str, scratch_db: ScratchDatabase
) -> None:
    for name in ("initech", "ACME", "a%00b", "a" * 64, "%E9", "acme%20"):
        reply = gateway.call("POST", f"{TENANTS}/{name}/keys", {}, key=operator)
        assert reply.status == 404, name
    assert scratch_db.rows("select count(*) from tenants") == [(3,)]


@pytest.mark.parametrize(
    ("method", "tail"),
    [
        ("GET", ""),
        ("POST", "/keys"),
        ("GET", "/keys"),
        ("POST", "/certificates"),
        ("GET", "/certificates"),
    ],
)
def test_admin_unknown_tenant_is_told_way_out(
    gateway: Gateway, operator: str, method: str, tail: str
) -> None:
    body = {"subject": "CN=x"} if tail == "/certificates" else {}
    for name, what in (("nope", "no tenant 'nope'"), ("NOPE", "no tenant of this name")):
        reply = gateway.call(
            method, f"{TENANTS}/{name}{tail}", body if method == "POST" else None, key=operator
        )
        assert (reply.status, reply.error["details"]) == (404, {"field": "tenant"})
        assert reply.error["message"] == (
            f"There is {what}: create it first (POST /api/v1/admin/tenants, strandline "
            "tenants create NAME), or check the name (strandline tenants list)."
        )


def test_admin_key_list_pages_each_once(gateway: Gateway, operator: str) -> None:
    key_ids = {make(gateway, operator)["key_id"] for _ in range(7)}
    ids: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = gateway.call("GET", f"{ACME}/keys", key=operator, query={"limit": 2} | cursor)
        ids += [key["key_id"] for key in page.body["keys"]]
        if page.body["next_cursor"] is None:
            break
        cursor = {"cursor": page.body["next_cursor"]}
        make(gateway, operator)
    assert len(ids) == len(set(ids)) == 8
    assert key_ids < set(ids)
    wrong = gateway.call("GET", f"{ACME}/keys", key=operator, query={"cursor": "AAAA"})
    assert wrong.status == 400


def test_admin_key_of_other_tenant_equals_unknown_key(
    gateway: Gateway, operator: str, scratch_db: ScratchDatabase
) -> None:
    theirs = make(gateway, operator, "globex")
    before = scratch_db.rows("select k::text from api_keys k order by 1")

    def audit_entry(tenant: str, key_id: str, verb: str, tail: str, body: object) -> Any:
        place = f"{TENANTS}/{tenant}/keys/{key_id}{tail}"
        reply = gateway.call(verb, place, body, key=operator)
        assert reply.status == 404, place
        return {**reply.error, "request_id": ""}

    requests: list[tuple[str, str, object]] = [
        ("GET", "", None),
        ("POST", "/rotate", {}),
        ("DELETE", "", None),
    ]
    for verb, tail, body in requests:
        never = audit_entry("acme", uuid.uuid4().hex, verb, tail, body)
        for key_id in (theirs["key_id"], "not-an-id", "%00"):
            assert audit_entry("acme", key_id, verb, tail, body) == never
        for tenant in ("nobody", "GLOBEX"):
            missing = audit_entry(tenant, theirs["key_id"], verb, tail, body)
            assert missing == audit_entry(tenant, uuid.uuid4().hex, verb, tail, body)
    assert scratch_db.rows("select k::text from api_keys k order by 1") == before
    assert appends(gateway, theirs["token"]) == 201


# rotation and revocation -------------------------------------------------------------------------


def rotate(gateway: Gateway, operator: str, key_id: str, **changes: object) -> Reply:
    return gateway.call("POST", f"{ACME}/keys/{key_id}/rotate", changes, key=operator)


def test_admin_key_rotation_keeps_both_during_overlap(
    gateway: Gateway, operator: str, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make(gateway, operator, user="user:alice", rights=["write"], label="phone")
    reply = rotate(gateway, operator, old["key_id"], overlap_seconds=3600)
    assert reply.status == 201
    key, ending = reply.body["key"], reply.body["old"]
    for field in ("user", "rights", "label", "expires_at"):
        assert key[field] == old[field]
    assert key["token"] != old["token"]
    assert (ending["key_id"], ending["rotated_to"]) == (old["key_id"], key["key_id"])
    remaining_time = datetime.fromisoformat(ending["expires_at"]) - datetime.now(UTC)
    assert timedelta(seconds=3500) < remaining_time <= timedelta(seconds=3600)
    assert appends(gateway, old["token"]) == appends(gateway, key["token"]) == 201
    scratch_db.rows("update api_keys set expires_at = now() where key_id = %s", old["key_id"])
    restart("ingest", monkeypatch)
    assert (appends(gateway, old["token"]), appends(gateway, key["token"])) == (401, 201)


def test_admin_key_rotation_without_overlap_ends_old_key(
    gateway: Gateway, operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make(gateway, operator)
    key = rotate(gateway, operator, old["key_id"], overlap_seconds=0).body["key"]
    restart("ingest", monkeypatch)
    assert (appends(gateway, old["token"]), appends(gateway, key["token"])) == (401, 201)


def test_admin_key_rotation_keeps_expiry_and_lifetime(gateway: Gateway, operator: str) -> None:
    until = datetime.now(UTC) + timedelta(hours=1)
    old = make(gateway, operator, expires_at=until.isoformat())
    reply = rotate(gateway, operator, old["key_id"], overlap_seconds=30 * 86400)
    assert datetime.fromisoformat(reply.body["old"]["expires_at"]) == until
    lives = datetime.fromisoformat(reply.body["key"]["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=59) < lives <= timedelta(minutes=60)
    later = (until + timedelta(days=5)).isoformat()
    response = rotate(gateway, operator, reply.body["key"]["key_id"], expires_at=later)
    assert datetime.fromisoformat(response.body["key"]["expires_at"]) == until + timedelta(days=5)


def test_admin_key_rotation_refuses_ended_or_replaced_key(
    gateway: Gateway, operator: str, scratch_db: ScratchDatabase
) -> None:
    old = make(gateway, operator)
    successor = rotate(gateway, operator, old["key_id"]).body["key"]
    again = rotate(gateway, operator, old["key_id"])
    assert (again.status, again.error["details"]["rotated_to"]) == (409, successor["key_id"])
    revoked, expired = make(gateway, operator), make(gateway, operator)
    gateway.call("DELETE", f"{ACME}/keys/{revoked['key_id']}", key=operator)
    scratch_db.rows("update api_keys set expires_at = now() where key_id = %s", expired["key_id"])
    for key_id in (revoked, expired):
        reply = rotate(gateway, operator, key_id["key_id"])
        assert (reply.status, reply.error["code"]) == (409, "state_conflict")
    assert len(gateway.call("GET", f"{ACME}/keys", key=operator).body["keys"]) == 5


def test_admin_key_rotation_race_makes_one_successor(gateway: Gateway, operator: str) -> None:
    for _ in range(5):
        old = make(gateway, operator)["key_id"]
        with ThreadPoolExecutor(6) as pool:
            replies = list(pool.map(partial(rotate, gateway, operator), [old] * 6))
        assert sorted(reply.status for reply in replies) == [201] + [409] * 5
        (key,) = [reply.body["key"] for reply in replies if reply.status == 201]
        rotated_tos = {r.error["details"]["rotated_to"] for r in replies if r.status == 409}
        assert rotated_tos == {key["key_id"]}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"overlap_seconds": -1}, "overlap_seconds"),
        ({"overlap_seconds": 30 * 86400 + 1}, "overlap_seconds"),
        ({"overlap_seconds": "60"}, "overlap_seconds"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"rights": ["admin"]}, "rights"),
        ({"user": "user:bob"}, "user"),
    ],
    ids=str,
)
def test_admin_key_rotation_keeps_user_and_rights(
    gateway: Gateway, operator: str, body: dict[str, object], field: str
) -> None:
    key_id = make(gateway, operator)["key_id"]
    reply = rotate(gateway, operator, key_id, **body)
    assert (reply.status, reply.error["details"]["field"]) == (422, field)


def test_admin_key_stays_revoked(
    gateway: Gateway, operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_body = make(gateway, operator)
    place = f"{ACME}/keys/{key_body['key_id']}"
    assert appends(gateway, key_body["token"]) == 201
    first = gateway.call("DELETE", place, key=operator)
    assert first.status == 200
    assert first.body["revoked_at"] is not None
    assert gateway.call("DELETE", place, key=operator).body == first.body
    assert gateway.call("GET", place, key=operator).body == first.body
    restart("ingest", monkeypatch)
    assert appends(gateway, key_body["token"]) == 401


@pytest.mark.parametrize("how", ["revoke", "rotate"])
def test_admin_key_end_takes_effect_at_once_in_process(
    gateway: Gateway, operator: str, how: str
) -> None:
    second = make(gateway, operator, rights=["operator"])
    assert gateway.call("GET", TENANTS, key=second["token"]).status == 200
    if how == "revoke":
        gateway.call("DELETE", f"{ACME}/keys/{second['key_id']}", key=operator)
    else:
        rotate(gateway, operator, second["key_id"], overlap_seconds=0)
    assert gateway.call("GET", TENANTS, key=second["token"]).status == 401


# who may -----------------------------------------------------------------------------------------


def places(routes: Any) -> list[tuple[str, str]]:
    """Every route, its path filled in."""
    copies = (
        name.replace("{tenant}", "acme").replace("{key_id}", uuid.uuid4().hex) for name in routes
    )
    return [(method, path) for method, _, path in (name.partition(" ") for name in copies)]


@pytest.mark.parametrize("rights", [["read", "write"], ["admin"], ["read", "write", "admin"]])
@pytest.mark.parametrize("user", [None, "user:alice"])
def test_admin_routes_refuse_every_right_but_operator(
    gateway: Gateway,
    operator: str,
    scratch_db: ScratchDatabase,
    rights: list[str],
    user: str | None,
) -> None:
    """Of this tenant or another, bound or not; and before anything of the body is looked at."""
    before = scratch_db.rows("select k::text from api_keys k") + scratch_db.rows(
        "select * from tenants"
    )
    for tenant in ("acme", "globex"):
        token = gateway.key(tenant, user, rights=rights)
        before += scratch_db.rows(
            "select k::text from api_keys k order by xid::text::int desc limit 1"
        )
        for method, path in places(admin_routes.ROUTES):
            reply = gateway.call(method, path, key=token, raw=b"{not json")
            assert (reply.status, reply.error["code"]) == (403, "forbidden"), path
            assert reply.error["details"] == {"right": "operator"}
            assert gateway.call(method, path, raw=b"{not json").status == 401
    after = scratch_db.rows("select k::text from api_keys k") + scratch_db.rows(
        "select * from tenants"
    )
    assert sorted(after, key=str) == sorted(before, key=str)


def test_admin_operator_reads_and_writes_no_memory(gateway: Gateway, operator: str) -> None:
    for routes in (
        log_routes_write.ROUTES,
        (
            log_routes_read.ROUTES
            | recall_routes.ROUTES
            | routes_usage.ROUTES
            | status_routes.ROUTES
        ),
        sessions_routes_write.ROUTES,
        sessions_routes_read.ROUTES,
        context_routes.ROUTES,
    ):
        mine = {name for name, route in routes.items() if route.right in ("read", "write")}
        assert mine
        for method, path in places(mine):
            copy = path.replace("{", "").replace("}", "")
            assert gateway.call(method, copy, {}, key=operator).status == 403, path


def test_admin_operator_transaction_sees_no_memory(gateway: Gateway, operator: str) -> None:
    """Whatever a route of an operator's may once ask for: who it asks for was never there."""
    del operator
    assert (
        gateway.call("POST", EVENT, user_message("secret"), key=gateway.key("acme")).status == 201
    )
    service = vars(importlib.import_module("functions.admin.handler"))["resources"]
    request = Request(service, {}, time.monotonic() + 25)
    vars(request)["_principal"] = Principal("ops", None, frozenset({"operator"}))
    for viewer, access in (
        (0, request.connect_operator("acme")),
        (1, service.database.connect_as(Caller.background("acme"))),
    ):
        with access.transaction():
            assert access.execute("select from events", {}) == viewer
            assert access.execute("select from event_search", {}) == viewer
            assert access.execute("select from scopes", {}) == viewer
            assert access.execute("select from api_keys", {}) == 2


def test_admin_operator_calls_do_not_count_against_quota(
    gateway: Gateway, operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = {"requests_per_minute": 0}
    for tenant in ("ops", "acme"):
        assert gateway.call("PATCH", f"{TENANTS}/{tenant}", nothing, key=operator).status == 200
    for _ in range(3):
        assert gateway.call("GET", f"{ACME}/keys", key=operator).status == 200
    restart("ingest", monkeypatch)
    assert appends(gateway, gateway.key("acme")) == 429
