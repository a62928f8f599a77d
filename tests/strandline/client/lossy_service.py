"""A service that loses answers."""

import asyncio
import json
import random
import threading
from collections.abc import Callable
from typing import Any

import httpx2

from strandline import AsyncStrandline, Strandline
from strandline.client.retries import Retry
from tests.strandline.client.scripted_transport import QUICK, RECEIPT, URL


class LossyService:
    """Stores events by key; now and then it is down, or its answer is lost."""

    def __init__(self, *, keeps_keys: bool = True, losses: float = 0.0) -> None:
        self._keeps_keys, self._losses = keeps_keys, losses
        self._random = random.Random(17)
        self.log: list[str] = []
        self.batches: list[int] = []
        self._keys: set[str] = set()
        self.open = threading.Event()
        self.open.set()
        self.refuse: Callable[[dict[str, Any]], tuple[int, str] | None] = lambda _: None
        self.max_batch = 500

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.open.wait(5)
        if self._random.random() < self._losses:
            raise httpx2.ConnectError("away")
        events = json.loads(request.content)["events"]
        if len(events) > self.max_batch:
            return httpx2.Response(413, json={"error": {"code": "too_large", "message": "m"}})
        self.batches.append(len(events))
        results = [self._store(event) for event in events]
        if self._random.random() < self._losses:
            raise httpx2.ReadError("the answer is lost")
        return httpx2.Response(200, json={"stored": 0, "failed": 0, "results": results})

    def _store(self, event: dict[str, Any]) -> dict[str, Any]:
        if refusal := self.refuse(event):
            status, code = refusal
            retryable = status == 503
            error: dict[str, Any] = {"code": code, "message": "m", "details": {}, "request_id": "r"}
            return {"status": status, "error": {**error, "retryable": retryable}}
        if not self._keeps_keys or event["source_event_key"] not in self._keys:
            self._keys.add(event["source_event_key"])
            self.log.append(event["content"])
        return {"status": 201, "event": RECEIPT}

    async def later(self, request: httpx2.Request) -> httpx2.Response:
        """The same, to an event loop."""
        await asyncio.sleep(0)
        return self(request)

    def client(self, retry: Retry = QUICK) -> Strandline:
        """A client of it."""
        http = httpx2.Client(transport=httpx2.MockTransport(self))
        return Strandline(URL, "k", http=http, retry=retry)

    def write(self, count: int) -> None:
        """Many events through a writer."""
        with self.client().writer(max_pending=200, linger=0.001) as writer:
            for n in range(count):
                writer.add(f"event {n}", user="alice")

    def write_later(self, count: int) -> None:
        """The same in an event loop."""

        async def write() -> None:
            http = httpx2.AsyncClient(transport=httpx2.MockTransport(self.later))
            client = AsyncStrandline(URL, "k", http=http, retry=QUICK)
            async with client.writer(max_pending=200, linger=0.001) as writer:
                for n in range(count):
                    await writer.add(f"event {n}", user="alice")

        asyncio.run(write())
