"""The error answers of the OpenAPI document: which a route may give, and their descriptions."""

import inspect
import re
from collections.abc import Mapping
from typing import Any

from strandline.errors import (
    Forbidden,
    Invalid,
    Malformed,
    NotFound,
    OutcomeUnknown,
    QuotaExceeded,
    StrandlineError,
    TooLarge,
    Unauthorized,
    Unavailable,
    UnsupportedMediaType,
)
from strandline.http.app import STATUS
from strandline.http.routes_and_responses import Route

JSON = "application/json"
_GATEWAY_ERRORS = {
    429: (
        "TooManyRequests",
        "`quota_exceeded`: a quota of the tenant, which `details.quota` names, is used up. Without"
        " `Retry-After` waiting does not help. `throttled`, from the gateway: more requests than"
        " the deployment accepts now.",
    ),
    500: (
        "InternalError",
        "`internal_error`: something failed on our side. From the gateway, `retryable`: the"
        " function could not take the request.",
    ),
    502: (
        "BadGateway",
        "`internal_error`, from the gateway: the function returned no usable answer.",
    ),
    504: (
        "GatewayTimeout",
        "From the gateway. `timeout`: no answer within 29 seconds. `unavailable`: the function"
        " could not be reached.",
    ),
}
_MAY_BE_RETRYABLE = (429, 500, 502, 503, 504)
ERROR_HEADERS = {
    "Retry-After": {
        "description": "Seconds after which the request may be tried again.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "WWW-Authenticate": {
        "description": "How to authenticate.",
        "schema": {"type": "string"},
    },
}


def list_errors(name: str, route: Route) -> frozenset[type[StrandlineError]]:
    """The errors that a route may raise: its own, and those that follow from its credential, path,
    query and body."""
    errors: set[type[StrandlineError]] = set(route.errors)
    if route.right is not None:
        errors |= {Unauthorized, Invalid}  # an unknown query parameter
    if route.right not in (None, "issued"):
        errors |= {Forbidden, Unavailable, QuotaExceeded}
    parameters = find_path_parameters(name)
    if parameters:
        errors.add(NotFound)
    if route.query or route.headers or "cid" in parameters:
        errors.add(Invalid)
    ignores_body = route.right is None or name.startswith("GET ")
    if route.body or not ignores_body:  # a route without a body refuses one that is not empty
        errors |= {Malformed, Invalid, TooLarge}
    if route.right is not None and not name.startswith("GET "):
        errors |= {OutcomeUnknown, UnsupportedMediaType}  # the latter to a client certificate alone
    models = [model for model in (route.query, route.body) if model]
    if any("cursor" in model.model_fields for model in models):
        errors.add(Malformed)
    return frozenset(errors)


def list_error_statuses(name: str, route: Route) -> set[int]:
    """The statuses of a route's errors, with those that the gateway and our own faults give."""
    return {_find_error_status(kind) for kind in list_errors(name, route)} | _GATEWAY_ERRORS.keys()


def find_path_parameters(name: str) -> list[str]:
    """The names of the parameters in a route's path."""
    return re.findall(r"{(\w+)\+?}", name)


def _find_error_status(kind: type[StrandlineError]) -> int:
    return next(status for error_class, status in STATUS.items() if issubclass(kind, error_class))


def choose_response_name(status: int) -> str:
    """The name of a status's answer among the document's components."""
    by_status = {status: kind.__name__ for kind, status in STATUS.items()}
    return _GATEWAY_ERRORS[status][0] if status in _GATEWAY_ERRORS else by_status[status]


def describe_errors(routes: Mapping[str, Route]) -> dict[str, Any]:
    """The error answers by name. In each status's description its own code comes first, then the
    narrower codes that routes raise."""
    error_types = {kind for name, route in routes.items() for kind in list_errors(name, route)}
    narrower = sorted(error_types - STATUS.keys(), key=lambda kind: kind.code)
    descriptions: dict[int, str] = {}
    for kind in (*STATUS, *narrower):
        words = f"`{kind.code}`: {inspect.getdoc(kind)}"
        descriptions[_find_error_status(kind)] = " ".join(
            filter(None, [descriptions.get(_find_error_status(kind)), words])
        )
    descriptions |= {status: words for status, (_, words) in _GATEWAY_ERRORS.items()}
    responses: dict[str, Any] = {}
    answered = {s for name, route in routes.items() for s in list_error_statuses(name, route)}
    for status in sorted(descriptions.keys() & answered):
        response: dict[str, Any] = {
            "description": descriptions[status],
            "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
        names = {401: ["WWW-Authenticate"], **{n: ["Retry-After"] for n in _MAY_BE_RETRYABLE}}
        if status in names:
            response["headers"] = {name: ERROR_HEADERS[name] for name in names[status]}
        responses[choose_response_name(status)] = response
    return responses
