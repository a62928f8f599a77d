"""AWS clients, made in one place: boto3 builds them at run time, so their type is told here.

boto3 is a fifth of what a function imports, and most first requests need no client: it is imported
when one is made.
"""

from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    from botocore.config import Config


def client(
    service: Literal["s3", "sqs", "bedrock-runtime", "stepfunctions", "scheduler"],
    config: "Config",
) -> Any:
    """A client of this service in the environment's region and with its credentials."""
    import boto3

    return cast("Any", boto3).client(service, config=config)


def best_effort_sqs_client() -> Any:
    """SQS for messages that may be lost: half a second to connect and to answer, and no retry."""
    from botocore.config import Config

    no_retry = {"total_max_attempts": 1}
    return client("sqs", Config(connect_timeout=0.5, read_timeout=0.5, retries=no_retry))


def retrying_client(service: Literal["sqs", "stepfunctions", "scheduler"]) -> Any:
    """A service that somebody waits for, who comes again where it fails."""
    from botocore.config import Config

    one_retry = {"total_max_attempts": 2}
    return client(service, Config(connect_timeout=2, read_timeout=5, retries=one_retry))


def client_error() -> type[Exception]:
    """What a client raises for an answer that is an error. (`except` asks when it has to know.)"""
    from botocore.exceptions import ClientError

    return ClientError


def all_errors() -> tuple[type[Exception], ...]:
    """All that a client raises: no answer, or one that is an error."""
    from botocore.exceptions import BotoCoreError

    return BotoCoreError, client_error()
