"""Wake: runs of jobs that were wished for begin, now or when their time has come."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.background.schedule_handler import RunScheduler, schedule_runs

scheduler = RunScheduler()


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Serve one batch of SQS messages; answers which of them failed."""
    return schedule_runs(scheduler, event, context)
