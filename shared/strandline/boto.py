"""AWS clients, made in one place: boto3 builds them at run time, so their type is told here."""

from typing import Any, Literal, cast

import boto3
from botocore.config import Config


def client(
    service: Literal["s3", "sqs", "bedrock-runtime", "stepfunctions"], config: Config
) -> Any:
    """A client of this service in the environment's region and with its credentials."""
    return cast("Any", boto3).client(service, config=config)
