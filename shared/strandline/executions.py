"""Runs of the state machine that does background jobs, started by a request."""

import json
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from strandline import boto
from strandline.errors import Unavailable

_CONFIG = Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 2})


class Executions:
    """The state machine of an ARN; without one nothing is started."""

    def __init__(self, arn: str) -> None:
        self._arn = arn
        self._states: Any = boto.client("stepfunctions", _CONFIG) if arn else None

    def start(self, job: str, tenant: str, run: str) -> None:
        """Start a run of a job in one tenant; again it is the same run. Raises Unavailable."""
        if not self._arn:
            raise Unavailable(
                "No job can be started by a request here: the operator has not set "
                "STRANDLINE_STATE_MACHINE. Jobs run on their schedules."
            )
        try:
            self._states.start_execution(
                stateMachineArn=self._arn,
                name=run,
                input=json.dumps({"job": job, "tenant": tenant}),
            )
        except (BotoCoreError, ClientError) as error:
            raise Unavailable("The state machine cannot be reached. Try again.") from error
