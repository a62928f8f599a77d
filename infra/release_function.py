"""The function that CloudFormation calls for the resource `Release`: it runs `migrate`, unless the
deployment is being rolled back. Its whole source stands in the template, so it imports nothing of
ours; it runs outside the VPC, because it must reach Lambda and CloudFormation."""

import json
import urllib.request
from collections.abc import Mapping
from typing import Any

import boto3  # pyright: ignore[reportMissingTypeStubs]
from botocore.config import Config

_BOTO3: Any = boto3
_READ_SECONDS = 840
"""More than `migrate` may take, less than this function may."""


def handler(event: Mapping[str, Any], context: Any) -> None:
    """Answer one request of CloudFormation."""
    status, reason = "SUCCESS", ""
    try:
        if is_no_rollback(event):
            invoke_migrate_version(event["ResourceProperties"]["Version"])
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


def is_no_rollback(event: Mapping[str, Any]) -> bool:
    """Whether this request belongs to a release and not to a rollback. A rollback restores the
    previous properties, and so names a version of `migrate` with a lower number: Lambda never gives
    a number twice. That version's release is the one that still serves: nothing has to be applied
    or judged for it."""
    if event["RequestType"] == "Delete":
        return False
    name, _, number = event["ResourceProperties"]["Version"].rpartition(":")
    before = event.get("OldResourceProperties", {}).get("Version", "")
    name_before, _, number_before = before.rpartition(":")
    return name != name_before or int(number) >= int(number_before)


def invoke_migrate_version(version: str) -> None:
    """Call this version of `migrate`, and wait for it. Raises RuntimeError with its reason."""
    config = Config(read_timeout=_READ_SECONDS, retries={"total_max_attempts": 1})
    answer = _BOTO3.client("lambda", config=config).invoke(FunctionName=version, Payload=b"{}")
    if "FunctionError" in answer:
        error = json.loads(answer["Payload"].read())
        raise RuntimeError(f"{error.get('errorType')}: {error.get('errorMessage')}")
