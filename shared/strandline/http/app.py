"""The HTTP edge: parses requests, authenticates callers, and writes answers and errors. HTTP
statuses are known only here."""

import base64
import functools
import json
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote
from uuid import UUID

from aws_lambda_powertools.utilities.typing import LambdaContext
from pydantic import BaseModel

from strandline.auth.credentials import AuthRequest
from strandline.auth.principals import Principal, Right
from strandline.config import get_settings
from strandline.config_quotas import Quota
from strandline.db.database import NOBODY, Caller, TenantDb
from strandline.errors import (
    BatchRefused,
    Conflict,
    Forbidden,
    Invalid,
    Malformed,
    NotFound,
    QuotaExceeded,
    StrandlineError,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from strandline.http import audit, gateway_responses
from strandline.observability import emf_fields, logger, trace_context, trace_id_of
from strandline.resources import Resources
from strandline.schemas import MAX_BODY_BYTES, NoBody, NoQuery, check_storable, parse_json, validate
from strandline.tenants.store_audit import AuditContext

# An error's status is that of the first class here that it is an instance of, so narrower classes
# come first.
STATUS: Mapping[type[StrandlineError], int] = {
    Malformed: 400,
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    TooLarge: 413,
    Invalid: 422,
    BatchRefused: 424,
    QuotaExceeded: 429,
    Unavailable: 503,
}
_REQUEST_SECONDS = 25.0
_MAX_PLAIN_BYTES = 1024 * 1024
"""Bytes. A longer answer is sent in base64: as text in Lambda's JSON its quotes and backslashes
would be escaped again, and a page of 4 MiB could exceed the 6 MB that a function may answer."""


class Request:
    """One API Gateway proxy event (format 1.0), its caller, and the resources that serve it. Each
    event gets an object of its own: no request's state outlives it or reaches another request."""

    def __init__(self, resources: Resources, event: Mapping[str, Any], deadline: float) -> None:
        self.resources = resources
        self.deadline = deadline
        """When this request must be done, in time.monotonic() seconds."""
        self.metrics: dict[str, float] = {}
        """Metrics for the request's log line; names from `observability.METRICS`."""
        self._event = event
        self.sees_whole_tenant = False
        """Whether the request reads all of its tenant's memory."""
        self.target_tenant: str | None = None
        """The tenant that an operator acts on, if it is not the credential's own."""
        self._principal: Principal | None = None

    @property
    def operation(self) -> str:
        """The requested operation, as the routes name it: "METHOD /resource/{id}"."""
        return f"{self._event.get('httpMethod')} {self._event.get('resource')}"

    @property
    def raw_path(self) -> str:
        """The path as it was sent, with its trailing slash if it has one."""
        return str(self._event.get("path", ""))

    @property
    def full_path(self) -> str:
        """The path including the stage or the base path, which the gateway removes."""
        context: Mapping[str, object] = self._event.get("requestContext") or {}
        return str(context.get("path") or self.raw_path)

    @property
    def id(self) -> str:
        """API Gateway's id of this request. Every log line and error carries it."""
        context: Mapping[str, object] = self._event.get("requestContext") or {}
        return str(context.get("requestId", ""))

    @functools.cached_property
    def trace(self) -> str:
        """The X-Ray trace id in X-Amzn-Trace-Id. Every log line carries it, and so do the jobs that
        this request starts."""
        return trace_id_of(self.headers.get("x-amzn-trace-id"))

    @functools.cached_property
    def headers(self) -> dict[str, str]:
        """The request's headers by lower-case name."""
        raw: Mapping[str, str] = self._event.get("headers") or {}
        return {name.lower(): value for name, value in raw.items()}

    @property
    def _auth_request(self) -> AuthRequest:
        context: Mapping[str, Any] = self._event.get("requestContext") or {}
        identity: Mapping[str, Any] = context.get("identity") or {}
        return AuthRequest(self.headers, identity.get("clientCert"))

    @property
    def is_authenticated(self) -> bool:
        """Whether the route needs a credential and the request's was verified, whatever its
        rights."""
        return self._principal is not None

    @property
    def principal(self) -> Principal:
        """The verified caller, which has the right that the route needs."""
        assert self._principal is not None, "this route needs no credential"
        return self._principal

    def authorize(self, route: "Route") -> None:
        """Authenticate the caller and check the route's right. Raises Unauthorized, Forbidden or
        Unavailable."""
        if route.right == "issued":
            self.resources.authenticator.require_issued(self._auth_request)
        elif route.right is not None:
            principal = self.resources.authenticator.authenticate(self._auth_request, self.deadline)
            # set before the right is checked: a refusal is audited with the principal
            self._principal = principal
            principal.require_right(route.right)

    def authenticate_tenant(self) -> str:
        """The tenant of the credential, for a route that does not look the credential up. Raises
        Unauthorized or Unavailable."""
        return self.resources.authenticator.authenticate(self._auth_request, self.deadline).tenant

    def spend_quota(self, quota: Quota, units: int) -> None:
        """Spend `units` of the tenant's quota. Raises QuotaExceeded, TooLarge or Unavailable."""
        self.resources.quotas.spend(self.principal.tenant, quota, units, self.deadline)

    def connect_reader(self, participants: Sequence[str] | None) -> TenantDb:
        """The database on behalf of the caller and of `participants`, for a read. Raises Invalid or
        Forbidden."""
        principal = self.principal
        viewer = principal.resolve_viewer(participants)
        self.sees_whole_tenant = not viewer
        caller = Caller(principal.tenant, viewer, principal.user or NOBODY)
        return self.resources.database.connect_as(caller, self.deadline)

    def connect_operator(self, tenant: str | None = None) -> TenantDb:
        """The database in the tenant that an operator acts on (by default the credential's own),
        with a viewer that is a member of no scope and so sees no memory."""
        self.target_tenant = tenant
        caller = Caller(tenant or self.principal.tenant, (NOBODY,))
        return self.resources.database.connect_as(caller, self.deadline)

    @property
    def audit_context(self) -> AuditContext:
        """Who acts through which route, for the audit trail."""
        principal = self.principal
        return AuditContext(
            self.operation, principal.tenant, principal.key_id or None, principal.user, self.id
        )

    @property
    def path_parameters(self) -> dict[str, str]:
        """The parameters of the path by name, percent-decoded."""
        raw: Mapping[str, str] = self._event.get("pathParameters") or {}
        return {name: unquote(value) for name, value in raw.items()}

    def path_parameter(self, name: str) -> str:
        """One parameter of the path, percent-decoded."""
        return self.path_parameters[name]

    def path_id(self, name: str) -> UUID:
        """An id in the path. Raises NotFound for text that is not a UUID: no row can have that
        id."""
        try:
            return UUID(self.path_parameter(name))
        except ValueError:
            raise NotFound from None

    @property
    def has_body(self) -> bool:
        """Whether the request has a body and its method gives a body a meaning; in a GET it has
        none."""
        return bool(self._event.get("body")) and not self.operation.startswith("GET ")

    @property
    def has_query(self) -> bool:
        """Whether the URL has a query string."""
        return bool(self._event.get("multiValueQueryStringParameters"))

    def parse_query[Model: BaseModel](self, model: type[Model]) -> Model:
        """Parse the query string; only `participants` may be repeated. Raises Invalid naming a
        parameter."""
        raw: Mapping[str, list[str]] = self._event.get("multiValueQueryStringParameters") or {}
        for name, values in raw.items():
            if name in model.model_fields and name != "participants" and len(values) > 1:
                raise Invalid(f"{name}: is given {len(values)} times; send it once", field=name)
        parameters = {n: v if n == "participants" else v[-1] for n, v in raw.items()}
        return validate(model, check_storable(parameters))

    def parse_json(self) -> Any:
        """Parse the body as strict JSON. Raises TooLarge, Malformed or Invalid."""
        body = str(self._event.get("body") or "")
        encoded = bool(self._event.get("isBase64Encoded"))
        data = _decode_base64(body) if encoded else body.encode("utf-8", "surrogatepass")
        if len(data) > MAX_BODY_BYTES:
            raise TooLarge(
                f"body: {len(data)} bytes, at most {MAX_BODY_BYTES}. Send fewer events at "
                "once, or put a large payload into the store by itself: POST /api/v1/uploads.",
                field="body",
                limit=MAX_BODY_BYTES,
            )
        return parse_json(data)

    def parse_body[Model: BaseModel](self, model: type[Model]) -> Model:
        """Parse the body as `model`. Raises as `parse_json` does, and Invalid naming a field."""
        return validate(model, check_storable(self.parse_json()))


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Malformed(
            "body: isBase64Encoded is true, but it is not base64", field="body"
        ) from None


type Response = dict[str, Any]


@dataclass(frozen=True)
class MediaType:
    """The media type of an answer that is not JSON."""

    type: str
    """The value of Content-Type."""


@dataclass(frozen=True)
class Route:
    """One operation: its handler, and what the API document says about it. The handler's docstring
    is the operation's description; `openapi` adds the answers that every operation may give."""

    handler: Callable[[Request], Response]
    right: Right | Literal["issued"] | None
    """The right that the credential needs. `issued`: any credential of this deployment, not looked
    up; None: no credential."""
    responses: Mapping[int, type[BaseModel] | MediaType]
    """The types of its successful answers, by status."""
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    headers: type[BaseModel] | None = None
    """Request headers besides the credential's; the fields' aliases are the headers' names."""
    errors: tuple[type[StrandlineError], ...] = ()
    """The errors that it raises itself, besides those that follow from its query, body, path and
    credential."""
    audits_in_transaction: bool = False
    """Its row in the audit trail commits in the transaction of the change itself."""
    audits_refusals_only: bool = False
    """It shows counts and times, nothing that anybody said. A served call leaves no row in the
    audit trail, because a scraper's calls would bury the others; a refused call does."""
    placeholders: Mapping[str, str] = field(default_factory=dict[str, str])
    """What replaces `{name}` in the handler's docstring, for words that come from a table."""
    response_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers of its answers, by name with a description; all but Content-Type."""


def _dump_json(body: Mapping[str, Any]) -> str:
    """JSON in UTF-8: an escaped emoji would be three times as long, and an answer has a limit. A
    lone surrogate stays escaped."""
    text = json.dumps(body, default=str, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode()


def json_response(
    body: BaseModel | Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON answer in API Gateway's format."""
    text = body.model_dump_json() if isinstance(body, BaseModel) else _dump_json(body)
    return {
        "statusCode": status,
        "headers": {"Content-Type": "application/json", **(headers or {})},
        "body": text,
        "isBase64Encoded": False,
    }


def text_response(
    body: str, media: MediaType, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer of text: not JSON, or JSON that is serialised already."""
    response = json_response({}, 200, {"Content-Type": media.type, **(headers or {})})
    return response | {"body": body}


def binary_response(data: bytes, content_type: str, headers: Mapping[str, str]) -> Response:
    """An answer of bytes, in base64."""
    return {
        "statusCode": 200,
        "headers": {"Content-Type": content_type, **headers},
        "body": base64.b64encode(data).decode(),
        "isBase64Encoded": True,
    }


def serve(
    routes: Mapping[str, Route],
    resources: Resources,
    event: Mapping[str, Any],
    context: LambdaContext,
) -> Response:
    """Serve one event. API Gateway has matched the route already: `routes` is keyed by "METHOD
    /resource/{id}", which excludes a custom domain's base path. Every error becomes an answer;
    nothing is raised."""
    start = time.monotonic()
    # raises Misconfigured: an unconfigured process serves nothing
    origins = get_settings().cors_origins
    seconds_left = context.get_remaining_time_in_millis() / 1000 - 2
    request = Request(resources, event, start + min(_REQUEST_SECONDS, seconds_left))
    with trace_context(request.trace):
        try:
            result = _preflight_response(request, origins) or _dispatch(routes, request)
        except StrandlineError as error:
            if isinstance(error, QuotaExceeded):
                request.metrics["RefusedByQuota"] = 1
            result = _error_response(error, request)
        except Exception as error:
            result = _error_response(_internal_error(error, request.id), request)
        result = _encode_large(result)
        result["headers"] |= gateway_responses.cors_headers(origins, request.headers.get("origin"))
        milliseconds = round((time.monotonic() - start) * 1000, 1)
        _log_request(request, routes, result["statusCode"], milliseconds, context.function_name)
    return result


def _preflight_response(request: Request, origins: Sequence[str]) -> Response | None:
    """The answer to a browser's CORS preflight, if pages of other origins may call; else None."""
    if not origins or not request.operation.startswith("OPTIONS "):
        return None
    headers = dict(gateway_responses.PREFLIGHT_HEADERS)
    return {"statusCode": 204, "headers": headers, "body": "", "isBase64Encoded": False}


def _encode_large(result: Response) -> Response:
    """The same answer, in base64 if it is long, so that its size is predictable: see
    _MAX_PLAIN_BYTES."""
    if result["isBase64Encoded"] or len(result["body"]) <= _MAX_PLAIN_BYTES:
        return result
    encoded = base64.b64encode(result["body"].encode()).decode()
    return result | {"body": encoded, "isBase64Encoded": True}


def _log_request(
    request: Request, routes: Mapping[str, Route], status: int, milliseconds: float, function: str
) -> None:
    """Write the request's one log line, which carries its metrics too."""
    dimensions = {
        "function": function,
        "route": request.operation if request.operation in routes else "none",
        "status_class": f"{status // 100}xx",
    }
    metrics = {"Requests": 1, "Milliseconds": milliseconds, **request.metrics}
    ids = {"status": status, "request_id": request.id}
    logger.info("request", extra=ids | emf_fields(dimensions, metrics))


def _dispatch(routes: Mapping[str, Route], request: Request) -> Response:
    """Authenticate, spend quota, validate, and call the handler, in this order: a stranger learns
    nothing about the request it sent."""
    route = routes.get(request.operation)
    if route is None:
        raise NotFound
    try:
        request.authorize(route)
        if route.right not in (None, "issued", "operator"):
            request.spend_quota("requests", 1)
        if route.query is None and route.right is not None and request.has_query:
            request.parse_query(NoQuery)
        if route.body is None and route.right is not None and request.has_body:
            request.parse_body(NoBody)
        result = route.handler(request)
    except StrandlineError as error:
        _audit(route, request, error)
        raise
    except Exception as error:
        fault = _internal_error(error, request.id)  # logged first: auditing may fail as well
        _audit(route, request, fault)
        raise fault from error
    if not (route.audits_in_transaction or route.audits_refusals_only):
        _audit(route, request)
    return result


def _audit(route: Route, request: Request, error: StrandlineError | None = None) -> None:
    """Add a call to the audit trail, if it is an operator's or an admin's or reads all of a
    tenant's memory. Raises Unavailable if the row cannot be written, unless the answer is a 5xx
    already: that answer discloses nothing of a tenant and stays valid."""
    privileged = route.right in ("admin", "operator") or request.sees_whole_tenant
    if not (privileged and request.is_authenticated):
        return
    call = audit.AuditedCall(
        request.audit_context,
        request.principal.tenant,
        request.target_tenant,
        request.path_parameters,
    )
    try:
        audit.record_call(request.resources, call, request.deadline, error)
    except Unavailable:
        if error is None or status_of(error) < 500:
            raise


def status_of(error: StrandlineError) -> int:
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


def _error_response(error: StrandlineError, request: Request) -> Response:
    can_retry = error.retryable or isinstance(error, QuotaExceeded)
    headers = {"Retry-After": str(error.retry_after)} if can_retry else {}
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = request.resources.authenticator.challenge
    return json_response({"error": error_body(error, request.id)}, status_of(error), headers)


def _internal_error(error: Exception, request_id: str) -> StrandlineError:
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
