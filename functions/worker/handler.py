"""Embeds and folds new events of the scopes that messages of the work queue name."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.background.queue_handler import handle_scope_messages
from strandline.resources import Resources

resources = Resources(load_model=True)


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Handle one batch of SQS messages; returns those that failed."""
    return handle_scope_messages(resources, event, context)
