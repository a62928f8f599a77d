"""The HTTP edge: requests in, who asks, errors and answers out; only here statuses are known."""

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

from strandline.auth.credentials import Sent
from strandline.auth.principals import Principal, Right
from strandline.config import settings
from strandline.db.database import NOBODY, Access, Asker
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
from strandline.observability import logger, measured, trace_of, traced
from strandline.resources import Service
from strandline.schemas import MAX_BODY_BYTES, NoBody, NoQuery, checked, parse, validated
from strandline.tenants.store_audit import Act
from strandline.tenants.store_quotas import Quota

# The first class that an error is an instance of says its status: the narrower come first.
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
_PLAIN_BYTES = 1024 * 1024
"""An answer over this goes out in base64: as text in Lambda's JSON its quotes and backslashes would
be escaped once more, and a page of 4 MiB could pass the 6 MB that a function may answer."""


class Request:
    """One API Gateway proxy event (format 1.0), and who and what serves it.

    An object of its own for every event: nothing of a request outlives it or meets another's.
    """

    def __init__(self, service: Service, event: Mapping[str, Any], deadline: float) -> None:
        self.service = service
        self.deadline = deadline
        """Until when this request may take, in time.monotonic() seconds."""
        self.counted: dict[str, float] = {}
        """Metrics for its log line: names out of `observability.METRICS`."""
        self._event = event
        self.sees_all = False
        """Whether it reads all of its tenant's memory."""
        self.acts_on: str | None = None
        """The tenant that an operator acts on, if not the credential's own."""
        self._principal: Principal | None = None

    @property
    def name(self) -> str:
        """The operation asked for, as the routes name it: "METHOD /resource/{id}"."""
        return f"{self._event.get('httpMethod')} {self._event.get('resource')}"

    @property
    def sent_path(self) -> str:
        """The path as it was sent, a slash at its end included."""
        return str(self._event.get("path", ""))

    @property
    def called_path(self) -> str:
        """The path with the stage or the base path that the gateway takes off."""
        context: Mapping[str, object] = self._event.get("requestContext") or {}
        return str(context.get("path") or self.sent_path)

    @property
    def id(self) -> str:
        """What API Gateway calls this request; in every log line and error."""
        context: Mapping[str, object] = self._event.get("requestContext") or {}
        return str(context.get("requestId", ""))

    @functools.cached_property
    def trace(self) -> str:
        """X-Ray's id of what this request is a part of, from X-Amzn-Trace-Id; in every log line,
        and handed on to the jobs that it brings about."""
        return trace_of(self.headers.get("x-amzn-trace-id"))

    @functools.cached_property
    def headers(self) -> dict[str, str]:
        """The request's headers by lower-case name."""
        raw: Mapping[str, str] = self._event.get("headers") or {}
        return {name.lower(): value for name, value in raw.items()}

    @property
    def _sent(self) -> Sent:
        context: Mapping[str, Any] = self._event.get("requestContext") or {}
        identity: Mapping[str, Any] = context.get("identity") or {}
        return Sent(self.headers, identity.get("clientCert"))

    @property
    def is_known(self) -> bool:
        """Whether a credential was asked for and held, whatever it allows."""
        return self._principal is not None

    @property
    def principal(self) -> Principal:
        """Who asks: verified, with the right that the route asks for, before the route began."""
        assert self._principal is not None, "this route asks for no credential"
        return self._principal

    def admit(self, route: "Route") -> None:
        """Let in who may. Raises Unauthorized, Forbidden, Unavailable."""
        if route.right == "issued":
            self.service.authenticator.issued_by_us(self._sent)
        elif route.right is not None:
            principal = self.service.authenticator.principal(self._sent, self.deadline)
            self._principal = principal  # before its right is asked for: a refusal names it too
            principal.require(route.right)

    def tenant(self) -> str:
        """Whose credential it is, of a route that does not look it up. Raises Unauthorized,
        Unavailable."""
        return self.service.authenticator.principal(self._sent, self.deadline).tenant

    def spend(self, quota: Quota, units: int) -> None:
        """Use some of the tenant's quota. Raises QuotaExceeded, TooLarge, Unavailable."""
        self.service.quotas.spend(self.principal.tenant, quota, units, self.deadline)

    def reader(self, participants: Sequence[str] | None) -> Access:
        """The database on behalf of who asks and of `participants`, for a read."""
        principal = self.principal
        viewer = principal.viewer(participants)
        self.sees_all = not viewer
        asker = Asker(principal.tenant, viewer, principal.user or NOBODY)
        return self.service.database.access(asker, self.deadline)

    def operator(self, tenant: str | None = None) -> Access:
        """The database in the tenant that an operator acts on (by default the credential's own),
        on behalf of a viewer in whose presence nothing was ever said."""
        self.acts_on = tenant
        asker = Asker(tenant or self.principal.tenant, (NOBODY,))
        return self.service.database.access(asker, self.deadline)

    @property
    def act(self) -> Act:
        """What is done here, and by whom, as the audit trail tells it."""
        who = self.principal
        return Act(self.name, who.tenant, who.key_id or None, who.user, self.id)

    @property
    def named(self) -> dict[str, str]:
        """The parts of the path by name, decoded."""
        raw: Mapping[str, str] = self._event.get("pathParameters") or {}
        return {name: unquote(value) for name, value in raw.items()}

    def path(self, name: str) -> str:
        """A part of the path, decoded."""
        return self.named[name]

    def path_id(self, name: str) -> UUID:
        """An id in the path. Raises NotFound: what is no id names nothing."""
        try:
            return UUID(self.path(name))
        except ValueError:
            raise NotFound from None

    @property
    def has_body(self) -> bool:
        """Whether anything was sent along, and the method gives that a meaning: of a GET it has
        none."""
        return bool(self._event.get("body")) and not self.name.startswith("GET ")

    @property
    def has_query(self) -> bool:
        """Whether anything stands behind the path."""
        return bool(self._event.get("multiValueQueryStringParameters"))

    def query[Model: BaseModel](self, shape: type[Model]) -> Model:
        """The query string as its type; `participants` alone may stand there several times. Raises
        Invalid naming a parameter."""
        raw: Mapping[str, list[str]] = self._event.get("multiValueQueryStringParameters") or {}
        for name, values in raw.items():
            if name in shape.model_fields and name != "participants" and len(values) > 1:
                raise Invalid(f"{name}: is given {len(values)} times; give it once", field=name)
        plain = {n: v if n == "participants" else v[-1] for n, v in raw.items()}
        return validated(shape, checked(plain))

    def json(self) -> Any:
        """The body, parsed strictly. Raises TooLarge, Malformed or Invalid."""
        body = str(self._event.get("body") or "")
        encoded = bool(self._event.get("isBase64Encoded"))
        data = _from_base64(body) if encoded else body.encode("utf-8", "surrogatepass")
        if len(data) > MAX_BODY_BYTES:
            raise TooLarge(
                f"body: {len(data)} bytes, at most {MAX_BODY_BYTES}. Send fewer events at "
                "once, or put a large payload into the store by itself: POST /api/v1/uploads.",
                field="body",
                limit=MAX_BODY_BYTES,
            )
        return parse(data)

    def body[Model: BaseModel](self, shape: type[Model]) -> Model:
        """The body as its type. Raises as `json`, and Invalid naming a field."""
        return validated(shape, checked(self.json()))


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Malformed("body: said to be base64, and is not", field="body") from None


type Answer = dict[str, Any]


@dataclass(frozen=True)
class Media:
    """An answer that is not JSON."""

    type: str
    """As Content-Type says it."""


@dataclass(frozen=True)
class Route:
    """One operation: what serves it, and what its document promises. Its docstring is the
    operation's description; what every operation may answer besides stands in `openapi`."""

    serve: Callable[[Request], Answer]
    right: Right | Literal["issued"] | None
    """What the credential must allow. `issued`: one of this deployment, not looked up; None: no
    credential."""
    answers: Mapping[int, type[BaseModel] | Media]
    """What it gives when it succeeds, by status."""
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    headers: type[BaseModel] | None = None
    """Request headers besides the credential's; fields with their names as aliases."""
    errors: tuple[type[StrandlineError], ...] = ()
    """What it raises of its own, besides what its query, body, path and credential can."""
    records: bool = False
    """Its row in the audit trail commits with what it changes."""
    numbers_only: bool = False
    """It shows counts and times, nothing that anybody said: served, it leaves no row in the audit
    trail, which a scraper's calls would bury; refused, it does."""
    gives: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers of its answers by name, and what each says; all but Content-Type."""


def _json(body: Mapping[str, Any]) -> str:
    """As UTF-8 spells it: an escaped emoji is three times as long, and an answer has a limit. Half
    of a surrogate pair stays escaped."""
    text = json.dumps(body, default=str, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode()


def answer(
    body: BaseModel | Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Answer:
    """A JSON answer in API Gateway's format."""
    text = body.model_dump_json() if isinstance(body, BaseModel) else _json(body)
    return {
        "statusCode": status,
        "headers": {"Content-Type": "application/json", **(headers or {})},
        "body": text,
        "isBase64Encoded": False,
    }


def text(words: str, media: Media, headers: Mapping[str, str] | None = None) -> Answer:
    """An answer of text that is not JSON, or is JSON already."""
    plain = answer({}, 200, {"Content-Type": media.type, **(headers or {})})
    return plain | {"body": words}


def binary(data: bytes, content_type: str, headers: Mapping[str, str]) -> Answer:
    """An answer of bytes."""
    return {
        "statusCode": 200,
        "headers": {"Content-Type": content_type, **headers},
        "body": base64.b64encode(data).decode(),
        "isBase64Encoded": True,
    }


def serve(
    routes: Mapping[str, Route], service: Service, event: Mapping[str, Any], context: LambdaContext
) -> Answer:
    """Serve one event. API Gateway has routed it already: `routes` goes by "METHOD /resource/{id}",
    which also leaves out a custom domain's base path."""
    started = time.monotonic()
    origins = settings().cors_origins  # a process that is not configured serves nothing
    left = context.get_remaining_time_in_millis() / 1000 - 2
    request = Request(service, event, started + min(_REQUEST_SECONDS, left))
    with traced(request.trace):
        try:
            result = _preflight(request, origins) or _served(routes, request)
        except StrandlineError as error:
            if isinstance(error, QuotaExceeded):
                request.counted["RefusedByQuota"] = 1
            result = _refusal(error, request)
        except Exception as error:
            result = _refusal(_fault(error, request.id), request)
        result = _packed(result)
        result["headers"] |= gateway_responses.shared(origins, request.headers.get("origin"))
        milliseconds = round((time.monotonic() - started) * 1000, 1)
        _log(request, routes, result["statusCode"], milliseconds, context.function_name)
    return result


def _preflight(request: Request, origins: Sequence[str]) -> Answer | None:
    """A browser's question whether a page may call, where pages of any other origin may."""
    if not origins or not request.name.startswith("OPTIONS "):
        return None
    headers = dict(gateway_responses.PREFLIGHT)
    return {"statusCode": 204, "headers": headers, "body": "", "isBase64Encoded": False}


def _packed(result: Answer) -> Answer:
    """The same answer, of a size that is known: see _PLAIN_BYTES."""
    if result["isBase64Encoded"] or len(result["body"]) <= _PLAIN_BYTES:
        return result
    encoded = base64.b64encode(result["body"].encode()).decode()
    return result | {"body": encoded, "isBase64Encoded": True}


def _log(
    request: Request, routes: Mapping[str, Route], status: int, milliseconds: float, function: str
) -> None:
    """A request's one line, which is its metrics too."""
    dimensions = {
        "function": function,
        "route": request.name if request.name in routes else "none",
        "status_class": f"{status // 100}xx",
    }
    metrics = {"Requests": 1, "Milliseconds": milliseconds, **request.counted}
    ids = {"status": status, "request_id": request.id}
    logger.info("request", extra=ids | measured(dimensions, metrics))


def _served(routes: Mapping[str, Route], request: Request) -> Answer:
    """Who asks comes first: strangers are told nothing of what they sent."""
    route = routes.get(request.name)
    if route is None:
        raise NotFound
    try:
        request.admit(route)
        if route.right not in (None, "issued", "operator"):
            request.spend("requests", 1)
        if route.query is None and route.right is not None and request.has_query:
            request.query(NoQuery)
        if route.body is None and route.right is not None and request.has_body:
            request.body(NoBody)
        result = route.serve(request)
    except StrandlineError as error:
        _leave_trace(route, request, error)
        raise
    except Exception as error:
        fault = _fault(error, request.id)  # told to the log first: the trail may fail as well
        _leave_trace(route, request, fault)
        raise fault from error
    if not (route.records or route.numbers_only):
        _leave_trace(route, request)
    return result


def _leave_trace(route: Route, request: Request, error: StrandlineError | None = None) -> None:
    """Put a call into the audit trail, if it is an operator's or an admin's or reads all of a
    tenant's memory. Raises Unavailable where that cannot be, but for a fault or a dependency away:
    such an answer tells nothing of a tenant, and stays as true as it was."""
    privileged = route.right in ("admin", "operator") or request.sees_all
    if not (privileged and request.is_known):
        return
    call = audit.Call(request.act, request.principal.tenant, request.acts_on, request.named)
    try:
        audit.leave(request.service, call, request.deadline, error)
    except Unavailable:
        if error is None or status_of(error) < 500:
            raise


def status_of(error: StrandlineError) -> int:
    """The HTTP status of an error; 500 for what is our fault."""
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)


def error_body(error: StrandlineError, request_id: str) -> dict[str, object]:
    """The one shape of an error."""
    return {
        "code": error.code,
        "message": error.message,
        "details": error.details,
        "request_id": request_id,
        "retryable": error.retryable,
    }


def _refusal(error: StrandlineError, request: Request) -> Answer:
    waits = error.retryable or isinstance(error, QuotaExceeded)
    headers = {"Retry-After": str(error.retry_after)} if waits else {}
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = request.service.authenticator.challenge
    return answer({"error": error_body(error, request.id)}, status_of(error), headers)


def _fault(error: Exception, request_id: str) -> StrandlineError:
    """A fault of ours. The log gets its kind and where it happened, not its words: a database error
    quotes the row that it is about."""
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
    return StrandlineError("Something failed on our side. Quote the request id.")
