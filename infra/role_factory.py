"""Roles for AWS services. The permissions are inline, so they exist as soon as the role does."""

from collections.abc import Mapping, Sequence
from typing import cast

from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.nag_suppressions import acknowledge_role_wildcards


def create_service_role(
    scope: Construct,
    id: str,
    service: str,
    allowed: Sequence[iam.PolicyStatement],
    *,
    account: str | None = None,
    source: str | None = None,
    wildcards: Mapping[str, str] | None = None,
) -> iam.IRole:
    """A role that a service assumes. With `account`, only for resources of that account, if the
    service names their owner; with `source`, only for resources of that ARN, which may have
    wildcards. `wildcards`: see `acknowledge_role_wildcards`."""
    conditions: dict[str, dict[str, str]] = {}
    if account:
        conditions["StringEquals"] = {"aws:SourceAccount": account}
    if source:
        conditions["ArnLike"] = {"aws:SourceArn": source}
    principal = iam.ServicePrincipal(f"{service}.amazonaws.com", conditions=conditions)
    role = iam.Role(
        scope,
        id,
        # The parameter name differs from the interface's: this matters to pyright, not to jsii.
        assumed_by=cast(iam.IPrincipal, principal),
        inline_policies={"allowed": iam.PolicyDocument(statements=list(allowed))},
    )
    acknowledge_role_wildcards(role, allowed, wildcards or {})
    return role.without_policy_updates()


def make_allow_statement(actions: Sequence[str], *resources: str) -> iam.PolicyStatement:
    """A statement that allows these actions on these resources."""
    return iam.PolicyStatement(actions=list(actions), resources=list(resources))
