"""What can go wrong between a program and the service: one class for each code of an error.

ServiceError
├── MalformedRequestError        the request does not follow the protocol
├── InvalidFieldError            a field is not acceptable; `field` names it
├── UnauthorizedError            no credential, or one that is not valid
├── ForbiddenError               a valid credential that does not allow this
├── NotFoundError                absent, or not visible to this credential
├── RouteNotFoundError           the service has no such call
├── KeyConflictError             a key was used before with another request
├── StateConflictError           it exists already, or has ended
├── GoneError                    what the answer rested on is no longer there
├── TooLargeError                over a size limit
├── BatchRefusedError            another item of an atomic batch was refused
├── QuotaExceededError           the tenant used up a quota
├── UnsupportedMediaTypeError    the body is not sent as JSON
├── UnsupportedError             the service does not do this
├── UnavailableError             a dependency is down or starting up
│   ├── ThrottledError           more requests than the deployment takes at once
│   ├── OutcomeUnknownError      the connection to the database broke during a commit
│   ├── EmbeddingUnavailableError, ModelUnavailableError, ModelLateError
│   ├── ModelMisconfiguredError  its settings are wrong: not repeated
│   ├── GatewayTimeoutError      the gateway got no answer from a function in time
│   └── ConnectionFailedError    no connection to the service, or no answer in time
├── InternalError                a fault of the service
└── UnexpectedAnswerError        an answer that this client cannot read
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast


def add_hint(message: str, hint: str) -> str:
    """A message, and a hint as a sentence of its own."""
    stop = "." if message and hint and not message.endswith((".", "!", "?")) else ""
    return f"{message}{stop} {hint}".strip()


class ServiceError(Exception):
    """The service refused a request, or did not answer it."""

    code = "error"
    """The code in the service's answer, which does not change when messages are reworded."""
    hint = ""
    """What to do about it, where the message alone does not say."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        details: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        """The service's sentence; it names the field and often the way out."""
        self.status = status
        """The HTTP status; None where there was no answer."""
        self.code = code or type(self).code
        self.details = dict(details or {})
        """Members depend on the code; `fields` lists all fields at fault."""
        self.request_id = request_id
        """Quote it when you report the error."""
        self.retryable = retryable
        """Whether the same request may succeed later."""
        self.retry_after = retry_after
        """Seconds to wait before that; None where the service does not say."""

    @property
    def field(self) -> str | None:
        """The field at fault, as in `events.0.content`; None where no field is."""
        name = self.details.get("field")
        return name if isinstance(name, str) else None

    def __str__(self) -> str:
        quote = f" (request {self.request_id})" if self.request_id else ""
        return add_hint(self.message, self.hint) + quote


class MalformedRequestError(ServiceError):
    """The request does not follow the protocol."""

    code = "malformed_request"


class InvalidFieldError(ServiceError):
    """A field is not acceptable; `field` names it."""

    code = "invalid_field"

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        if self.field == "participants":
            self.hint = "In Python: user=, agent= or participants=."


class UnauthorizedError(ServiceError):
    """The credential is missing or not valid."""

    code = "unauthorized"
    hint = "Pass a valid key as Strandline(url, key), or set STRANDLINE_API_KEY."


class ForbiddenError(ServiceError):
    """The credential is valid and does not allow the request."""

    code = "forbidden"
    hint = "Use a credential with this right, or of this user."


class NotFoundError(ServiceError):
    """There is nothing here that this credential can see."""

    code = "not_found"
    hint = "Check the id, and on whose behalf the call reads: user= or participants=."

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        if self.field == "tenant":  # which no participant reads; the message says the way out
            self.hint = ""


class RouteNotFoundError(ServiceError):
    """The service has no such call."""

    code = "route_not_found"
    hint = "Check the address of the service; an older service may lack the call."


class KeyConflictError(ServiceError):
    """The key was used before with another request."""

    code = "key_conflict"


class StateConflictError(ServiceError):
    """The current state does not allow the request: it exists already, or has ended."""

    code = "state_conflict"


class GoneError(ServiceError):
    """What the answer rested on is no longer there."""

    code = "gone"
    hint = (
        "Where a token or a cursor was sent, ask again without it; where a list was iterated, call"
        " its verb again; what is erased stays so."
    )


class TooLargeError(ServiceError):
    """The request is over a size limit."""

    code = "too_large"
    hint = "Send fewer events at once, or use upload() for a large text or file."


class BatchRefusedError(ServiceError):
    """Another item of the same atomic batch was refused; nothing was stored."""

    code = "batch_refused"


class QuotaExceededError(ServiceError):
    """The tenant used up a quota; `details["quota"]` names it."""

    code = "quota_exceeded"
    hint = "Try again after `retry_after` seconds, or ask the operator for more."


class UnsupportedMediaTypeError(ServiceError):
    """The body is not sent as JSON."""

    code = "unsupported_media_type"


class UnsupportedError(ServiceError):
    """The service does not do this."""

    code = "unsupported"


class UnavailableError(ServiceError):
    """A dependency of the service is down or starting up; nothing was acknowledged."""

    code = "unavailable"


class ThrottledError(UnavailableError):
    """More requests came than the deployment takes at once."""

    code = "throttled"


class OutcomeUnknownError(UnavailableError):
    """The request may or may not have been stored. The same request with the same key settles
    it."""

    code = "outcome_unknown"


class EmbeddingUnavailableError(UnavailableError):
    """The embedding model cannot be reached or loaded."""

    code = "embedding_unavailable"


class ModelUnavailableError(UnavailableError):
    """The language model cannot be reached, or is overloaded."""

    code = "model_unavailable"


class ModelLateError(ModelUnavailableError):
    """The language model did not answer in time."""

    code = "model_late"


class ModelMisconfiguredError(ModelUnavailableError):
    """The language model's provider does not accept the deployment's settings."""

    code = "model_misconfigured"
    hint = "Correct the setting that the message names, and restart the service."


class GatewayTimeoutError(UnavailableError):
    """The gateway got no answer from a function in time."""

    code = "timeout"


class ConnectionFailedError(UnavailableError):
    """There is no connection to the service, or no answer in time."""

    code = "connection_failed"
    hint = "Check the address, and that the service runs."


class InternalError(ServiceError):
    """A fault of the service."""

    code = "internal_error"


class UnexpectedAnswerError(ServiceError):
    """The answer is not what this client can read."""

    code = "unexpected_answer"
    hint = "Is this the address of a Strandline service? A newer service may need a newer client."


def _iterate_all_subclasses(base: type[ServiceError]) -> Iterator[type[ServiceError]]:
    for subclass in base.__subclasses__():
        yield subclass
        yield from _iterate_all_subclasses(subclass)


BY_CODE: Mapping[str, type[ServiceError]] = {
    subclass.code: subclass for subclass in _iterate_all_subclasses(ServiceError)
}
_BY_STATUS: Mapping[int, type[ServiceError]] = {
    400: MalformedRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: StateConflictError,
    410: GoneError,
    413: TooLargeError,
    422: InvalidFieldError,
    429: ThrottledError,
    501: UnsupportedError,
    502: UnavailableError,
    503: UnavailableError,
    504: GatewayTimeoutError,
}
"""For answers without a code, as a proxy between gives them."""
_MESSAGE_CHARS = 10_000


def make_error(
    status: int, refusal: Mapping[str, Any] | None, retry_after: float | None
) -> ServiceError:
    """The exception for an error answer. `refusal` is its member `error`, if it has one."""
    if refusal is None:
        kind = _BY_STATUS.get(status, InternalError if status >= 500 else UnexpectedAnswerError)
        return kind(
            f"The service answered {status} without a reason.",
            status=status,
            retryable=status in (429, 502, 503, 504),
            retry_after=retry_after,
        )
    code, message = (str(refusal.get(name) or "") for name in ("code", "message"))
    if len(message) > _MESSAGE_CHARS:
        message = f"{message[:_MESSAGE_CHARS]}…"
    kind = BY_CODE.get(code) or _BY_STATUS.get(
        status, InternalError if status >= 500 else ServiceError
    )
    details, request_id = refusal.get("details"), refusal.get("request_id")
    return kind(
        message or f"The service answered {status} without a reason.",
        status=status,
        code=code or None,
        details=cast("Mapping[str, Any]", details) if isinstance(details, Mapping) else None,
        request_id=request_id if isinstance(request_id, str) else None,
        retryable=bool(refusal.get("retryable")) or status in (502, 504),
        retry_after=retry_after,
    )
