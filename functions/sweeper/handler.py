"""Runs the sweeper: work that no queue message named, and work that became due."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.background import sweeper
from strandline.background.job_handler import run_step
from strandline.background.stage_backlog import log_stage_backlog
from strandline.resources import Resources

resources = Resources(load_model=True)


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Perform one step of a run of the state machine."""
    return run_step(sweeper, resources, event, context, log_stage_backlog)
