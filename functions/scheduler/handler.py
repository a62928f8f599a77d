"""Starts requested runs of jobs, now or at their time."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.background.run_request_handler import SchedulerResources, handle_run_requests

scheduler = SchedulerResources()


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Handle one batch of SQS messages; returns those that failed."""
    return handle_run_requests(scheduler, event, context)
