"""What a page of another origin could have a browser send that holds a client certificate."""

from typing import Any

import pytest

from tests.certificates import certificate
from tests.strandline.auth.ways_in import ALICE, BY_CERTIFICATE, KEYS, TurnOn, append, enter, on

__all__ = ["on"]  # a fixture


@pytest.fixture
def has_documented_answers() -> bool:
    """Headers of CORS are not in the document."""
    return False


ERASE_ALL = {"tenant": True}
OWN_PAGE, FOREIGN_PAGE = "https://console.example", "https://evil.example"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 202),
        ({"Content-Type": "application/json; charset=utf-8"}, 202),
        ({"Content-Type": "Application/JSON", "Origin": OWN_PAGE}, 202),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded", "Origin": OWN_PAGE}, 415),
        ({"Content-Type": "multipart/form-data; boundary=application/json"}, 415),
        ({"Content-Type": ""}, 415),
        ({"Origin": FOREIGN_PAGE}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": f"{OWN_PAGE}.evil.example"}, 403),
        ({"Content-Type": "text/plain", "Origin": FOREIGN_PAGE}, 403),
    ],
    ids=str,
)
@pytest.mark.parametrize("origins", [OWN_PAGE, f"{OWN_PAGE} *"])
def test_csrf_forged_request_cannot_use_client_certificate(
    on: TurnOn, headers: dict[str, str], status: int, origins: str
) -> None:
    gateway = on(BY_CERTIFICATE, CORS_ORIGINS=origins)
    enter(gateway, rights=["erase"])
    options: dict[str, Any] = {"headers": headers, "certificate": certificate(ALICE)}
    reply = gateway.call("POST", "/api/v1/erasures", ERASE_ALL, **options)
    assert reply.status == (404 if status == 202 else status), reply.text  # nothing to erase yet
    if status == 415:
        assert "application/json" in reply.error["message"]
    if status == 403:
        assert reply.error["message"].startswith("Origin: ")


def test_csrf_forged_request_without_body_is_refused(on: TurnOn) -> None:
    gateway = on(BY_CERTIFICATE)
    enter(gateway, rights=["write"])
    path = "/api/v1/uploads"
    forged = {"Origin": FOREIGN_PAGE, "Content-Type": ""}
    assert gateway.call("POST", path, headers=forged, certificate=certificate(ALICE)).status == 403
    forged = {"Content-Type": "text/plain"}
    assert gateway.call("POST", path, headers=forged, certificate=certificate(ALICE)).status == 415


def test_csrf_request_by_key_or_get_needs_no_origin(on: TurnOn) -> None:
    key = on(KEYS).key()
    gateway = on(KEYS, BY_CERTIFICATE)
    enter(gateway)
    headers = {"Content-Type": "text/plain", "Origin": FOREIGN_PAGE}
    assert append(gateway, key=key, headers=headers).status == 201
    assert append(gateway, key=key, headers=headers, certificate=certificate(ALICE)).status == 201
    reads: dict[str, Any] = {"headers": headers, "certificate": certificate(ALICE)}
    query = {"participants": "user:a"}
    assert gateway.call("GET", "/memories/list", query=query, **reads).status == 200


def test_csrf_forged_request_cannot_call_mcp_tools(on: TurnOn) -> None:
    gateway = on(BY_CERTIFICATE)
    enter(gateway, user="user:alice", rights=["read", "write"])
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    tool = {"name": "add", "arguments": {"content": "The buoy is out."}}
    message = ping | {"method": "tools/call", "params": tool}
    options: dict[str, Any] = {"certificate": certificate(ALICE)}
    assert gateway.call("POST", "/mcp", message, **options).status == 200
    for headers, status in (
        ({"Origin": FOREIGN_PAGE}, 403),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ):
        assert gateway.call("POST", "/mcp", ping, headers=headers, **options).status == status
