"""What each function's role allows: exactly the calls of its code, on exactly their resources.

The tables are data. tests/infra/test_permissions.py records what the code calls. It fails if a
grant is missing and if a grant is never used.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from aws_cdk import aws_iam as iam

    from strandline.function_specs import FunctionNeed, FunctionSpec


@dataclass(frozen=True)
class ResourceArns:
    """ARNs of the stack's resources. The tables below use the names of these fields."""

    bucket: str
    """In the tables `bucket/x` means the objects under that prefix."""
    work_queue: str
    """The queue of messages that name scopes with work."""
    job_queue: str
    """The queue of requests for runs of jobs."""
    settings_secret: str
    """The secret that holds all secret settings."""
    administrator_secret: str
    """The master user's secret, created by RDS."""
    first_key_secret: str
    """The secret for the operator's first key."""
    database_user: str
    """arn:aws:rds-db:…:dbuser:<cluster resource id>/strandline_app"""
    owner_user: str
    """The same for strandline_owner."""
    state_machine: str
    schedule_group: str
    """The name of the group of one-time schedules, not its ARN."""
    scheduler_role: str
    """The role that Scheduler assumes to start the state machine."""
    function_prefix: str
    """Prefix of the functions' names. Their log groups are /aws/lambda/<prefix><function>."""
    region: str
    account: str
    partition: str
    proxy_user: str | None = None
    """The same user behind a proxy, where there is one: arn:aws:rds-db:…:dbuser:prx-…"""
    models: tuple[str, ...] = ()
    """What Converse calls for the configured model (`list_bedrock_model_arns`); empty without
    Bedrock."""
    embedding_models: tuple[str, ...] = ()
    """The same for InvokeModel and the embedding model."""
    key: str | None = None
    """The customer-managed KMS key, if the stage has one."""
    network: bool = True
    """Whether functions that need the database run in a VPC."""


@dataclass(frozen=True)
class PermissionGrant:
    """Actions allowed on resources under conditions, or denied."""

    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict[str, Mapping[str, str]]
    )
    effect: Literal["Allow", "Deny"] = "Allow"


type Actions = Mapping[str, tuple[str, ...]]
"""IAM action → names of the resources that it is allowed on."""

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
"""What every function with a need may do. What one may do beyond that is in its row's `actions`."""

_EMBED: Actions = {"bedrock:InvokeModel": ("embedding_models",)}
"""What a function may do that computes vectors, which are those with the layer of the model."""

_CONSUME = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes")
"""What Lambda does, with the function's role, to the queue that feeds the function."""

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
"""What Lambda itself does, with the function's role, to attach the function to a VPC. The
interfaces have no ARN before they are created, and describing takes no resource, so the resource is
`*`. The function's code is denied the same: its calls carry lambda:SourceFunctionArn. Both
statements have the form of Lambda's guide, "Giving Lambda functions access to resources in an
Amazon VPC"."""

LOGS = ("logs:CreateLogStream", "logs:PutLogEvents")
"""What Lambda does to write a function's log. The stack creates the log group."""

_KEY_ACTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "s3:GetObject": ("s3", ("kms:Decrypt",)),
    "s3:PutObject": ("s3", ("kms:GenerateDataKey",)),
    "sqs:SendMessage": ("sqs", ("kms:GenerateDataKey", "kms:Decrypt")),
    "sqs:ReceiveMessage": ("sqs", ("kms:Decrypt",)),
    "secretsmanager:GetSecretValue": ("secretsmanager", ("kms:Decrypt",)),
    "secretsmanager:PutSecretValue": ("secretsmanager", ("kms:GenerateDataKey", "kms:Decrypt")),
}
"""For each call: the service that encrypts, and the actions that the call needs on its key."""


def list_grants_of_function(fn: "FunctionSpec", resources: ResourceArns) -> list[PermissionGrant]:
    """Everything that the role of this function allows, and denies."""
    allowed = _collect_resource_names_by_action(fn)
    result = [
        *_make_resource_grants(allowed, resources),
        *_make_encryption_key_grants(allowed, resources),
    ]
    if resources.network and {"database", "owner"} & fn.needs:
        service = f"arn:{resources.partition}:lambda:{resources.region}:{resources.account}"
        code = f"{service}:function:{resources.function_prefix}{fn.name}"
        from_code = {"ArnEquals": {"lambda:SourceFunctionArn": code}}
        result.append(PermissionGrant(NETWORK_INTERFACES, ("*",)))
        result.append(PermissionGrant(NETWORK_INTERFACES, ("*",), from_code, "Deny"))
    log_groups = f"{resources.region}:{resources.account}:log-group:/aws/lambda/"
    group = f"arn:{resources.partition}:logs:{log_groups}{resources.function_prefix}{fn.name}:*"
    return [*result, PermissionGrant(LOGS, (group,))]


def make_policy_statements(
    fn: "FunctionSpec", resources: ResourceArns
) -> list["iam.PolicyStatement"]:
    """The same as IAM policy statements of the CDK."""
    from aws_cdk import aws_iam as iam

    return [
        iam.PolicyStatement(
            effect=iam.Effect.ALLOW if grant.effect == "Allow" else iam.Effect.DENY,
            actions=list(grant.actions),
            resources=list(grant.resources),
            conditions=dict(grant.conditions),
        )
        for grant in list_grants_of_function(fn, resources)
    ]


def list_bedrock_model_arns(
    model: str, partition: str, region: str, account: str
) -> tuple[str, ...]:
    """ARNs that a call with this modelId calls: a model of this region; a model or profile named
    by its ARN; or a profile over several regions (`eu.…`), which calls the model in each."""
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


def _collect_resource_names_by_action(fn: "FunctionSpec") -> dict[str, set[str]]:
    """Action → names of the resources that it is allowed on."""
    allowed: dict[str, set[str]] = {}
    queue_actions = dict.fromkeys(_CONSUME, (fn.queue,)) if fn.queue else {}
    tables = [_BY_NEED.get(need, {}) for need in fn.needs]
    if "model" in fn.layers:
        tables.append(_EMBED)
    for table in (*tables, fn.actions, queue_actions):
        for action, names in table.items():
            allowed.setdefault(action, set()).update(names)
    return allowed


def _make_resource_grants(
    allowed: Mapping[str, set[str]], resources: ResourceArns
) -> Iterator[PermissionGrant]:
    """One grant for all actions on the same resources."""
    actions_by_arns: dict[tuple[str, ...], list[str]] = {}
    for action, names in sorted(allowed.items()):
        if arns := tuple(arn for name in sorted(names) for arn in _resolve_arns(name, resources)):
            if action in _CONDITIONS:
                yield PermissionGrant((action,), arns, _CONDITIONS[action])
            else:
                actions_by_arns.setdefault(arns, []).append(action)
    for arns, actions in actions_by_arns.items():
        yield PermissionGrant(tuple(actions), arns)


def _make_encryption_key_grants(
    allowed: Mapping[str, set[str]], resources: ResourceArns
) -> Iterator[PermissionGrant]:
    """Grants on the key, limited to calls through the service that uses it."""
    if resources.key is None:
        return
    actions_by_service: dict[str, set[str]] = {}
    for action in allowed:
        service, key_actions = _KEY_ACTIONS.get(action, ("", ()))
        actions_by_service.setdefault(service, set()).update(key_actions)
    for service, actions in sorted(actions_by_service.items()):
        if actions:
            condition = {"kms:ViaService": f"{service}.{resources.region}.amazonaws.com"}
            yield PermissionGrant(
                tuple(sorted(actions)), (resources.key,), {"StringEquals": condition}
            )


def _resolve_arns(name: str, resources: ResourceArns) -> tuple[str, ...]:
    """The ARNs that a name in the tables stands for."""
    if name == "models":
        return resources.models
    if name == "embedding_models":
        return resources.embedding_models
    if name == "database_user":  # the cluster's, too: versions of before the proxy log in there
        return tuple(filter(None, (resources.database_user, resources.proxy_user)))
    if name == "schedules":
        path = f"{resources.region}:{resources.account}:schedule/{resources.schedule_group}/*"
        return (f"arn:{resources.partition}:scheduler:{path}",)
    resource, slash, objects = name.partition("/")
    return (getattr(resources, resource) + slash + objects,)
