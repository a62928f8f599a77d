"""Archive: what is cold leaves mid-term memory, payloads that nobody cites leave the store."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.background.job_handler import run_step
from strandline.chains import archive
from strandline.resources import Resources

resources = Resources()


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Do one step of a run of the state machine."""
    return run_step(archive, resources, event, context)
