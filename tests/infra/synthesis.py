"""What the CDK makes of settings. Importing it takes seconds: tests that need it do so then."""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

# Read once, when the CDK's JavaScript starts, of which Node it would complain.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "18,20")
os.environ.setdefault("JSII_NODE", str(Path(__file__).with_name("node.sh")))

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_rds as rds
from aws_cdk import aws_sqs as sqs
from cdk_nag import AwsSolutionsChecks

from infra.api import Api
from infra.load_settings import build_valid_settings
from infra.metrics import MonitoredResources
from infra.monitoring import Monitoring
from infra.settings import SettingsError
from infra.stack import StrandlineStack
from layers.build import OWN_CERTIFICATES_PATH
from strandline.function_specs import FunctionSpec
from tests.infra.stacks import CONTEXT, StandIns, Template


def stack(
    directory: Path, settings: Mapping[str, Any], assets: StandIns | None = None
) -> StrandlineStack:
    """The stack of these settings, in an app of its own."""
    app = cdk.App(context=dict(CONTEXT), outdir=str(directory / "out"), analytics_reporting=False)
    return StrandlineStack(
        app, build_valid_settings(settings), assets or StandIns(directory / "assets")
    )


def synthesize(settings: Mapping[str, Any]) -> str:
    """The template of the stack of these settings."""
    with TemporaryDirectory() as name:
        return _synthesize(Path(name), settings)


def _synthesize(
    directory: Path, settings: Mapping[str, Any], assets: StandIns | None = None
) -> str:
    built_stack = stack(directory, settings, assets)
    cast(cdk.App, built_stack.node.root).synth()
    return (directory / "out" / f"{built_stack.stack_name}.template.json").read_text()


def with_another_domain_layer(content: str) -> Template:
    """The template by default, where a file of the domain layer has this content."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        layer = directory / "assets" / "domain"
        layer.mkdir(parents=True)
        (layer / "migrations").write_text(content)
        return json.loads(_synthesize(directory, {}))


def with_certificates() -> Template:
    """The template by default, with a layer of certificate authorities."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        assets = StandIns(directory / "assets", size=1)
        assets.certificates = OWN_CERTIFICATES_PATH
        assets.certificates_layer = assets.function_directory("certificates")
        return json.loads(_synthesize(directory, {}, assets))


def refusal_of_layers(size: int) -> str:
    """Why a stack with layers of so many bytes each is refused."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        try:
            stack(directory, {}, StandIns(directory / "assets", size))
        except SettingsError as error:
            return str(error)
    raise AssertionError(f"layers of {size} bytes are accepted")


def findings_of(result: StrandlineStack, directory: Path) -> tuple[str, ...]:
    """Synthesize a stack with all checks; rule and construct of what nothing explains."""
    app = cast(cdk.App, result.node.root)
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    with contextlib.suppress(RuntimeError):  # findings: the report has them
        app.synth()
    report = json.loads((directory / "out" / "validation-report.json").read_text())
    return tuple(
        f"{violation['ruleName']}: {where.get('constructPath')}"
        for one in report["pluginReports"]
        for violation in one["violations"]
        for where in violation.get("violatingConstructs", [{}])
    )


def findings(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What cdk-nag and the CDK's own rules find wrong with these settings' stack, and nothing
    explains."""
    with TemporaryDirectory() as name:
        return findings_of(stack(Path(name), settings), Path(name))


def findings_of_planted() -> tuple[str, ...]:
    """The same for a stack with a queue without encryption and a role that is too wide."""
    with TemporaryDirectory() as name:
        built_stack = stack(Path(name), {})
        sqs.Queue(built_stack, "Bare")
        role = iam.Role(built_stack, "Wide", assumed_by=cast(iam.IPrincipal, iam.AnyPrincipal()))
        role.add_to_policy(iam.PolicyStatement(actions=["s3:GetObject"], resources=["*"]))
        return findings_of(built_stack, Path(name))


def id_of_version(recursive_loop: str) -> str:
    """The logical id of the version of a function whose recursive loops are so."""
    stack_ = cdk.Stack(cdk.App(analytics_reporting=False), "Stack")
    function = lambda_.Function(
        stack_,
        "Function",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.f",
        code=lambda_.Code.from_inline("nothing"),
        recursive_loop=lambda_.RecursiveLoop[recursive_loop],
    )
    assert function.current_version
    (name,) = cdk.assertions.Template.from_stack(stack_).find_resources("AWS::Lambda::Version")
    return name


def make_api(settings: Mapping[str, Any], functions: Sequence[FunctionSpec]) -> str:
    """The resources of an API in front of these functions, as JSON."""
    cdk_stack = cdk.Stack(cdk.App(analytics_reporting=False), "Stack")
    code = lambda_.Code.from_inline("nothing")
    handlers: dict[str, lambda_.Alias] = {}
    for fn in functions:
        function = lambda_.Function(
            cdk_stack, fn.name, runtime=lambda_.Runtime.PYTHON_3_13, handler="index.f", code=code
        )
        version = cast(lambda_.IVersion, function.current_version)
        handlers[fn.name] = lambda_.Alias(
            cdk_stack, f"{fn.name}Live", alias_name="live", version=version
        )
    Api(cdk_stack, "Api", build_valid_settings(settings), handlers, functions=functions)
    return json.dumps(cdk.assertions.Template.from_stack(cdk_stack).to_json()["Resources"])


def refusal_of_api(functions: Sequence[FunctionSpec]) -> str:
    """Why an API in front of these functions is refused."""
    try:
        make_api({}, functions)
    except Exception as error:  # the CDK's, or ours
        return str(error)
    raise AssertionError(f"{functions} are accepted")


def make_monitoring(values: Mapping[str, Any], prefix: str) -> str:
    """The resources of the monitoring of functions whose names begin so, as JSON."""
    settings = build_valid_settings(values)
    cdk_stack = cdk.Stack(cdk.App(analytics_reporting=False), "Stack")
    cluster = rds.DatabaseCluster.from_database_cluster_attributes(
        cdk_stack, "Db", cluster_identifier="strandline-dev"
    )
    queues = {
        name: (sqs.Queue(cdk_stack, name), sqs.Queue(cdk_stack, f"dead-{name}"))
        for name in ("work-queue", "job-queue")
    }
    monitored_resources = MonitoredResources(
        api={"ApiName": settings.stack_name, "Stage": "api"},
        queues=cast(Any, queues),
        cluster=cluster,
        machine="arn:aws:states:eu-west-1:1:stateMachine:jobs",
        shards="arn:aws:states:eu-west-1:1:stateMachine:jobs/shards",
        schedules=settings.stack_name,
        prefix=prefix,
    )
    Monitoring(cdk_stack, "Monitoring", settings, monitored_resources)
    return json.dumps(cdk.assertions.Template.from_stack(cdk_stack).to_json()["Resources"])
