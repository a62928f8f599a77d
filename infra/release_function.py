"""What CloudFormation calls for `Release`: it runs `migrate`, then pings each new version of the
others, unless it is a rollback. It stands in the template, which takes 4 KiB."""

import functools
import json
import time
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError

_BOTO3: Any = boto3
_READ_SECONDS = 340
"""After 350 a silent connection is cut."""
_PAUSE = 5.0
_PATIENCE = {"AccessDeniedException": 60, "LoginRefused": 60, "ResourceConflictException": 60}
_PATIENCE["TooManyRequestsException"] = 180
"""Seconds from a start in which it is called again: rights may be new, jobs busy."""


def handler(event: Mapping[str, Any], context: Any) -> None:
    status, reason = "SUCCESS", f"Log: {context.log_stream_name}"
    try:
        if is_no_rollback(event):
            config = Config(read_timeout=_READ_SECONDS, retries={"total_max_attempts": 1})
            client = _BOTO3.client("lambda", config=config)
            migrate, *others = list_versions(event["ResourceProperties"])
            run_migrate(client, migrate)
            with ThreadPoolExecutor(20) as pool:
                ping = functools.partial(invoke_version, client, {"ping": True}, time.monotonic())
                list(pool.map(ping, others))
    except Exception as error:
        status, reason = "FAILED", f"{error}"[:1000]
    answer = {
        "Status": status,
        "Reason": reason,
        "PhysicalResourceId": "release",
        **{name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")},
    }
    request = urllib.request.Request(  # noqa: S310
        event["ResponseURL"], json.dumps(answer).encode(), {"content-type": ""}, method="PUT"
    )
    urllib.request.urlopen(request, timeout=30).close()  # noqa: S310


def list_versions(properties: Mapping[str, Any]) -> list[str]:
    """ARNs, that of `migrate` first."""
    return [properties["Version"], *properties.get("Others", ())]


def is_no_rollback(event: Mapping[str, Any]) -> bool:
    """Whether this is a release. A rollback names a version with a lower number, since Lambda never
    gives one twice."""
    if event["RequestType"] == "Delete":
        return False
    former = event.get("OldResourceProperties")
    before = dict(arn.rsplit(":", 1) for arn in (list_versions(former) if former else ()))
    versions = [arn.rsplit(":", 1) for arn in list_versions(event["ResourceProperties"])]
    return all(int(number) >= int(before.get(name, 0)) for name, number in versions)


def run_migrate(client: Any, version: str) -> None:
    """Call it, and again if it outlasts the connection: the second run waits for the first."""
    start = time.monotonic()
    try:
        invoke_version(client, {}, start, version)
    except ReadTimeoutError:
        invoke_version(client, {}, start, version)


def invoke_version(client: Any, event: Mapping[str, Any], start: float, version: str) -> None:
    """Call a version when it is ready; no ping if its function's concurrency is 0
    (docs/upgrade.md)."""
    while True:
        try:
            answer = client.invoke(FunctionName=version, Payload=json.dumps(event).encode())
            if "FunctionError" not in answer:
                return
            fault = json.loads(answer["Payload"].read())
            kind = fault.get("errorType")
            error: Exception = RuntimeError(f"{version}: {kind}: {fault.get('errorMessage')}")
        except ClientError as refusal:
            error = refusal
            kind = cast(Any, refusal).response["Error"]["Code"]
        if kind == "TooManyRequestsException" and event:
            function = version.rpartition(":")[0]
            limit = client.get_function_concurrency(FunctionName=function)
            if limit.get("ReservedConcurrentExecutions") == 0:
                return
        if time.monotonic() - start >= _PATIENCE.get(kind, 0):
            raise error
        time.sleep(_PAUSE)
