"""A service whose answers a test writes."""

import itertools
import json
from collections.abc import Iterator
from typing import Any, TypeAlias

import httpx2

from strandline import AsyncStrandline, Strandline
from strandline.client.retries import Retry

URL = "https://memory.example"
QUICK = Retry(seconds=5, base=0.001, cap=0.002)
RECEIPT = {
    "event_id": "01890a5d-ac96-774b-bcce-b302099a8057",
    "cid": "bafy",
    "scope_id": "44df5d0a-ac96-874b-bcce-b302099a8057",
    "seq": 1,
    "recorded_at": "2026-05-08T13:56:00Z",
    "blob": None,
}
Answer: TypeAlias = httpx2.Response | Exception


class Script:
    """A service that gives these answers, the last one for ever."""

    def __init__(self, *script: Answer) -> None:
        self._script: Iterator[Answer] = itertools.chain(script[:-1], itertools.repeat(script[-1]))
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = next(self._script)
        if isinstance(answer, Exception):
            raise answer
        remaining = {
            n: v for n, v in answer.headers.items() if n in ("retry-after", "content-type")
        }
        return httpx2.Response(answer.status_code, headers=remaining, content=answer.content)

    async def later(self, request: httpx2.Request) -> httpx2.Response:
        """The same, to an event loop."""
        return self(request)

    def client(self, retry: Retry = QUICK, **options: Any) -> Strandline:
        """A client of it."""
        http = httpx2.Client(transport=httpx2.MockTransport(self))
        return Strandline(URL, options.pop("key", "k"), retry=retry, http=http, **options)

    def async_client(self, retry: Retry = QUICK) -> AsyncStrandline:
        """An asynchronous client of it."""
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(self.later))
        return AsyncStrandline(URL, "k", retry=retry, http=http)

    @property
    def bodies(self) -> list[Any]:
        """What was sent."""
        return [json.loads(request.content) for request in self.requests if request.content]
