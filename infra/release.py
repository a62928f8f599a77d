"""The order of a release: first the database, then the aliases."""

from collections.abc import Mapping

from aws_cdk import CfnResource, Duration, Stack, triggers
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.compute import Compute, StackParts
from infra.logs import log_group
from infra.settings import StackSettings
from strandline.deployment import FUNCTIONS

_CALLER = "AWSCDK.TriggerCustomResourceProviderCustomResourceProvider"
"""The id of the CDK's own function that calls `migrate`."""


class Release(Construct):
    """Runs `migrate` during every deployment that changes it or the layers it is made of. The other
    functions' aliases move only after it; if it fails they stay, and the deployment is rolled back.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        settings: StackSettings,
        parts: StackParts,
        compute: Compute,
    ) -> None:
        super().__init__(scope, id)
        timeout = next(fn.timeout for fn in FUNCTIONS if fn.name == "migrate")
        trigger = triggers.Trigger(
            self,
            "Migrate",
            handler=compute.functions["migrate"],
            timeout=Duration.seconds(timeout),
            # The alias of `migrate` too: a long migration continues as a run of the state machine.
            execute_after=[parts.network, parts.database, compute.aliases["migrate"]],
            execute_before=_other_aliases(compute.aliases),
        )
        caller = Stack.of(self).node.find_child(_CALLER).node.find_child("Handler")
        assert isinstance(caller, CfnResource)
        name = f"/aws/lambda/{caller.ref}"
        log = log_group(self, "CallerLogs", settings, parts.storage.key, name)
        trigger.node.add_dependency(log)


def _other_aliases(aliases: Mapping[str, lambda_.Alias]) -> list[Construct]:
    return [alias for name, alias in aliases.items() if name != "migrate"]
