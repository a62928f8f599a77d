"""The HTTP edge: parses requests, authenticates callers, writes answers and errors, and records
calls in the audit trail. HTTP statuses are known only here."""

import base64
import re
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.config import get_settings
from strandline.db.database import NOBODY, Caller
from strandline.errors import (
    BatchRefused,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    Malformed,
    NotFound,
    OutcomeUnknown,
    QuotaExceeded,
    StrandlineError,
    TooLarge,
    Unauthorized,
    Unavailable,
    Unsupported,
    UnsupportedMediaType,
)
from strandline.http import gateway_generated_responses
from strandline.http.request import Request
from strandline.http.routes_and_responses import (
    Response,
    Route,
    json_response,
    may_be_repeated,
)
from strandline.observability import logger, make_emf_fields, trace_context
from strandline.resources import Resources
from strandline.schemas import NoBody, NoQuery
from strandline.tenants import store_audit
from strandline.tenants.store_audit import AuditContext

# An error's status is that of the first class here that it is an instance of, so narrower classes
# come first.
STATUS: Mapping[type[StrandlineError], int] = {
    Malformed: 400,
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    Gone: 410,
    TooLarge: 413,
    UnsupportedMediaType: 415,
    Invalid: 422,
    BatchRefused: 424,
    QuotaExceeded: 429,
    Unsupported: 501,
    Unavailable: 503,
}
_REQUEST_SECONDS = 25.0
_MAX_PLAIN_BYTES = 1024 * 1024
"""Bytes. A longer answer is sent in base64: as text in Lambda's JSON its quotes and backslashes
would be escaped again, and a page of 4 MiB could exceed the 6 MB that a function may answer."""


def serve(
    routes: Mapping[str, Route],
    resources: Resources,
    event: Mapping[str, Any],
    context: LambdaContext,
) -> Response:
    """Serve one event. API Gateway has matched the route already: `routes` is keyed by "METHOD
    /resource/{id}", which excludes a custom domain's base path. Every error becomes an answer;
    nothing is raised."""
    if event.get("ping"):
        return resources.check_version(context.function_name)
    start = time.monotonic()
    # raises Misconfigured: an unconfigured process serves nothing
    origins = get_settings().cors_origins
    seconds_left = context.get_remaining_time_in_millis() / 1000 - 2
    deadline = start + min(_REQUEST_SECONDS, seconds_left)
    request = Request(resources, event, deadline, context.function_name)
    with trace_context(request.trace_id):
        try:
            result = _make_preflight_response(request, origins) or _authorize_and_call_handler(
                routes, request
            )
        except StrandlineError as error:
            if isinstance(error, QuotaExceeded):
                request.metrics["QuotaRejections"] = 1
            result = _make_error_response(error, request, routes)
        except Exception as error:
            result = _make_error_response(
                _log_and_hide_unexpected_error(error, request.id), request, routes
            )
        result = _encode_large_body_as_base64(result)
        _add_cors_headers(result, origins, request)
        milliseconds = round((time.monotonic() - start) * 1000, 1)
        _log_request(request, routes, result["statusCode"], milliseconds, context.function_name)
    return result


def _make_preflight_response(request: Request, origins: Sequence[str]) -> Response | None:
    """The answer to a browser's CORS preflight, if pages of other origins may call; else None."""
    if not origins or not request.operation.startswith("OPTIONS "):
        return None
    headers = dict(gateway_generated_responses.PREFLIGHT_HEADERS)
    return {"statusCode": 204, "headers": headers, "body": "", "isBase64Encoded": False}


def _add_cors_headers(result: Response, origins: Sequence[str], request: Request) -> None:
    headers: dict[str, str] = result["headers"]
    cors_headers = gateway_generated_responses.make_cors_headers(
        origins, request.headers.get("origin")
    )
    if "Vary" in headers and "Vary" in cors_headers:
        cors_headers["Vary"] = f"{headers['Vary']}, {cors_headers['Vary']}"
    headers |= cors_headers


def _encode_large_body_as_base64(result: Response) -> Response:
    """The same answer, in base64 if it is long, so that its size is predictable: see
    _MAX_PLAIN_BYTES."""
    if result["isBase64Encoded"] or len(result["body"]) <= _MAX_PLAIN_BYTES:
        return result
    body = base64.b64encode(result["body"].encode()).decode()
    return result | {"body": body, "isBase64Encoded": True}


def _log_request(
    request: Request, routes: Mapping[str, Route], status: int, milliseconds: float, function: str
) -> None:
    """Write the request's one log line, which carries its metrics too."""
    dimensions = {
        "function": function,
        "route": request.operation if request.operation in routes else "none",
        "status_class": f"{status // 100}xx",
    }
    metrics = {"Requests": 1, "DurationMilliseconds": milliseconds, **request.metrics}
    ids: dict[str, object] = {"status": status, "request_id": request.id}
    if request.is_authenticated:
        ids["tenant"] = request.principal.tenant
    logger.info("request", extra=ids | make_emf_fields(dimensions, metrics))


def _authorize_and_call_handler(routes: Mapping[str, Route], request: Request) -> Response:
    """Authenticate, spend quota, validate, and call the handler, in this order: a stranger learns
    nothing about the request it sent."""
    route = routes.get(request.operation)
    if route is None:
        raise NotFound
    try:
        request.authorize(route.right)
        if route.right not in (None, "issued", "operator"):
            request.spend_quota("requests", 1)
        if route.query is None and route.right is not None and request.has_query:
            request.parse_query(NoQuery)
        if route.body is None and route.right is not None and request.has_body:
            request.parse_body(NoBody)
        result = route.handler(request)
    except StrandlineError as error:
        _audit_privileged_call(route, request, error)
        raise
    except Exception as error:
        fault = _log_and_hide_unexpected_error(
            error, request.id
        )  # logged first: auditing may fail as well
        _audit_privileged_call(route, request, fault)
        raise fault from error
    if not (route.audits_in_transaction or route.audits_refusals_only):
        _audit_privileged_call(route, request)
    return result


def _audit_privileged_call(
    route: Route, request: Request, error: StrandlineError | None = None
) -> None:
    """Add a call to the audit trail, if it is an operator's or an admin's, erases, or reads all of
    a tenant's memory. Raises Unavailable if the row cannot be written, unless the answer is a 5xx
    already: that answer discloses nothing of a tenant and stays valid."""
    is_privileged = route.right in ("admin", "operator", "erase") or request.sees_whole_tenant
    if not (is_privileged and request.is_authenticated):
        return
    call = AuditedCall(
        request.audit_context,
        request.principal.tenant,
        request.target_tenant,
        request.path_parameters,
    )
    try:
        record_audited_call(request.resources, call, request.deadline, error)
    except Unavailable:
        if error is None or find_http_status(error) < 500:
            raise


def find_http_status(error: StrandlineError) -> int:
    """The HTTP status of an error; 500 for a fault of ours."""
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)


def error_body(error: StrandlineError, request_id: str) -> dict[str, object]:
    """The body's fields, the same for every error."""
    return {
        "code": error.code,
        "message": error.message,
        "details": error.details,
        "request_id": request_id,
        "retryable": error.retryable,
    }


def _make_error_response(
    error: StrandlineError, request: Request, routes: Mapping[str, Route]
) -> Response:
    if isinstance(error, OutcomeUnknown):
        error.retryable = may_be_repeated(request, routes.get(request.operation))
    headers = {"Retry-After": str(error.retry_after)} if error.retryable else {}
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = request.resources.authenticator.challenge
    return json_response({"error": error_body(error, request.id)}, find_http_status(error), headers)


def _log_and_hide_unexpected_error(error: Exception, request_id: str) -> StrandlineError:
    """Turn an unexpected exception into an internal error. The log gets its type and stack frames,
    not its message: a database error quotes the row that it is about."""
    logger.error(
        "request failed",
        extra={
            "request_id": request_id,
            "error": type(error).__name__,
            "sqlstate": getattr(error, "sqlstate", None),
            "frames": [
                f"{frame.filename}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(error.__traceback__)
            ],
        },
    )
    return StrandlineError("Something failed on our side. Quote the request id when you report it.")


_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
"""A tenant's name, a key's id, a UUID or a CID. A token never matches: it is longer and holds an
underscore."""
_TEXTS = frozenset({"field", "file", "path", "session_id"})
"""Parameters whose values callers choose: memory, which an erasure of the trail could not reach."""


@dataclass(frozen=True)
class AuditedCall:
    """A call by a credential that has rights over a tenant."""

    context: AuditContext
    caller_tenant: str
    """The credential's tenant."""
    target_tenant: str | None
    """The tenant that the call is about, if it is not the caller's own."""
    path_parameters: Mapping[str, str]
    """The path's parameters by name, decoded; a caller may have written anything there."""


def record_audited_call(
    resources: Resources, call: AuditedCall, deadline: float, error: StrandlineError | None = None
) -> None:
    """Add a call to the audit trail of the tenant it was about. A refused call changed nothing
    there, so its row goes into the caller's own trail.

    A call that a quota refused leaves no row. A call that the credential does not allow spends
    quota for its row and leaves none once the quota is used up, so that nobody can flood a trail
    with forbidden calls. Raises Unavailable when the row cannot be written.
    """
    if isinstance(error, QuotaExceeded):
        return
    if isinstance(error, Forbidden):
        try:
            resources.quotas.spend(call.caller_tenant, "requests", 1, deadline)
        except QuotaExceeded:
            return  # no row; the answer stays as it is
    tenant = call.target_tenant if call.target_tenant and error is None else call.caller_tenant
    access = resources.database.connect_as(Caller(tenant, (NOBODY,)), deadline)
    store_audit.add_audit_entry(
        access, call.context, _select_ids_in_path(call), outcome=error.code if error else "done"
    )


def _select_ids_in_path(call: AuditedCall) -> dict[str, str]:
    """The path's parameters that are ids and look like ids. Any other text is kept out of the
    trail, above all a token."""
    parameters = (
        {**call.path_parameters, "tenant": call.target_tenant}
        if call.target_tenant
        else call.path_parameters
    )
    return {
        name: value
        for name, value in parameters.items()
        if name not in _TEXTS and _ID.fullmatch(value)
    }
