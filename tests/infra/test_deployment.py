"""What only an account would show, looked for in the template: a rule that is there twice, a name
that two stacks have, a restored database that nobody moves to, a topic that nobody may tell."""

import copy
import json
import re
from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from strandline.function_specs import FUNCTIONS
from tests.infra.stacks import (
    CONTEXT,
    FIREWALL,
    KEY,
    ROOT,
    SECOND,
    SEVERAL,
    VARIANTS,
    Template,
    properties,
    template,
)

NAMES = list(VARIANTS)
ACCOUNT = {"Ref": "AWS::AccountId"}


def of(stack: Template, kind: str) -> list[dict[str, Any]]:
    """The properties of all resources of a kind."""
    return list(properties(stack, kind).values())


def only(stack: Template, kind: str) -> dict[str, Any]:
    (props,) = of(stack, kind)
    return props


# twice -------------------------------------------------------------------------------------------


def twice(stack: Template) -> list[str]:
    """Rules of security groups that EC2 would refuse: the same group, peer and port once more."""
    ids, duplicates = set[str](), list[str]()
    for kind in ("Ingress", "Egress"):
        for name, rule in properties(stack, f"EC2::SecurityGroup{kind}").items():
            if isinstance(port := rule["FromPort"], dict):  # the cluster's, which is the default
                assert port["Fn::GetAtt"][1] == "Endpoint.Port"
                port = 5432
            peers = {n: v for n, v in rule.items() if "SecurityGroupId" in n or "Cidr" in n}
            key = json.dumps([kind, rule["GroupId"], port, peers], sort_keys=True)
            duplicates += [name] if key in ids else []
            ids.add(key)
    return duplicates


@pytest.mark.parametrize("name", NAMES)
def test_deployment_has_no_duplicate_rule(name: str) -> None:
    stack = template(**VARIANTS[name])
    assert not twice(stack)
    rule = next(r for n, r in stack["Resources"].items() if "fromstrandlinedevNetwork" in n)
    stack["Resources"]["Again"] = copy.deepcopy(rule)
    assert twice(stack) == ["Again"]


def test_deployment_stacks_have_proxy_names_of_their_own() -> None:
    one, two = (only(template(**props), "RDS::DBProxy") for props in (VARIANTS["proxy"], SECOND))
    assert (one["DBProxyName"], two["DBProxyName"]) == ("strandline-dev", "second")


def test_deployment_vpc_has_range_of_setting() -> None:
    """The default is the one that stacks have; a small one has room for all subnets."""
    stack = template()
    assert only(stack, "EC2::VPC")["CidrBlock"] == "10.0.0.0/16"
    assert {s["CidrBlock"] for s in of(stack, "EC2::Subnet")} == {"10.0.0.0/20", "10.0.16.0/20"}
    stack = template(**VARIANTS["nat"])
    vpc = IPv4Network(only(stack, "EC2::VPC")["CidrBlock"])
    subnets = [IPv4Network(s["CidrBlock"]) for s in of(stack, "EC2::Subnet")]
    assert str(vpc) == VARIANTS["nat"]["cidr"]
    assert len(subnets) == 4
    assert all(subnet.subnet_of(vpc) and subnet.prefixlen <= 28 for subnet in subnets)


# releases ----------------------------------------------------------------------------------------


def versions(stack: Template) -> dict[str, str]:
    """The version that is made of each function."""
    results = [name for name in properties(stack, "Lambda::Version") if name.startswith("Compute")]
    return {fn.name: n for fn in FUNCTIONS for n in results if f"Compute{fn.name.title()}" in n}


def migrates(stack: Template) -> Any:
    (trigger,) = (r for r in stack["Resources"].values() if r["Type"] == "Custom::Release")
    return trigger["Properties"]["Version"]


def find_statement(variant: str, role_name: str, action: str) -> Mapping[str, Any]:
    """The one statement of a role that allows this action alone."""
    roles = properties(template(**VARIANTS[variant]), "IAM::Role")
    (role,) = (role for name, role in roles.items() if name.startswith(role_name))
    (statement,) = (
        one
        for policy in role["Policies"]
        for one in policy["PolicyDocument"]["Statement"]
        if one["Action"] == action
    )
    return statement


def test_deployment_with_proxy_keeps_way_into_cluster() -> None:
    """Roles are shared: until the aliases move, versions of before the proxy log in to the cluster,
    and after a rollback."""
    statement = find_statement("proxy", "ComputeIngestRole", "rds-db:connect")
    cluster, proxy = map(json.dumps, statement["Resource"])
    assert "DBClusterResourceId" in cluster
    assert "DBProxyArn" in proxy


@pytest.mark.parametrize("proxy", [False, True])
def test_deployment_migrates_restored_database_and_moves_to_it(proxy: bool) -> None:
    """Its address is the same text in the template. A new version needs new settings, too: Lambda
    makes none of a function that is as before, and behind a proxy the address does not change."""
    extra = VARIANTS["proxy"] if proxy else {}
    before, after = template(**extra), template(**extra, **VARIANTS["restored"])
    with_database = {fn.name for fn in FUNCTIONS if {"database", "owner"} & fn.needs}
    was, now = versions(before), versions(after)
    assert {name for name in was if was[name] != now[name]} == with_database
    assert migrates(before) != migrates(after)

    def messages_of(stack: Template) -> list[Any]:
        variables = [p["Environment"]["Variables"] for p in of(stack, "Lambda::Function")[:-1]]
        return [v["STRANDLINE_CLUSTER"] for v in variables if "STRANDLINE_DATABASE_AUTH" in v]

    assert len(messages_of(before)) == len(with_database)
    assert not set(messages_of(before)) & set(messages_of(after))


def test_deployment_can_be_retried_after_failure() -> None:
    """What it made for the first time goes when it is undone, and what was there before stays."""
    resources = template(**VARIANTS["own key"])["Resources"].values()
    remaining = {r["Type"] for r in resources if r.get("DeletionPolicy") == "RetainExceptOnCreate"}
    assert remaining == {
        *("AWS::Lambda::Version", "AWS::S3::Bucket", "AWS::SecretsManager::Secret"),
        "AWS::KMS::Key",
    }
    for resource in resources:
        if resource.get("DeletionPolicy") == "RetainExceptOnCreate":
            assert resource["UpdateReplacePolicy"] == "Retain"


def test_deployment_calls_migrate_after_network() -> None:
    stack_resources = template(**VARIANTS["nat"])["Resources"]
    (trigger,) = (r for r in stack_resources.values() if r["Type"] == "Custom::Release")
    ways = {"AWS::EC2::Route", "AWS::EC2::NatGateway", "AWS::EC2::VPCGatewayAttachment"}
    assert {stack_resources[n]["Type"] for n in trigger["DependsOn"]} >= ways
    resources = template()["Resources"]
    (trigger,) = (r for r in resources.values() if r["Type"] == "Custom::Release")
    assert {n for n in resources if resources[n]["Type"] == "AWS::EC2::VPCEndpoint"} <= set(
        trigger["DependsOn"]
    )


# who may, and what is under whose key -------------------------------------------------------------


def told_by(stack: Template) -> list[str]:
    """Services of the account that the stack's topic hears."""
    policies = of(stack, "SNS::TopicPolicy")
    return [
        s["Principal"]["Service"]
        for p in policies
        for s in p["PolicyDocument"]["Statement"]
        if (s["Effect"], s["Action"]) == ("Allow", "sns:Publish")
        and s["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT}}
    ]


def test_deployment_alarms_may_use_topic_of_stack() -> None:
    stack = template(**SEVERAL)
    assert told_by(stack) == ["cloudwatch.amazonaws.com"]
    policy = only(stack, "SNS::TopicPolicy")["PolicyDocument"]
    policy["Statement"] = [s for s in policy["Statement"] if s["Effect"] == "Deny"]
    assert told_by(stack) == []


def test_deployment_endpoints_serve_account_only() -> None:
    result = of(template(**VARIANTS["bedrock"]), "EC2::VPCEndpoint")
    conditions = [
        statement["Condition"]["StringEquals"]
        for endpoint in result
        if endpoint["VpcEndpointType"] == "Interface"
        for statement in endpoint["PolicyDocument"]["Statement"]
    ]
    whole = {"aws:PrincipalAccount": ACCOUNT, "aws:ResourceAccount": ACCOUNT}
    assert conditions == [whole, whole, {"aws:PrincipalAccount": ACCOUNT}]


def test_deployment_services_act_for_account_only() -> None:
    """Those that name whose resource they act for: another account's could use the role else.
    Lambda names none, and AWS gives no condition for API Gateway's logs."""
    trusts = {
        statement["Principal"]["Service"]: statement.get("Condition")
        for role in of(template(), "IAM::Role")
        for statement in role["AssumeRolePolicyDocument"]["Statement"]
    }
    own = {"aws:SourceAccount": ACCOUNT}
    flow_log = trusts.pop("vpc-flow-logs.amazonaws.com")
    assert flow_log["StringEquals"] == own
    (arn,) = flow_log["ArnLike"].values()
    assert arn["Fn::Join"][1][-1] == ":vpc-flow-log/*"
    assert trusts == {
        "states.amazonaws.com": {"StringEquals": own},
        "scheduler.amazonaws.com": {"StringEquals": own},
        "lambda.amazonaws.com": None,
        "apigateway.amazonaws.com": None,
    }


def test_deployment_map_executions_are_allowed_in_both_forms() -> None:
    roles = properties(template(), "IAM::Role")
    (role,) = (r for n, r in roles.items() if n.startswith("JobsRole"))
    (statement,) = (
        s
        for s in role["Policies"][0]["PolicyDocument"]["Statement"]
        if "states:StopExecution" in s["Action"]
    )
    ends = [resource["Fn::Join"][1][-1] for resource in statement["Resource"]]
    assert sorted(ends) == [f":execution:strandline-dev-jobs{end}" for end in ("/*", ":*")]


def test_deployment_master_secret_and_insights_use_key() -> None:
    stack = template(**VARIANTS["a key that is there"])
    assert only(stack, "RDS::DBCluster")["MasterUserSecret"] == {"KmsKeyId": KEY}
    for instance in of(stack, "RDS::DBInstance"):
        assert instance["PerformanceInsightsKMSKeyId"] == KEY
    (migrate,) = (p for n, p in properties(stack, "IAM::Role").items() if "MigrateRole" in n)
    conditions = [
        s["Condition"]
        for s in migrate["Policies"][0]["PolicyDocument"]["Statement"]
        if s["Resource"] == KEY and "kms:Decrypt" in s["Action"]
    ]
    assert "secretsmanager" in json.dumps(conditions)


def test_deployment_state_machine_decrypts_through_s3_alone() -> None:
    """It reads the lists of runs; nothing else of the stack that the key encrypts."""
    statement = find_statement("a key that is there", "JobsRole", "kms:Decrypt")
    service = {"Fn::Join": ["", ["s3.", {"Ref": "AWS::Region"}, ".amazonaws.com"]]}
    assert statement["Resource"] == KEY
    assert statement["Condition"] == {"StringEquals": {"kms:ViaService": service}}


def test_deployment_logs_use_key_as_guide_says() -> None:
    """A key that the stack makes lets CloudWatch Logs do what one of your own must."""
    guide = (ROOT / "docs" / "deploy.md").read_text()
    (block,) = (
        json.loads(text) for text in re.findall(r"```json\n(.+?)```", guide, re.S) if "kms:" in text
    )
    policy = only(template(**VARIANTS["own key"]), "KMS::Key")["KeyPolicy"]
    (statement,) = (s for s in policy["Statement"] if "Service" in s["Principal"])
    assert sorted(statement["Action"]) == sorted(block["Action"])
    assert statement["Condition"].keys() == block["Condition"].keys()


def test_deployment_partition_matches_state_machine() -> None:
    """The definition is one text, which cfn-lint reads as it is: no partition is filled in."""
    assert CONTEXT["@aws-cdk/core:target-partitions"] == ["aws"]
    assert "arn:aws:states" in (ROOT / "infra" / "job.asl.json").read_text()


def test_deployment_outputs_api_stage_for_firewall() -> None:
    where = template()["Outputs"]["ApiStage"]["Value"]["Fn::Join"][1]
    words = "".join(part if isinstance(part, str) else "*" for part in where)
    assert words == "arn:*:apigateway:*::/restapis/*/stages/*"


@pytest.mark.parametrize("name", NAMES)
def test_deployment_outputs_are_in_guide(name: str, repository: Path) -> None:
    guide = (repository / "docs" / "deploy.md").read_text()
    outputs = template(**VARIANTS[name])["Outputs"]
    assert outputs
    assert [output for output in outputs if f"| `{output}` |" not in guide] == []


def test_deployment_puts_own_firewall_before_stage() -> None:
    assert not properties(template(), "WAFv2::WebACLAssociation"), "it costs"
    stack = template(**SEVERAL)
    (props,) = properties(stack, "WAFv2::WebACLAssociation").values()
    assert props["WebACLArn"] == FIREWALL
    assert props["ResourceArn"] == stack["Outputs"]["ApiStage"]["Value"]


def test_deployment_log_groups_have_retention() -> None:
    """The proxy would, and every function."""
    stack = template(**SECOND)
    groups = of(stack, "Logs::LogGroup")
    access = {n: g for n, g in properties(stack, "Logs::LogGroup").items() if "AccessLog" in n}
    assert [g["RetentionInDays"] for g in access.values()] == [30], "it holds addresses"
    assert {g["RetentionInDays"] for g in groups if g not in access.values()} == {90}
    names = [json.dumps(g.get("LogGroupName", "")) for g in groups]
    assert any("/aws/rds/proxy/second" in n for n in names)
    groups_of = [p["LoggingConfig"]["LogGroup"] for p in of(stack, "Lambda::Function")]
    assert {g["Ref"] for g in groups_of} <= properties(stack, "Logs::LogGroup").keys()
    assert len({g["Ref"] for g in groups_of}) == len(groups_of)
