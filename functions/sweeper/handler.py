"""Sweep: what no hint named, and what time has brought about."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.background import sweeper
from strandline.background.job_handler import run_step
from strandline.resources import Resources

resources = Resources(load_model=True)


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Do one step of a run of the state machine."""
    return run_step(sweeper, resources, event, context)
