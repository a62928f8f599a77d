"""What an account lacks is said before a deployment, with its remedy; planted are accounts that
lack one thing each."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from unittest.mock import ANY

import botocore.validate
import pytest
from botocore.exceptions import ClientError

from infra import preflight
from infra.load_settings import build_valid_settings, load_stage_settings
from infra.preflight import CHECKS, Account, run_checks
from infra.settings import StackSettings
from tests.infra.cdk_context import context
from tests.infra.service_models import read_operations
from tests.infra.stacks import VARIANTS, properties, template

SHAPES: Any = botocore.validate
"""Its functions have no types."""
ACCOUNT_ID, REGION = "111122223333", "eu-west-1"
ROLE = "arn:aws:iam::111122223333:role/"
type Answer = Mapping[str, Any] | str
"""Of an operation, or the code of its error."""


def zones(*names: str) -> Mapping[str, Any]:
    return {"AvailabilityZones": [{"ZoneName": name} for name in names]}


def services(*names: str, zones: Sequence[str] = ("eu-west-1a",)) -> Mapping[str, Any]:
    return {
        "ServiceDetails": [
            {"ServiceName": f"com.amazonaws.{REGION}.{name}", "AvailabilityZones": [*zones]}
            for name in names
        ]
    }


def concurrency(quota: int, free: int | None = None) -> Mapping[str, Any]:
    limit = {"ConcurrentExecutions": quota}
    return {
        "AccountLimit": limit | {"UnreservedConcurrentExecutions": quota if free is None else free}
    }


READY: Mapping[str, Answer] = {
    "get_account_settings": concurrency(1000),
    "get_function_concurrency": "ResourceNotFoundException",
    "describe_orderable_db_instance_options": {
        "OrderableDBInstanceOptions": [{"EngineVersion": "18.4"}]
    },
    "get_account": {},
    "get_parameter": {"Parameter": {"Value": "27"}},
    "get_role": {
        "Role": {
            "Path": "/",
            "RoleName": "AWSServiceRoleForRDS",
            "RoleId": "AROA123456789012345678",
            "Arn": f"{ROLE}aws-service-role/rds.amazonaws.com/AWSServiceRoleForRDS",
            "CreateDate": "2026-01-01T00:00:00Z",
        }
    },
    "get_service_quota": {"Quota": {"Value": 5.0}},
    "describe_vpcs": {"Vpcs": [{"VpcId": "vpc-0"}]},
    "describe_subnets": {"Subnets": []},
    "describe_availability_zones": zones("eu-west-1b", "eu-west-1a"),
    "describe_vpc_endpoint_services": services("sqs", "secretsmanager"),
    "describe_log_groups": {
        "logGroups": [{"logGroupName": "/aws/lambda/strandline-dev-two-query"}]
    },
    "describe_budgets": {"Budgets": []},
    "describe_db_clusters": "DBClusterNotFoundFault",
    "describe_stack_resources": "ValidationError",
}
"""An account into which the stage `dev` can be deployed."""


@dataclass(frozen=True)
class Client:
    """A client of a service, whose requests and answers are as botocore has them."""

    service: str
    answers: Mapping[str, Answer]

    def __getattr__(self, operation: str) -> Callable[..., Answer]:
        model, answer = read_operations(self.service)[operation], self.answers[operation]

        def call(**parameters: object) -> Answer:
            SHAPES.validate_parameters(parameters, model.input_shape)
            if isinstance(answer, str):
                raise ClientError({"Error": {"Code": answer}}, model.name)
            SHAPES.validate_parameters(answer, model.output_shape)
            return answer

        return call


def make_account(
    changes: Mapping[str, Answer] | None = None, *, stack_exists: bool = False
) -> Account:
    """An account that answers so; `stack_exists` says whether the stage's stack is there."""
    answers = {**READY, **(changes or {})}
    return Account(ACCOUNT_ID, REGION, stack_exists, partial(Client, answers=answers))


def failures(settings: StackSettings, account: Account) -> list[str]:
    """The lines of the checks that failed."""
    lines: list[str] = []
    succeeded = run_checks(settings, account, lines.append)
    assert len(lines) == len(CHECKS) + 1
    result = [line.removeprefix("FAILED  ") for line in lines if line.startswith("FAILED")]
    assert succeeded is not result
    assert f"{len(result)} of {len(CHECKS)} checks failed" == lines[-1]
    return result


def test_preflight_finds_nothing_in_ready_account() -> None:
    assert failures(load_stage_settings(context()), make_account()) == []


LACKS: list[tuple[Mapping[str, Any], Mapping[str, Answer], str]] = [
    (
        {},
        {"get_account_settings": concurrency(10)},
        "10 at once, 10 not .* reserves 342 .* --desired-value 1000, .* account_concurrency=10",
    ),
    (
        {},
        {"get_account_settings": concurrency(1000, 441)},
        "441 not .* reserves 342 .* --desired-value 1001, .* lower what other functions reserve",
    ),
    (
        {},
        {"describe_orderable_db_instance_options": {"OrderableDBInstanceOptions": []}},
        "the database's version: eu-west-1 does not offer Aurora PostgreSQL 18.4",
    ),
    (
        {},
        {"describe_orderable_db_instance_options": "InvalidParameterCombination"},
        "version: eu-west-1 does not offer Aurora PostgreSQL 18.4",
    ),
    ({}, {"describe_vpcs": "RequestLimitExceeded"}, "VPCs: .*RequestLimitExceeded"),
    (
        {},
        {"get_account": {"cloudwatchRoleArn": f"{ROLE}gateway-logs"}},
        "would be replaced: set gateway_log_role to false",
    ),
    (
        {},
        {
            "get_account": {
                "cloudwatchRoleArn": f"{ROLE}strandline-dev-two-ApiServiceCloudWatchRole"
            }
        },
        "strandline-dev-two-.* would be replaced",
    ),
    ({"gateway_log_role": False}, {}, "the account has none: set gateway_log_role to true"),
    (
        {},
        {"describe_db_clusters": {"DBClusters": [{}]}},
        "names: the database strandline-dev is there: delete it",
    ),
    ({}, {"get_parameter": "ParameterNotFound"}, "not bootstrapped: npx cdk bootstrap aws://"),
    ({}, {"get_parameter": {"Parameter": {"Value": "5"}}}, "version 5 is too old: npx cdk boot"),
    ({}, {"get_role": "NoSuchEntity"}, "aws iam create-service-linked-role --aws-service-name rds"),
    ({}, {"describe_vpcs": {"Vpcs": [{}] * 5}}, "all 5 are used: delete one, set network to exist"),
    (
        {"endpoint_zones": 2},
        {},
        "no com.amazonaws.eu-west-1.sqs in eu-west-1b, no .*secretsmanager in eu-west-1b",
    ),
    (
        {"settings": {"llm_provider": "bedrock", "llm_model": "m"}},
        {},
        "AWS offers no com.amazonaws.eu-west-1.bedrock-runtime in eu-west-1a: use network=existing",
    ),
    (
        {},
        {
            "describe_log_groups": {
                "logGroups": [{"logGroupName": "/aws/rds/cluster/strandline-dev/postgresql"}]
            }
        },
        "names: .*delete-log-group --log-group-name /aws/rds/cluster/strandline-dev/postgresql$",
    ),
]


@pytest.mark.parametrize(("settings", "changes", "words"), LACKS, ids=[w[:30] for *_, w in LACKS])
def test_preflight_names_what_is_missing_and_remedy(
    settings: Mapping[str, Any],
    changes: Mapping[str, Answer],
    words: str,
) -> None:
    (line,) = failures(build_valid_settings(settings), make_account(changes))
    assert re.search(words, line), line


def test_preflight_prod_as_it_ships_is_deployable_with_a_warning() -> None:
    lines: list[str] = []
    offers = services("sqs", "secretsmanager", zones=("eu-west-1a", "eu-west-1b"))
    account = make_account({"describe_vpc_endpoint_services": offers})
    assert run_checks(load_stage_settings(context(stage="prod")), account, lines.append)
    (warning,) = [line for line in lines[:-1] if not line.startswith("ok ")]
    assert re.search("^warning notifications: .*notify nobody: set alarms.email", warning)


def test_preflight_region_without_certificate_authority() -> None:
    account = make_account()
    there = Account(ACCOUNT_ID, "ca-west-1", False, account.make_client)
    finding = preflight.check_certificate_authority(build_valid_settings({}), there)
    assert not finding.ok
    assert "global-bundle.pem" in finding.says


def test_preflight_counts_nothing_twice_for_stack_that_exists() -> None:
    """Its reservations, its VPC and its log role are there."""
    own = {"cloudwatchRoleArn": f"{ROLE}strandline-dev-ApiServiceCloudWatchRole1A2B-x"}
    full: Mapping[str, Answer] = {
        "get_account_settings": concurrency(442, 100),
        "describe_vpcs": {"Vpcs": [{}] * 5},
    }
    now: Answer = {"ReservedConcurrentExecutions": 28}  # 364 of 13 functions, 342 of which stay
    mine = {**full, "get_account": own, "get_function_concurrency": now}
    account = make_account(mine, stack_exists=True)
    assert failures(build_valid_settings({}), account) == []
    assert len(failures(build_valid_settings({}), make_account(full))) == 2


def test_preflight_knows_role_of_stack_by_its_resources() -> None:
    """CloudFormation shortens the name of a long stack in its role's name."""
    settings = build_valid_settings({"name": "memory-of-the-harbour-office-in-odense"})
    role = {"cloudwatchRoleArn": f"{ROLE}memory-of-the-harbour-of-ApiServiceCloudWatchRole1A-x"}
    for owner, finds in ((settings.stack_name, []), ("memory-of-the-harbour-office", [ANY])):
        resource = {
            "StackName": owner,
            "LogicalResourceId": "ApiServiceCloudWatchRole1A",
            "ResourceType": "AWS::IAM::Role",
            "Timestamp": datetime(2026, 1, 1, tzinfo=UTC),
            "ResourceStatus": "CREATE_COMPLETE",
        }
        answers = {"get_account": role, "describe_stack_resources": {"StackResources": [resource]}}
        assert failures(settings, make_account(answers, stack_exists=True)) == finds


@pytest.mark.parametrize(
    ("answer", "exists"),
    [
        ("ValidationError", False),
        ("ROLLBACK_COMPLETE", False),
        ("REVIEW_IN_PROGRESS", False),
        ("UPDATE_COMPLETE", True),
        ("UPDATE_ROLLBACK_FAILED", True),
    ],
)
def test_preflight_knows_stack_that_has_something(answer: str, exists: bool) -> None:
    """After a first deployment that failed, what it left is found before the next."""
    stack = {"StackName": "s", "CreationTime": datetime.now(UTC), "StackStatus": answer}
    stacks: Answer = answer if answer == "ValidationError" else {"Stacks": [stack]}
    account = make_account({"describe_stacks": stacks})
    found = preflight.find_account("strandline-dev", account.make_client, ACCOUNT_ID, REGION)
    assert (found.account_id, found.stack_exists) == (ACCOUNT_ID, exists)


def test_preflight_trial_fits_quota_of_new_account() -> None:
    trial = load_stage_settings(context(stage="trial"))
    assert failures(trial, make_account({"get_account_settings": concurrency(10)})) == []
    (line,) = failures(trial, make_account({"get_account_settings": concurrency(50)}))
    assert "account_concurrency is 10: set 50" in line


def test_preflight_asks_what_stack_that_is_there_reserves_more() -> None:
    """Lambda would refuse what a changed setting or a further function reserves."""
    now: Answer = {"ReservedConcurrentExecutions": 26}  # 338 of 13 functions, of 342
    lines = [
        failures(
            load_stage_settings(context()),
            make_account(
                {"get_account_settings": concurrency(500, free), "get_function_concurrency": now},
                stack_exists=True,
            ),
        )
        for free in (104, 103)
    ]
    assert lines[0] == []
    assert "103 not reserved; the stage reserves 4 more and 100 must stay" in lines[1][0]


def test_preflight_knows_every_name_of_stack() -> None:
    """Whatever log group the template names, and of a deleted stack only."""
    for variant in ("as it comes", "proxy", "restored"):
        settings = build_valid_settings(VARIANTS[variant])
        groups = properties(template(**VARIANTS[variant]), "Logs::LogGroup").values()
        names = {group["LogGroupName"] for group in groups if "LogGroupName" in group}
        assert len(names) >= 17
        there = {"logGroups": [{"logGroupName": name} for name in sorted(names)]}
        lacks = partial(make_account, {"describe_log_groups": there})
        finding = preflight.check_names(settings, lacks())
        assert set(re.findall(r"--log-group-name (\S+?)(?:;|$)", finding.says)) == names
        assert preflight.check_names(settings, lacks(stack_exists=True)).ok


def test_preflight_says_of_budget_that_account_refuses_it() -> None:
    """The account of an organization may have none, and a new account's root must permit them."""
    lines: list[str] = []
    prod = load_stage_settings(context(stage="prod"))
    run_checks(prod, make_account({"describe_budgets": "AccessDeniedException"}), lines.append)
    assert "?       the budget: not asked, DescribeBudgets is AccessDeniedException" in lines


def test_preflight_says_what_it_may_not_ask() -> None:
    lines: list[str] = []
    account = make_account({"get_role": "AccessDenied"})
    assert run_checks(build_valid_settings({}), account, lines.append)
    assert "?       RDS's role: not asked, GetRole is AccessDenied" in lines
