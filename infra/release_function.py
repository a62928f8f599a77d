"""What CloudFormation calls for `Release`: it runs `migrate`, then calls each new version of the
other functions once, unless it is a rollback. Its source stands in the template (at most 4 KiB), so
it imports nothing of ours; it runs outside the VPC."""

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
"""More than `migrate` may take."""
_PAUSES = (5.0,) * 12
"""Seconds before each further call of a version not ready or busy."""
_NOT_READY = ("ResourceConflictException", "TooManyRequestsException")


def handler(event: Mapping[str, Any], context: Any) -> None:
    """Answer a request."""
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
    """ARNs, that of `migrate` first."""
    return [properties["Version"], *properties.get("Others", ())]


def is_no_rollback(event: Mapping[str, Any]) -> bool:
    """Whether this is a release. A rollback names a version with a lower number, since Lambda never
    gives one twice; that release still serves, and nothing is applied or judged for it."""
    if event["RequestType"] == "Delete":
        return False
    former = event.get("OldResourceProperties")
    before = dict(arn.rsplit(":", 1) for arn in (list_versions(former) if former else ()))
    versions = [arn.rsplit(":", 1) for arn in list_versions(event["ResourceProperties"])]
    return all(int(number) >= int(before.get(name, 0)) for name, number in versions)


def ping_version(client: Any, version: str) -> None:
    """Call a version, unless its function is stopped. Raises RuntimeError with its reason."""
    for pause in (*_PAUSES, None):
        try:
            invoke_version(client, version, {"ping": True}, f"{version}: ")
            break
        except Exception as error:
            if type(error).__name__ == "TooManyRequestsException" and is_stopped(client, version):
                print(f"{version}: not called, its concurrency is 0")  # noqa: T201
                break
            if pause is None or type(error).__name__ not in _NOT_READY:
                raise
            time.sleep(pause)


def is_stopped(client: Any, version: str) -> bool:
    """Whether a function's concurrency is 0 (docs/upgrade.md)."""
    answer = client.get_function_concurrency(FunctionName=version.rpartition(":")[0])
    return answer.get("ReservedConcurrentExecutions") == 0


def invoke_version(client: Any, version: str, event: Mapping[str, Any], prefix: str = "") -> None:
    """Call a version and wait for it. Raises RuntimeError."""
    answer = client.invoke(FunctionName=version, Payload=json.dumps(event).encode())
    if "FunctionError" in answer:
        error = json.loads(answer["Payload"].read())
        raise RuntimeError(f"{prefix}{error.get('errorType')}: {error.get('errorMessage')}")
