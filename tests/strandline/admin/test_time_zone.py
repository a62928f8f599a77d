"""The time zone of a tenant: how operators set it, and what it changes in questions."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support import Gateway, Reply

TENANTS = "/api/v1/admin/tenants"
ACME = f"{TENANTS}/acme"
ALICE = "user:alice"


@pytest.fixture
def operator(gateway: Gateway) -> str:
    """An operator's key; acme is there."""
    gateway.key("acme", rights=["read"])
    return gateway.key("ops", rights=["operator"])


def change(gateway: Gateway, key: str, **changes: object) -> Reply:
    """PATCH of acme."""
    return gateway.call("PATCH", ACME, changes, key=key)


def test_time_zone_is_utc_until_operator_sets_it(gateway: Gateway, operator: str) -> None:
    assert gateway.call("GET", ACME, key=operator).body["time_zone"] == "UTC"
    for target, holds in (
        ({"time_zone": "Europe/Berlin"}, "Europe/Berlin"),
        ({"appends_per_minute": 9}, "Europe/Berlin"),  # others leave it as it is
        ({"time_zone": None}, "UTC"),
        ({"time_zone": "America/Argentina/Buenos_Aires"}, "America/Argentina/Buenos_Aires"),
    ):
        response = change(gateway, operator, **target)
        assert (response.status, response.body["time_zone"]) == (200, holds)
        assert gateway.call("GET", ACME, key=operator).body["time_zone"] == holds
    results = {"tenant_id": "initech", "time_zone": "Asia/Kolkata"}
    reply = gateway.call("POST", TENANTS, results, key=operator)
    assert (reply.status, reply.body["time_zone"]) == (201, "Asia/Kolkata")
    entries = gateway.call("GET", f"{ACME}/audit", key=operator).body["entries"]
    details = [e["details"] for e in entries if e["route"].startswith("PATCH")]
    assert details[1] == {"time_zone": {"from": "Europe/Berlin", "to": "UTC"}}


@pytest.mark.parametrize(
    "wrong",
    [
        *("Europe/Berlim", "CET-1CEST", "+02:00", "europe berlin", "posix/UTC", "Factory"),
        *("", "x" * 99, "UTC'; drop table tenants; --", "UTC\u0000", 7, True, ["UTC"]),
    ],
)
def test_time_zone_refuses_unknown_zone(gateway: Gateway, operator: str, wrong: object) -> None:
    for reply in (
        change(gateway, operator, time_zone=wrong, appends_per_minute=9),
        gateway.call("POST", TENANTS, {"tenant_id": "n", "time_zone": wrong}, key=operator),
    ):
        assert (reply.status, reply.error["details"]["field"]) == (422, "time_zone")
        if isinstance(wrong, str) and 0 < len(wrong) < 64 and wrong.isprintable():
            assert "Europe/Berlin" in reply.error["message"], "it names the way out"
    body = gateway.call("GET", ACME, key=operator).body
    assert (body["time_zone"], body["limits"]["appends_per_minute"]) == ("UTC", None)
    assert gateway.call("GET", f"{TENANTS}/n", key=operator).status == 404


def test_time_zone_decides_days_of_question(
    gateway: Gateway, operator: str, tell: Callable[..., Any]
) -> None:
    key = gateway.key(user=ALICE)
    tell(key, "The buoy is out.", occurred_at="2026-05-08T22:30:00Z")

    def date(question: str, now: str) -> float:
        body = {"query": question, "now": now, "explain": True, "min_relevance": 0}
        (hit,) = gateway.call("POST", "/api/v1/recall", body, key=key).body["hits"]
        return hit["features"]["date"]

    requests = (
        ("What happened yesterday?", "2026-05-10T12:00:00Z"),
        ("What happened today?", "2026-05-08T22:59:00Z"),
        ("What happened on 9 May?", "2026-05-10T12:00:00Z"),
        ("What happened before 9 May?", "2026-05-10T12:00:00Z"),
        ("What happened after 8 May?", "2026-05-10T12:00:00Z"),
    )
    assert [date(*question) for question in requests] == [1, 2, 1, 1, 0]
    change(gateway, operator, time_zone="Europe/Berlin")  # there it is half past midnight
    assert [date(*question) for question in requests] == [2, 2, 2, 0, 1]
    change(gateway, operator, time_zone="America/New_York")
    assert [date(*question) for question in requests] == [1, 2, 1, 1, 0]


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Niue"])
@pytest.mark.parametrize("now", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_time_zone_survives_ends_of_calendar(
    gateway: Gateway, operator: str, tell: Callable[..., Any], zone: str, now: str
) -> None:
    key = gateway.key(user=ALICE)
    tell(key, "The buoy is out.", occurred_at=now)
    change(gateway, operator, time_zone=zone)
    body = {"query": "Was the buoy out today or yesterday?", "now": now}
    assert len(gateway.call("POST", "/api/v1/recall", body, key=key).body["hits"]) == 1
