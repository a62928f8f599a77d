"""What a function's role may do: exactly what its code calls, on exactly the things it calls it on.

The tables are data. tests/infra/test_permissions.py records what the code calls, and fails on a
grant that is missing and on one that nobody uses.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aws_cdk import aws_iam as iam

    from strandline.deployment import FunctionNeed, FunctionSpec


@dataclass(frozen=True)
class ResourceArns:
    """ARNs of what the stack has: the names in the tables below are these fields."""

    bucket: str
    """`bucket/x` in the tables are the objects under it."""
    work_queue: str
    """The queue that names scopes with work."""
    job_queue: str
    """The queue of requests for runs of jobs."""
    settings_secret: str
    """The one secret with the settings that are secret."""
    administrator_secret: str
    """The master user's, made by RDS."""
    first_key_secret: str
    """Where the operator's first key is put."""
    database_user: str
    """arn:aws:rds-db:…:dbuser:<cluster resource id>/strandline_app"""
    owner_user: str
    """The same of strandline_owner."""
    state_machine: str
    schedule_group: str
    """The name of the group of one-time schedules, not its ARN."""
    scheduler_role: str
    """The role that Scheduler takes on to start the state machine."""
    function_prefix: str
    """Names of functions begin with it; their log groups are /aws/lambda/<prefix><function>."""
    region: str
    account: str
    partition: str
    models: tuple[str, ...] = ()
    """What Converse calls with the configured model, see `bedrock_models`; none without Bedrock."""
    key: str | None = None
    """The KMS key of one's own, if the stage has one."""
    network: bool = True
    """Whether functions that need the database lie in a VPC."""


@dataclass(frozen=True)
class Grant:
    """Actions allowed on resources, where the conditions hold."""

    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict[str, Mapping[str, str]]
    )


type Actions = Mapping[str, tuple[str, ...]]
"""IAM action → names of what it is allowed on."""

_BY_NEED: Mapping["FunctionNeed", Actions] = {
    "database": {
        "rds-db:connect": ("database_user",),
        "secretsmanager:GetSecretValue": ("settings_secret",),
    },
    "owner": {
        "rds-db:connect": ("owner_user",),
        "secretsmanager:GetSecretValue": (
            "settings_secret",
            "administrator_secret",
            "first_key_secret",
        ),
        "secretsmanager:PutSecretValue": ("first_key_secret",),
    },
    "job_queue": {"sqs:SendMessage": ("job_queue",)},
    "model": {"bedrock:InvokeModel": ("models",)},
    "state_machine": {"states:StartExecution": ("state_machine",)},
    "schedules": {"scheduler:CreateSchedule": ("schedules",), "iam:PassRole": ("scheduler_role",)},
}
"""What all functions with a need may do."""

_CONSUME = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes")
"""What Lambda does to a queue that feeds a function, by the function's role."""

_BY_FUNCTION: Mapping[str, Actions] = {
    "ingest": {
        "s3:PutObject": ("bucket/*",),  # payloads; the URLs of uploads are signed by this role
        "s3:GetObject": ("bucket/*",),  # looks at an upload, and copies it
        "s3:DeleteObject": ("bucket/_uploads/*",),  # it never removes a payload
        "s3:ListBucket": ("bucket",),  # without it a missing upload is a 403 and not a 404
        "sqs:SendMessage": ("work_queue",),
    },
    "query": {
        "s3:GetObject": ("bucket/*",),  # the URLs of payloads are signed by this role
        "s3:ListBucket": ("bucket",),  # health: HeadBucket
        "sqs:GetQueueAttributes": ("work_queue",),  # health
    },
    "worker": {
        "s3:GetObject": ("bucket/*",),
        "sqs:SendMessage": ("work_queue",),  # scopes that wait come back by themselves
    },
    "archiver": {
        "s3:PutObject": ("bucket/_jobs/*",),
        "s3:GetObject": ("bucket/_jobs/*",),
        "s3:DeleteObject": ("bucket/*",),  # payloads that nobody cites, and its runs' lists
        "s3:ListBucket": ("bucket",),
    },
    "sweeper": {
        "s3:PutObject": ("bucket/_jobs/*",),
        "s3:GetObject": ("bucket/*",),  # texts of payloads, and its runs' lists
        "s3:DeleteObject": ("bucket/_jobs/*", "bucket/_uploads/*"),  # uploads past their time
        "s3:ListBucket": ("bucket",),  # without it a list that is forgotten is a 403
        "sqs:SendMessage": ("work_queue",),
    },
}
"""What functions may do that others with the same need may not."""

_CONDITIONS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "iam:PassRole": {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}},
}

NETWORK_INTERFACES = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
)
"""What Lambda itself does, by the function's role, to put it into a VPC. The interfaces have no
ARN before they are made and describing takes no resource, so it stands on `*`; the condition gives
it to Lambda alone: calls of the function's own code bear lambda:SourceFunctionArn."""
_LAMBDA_ITSELF = {"Null": {"lambda:SourceFunctionArn": "true"}}

LOGS = ("logs:CreateLogStream", "logs:PutLogEvents")
"""What Lambda does for a function that prints. The stack makes the group, so it need not."""

_KEY_ACTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "s3:GetObject": ("s3", ("kms:Decrypt",)),
    "s3:PutObject": ("s3", ("kms:GenerateDataKey",)),
    "sqs:SendMessage": ("sqs", ("kms:GenerateDataKey", "kms:Decrypt")),
    "sqs:ReceiveMessage": ("sqs", ("kms:Decrypt",)),
    "secretsmanager:GetSecretValue": ("secretsmanager", ("kms:Decrypt",)),
    "secretsmanager:PutSecretValue": ("secretsmanager", ("kms:GenerateDataKey", "kms:Decrypt")),
}
"""What a call needs of the key under which its service seals what it touches, and that service."""


def list_grants(fn: "FunctionSpec", resources: ResourceArns) -> list[Grant]:
    """All that the role of this function is allowed."""
    allowed = _allowed_actions(fn)
    result = [*_resource_grants(allowed, resources), *_key_grants(allowed, resources)]
    if resources.network and {"database", "owner"} & fn.needs:
        result.append(Grant(NETWORK_INTERFACES, ("*",), _LAMBDA_ITSELF))
    log_groups = f"{resources.region}:{resources.account}:log-group:/aws/lambda/"
    group = f"arn:{resources.partition}:logs:{log_groups}{resources.function_prefix}{fn.name}:*"
    return [*result, Grant(LOGS, (group,))]


def policy_statements(fn: "FunctionSpec", resources: ResourceArns) -> list["iam.PolicyStatement"]:
    """The same as the CDK writes it into the function's role."""
    from aws_cdk import aws_iam as iam

    return [
        iam.PolicyStatement(
            actions=list(grant.actions),
            resources=list(grant.resources),
            conditions=dict(grant.conditions),
        )
        for grant in list_grants(fn, resources)
    ]


def bedrock_models(model: str, partition: str, region: str, account: str) -> tuple[str, ...]:
    """What Converse with this modelId calls: a model of this region; a model or profile named by
    its ARN; or a profile over several regions (`eu.…`), which calls the model in each of them."""
    _, is_profile, profile = model.partition(":inference-profile/")
    if is_profile:
        models = f"arn:{partition}:bedrock:*::foundation-model/{profile.partition('.')[2]}"
        return (model, models)
    if model.startswith("arn:"):
        return (model,)
    group, _, rest = model.partition(".")
    if group in ("us", "us-gov", "eu", "apac", "jp", "au", "ca", "global"):
        return (
            f"arn:{partition}:bedrock:{region}:{account}:inference-profile/{model}",
            f"arn:{partition}:bedrock:*::foundation-model/{rest}",
        )
    return (f"arn:{partition}:bedrock:{region}::foundation-model/{model}",)


def _allowed_actions(fn: "FunctionSpec") -> dict[str, set[str]]:
    """Action → names of what it is allowed on."""
    allowed: dict[str, set[str]] = {}
    queue_actions = dict.fromkeys(_CONSUME, (fn.queue,)) if fn.queue else {}
    tables = [_BY_NEED.get(need, {}) for need in fn.needs]
    for table in (*tables, _BY_FUNCTION.get(fn.name, {}), queue_actions):
        for action, names in table.items():
            allowed.setdefault(action, set()).update(names)
    return allowed


def _resource_grants(allowed: Mapping[str, set[str]], resources: ResourceArns) -> Iterator[Grant]:
    """One grant for all actions on the same things."""
    actions_by_arns: dict[tuple[str, ...], list[str]] = {}
    for action, names in sorted(allowed.items()):
        if arns := tuple(arn for name in sorted(names) for arn in _arns(name, resources)):
            if action in _CONDITIONS:
                yield Grant((action,), arns, _CONDITIONS[action])
            else:
                actions_by_arns.setdefault(arns, []).append(action)
    for arns, actions in actions_by_arns.items():
        yield Grant(tuple(actions), arns)


def _key_grants(allowed: Mapping[str, set[str]], resources: ResourceArns) -> Iterator[Grant]:
    """The key, for what goes through the service that uses it, and for nothing else."""
    if resources.key is None:
        return
    actions_by_service: dict[str, set[str]] = {}
    for action in allowed:
        service, key_actions = _KEY_ACTIONS.get(action, ("", ()))
        actions_by_service.setdefault(service, set()).update(key_actions)
    for service, actions in sorted(actions_by_service.items()):
        if actions:
            condition = {"kms:ViaService": f"{service}.{resources.region}.amazonaws.com"}
            yield Grant(tuple(sorted(actions)), (resources.key,), {"StringEquals": condition})


def _arns(name: str, resources: ResourceArns) -> tuple[str, ...]:
    """What a name in the tables stands for."""
    if name == "models":
        return resources.models
    if name == "schedules":
        path = f"{resources.region}:{resources.account}:schedule/{resources.schedule_group}/*"
        return (f"arn:{resources.partition}:scheduler:{path}",)
    resource, slash, objects = name.partition("/")
    return (getattr(resources, resource) + slash + objects,)
