"""`make preflight ARGS="-c stage=prod"`: what would fail a stage's deployment after minutes or half
an hour, asked of the account within seconds. It reads and changes nothing."""

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from infra.account_session import Account, find_account, open_account_session, read_error_code
from infra.assets import load_own_certificate_bundle
from infra.load_settings import load_stage_settings
from infra.settings import SettingsError, StackSettings
from infra.validation import find_warning
from strandline.function_specs import FUNCTIONS

ROOT = Path(__file__).parents[1]
LEAST_FREE = 100
"""Executions that Lambda keeps for functions without a reservation (AWS Lambda quotas)."""
BOOTSTRAP_VERSION = 6
"""The least version of the CDK's bootstrap stack that its default synthesizer accepts."""
_VPC_QUOTA = "L-F678F1CE"


class Finding(NamedTuple):
    """What one check found."""

    ok: bool | None
    """None: nothing keeps the stack from being deployed, but somebody should know."""
    says: str
    """What is there, or what is missing and the remedy."""


_NOT_PERMITTED = re.compile("AccessDenied|UnauthorizedOperation|AuthFailure|NotAuthorized")
"""How the codes begin with which AWS says that the caller may not ask."""
_SIGNS: Mapping[bool | None, str] = {True: "ok     ", False: "FAILED ", None: "warning"}
type Check = Callable[[StackSettings, Account], Finding]


def check_lambda_quota(settings: StackSettings, account: Account) -> Finding:
    """Concurrent executions, for what the stage reserves and what must stay unreserved."""
    limit = account.call("lambda", "get_account_settings")["AccountLimit"]
    quota, free = int(limit["ConcurrentExecutions"]), int(limit["UnreservedConcurrentExecutions"])
    if settings.account_concurrency:
        if quota <= settings.account_concurrency:
            return Finding(True, f"{quota} at once, none reserved")
        remedy = f"set {quota}, or leave it out where the quota is enough for what is reserved"
        return Finding(False, f"account_concurrency is {settings.account_concurrency}: {remedy}")
    reserved = sum(map(settings.reserved_concurrency, FUNCTIONS))
    reserved -= _count_reserved_now(settings, account) if account.stack_exists else 0
    if free - reserved >= LEAST_FREE:
        return Finding(True, f"{quota} at once, {free} of them not reserved")
    enough = max(1000, quota + reserved + LEAST_FREE - free)
    more = " more" if account.stack_exists else ""
    meanwhile = "lower what other functions reserve, or `reserved`"
    if quota < reserved + LEAST_FREE:
        meanwhile = f"try -c stage=trial -c account_concurrency={quota}"
    return Finding(
        False,
        f"{quota} at once, {free} not reserved; the stage reserves {reserved}{more} and "
        f"{LEAST_FREE} must stay: aws service-quotas request-service-quota-increase "
        f"--service-code lambda --quota-code L-B99A9384 --desired-value {enough}, which may take "
        f"days; meanwhile {meanwhile}",
    )


def _count_reserved_now(settings: StackSettings, account: Account) -> int:
    """What the functions of a stack that is there reserve; one that it lacks, nothing."""
    count = 0
    for fn in FUNCTIONS:
        name = f"{settings.stack_name}-{fn.name}"
        try:
            answer = account.call("lambda", "get_function_concurrency", FunctionName=name)
        except ClientError as error:
            if read_error_code(error) != "ResourceNotFoundException":
                raise
        else:
            count += answer.get("ReservedConcurrentExecutions", 0)
    return count


def check_engine(settings: StackSettings, account: Account) -> Finding:
    """The database's version, which a Region may not offer."""
    try:
        options = account.call(
            "rds",
            "describe_orderable_db_instance_options",
            Engine="aurora-postgresql",
            DBInstanceClass="db.serverless",
            EngineVersion=settings.engine_version,
        )["OrderableDBInstanceOptions"]
    except ClientError as error:  # of a version that the Region lacks altogether
        if read_error_code(error) not in ("InvalidParameterCombination", "InvalidParameterValue"):
            raise
        options = ()
    name = f"Aurora PostgreSQL {settings.engine_version}, serverless"
    if options:
        return Finding(True, name)
    return Finding(False, f"{account.region} does not offer {name}: set engine_version")


def check_certificate_authority(settings: StackSettings, account: Account) -> Finding:
    """A root of the database's certificates for the Region."""
    try:
        load_own_certificate_bundle(settings.ca_bundle, account.region)
    except SettingsError as error:
        return Finding(False, str(error))
    return Finding(True, settings.ca_bundle or "what ships has one")


def check_log_role(settings: StackSettings, account: Account) -> Finding:
    """API Gateway's role for logs: the account's one in the Region, which a stack would replace."""
    role = str(account.call("apigateway", "get_account").get("cloudwatchRoleArn") or "")
    if settings.gateway_log_role and role and not _is_role_of_stack(settings, account, role):
        return Finding(
            False, f"the account has {role}, which would be replaced: set gateway_log_role to false"
        )
    if not settings.gateway_log_role and not role:
        return Finding(False, "the account has none: set gateway_log_role to true")
    return Finding(True, role or "the stack makes it")


def _is_role_of_stack(settings: StackSettings, account: Account, role: str) -> bool:
    """Whether the stage's stack made a role, or a deleted one of its name, whose role remained. Of
    a long stack's name CloudFormation puts only the beginning into the role's."""
    name = role.rpartition("/")[2]
    if name.startswith(f"{settings.stack_name}-ApiServiceCloudWatchRole"):  # no sibling's, dev-two
        return True
    if not account.stack_exists:
        return False
    try:
        answer = account.call("cloudformation", "describe_stack_resources", PhysicalResourceId=name)
    except ClientError as error:
        if read_error_code(error) != "ValidationError":
            raise
        return False  # no stack has it
    return any(one["StackName"] == settings.stack_name for one in answer["StackResources"])


def check_bootstrap(settings: StackSettings, account: Account) -> Finding:
    """The CDK's roles and bucket."""
    del settings
    remedy = f"npx cdk bootstrap aws://<account>/{account.region}, by an administrator"
    try:
        answer = account.call("ssm", "get_parameter", Name="/cdk-bootstrap/hnb659fds/version")
    except ClientError as error:
        if read_error_code(error) != "ParameterNotFound":
            raise
        return Finding(False, f"the Region is not bootstrapped: {remedy}")
    version = int(answer["Parameter"]["Value"])
    if version < BOOTSTRAP_VERSION:
        return Finding(False, f"version {version} is too old: {remedy}")
    return Finding(True, f"version {version}")


def check_rds_role(settings: StackSettings, account: Account) -> Finding:
    """RDS's service-linked role. A first cluster may fail while RDS still makes it."""
    del settings
    try:
        account.call("iam", "get_role", RoleName="AWSServiceRoleForRDS")
    except ClientError as error:
        if read_error_code(error) != "NoSuchEntity":
            raise
        remedy = "aws iam create-service-linked-role --aws-service-name rds.amazonaws.com"
        return Finding(False, f"RDS has no service-linked role: {remedy}")
    return Finding(True, "is there")


def check_vpcs(settings: StackSettings, account: Account) -> Finding:
    """Room for a VPC: a Region has five, one of them its default."""
    if settings.network == "existing" or account.stack_exists:
        return Finding(True, "none is added")
    quota = account.call(
        "service-quotas", "get_service_quota", ServiceCode="vpc", QuotaCode=_VPC_QUOTA
    )["Quota"]["Value"]
    vpc_count = len(account.call("ec2", "describe_vpcs")["Vpcs"])
    if vpc_count < quota:
        return Finding(True, f"{vpc_count} of {quota:g}")
    return Finding(
        False,
        f"all {quota:g} are used: delete one, set network to existing, or aws service-quotas "
        f"request-service-quota-increase --service-code vpc --quota-code {_VPC_QUOTA} "
        "--desired-value 10",
    )


def check_endpoint_zones(settings: StackSettings, account: Account) -> Finding:
    """The endpoints' services, in the zones where the stack puts endpoints."""
    if settings.network != "endpoints":
        return Finding(True, "no endpoints")
    names = [f"com.amazonaws.{account.region}.{one}" for one in settings.endpoint_services]
    zones = account.call(
        "ec2",
        "describe_availability_zones",
        Filters=[{"Name": "zone-type", "Values": ["availability-zone"]}],
    )["AvailabilityZones"]
    # As CloudFormation's Fn::GetAZs: zones with a default subnet, or all where no zone has one.
    filters = [{"Name": "default-for-az", "Values": ["true"]}]
    subnets = account.call("ec2", "describe_subnets", Filters=filters)["Subnets"]
    candidate_zones = {str(one["AvailabilityZone"]) for one in subnets} or {
        str(z["ZoneName"]) for z in zones
    }
    zone_names = sorted(candidate_zones)[: settings.endpoint_zones]
    # By a filter: a name that the Region lacks would be an error.
    filters = [{"Name": "service-name", "Values": names}]
    details = account.call("ec2", "describe_vpc_endpoint_services", Filters=filters)
    offers = {one["ServiceName"]: one["AvailabilityZones"] for one in details["ServiceDetails"]}
    lacks = [f"{n} in {z}" for n in names for z in zone_names if z not in offers.get(n, ())]
    if lacks:
        return Finding(False, f"AWS offers no {', no '.join(lacks)}: use network=existing")
    return Finding(True, f"{len(names)} services in {', '.join(zone_names)}")


def check_names(settings: StackSettings, account: Account) -> Finding:
    """Names that the stack gives itself, which a deleted stack of the same name may have left."""
    if account.stack_exists:
        return Finding(True, "the stack has them")
    stack = settings.stack_name
    functions = f"/aws/lambda/{stack}-"
    others = (
        f"/aws/vendedlogs/states/{stack}-jobs",
        f"/aws/rds/cluster/{settings.cluster_identifier}/postgresql",
        *([f"/aws/vpc/{stack}"] if settings.network != "existing" else ()),
        *([f"/aws/rds/proxy/{stack}"] if settings.proxy else ()),
    )
    names = {*others, f"{functions}release", *(functions + fn.name for fn in FUNCTIONS)}
    answers = [
        account.call("logs", "describe_log_groups", logGroupNamePrefix=prefix)
        for prefix in (functions, *others)
    ]
    groups = {group["logGroupName"] for answer in answers for group in answer["logGroups"]}
    conflicts = sorted(groups & names)
    if conflicts:
        remedy = "; ".join(f"aws logs delete-log-group --log-group-name {n}" for n in conflicts)
        return Finding(False, f"CloudFormation creates no log group that is there: {remedy}")
    try:
        cluster = settings.cluster_identifier
        account.call("rds", "describe_db_clusters", DBClusterIdentifier=cluster)
    except ClientError as error:
        if read_error_code(error) != "DBClusterNotFoundFault":
            raise
        return Finding(True, "no log group and no database is there before")
    return Finding(False, f"the database {cluster} is there: delete it, or set another name")


def check_budget(settings: StackSettings, account: Account) -> Finding:
    """Whether the account's roles may have budgets: the account itself may refuse it."""
    if not settings.alarms.usd_per_month:
        return Finding(True, "no budget")
    account.call("budgets", "describe_budgets", AccountId=account.account_id, MaxResults=1)
    return Finding(True, f"{settings.alarms.usd_per_month:g} USD a month")


def check_notifications(settings: StackSettings, account: Account) -> Finding:
    """Whom alarms and budget tell."""
    del account
    warning = find_warning(settings)
    if warning is None:
        return Finding(True, "alarms reach somebody, or there is no budget")
    return Finding(None, warning)


CHECKS: Mapping[str, Check] = {
    "Lambda's quota": check_lambda_quota,
    "the database's version": check_engine,
    "its certificate authority": check_certificate_authority,
    "API Gateway's log role": check_log_role,
    "the CDK's bootstrap": check_bootstrap,
    "RDS's role": check_rds_role,
    "VPCs": check_vpcs,
    "the VPC's endpoints": check_endpoint_zones,
    "names": check_names,
    "the budget": check_budget,
    "notifications": check_notifications,
}


def run_checks(settings: StackSettings, account: Account, report: Callable[[str], object]) -> bool:
    """Run all checks, and report a line of each. Returns whether none failed. A check that the
    caller may not ask has not failed; its line names what is not permitted. Any other refusal, and
    what cannot be reached, fails."""
    failures = 0
    for name, check in CHECKS.items():
        try:
            ok, says = check(settings, account)
        except ClientError as error:
            if _NOT_PERMITTED.match(read_error_code(error)):
                report(
                    f"?       {name}: not asked, {error.operation_name} is {read_error_code(error)}"
                )
                continue
            ok, says = False, f"{error}"
        except BotoCoreError as error:
            ok, says = False, f"{error}"
        failures += ok is False
        report(f"{_SIGNS[ok]} {name}: {says}")
    report(f"{failures} of {len(CHECKS)} checks failed")
    return not failures


def _read_context(pairs: Sequence[str]) -> Mapping[str, Any]:
    """cdk.json's context, and what `-c name=value` sets, as the CDK's command line has it."""
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    return context | {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the account of the environment's credentials. Returns 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="make preflight", description=__doc__)
    parser.add_argument("-c", dest="context", action="append", default=[], metavar="NAME=VALUE")
    pairs: list[str] = parser.parse_args(arguments).context
    try:
        settings = load_stage_settings(_read_context(pairs))
        region, make_client = open_account_session()
        account_id = str(make_client("sts").get_caller_identity()["Account"])
        account = find_account(settings.stack_name, make_client, account_id, region)
    except (ValueError, ClientError, BotoCoreError) as error:
        sys.stderr.write(f"strandline: {error}\n")
        return 2
    sys.stdout.write(
        f"{settings.stack_name} in {account_id}, {account.region}"
        f"{', which is there' if account.stack_exists else ''}\n"
    )
    return 0 if run_checks(settings, account, lambda line: sys.stdout.write(f"{line}\n")) else 1


if __name__ == "__main__":
    sys.exit(main())
