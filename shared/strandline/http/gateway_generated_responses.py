"""The answers that API Gateway gives by itself, and the CORS headers. One source for the template
(`infra/api_definition.py`) and for the gateway on one machine (`strandline.local`)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_REPEAT = (
    " Send a read again, or a write under its Idempotency-Key; a write without one may be done"
    " already."
)
"""Ends what may come after a function has done its work: the gateway cannot tell."""
REQUEST_ID = "$context.requestId"
"""A request's id, in the syntax of API Gateway's templates."""
PREFLIGHT_HEADERS: Mapping[str, str] = {
    "Access-Control-Allow-Methods": "GET, HEAD, POST, PATCH, DELETE",
    "Access-Control-Allow-Headers": (
        "Authorization, Content-Type, Idempotency-Key, Mcp-Method, Mcp-Name, Mcp-Protocol-Version, "
        "X-API-Key, X-JWT-Token, X-Amzn-Trace-Id"
    ),
    "Access-Control-Max-Age": "7200",  # seconds; the longest that browsers cache it
}
"""What a page of a permitted origin may send: the answer to a browser's OPTIONS."""
_EXPOSED_HEADERS = (
    "Accept-Ranges, Cache-Control, Content-Disposition, Content-Location, ETag, "
    "Idempotent-Replayed, Location, Retry-After, Vary, WWW-Authenticate, x-amzn-RequestId"
)


@dataclass(frozen=True)
class GatewayResponse:
    """An answer of the gateway itself, without a function."""

    code: str
    message: str
    status: int | None = None
    """None: the status that the gateway gives by default."""
    details: Mapping[str, object] = field(default_factory=dict[str, object])
    retry_after: int | None = None
    """Seconds after which the request may be tried again; None: it is not retryable."""

    def make_json_body(self, request_id: str) -> str:
        """The JSON body, in the shape of every error (`strandline.http.app.error_body`)."""
        error: dict[str, object] = {"code": self.code, "message": self.message}
        error |= {"details": dict(self.details), "request_id": request_id}
        return json.dumps({"error": error | {"retryable": self.retry_after is not None}})

    @property
    def retry_after_header(self) -> dict[str, str]:
        """The headers, without Content-Type."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


NO_ROUTE = GatewayResponse(
    "route_not_found",
    "There is no such method and path: GET /openapi.json lists all of them.",
    404,
)
TOO_LARGE = GatewayResponse(
    "too_large",
    "body: too large for the gateway; at most 4 MiB. Send fewer events at once, or put a large "
    "payload into the store by itself: POST /api/v1/uploads.",
    413,
    {"field": "body"},
)
FOREIGN_HOST = GatewayResponse(
    "foreign_host",
    "Host: this service answers on its own machine alone. Call it as localhost or 127.0.0.1.",
    421,
)
MALFORMED_REQUEST = GatewayResponse(
    "malformed_request",
    "The gateway refused the request: it is malformed, or there is no such method and path.",
)
TIMEOUT = GatewayResponse(
    "timeout", f"The function did not answer in time.{_REPEAT}", 504, retry_after=2
)
FUNCTION_FAILED = GatewayResponse(
    "internal_error",
    f"The function failed, or could not take the request.{_REPEAT}",
    retry_after=5,
)
"""It also answers what Lambda refuses, because all instances of the function are busy or it is not
active yet, unless that is an INTEGRATION_FAILURE: AWS's guide does not say which."""
_FORBIDDEN = GatewayResponse(
    "forbidden", "This deployment refuses requests from your address.", 403
)
_TOO_MANY_REQUESTS = GatewayResponse(
    "throttled",
    "More requests than this deployment takes at once. Try again.",
    429,
    {"quota": "deployment"},
    retry_after=1,
)

RESPONSES: Mapping[str, GatewayResponse] = {
    # No route of ours uses IAM, so every answer about signatures and tokens is about a path that
    # does not exist, as with "Missing Authentication Token".
    "MISSING_AUTHENTICATION_TOKEN": NO_ROUTE,
    "INVALID_SIGNATURE": NO_ROUTE,
    "EXPIRED_TOKEN": NO_ROUTE,
    "RESOURCE_NOT_FOUND": NO_ROUTE,
    "ACCESS_DENIED": _FORBIDDEN,
    "WAF_FILTERED": _FORBIDDEN,
    "REQUEST_TOO_LARGE": TOO_LARGE,
    "THROTTLED": _TOO_MANY_REQUESTS,
    "QUOTA_EXCEEDED": _TOO_MANY_REQUESTS,
    "INTEGRATION_TIMEOUT": TIMEOUT,
    "INTEGRATION_FAILURE": GatewayResponse(
        "unavailable", f"The function could not be reached.{_REPEAT}", 504, retry_after=5
    ),
    "DEFAULT_4XX": MALFORMED_REQUEST,
    "DEFAULT_5XX": FUNCTION_FAILED,
}
"""By API Gateway's response type (API Gateway Developer Guide, "Gateway response types"). Types
that are not listed fall under DEFAULT_4XX or DEFAULT_5XX."""


def make_cors_headers(origins: Sequence[str], origin: str | None) -> dict[str, str]:
    """Headers that let a page of `origin` read an answer (Fetch standard, "CORS protocol").
    `origins` are the permitted ones; `*` permits all. Credentials are never allowed: a browser
    sends none by itself."""
    if not origins:
        return {}
    if "*" in origins:
        return {
            "Access-Control-Allow-Origin": "*",
            "Access-Control-Expose-Headers": _EXPOSED_HEADERS,
        }
    if origin is None or origin not in origins:
        return {"Vary": "Origin"}
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Expose-Headers": _EXPOSED_HEADERS,
        "Vary": "Origin",
    }


def make_gateway_cors_headers(origins: Sequence[str]) -> dict[str, str]:
    """The CORS headers of the gateway's own answers. The template fixes them, so they cannot depend
    on the request's origin. Those answers hold nobody's data, so if several origins are permitted,
    all origins may read that a request was refused."""
    return (
        make_cors_headers(origins, origins[0])
        if len(origins) == 1
        else make_cors_headers(("*",) * len(origins), None)
    )
