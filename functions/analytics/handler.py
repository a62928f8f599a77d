"""Runs the analytics: communities and bridges of the knowledge graph."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.background.job_handler import run_step
from strandline.graph.communities import analytics
from strandline.resources import Resources

resources = Resources()


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Perform one step of a run of the state machine."""
    return run_step(analytics, resources, event, context)
