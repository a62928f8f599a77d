"""Each function's role is allowed exactly what is asked of AWS in its name: nothing is missing,
nothing is more, and nothing is wider than it must be."""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import pytest

from infra.permissions import (
    PermissionGrant,
    ResourceArns,
    list_bedrock_model_arns,
    list_grants_of_function,
)
from strandline.embeddings.embedder import Embedder
from strandline.function_specs import FUNCTIONS, JOBS, FunctionSpec
from strandline.local.aws import LocalAws
from strandline.local.lambda_context import ACCOUNT_ID, REGION
from strandline.local.postgres import EmbeddedPostgres
from tests.infra import source_calls
from tests.infra.invocations import take
from tests.infra.recorded_calls import (
    ARN,
    CLUSTER,
    DENIED_PREFIX,
    EMBEDDING_MODEL,
    MODEL,
    VPC_ACTIONS,
    Ear,
    NeededCall,
    by_lambda,
    on_the_key,
    only,
)
from tests.infra.source_calls import Asks, Place
from tests.infra.stacks import Template, properties, template
from tests.support import TEMPLATE, ScratchDatabase, unique_name

KEY = ARN.format("kms", "key/1")
PARTS = ("_uploads/*", "_jobs/*", "_exports/*")
"""Of the bucket, which can be granted alone."""
PSEUDO = {"AWS::Partition": "aws", "AWS::Region": REGION, "AWS::AccountId": ACCOUNT_ID}
EACH = pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.name)


@pytest.fixture(scope="module")
def turns(
    server: EmbeddedPostgres, aws: LocalAws, embedder: Embedder
) -> Iterator[tuple[Ear, ResourceArns]]:
    """What all functions asked, each at everything that it does, and of what stage."""
    name = unique_name()
    server.clone_database(TEMPLATE, name)
    with pytest.MonkeyPatch.context() as patch:
        calls = take(ScratchDatabase(server, name), aws, embedder, patch)
    yield calls
    server.drop_database(name)


@pytest.fixture
def ear(turns: tuple[Ear, ResourceArns]) -> Ear:
    return turns[0]


@pytest.fixture(params=[None, KEY], ids=["AWS's keys", "a key of one's own"])
def stage(request: pytest.FixtureRequest, turns: tuple[Ear, ResourceArns]) -> ResourceArns:
    return replace(turns[1], key=request.param)


def asked_of(fn: FunctionSpec, ear: Ear, stage: ResourceArns) -> set[NeededCall]:
    """What was heard of a function, what Lambda asks in its name, and what a key needs."""
    calls = {one for one in ear.calls if one.function == fn.name} | {*by_lambda(fn, stage)}
    return calls if stage.key is None else calls | {*on_the_key(calls, stage.key)}


def allowed(grants: Sequence[PermissionGrant], fn: FunctionSpec) -> set[NeededCall]:
    """Grants, one action on one pattern of resources each; one that is denied is called so."""
    return {
        NeededCall(
            fn.name,
            action if grant.effect == "Allow" else f"{DENIED_PREFIX}{action}",
            resource,
            only(**grant.conditions) if grant.conditions else "",
        )
        for grant in grants
        for action in grant.actions
        for resource in grant.resources
    }


def covers(grant: NeededCall, one: NeededCall) -> bool:
    return (grant.action, grant.only) == (one.action, one.only) and fnmatchcase(
        one.resource, grant.resource
    )


KEPT_GRANTS: frozenset[str] = frozenset()
"""Actions that the release before asks and this one does not: roles are shared by both, and a
release that was gone back to still asks. The next release takes them away."""


def faults(grants: set[NeededCall], calls: set[NeededCall]) -> list[str]:
    """What is missing, what nobody asks, and what is wider than what is asked."""
    results = [f"missing: {one}" for one in calls if not any(covers(g, one) for g in grants)]
    for grant in grants:
        uses = [one for one in calls if covers(grant, one)]
        if not uses and grant.action not in KEPT_GRANTS:
            results.append(f"needless: {grant}")
        bucket, _, objects = grant.resource.partition("/")
        narrow = [grant._replace(resource=f"{bucket}/{part}") for part in PARTS]
        if grant.action.startswith("s3:") and objects == "*":
            others = [one for one in uses if not any(covers(n, one) for n in narrow)]
            results += [] if others else [f"too wide: {grant}"]
    return results


@EACH
def test_permissions_of_role_match_its_calls(
    fn: FunctionSpec, ear: Ear, stage: ResourceArns
) -> None:
    assert fn.name in ear.heard, "a function without a turn: let it have one in invocations.py"
    assert not faults(allowed(list_grants_of_function(fn, stage), fn), asked_of(fn, ear, stage))


@EACH
def test_permissions_check_detects_wrong_grant(
    fn: FunctionSpec, ear: Ear, stage: ResourceArns
) -> None:
    """Planted, one at a time: every single grant taken away, or moved to another resource, or
    freed of its condition."""
    grants, calls = allowed(list_grants_of_function(fn, stage), fn), asked_of(fn, ear, stage)
    for grant in grants:
        other_grants = grants - {grant}
        assert any(fault.startswith("missing") for fault in faults(other_grants, calls))
        grant_elsewhere = grant._replace(resource=grant.resource.replace(":", ":another-", 5) + "x")
        assert faults(other_grants | {grant_elsewhere}, calls)
        if grant.only:
            assert faults(other_grants | {grant._replace(only="")}, calls)
    for action, resource in (
        ("s3:PutObjectAcl", f"{stage.bucket}/*"),
        ("s3:DeleteBucket", stage.bucket),
        ("s3:*", f"{stage.bucket}/*"),
        ("sqs:PurgeQueue", stage.work_queue),
        ("rds-db:connect", stage.owner_user if "database" in fn.needs else stage.database_user),
        ("secretsmanager:DeleteSecret", stage.settings_secret),
        ("kms:Decrypt", "*"),
    ):
        needless = NeededCall(fn.name, action, resource)
        assert f"needless: {needless}" in faults(grants | {needless}, calls)


def test_permissions_check_detects_wide_grant(ear: Ear, stage: ResourceArns) -> None:
    for name, action in (("ingest", "s3:DeleteObject"), ("sweeper", "s3:PutObject")):
        fn = next(fn for fn in FUNCTIONS if fn.name == name)
        wide = NeededCall(name, action, f"{stage.bucket}/*")
        assert faults(
            allowed(list_grants_of_function(fn, stage), fn) | {wide}, asked_of(fn, ear, stage)
        ) == [f"too wide: {wide}"]


# --- what is written beside what was heard

NEVER_IN_JOBS = (
    "jobs/worker_resources:read_payload_text_head",
    "resources:Resources._request_sweep",
)
NEVER_VECTORS = "embeddings/bedrock:_invoke_model"
"""Of a function that computes no vectors, and whose role may not."""
NEVER: Mapping[str, Sequence[str]] = {
    **{job.name: ("llm/bedrock:_converse", NEVER_VECTORS, *NEVER_IN_JOBS) for job in JOBS},
    "ingest": (
        "llm/bedrock:_converse",
        NEVER_VECTORS,
        "log/read:presign_payload_download",
        "log/presigned_uploads:_remove_upload_objects_and_rows",
    ),
    "worker": (
        "resources:Resources._request_sweep",
        *(
            "personas/deferred_answers:defer_answer",
            "personas/deferred_answers:read_deferred_answer",
        ),
        "log/append:_put_payloads_in_store",  # of a reply, which is short and cites no upload
        *(
            "log/payload_citations:_CitedPayloadReader._find_verified_upload",
            "log/payload_citations:_CitedPayloadReader._read_payload_text",
        ),
        "log/read:presign_payload_download",
    ),
    "admin": (
        *(
            "log/append:_put_payloads_in_store",
            "log/append:_store_events_and_notify",
            "llm/bedrock:_converse",
            NEVER_VECTORS,
            "log/payload_citations:_CitedPayloadReader._find_verified_upload",
        ),
        *(
            "log/payload_citations:_CitedPayloadReader._read_payload_text",
            "status/routes:_check_dependencies",
            "log/read:presign_payload_download",
            "recall/payload_excerpts:_read_part",
            "log/presigned_uploads:_make_upload_answer",
        ),
        *(
            "resources:Resources._request_sweep",
            "log/presigned_uploads:_remove_upload_objects_and_rows",
        ),
        "log/statement_events:charge_and_store_statements",
        *("graph/transfer/import_graph:_load_file_bytes", "graph/transfer/routes:post_export"),
        "erasure/routes:_erase_and_start_job",
        *(
            "log/block_lookup:BlockLookup._load_payload_block",
            "log/routes_read:_redirect_to_payload",
        ),
        *(
            "personas/routes_chat:_find_earlier_reply",
            "personas/deferred_answers:defer_answer",
            "personas/deferred_answers:read_deferred_answer",
        ),
    ),
    "mcp": (
        *(
            "log/presigned_uploads:_make_upload_answer",
            "log/presigned_uploads:_remove_upload_objects_and_rows",
        ),
        *(
            "log/block_lookup:BlockLookup._load_payload_block",
            "log/routes_read:_redirect_to_payload",
        ),
        "log/append:_put_payloads_in_store",  # an upload: no tool cites one
        "log/payload_citations:_CitedPayloadReader._find_verified_upload",
        "log/payload_citations:_CitedPayloadReader._read_payload_text",
        "graph/transfer/import_graph:_load_file_bytes",
    ),
    "archiver": (NEVER_VECTORS, *NEVER_IN_JOBS),
    "builder": (NEVER_VECTORS, *NEVER_IN_JOBS),
    "eraser": tuple(
        place for place in NEVER_IN_JOBS if place != "jobs/worker_resources:read_payload_text_head"
    ),
    "promoter": (NEVER_VECTORS, *NEVER_IN_JOBS),
    "sweeper": (
        "resources:Resources._request_sweep",
        "log/presigned_uploads:_make_upload_answer",
    ),
    "migrate": ("llm/bedrock:_converse", NEVER_VECTORS),
}
"""What a function imports and does not come to: places that ask AWS, by file and name. A new one is
heard in a turn of every function that imports it, or stands here."""


def asking(texts: Mapping[str, str], ear: Ear) -> set[Asks]:
    """Every place that asks AWS: for an operation, or through a method that does, of those that
    were heard."""
    through = {one.what for _, one in ear.ways}
    handed = {one for one in source_calls.passed_on(texts) if one.what in through}
    return source_calls.find_asks(texts) | {
        one for one in handed if not source_calls.method(one.place)
    }


def short(place: Place) -> str:
    module = place.file.removeprefix("shared/strandline/").removesuffix(".py")
    return f"{module}:{place.name}"


def unheard(texts: Mapping[str, str], ear: Ear) -> list[str]:
    """What is written and was never heard from there; and of each function, what it imports, was
    not heard at, and is not said never to come to (or is, and was)."""
    everywhere = asking(texts, ear)
    calls = {one for _, one in ear.ways}
    results = [f"never: {one}" for one in everywhere - calls]
    outside = {one for one in everywhere if not source_calls.method(one.place)}
    for fn in FUNCTIONS:
        reach = source_calls.within_reach(texts, fn.name)
        quiet = {
            short(one.place)
            for one in outside
            if one.place.file in reach and (fn.name, one) not in ear.ways
        }
        results += [f"{fn.name}: {place}" for place in quiet ^ {*NEVER.get(fn.name, ())}]
    return results


def test_permissions_turns_cover_all_calls_of_source(ear: Ear) -> None:
    """A call that no turn comes to would be granted to nobody, and missed by nobody."""
    texts = source_calls.sources()
    assert "\n".join(sorted(unheard(texts, ear))) == ""
    operations = {one.what for one in source_calls.find_asks(texts)}
    assert operations == ear.operations
    assert {"HeadObject", "PutObject", "Converse", "GetSecretValue"} < operations


@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        ("admin/prepare_release", "def f(q): q.purge_queue(QueueUrl='q')", "PurgeQueue"),
        (
            "log/presigned_uploads",
            "from strandline.aws.client_factory import make_retrying_client as to\n"
            "def f(): to('sqs').delete_message()",
            "DeleteMessage",
        ),
        ("aws/blobs", "def f(s): s.get_paginator('list_object_versions')", "ListObjectVersions"),
        ("aws/blobs", "def f(s): s.get_waiter('object_exists').wait()", "HeadObject"),
        ("aws/blobs", "def f(s): getattr(s, 'delete_object')(Bucket='b')", "DeleteObject"),
        ("aws/blobs", "def f(s): ask = s.put_object_acl; ask()", "PutObjectAcl"),
        ("aws/secrets", "def f(): _call_with_retry('DeleteSecret', {})", "DeleteSecret"),
        # Heard of others, and written for one that is not allowed it.
        ("admin/prepare_release", "def f(s): s.start_execution(name='n')", "StartExecution"),
        ("admin/prepare_release", "def f(blobs): blobs.remove('acme', [])", "blobs.remove"),
        ("log/read", "class A:\n def f(self): self._blobs.presign_put()", "blobs.presign_put"),
    ],
)
def test_permissions_check_detects_call_without_turn(
    ear: Ear, file: str, text: str, what: str
) -> None:
    texts = source_calls.sources()
    for fault in (f"shared/strandline/{file}.py", "functions/admin/handler.py"):
        result = unheard(texts | {fault: f"{texts[fault]}\n{text}\n"}, ear)
        assert [one for one in result if one.startswith("never") and what in one], fault


def test_permissions_check_detects_place_shared_by_functions(ear: Ear) -> None:
    texts, scheduler = source_calls.sources(), "functions/scheduler/handler.py"
    for line in (
        "import strandline.aws.work_queue",
        "from strandline.aws import scheduler as a",
    ):
        assert unheard(texts | {scheduler: f"{texts[scheduler]}\n{line}"}, ear) == []
    result = unheard(
        texts | {scheduler: f"{texts[scheduler]}\nfrom strandline.log import presigned_uploads"},
        ear,
    )
    assert {
        "scheduler: log/presigned_uploads:_make_upload_answer",
        "scheduler: log/presigned_uploads:_remove_upload_objects_and_rows",
    } <= {*result}


@pytest.mark.parametrize(
    "text",
    [
        "import boto3 as b",
        "from boto3 import client",
        "def f():\n from botocore import session",
        "import botocore.session",
        "make = __import__('importlib').import_module('boto3.session')",
        "from s3transfer.manager import TransferManager",
    ],
)
def test_permissions_clients_are_made_in_one_place(text: str) -> None:
    texts = source_calls.sources()
    results = {Asks(Place("shared/strandline/aws/client_factory.py", "make_client"), "boto3")}
    assert source_calls.makers(texts) == results
    for fault in ("shared/strandline/aws/work_queue.py", "functions/scheduler/handler.py"):
        assert len(source_calls.makers(texts | {fault: f"{texts[fault]}\n{text}"})) == 2


def test_permissions_wildcards_are_for_objects_or_no_arn(stage: ResourceArns) -> None:
    for fn in FUNCTIONS:
        for one in allowed(list_grants_of_function(fn, stage), fn):
            assert "*" not in one.action, one
            if "*" in one.resource.removesuffix("/*").removesuffix(":*"):
                action = one.action.removeprefix(DENIED_PREFIX)
                assert (one.resource, action in VPC_ACTIONS) == ("*", True), one


def test_permissions_exclude_unused_bedrock_and_network(
    turns: tuple[Ear, ResourceArns],
) -> None:
    stage = replace(turns[1], models=(), embedding_models=(), network=False)
    for fn in FUNCTIONS:
        grants = allowed(list_grants_of_function(fn, stage), fn)
        actions = {one.action.removeprefix(DENIED_PREFIX).partition(":")[0] for one in grants}
        assert not {"bedrock", "ec2", "kms"} & actions


def test_permissions_name_model_by_id_arn_or_profile() -> None:
    of = partial(
        list_bedrock_model_arns, partition="aws", region="eu-west-1", account="123456789012"
    )
    model = "arn:aws:bedrock:eu-west-1::foundation-model/anthropic.some-v1:0"
    assert of("anthropic.some-v1:0") == (model,)
    assert of(model) == (model,)
    assert of("eu.anthropic.some-v1:0") == (
        "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.anthropic.some-v1:0",
        "arn:aws:bedrock:*::foundation-model/anthropic.some-v1:0",
    )
    profile = "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.anthropic.some-v1:0"
    assert of(profile) == of("eu.anthropic.some-v1:0")
    own = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/a1b2"
    assert of(own) == (own,)


# --- the roles as they are deployed


def spelt(value: Any) -> str:
    """A value of the template as text: what is known only when it is deployed by its name."""
    match value:
        case {"Fn::Join": [between, parts]}:
            return between.join(spelt(part) for part in parts)
        case {"Fn::GetAtt": [name, attribute]}:
            return f"<{name}.{attribute}>"
        case {"Ref": name}:
            return PSEUDO.get(name, f"<{name}>")
        case _:
            assert isinstance(value, str), value
            return value


def environment_of(result: Template, fn: FunctionSpec) -> dict[str, str]:
    """What the stack tells a function."""
    (props,) = (
        p
        for p in properties(result, "Lambda::Function").values()
        if str(p.get("FunctionName")).endswith(f"-{fn.name}")
    )
    variables: dict[str, Any] = props["Environment"]["Variables"]
    return {"ROLE": spelt(props["Role"])} | {
        name.removeprefix("STRANDLINE_"): spelt(value) for name, value in variables.items()
    }


def deployed_grants(result: Template, fn: FunctionSpec, stage: ResourceArns) -> set[NeededCall]:
    """What the function's role is allowed in the template: of what the function is told of, as
    the recorded stage calls it."""
    everything: dict[str, str] = {}
    for one in FUNCTIONS:
        everything |= environment_of(result, one)
    (key,) = properties(result, "KMS::Key")
    host = everything["DATABASE_URL"].partition("host=<")[2].partition(".")[0]
    prefix = everything["SCHEDULE_GROUP"]
    names = {
        f"<{everything['BUCKET'].strip('<>')}.Arn>": stage.bucket,
        f"<{everything['WORK_QUEUE_URL'].strip('<>')}.Arn>": stage.work_queue,
        f"<{everything['JOB_QUEUE_URL'].strip('<>')}.Arn>": stage.job_queue,
        everything["SECRETS"]: stage.settings_secret,
        everything["ADMINISTRATOR_SECRET"]: stage.administrator_secret,
        everything["FIRST_KEY_SECRET"]: stage.first_key_secret,
        everything["STATE_MACHINE"]: stage.state_machine,
        everything["SCHEDULER_ROLE"]: stage.scheduler_role,
        f"<{host}.DBClusterResourceId>": CLUSTER,
        f"schedule/{prefix}/": f"schedule/{stage.schedule_group}/",
        f"/aws/lambda/{prefix}-": f"/aws/lambda/{stage.function_prefix}",
        f":function:{prefix}-": f":function:{stage.function_prefix}",
        f"<{key}.Arn>": KEY,
    }
    role = environment_of(result, fn)["ROLE"].removeprefix("<").removesuffix(".Arn>")
    allowed: set[NeededCall] = set()
    for statement in _statements(result, role):
        denied = {"Allow": "", "Deny": DENIED_PREFIX}[statement["Effect"]]
        conditions = json.loads(json.dumps(statement.get("Condition", {})))
        only_if = only(**_spelt_within(conditions)) if conditions else ""
        for action in _several(statement["Action"]):
            for resource in map(spelt, _several(statement["Resource"])):
                one = NeededCall(fn.name, f"{denied}{action}", resource, only_if)
                for name, real in names.items():
                    one = one._replace(
                        resource=one.resource.replace(name, real),
                        only=one.only.replace(name, real),
                    )
                allowed.add(one)
    return allowed


def _statements(result: Template, role: str) -> list[dict[str, Any]]:
    """Of all policies of a role, wherever they stand."""
    props = properties(result, "IAM::Role")[role]
    assert not props.get("ManagedPolicyArns"), f"{role}: a managed policy"
    attached = {**properties(result, "IAM::Policy"), **properties(result, "IAM::ManagedPolicy")}
    assert not [n for n, p in attached.items() if {"Ref": role} in p.get("Roles", [])]
    return [s for policy in props["Policies"] for s in policy["PolicyDocument"]["Statement"]]


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]


def _spelt_within(conditions: dict[str, dict[str, Any]]) -> dict[str, dict[str, str]]:
    return {test: {n: spelt(v) for n, v in keys.items()} for test, keys in conditions.items()}


@pytest.fixture(scope="module")
def stack() -> Template:
    """A stage with Bedrock and a key of its own."""
    settings = {"llm_provider": "bedrock", "llm_model": MODEL, "embedding_provider": "bedrock"}
    settings |= {"embedding_model": EMBEDDING_MODEL, "embedding_dimensions": "256"}
    return template(key=True, settings=settings)


@EACH
def test_permissions_of_deployed_role_match_its_calls(
    fn: FunctionSpec, turns: tuple[Ear, ResourceArns], stack: Template
) -> None:
    ear, stage = turns[0], replace(turns[1], key=KEY)
    calls = asked_of(fn, ear, stage)
    assert not faults(deployed_grants(stack, fn, stage), calls)
    # Planted, one at a time: each statement of the role taken out of the template.
    role = environment_of(stack, fn)["ROLE"].removeprefix("<").removesuffix(".Arn>")
    for n in range(len(_statements(stack, role))):
        poorer = copy.deepcopy(stack)
        props = properties(poorer, "IAM::Role")[role]["Policies"]
        del props[0]["PolicyDocument"]["Statement"][n]
        assert faults(deployed_grants(poorer, fn, stage), calls), n


def test_permissions_check_detects_extra_policy_or_queue(
    turns: tuple[Ear, ResourceArns], stack: Template
) -> None:
    ear, stage = turns[0], replace(turns[1], key=KEY)
    worker = next(fn for fn in FUNCTIONS if fn.name == "worker")
    role = environment_of(stack, worker)["ROLE"].removeprefix("<").removesuffix(".Arn>")
    more = copy.deepcopy(stack)
    properties(more, "IAM::Role")[role]["ManagedPolicyArns"] = ["arn:aws:iam::aws:policy/x"]
    with pytest.raises(AssertionError, match="managed"):
        deployed_grants(more, worker, stage)
    document = json.loads(json.dumps(stack))
    for props in properties(document, "Lambda::Function").values():
        told_of = props.get("Environment", {}).get("Variables", {})
        if {"STRANDLINE_WORK_QUEUE_URL", "STRANDLINE_JOB_QUEUE_URL"} <= told_of.keys():
            queue, runs = told_of["STRANDLINE_WORK_QUEUE_URL"], told_of["STRANDLINE_JOB_QUEUE_URL"]
            told_of |= {"STRANDLINE_WORK_QUEUE_URL": runs, "STRANDLINE_JOB_QUEUE_URL": queue}
    assert faults(deployed_grants(document, worker, stage), asked_of(worker, ear, stage))
