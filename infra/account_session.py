"""The account and Region that a command asks: those of the environment, as AWS's CLI takes them."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import boto3
from botocore.config import Config

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
