"""`make first-key`: after a deployment, a tenant and its first key for agents, with a first call
to copy. It reads the deployment's outputs from the file that the CDK wrote, and the operator's key
from its secret."""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx2
from botocore.exceptions import BotoCoreError, ClientError

from infra.account_session import open_account_session
from strandline import Strandline
from strandline.client.errors import ServiceError, StateConflictError
from strandline.client.retries import Retry

OUTPUTS = Path("build/outputs.json")
"""Where cdk.json has the CDK write the outputs of a deployment."""
_WAKING = Retry(seconds=90)
"""A paused database needs some 15 seconds."""


class OutputsMissing(Exception):
    """The file names no such deployment. The message says what to do."""


class Deployment(NamedTuple):
    """What the outputs of a stack say."""

    url: str
    """Address of the API, without a slash at its end."""
    first_key_secret: str
    """ARN of the secret with the operator's key."""


def read_deployment(outputs: Mapping[str, Mapping[str, str]], stack: str | None) -> Deployment:
    """The stack of this name, or the only one. Raises OutputsMissing."""
    names = [stack] if stack else [*outputs]
    if len(names) != 1 or names[0] not in outputs:
        there = ", ".join(outputs) or "none"
        raise OutputsMissing(f"--stack: name one of the stacks that were deployed: {there}")
    values = outputs[names[0]]
    return Deployment(values["ApiUrl"].rstrip("/"), values["FirstKeySecret"])


def make_first_key(
    deployment: Deployment,
    tenant: str,
    read_secret: Callable[[str], str],
    transport: httpx2.BaseTransport | None = None,
) -> str:
    """Create the tenant, unless it is there, and a key of it that reads and writes. Returns the
    key's token, which is shown once. `transport` carries the requests; None: HTTP. Raises
    ServiceError for a refusal."""
    with httpx2.Client(transport=transport, timeout=30.0) as http:
        operator = Strandline(
            deployment.url, read_secret(deployment.first_key_secret), http=http, retry=_WAKING
        )
        with contextlib.suppress(StateConflictError):  # an earlier run created it
            operator.admin.create_tenant(tenant)
        return operator.admin.create_key(tenant, rights=["read", "write"], label="first").token


def describe_first_call(url: str, token: str) -> str:
    """What to copy into a shell."""
    event = {"participants": ["user:alice", "agent:helper"], "role": "user"}
    event |= {"content": "The buoy goes out on Friday."}
    return (
        f"STRANDLINE_URL={url}\nSTRANDLINE_API_KEY={token}    # shown once: keep it\n\n"
        f"curl -s {url}/api/v1/events -H 'X-API-Key: {token}' "
        f"-H 'Content-Type: application/json' -d '{json.dumps(event)}'\n"
    )


def _read_secret(arn: str) -> str:
    region = arn.split(":")[3]
    manager = open_account_session(region).make_client("secretsmanager")
    return str(manager.get_secret_value(SecretId=arn)["SecretString"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the key. Returns 1 if the deployment refuses, 2 if there is none."""
    parser = argparse.ArgumentParser(prog="make first-key", description=__doc__)
    parser.add_argument("--tenant", default="acme", help="created if it is new")
    parser.add_argument("--stack", help="which, if the file has several")
    parser.add_argument("--outputs", type=Path, default=OUTPUTS, help="what the CDK wrote")
    options = parser.parse_args(arguments)
    try:
        outputs = json.loads(options.outputs.read_text())
        deployment = read_deployment(outputs, options.stack)
        token = make_first_key(deployment, options.tenant, _read_secret)
    except (OutputsMissing, OSError, ValueError) as error:
        sys.stderr.write(f"strandline: {error}. npx cdk deploy writes {OUTPUTS}.\n")
        return 2
    except (ServiceError, ClientError, BotoCoreError) as error:
        sys.stderr.write(f"strandline: {error}\n")
        return 1
    sys.stdout.write(describe_first_call(deployment.url, token))
    return 0


if __name__ == "__main__":
    sys.exit(main())
