"""Roles of AWS's services: what one may do is in the role itself, there as soon as the role is."""

from collections.abc import Mapping, Sequence
from typing import cast

from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.nag_suppressions import acknowledge_wildcards


def service_role(
    scope: Construct,
    id: str,
    service: str,
    allowed: Sequence[iam.PolicyStatement],
    *,
    account: str | None = None,
    wildcards: Mapping[str, str] | None = None,
) -> iam.IRole:
    """A role that a service takes on; for the resources of one account, where the service says
    whose they are. `wildcards` says which may stand, see `accept_wildcards`."""
    conditions = {"StringEquals": {"aws:SourceAccount": account}} if account else None
    principal = iam.ServicePrincipal(f"{service}.amazonaws.com", conditions=conditions)
    role = iam.Role(
        scope,
        id,
        # Its parameter's name differs from the interface's, which pyright minds and jsii does not.
        assumed_by=cast(iam.IPrincipal, principal),
        inline_policies={"allowed": iam.PolicyDocument(statements=list(allowed))},
    )
    acknowledge_wildcards(role, allowed, wildcards or {})
    return role.without_policy_updates()


def allow(actions: Sequence[str], *resources: str) -> iam.PolicyStatement:
    """These actions on these resources."""
    return iam.PolicyStatement(actions=list(actions), resources=list(resources))
