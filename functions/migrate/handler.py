"""Bring the database to this release's schema, before any traffic moves to it."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.services.migrate import migrate_from_environment


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Apply what is missing; answers the names of what was applied."""
    del event, context
    return {"applied": migrate_from_environment()}
