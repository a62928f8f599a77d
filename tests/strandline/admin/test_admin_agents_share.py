"""The setting `agents_share` of a tenant: how operators change and read it, and from when on the
credentials of every kind bear it."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from strandline.admin import certificates
from strandline.auth import ttl_cache
from strandline.auth.authenticator import Authenticator
from strandline.auth.credentials import AuthRequest
from strandline.config import ServiceSettings
from strandline.db.database import Caller, Database
from strandline.local.tls import make_client_cert_of_event
from strandline.tenants.store_audit import AuditContext
from tests.certificates import certificate
from tests.support import KEY_SECRET, Gateway, Reply, ScratchDatabase
from tests.tokens import AUDIENCE, ISSUER, SECRET, token

TENANTS = "/api/v1/admin/tenants"
ACME = f"{TENANTS}/acme"
ALICE, HELPER = "user:alice", "agent:helper"


@pytest.fixture
def operator(gateway: Gateway) -> str:
    """An operator's key; acme is there."""
    gateway.key("acme", rights=["read"])
    return gateway.key("ops", rights=["operator"])


def change(gateway: Gateway, key: str, **changes: object) -> Reply:
    """PATCH of acme."""
    return gateway.call("PATCH", ACME, changes, key=key)


def test_agents_share_is_off_until_operator_sets_it(gateway: Gateway, operator: str) -> None:
    assert gateway.call("GET", ACME, key=operator).body["agents_share"] is False
    for target, holds in (
        ({"agents_share": True}, True),
        ({"appends_per_minute": 9, "tuning": {"promote": 0.5}}, True),  # others leave it as it is
        ({"agents_share": False}, False),
        ({"agents_share": True}, True),
        ({"agents_share": None}, False),
    ):
        response = change(gateway, operator, **target)
        assert (response.status, response.body["agents_share"]) == (200, holds)
        body = gateway.call("GET", ACME, key=operator).body
        assert (body["agents_share"], body["limits"]) == (holds, response.body["limits"])
    results = {"tenant_id": "initech", "agents_share": True}
    reply = gateway.call("POST", TENANTS, results, key=operator)
    assert (reply.status, reply.body["agents_share"]) == (201, True)
    assert gateway.call("GET", ACME, key=operator).body["agents_share"] is False


def test_agents_share_changes_are_in_audit_trail(gateway: Gateway, operator: str) -> None:
    change(gateway, operator, agents_share=True)
    change(gateway, operator, agents_share=None, appends_per_minute=9)
    entries = gateway.call("GET", f"{ACME}/audit", key=operator).body["entries"]
    assert [e["details"] for e in entries if e["route"].startswith("PATCH")] == [
        {
            "appends_per_minute": {"from": None, "to": 9},
            "agents_share": {"from": True, "to": False},
        },
        {"agents_share": {"from": False, "to": True}},
    ]


@pytest.mark.parametrize("wrong", ["true", 1, 0, [], {}])
def test_agents_share_takes_only_booleans(gateway: Gateway, operator: str, wrong: object) -> None:
    for reply in (
        change(gateway, operator, agents_share=wrong),
        gateway.call("POST", TENANTS, {"tenant_id": "n", "agents_share": wrong}, key=operator),
    ):
        assert (reply.status, reply.error["details"]["field"]) == (422, "agents_share")


def test_agents_share_is_set_by_operator_only(
    gateway: Gateway, operator: str, scratch_db: ScratchDatabase
) -> None:
    for rights in (["read", "write"], ["admin"]):
        reply = change(gateway, gateway.key("acme", rights=rights), agents_share=True)
        assert reply.status == 403
    assert scratch_db.rows("select distinct agents_share from tenants") == [(False,)]


# the credentials that bear it --------------------------------------------------------------------


class CountingDatabase(Database):
    """Counts how often somebody turns to the database."""

    count = 0

    def connection(self, deadline: float | None = None) -> Any:
        """The connection, counted."""
        self.count += 1
        return super().connection(deadline)


@pytest.fixture
def database(scratch_db: ScratchDatabase) -> Iterator[CountingDatabase]:
    counting_database = CountingDatabase(scratch_db.url)
    yield counting_database
    counting_database.close()


def credentials(gateway: Gateway) -> dict[str, AuthRequest]:
    """Alice's, of each kind."""
    access = gateway.database.connect_as(Caller("acme", ()))
    subject = "CN=alice,O=Acme"
    certificates.add_certificate(access, AuditContext("a test"), subject=subject, user=ALICE)
    certified = make_client_cert_of_event(certificate(subject))
    return {
        "key": AuthRequest({"x-api-key": gateway.key(user=ALICE)}),
        "jwt": AuthRequest({"authorization": f"Bearer {token()}"}),
        "certificate": AuthRequest({}, certified),
    }


def authenticator(database: Database, **more: Any) -> Authenticator:
    ways = {"key_secret": KEY_SECRET, "jwt_secret": SECRET, "client_certificates": True}
    fields = {"database_url": "", "bucket": "", "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    return Authenticator(database, ServiceSettings.model_validate(fields | ways | more))


def asks_for(checker: Authenticator, request: AuthRequest) -> Sequence[str]:
    """Q of a read on behalf of alice's agent."""
    return checker.authenticate(request).resolve_viewer([HELPER])


@pytest.mark.parametrize("kind", ["key", "jwt", "certificate"])
def test_agents_share_applies_in_one_minute_without_lookup(
    gateway: Gateway,
    operator: str,
    database: CountingDatabase,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(ttl_cache, "read_uptime", lambda: now[0])
    request, checker = credentials(gateway)[kind], authenticator(database)
    assert asks_for(checker, request) == (HELPER, ALICE)
    lookups = database.count
    change(gateway, operator, agents_share=True)
    now[0] += 49
    assert asks_for(checker, request) == (HELPER, ALICE)
    assert database.count == lookups, "what was looked up is believed"
    now[0] += 1.1
    assert asks_for(checker, request) == (ALICE,)
    # A connection is taken to connect and, of a tenant's rows, to read: as before.
    assert (lookups, database.count) == ({"jwt": 2}.get(kind, 1), 2 * lookups)


def test_agents_share_must_hold_for_every_credential(
    gateway: Gateway, operator: str, database: CountingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They differ for the minute in which a change reaches what each looked up: until then agents
    are listeners."""
    now = [1000.0]
    monkeypatch.setattr(ttl_cache, "read_uptime", lambda: now[0])
    by_kind = credentials(gateway)
    checker = authenticator(database, auth_require_all=True)
    other = AuthRequest({"x-api-key": gateway.key(user=ALICE)})
    both = [
        AuthRequest(dict(key.headers) | dict(by_kind["jwt"].headers), by_kind["certificate"][1])
        for key in (by_kind["key"], other)
    ]
    assert asks_for(checker, both[0]) == (HELPER, ALICE)
    change(gateway, operator, agents_share=True)
    now[0] += 30
    assert asks_for(checker, both[1]) == (HELPER, ALICE), "its key is new, the rest is not"
    now[0] += 51
    assert asks_for(checker, both[1]) == (ALICE,)
