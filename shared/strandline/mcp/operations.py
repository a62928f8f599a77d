"""Operations of the service, performed on behalf of an MCP request's caller. What a tool may do is
what the operation's own route allows: rights, quotas, audit and errors are the route's."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from strandline.http.request import Request
from strandline.http.routes_and_responses import Response

type Perform = Callable[[Mapping[str, Any]], Response]
"""Serves the event of one operation."""


class Refusal(Exception):
    """An operation that was refused, or failed."""

    def __init__(self, status: int, error: Mapping[str, Any], retry_after: str | None) -> None:
        super().__init__(error["message"])
        self.status = status
        self.code: str = error["code"]
        self.message: str = error["message"]
        self.details: Mapping[str, Any] = error["details"]
        self.request_id: str = error["request_id"]
        self.retry_after = retry_after
        """Seconds; None where trying again does not help."""


class Operations:
    """The operations that one request may perform."""

    def __init__(self, request: Request, perform: Perform) -> None:
        self.request, self._perform = request, perform
        self.performed_count = 0
        """How many it has performed."""

    def call(
        self,
        operation: str,
        body: Mapping[str, Any] | None = None,
        *,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, Sequence[str]] | None = None,
        key: str | None = None,
    ) -> Any:
        """The JSON of an operation's answer. Raises Refusal."""
        return json.loads(self.call_for_bytes(operation, body, path=path, query=query, key=key))

    def call_for_bytes(
        self,
        operation: str,
        body: Mapping[str, Any] | None = None,
        *,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, Sequence[str]] | None = None,
        key: str | None = None,
    ) -> bytes:
        """The bytes of an operation's answer. `key` is its idempotency key; by default the
        message's. Raises Refusal."""
        key = key or self.request.headers.get("idempotency-key")
        has_own_key = body is not None and "source_event_key" in body
        headers = {} if key is None or has_own_key else {"idempotency-key": key}
        if body is not None and "everybody" in body:  # its place is the query string alone
            query = {**(query or {}), "everybody": body["everybody"]}
            body = {name: value for name, value in body.items() if name != "everybody"}
        event = self.request.make_event_of_operation(
            operation, path or {}, query or {}, body, headers
        )
        self.performed_count += 1
        response = self._perform(event)
        text: str = response["body"]
        data = base64.b64decode(text) if response["isBase64Encoded"] else text.encode()
        status: int = response["statusCode"]
        if status < 300:
            return data
        error = json.loads(data).get("error")
        if error is None:
            return data  # a payload's address, or the state of an unhealthy service
        raise Refusal(status, error, response["headers"].get("Retry-After"))
