"""Migrates the database to this release's schema, before traffic moves to the release."""

import os
import time
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.admin.prepare_release import prepare_release
from strandline.aws import secrets

RESERVE_SECONDS = 70.0
"""Time reserved before the timeout: for a batch of a long migration and the end of a run."""
WAIT_SECONDS = 260.0
"""After so long nothing more is begun or waited for: a caller's connection is cut when nothing came
for 350 seconds, and the reason of a failure would be lost."""


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Apply what is pending. A deployment or the state machine calls it; an error fails the
    function, and so the deployment."""
    del event
    secrets.load_secret_into_env(os.environ)
    seconds = context.get_remaining_time_in_millis() / 1000 - RESERVE_SECONDS
    deadline = time.monotonic() + min(seconds, WAIT_SECONDS)
    return prepare_release(os.environ, deadline)._asdict()
