"""Every error Strandline raises on purpose.

StrandlineError
├── Invalid                  422  a field is well-formed JSON but not acceptable
│   └── Malformed            400  the request does not follow the protocol
├── Unauthorized             401  no credential, or an invalid one
├── Forbidden                403  a valid credential that does not allow this
├── NotFound                 404  absent, or another tenant's: the same answer for both
├── Conflict                 409  a key used again with another request
│   └── StateConflict        409  it exists already, or has ended
├── Gone                     410  an answer that cannot be given again
├── TooLarge                 413  over a size limit
├── UnsupportedMediaType     415  a body that is not JSON, where a browser could forge it
├── BatchRefused             424  another item of an atomic batch was refused
├── QuotaExceeded            429  the tenant used up a quota for now
├── Unsupported              501  a well-formed request for what the service does not do
├── Unavailable              503  a dependency is down: try again
│   ├── EmbeddingUnavailable
│   ├── ModelUnavailable
│   │   ├── ModelTimeout
│   │   └── ModelMisconfigured  503  its settings are wrong: trying again is of no use
│   ├── LoginRefused         503  the database does not take the service's password
│   └── OutcomeUnknown       503  the connection broke during a commit
├── EmbeddingRefused         a text that the embedding model will never accept
├── PayloadMissing           an event's payload is not in the store, or is empty
├── ModelRefused             a request that the language model will not answer
│   └── ModelFormatUnsupported  not in this format: a simpler one may work
├── InvalidModelAnswer       an unusable answer of a language model
├── MigrationFailed          a release did not get its schema
└── Misconfigured            the process must not start
The edge maps classes to statuses in one table (`strandline.http.app`).
"""


class Interrupted(Exception):
    """Work was stopped without having failed. Not a StrandlineError, and never shown to a
    caller."""


class StrandlineError(Exception):
    """Something went wrong."""

    code = "internal_error"
    retryable = False
    retry_after = 2
    """Seconds after which a retryable error may be tried again."""

    def __init__(self, message: str | None = None, **details: object) -> None:
        super().__init__(message or type(self).__doc__ or "")
        self.details = details

    @property
    def message(self) -> str:
        """The sentence that a caller reads; it contains no memory."""
        return str(self)


class Invalid(StrandlineError):
    """A field is not acceptable."""

    code = "invalid_field"


class Malformed(Invalid):
    """The request is not well-formed."""

    code = "malformed_request"


class Unauthorized(StrandlineError):
    """The credential is missing or not valid."""

    code = "unauthorized"


class Forbidden(StrandlineError):
    """This credential does not allow the request."""

    code = "forbidden"


class NotFound(StrandlineError):
    """There is nothing here that this credential can see."""

    code = "not_found"


class Conflict(StrandlineError):
    """This key was used before, with another request."""

    code = "key_conflict"


class StateConflict(Conflict):
    """The current state does not allow the request: it exists already, or has ended."""

    code = "state_conflict"


class Gone(StrandlineError):
    """Data that this answer was derived from is no longer there. Ask again without the token."""

    code = "gone"


class TooLarge(StrandlineError):
    """The request is over a size limit."""

    code = "too_large"


class UnsupportedMediaType(StrandlineError):
    """The body's content type is not one that this request may have."""

    code = "unsupported_media_type"


class BatchRefused(StrandlineError):
    """Another item of this atomic batch was refused; nothing was stored."""

    code = "batch_refused"


class QuotaExceeded(StrandlineError):
    """The tenant used up a quota. Try again later, or ask the operator for more."""

    code = "quota_exceeded"
    retryable = True

    def __init__(self, message: str, *, quota: str, retry_after: int, **details: object) -> None:
        super().__init__(message, quota=quota, **details)
        self.retry_after = retry_after


class Unsupported(StrandlineError):
    """The service does not do this."""

    code = "unsupported"


class Unavailable(StrandlineError):
    """A dependency is down or starting up; nothing was acknowledged. Try again."""

    code = "unavailable"
    retryable = True


class LoginRefused(Unavailable):
    """The database refuses the service's login. Unless it was changed just now, somebody must
    correct the role's password, or the rights of its token."""


class OutcomeUnknown(Unavailable):
    """The connection broke while the request was being stored, so it may be done. With the same key
    it can be sent again."""

    code = "outcome_unknown"


class EmbeddingUnavailable(Unavailable):
    """The embedding model cannot be reached or loaded."""

    code = "embedding_unavailable"


class EmbeddingRefused(StrandlineError):
    """The embedding model does not accept this text."""

    code = "embedding_refused"


class ModelUnavailable(Unavailable):
    """The language model cannot be reached, or is overloaded."""

    code = "model_unavailable"


class ModelRateLimited(ModelUnavailable):
    """The language model's provider gets more requests than it accepts from this deployment."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.seconds_to_wait = retry_after


class ModelTimeout(ModelUnavailable):
    """The language model did not answer in time."""

    code = "model_late"


class ModelMisconfigured(ModelUnavailable):
    """The language model's provider does not accept the deployment's settings."""

    code = "model_misconfigured"
    retryable = False


class PayloadMissing(StrandlineError):
    """The payload store does not hold this payload."""

    code = "payload_missing"


class ModelRefused(StrandlineError):
    """The language model refuses to answer this request."""

    code = "model_refused"


class ModelRequestRefused(ModelRefused):
    """The language model's provider refuses the request: for its text, or for settings that it
    reports in the same way."""

    code = "model_request_refused"


class ModelFormatUnsupported(ModelRefused):
    """The language model does not support the format that was requested."""

    code = "model_format_refused"

    def __init__(self, message: str, simpler_format: str) -> None:
        super().__init__(message)
        self.simpler_format = simpler_format
        """The format to try next."""


class InvalidModelAnswer(StrandlineError):
    """The language model's answer is too large, or unusable."""

    code = "model_unusable"


class Misconfigured(StrandlineError):
    """The configuration does not allow the service to start."""

    code = "misconfigured"


class MigrationFailed(StrandlineError):
    """The database could not be migrated to this release's schema."""

    code = "migration_failed"
