"""API Gateway's REST proxy integration, payload format 1.0: request to event, answer to HTTP."""

import base64
import json
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import parse_qsl

from strandline.http.gateway_responses import GatewayAnswer
from strandline.local.http_routes import Match
from strandline.local.lambda_context import ACCOUNT_ID, Event

STAGE = "local"
API_ID = "local"
# What a Lambda function may answer, in bytes of its JSON: above it API Gateway sees a failure.
RESPONSE_BYTES = 6 * 1024 * 1024
# Set here from the body itself, or not the handler's to say on this connection.
OWN_HEADERS = {"content-length", "transfer-encoding", "connection", "keep-alive", "upgrade"}


class BadAnswer(ValueError):
    """A handler gave something that API Gateway would not pass on."""

    status = 502


class OversizedAnswer(BadAnswer):
    """A handler's answer is over 6 MiB."""

    status = 500


@dataclass(frozen=True)
class HttpRequest:
    """What came over the wire; path and query as sent, still percent-encoded."""

    method: str
    path: str
    query: str
    headers: list[tuple[str, str]]
    body: bytes
    client: str
    port: int
    protocol: str
    request_id: str
    scheme: str = "http"
    certificate: Mapping[str, Any] | None = None
    """The peer's, as `clientCert` has it, where the handshake proved one."""


@dataclass(frozen=True)
class HttpAnswer:
    """What goes over the wire; names of headers in lower case."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class Refused(Exception):
    """The gateway answers by itself; `more` are headers."""

    def __init__(self, why: GatewayAnswer, request_id: str, **more: str) -> None:
        super().__init__(why.code)
        self._why, self._request_id, self._more = why, request_id, more

    def answer(self, shared: Mapping[str, str]) -> HttpAnswer:
        """For the wire; `shared` are CORS's headers."""
        assert self._why.status is not None, "here nobody else knows the status"
        said = {"content-type": "application/json", "x-amzn-requestid": self._request_id}
        said |= {n.lower(): v for n, v in (self._why.headers | {**shared, **self._more}).items()}
        return HttpAnswer(
            self._why.status, [*said.items()], self._why.body(self._request_id).encode()
        )


def proxy_event(request: HttpRequest, match: Match) -> Event:
    """The event that API Gateway would hand to the function behind `match`.

    `path` and `pathParameters` stay percent-encoded, as a REST API leaves them (an HTTP API would
    decode); query parameters are decoded. Header names come as Title-Case: the server in front of
    us lowers them, and a handler may not rely on their case.
    """
    headers = _multi((name.title(), value) for name, value in _forwarded(request))
    query = _multi(parse_qsl(request.query, keep_blank_values=True))
    body, encoded = _text(request.body)
    return {
        "resource": match.resource.path,
        "path": request.path,
        "httpMethod": request.method,
        "headers": {name: values[-1] for name, values in headers.items()},
        "multiValueHeaders": headers,
        "queryStringParameters": {name: values[-1] for name, values in query.items()} or None,
        "multiValueQueryStringParameters": query or None,
        "pathParameters": match.parameters or None,
        "stageVariables": None,
        "requestContext": _context(request, match, headers),
        "body": body,
        "isBase64Encoded": encoded,
    }


def http_answer(result: object, request_id: str) -> HttpAnswer:
    """A handler's answer for the wire. Raises BadAnswer for what API Gateway would refuse."""
    if not isinstance(result, Mapping):
        raise BadAnswer(f"a handler answered with {type(result).__name__} instead of a mapping")
    answer = cast("Mapping[str, Any]", result)
    status, text = answer.get("statusCode"), answer.get("body") or ""
    if not isinstance(status, int | str) or not str(status).isdecimal() or len(str(status)) != 3:
        raise BadAnswer(f"a handler answered with statusCode {status!r}")
    if not isinstance(text, str):
        raise BadAnswer(f"a handler answered with a body of {type(text).__name__}, not text")
    if len(text) > RESPONSE_BYTES // 6 and len(json.dumps(answer).encode()) > RESPONSE_BYTES:
        raise OversizedAnswer("a handler's answer is over 6 MiB")
    headers = _answer_headers(answer)
    headers.setdefault("content-type", ["application/json"])
    headers["x-amzn-requestid"] = [request_id]
    flat = [(name, value) for name, values in headers.items() for value in values]
    encoded = answer.get("isBase64Encoded") is True
    return HttpAnswer(int(status), flat, base64.b64decode(text) if encoded else text.encode())


def _answer_headers(answer: Mapping[str, Any]) -> dict[str, list[str]]:
    """`headers` and `multiValueHeaders` merged; where both name a header, the list holds."""
    single: dict[str, object] = answer.get("headers") or {}
    several: dict[str, list[object]] = answer.get("multiValueHeaders") or {}
    merged = {name.lower(): [value] for name, value in single.items()}
    merged |= {name.lower(): values for name, values in several.items()}
    headers = {name: [_plain(v) for v in values] for name, values in merged.items()}
    return {name: values for name, values in headers.items() if name not in OWN_HEADERS}


def _plain(value: object) -> str:
    """A header's value; a line break in it would let a handler's data write headers."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if not text.isascii() or not text.isprintable():
        raise BadAnswer("a handler answered with a header value that is not printable ASCII")
    return text


def _forwarded(request: HttpRequest) -> list[tuple[str, str]]:
    """The request's headers, with those that API Gateway adds; port and scheme are true here."""
    came_through = [v for name, v in request.headers if name.lower() == "x-forwarded-for"]
    kept = [(n, v) for n, v in request.headers if not n.lower().startswith("x-forwarded-")]
    trace = f"Root=1-{int(time.time()):08x}-{uuid.uuid4().hex[:24]}"
    if not any(name.lower() == "x-amzn-trace-id" for name, _ in kept):
        kept.append(("X-Amzn-Trace-Id", trace))
    return [
        *kept,
        ("X-Forwarded-For", ", ".join([*came_through, request.client])),
        ("X-Forwarded-Port", str(request.port)),
        ("X-Forwarded-Proto", request.scheme),
    ]


def _context(request: HttpRequest, match: Match, headers: dict[str, list[str]]) -> Event:
    now = time.time()
    host = headers.get("Host", ["localhost"])[-1]
    return {
        "accountId": ACCOUNT_ID,
        "apiId": API_ID,
        "authorizer": None,
        "domainName": host,
        "domainPrefix": host.partition(".")[0],
        "extendedRequestId": request.request_id,
        "httpMethod": request.method,
        "identity": _identity(request, headers),
        "path": f"/{STAGE}{request.path}",
        "protocol": request.protocol,
        "requestId": request.request_id,
        "requestTime": time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now)),
        "requestTimeEpoch": int(now * 1000),
        "resourceId": "local",
        "resourcePath": match.resource.path,
        "stage": STAGE,
    }


def _identity(request: HttpRequest, headers: dict[str, list[str]]) -> Event:
    absent = ("accessKey", "accountId", "apiKey", "apiKeyId", "caller", "user")
    absent += ("cognitoAuthenticationProvider", "cognitoAuthenticationType", "cognitoIdentityId")
    absent += ("cognitoIdentityPoolId", "principalOrgId", "userArn")
    agent = headers.get("User-Agent", [None])[-1]
    here = {"sourceIp": request.client, "userAgent": agent, "clientCert": request.certificate}
    return dict.fromkeys(absent) | here


def _multi(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    gathered: dict[str, list[str]] = {}
    for name, value in pairs:
        gathered.setdefault(name, []).append(value)
    return gathered


def _text(body: bytes) -> tuple[str | None, bool]:
    """The body in base64, None when there is none: every type is a binary one of ours, so that a
    body of 4 MiB fits Lambda's 6 MB whatever stands in it (as text its quotes would be escaped)."""
    return (base64.b64encode(body).decode(), True) if body else (None, False)
