"""The account and Region that a command asks: those of the environment, as AWS's CLI takes them."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

_EMPTY = ("ROLLBACK_COMPLETE", "REVIEW_IN_PROGRESS")
"""States of a stack without resources."""
_CONFIG = Config(connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 3})


class AccountSession(NamedTuple):
    """Where a command looks."""

    region: str
    make_client: Callable[[str], Any]
    """A client of a service, in the Region."""


def open_account_session(region: str | None = None) -> AccountSession:
    """With the environment's credentials, in this Region or the environment's: `AWS_REGION`, which
    boto3 by itself does not read, or the profile's. Raises ValueError where none is set."""
    session: Any = cast("Any", boto3).Session(
        region_name=region or os.environ.get("AWS_REGION") or None
    )
    if not session.region_name:
        raise ValueError("no Region is set: export AWS_REGION, or AWS_PROFILE with one")

    def make_client(service: str) -> Any:
        return session.client(service, config=_CONFIG)

    return AccountSession(session.region_name, make_client)


@dataclass(frozen=True)
class Account:
    """An account and a Region of it."""

    account_id: str
    region: str
    stack_exists: bool
    """Whether the stage's stack is there: what it has taken is not asked for again."""
    make_client: Callable[[str], Any]

    def call(self, service: str, operation: str, **parameters: object) -> Any:
        """What an operation (in snake case) answers."""
        return getattr(self.make_client(service), operation)(**parameters)


def find_account(
    stack: str, make_client: Callable[[str], Any], account_id: str, region: str
) -> Account:
    """The account, and whether it has the stage's stack. One whose first deployment was rolled
    back, or only looked at, has nothing of it."""
    try:
        answer = make_client("cloudformation").describe_stacks(StackName=stack)
    except ClientError as error:
        if read_error_code(error) != "ValidationError":
            raise
        return Account(account_id, region, False, make_client)
    exists = answer["Stacks"][0]["StackStatus"] not in _EMPTY
    return Account(account_id, region, exists, make_client)


def read_error_code(error: ClientError) -> str:
    """The code of what AWS refuses; empty where it gives none."""
    response = cast("Mapping[str, Mapping[str, str]]", error.response)
    return response["Error"].get("Code", "")
