"""Fixtures of the function tests."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.functions import contract
from tests.support import Gateway, Reply, user_message

type Tell = Callable[..., Any]


@pytest.fixture(autouse=True)
def keeps_its_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer that a test here sees is one that the document promises. MCP is not in it."""
    call = Gateway.call

    def call_checked(front: Gateway, method: str, path: str, *body: object, **more: Any) -> Reply:
        reply = call(front, method, path, *body, **more)
        if path != "/mcp":
            contract.check(method, path, reply)
        return reply

    monkeypatch.setattr(Gateway, "call", call_checked)


@pytest.fixture
def tell(gateway: Gateway) -> Tell:
    """Append an event and give its receipt: tell(key, "text", "user:alice", ..., field=value)."""

    def append(key: str, text: str, *who: str, **more: object) -> Any:
        reply = gateway.call("POST", "/api/v1/events", user_message(text, *who, **more), key=key)
        assert reply.status == 201, reply.text
        return reply.body

    return append
