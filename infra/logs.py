"""Log groups: kept as long as the setting says, under the key of one's own if there is one."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.settings import StackSettings


def log_group(
    scope: Construct, id: str, settings: StackSettings, key: kms.IKey | None, name: str
) -> logs.LogGroup:
    """A log group of this name, which the stack makes so that nobody else makes it for ever."""
    group = logs.LogGroup(
        scope,
        id,
        log_group_name=name,
        encryption_key=key,
        removal_policy=RemovalPolicy.DESTROY,
    )
    cfn = group.node.default_child
    assert isinstance(cfn, logs.CfnLogGroup)
    cfn.retention_in_days = settings.log_days
    return group
