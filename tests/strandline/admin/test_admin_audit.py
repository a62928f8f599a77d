"""The audit trail: every call of an admin's or an operator's leaves one row, for good."""

import io
import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

import psycopg
import pytest
from psycopg import errors

from strandline.admin import routes as admin_routes
from strandline.admin.routes import ROUTES
from strandline.errors import OutcomeUnknown
from strandline.http import app as http_app
from strandline.observability import logger
from strandline.tenants import store_audit
from tests.support import Gateway, Reply, ScratchDatabase, Tell

TENANTS = "/api/v1/admin/tenants"
ACME = f"{TENANTS}/acme"
KEYS = f"{TENANTS}/{{tenant}}/keys"


@pytest.fixture
def operator(gateway: Gateway) -> str:
    """An operator's key; acme and globex are there."""
    gateway.key("acme", rights=["read"])
    gateway.key("globex", rights=["read"])
    return gateway.key("ops", rights=["operator"])


@pytest.fixture
def app(scratch_db: ScratchDatabase) -> Iterator[psycopg.Connection[Any]]:
    """The application role, in acme."""
    with psycopg.connect(scratch_db.url, autocommit=True, prepare_threshold=None) as connection:
        connection.execute("select set_config('strandline.tenant', 'acme', false)")
        yield connection


def trail(base: ScratchDatabase) -> list[tuple[str, str, str, Any, str]]:
    """(tenant, actor's tenant, route, target, outcome) of each call, oldest first."""
    return base.rows(
        "select tenant_id, actor_tenant, route, target, outcome from audit_log"
        " where actor_tenant is not null order by at, audit_id"
    )


def test_audit_records_one_row_per_operator_route(
    gateway: Gateway, operator: str, scratch_db: ScratchDatabase
) -> None:
    ask = partial(gateway.call, key=operator)
    key_id = ask("POST", f"{ACME}/keys", {}).body["key_id"]
    place = f"{ACME}/keys/{key_id}"
    certificate_id = ask("POST", f"{ACME}/certificates", {"subject": "CN=old"}).body[
        "certificate_id"
    ]
    scratch_db.rows("delete from audit_log")
    certificate = f"{ACME}/certificates/{certificate_id}"
    calls: list[tuple[str, str, object, str]] = [
        ("POST", TENANTS, {"tenant_id": "initech"}, "initech"),
        ("GET", TENANTS, None, "ops"),
        ("GET", ACME, None, "acme"),
        ("PATCH", ACME, {"appends_per_minute": 5}, "acme"),
        ("POST", f"{ACME}/keys", {"label": "said in confidence"}, "acme"),
        ("GET", f"{ACME}/keys", None, "acme"),
        ("GET", place, None, "acme"),
        ("POST", f"{place}/rotate", {}, "acme"),
        ("DELETE", place, None, "acme"),
        ("GET", f"{ACME}/audit", None, "acme"),
        ("POST", f"{ACME}/certificates", {"subject": "CN=new"}, "acme"),
        ("GET", f"{ACME}/certificates", None, "acme"),
        ("GET", certificate, None, "acme"),
        ("DELETE", certificate, None, "acme"),
    ]
    replies = [ask(method, path, body) for method, path, body, _ in calls]
    assert {reply.status for reply in replies} == {200, 201}
    rows = trail(scratch_db)
    assert [row[0] for row in rows] == [tenant for *_, tenant in calls]
    assert {row[1] for row in rows} == {"ops"}
    assert {row[2] for row in rows} == set(ROUTES)
    assert {row[4] for row in rows} == {"done"}
    result, rotated = replies[4].body["key_id"], replies[7].body["key"]["key_id"]
    assert [row[3] for row in rows if row[2].startswith("POST")] == [
        {},
        {"key_id": result},
        {"key_id": key_id, "rotated_to": rotated},
        {"certificate_id": replies[10].body["certificate_id"]},
    ]
    assert rows[6][3] == {"tenant": "acme", "key_id": key_id}
    assert "confidence" not in str(scratch_db.rows("select a::text from audit_log a"))


def test_audit_row_names_actor_and_request(
    gateway: Gateway, operator: str, scratch_db: ScratchDatabase
) -> None:
    own = gateway.new_key("ops", "user:olga", rights=["operator"])
    reply = gateway.call("GET", f"{TENANTS}/nobody", key=own.token)
    (row,) = scratch_db.rows(
        "select actor_tenant, actor_key_id, actor_user, request_id, outcome, target from audit_log"
        " where actor_tenant is not null"
    )
    fields = {"tenant": "nobody"}
    entry = ("ops", own.key_id, "user:olga", reply.error["request_id"], "not_found", fields)
    assert row == entry
    del operator


def test_audit_row_of_refused_call_is_in_callers_tenant(
    gateway: Gateway, operator: str, scratch_db: ScratchDatabase
) -> None:
    """A stranger fills nobody else's trail; what stands where an id belongs is not kept."""
    key_id = uuid.uuid4().hex
    for tenant in ("globex", "nobody", operator, "a%00b", "%F0%9F%8C%8A"):
        gateway.call("GET", f"{TENANTS}/{tenant}/keys", key=operator)
    gateway.call("GET", f"{ACME}/keys/{operator}", key=operator)
    gateway.call("DELETE", f"{ACME}/keys/{key_id}", key=operator)
    gateway.call("POST", TENANTS, {"tenant_id": "acme"}, key=operator)
    gateway.call("POST", f"{ACME}/keys", {"rights": ["root"]}, key=operator)
    gateway.call("POST", f"{ACME}/keys", raw=b"{", key=operator)
    stranger = gateway.key("globex", "user:bob")
    gateway.call("POST", f"{ACME}/keys", {"rights": ["admin"]}, key=stranger)
    rows = trail(scratch_db)
    assert [(row[0], row[3], row[4]) for row in rows] == [
        ("globex", {"tenant": "globex"}, "done"),
        ("ops", {"tenant": "nobody"}, "not_found"),
        ("ops", {}, "not_found"),
        ("ops", {}, "not_found"),
        ("ops", {}, "not_found"),
        ("ops", {"tenant": "acme"}, "not_found"),
        ("ops", {"tenant": "acme", "key_id": key_id}, "not_found"),
        ("ops", {"tenant": "acme"}, "state_conflict"),
        ("ops", {"tenant": "acme"}, "invalid_field"),
        ("ops", {"tenant": "acme"}, "malformed_request"),
        ("globex", {"tenant": "acme"}, "forbidden"),
    ]


def test_audit_rows_of_forbidden_caller_stay_within_quota(
    gateway: Gateway, operator: str, scratch_db: ScratchDatabase
) -> None:
    stranger = gateway.key("globex", rights=["read"])
    limits = {"requests_per_minute": 60}
    gateway.call("PATCH", f"{TENANTS}/globex", limits, key=operator)
    statuses = {gateway.call("GET", TENANTS, key=stranger).status for _ in range(40)}
    assert statuses == {403}, "whatever becomes of the row"
    entries = [row for row in trail(scratch_db) if row[4] != "done"]
    assert {row[4] for row in entries} == {"forbidden"}
    assert 0 < len(entries) < 20


# what was done ----------------------------------------------------------------------------------


def details(base: ScratchDatabase, route: str) -> list[Any]:
    """What the trail says was made or changed by the calls of a route, oldest first."""
    order = "select details from audit_log where route = %s order by at, audit_id"
    return [row[0] for row in base.rows(order, route)]


def test_audit_row_of_key_shows_its_rights(
    gateway: Gateway, operator: str, scratch_db: ScratchDatabase
) -> None:
    until = (datetime.now(UTC) + timedelta(days=3)).replace(microsecond=0)
    ask = partial(gateway.call, key=operator)
    ask("POST", f"{ACME}/keys", {})
    strong = {"rights": ["operator", "admin"], "label": "said in confidence"}
    ask("POST", f"{ACME}/keys", strong)
    own = {"user": "user:alice", "rights": ["read"], "expires_at": until.isoformat()}
    key_id = ask("POST", f"{ACME}/keys", own).body["key_id"]
    missing = {"overlap_seconds": 0, "expires_at": (until + timedelta(days=1)).isoformat()}
    body = ask("POST", f"{ACME}/keys/{key_id}/rotate", missing).body
    bound = {"rights": ["read"], "user": "user:alice", "expires_at": until.isoformat()}
    assert details(scratch_db, f"POST {KEYS}") == [
        {"rights": ["read", "write"], "user": None, "expires_at": None},
        {"rights": ["admin", "operator"], "user": None, "expires_at": None},
        bound,
    ]
    (row,) = details(scratch_db, f"POST {KEYS}/{{key_id}}/rotate")
    moment = datetime.fromisoformat(body["old"]["expires_at"])
    assert datetime.fromisoformat(row.pop("old_expires_at")) == moment
    assert row == bound | {"expires_at": missing["expires_at"]}
    assert details(scratch_db, "console key")[0] == {
        "rights": ["read"],
        "user": None,
        "expires_at": None,
    }
    page = ask("GET", f"{ACME}/audit").body["entries"]
    assert [entry["details"] for entry in page][1] == bound
    assert "confidence" not in str(scratch_db.rows("select a::text from audit_log a"))


def test_audit_row_of_limits_shows_before_and_after(
    gateway: Gateway, operator: str, scratch_db: ScratchDatabase
) -> None:
    place = "/api/v1/admin/tenants"
    gateway.call("POST", TENANTS, {"tenant_id": "initech", "stored_bytes": 9}, key=operator)
    gateway.call("POST", TENANTS, {"tenant_id": "initrode"}, key=operator)
    for limits in ({"stored_bytes": 7, "appends_per_minute": 0}, {"appends_per_minute": None}, {}):
        assert gateway.call("PATCH", f"{TENANTS}/initech", limits, key=operator).status == 200
    assert details(scratch_db, f"POST {place}") == [{"stored_bytes": {"from": None, "to": 9}}, {}]
    assert details(scratch_db, f"PATCH {place}/{{tenant}}") == [
        {"stored_bytes": {"from": 9, "to": 7}, "appends_per_minute": {"from": None, "to": 0}},
        {"appends_per_minute": {"from": 0, "to": None}},
        {},
    ]


# memory ------------------------------------------------------------------------------------------


def reads(receipt: Any) -> list[tuple[str, str, object]]:
    """A call of each route that reads memory."""
    return [
        ("GET", f"/api/v1/events/{receipt['event_id']}", None),
        ("POST", "/api/v1/events/query", {}),
        ("GET", "/api/v1/scopes", None),
        ("GET", f"/api/v1/scopes/{receipt['scope_id']}", None),
        ("GET", f"/api/v1/scopes/{receipt['scope_id']}/events", None),
        ("POST", "/api/v1/recall", {"query": "harbour"}),
        ("POST", "/api/v1/context", {"query": "harbour"}),
        ("POST", "/api/v1/references/query", {"query": "harbour"}),
        ("POST", "/api/v1/graph/search", {"query": "harbour"}),
        ("POST", "/api/v1/graph/analyze", {"content": "harbour"}),
        ("POST", "/api/v1/graph/conflicts", {}),
        ("POST", "/api/v1/graph/topics/nearest", {"query": "harbour"}),
        ("POST", "/api/v1/graph/exports", {}),
        ("GET", "/api/v1/graph/status", None),
        ("GET", f"/api/v1/provenance/{receipt['event_id']}", None),
        ("GET", "/memories/list", None),
        ("GET", f"/memory/{receipt['cid']}", None),
        ("GET", f"/ipfs/{receipt['cid']}", None),
        ("GET", f"/api/v1/events/{uuid.uuid4()}", None),
    ]


def test_audit_records_admin_reading_whole_tenant(
    gateway: Gateway, tell: Tell, scratch_db: ScratchDatabase
) -> None:
    receipt = tell(gateway.key(), "the harbour at dawn")
    boss = gateway.new_key("acme", rights=["admin"])
    for method, path, body in reads(receipt):
        gateway.call(method, path, body, key=boss.token, query={"everybody": "true"})
    rows = trail(scratch_db)
    assert [row[4] for row in rows] == ["done"] * 18 + ["not_found"]
    assert {row[:2] for row in rows} == {("acme", "acme")}
    assert rows[0][3] == {"event_id": receipt["event_id"]}
    assert rows[16][3] == {"cid": receipt["cid"]}
    text = str(scratch_db.rows("select a::text from audit_log a"))
    assert boss.key_id in text
    assert "harbour" not in text


def test_audit_skips_reads_with_named_participants(
    gateway: Gateway, tell: Tell, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even an admin who names participants, or is bound to one."""
    receipt = tell(gateway.key(), "the harbour at dawn")
    readers: list[tuple[str, dict[str, str]]] = [
        (gateway.key(user="user:alice"), {}),
        (gateway.key(rights=["read"]), {"participants": "user:alice"}),
        (gateway.key(rights=["admin"]), {"participants": "user:alice"}),
        (gateway.key(user="user:alice", rights=["admin"]), {}),
    ]
    monkeypatch.setattr(store_audit, "add_audit_entry", lambda *_: pytest.fail("asked"))  # pyright: ignore
    for key, query in readers:
        for method, path, body in reads(receipt):
            status = gateway.call(method, path, body, key=key, query=query).status
            assert status in (200, 201, 404), path
    assert trail(scratch_db) == []


# without its row no call is answered -------------------------------------------------------------


def locked_out(base: ScratchDatabase, ask: Any, monkeypatch: pytest.MonkeyPatch) -> Reply:
    """A call while nobody can write the trail."""
    monkeypatch.setattr(http_app, "_REQUEST_SECONDS", 0.7)
    with psycopg.connect(base.admin_url) as other:
        other.execute("lock table audit_log in access exclusive mode")
        return ask()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"{ACME}/keys", None),
        ("POST", f"{ACME}/keys", {}),
        ("POST", TENANTS, {"tenant_id": "initech"}),
        ("PATCH", ACME, {"appends_per_minute": 5}),
    ],
)
def test_audit_failure_stops_operator_call(
    gateway: Gateway,
    operator: str,
    scratch_db: ScratchDatabase,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    body: object,
) -> None:
    state = "select k::text from api_keys k union all select t::text from tenants t"
    before = scratch_db.rows(state)
    ask = partial(gateway.call, method, path, body, key=operator)
    reply = locked_out(scratch_db, ask, monkeypatch)
    assert (reply.status, reply.error["retryable"]) == (503, True)
    assert scratch_db.rows(state) == before
    monkeypatch.undo()


def test_audit_failure_stops_admin_read(
    gateway: Gateway, tell: Tell, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = tell(gateway.key(), "the harbour at dawn")
    boss = gateway.key("acme", rights=["admin"])
    for method, path, body in reads(receipt)[:3]:
        ask = partial(gateway.call, method, path, body, key=boss, query={"everybody": "true"})
        reply = locked_out(scratch_db, ask, monkeypatch)
        assert (reply.status, reply.error["code"]) == (503, "unavailable")
        assert "harbour" not in reply.text


def test_audit_failure_undoes_change(
    gateway: Gateway, operator: str, scratch_db: ScratchDatabase
) -> None:
    key_id = gateway.call("POST", f"{ACME}/keys", {}, key=operator).body["key_id"]
    state = "select k::text from api_keys k union all select t::text from tenants t"
    before = scratch_db.rows(state)
    scratch_db.rows("revoke insert on audit_log from strandline_app")
    for method, path, body in (
        ("POST", f"{ACME}/keys", {}),
        ("POST", f"{ACME}/keys/{key_id}/rotate", {}),
        ("DELETE", f"{ACME}/keys/{key_id}", None),
        ("POST", TENANTS, {"tenant_id": "initech"}),
        ("PATCH", ACME, {"stored_bytes": 1}),
    ):
        assert gateway.call(method, path, body, key=operator).status == 500  # pyright: ignore
    assert scratch_db.rows(state) == before


# for good ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "update audit_log set outcome = 'done'",
        "update audit_log set at = now()",
        "delete from audit_log",
        "truncate audit_log",
        "select from audit_log for update",
        "insert into audit_log (tenant_id, audit_id, route, outcome, at)"
        " values ('acme', gen_random_uuid(), 'x', 'done', '2020-01-01')",
        "insert into audit_log (tenant_id, audit_id, route, outcome, xid)"
        " values ('acme', gen_random_uuid(), 'x', 'done', '3')",
        "insert into audit_log (tenant_id, audit_id, route, outcome)"
        " values ('globex', gen_random_uuid(), 'x', 'done')",
        "insert into audit_log select * from audit_log on conflict do nothing",
        "merge into audit_log a using (select 1) s on true when matched then delete",
        "alter table audit_log disable row level security",
        "drop table audit_log",
    ],
)
def test_audit_trail_cannot_be_rewritten_by_application(
    gateway: Gateway,
    operator: str,
    scratch_db: ScratchDatabase,
    app: psycopg.Connection[Any],
    statement: str,
) -> None:
    gateway.call("GET", f"{ACME}/keys", key=operator)
    before = scratch_db.rows("select a::text from audit_log a order by 1")
    with pytest.raises(errors.InsufficientPrivilege):
        app.execute(statement.encode())
    assert scratch_db.rows("select a::text from audit_log a order by 1") == before


def test_audit_trail_is_read_by_tenant_newest_first(
    gateway: Gateway, operator: str, app: psycopg.Connection[Any]
) -> None:
    key_ids = [
        gateway.call("POST", f"{tenant}/keys", {}, key=operator).body["key_id"]
        for tenant in [ACME, f"{TENANTS}/globex"] * 4
    ]
    visible_ids: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        page = gateway.call("GET", f"{ACME}/audit", key=operator, query={"limit": 2} | cursor)
        visible_ids += page.body["entries"]
        if page.body["next_cursor"] is None:
            break
        cursor = {"cursor": page.body["next_cursor"]}
    ids = [entry["audit_id"] for entry in visible_ids]
    assert len(ids) == len(set(ids)) == 5
    assert [entry["target"]["key_id"] for entry in visible_ids[:4]] == key_ids[6::-2]
    assert visible_ids[4]["route"] == "console key"
    assert [entry["at"] for entry in visible_ids] == sorted(
        (e["at"] for e in visible_ids), reverse=True
    )
    row = app.execute("select count(*) from audit_log where tenant_id <> 'acme'").fetchone()
    assert row == (0,)


def test_audit_row_of_bug_says_internal_error(
    gateway: Gateway, operator: str, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(admin_routes.keys, "list_keys", fail)
    assert gateway.call("GET", f"{ACME}/keys", key=operator).status == 500
    assert [row[4] for row in trail(scratch_db)] == ["internal_error"]


@pytest.mark.parametrize("away", [False, True])
def test_audit_failure_hides_no_bug_from_log_or_answer(
    gateway: Gateway,
    operator: str,
    scratch_db: ScratchDatabase,
    monkeypatch: pytest.MonkeyPatch,
    away: bool,
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(admin_routes.keys, "list_keys", fail)
    stream, handler = io.StringIO(), cast(Any, logger.registered_handler)
    before = handler.setStream(stream)
    ask = partial(gateway.call, "GET", f"{ACME}/keys", key=operator)
    reply = locked_out(scratch_db, ask, monkeypatch) if away else ask()
    handler.setStream(before)
    assert (reply.status, reply.error["code"]) == (500, "internal_error")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    (log_line,) = [line for line in lines if line["message"] == "request failed"]
    assert (log_line["error"], log_line["request_id"]) == (
        "ZeroDivisionError",
        reply.error["request_id"],
    )
    assert log_line["frames"][-1].endswith(" fail")
    assert [row[4] for row in trail(scratch_db)] == ([] if away else ["internal_error"])


def test_audit_failure_keeps_outcome_unknown_answer(
    gateway: Gateway, operator: str, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That nothing was acknowledged, of a trail that is away, would be another thing."""

    def unsure(*_: object) -> None:
        raise OutcomeUnknown

    monkeypatch.setattr(admin_routes.keys, "revoke_key", unsure)
    place = f"{ACME}/keys/{uuid.uuid4().hex}"
    reply = locked_out(
        scratch_db, partial(gateway.call, "DELETE", place, key=operator), monkeypatch
    )
    assert (reply.status, reply.error["code"]) == (503, "outcome_unknown")


@pytest.mark.parametrize("path", [f"{TENANTS}/nobody", f"{ACME}/keys/{uuid.UUID(int=1).hex}"])
def test_audit_failure_withholds_not_found_answer(
    gateway: Gateway,
    operator: str,
    scratch_db: ScratchDatabase,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
) -> None:
    ask = partial(gateway.call, "GET", path, key=operator)
    assert ask().status == 404
    assert locked_out(scratch_db, ask, monkeypatch).status == 503
