"""A release's order: the database first, then what is called."""

from collections.abc import Mapping

from aws_cdk import Duration, triggers
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.compute import Compute
from infra.database import Database
from infra.functions import FUNCTIONS


class Release(Construct):
    """Runs `migrate` during every deployment that changes it or the layers it is made of. The other
    functions' aliases move only after it; if it fails they stay, and the deployment is rolled back.
    """

    def __init__(self, scope: Construct, id: str, compute: Compute, database: Database) -> None:
        super().__init__(scope, id)
        timeout = next(fn.timeout for fn in FUNCTIONS if fn.name == "migrate")
        triggers.Trigger(
            self,
            "Migrate",
            handler=compute.functions["migrate"],
            timeout=Duration.seconds(timeout),
            # Its alias too: a migration that takes long goes on as a run of the state machine.
            execute_after=[database, compute.aliases["migrate"]],
            execute_before=_others(compute.aliases),
        )


def _others(aliases: Mapping[str, lambda_.Alias]) -> list[Construct]:
    return [alias for name, alias in aliases.items() if name != "migrate"]
