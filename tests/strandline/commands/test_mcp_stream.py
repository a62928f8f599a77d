"""`act_stream` with `wait`, as the official client calls it: it waits for the next act, and answers
when that is there or when the time is over."""

import asyncio
import re
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from strandline.personas import store_acts
from tests.mcp_calls import Samples, prepare
from tests.strandline.client.conftest import HttpService, service
from tests.strandline.commands.mcp_transports import RIGHTS, TRANSPORTS, text_of
from tests.support import Gateway

if TYPE_CHECKING:
    from mcp import Client  # imported where it is used: that takes a second

__all__ = ["service"]
pytestmark = pytest.mark.integration
LONGEST = 20
"""Seconds that a stream may wait."""


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> list[threading.Event]:
    """The first of them is set when a stream finds that there is no act yet."""
    waiting, list_after = [threading.Event()], store_acts.list_acts_after

    def list_ids(*arguments: Any) -> Sequence[store_acts.ThreadAct]:
        acts = list_after(*arguments)
        if not acts:
            waiting[0].set()
        return acts

    monkeypatch.setattr(store_acts, "list_acts_after", list_ids)
    return waiting


def push(gateway: Gateway, key: str, samples: Samples, after: str | None) -> str:
    body = {"event_id": samples.event_id, **({"after": after} if after else {})}
    reply = gateway.call("POST", f"/api/v1/sonas/{samples.sona}/acts", body, key=key)
    assert reply.status == 201, reply.text
    return reply.body["act_id"]


async def stream(client: "Client", samples: Samples, **arguments: Any) -> tuple[str, str]:
    """A page as text, and the cursor to go on with."""
    result = await client.call_tool("act_stream", {"sona": samples.sona, **arguments})
    text = text_of(result)
    (cursor,) = re.findall(r"cursor=(\S+)$", text)
    return text, cursor


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_mcp_stream_waits_for_next_act(
    service: HttpService, polls: list[threading.Event], transport: str
) -> None:
    gateway, key = service.gateway, service.gateway.key(rights=RIGHTS)
    samples = prepare(gateway, key)

    async def push_while_it_waits(after: str | None) -> str:
        assert await asyncio.to_thread(polls[0].wait, 20), "nobody waits"
        return await asyncio.to_thread(push, gateway, key, samples, after)

    async def run() -> None:
        async with TRANSPORTS[transport](service.url, key, "auto") as client:
            act: str | None = None
            cursor: dict[str, str] = {}
            for _ in range(2):  # the first act of the thread, and the one after it
                polls[0] = threading.Event()
                (text, next_cursor), act = await asyncio.gather(
                    stream(client, samples, wait=LONGEST, **cursor), push_while_it_waits(act)
                )
                assert samples.event_id in text
                assert f"Head: {act}." in text
                cursor = {"cursor": next_cursor}
            start = time.monotonic()
            text, end = await stream(client, samples, wait=1, **cursor)
            assert text.startswith("No further act.")
            assert time.monotonic() - start >= 1
            push(gateway, key, samples, act)
            text, _ = await stream(client, samples, cursor=end)
            assert samples.event_id in text, "what came between two calls is not missed"

    asyncio.run(run())


def test_mcp_stream_refuses_too_long_wait(service: HttpService) -> None:
    key = service.gateway.key(rights=RIGHTS)
    samples = prepare(service.gateway, key)

    async def run() -> None:
        async with TRANSPORTS["http"](service.url, key, "auto") as client:
            arguments = {"sona": samples.sona, "wait": LONGEST + 1}
            result = await client.call_tool("act_stream", arguments)
            assert "wait" in text_of(result)
            assert getattr(result, "is_error", False)

    asyncio.run(run())
