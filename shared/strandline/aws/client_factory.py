"""AWS clients, built in one place. boto3 creates its classes at run time, so a client's type is
Any.

boto3 is a fifth of what a function imports, and most first requests need no client: it is imported
when the first client is built.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    from botocore.config import Config
    from botocore.exceptions import ClientError

_CODE = re.compile(r"[A-Za-z]{1,60}")


def make_client(
    service: Literal["s3", "sqs", "bedrock-runtime", "stepfunctions", "scheduler"],
    config: "Config",
) -> Any:
    """A client of this service, with the environment's region and credentials."""
    import boto3

    return cast("Any", boto3).client(service, config=config)


def make_best_effort_sqs_client() -> Any:
    """An SQS client for messages that may be lost: half a second to connect, half a second to
    answer, no retry of its own."""
    from botocore.config import Config

    no_retry = {"total_max_attempts": 1}
    return make_client("sqs", Config(connect_timeout=0.5, read_timeout=0.5, retries=no_retry))


def make_retrying_client(service: Literal["sqs", "stepfunctions", "scheduler"]) -> Any:
    """A client for calls that somebody waits for, with one retry: a caller that still fails comes
    again by itself."""
    from botocore.config import Config

    one_retry = {"total_max_attempts": 2}
    return make_client(service, Config(connect_timeout=2, read_timeout=5, retries=one_retry))


def call_again_if_closed(
    call: Callable[..., Any], *, or_late: bool = False, **parameters: Any
) -> Any:
    """A call of a client without retries, made once more if its connection was closed or, with
    `or_late`, nothing came back in time. A connection that was kept while Lambda had frozen the
    process may be dead, and the service is there."""
    from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

    try:
        return call(**parameters)
    except (ConnectionClosedError, ReadTimeoutError) as error:
        if isinstance(error, ReadTimeoutError) and not or_late:
            raise
    return call(**parameters)


def client_error_class() -> type[Exception]:
    """The exception of an answer that is an error. A function, so that botocore is imported only
    when an `except` clause needs it."""
    from botocore.exceptions import ClientError

    return ClientError


def all_error_classes() -> tuple[type[Exception], ...]:
    """All exceptions of a client: no answer, or an answer that is an error."""
    from botocore.exceptions import BotoCoreError

    return BotoCoreError, client_error_class()


def error_code(error: "ClientError") -> str:
    """The code of an answer that is an error, such as `ThrottlingException`. Unlike the answer's
    message it quotes nothing of the request."""
    response = cast("dict[str, dict[str, str]]", error.response)
    code = str(response.get("Error", {}).get("Code", ""))
    return code if _CODE.fullmatch(code) else "an error without a code"


def describe_error(error: Exception) -> str:
    """For the log: the code of an answer that is an error, else the kind of error."""
    if isinstance(error, client_error_class()):
        return error_code(cast("ClientError", error))
    return type(error).__name__
