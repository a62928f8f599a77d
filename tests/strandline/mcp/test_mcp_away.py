"""What MCP says it offers while the database is away: clients wait ten seconds for it."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from strandline.embeddings.embedder import Embedder
from strandline.errors import Unavailable
from strandline.mcp.dispatch import LISTING, TOOLSETS
from tests.mcp_calls import ALICE, EVERYTHING, post
from tests.support import KEY_SECRET, Gateway, wire_handlers

NOWHERE = "postgresql://strandline_app@127.0.0.1:1/strandline"


@pytest.fixture
def lose_database(
    monkeypatch: pytest.MonkeyPatch, embedder: Embedder
) -> Iterator[Callable[[], None]]:
    """Begins the service again, with no database to be found."""
    services: list[Any] = []

    def lose() -> None:
        settings = {"STRANDLINE_KEY_SECRET": KEY_SECRET, "STRANDLINE_DATABASE_URL": NOWHERE}
        services.extend(wire_handlers(settings, monkeypatch, embedder))

    yield lose
    for service in services:
        service.database.close()


def list_tools(gateway: Gateway, key: str) -> list[dict[str, Any]]:
    return post(gateway, "tools/list", key=key, toolsets=EVERYTHING).body["result"]["tools"]


def test_mcp_outage_new_process_lists_reading_tools(
    gateway: Gateway, lose_database: Callable[[], None]
) -> None:
    key = gateway.key(user=ALICE)
    lose_database()
    tools = list_tools(gateway, key)
    assert [tool["name"] for tool in tools] == [
        tool.name for tools in TOOLSETS.values() for tool in tools if tool.rights == ("read",)
    ]
    assert "not reachable right now" in tools[0]["description"]
    hello = post(gateway, "initialize", {"protocolVersion": "2025-06-18"}, key=key).body["result"]
    assert "not reachable right now" in hello["instructions"]
    for method in sorted(LISTING - {"server/discover"}):
        assert "result" in post(gateway, method, key=key).body, method
    listing = post(gateway, "tools/list", key=key, modern=True).body["result"]
    assert listing["ttlMs"] == 0
    reply = post(gateway, "tools/call", {"name": "context"}, key=key, id="q-1")
    assert (reply.status, reply.body["id"], reply.error["data"]["retryable"]) == (503, "q-1", True)
    for forged in ("strandline_made-up", None):
        assert post(gateway, "tools/list", key=forged).status == 401


def test_mcp_outage_keeps_tool_list_of_known_key(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within its time, however long the database lets it wait."""
    key = gateway.key(user=ALICE, rights=("read", "write"))
    monkeypatch.setattr("strandline.auth.ttl_cache._TTL_SECONDS", 0.0)
    before = list_tools(gateway, key)
    assert "memory_add" in [tool["name"] for tool in before]

    def hang(self: object, deadline: float) -> Any:
        del self
        time.sleep(max(0.0, deadline - time.monotonic()))
        raise Unavailable

    with monkeypatch.context() as away:
        away.setattr("strandline.db.database.Database.connection", hang)
        away.setattr("strandline.mcp.routes._LISTING_SECONDS", 0.5)
        start = time.monotonic()
        during = list_tools(gateway, key)
    assert 0.4 < time.monotonic() - start < 5
    assert "not reachable right now" in during[0]["description"]
    assert [tool["name"] for tool in during] == [tool["name"] for tool in before]
    assert list_tools(gateway, key) == before


def test_mcp_outage_forgets_revoked_key(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    new = gateway.new_key(user=ALICE)
    monkeypatch.setattr("strandline.auth.ttl_cache._TTL_SECONDS", 0.0)
    assert list_tools(gateway, new.token)
    admin = gateway.key(rights=("operator",))
    reply = gateway.call("DELETE", f"/api/v1/admin/tenants/acme/keys/{new.key_id}", key=admin)
    assert reply.status in (200, 204), reply.text
    assert post(gateway, "tools/list", key=new.token).status == 401

    def fail(self: object, deadline: float) -> Any:
        raise Unavailable

    monkeypatch.setattr("strandline.db.database.Database.connection", fail)
    names = [tool["name"] for tool in list_tools(gateway, new.token)]
    assert "memory_add" not in names
