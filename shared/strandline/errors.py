"""Every error Strandline raises on purpose.

StrandlineError
├── Invalid                  422  a field is well-formed JSON but not acceptable
│   └── Malformed            400  the request is not what the protocol asks for
├── Unauthorized             401  no credential, or one that does not hold
├── Forbidden                403  a credential that holds, but not for this
├── NotFound                 404  absent, or another's: the same answer for both
├── Conflict                 409  a key used again with another request
│   └── StateConflict        409  what is there already, or has ended
├── TooLarge                 413  over a limit of size
├── BatchRefused             424  another item of an atomic batch was refused
├── QuotaExceeded            429  the tenant used up what it may for now
├── Unavailable              503  a dependency is away: try again
│   ├── EmbeddingUnavailable
│   ├── ModelUnavailable
│   │   └── ModelLate
│   └── Unsure               503  the connection broke while a commit was under way
├── EmbeddingRefused         a text that this model will never embed
├── PayloadMissing           an event's payload is not in the store, or is empty
├── ModelRefused             what a language model will not answer
│   └── FormatRefused        not in this format: there may be a simpler one
├── ModelUnusable            an answer of a language model that is none
├── MigrationFailed          a release did not get its schema
└── Misconfigured            the process must not start
The edge maps classes to statuses in one table (`strandline.http.app`).
"""


class Interrupted(Exception):
    """Work stops here without having failed: no StrandlineError, and never shown to a caller."""


class StrandlineError(Exception):
    """Something went wrong."""

    code = "internal_error"
    retryable = False
    retry_after = 2
    """Of a retryable error: after so many seconds."""

    def __init__(self, message: str | None = None, **details: object) -> None:
        super().__init__(message or type(self).__doc__ or "")
        self.details = details

    @property
    def message(self) -> str:
        """The sentence a caller reads; holds no memory content."""
        return str(self)


class Invalid(StrandlineError):
    """A field is not acceptable."""

    code = "invalid_field"


class Malformed(Invalid):
    """The request is not well-formed."""

    code = "malformed_request"


class Unauthorized(StrandlineError):
    """The credential that is asked for is missing, or does not hold."""

    code = "unauthorized"


class Forbidden(StrandlineError):
    """This credential does not allow that."""

    code = "forbidden"


class NotFound(StrandlineError):
    """There is nothing here that this credential can see."""

    code = "not_found"


class Conflict(StrandlineError):
    """This key was used before, with another request."""

    code = "key_conflict"


class StateConflict(Conflict):
    """What is there now does not allow that: it exists already, or has ended."""

    code = "state_conflict"


class TooLarge(StrandlineError):
    """The request is over a limit of size."""

    code = "too_large"


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


class Unavailable(StrandlineError):
    """A dependency is away or waking up; nothing was acknowledged. Try again."""

    code = "unavailable"
    retryable = True


class OutcomeUnknown(Unavailable):
    """The database went away while the request was being stored. Try again with the same key."""

    code = "outcome_unknown"


class EmbeddingUnavailable(Unavailable):
    """The embedding model cannot be reached or loaded."""

    code = "embedding_unavailable"


class EmbeddingRefused(StrandlineError):
    """The embedding model will not take this text."""

    code = "embedding_refused"


class ModelUnavailable(Unavailable):
    """The language model cannot be reached, or is overloaded."""

    code = "model_unavailable"


class ModelTimeout(ModelUnavailable):
    """The language model did not answer in time."""

    code = "model_late"


class PayloadMissing(StrandlineError):
    """The payload store does not hold this payload."""

    code = "payload_missing"


class ModelRefused(StrandlineError):
    """The language model will not answer this."""

    code = "model_refused"


class FormatUnsupported(ModelRefused):
    """The language model does not answer in the format that it was asked for."""

    code = "model_format_refused"

    def __init__(self, message: str, simpler_format: str) -> None:
        super().__init__(message)
        self.simpler_format = simpler_format
        """The way to ask it next."""


class InvalidModelAnswer(StrandlineError):
    """The language model's answer is too large, or none at all."""

    code = "model_unusable"


class Misconfigured(StrandlineError):
    """The configuration does not allow the service to start."""

    code = "misconfigured"


class MigrationFailed(StrandlineError):
    """The database could not be brought to this release's schema."""

    code = "migration_failed"
