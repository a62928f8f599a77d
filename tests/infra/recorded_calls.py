"""What the functions really ask of AWS, heard at botocore, and what IAM calls that.

Which action an operation needs, and on which resource, is from the Service Authorization Reference
(docs.aws.amazon.com/service-authorization/latest/reference) and, where it says nothing of it, from
the operation's own page: that HeadObject and GetObject answer 403 instead of 404 without
s3:ListBucket, and that Converse is bedrock:InvokeModel.
"""

import io
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from botocore.config import Config

from infra.permissions import ResourceArns, list_bedrock_model_arns
from strandline.aws import client_factory
from strandline.aws.sigv4 import Signer
from strandline.function_specs import FunctionSpec
from strandline.local.lambda_context import ACCOUNT_ID, REGION
from tests.infra import source_calls
from tests.infra.source_calls import Asks
from tests.strandline.embeddings.fake_embedders import WordEmbedder
from tests.support import APP, OWNER, PASSWORDS

MODEL = "some.model-v1:0"
EMBEDDING_MODEL = "amazon.titan-embed-text-v2:0"
ARN = f"arn:aws:{{}}:{REGION}:{ACCOUNT_ID}:{{}}"
CLUSTER = "cluster-ABC"
GROUP = "strandline"
STATE_MACHINE = ARN.format("states", "stateMachine:strandline-jobs")
STARTER = f"arn:aws:iam::{ACCOUNT_ID}:role/strandline-starter"


def stage(bucket: str, secrets: Mapping[str, str]) -> ResourceArns:
    """What a stage has, whose bucket this is, and whose secrets have these ARNs."""
    return ResourceArns(
        bucket=f"arn:aws:s3:::{bucket}",
        work_queue=ARN.format("sqs", "strandline"),
        job_queue=ARN.format("sqs", "strandline-runs"),
        database_user=ARN.format("rds-db", f"dbuser:{CLUSTER}/{APP}"),
        owner_user=ARN.format("rds-db", f"dbuser:{CLUSTER}/{OWNER}"),
        state_machine=STATE_MACHINE,
        schedule_group=GROUP,
        scheduler_role=STARTER,
        function_prefix="strandline-",
        region=REGION,
        account=ACCOUNT_ID,
        partition="aws",
        models=list_bedrock_model_arns(MODEL, "aws", REGION, ACCOUNT_ID),
        embedding_models=list_bedrock_model_arns(EMBEDDING_MODEL, "aws", REGION, ACCOUNT_ID),
        settings_secret=secrets["secrets"],
        administrator_secret=secrets["administrator_secret"],
        first_key_secret=secrets["first_key_secret"],
    )


def only(**condition: Mapping[str, str]) -> str:
    """A condition, spelled so that two can be compared."""
    return json.dumps({name: dict(keys) for name, keys in condition.items()}, sort_keys=True)


class NeededCall(NamedTuple):
    """One thing that a function needs to be allowed."""

    function: str
    action: str
    resource: str
    only: str = ""
    """The condition under which it may be allowed, as JSON."""


def _bucket(params: Mapping[str, Any]) -> str:
    return f"arn:aws:s3:::{params['Bucket']}"


def _object(params: Mapping[str, Any]) -> str:
    return f"{_bucket(params)}/{params['Key']}"


def _queue(params: Mapping[str, Any]) -> str:
    return ARN.format("sqs", params["QueueUrl"].rpartition("/")[2])


def _copy_calls(params: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [("s3:GetObject", _object(params["CopySource"])), ("s3:PutObject", _object(params))]


def _remove_calls(params: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (
            "s3:DeleteObjectVersion" if "VersionId" in entry else "s3:DeleteObject",
            f"{_bucket(params)}/{entry['Key']}",
        )
        for entry in params["Delete"]["Objects"]
    ]


def _model_calls(params: Mapping[str, Any]) -> list[tuple[str, str]]:
    arns = list_bedrock_model_arns(params["modelId"], "aws", REGION, ACCOUNT_ID)
    return [("bedrock:InvokeModel", arn) for arn in arns]


OPERATIONS: Mapping[str, Callable[[Mapping[str, Any]], list[tuple[str, str]]]] = {
    "PutObject": lambda request: [("s3:PutObject", _object(request))],
    "GetObject": lambda request: [("s3:GetObject", _object(request))],
    "HeadObject": lambda request: [("s3:GetObject", _object(request))],
    "CopyObject": _copy_calls,  # of objects without tags, and none of ours can have any
    "DeleteObjects": _remove_calls,
    "ListObjectsV2": lambda request: [("s3:ListBucket", _bucket(request))],
    "ListObjectVersions": lambda request: [("s3:ListBucketVersions", _bucket(request))],
    "GetBucketVersioning": lambda request: [("s3:GetBucketVersioning", _bucket(request))],
    "HeadBucket": lambda request: [("s3:ListBucket", _bucket(request))],
    "SendMessage": lambda request: [("sqs:SendMessage", _queue(request))],
    "SendMessageBatch": lambda request: [("sqs:SendMessage", _queue(request))],
    "ChangeMessageVisibility": lambda request: [("sqs:ChangeMessageVisibility", _queue(request))],
    "GetQueueAttributes": lambda request: [("sqs:GetQueueAttributes", _queue(request))],
    "StartExecution": lambda request: [("states:StartExecution", request["stateMachineArn"])],
    "CreateSchedule": lambda request: [
        (
            "scheduler:CreateSchedule",
            ARN.format("scheduler", f"schedule/{request['GroupName']}/{request['Name']}"),
        ),
        ("iam:PassRole", request["Target"]["RoleArn"]),
    ],
    "GetSecretValue": lambda request: [("secretsmanager:GetSecretValue", request["SecretId"])],
    "PutSecretValue": lambda request: [("secretsmanager:PutSecretValue", request["SecretId"])],
    "Converse": _model_calls,
    "InvokeModel": _model_calls,
}
"""Operation → what it needs to be allowed."""
CONDITIONS: Mapping[str, dict[str, dict[str, str]]] = {
    "iam:PassRole": {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}},
}
"""Under which alone an action may be allowed."""

KEY_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "s3:GetObject": ("kms:Decrypt",),
    "s3:PutObject": ("kms:GenerateDataKey",),
    "sqs:SendMessage": ("kms:GenerateDataKey", "kms:Decrypt"),
    "sqs:ReceiveMessage": ("kms:Decrypt",),
    "secretsmanager:GetSecretValue": ("kms:Decrypt",),
    "secretsmanager:PutSecretValue": ("kms:GenerateDataKey", "kms:Decrypt"),
}
"""What of a key of one's own a call needs besides, through the service that is called."""

CONSUMER_ACTIONS = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes")
"""What Lambda's poller does to a queue in a function's name (Lambda's guide, "Using Lambda with
Amazon SQS"): no code of ours asks it, so no ear hears it."""
VPC_ACTIONS = (
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
)
"""What Lambda does to put a function into a VPC, and what the function's code is denied (its guide,
"Giving Lambda functions access to resources in an Amazon VPC")."""
DENIED_PREFIX = "denied "
"""Before an action that a statement denies."""
LOG_ACTIONS = ("logs:CreateLogStream", "logs:PutLogEvents")
"""What Lambda does with what a function prints."""

TOPIC: dict[str, Any] = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"toolUse": {"toolUseId": "t", "name": "topic", "input": {"topic": "tides"}}}
            ],
        }
    },
    "stopReason": "tool_use",
    "usage": {"inputTokens": 30, "outputTokens": 7, "totalTokens": 37},
}


def _embed(request: Mapping[str, Any]) -> dict[str, Any]:
    """A vector of the text's words, in Titan's format."""
    asked = json.loads(request["body"])
    words = WordEmbedder("words/256", asked["dimensions"])
    (vector,) = words.embed([asked["inputText"]], timeout=1.0)
    return {"body": io.BytesIO(json.dumps({"embedding": vector}).encode())}


ANSWERS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "Converse": lambda _: TOPIC,
    "InvokeModel": _embed,
    "StartExecution": lambda _: {"executionArn": "arn", "startDate": 0},
    "CreateSchedule": lambda _: {"ScheduleArn": "arn"},
}
"""What services answer that nobody stands in for here; what they are asked is heard as well."""


@dataclass
class Ear:
    """Hears every operation of every client, presigned URLs too, and whose it is."""

    function: str = ""
    """Whose turn it is; what nobody's turn asks is the state machine's or a test's."""
    calls: set[NeededCall] = field(default_factory=set[NeededCall])
    operations: set[str] = field(default_factory=set[str])
    """All that were heard."""
    ways: set[tuple[str, Asks]] = field(default_factory=set[tuple[str, Asks]])
    """Of each function, where in the source it was when it asked, all the way down to the call: the
    operation, and the method of what asks AWS that it came through."""
    heard: set[str] = field(default_factory=set[str])
    """Functions that had a turn."""

    def client(self, service: Any, config: Config) -> Any:
        """As strandline.aws.client_factory.make_client makes it, and heard."""
        result = _make(service, config)
        result.meta.events.register("provide-client-params", self._begins)
        result.meta.events.register("after-call", self._ends)
        name = result.meta.service_model.service_id.hyphenize()
        for operation in ANSWERS:
            result.meta.events.register(f"before-call.{name}.{operation}", self._answers)
        return result

    def turn(self, function: str, handler: Callable[..., Any]) -> Callable[..., Any]:
        """The function's handler, whose calls are its own."""

        def listen(event: Any, context: Any) -> Any:
            with self.of(function):
                return handler(event, context)

        return listen

    @contextmanager
    def of(self, function: str) -> Generator[None]:
        """It is this function's turn."""
        assert not self.function, "one at a time"
        self.function = function
        self.heard.add(function)
        try:
            yield
        finally:
            self.function = ""

    def listen(self, patch: pytest.MonkeyPatch) -> None:
        """To all clients from now on, and to what is signed without one."""
        patch.setattr(client_factory, "make_client", self.client)
        sign = Signer.make_signed_post_headers

        def signed(signer: Signer, service: str, url: str, body: bytes, *more: Any) -> Any:
            self._hear(more[0]["x-amz-target"].partition(".")[2], json.loads(body))
            return sign(signer, service, url, body, *more)

        def token(signer: Signer, host: str, port: int, user: str, now: datetime) -> str:
            del signer, host, port, now
            user_arn = ARN.format("rds-db", f"dbuser:{CLUSTER}/{user}")
            self.calls.add(NeededCall(self.function, "rds-db:connect", user_arn))
            return PASSWORDS[user]  # which a database here takes for it

        patch.setattr(Signer, "make_signed_post_headers", signed)
        patch.setattr(Signer, "sign_database_token", token)
        # Each function runs in a process of its own, and makes its own token.
        patch.setattr("strandline.db.connection._TOKEN_SECONDS", 1e-6)

    def _hear(self, operation: str, params: Mapping[str, Any]) -> None:
        self.operations.add(operation)
        way = source_calls.on_the_way()
        for place in way:
            self.ways.add((self.function, Asks(place, operation)))
            for through in map(source_calls.method, way):
                self.ways |= {(self.function, Asks(place, through))} if through else set()
        for action, resource in OPERATIONS[operation](params):
            condition = only(**CONDITIONS[action]) if action in CONDITIONS else ""
            self.calls.add(NeededCall(self.function, action, resource, condition))

    def _begins(self, params: Mapping[str, Any], model: Any, context: Any, **_more: Any) -> None:
        context["asked"] = params
        if self.function:
            self._hear(model.name, params)

    def _ends(self, http_response: Any, model: Any, context: Any, **_more: Any) -> None:
        if self.function and http_response.status_code == 404 and model.name != "HeadBucket":
            self.calls.add(NeededCall(self.function, "s3:ListBucket", _bucket(context["asked"])))

    def _answers(self, model: Any, context: Any, **_more: Any) -> Any:
        answer = ANSWERS[model.name](context["asked"])
        return SimpleNamespace(status_code=200, headers={}), answer


_make = client_factory.make_client


def by_lambda(fn: FunctionSpec, stage: ResourceArns) -> Iterator[NeededCall]:
    """What Lambda itself asks in this function's name."""
    group = ARN.format("logs", f"log-group:/aws/lambda/{stage.function_prefix}{fn.name}")
    yield from (NeededCall(fn.name, action, f"{group}:log-stream:1") for action in LOG_ACTIONS)
    if fn.queue:
        queue = stage.work_queue if fn.queue == "work_queue" else stage.job_queue
        yield from (NeededCall(fn.name, action, queue) for action in CONSUMER_ACTIONS)
    if {"database", "owner"} & fn.needs:
        code = ARN.format("lambda", f"function:{stage.function_prefix}{fn.name}")
        by_code = only(ArnEquals={"lambda:SourceFunctionArn": code})
        for action in VPC_ACTIONS:
            yield NeededCall(fn.name, action, "*")
            yield NeededCall(fn.name, f"{DENIED_PREFIX}{action}", "*", by_code)


def on_the_key(request: Iterable[NeededCall], key: str) -> Iterator[NeededCall]:
    """What these need besides, where what they touch lies under a key of one's own."""
    for one in request:
        service = one.action.partition(":")[0]
        through = only(StringEquals={"kms:ViaService": f"{service}.{REGION}.amazonaws.com"})
        for action in KEY_ACTIONS.get(one.action, ()):
            yield NeededCall(one.function, action, key, through)
