"""The HTTP edge: requests in, who asks, errors and answers out; only here statuses are known."""

import base64
import functools
import json
import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from aws_lambda_powertools.utilities.typing import LambdaContext
from pydantic import BaseModel, TypeAdapter

from strandline import wire
from strandline.auth import Authenticator
from strandline.blobs import Blobs
from strandline.config import settings
from strandline.db import NOBODY, Access, Asker, Database
from strandline.errors import (
    BatchRefused,
    Conflict,
    Forbidden,
    Invalid,
    Malformed,
    NotFound,
    StrandlineError,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from strandline.hints import Hints
from strandline.models.choice import make_embedder
from strandline.models.embedding import Embedder
from strandline.observability import logger
from strandline.principals import Principal, Right

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
    Unavailable: 503,
}
_RETRY_AFTER_SECONDS = "2"
_REQUEST_SECONDS = 25.0


class once[Value](functools.cached_property[Value]):
    """A property made on first use and kept, by one thread while the others wait."""

    _making = threading.RLock()

    def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
        with self._making:
            return super().__get__(instance, owner)


class Service:
    """What this process works with, made on first use and kept.

    In Lambda the init phase, in which nobody waits yet, checks the settings (a process that is not
    configured does not start) and loads the model of a function that has one.
    """

    def __init__(self, *, model: bool = False) -> None:
        if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
            settings()
            if model:
                self.warm()

    @once
    def database(self) -> Database:
        return Database(settings().database_url)

    @once
    def blobs(self) -> Blobs:
        return Blobs(settings().bucket)

    @once
    def hints(self) -> Hints:
        return Hints(settings().queue_url)

    @once
    def embedder(self) -> Embedder:
        return make_embedder(settings())

    def warm(self) -> None:
        """Load the model now, where nobody waits for it. One that is away is no reason not to
        start: recall answers without it."""
        try:
            self.embedder.embed(["warm"], timeout=5.0)
        except StrandlineError as error:
            logger.warning("the embedding model does not answer", extra={"error": error.code})

    @once
    def authenticator(self) -> Authenticator:
        return Authenticator(self.database, settings().key_secret)


class Request:
    """One API Gateway proxy event (format 1.0), and who and what serves it.

    An object of its own for every event: nothing of a request outlives it or meets another's.
    """

    def __init__(self, service: Service, event: Mapping[str, Any], deadline: float) -> None:
        self.service = service
        self.deadline = deadline
        """Until when this request may take, in time.monotonic() seconds."""
        self._event = event

    @property
    def id(self) -> str:
        """What API Gateway calls this request; in every log line and error."""
        context: Mapping[str, object] = self._event.get("requestContext") or {}
        return str(context.get("requestId", ""))

    @property
    def headers(self) -> dict[str, str]:
        """The request's headers by lower-case name."""
        raw: Mapping[str, str] = self._event.get("headers") or {}
        return {name.lower(): value for name, value in raw.items()}

    def principal(self, right: Right) -> Principal:
        """Who asks, with the right to. Raises Unauthorized, Forbidden, Unavailable."""
        principal = self.service.authenticator.principal(self.headers, self.deadline)
        principal.require(right)
        return principal

    def reader(self, participants: Sequence[str] | None = None) -> Access:
        """The database on behalf of who asks, for a read: `participants`, or `?participants=`."""
        principal = self.principal("read")
        viewer = principal.viewer(participants or self._named())
        asker = Asker(principal.tenant, viewer, principal.user or NOBODY)
        return self.service.database.access(asker, self.deadline)

    def _named(self) -> list[str]:
        """Several by repeating the parameter: a name may hold a comma."""
        raw: Mapping[str, list[str]] = self._event.get("multiValueQueryStringParameters") or {}
        return raw.get("participants") or []

    def path(self, name: str) -> str:
        """A part of the path, decoded."""
        return unquote(str(self._event["pathParameters"][name]))

    def path_id(self, name: str) -> UUID:
        """An id in the path. Raises NotFound: what is no id names nothing."""
        try:
            return UUID(self.path(name))
        except ValueError:
            raise NotFound from None

    def parameter(self, name: str) -> str | None:
        """A query parameter, or none."""
        raw: Mapping[str, str] = self._event.get("queryStringParameters") or {}
        return raw.get(name)

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        """A query parameter as a number. Raises Invalid outside of least..most."""
        text = self.parameter(name)
        if text is None:
            return default
        if not (
            text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most
        ):
            raise Invalid(f"{name}: a whole number from {least} to {most}", field=name)
        return int(text)

    def json(self) -> Any:
        """The body, parsed strictly. Raises TooLarge, Malformed or Invalid."""
        body = str(self._event.get("body") or "")
        encoded = bool(self._event.get("isBase64Encoded"))
        data = base64.b64decode(body) if encoded else body.encode("utf-8", "surrogatepass")
        if len(data) > wire.MAX_BODY_BYTES:
            raise TooLarge(
                f"body: {len(data)} bytes, at most {wire.MAX_BODY_BYTES}. Send fewer events "
                "at once, or split the content.",
                field="body",
                limit=wire.MAX_BODY_BYTES,
            )
        return wire.parse(data)

    def body[Model](self, shape: TypeAdapter[Model]) -> Model:
        """The body as its type. Raises as `json`, and Invalid naming a field."""
        return wire.validated(shape, wire.checked(self.json()))


type Answer = dict[str, Any]
type Route = Callable[[Request], Answer]


def answer(
    body: BaseModel | Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Answer:
    """A JSON answer in API Gateway's format."""
    text = body.model_dump_json() if isinstance(body, BaseModel) else json.dumps(body, default=str)
    return {
        "statusCode": status,
        "headers": {"Content-Type": "application/json", **(headers or {})},
        "body": text,
        "isBase64Encoded": False,
    }


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
    settings()  # a process that is not configured serves nothing
    left = context.get_remaining_time_in_millis() / 1000 - 2
    request = Request(service, event, started + min(_REQUEST_SECONDS, left))
    name = f"{event.get('httpMethod')} {event.get('resource')}"
    try:
        if name not in routes:
            raise NotFound
        result = routes[name](request)
    except StrandlineError as error:
        result = _refusal(error, request.id)
    except Exception as error:
        result = _refusal(_fault(error, request.id), request.id)
    logger.info(
        "request",
        extra={
            "route": name,
            "status": result["statusCode"],
            "milliseconds": round((time.monotonic() - started) * 1000, 1),
            "request_id": request.id,
        },
    )
    return result


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


def _refusal(error: StrandlineError, request_id: str) -> Answer:
    headers = {"Retry-After": _RETRY_AFTER_SECONDS} if error.retryable else {}
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    return answer({"error": error_body(error, request_id)}, status_of(error), headers)


def _fault(error: Exception, request_id: str) -> StrandlineError:
    """A fault of ours. The log gets its kind and where it happened, not its words: a database error
    quotes the row that it is about."""
    logger.error(
        "request failed",
        extra={
            "request_id": request_id,
            "error": type(error).__name__,
            "sqlstate": getattr(error, "sqlstate", None),
            "trace": [
                f"{frame.filename}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(error.__traceback__)
            ],
        },
    )
    return StrandlineError("Something failed on our side. Quote the request id.")
