"""Limits per tenant, through the real handlers: what is refused, how, and what usage says of it."""

import hashlib
import importlib
import json
import urllib.request
from typing import Any, NoReturn

import pytest

from strandline.config import get_settings
from strandline.db.database import Caller
from strandline.errors import OutcomeUnknown, Unavailable
from strandline.log import store_uploads
from strandline.tenants import store_quotas
from tests.support import EVENTS, Gateway, Reply, ScratchDatabase, user_message

POST, BATCH, USAGE = "/api/v1/events", "/api/v1/events/batch", "/api/v1/usage"


@pytest.fixture
def slow(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    """A deployment whose limits give ten minutes' worth at once, and then next to nothing while a
    test runs."""
    monkeypatch.setenv("STRANDLINE_TENANT_BURST_SECONDS", "600")
    get_settings.cache_clear()
    return gateway


def limit(gateway: Gateway, tenant: str = "acme", **limits: int) -> None:
    """As an operator does, before the tenant was leased anything."""
    access = gateway.database.connect_as(Caller.background(tenant))
    with access.transaction():
        assert store_quotas.set_quota_limits(access, limits)


def use(gateway: Gateway, key: str) -> dict[str, Any]:
    """Quotas by name, as usage tells them."""
    reply = gateway.call("GET", USAGE, key=key)
    assert reply.status == 200, reply.text
    return {quota["name"]: quota for quota in reply.body["quotas"]}


def is_refused(reply: Reply, quota: str, *, waiting_helps: bool = True) -> int:
    """429 that names the quota and, where waiting helps, says when to come back, in seconds."""
    assert reply.status == 429, reply.text
    assert reply.error["code"] == "quota_exceeded"
    assert reply.error["retryable"] is waiting_helps
    assert reply.error["details"]["quota"] == quota
    assert reply.error["message"].startswith(f"{quota}: ")
    seconds = int(reply.headers.get("Retry-After", 0))
    assert (seconds >= 1) is waiting_helps
    return seconds


def test_usage_quota_of_requests_returns_429(slow: Gateway) -> None:
    """Ten at once, over both functions, and then one a minute."""
    gateway = slow
    key, other = gateway.key(user="user:alice"), gateway.key("globex", user="user:bob")
    limit(gateway, requests_per_minute=1)
    paths = ("/memories/list", "/api/v1/scopes")
    answers = [gateway.call("GET", paths[n % 2], key=key) for n in range(8)]
    answers += [
        gateway.call("POST", POST, user_message("tide", "user:alice"), key=key) for _ in range(8)
    ]
    assert [reply.status for reply in answers[:10]] == [200] * 8 + [201] * 2
    for reply in answers[10:]:
        assert is_refused(reply, "requests") <= 60
    assert "1 a minute, 10 at once" in answers[-1].error["message"]
    assert gateway.call("GET", "/memories/list", key=other).status == 200
    assert gateway.call("GET", "/health").status == 200
    assert gateway.call("GET", "/api/v1/health", key=key).status == 200


def test_usage_quota_refuses_before_parsing(gateway: Gateway) -> None:
    key = gateway.key()
    limit(gateway, requests_per_minute=0)
    is_refused(gateway.call("POST", POST, raw=b"{", key=key), "requests", waiting_helps=False)


def test_usage_quota_refuses_whole_batch(slow: Gateway, scratch_db: ScratchDatabase) -> None:
    """All or nothing, not the part that would have fitted; what fits afterwards is stored."""
    gateway, key = slow, slow.key()
    limit(gateway, appends_per_minute=1)
    four, seven = ([user_message(f"tide {n}") for n in range(many)] for many in (4, 7))
    assert gateway.call("POST", BATCH, {"events": four}, key=key).body["stored"] == 4
    is_refused(gateway.call("POST", BATCH, {"events": seven}, key=key), "appends")
    is_refused(gateway.call("POST", BATCH, {"events": seven, "atomic": True}, key=key), "appends")
    assert scratch_db.rows("select count(*) from events") == [(4,)]
    assert gateway.call("POST", BATCH, {"events": four}, key=key).body["stored"] == 4
    assert scratch_db.rows("select count(*) from events") == [(8,)]


def test_usage_quota_never_sufficient_returns_413(
    slow: Gateway, scratch_db: ScratchDatabase
) -> None:
    """Waiting would not help, so the answer is not one that says to wait."""
    gateway, key = slow, slow.key()
    limit(gateway, appends_per_minute=1, stored_bytes=1000)
    batch = {"events": [user_message(f"tide {n}") for n in range(11)]}
    for _ in range(2):  # also when it is remembered
        reply = gateway.call("POST", BATCH, batch, key=key)
        assert (reply.status, reply.error["retryable"]) == (413, False)
        assert "Retry-After" not in reply.headers
        assert reply.error["details"] == {"quota": "appends", "limit": 1, "at_once": 10}
        assert "send less at once" in reply.error["message"]
    reply = gateway.call("POST", POST, user_message("x" * 1001), key=key)
    assert (reply.status, reply.error["details"]["quota"]) == (413, "stored_bytes")
    assert scratch_db.rows("select count(*) from events") == [(0,)]


def test_usage_quota_is_spent_only_by_new_events(slow: Gateway) -> None:
    """Replays, refused items and an atomic batch that is undone are given back: ten units are
    spent by ten events, whatever else was sent."""
    gateway, key = slow, slow.key()
    limit(gateway, appends_per_minute=1)
    events = [user_message(f"tide {n}", source_event_key=f"k{n}") for n in range(8)]
    assert gateway.call("POST", BATCH, {"events": events}, key=key).body["stored"] == 8
    for _ in range(5):
        replay = gateway.call("POST", BATCH, {"events": events[:2]}, key=key)
        assert replay.headers["Idempotent-Replayed"] == "true"
        conflict = user_message("another", source_event_key="k0")
        assert gateway.call("POST", POST, conflict, key=key).status == 409
        undo = {"events": [user_message("new"), conflict], "atomic": True}
        assert gateway.call("POST", BATCH, undo, key=key).status == 422
        assert gateway.call("POST", POST, {"participants": []}, key=key).status == 422
    assert (
        gateway.call(
            "POST", BATCH, {"events": [user_message("a"), user_message("b")]}, key=key
        ).status
        == 200
    )
    is_refused(gateway.call("POST", POST, user_message("c"), key=key), "appends")


def test_usage_quota_spends_stored_bytes_before_storing(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    """Payloads too; nothing reaches the payload store that the quota does not allow."""
    key = gateway.key()
    limit(gateway, stored_bytes=200_000)
    assert gateway.call("POST", POST, user_message("x" * 100_000), key=key).status == 201
    reply = gateway.call("POST", POST, user_message("y" * 100_001), key=key)
    is_refused(reply, "stored_bytes", waiting_helps=False)
    assert "operator" in reply.error["message"]
    assert scratch_db.rows("select count(*), sum(size) from blobs") == [(1, 100_000)]
    stored_bytes = use(gateway, key)["stored_bytes"]
    assert stored_bytes["used"] + stored_bytes["remaining"] == stored_bytes["limit"] == 200_000
    assert 100_000 < stored_bytes["used"] < 100_000 + 1000


def test_usage_reports_limits_and_use(gateway: Gateway) -> None:
    key = gateway.key()
    limit(gateway, requests_per_minute=600)
    gateway.call("POST", BATCH, {"events": [user_message("a"), user_message("b")]}, key=key)
    usage = use(gateway, key)
    assert list(usage) == ["requests", "appends", "stored_bytes"]
    requests, appends, stored_bytes = usage.values()
    assert (requests["limit"], requests["at_once"], requests["per"]) == (600, 100, "minute")
    assert requests["used"] + requests["remaining"] == 100
    assert 2 <= requests["leased"] <= 2 * 10  # two requests, two instances with a slice each
    assert requests["resets_at"] is not None
    assert (appends["limit"], appends["at_once"]) == (60_000, 10_000)
    assert appends["leased"] >= 2
    assert (stored_bytes["limit"], stored_bytes["per"], stored_bytes["resets_at"]) == (
        100 * 2**30,
        "total",
        None,
    )
    assert all(quota["retry_after"] == 0 for quota in usage.values())


def test_usage_refuses_bound_user(gateway: Gateway) -> None:
    reply = gateway.call("GET", USAGE, key=gateway.key(user="user:alice"))
    assert (reply.status, reply.error["details"]["reason"]) == (403, "bound_user")
    assert "bound to a user" in reply.error["message"]
    admin = gateway.key(user="user:root", rights=["admin"])
    assert gateway.call("GET", USAGE, key=admin).status == 200
    assert gateway.call("GET", USAGE).status == 401


def test_usage_serves_sample_event(gateway: Gateway) -> None:
    from strandline.local.lambda_context import LambdaContext

    event = json.loads((EVENTS / "query_usage.json").read_text())
    event["headers"]["X-Api-Key"] = gateway.key()
    handler = importlib.import_module("functions.query.handler").lambda_handler
    assert handler(event, LambdaContext("query", 29))["statusCode"] == 200


def test_usage_quota_spares_operators(gateway: Gateway) -> None:
    key = gateway.key(rights=["operator"])
    limit(gateway, requests_per_minute=0)
    reply = gateway.call("GET", "/api/v1/admin/tenants/acme/keys", key=key)
    assert reply.status != 429


def test_usage_quota_defaults_to_deployment(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings are defaults; an operator's word goes before them."""
    monkeypatch.setenv("STRANDLINE_TENANT_APPENDS_PER_MINUTE", "6")
    monkeypatch.setenv("STRANDLINE_TENANT_BURST_SECONDS", "20")
    get_settings.cache_clear()
    key, favoured = gateway.key(), gateway.key("globex")
    limit(gateway, "globex", appends_per_minute=600)
    batch = {"events": [user_message("a"), user_message("b"), user_message("c")]}
    assert gateway.call("POST", BATCH, batch, key=key).error["details"]["at_once"] == 2
    assert gateway.call("POST", BATCH, batch, key=favoured).status == 200


def test_usage_quota_level_is_corrected_by_sweep(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    """What was leased by instances that are gone comes back; what may be on its way stays."""
    key = gateway.key()
    limit(gateway, stored_bytes=10**9)
    gateway.call("POST", POST, user_message("x" * 1000, metadata={}), key=key)
    gateway.call("POST", POST, user_message("y" * 70_000, metadata={}), key=key)
    truth = 1000 + 70_000 + 2 * len("{}")
    (row,) = scratch_db.rows("select level from quotas where quota = 'stored_bytes'")[0]
    assert row == 1_000_000, "a slice of the level"
    gateway.sweep()
    assert use(gateway, key)["stored_bytes"]["used"] == row, "the slice may yet be spent"
    scratch_db.rows("update quotas set recent_since = recent_since - interval '6 minutes'")
    gateway.sweep()
    assert use(gateway, key)["stored_bytes"]["used"] == row, "counted again too soon"
    scratch_db.rows("update quotas set measured_at = measured_at - interval '11 minutes'")
    gateway.sweep()
    assert use(gateway, key)["stored_bytes"]["used"] == truth
    stored_usage = gateway.call("GET", USAGE, key=key).body["stored"]
    assert (stored_usage["bytes"], stored_usage["scopes"], stored_usage["events"]) == (truth, 1, 2)
    assert scratch_db.rows("select * from tenants_to_recount(now(), 100)") == [], (
        "nothing has changed"
    )


def test_usage_quota_recount_leaves_free_bytes_usable(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    """What was just stored is counted once, not as stored and as on its way."""
    key = gateway.key()
    limit(gateway, stored_bytes=1_000_000)
    upload = {"sha256": hashlib.sha256(b"a payload").hexdigest(), "size": 550_000}
    assert gateway.call("POST", "/api/v1/uploads", upload, key=key).status == 201
    gateway.sweep()
    assert scratch_db.rows("select measured from quotas where measured_at is not null") == [
        (550_000,)
    ]
    assert 550_000 <= use(gateway, key)["stored_bytes"]["used"] <= 550_000 + 1000
    assert gateway.call("POST", POST, user_message("x" * 100_000), key=key).status == 201


@pytest.mark.parametrize(
    ("failure", "again"), [(Unavailable, 201), (RuntimeError, 201), (OutcomeUnknown, 429)]
)
def test_usage_quota_spares_upload_not_begun(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, failure: type[Exception], again: int
) -> None:
    """Unless it may have been begun after all."""

    def fail(*_: object) -> NoReturn:
        raise failure

    key = gateway.key()
    limit(gateway, stored_bytes=10_000)
    upload = {"sha256": hashlib.sha256(b"a payload").hexdigest(), "size": 6000}
    with monkeypatch.context() as patch:
        patch.setattr(store_uploads, "create_upload", fail)
        assert gateway.call("POST", "/api/v1/uploads", upload, key=key).status >= 500
    assert gateway.call("POST", "/api/v1/uploads", upload, key=key).status == again


def test_usage_quota_charges_upload_once(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    """When it is begun; not again when an event cites it. Until then it counts as stored."""
    key, data = gateway.key(), b"a payload of some length " * 1000
    limit(gateway, stored_bytes=10**9)
    query = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    upload = gateway.call("POST", "/api/v1/uploads", query, key=key)
    assert upload.status == 201, upload.text
    measure(gateway, scratch_db)
    assert use(gateway, key)["stored_bytes"]["used"] == len(data)
    put = urllib.request.Request(  # noqa: S310 - local S3
        upload.body["url"], data, upload.body["headers"], method="PUT"
    )
    with urllib.request.urlopen(put) as response:  # noqa: S310
        assert response.status == 200
    body = {
        **user_message(""),
        "blob": {"cid": upload.body["cid"]},
        "content": None,
        "metadata": {},
    }
    assert gateway.call("POST", POST, body, key=key).status == 201
    measure(gateway, scratch_db)
    assert use(gateway, key)["stored_bytes"]["used"] == len(data) + len("{}")


def measure(gateway: Gateway, base: ScratchDatabase) -> None:
    """Sweep, as if all leases and counts had been long ago."""
    base.rows(
        "update quotas set recent_since = recent_since - interval '6 minutes', measured_at = null"
    )
    gateway.sweep()


def test_usage_quota_recount_fails_in_one_tenant_alone(
    gateway: Gateway, scratch_db: ScratchDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    for tenant in ("acme", "globex"):
        gateway.call("POST", POST, user_message("a", metadata={}), key=gateway.key(tenant))
    scratch_db.rows(
        "create function fail() returns trigger language plpgsql as"
        " $$ begin raise exception 'no'; end $$"
    )
    scratch_db.rows(
        "create trigger fail before update of measured on quotas for each row"
        " when (new.tenant_id = 'acme') execute function fail()"
    )
    gateway.sweep()
    query = "select tenant_id from quotas where measured is not null"
    assert scratch_db.rows(query) == [("globex",)]
    assert "sweep step failed" in caplog.text


def test_usage_quota_spares_replay(gateway: Gateway) -> None:
    key, event = gateway.key(), user_message("x" * 400, source_event_key="k")
    limit(gateway, stored_bytes=500)
    first = gateway.call("POST", POST, event, key=key)
    assert first.status == 201, first.text
    again = gateway.call("POST", POST, event, key=key)
    assert (again.status, again.text) == (201, first.text)
    other = gateway.call("POST", POST, {**event, "content": "y" * 400}, key=key)
    assert other.status == 409
    new = gateway.call("POST", POST, {**event, "source_event_key": "new"}, key=key)
    is_refused(new, "stored_bytes", waiting_helps=False)
