"""API Gateway's REST API with payload format 1.0: the handler of a path, HTTP request to event,
handler's answer to HTTP."""

import base64
import json
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import parse_qsl

from strandline.http.gateway_generated_responses import GatewayResponse
from strandline.local.lambda_context import ACCOUNT_ID, Event, Handler

STAGE = "local"
API_ID = "local"
# The most bytes of JSON that a Lambda function may answer: API Gateway sees a larger answer as a
# failure.
RESPONSE_BYTES = 6 * 1024 * 1024
# Headers that the gateway sets from the body, or that a handler may not set on this connection.
GATEWAY_HEADERS = {"content-length", "transfer-encoding", "connection", "keep-alive", "upgrade"}


@dataclass(frozen=True)
class ApiResource:
    """One path of the API in API Gateway's syntax, with its methods."""

    path: str
    methods: dict[str, Handler] = field(default_factory=dict[str, Handler])

    def handler(self, method: str) -> Handler | None:
        """The handler of `method`, or of ANY."""
        return self.methods.get(method) or self.methods.get("ANY")


@dataclass(frozen=True)
class PathMatch:
    """The resource of a path, and the values of its path parameters."""

    resource: ApiResource
    parameters: dict[str, str]


class PathRouter:
    """The table `{"METHOD /path/{id}": handler}`, searched as API Gateway does.

    At each segment a literal beats `{parameter}`, which beats the greedy `{proxy+}`. The path alone
    selects the resource: a method it lacks is not searched in a less specific one. A slash at the
    end makes no difference. Segments are compared and passed on as they were sent, without
    percent-decoding, so an encoded slash never separates.
    """

    def __init__(self, table: Mapping[str, Handler]) -> None:
        resources: dict[str, ApiResource] = {}
        for key, handler in table.items():
            method, _, path = key.partition(" ")
            if not method.isupper() or not path.startswith("/"):
                raise ValueError(f"not a route: {key!r}; write 'METHOD /path' or 'ANY /path'")
            resources.setdefault(path, ApiResource(path)).methods[method] = handler
        self._resources = [
            (_split_path(resource.path), resource)
            for resource in sorted(resources.values(), key=lambda r: _make_precedence_key(r.path))
        ]

    def find(self, path: str) -> PathMatch | None:
        """The most specific resource for `path`, or None."""
        segments = _split_path(path)
        for pattern, resource in self._resources:
            parameters = _match_path_parameters(pattern, segments)
            if parameters is not None:
                return PathMatch(resource, parameters)
        return None


def _split_path(path: str) -> list[str]:
    return path.strip("/").split("/") if path.strip("/") else []


def _make_precedence_key(path: str) -> list[tuple[int, str]]:
    """A sort key that puts the more specific path first, segment by segment."""
    return [(_rank_segment(segment), segment) for segment in _split_path(path)]


def _rank_segment(segment: str) -> int:
    if not segment.startswith("{"):
        return 0
    return 2 if segment.endswith("+}") else 1


def _match_path_parameters(pattern: list[str], segments: list[str]) -> dict[str, str] | None:
    """The path parameters if `segments` match `pattern`; a parameter does not match an empty
    segment."""
    greedy = bool(pattern) and _rank_segment(pattern[-1]) == 2
    if len(segments) < len(pattern) or (len(segments) > len(pattern) and not greedy):
        return None
    parameters: dict[str, str] = {}
    for position, expected in enumerate(pattern):
        value = segments[position]
        if _rank_segment(expected) == 2:
            value = "/".join(segments[position:])
        if (_rank_segment(expected) == 0 and expected != value) or not value:
            return None
        if _rank_segment(expected):
            parameters[expected.strip("{+}")] = value
    return parameters


class InvalidResponse(ValueError):
    """A handler's answer that API Gateway would not pass on."""

    status = 502


class OversizedResponse(InvalidResponse):
    """A handler's answer over 6 MiB."""

    status = 500


@dataclass(frozen=True)
class HttpRequest:
    """A request as it arrived; path and query are still percent-encoded."""

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
    """The client certificate that the handshake verified, in the form of `clientCert`; None without
    one."""


@dataclass(frozen=True)
class HttpResponse:
    """A response to send; header names are in lower case."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class GatewayError(Exception):
    """The gateway answers by itself; `headers` are added to the answer's own."""

    def __init__(self, response: GatewayResponse, request_id: str, **headers: str) -> None:
        super().__init__(response.code)
        self._response, self._request_id, self._headers = response, request_id, headers

    def to_response(self, cors_headers: Mapping[str, str]) -> HttpResponse:
        """The response to send, with CORS's headers."""
        assert self._response.status is not None, "the local gateway needs a response with a status"
        headers = {"content-type": "application/json", "x-amzn-requestid": self._request_id}
        headers |= {
            n.lower(): v
            for n, v in (
                self._response.retry_after_header | {**cors_headers, **self._headers}
            ).items()
        }
        return HttpResponse(
            self._response.status,
            [*headers.items()],
            self._response.make_json_body(self._request_id).encode(),
        )


def make_proxy_event(request: HttpRequest, match: PathMatch) -> Event:
    """The event that API Gateway would pass to the function behind `match`.

    `path` and `pathParameters` stay percent-encoded, as a REST API leaves them (an HTTP API would
    decode them); query parameters are decoded, with a lone surrogate for each byte that is not
    UTF-8. Header names are sent as Title-Case: uvicorn lowers
    them, and a handler may not rely on their case.
    """
    headers = _group_values_by_name(
        (name.title(), value) for name, value in _add_gateway_headers(request)
    )
    query = _group_values_by_name(
        parse_qsl(request.query, keep_blank_values=True, errors="surrogateescape")
    )
    body, is_base64 = _encode_body_base64(request.body)
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
        "requestContext": _make_request_context(request, match, headers),
        "body": body,
        "isBase64Encoded": is_base64,
    }


def parse_handler_response(result: object, request_id: str) -> HttpResponse:
    """A handler's answer as a response. Raises InvalidResponse for what API Gateway would
    refuse."""
    if not isinstance(result, Mapping):
        raise InvalidResponse(
            f"a handler answered with {type(result).__name__} instead of a mapping"
        )
    response = cast("Mapping[str, Any]", result)
    status, text = response.get("statusCode"), response.get("body") or ""
    if not isinstance(status, int | str) or not str(status).isdecimal() or len(str(status)) != 3:
        raise InvalidResponse(f"a handler answered with statusCode {status!r}")
    if not isinstance(text, str):
        raise InvalidResponse(f"a handler answered with a body of {type(text).__name__}, not text")
    if len(text) > RESPONSE_BYTES // 6 and len(json.dumps(response).encode()) > RESPONSE_BYTES:
        raise OversizedResponse("a handler's answer is over 6 MiB")
    headers = _merge_response_headers(response)
    headers.setdefault("content-type", ["application/json"])
    headers["x-amzn-requestid"] = [request_id]
    flat = [(name, value) for name, values in headers.items() for value in values]
    is_base64 = response.get("isBase64Encoded") is True
    return HttpResponse(int(status), flat, base64.b64decode(text) if is_base64 else text.encode())


def _merge_response_headers(response: Mapping[str, Any]) -> dict[str, list[str]]:
    """`headers` and `multiValueHeaders` merged; if both have a header, the list counts."""
    single: dict[str, object] = response.get("headers") or {}
    multiple: dict[str, list[object]] = response.get("multiValueHeaders") or {}
    values_by_name = {name.lower(): [value] for name, value in single.items()}
    values_by_name |= {name.lower(): values for name, values in multiple.items()}
    headers = {
        name: [_format_response_header(v) for v in values]
        for name, values in values_by_name.items()
    }
    return {name: values for name, values in headers.items() if name not in GATEWAY_HEADERS}


def _format_response_header(value: object) -> str:
    """A header's value as text. Raises InvalidResponse for a line break, which would let a
    handler's data add headers."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if not text.isascii() or not text.isprintable():
        raise InvalidResponse("a handler answered with a header value that is not printable ASCII")
    return text


def _add_gateway_headers(request: HttpRequest) -> list[tuple[str, str]]:
    """The request's headers with those that API Gateway adds; port and scheme are the real ones."""
    previous_hops = [v for name, v in request.headers if name.lower() == "x-forwarded-for"]
    headers = [(n, v) for n, v in request.headers if not n.lower().startswith("x-forwarded-")]
    trace = f"Root=1-{int(time.time()):08x}-{uuid.uuid4().hex[:24]}"
    if not any(name.lower() == "x-amzn-trace-id" for name, _ in headers):
        headers.append(("X-Amzn-Trace-Id", trace))
    return [
        *headers,
        ("X-Forwarded-For", ", ".join([*previous_hops, request.client])),
        ("X-Forwarded-Port", str(request.port)),
        ("X-Forwarded-Proto", request.scheme),
    ]


def _make_request_context(
    request: HttpRequest, match: PathMatch, headers: dict[str, list[str]]
) -> Event:
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
        "identity": _make_identity(request, headers),
        "path": request.path,
        "protocol": request.protocol,
        "requestId": request.request_id,
        "requestTime": time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now)),
        "requestTimeEpoch": int(now * 1000),
        "resourceId": "local",
        "resourcePath": match.resource.path,
        "stage": STAGE,
    }


def _make_identity(request: HttpRequest, headers: dict[str, list[str]]) -> Event:
    absent = ("accessKey", "accountId", "apiKey", "apiKeyId", "caller", "user")
    absent += ("cognitoAuthenticationProvider", "cognitoAuthenticationType", "cognitoIdentityId")
    absent += ("cognitoIdentityPoolId", "principalOrgId", "userArn")
    agent = headers.get("User-Agent", [None])[-1]
    identity = {"sourceIp": request.client, "userAgent": agent, "clientCert": request.certificate}
    return dict.fromkeys(absent) | identity


def _group_values_by_name(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name, value in pairs:
        groups.setdefault(name, []).append(value)
    return groups


def _encode_body_base64(body: bytes) -> tuple[str | None, bool]:
    """The body in base64, None if it is empty. Every media type is treated as binary, so that a
    body of 4 MiB fits Lambda's 6 MB whatever it contains (as text its quotes would be escaped)."""
    return (base64.b64encode(body).decode(), True) if body else (None, False)
