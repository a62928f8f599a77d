"""What an operator must be permitted is in the guide: every command that the pages name, and every
call of the commands of the Makefile."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from infra import first_key, preflight, teardown
from tests.infra.service_models import read_operations
from tests.infra.stacks import ROOT

PAGES = ("deploy.md", "upgrade.md", "runbook.md", "limits.md")
ADMINISTRATOR = {"cloudformation deploy", "sts get_caller_identity"}
"""An administrator's, or permitted to everybody."""
OF_SERVICES = {
    *("sts:AssumeRole", "kms:Decrypt", "kms:GenerateDataKey"),
    *("kms:CreateGrant", "kms:DescribeKey"),
}
"""What the CDK's command line does, and what services do for the caller with the stage's key."""
PREFIXES = {
    "service-quotas": "servicequotas",
    "resourcegroupstaggingapi": "tag",
    "stepfunctions": "states",
}
"""Prefixes of IAM actions that differ from the service's name in AWS's CLI."""
OTHER: Mapping[str, tuple[str, ...]] = {
    "apigateway get_account": ("apigateway:GET",),
    "apigateway get_domain_name": ("apigateway:GET",),
    "apigateway get_rest_api": ("apigateway:GET",),
    "budgets describe_budgets": ("budgets:ViewBudget",),
    "ec2 create_vpc_endpoint": (
        "ec2:CreateVpcEndpoint",
        "route53:AssociateVPCWithHostedZone",
    ),
    "lambda invoke": ("lambda:InvokeFunction",),
    "rds create_db_cluster_snapshot": ("rds:CreateDBClusterSnapshot", "rds:AddTagsToResource"),
    "rds generate_db_auth_token": ("rds-db:connect",),
    "rds restore_db_cluster_to_point_in_time": (
        "rds:RestoreDBClusterToPointInTime",
        "rds:AddTagsToResource",
    ),
    "rds wait db_cluster_available": ("rds:DescribeDBClusters",),
    "rds wait db_cluster_deleted": ("rds:DescribeDBClusters",),
    "rds wait db_cluster_snapshot_available": ("rds:DescribeDBClusterSnapshots",),
    "s3 delete_object": ("s3:DeleteObjectVersion",),
    "s3 delete_objects": ("s3:DeleteObjectVersion",),
    "s3 list_object_versions": ("s3:ListBucketVersions",),
    "s3 sync": ("s3:ListBucket", "s3:GetObject", "s3:PutObject"),
    "sqs start_message_move_task": (
        *("sqs:StartMessageMoveTask", "sqs:ReceiveMessage", "sqs:DeleteMessage"),
        *("sqs:GetQueueAttributes", "sqs:SendMessage"),
    ),
}
"""Operations whose permission has another name, or that need several."""


def list_commands(text: str) -> Iterator[str]:
    """Commands of AWS's CLI, as "service operation"."""
    joined = re.sub(r"(\baws [a-z0-9-]+)\n\s*", r"\1 ", text)
    pattern = r"\baws ([a-z0-9-]+) (wait )?([a-z0-9]+(?:-[a-z0-9]+)+|invoke|sync|deploy)\b"
    for service, wait, operation in re.findall(pattern, joined):
        yield f"{service.replace('s3api', 's3')} {wait}{operation.replace('-', '_')}"


def list_calls(source: str) -> Iterator[str]:
    """Calls of botocore's clients in a module."""
    yield from (
        f"{service} {name}"
        for service, name in re.findall(r'account\.call\(\s*"([\w-]+)",\s*"(\w+)"', source)
    )
    clients = dict(re.findall(r'(\w+) = [\w.()]*make_client\("(\w+)"\)\n', source))
    receivers = {rf"\b{name}": service for name, service in clients.items()}
    for service in set(re.findall(r'make_client\("(\w+)"\)', source)):
        receivers[rf'make_client\("{service}"\)'] = service
    for receiver, service in receivers.items():
        pattern = rf'{receiver}\.(?:get_paginator\("(\w+)"\)|(\w+)\()'
        for paged, called in re.findall(pattern, source):
            yield f"{service} {paged or called}"


def permissions_of(operation: str) -> tuple[str, ...]:
    """The IAM actions that an operation needs."""
    if operation in OTHER:
        return OTHER[operation]
    service, _, name = operation.partition(" ")
    return (f"{PREFIXES.get(service, service)}:{read_operations(service)[name].name}",)


def list_named(guide: str) -> set[str]:
    """The IAM actions of the guide's table."""
    table = guide.partition("\n## Permissions\n")[2].partition("\n## ")[0]
    return set(re.findall(r"`([\w-]+:\w+)`", table)) - {"strandline:stack"}


def find_missing(guide: str, wanted: Mapping[str, str]) -> set[str]:
    """Operations, each with where it stands, whose permission the guide's table does not name."""
    return {
        f"{place}: {operation}"
        for operation, place in wanted.items()
        if operation not in ADMINISTRATOR
        and not list_named(guide).issuperset(permissions_of(operation))
    }


@pytest.fixture(scope="module")
def wanted() -> Mapping[str, str]:
    """Every operation, and a place where it stands."""
    pages = {name: (ROOT / "docs" / name).read_text() for name in PAGES}
    modules = [Path(str(module.__file__)) for module in (first_key, preflight, teardown)]
    return {
        **{command: name for name, text in pages.items() for command in list_commands(text)},
        **{call: path.name for path in modules for call in list_calls(path.read_text())},
    }


def test_operator_permissions_cover_every_command_and_call(wanted: Mapping[str, str]) -> None:
    assert len(wanted) >= 60, "the patterns find them"
    names = {"rds wait db_cluster_available", "ec2 create_vpc_endpoint", "s3 delete_bucket"}
    assert names <= wanted.keys()
    guide = (ROOT / "docs" / "deploy.md").read_text()
    assert find_missing(guide, wanted) == set()
    needed = {a for one in wanted if one not in ADMINISTRATOR for a in permissions_of(one)}
    assert list_named(guide) == needed | OF_SERVICES, "and nothing that nobody needs"


def test_operator_permissions_check_finds_missing_one(wanted: Mapping[str, str]) -> None:
    guide = (ROOT / "docs" / "deploy.md").read_text().replace("`lambda:UpdateAlias`", "")
    assert find_missing(guide, wanted) == {"upgrade.md: lambda update_alias"}
