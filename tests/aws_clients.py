"""Clients of S3 and SQS that tests share, and what serves them. A client costs 10 ms of processor
time, and every test begins services of its own."""

import functools
import os
from typing import Any, cast

import pytest
from botocore import session as botocore_session
from moto import backends

from strandline.aws import client_factory
from strandline.local import aws

SHARED = ("s3", "sqs")
_VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")


def share_clients(patch: pytest.MonkeyPatch) -> None:
    """Give the earlier client to anyone who asks for one of the same service, configuration and
    environment; and read the models of services from their files once."""
    botocore: Any = botocore_session
    patch.setattr(botocore, "create_loader", functools.cache(botocore.create_loader))
    make = client_factory.make_client
    results: dict[tuple[object, ...], Any] = {}

    @functools.wraps(make)
    def client(service: Any, config: Any) -> Any:
        place = tuple(os.environ.get(name) for name in _VARIABLES)
        if service not in SHARED or place[0] is None:
            return make(service, config)
        for other in [key for key in results if key[0] != place]:
            results.pop(other, None)  # of an AWS that has ended
        options = cast("dict[str, Any]", vars(config))
        key = (place, service, repr(sorted(options.items())))
        if key not in results:
            results[key] = make(service, config)
        return results[key]

    patch.setattr(client_factory, "make_client", client)


def share_applications(patch: pytest.MonkeyPatch) -> None:
    """Make moto's routes of a service once: they rest on its code alone, not on what it stores. And
    list the folders of its code once, not at each request."""
    patch.setattr(aws, "create_backend_app", functools.cache(aws.create_backend_app))
    modules = frozenset(backends.list_of_moto_modules())
    patch.setattr(backends, "list_of_moto_modules", lambda: modules)
