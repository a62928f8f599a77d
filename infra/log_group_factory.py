"""Log groups, with the retention of the setting and the customer-managed key if there is one."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.settings import StackSettings


def create_log_group(
    scope: Construct, id: str, settings: StackSettings, key: kms.IKey | None, name: str
) -> logs.LogGroup:
    """A log group of this name. If the stack did not create it, AWS would, without retention."""
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
