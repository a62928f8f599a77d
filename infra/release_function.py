"""The function that CloudFormation calls for the resource `Release`: it runs `migrate`, and then
calls each new version of the other functions once, unless the deployment is being rolled back. Its
whole source stands in the template, so it imports nothing of ours; it runs outside the VPC, because
it must reach Lambda and CloudFormation."""

import functools
import json
import time
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3  # pyright: ignore[reportMissingTypeStubs]
from botocore.config import Config

_BOTO3: Any = boto3
_READ_SECONDS = 840
"""More than `migrate` may take, less than this function may."""
_PAUSES = (5.0,) * 12
"""Seconds before each further call of a version that is not ready, or whose instances are busy."""
_NOT_READY = ("ResourceConflictException", "TooManyRequestsException")


def handler(event: Mapping[str, Any], context: Any) -> None:
    """Answer one request of CloudFormation."""
    status, reason = "SUCCESS", ""
    try:
        if is_no_rollback(event):
            config = Config(read_timeout=_READ_SECONDS, retries={"total_max_attempts": 1})
            client = _BOTO3.client("lambda", config=config)  # which threads may share
            migrate, *others = list_versions(event["ResourceProperties"])
            invoke_version(client, migrate, {})
            with ThreadPoolExecutor(max(1, len(others))) as pool:
                list(pool.map(functools.partial(ping_version, client), others))
    except Exception as error:
        status, reason = "FAILED", f"{error}"[:1000]
    answer = {
        "Status": status,
        "Reason": reason or f"Log: {context.log_stream_name}",
        "PhysicalResourceId": "release",
        **{name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")},
    }
    request = urllib.request.Request(  # noqa: S310 - CloudFormation's
        event["ResponseURL"], json.dumps(answer).encode(), {"content-type": ""}, method="PUT"
    )
    urllib.request.urlopen(request, timeout=30).close()  # noqa: S310


def list_versions(properties: Mapping[str, Any]) -> list[str]:
    """The ARNs of the release's versions: that of `migrate`, and those of the others."""
    return [properties["Version"], *properties.get("Others", ())]


def is_no_rollback(event: Mapping[str, Any]) -> bool:
    """Whether this request belongs to a release and not to a rollback. A rollback restores the
    previous properties, and so names a version with a lower number: Lambda never gives a number
    twice. That release is the one that still serves: nothing has to be applied or judged for it."""
    if event["RequestType"] == "Delete":
        return False
    former = event.get("OldResourceProperties")
    before = dict(arn.rsplit(":", 1) for arn in (list_versions(former) if former else ()))
    versions = [arn.rsplit(":", 1) for arn in list_versions(event["ResourceProperties"])]
    return all(int(number) >= int(before.get(name, 0)) for name, number in versions)


def ping_version(client: Any, version: str) -> None:
    """Call a version to which no alias points yet. Raises RuntimeError with its reason."""
    for pause in (*_PAUSES, None):
        try:
            invoke_version(client, version, {"ping": True}, f"{version}: ")
            break
        except Exception as error:
            if pause is None or type(error).__name__ not in _NOT_READY:
                raise
            time.sleep(pause)


def invoke_version(client: Any, version: str, event: Mapping[str, Any], prefix: str = "") -> None:
    """Call a version, and wait for it. Raises RuntimeError with its reason."""
    answer = client.invoke(FunctionName=version, Payload=json.dumps(event).encode())
    if "FunctionError" in answer:
        error = json.loads(answer["Payload"].read())
        raise RuntimeError(f"{prefix}{error.get('errorType')}: {error.get('errorMessage')}")
