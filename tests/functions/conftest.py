"""Fixtures of the function tests."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support import Gateway, said

type Told = Callable[..., Any]


@pytest.fixture
def tell(gateway: Gateway) -> Told:
    """Append an event and give its receipt: tell(key, "text", "user:alice", ..., field=value)."""

    def append(key: str, text: str, *who: str, **more: object) -> Any:
        reply = gateway.call("POST", "/api/v1/events", said(text, *who, **more), key=key)
        assert reply.status == 201, reply.text
        return reply.body

    return append
