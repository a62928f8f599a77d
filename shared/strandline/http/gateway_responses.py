"""What API Gateway answers by itself, and what pages of other origins may do: one source for the
template (`infra/api.py`) and for the gateway on one machine (`strandline.local`)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

REQUEST_ID = "$context.requestId"
"""A request's id, as API Gateway's templates name it."""
PREFLIGHT_HEADERS: Mapping[str, str] = {
    "Access-Control-Allow-Methods": "GET, POST, PATCH, DELETE",
    "Access-Control-Allow-Headers": (
        "Authorization, Content-Type, Idempotency-Key, X-API-Key, X-JWT-Token, X-Amzn-Trace-Id"
    ),
    "Access-Control-Max-Age": "7200",  # the longest that browsers keep it
}
"""What a page of a permitted origin may send, in answer to its browser's OPTIONS."""
_EXPOSED_HEADERS = (
    "Cache-Control, ETag, Idempotent-Replayed, Location, Retry-After, WWW-Authenticate, "
    "x-amzn-RequestId"
)


@dataclass(frozen=True)
class GatewayResponse:
    """An answer that no function of ours made."""

    code: str
    message: str
    status: int | None = None
    """None: the gateway's own for what happened."""
    details: Mapping[str, object] = field(default_factory=dict[str, object])
    retry_after: int | None = None
    """Seconds, of what may be tried again."""

    def body(self, request_id: str) -> str:
        """It as JSON, in the shape that every error has (`strandline.http.app.error_body`)."""
        error: dict[str, object] = {"code": self.code, "message": self.message}
        error |= {"details": dict(self.details), "request_id": request_id}
        return json.dumps({"error": error | {"retryable": self.retry_after is not None}})

    @property
    def headers(self) -> dict[str, str]:
        """Its headers, but for the content's type."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


NO_ROUTE = GatewayResponse(
    "route_not_found",
    "There is no such method and path here: GET /openapi.json names all that there are.",
    404,
)
TOO_LARGE = GatewayResponse(
    "too_large",
    "body: too large for the gateway; at most 4 MiB. Send fewer events at once, or put a large "
    "payload into the store by itself: POST /api/v1/uploads.",
    413,
    {"field": "body"},
)
TIMEOUT = GatewayResponse("timeout", "The function did not answer in time.", 504, retry_after=2)
FUNCTION_FAILED = GatewayResponse(
    "internal_error", "The function failed, or gave no usable answer."
)
_FORBIDDEN = GatewayResponse("forbidden", "Requests from where you are do not come in here.", 403)
_THROTTLED = GatewayResponse(
    "throttled",
    "More requests than this deployment takes at once. Try again.",
    429,
    {"quota": "deployment"},
    retry_after=1,
)

RESPONSES: Mapping[str, GatewayResponse] = {
    # No route of ours asks for IAM: whatever is said of signatures and tokens is said of a path
    # that is not, as with "Missing Authentication Token".
    "MISSING_AUTHENTICATION_TOKEN": NO_ROUTE,
    "INVALID_SIGNATURE": NO_ROUTE,
    "EXPIRED_TOKEN": NO_ROUTE,
    "RESOURCE_NOT_FOUND": NO_ROUTE,
    "ACCESS_DENIED": _FORBIDDEN,
    "WAF_FILTERED": _FORBIDDEN,
    "REQUEST_TOO_LARGE": TOO_LARGE,
    "THROTTLED": _THROTTLED,
    "QUOTA_EXCEEDED": _THROTTLED,
    "INTEGRATION_TIMEOUT": TIMEOUT,
    "INTEGRATION_FAILURE": GatewayResponse(
        "unavailable", "The function could not be reached. Try again.", 504, retry_after=2
    ),
    "DEFAULT_4XX": GatewayResponse(
        "malformed_request",
        "The gateway refused the request: it is malformed, or there is no such method and path.",
    ),
    "DEFAULT_5XX": FUNCTION_FAILED,
}
"""By API Gateway's response type (API Gateway Developer Guide, "Gateway response types"); what is
not here falls under DEFAULT_4XX or DEFAULT_5XX."""


def cors_headers(origins: Sequence[str], origin: str | None) -> dict[str, str]:
    """Headers that let a page of `origin` read an answer (Fetch standard, "CORS protocol"), where
    `origins` are permitted; `*` are all. Never with credentials: a browser sends none by itself."""
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


def gateway_cors_headers(origins: Sequence[str]) -> dict[str, str]:
    """The same for the gateway's own answers, whose headers are fixed in the template: it cannot
    choose among origins. They hold nobody's data, so that where several are permitted all may read
    that a request was refused."""
    return (
        cors_headers(origins, origins[0])
        if len(origins) == 1
        else cors_headers(("*",) * len(origins), None)
    )
