"""The template: what would hurt is not in it, and a fault of each kind is found."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from strandline.function_specs import DAILY_SWEEP_SCHEDULE, FUNCTIONS
from strandline.local.aws import LocalAws, make_local_client
from strandline.local.postgres import LOG_REDACTION
from strandline.local.state_machine import PREFIX, StateMachine
from tests.infra import security_findings
from tests.infra.stacks import (
    LAYER_BYTES,
    OWN_MODELS,
    OWN_PROFILE,
    ROOT,
    SECOND,
    SEVERAL,
    VARIANTS,
    StandIns,
    Template,
    findings,
    properties,
    synthesize,
    template,
)

type Plant = Callable[[Template], None]
DEFINITION = ROOT / "infra" / "job.asl.json"
NAMES = list(VARIANTS)
MOST = [
    name if name in ("as it comes", "mutual TLS") else pytest.param(name, marks=pytest.mark.proof)
    for name in NAMES
]
"""`make test` has cdk-nag look at two."""


def only(stack: Template, kind: str) -> dict[str, Any]:
    """The one resource of a kind."""
    (props,) = properties(stack, kind).values()
    return props


@pytest.mark.parametrize("name", NAMES)
def test_stack_has_no_security_fault(name: str) -> None:
    stack = template(**VARIANTS[name])
    assert {find.__name__: find(stack) for find in security_findings.HURTS} == {
        find.__name__: [] for find in security_findings.HURTS
    }


def _set(kind: str, *path: str | int, to: object, many: bool = False) -> Plant:
    """A fault: a property of (the first) resource of a kind that says something else."""

    def plant(stack: Template) -> None:
        choices = list(properties(stack, kind).values())
        for props in choices if many else choices[:1]:
            at: Any = props
            for step in path[:-1]:
                at = at[step]
            if to is None:
                del at[path[-1]]
            else:
                at[path[-1]] = to

    return plant


def _unprotect(stack: Template) -> None:
    for resource in stack["Resources"].values():
        if resource["Type"] == "AWS::S3::Bucket":
            resource["DeletionPolicy"] = "Delete"


def _allowed(action: str, resource: object) -> Plant:
    def plant(stack: Template) -> None:
        role = next(p for n, p in properties(stack, "IAM::Role").items() if "IngestRole" in n)
        statements = role["Policies"][0]["PolicyDocument"]["Statement"]
        statements.append({"Effect": "Allow", "Action": action, "Resource": resource})

    return plant


def _silent_loops(stack: Template) -> None:
    for props in properties(stack, "Lambda::Function").values():
        props.pop("RecursiveLoop", None)


def _scheduler_sends(stack: Template) -> None:
    """What the scheduler sends comes back to it."""
    queues = [n for n in properties(stack, "SQS::Queue") if "DeadLetters" not in n]
    queue = next(n for n in queues if n.startswith("StorageJobQueue"))
    role = next(p for n, p in properties(stack, "IAM::Role").items() if "SchedulerRole" in n)
    role["Policies"][0]["PolicyDocument"]["Statement"].append(
        {
            "Effect": "Allow",
            "Action": "sqs:SendMessage",
            "Resource": {"Fn::GetAtt": [queue, "Arn"]},
        }
    )


FAULTS: list[tuple[security_findings.Finder, Plant]] = [
    (security_findings.public_database, _set("RDS::DBInstance", "PubliclyAccessible", to=True)),
    (
        security_findings.public_database,
        _set("EC2::SecurityGroupIngress", "CidrIp", to="0.0.0.0/0"),
    ),
    (security_findings.open_bucket, _set("S3::Bucket", "PublicAccessBlockConfiguration", to=None)),
    (
        security_findings.open_bucket,
        _set("S3::Bucket", "PublicAccessBlockConfiguration", "BlockPublicPolicy", to=False),
    ),
    (security_findings.open_bucket, _set("S3::BucketPolicy", "PolicyDocument", "Statement", to=[])),
    (security_findings.open_queue, _set("SQS::QueuePolicy", "PolicyDocument", "Statement", to=[])),
    (security_findings.find_unencrypted, _set("RDS::DBCluster", "StorageEncrypted", to=False)),
    (security_findings.find_unencrypted, _set("S3::Bucket", "BucketEncryption", to=None)),
    (security_findings.find_unencrypted, _set("SQS::Queue", "SqsManagedSseEnabled", to=False)),
    (
        security_findings.find_unencrypted,
        _set("RDS::DBClusterParameterGroup", "Parameters", "rds.force_ssl", to="0"),
    ),
    (security_findings.kept_by_nobody, _unprotect),
    (security_findings.kept_by_nobody, _set("RDS::DBCluster", "DeletionProtection", to=False)),
    (security_findings.kept_by_nobody, _set("S3::Bucket", "VersioningConfiguration", to=None)),
    (security_findings.wildcard_on_data, _allowed("s3:*", "arn:aws:s3:::bucket/*")),
    (security_findings.wildcard_on_data, _allowed("secretsmanager:GetSecretValue", "*")),
    (security_findings.wildcard_on_data, _allowed("*", "arn:aws:s3:::bucket")),
    (
        security_findings.plain_secret,
        _set(
            *("Lambda::Function", "Environment", "Variables", "STRANDLINE_LLM_API_KEY"), to="sk-1"
        ),
    ),
    (security_findings.plain_secret, _set("SecretsManager::Secret", "SecretString", to="hush")),
    (security_findings.plain_secret, _set("RDS::DBCluster", "MasterUserPassword", to="hush")),
    (security_findings.undeclared_loop, _silent_loops),
    (security_findings.undeclared_loop, _scheduler_sends),
]


@pytest.mark.parametrize(
    ("find", "plant"), FAULTS, ids=[f"{f.__name__}-{n}" for n, (f, _) in enumerate(FAULTS)]
)
def test_stack_check_finds_security_fault(find: security_findings.Finder, plant: Plant) -> None:
    stack = template()
    plant(stack)
    assert find(stack)


def test_stack_check_finds_default_endpoint_beside_mutual_tls() -> None:
    imports = ("Body", "x-amazon-apigateway-endpoint-configuration", "disableExecuteApiEndpoint")
    for path in (("DisableExecuteApiEndpoint",), imports):
        stack = template(**VARIANTS["mutual TLS"])
        _set("ApiGateway::RestApi", *path, to=False)(stack)
        assert security_findings.default_endpoint_beside_mutual_tls(stack), path


@pytest.mark.parametrize("name", MOST)
def test_stack_cdk_nag_findings_are_explained(name: str) -> None:
    assert findings(**VARIANTS[name]) == []


def test_stack_check_finds_unexplained_finding() -> None:
    text = " ".join(synthesize("findings_of_planted"))
    assert "SQS4: strandline-dev/Bare" in text
    assert "IAM5[Resource::*]: strandline-dev/Wide" in text


def test_stack_state_machine_matches_local_machine() -> None:
    """Byte for byte, once what differs from place to place is filled in: by CloudFormation there,
    by the local machine here."""
    machine = only(template(), "StepFunctions::StateMachine")
    text = DEFINITION.read_bytes()
    assert machine["DefinitionString"].encode() == text
    assert set(machine["DefinitionSubstitutions"]) == set(re.findall(r"\$\{(\w+)\}", text.decode()))
    assert machine["DefinitionSubstitutions"]["FunctionPrefix"] == "strandline-dev-"
    assert PREFIX.endswith("-")


def test_stack_state_machine_substitutions_match_local_machine(aws: LocalAws) -> None:
    """What `make run` gives to its interpreter is the template's text after substitution."""
    props = only(template(), "StepFunctions::StateMachine")
    text = props["DefinitionString"]
    for name, value in {"Bucket": aws.bucket, "FunctionPrefix": PREFIX}.items():
        text = text.replace(f"${{{name}}}", value)
    with (
        StateMachine(DEFINITION, aws.bucket) as machine,
        closing(make_local_client("stepfunctions")) as states,
    ):
        state_machine = states.describe_state_machine(stateMachineArn=machine.arn)
    assert state_machine["definition"] == text


def test_stack_deployment_fits_beside_long_migration() -> None:
    """The state machine's run of `migrate` may last as long as the function does, and the
    deployment's own, which CDK does not repeat where it is throttled, must begin all the same. (In
    the database they take turns.)"""
    functions = properties(template(), "Lambda::Function").values()
    (props,) = (p for p in functions if p.get("FunctionName") == "strandline-dev-migrate")
    assert props["ReservedConcurrentExecutions"] >= 2


def test_stack_functions_match_table() -> None:
    stack = template()
    properties_ = properties(stack, "Lambda::Function")
    ours = {p["FunctionName"]: p for p in properties_.values() if "FunctionName" in p}
    assert set(ours) == {f"strandline-dev-{fn.name}" for fn in FUNCTIONS}
    for fn in FUNCTIONS:
        props = ours[f"strandline-dev-{fn.name}"]
        assert (props["Runtime"], props["Architectures"]) == ("python3.13", ["arm64"])
        assert (props["MemorySize"], props["Timeout"]) == (fn.memory, fn.timeout)
        assert props.get("ReservedConcurrentExecutions", 0) == fn.reserved_concurrency
        assert len(props["Layers"]) == len(fn.layers)
        assert ("VpcConfig" in props) is bool({"database", "owner"} & fn.needs)
        assert "TracingConfig" not in props
    aliases = properties(stack, "Lambda::Alias").values()
    assert [a["Name"] for a in aliases] == ["live"] * len(FUNCTIONS)
    groups = properties(stack, "Logs::LogGroup").values()
    assert {g.get("RetentionInDays") for g in groups} == {30}


def test_stack_of_trial_reserves_nothing() -> None:
    """An account whose quota is 10 accepts no reservation. The queues leave instances to requests,
    and of those that wait there is one at most."""
    stack = template(**VARIANTS["trial"])
    functions = properties(stack, "Lambda::Function").values()
    assert [p for p in functions if "ReservedConcurrentExecutions" in p] == []
    feeds = properties(stack, "Lambda::EventSourceMapping").values()
    assert [f["ScalingConfig"] for f in feeds] == [{"MaximumConcurrency": 2}] * 2
    assert only(stack, "ApiGateway::Stage")["MethodSettings"][0]["ThrottlingBurstLimit"] == 10
    for name in ("query", "mcp"):
        assert _environment_of(stack, name)["STRANDLINE_FUNCTION_WAITS"] == "1"


def test_stack_roles_are_distinct() -> None:
    functions = properties(template(), "Lambda::Function").values()
    roles = [json.dumps(p["Role"]) for p in functions]
    assert len(set(roles)) == len(roles)


def _environment_of(stack: Template, name: str) -> dict[str, Any]:
    (props,) = (
        p
        for p in properties(stack, "Lambda::Function").values()
        if p.get("FunctionName") == f"strandline-dev-{name}"
    )
    return props["Environment"]["Variables"]


def test_stack_functions_get_their_settings() -> None:
    stack = template(**SEVERAL)
    ingest, scheduler, migrate = (
        _environment_of(stack, name) for name in ("ingest", "scheduler", "migrate")
    )
    assert ingest["STRANDLINE_LLM_SECONDS"] == "5.5"
    assert ingest["STRANDLINE_DATABASE_AUTH"] == "iam"
    url = json.dumps(ingest["STRANDLINE_DATABASE_URL"])
    assert "user=strandline_app sslmode=verify-full sslrootcert=/opt/" in url
    assert {"STRANDLINE_STATE_MACHINE", "STRANDLINE_SCHEDULE_GROUP"} <= scheduler.keys()
    assert not {n for n in scheduler if "DATABASE" in n or "SECRET" in n}
    assert "STRANDLINE_ADMINISTRATOR_SECRET" in migrate
    assert "STRANDLINE_ADMINISTRATOR_SECRET" not in ingest
    assert "user=strandline_owner" in json.dumps(migrate["STRANDLINE_OWNER_DATABASE_URL"])
    waits = {
        fn.name: int(limit)
        for fn in FUNCTIONS
        if (limit := _environment_of(template(), fn.name).get("STRANDLINE_FUNCTION_WAITS"))
    }
    assert waits == {
        fn.name: fn.reserved_concurrency // 10 for fn in FUNCTIONS if fn.name in ("query", "mcp")
    }
    days = {
        fn.name: _environment_of(stack, fn.name).get("STRANDLINE_BACKUP_DAYS") for fn in FUNCTIONS
    }
    assert {name: d for name, d in days.items() if d is not None} == {"eraser": "1"}


def test_stack_payload_requests_are_in_metric() -> None:
    bucket = only(template(), "S3::Bucket")
    assert bucket["MetricsConfigurations"] == [{"Id": "requests"}], "no filter leaves any out"


def test_stack_declares_worker_messages_to_itself() -> None:
    """Lambda drops a message after about 16 rounds of a loop that nobody declared, and a scope that
    waits for its model's rate may take sixty."""
    declared = {
        p["FunctionName"]: p["RecursiveLoop"]
        for p in properties(template(), "Lambda::Function").values()
        if "RecursiveLoop" in p
    }
    assert declared == {"strandline-dev-worker": "Allow"}


def test_stack_recursion_alone_makes_no_version() -> None:
    """Lambda makes none for it: a version by another name would already be there."""
    names = [synthesize("id_of_version", loop) for loop in ("ALLOW", "TERMINATE")]
    assert names[0] == names[1]


def test_stack_database_stays_at_set_version() -> None:
    """Else a restore asks for an older version than its snapshot's, and fails."""
    stack = template()
    assert only(stack, "RDS::DBCluster")["EngineVersion"] == "18.4"
    for props in properties(stack, "RDS::DBInstance").values():
        assert props["AutoMinorVersionUpgrade"] is False


def test_stack_database_storage_type_is_set() -> None:
    for stack, storage in ((template(), "aurora"), (template(**SEVERAL), "aurora-iopt1")):
        assert only(stack, "RDS::DBCluster")["StorageType"] == storage


def test_stack_database_log_is_as_silent_as_local_one() -> None:
    """Which is shown to hold no value of an error (tests/strandline/local/test_postgres.py)."""
    parameters = only(template(), "RDS::DBClusterParameterGroup")["Parameters"]
    assert parameters.items() >= LOG_REDACTION.items()


def test_stack_payload_versions_last_as_long_as_backups() -> None:
    """A restored log cites what was removed since."""
    for props, days in ((SEVERAL, 1), (VARIANTS["nat"], 30), (VARIANTS["existing"], 35)):
        assert props["backup_days"] == days
        bucket = only(template(**props), "S3::Bucket")
        remaining = [
            rule["NoncurrentVersionExpiration"]["NoncurrentDays"]
            for rule in bucket["LifecycleConfiguration"]["Rules"]
            if "Prefix" not in rule
        ]
        assert len(remaining) == 1
        assert remaining[0] > days
        assert remaining[0] >= 30


def test_stack_database_opens_no_connection() -> None:
    for name in ("as it comes", "nat", "proxy"):
        stack = template(**VARIANTS[name])
        (group,) = (
            g["Fn::GetAtt"][0] for g in only(stack, "RDS::DBCluster")["VpcSecurityGroupIds"]
        )
        (egress,) = properties(stack, "EC2::SecurityGroup")[group]["SecurityGroupEgress"]
        assert egress["CidrIp"] == "255.255.255.255/32", "nowhere, as the CDK writes it"
        others = properties(stack, "EC2::SecurityGroupEgress").values()
        assert group not in [rule["GroupId"]["Fn::GetAtt"][0] for rule in others]


ROOM = 40
"""Resources that a release may add before the stack has to be divided."""


def test_stack_has_room_for_next_release() -> None:
    """CloudFormation takes 500 resources and a template of 1 MB. All routes are in one resource."""
    for name in NAMES:
        stack = template(**VARIANTS[name])
        assert len(stack["Resources"]) <= 500 - ROOM, name
        assert len(json.dumps(stack)) < 800_000, name


def test_stack_traces_are_optional() -> None:
    for name, on in (("as it comes", False), ("own key", True)):
        assert VARIANTS[name].get("tracing", False) is on
        stack = template(**VARIANTS[name])
        functions = {
            name: props.get("TracingConfig", {}).get("Mode") == "Active"
            for name, props in properties(stack, "Lambda::Function").items()
            if "FunctionName" in props
        }
        assert len(functions) == len(FUNCTIONS)
        assert set(functions.values()) == {on}
        assert only(stack, "ApiGateway::Stage").get("TracingEnabled", False) is on
        machine = only(stack, "StepFunctions::StateMachine")
        assert machine.get("TracingConfiguration", {}).get("Enabled", False) is on


def test_stack_insights_need_two_units() -> None:
    """AWS recommends no less with Performance Insights."""
    proxy, key = VARIANTS["proxy"], VARIANTS["a key that is there"]
    for props, units, on in (
        (VARIANTS["as it comes"], 0, False),
        (proxy, 1, False),
        (key, 2, True),
        (SEVERAL, 8, True),
    ):
        stack = template(**props)
        scaling = only(stack, "RDS::DBCluster")["ServerlessV2ScalingConfiguration"]
        assert scaling["MinCapacity"] == units
        for instance in properties(stack, "RDS::DBInstance").values():
            assert instance["EnablePerformanceInsights"] is on, "what is left out stays as it was"


def test_stack_restart_word_restarts_every_function() -> None:
    for name in ("ingest", "scheduler", "migrate"):
        assert "STRANDLINE_RESTART" not in _environment_of(template(), name)
        assert _environment_of(template(**SEVERAL), name)["STRANDLINE_RESTART"] == "again"


def test_stack_bedrock_profile_is_allowed_with_its_models() -> None:
    roles = properties(template(**SEVERAL), "IAM::Role")
    (query,) = (role for name, role in roles.items() if "QueryRole" in name)
    grants = [
        s["Resource"]
        for s in query["Policies"][0]["PolicyDocument"]["Statement"]
        if s["Action"] == "bedrock:InvokeModel"
    ]
    assert grants == [[OWN_PROFILE, *OWN_MODELS]]


def test_stack_embedding_model_is_allowed_in_its_region() -> None:
    """To the functions that compute vectors, and to no other."""
    of_function: dict[str, str] = {}
    for name, role in properties(template(**VARIANTS["nat"]), "IAM::Role").items():
        for policy in role.get("Policies", []):
            for statement in policy["PolicyDocument"]["Statement"]:
                if statement["Action"] == "bedrock:InvokeModel":
                    of_function[name.partition("Role")[0].removeprefix("Compute")] = json.dumps(
                        statement["Resource"]
                    )
    assert sorted(of_function) == ["Eraser", "Mcp", "Query", "Sweeper", "Worker"]
    (resources,) = set(of_function.values())
    assert ":bedrock:eu-west-3:" in resources
    assert "inference-profile/eu.cohere.embed-v4:0" in resources
    assert "foundation-model/cohere.embed-v4:0" in resources


def test_stack_queues_outlast_their_functions_and_give_up() -> None:
    stack = template()
    queues = properties(stack, "SQS::Queue")
    feeds = properties(stack, "Lambda::EventSourceMapping").values()
    assert len(feeds) == 2
    for feed in feeds:
        queue = queues[feed["EventSourceArn"]["Fn::GetAtt"][0]]
        timeout = next(fn.timeout for fn in FUNCTIONS if fn.name.capitalize() in _target(feed))
        assert queue["VisibilityTimeout"] >= 6 * timeout
        assert queue["RedrivePolicy"]["maxReceiveCount"] == 5
        assert feed["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def _target(feed: dict[str, Any]) -> str:
    return json.dumps(feed["FunctionName"])


def test_stack_database_precedes_migrate_and_callers() -> None:
    stack_resources = template()["Resources"]
    (trigger,) = (n for n, r in stack_resources.items() if r["Type"] == "Custom::Release")
    after = stack_resources[trigger]["DependsOn"]
    assert {stack_resources[n]["Type"] for n in after} >= {
        "AWS::RDS::DBCluster",
        "AWS::RDS::DBInstance",
    }
    for name, resource in stack_resources.items():
        if resource["Type"] == "AWS::CloudWatch::Alarm":
            assert trigger in resource["DependsOn"], "else it may fire while the stack is made"
        if resource["Type"] in ("AWS::Scheduler::Schedule", "AWS::StepFunctions::StateMachine"):
            assert trigger in resource["DependsOn"], "else its role may not be known everywhere yet"
        if resource["Type"] != "AWS::Lambda::Alias":
            continue
        if "Migrate" in name:
            assert name in after
        else:
            assert trigger in resource["DependsOn"]


def test_stack_release_of_layers_runs_migrate() -> None:
    """The trigger runs when the version of `migrate` is another; migrations lie in a layer."""

    def version(stack: Template) -> str:
        return next(n for n in properties(stack, "Lambda::Version") if "ComputeMigrate" in n)

    others = [synthesize("with_another_domain_layer", content) for content in ("one", "two")]
    assert version(others[0]) != version(others[1])
    # A release of the same routes leaves the API's deployment: its stage calls aliases.
    deployments = [properties(other, "ApiGateway::Deployment").keys() for other in others]
    assert deployments[0] == deployments[1]


def test_stack_schedules_daily_sweep_only() -> None:
    props = only(template(), "Scheduler::Schedule")
    assert props["ScheduleExpression"] == DAILY_SWEEP_SCHEDULE
    assert json.loads(props["Target"]["Input"]) == {"job": "sweeper"}
    assert "AWS::Events::Rule" not in {r["Type"] for r in template()["Resources"].values()}


def test_stack_database_pauses_without_calls() -> None:
    scaling = only(template(), "RDS::DBCluster")["ServerlessV2ScalingConfiguration"]
    assert scaling == {"MinCapacity": 0, "MaxCapacity": 4, "SecondsUntilAutoPause": 300}
    awake = only(template(**VARIANTS["proxy"]), "RDS::DBCluster")
    assert "SecondsUntilAutoPause" not in awake["ServerlessV2ScalingConfiguration"]


def test_stack_networks_have_their_endpoints() -> None:
    def interfaces(stack: Template) -> list[str]:
        props = properties(stack, "EC2::VPCEndpoint").values()
        return sorted(
            json.dumps(e["ServiceName"]).rpartition(".")[2].strip('"]}')
            for e in props
            if e["VpcEndpointType"] == "Interface"
        )

    fewest, bedrock = template(), template(**VARIANTS["bedrock"])
    assert len(interfaces(fewest)) == 2
    assert len(interfaces(bedrock)) == 3
    assert interfaces(template(**VARIANTS["own key"])) == interfaces(bedrock)  # for its embeddings
    assert not properties(fewest, "EC2::NatGateway")
    assert not properties(fewest, "EC2::InternetGateway")
    nat = template(**VARIANTS["nat"])
    assert len(properties(nat, "EC2::NatGateway")) == 1
    assert not interfaces(nat)
    existing = template(**VARIANTS["existing"])
    assert not any(
        r["Type"] in ("AWS::EC2::VPC", "AWS::EC2::Subnet") for r in existing["Resources"].values()
    )


def test_stack_names_are_unique_per_stack() -> None:
    """Two stacks in one account have no name in common."""
    one, two = template(**VARIANTS["proxy"]), template(**SECOND)
    ours = (
        *(
            "AlarmName",
            "BudgetName",
            "DBClusterIdentifier",
            "DBProxyName",
            "DashboardName",
            "FunctionName",
        ),
        *("GroupName", "LogGroupName", "Name", "StateMachineName", "TopicName"),
    )

    def names(stack: Template) -> set[str]:
        return {
            f"{resource['Type']} {json.dumps(props[member])}"
            for resource in stack["Resources"].values()
            if resource["Type"] not in ("AWS::Lambda::Alias",)  # a name within its function
            for props in [resource.get("Properties", {})]
            for member in ours
            if isinstance(props.get(member), str) or (member == "DashboardName" and member in props)
        }

    shared = names(one) & names(two)
    assert not shared, shared
    assert len(names(one)) > 15


def test_stack_boundary_and_tags_are_everywhere() -> None:
    bound = template(**VARIANTS["bedrock"])
    for name, role in properties(bound, "IAM::Role").items():
        assert role.get("PermissionsBoundary") == "arn:aws:iam::111122223333:policy/boundary", name
    tagged = only(template(**VARIANTS["own key"]), "RDS::DBCluster")["Tags"]
    assert {"Key": "team", "Value": "memory"} in tagged
    assert {"Key": "strandline:stack", "Value": "strandline-dev"} in tagged


def test_stack_own_key_is_everywhere() -> None:
    for name in ("own key", "a key that is there"):
        stack = template(**VARIANTS[name])
        for kind, member in {
            "RDS::DBCluster": "KmsKeyId",
            "SQS::Queue": "KmsMasterKeyId",
            "SecretsManager::Secret": "KmsKeyId",
            "Logs::LogGroup": "KmsKeyId",
        }.items():
            assert all(member in p for p in properties(stack, kind).values()), (name, kind)


def test_stack_refuses_too_large_layers(tmp_path: Path) -> None:
    refusal = synthesize("refusal_of_layers", 70 * 2**20)
    assert re.search(r"query: its layers \(deps, domain, model\).*over Lambda's 250", refusal)
    # Those of all other stacks here are just small enough.
    assert StandIns(tmp_path).unzipped_size(tmp_path) == LAYER_BYTES == 62 * 2**20
    assert template()["Resources"]


@pytest.mark.proof
def test_stack_passes_cfn_lint(tmp_path: Path) -> None:
    """W3005 is about dependencies that the CDK writes twice."""
    file = tmp_path / "template.json"
    file.write_text(json.dumps(template(**VARIANTS["mutual TLS"])))
    process = subprocess.run(
        [Path(sys.executable).with_name("cfn-lint"), "--ignore-checks", "W3005", "--", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.stdout + process.stderr, process.returncode) == ("", 0)
