"""What would hurt, looked for in a template: each function gives what it found, by logical id."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from tests.infra.stacks import Template, properties

type Finder = Callable[[Template], list[str]]

_SECRET = ("secret", "password", "token", "api_key")
_DATA = ("s3:", "sqs:", "secretsmanager:", "rds-db:", "kms:", "dynamodb:")


def public_database(template: Template) -> list[str]:
    """An instance with an address, or a database's port open to more than a security group."""
    instances = properties(template, "RDS::DBInstance")
    bare = [n for n, p in instances.items() if p.get("PubliclyAccessible") is not False]
    rules = properties(template, "EC2::SecurityGroupIngress")
    inside = {
        name: rule
        for name, group in properties(template, "EC2::SecurityGroup").items()
        for rule in group.get("SecurityGroupIngress", [])
    }
    wide = [n for n, p in (rules | inside).items() if "CidrIp" in p or "CidrIpv6" in p]
    return bare + wide


def open_bucket(template: Template) -> list[str]:
    """A bucket that may be public, or is reached without TLS."""
    closed = dict.fromkeys(
        ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"), True
    )
    buckets = properties(template, "S3::Bucket")
    bare = [n for n, p in buckets.items() if p.get("PublicAccessBlockConfiguration") != closed]
    return bare + _without_tls(template, "S3::BucketPolicy", "Bucket", buckets)


def open_queue(template: Template) -> list[str]:
    """A queue that is reached without TLS."""
    return _without_tls(template, "SQS::QueuePolicy", "Queues", properties(template, "SQS::Queue"))


def find_unencrypted(template: Template) -> list[str]:
    """What keeps memory, and not under a key; and a database that speaks without TLS."""
    settings: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
        "RDS::DBCluster": lambda p: p.get("StorageEncrypted"),
        "S3::Bucket": lambda p: p.get("BucketEncryption"),
        "SQS::Queue": lambda p: p.get("SqsManagedSseEnabled") or p.get("KmsMasterKeyId"),
        "RDS::DBClusterParameterGroup": lambda p: p["Parameters"].get("rds.force_ssl") == "1",
        "RDS::DBProxy": lambda p: p.get("RequireTLS"),
    }
    return [
        name
        for kind, is_sealed in settings.items()
        for name, props in properties(template, kind).items()
        if not is_sealed(props)
    ]


def kept_by_nobody(template: Template) -> list[str]:
    """Data that goes with the stack, or cannot be had back."""
    data = ("RDS::DBCluster", "S3::Bucket")
    removed_ids = [
        name
        for name, resource in template["Resources"].items()
        if resource["Type"].removeprefix("AWS::") in data
        and resource.get("DeletionPolicy") not in ("RetainExceptOnCreate", "Snapshot")
    ]
    clusters = properties(template, "RDS::DBCluster")
    losses = [n for n, p in clusters.items() if not p.get("BackupRetentionPeriod")]
    unprotected = [n for n, p in clusters.items() if not p.get("DeletionProtection")]
    buckets = properties(template, "S3::Bucket")
    one_version = [
        n
        for n, p in buckets.items()
        if p.get("VersioningConfiguration", {}).get("Status") != "Enabled"
    ]
    return removed_ids + losses + unprotected + one_version


def wildcard_on_data(template: Template) -> list[str]:
    """A role that may do anything to data, or something to all data."""
    return [
        name
        for name, role in properties(template, "IAM::Role").items()
        for statement in _statements(role)
        if statement["Effect"] == "Allow" and _is_wide(statement)
    ]


def plain_secret(template: Template) -> list[str]:
    """A function that is told a secret itself, or a secret whose text is in the template."""
    events = [
        name
        for name, function in properties(template, "Lambda::Function").items()
        for variable, value in function.get("Environment", {}).get("Variables", {}).items()
        if (variable.lower().endswith(_SECRET) and not _names_a_resource(value))
        or "password=" in json.dumps(value)
    ]
    secrets = properties(template, "SecretsManager::Secret")
    outputs = [n for n, p in secrets.items() if "SecretString" in p]
    clusters = properties(template, "RDS::DBCluster")
    return events + outputs + [n for n, p in clusters.items() if "MasterUserPassword" in p]


def default_endpoint_beside_mutual_tls(template: Template) -> list[str]:
    """A way around the certificate that a domain asks for."""
    domains = properties(template, "ApiGateway::DomainName").values()
    if not any("MutualTlsAuthentication" in domain for domain in domains):
        return []
    apis = properties(template, "ApiGateway::RestApi")
    extension = "x-amazon-apigateway-endpoint-configuration"
    return [
        name
        for name, props in apis.items()
        if props.get("DisableExecuteApiEndpoint") is not True
        or props["Body"][extension]["disableExecuteApiEndpoint"] is not True
    ]


def undeclared_loop(template: Template) -> list[str]:
    """A function whose messages come back to it, by one queue or several, and that Lambda would
    therefore stop after some rounds: it does not declare that it means it."""
    functions = properties(template, "Lambda::Function")
    feeds: dict[str, set[str]] = {}  # queue → the functions that it invokes
    for mapping in properties(template, "Lambda::EventSourceMapping").values():
        text = json.dumps(mapping["FunctionName"])
        aliases = {n for n in properties(template, "Lambda::Alias") if f'"{n}"' in text}
        invoked = {
            properties(template, "Lambda::Alias")[alias]["FunctionName"]["Ref"] for alias in aliases
        } or {n for n in functions if f'"{n}"' in text}
        feeds.setdefault(mapping["EventSourceArn"]["Fn::GetAtt"][0], set()).update(invoked)
    reached = {name: _invoked_by(template, function, feeds) for name, function in functions.items()}
    while True:
        more = {
            name: there | {again for one in there for again in reached[one]}
            for name, there in reached.items()
        }
        if more == reached:
            break
        reached = more
    return [
        n for n in functions if n in reached[n] and functions[n].get("RecursiveLoop") != "Allow"
    ]


def _invoked_by(
    template: Template, function: Mapping[str, Any], feeds: Mapping[str, set[str]]
) -> set[str]:
    """The functions that the queues invoke to which this one may send."""
    role = properties(template, "IAM::Role")[function["Role"]["Fn::GetAtt"][0]]
    return {
        invoked
        for statement in _statements(role)
        if statement["Effect"] == "Allow" and "sqs:SendMessage" in _as_list(statement["Action"])
        for resource in _as_list(statement["Resource"])
        if isinstance(resource, dict)
        for invoked in feeds.get(cast(Any, resource)["Fn::GetAtt"][0], ())
    }


HURTS: tuple[Finder, ...] = (
    *(public_database, open_bucket, open_queue, find_unencrypted, kept_by_nobody),
    *(wildcard_on_data, plain_secret, default_endpoint_beside_mutual_tls, undeclared_loop),
)


def _without_tls(
    template: Template, policy: str, whose: str, things: Mapping[str, Any]
) -> list[str]:
    """Things that no policy closes to what comes without TLS."""
    closed: set[str] = set()
    for props in properties(template, policy).values():
        denied = [
            s
            for s in props["PolicyDocument"]["Statement"]
            if s["Effect"] == "Deny"
            and s.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
            and s["Action"] in ("s3:*", "sqs:*")
        ]
        if denied:
            of = props[whose] if isinstance(props[whose], list) else [props[whose]]
            closed |= {one["Ref"] for one in of}
    return [name for name in things if name not in closed]


def _statements(role: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for policy in role.get("Policies", []):
        yield from policy["PolicyDocument"]["Statement"]


def _is_wide(statement: Mapping[str, Any]) -> bool:
    actions = _as_list(statement["Action"])
    touched = [a for a in actions if a == "*" or a.startswith(_DATA)]
    return bool(touched) and (
        any(a == "*" or a.split(":")[1].startswith("*") for a in touched)
        or "*" in _as_list(statement["Resource"])
    )


def _as_list(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else [value]


def _names_a_resource(value: Any) -> bool:
    return isinstance(value, dict)
