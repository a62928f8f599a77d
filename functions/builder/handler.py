"""Runs the builder: it grows the topic index and publishes snapshots of it."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.background.job_handler import run_step
from strandline.resources import Resources
from strandline.topics import builder

resources = Resources()


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Perform one step of a run of the state machine."""
    return run_step(builder, resources, event, context)
