"""The tables of functions and of jobs: one row per Lambda. A new function is a folder, a row, an
event and a test; a new job is a module with its verbs, its name and row here, a folder and a test.

Pure data: infra, the one-machine runtime, every function and the types of answers read it, so it
imports nothing but its longest list, and runs on Python 3.10.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypeAlias

from typing_extensions import LiteralString, TypeAliasType

from strandline.query_function_routes import QUERY_ROUTE_KEYS

FunctionNeed: TypeAlias = Literal[
    "database", "owner", "blobs", "work_queue", "job_queue", "model", "state_machine", "schedules"
]
Layer: TypeAlias = Literal["deps", "domain", "model", "graph"]
StackSetting: TypeAlias = Literal["backup_days"]
JobName = TypeAliasType(
    "JobName", Literal["archiver", "analytics", "builder", "eraser", "promoter", "sweeper"]
)
"""The names of JOBS, for types on the wire."""

DAILY_SWEEP_SCHEDULE = "cron(30 3 * * ? *)"
"""The one schedule at a fixed time, in UTC: the daily sweep. The database's sweep day begins at
this time too (`sweep_day_start`)."""


@dataclass(frozen=True)
class FunctionSpec:
    """A Lambda function's resources, and what invokes it."""

    name: str
    """Its folder in functions/."""
    memory: int
    """MB; 1769 MB have one vCPU."""
    timeout: int
    """Seconds."""
    needs: frozenset[FunctionNeed]
    routes: tuple[str, ...] = ()
    """API Gateway resources, as "METHOD /path/{parameter}"."""
    protocol: Literal["REST", "MCP"] = "REST"
    """The protocol of its routes. Only REST is in the API document: MCP describes its tools
    itself."""
    queue: Literal["", "work_queue", "job_queue"] = ""
    """The queue that invokes it."""
    schedule: str = ""
    """The expression in Scheduler's syntax, in UTC, at which it runs; "": only on request."""
    layers: tuple[Layer, ...] = ("deps", "domain")
    """Names from layers/build.py, lowest first."""
    reserved_concurrency: int = 0
    """The most instances at once, each with its own database connection; 0: not limited."""
    waits: bool = False
    """Whether its requests may wait for something to come: a tenth of its instances at most."""
    actions: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]], hash=False
    )
    """The IAM actions that it has in addition to those of its needs: action → resources, named as
    in infra/permissions.py."""
    stack_settings: tuple[StackSetting, ...] = ()
    """Fields of infra/settings.py that are settings of this function too, under the same name."""
    connections_per_instance: int = 1
    """The most database connections of one instance. One that folds, or names topics, asks the
    language model from three threads besides its own (llm/parallel.py)."""

    @property
    def feeds_itself(self) -> bool:
        """Whether it sends to the queue that invokes it. Lambda's recursive loop detection drops
        such a message after about 16 rounds, unless the function's configuration allows recursive
        loops."""
        return self.queue in self.needs


@dataclass(frozen=True, kw_only=True)
class JobSpec(FunctionSpec):
    """A background job: a function whose handler runs a module."""

    name: JobName
    module: str
    """Its file, below the package. It has the three verbs of jobs/runner.py."""
    min_spacing: timedelta
    """The least time between two runs that start because something is due."""
    next_due: LiteralString
    """An SQL expression: when it has work next, over all tenants, or null. Its parameters are those
    of jobs/next_runs.py."""


MODEL_LAYERS: tuple[Layer, ...] = ("deps", "domain", "model")

RUN_ACTIONS: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("s3:PutObject", "s3:DeleteObject"), ("bucket/_jobs/*",)
)
"""The IAM actions on the shard lists of a job's runs."""

JOBS = (
    JobSpec(
        name="archiver",
        module="background/archiver.py",
        memory=1024,
        timeout=900,
        # the model: it promotes chains before it archives them
        needs=frozenset({"database", "blobs", "job_queue", "model"}),
        actions={
            "s3:PutObject": ("bucket/_jobs/*",),
            "s3:DeleteObject": ("bucket/*",),  # uncited payloads, and the lists of its runs
            "s3:ListBucket": ("bucket",),
        },
        reserved_concurrency=20,
        min_spacing=timedelta(minutes=60),
        next_due="next_archive(%(blob_grace)s, %(garbage_period)s, %(snapshot_age)s,"
        " %(archiver_spacing)s, %(now)s)",
    ),
    JobSpec(
        name="analytics",
        module="graph/communities/analytics.py",
        memory=3008,
        timeout=900,
        needs=frozenset({"database", "blobs", "job_queue"}),
        actions=RUN_ACTIONS,
        reserved_concurrency=10,
        layers=("deps", "domain", "graph"),
        min_spacing=timedelta(minutes=60),
        next_due="next_analysis(%(analytics_spacing)s, %(now)s)",
    ),
    JobSpec(
        name="builder",
        module="topics/builder.py",
        memory=1769,
        timeout=900,
        needs=frozenset({"database", "blobs", "job_queue", "model"}),
        actions=RUN_ACTIONS,
        reserved_concurrency=10,
        connections_per_instance=4,
        min_spacing=timedelta(minutes=5),
        next_due="next_build(%(builder_spacing)s, %(now)s)",
    ),
    JobSpec(
        name="eraser",
        module="erasure/eraser.py",
        memory=1769,
        timeout=900,
        needs=frozenset({"database", "blobs", "job_queue", "model"}),
        actions={
            "s3:PutObject": ("bucket/_jobs/*",),
            "s3:GetObject": ("bucket/*",),  # texts of payloads, for chains that are formed again
            # payloads of erased events, and the lists of its runs
            "s3:DeleteObject": ("bucket/*",),
            "s3:GetBucketVersioning": ("bucket",),
            "s3:DeleteObjectVersion": ("bucket/*",),  # of a bucket that keeps versions
            "s3:ListBucketVersions": ("bucket",),
            "s3:ListBucket": ("bucket",),  # without it a missing payload is a 403, not a 404
        },
        reserved_concurrency=10,
        layers=MODEL_LAYERS,
        stack_settings=("backup_days",),  # receipts say when the last backup ends
        min_spacing=timedelta(minutes=1),
        next_due="next_erasure(%(eraser_spacing)s, %(now)s)",
    ),
    JobSpec(
        name="promoter",
        module="graph/promotion/promoter.py",
        memory=1769,
        timeout=900,
        needs=frozenset({"database", "blobs", "job_queue", "model"}),
        actions=RUN_ACTIONS,
        reserved_concurrency=20,
        min_spacing=timedelta(minutes=1),  # of hot chains; warm ones wait for half an hour
        next_due="next_promotion(%(promotion)s::jsonb, %(heat)s::jsonb, %(promoter_spacing)s,"
        " %(now)s)",
    ),
    JobSpec(
        name="sweeper",
        module="background/sweeper.py",
        memory=1769,
        timeout=900,
        needs=frozenset({"database", "blobs", "work_queue", "job_queue", "model"}),
        actions={
            "s3:PutObject": ("bucket/_jobs/*",),
            "s3:GetObject": ("bucket/*",),  # texts of payloads
            "s3:ListBucket": ("bucket",),  # without it a missing payload is a 403, not a 404
            # expired uploads and exports
            "s3:DeleteObject": ("bucket/_jobs/*", "bucket/_uploads/*", "bucket/_exports/*"),
            "s3:GetBucketVersioning": ("bucket",),
            "s3:DeleteObjectVersion": ("bucket/_uploads/*",),  # of a bucket that keeps versions
            "s3:ListBucketVersions": ("bucket",),
            "sqs:SendMessage": ("work_queue",),
        },
        reserved_concurrency=20,
        connections_per_instance=4,
        layers=MODEL_LAYERS,
        schedule=DAILY_SWEEP_SCHEDULE,
        min_spacing=timedelta(minutes=5),
        next_due="least(next_sweep(%(space)s, %(heat)s::jsonb, %(sweeper_spacing)s, %(now)s),"
        " next_turn(%(sweeper_spacing)s, %(now)s),"
        " (select %(now)s where exists (select from tenants_with_times_ahead(%(now)s))))",
    ),
)
"""Background work by tenant, in runs of the state machine; where the module of each lies."""
# two: one for a deployment, while the state machine's may still run a long migration
MIGRATE = FunctionSpec(
    "migrate", 512, 600, needs=frozenset({"owner", "job_queue"}), reserved_concurrency=2
)

RUNNABLE: tuple[FunctionSpec, ...] = (*JOBS, MIGRATE)
"""What a run of the state machine may call: the jobs, and `migrate` for long migrations."""

QUERY_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "s3:PutObject": ("bucket/*",),  # payloads of inserts, exports
    # texts of payloads; the URLs of payloads and exports are signed by this role
    "s3:GetObject": ("bucket/*",),
    "s3:ListBucket": ("bucket",),  # health: HeadBucket
    "sqs:GetQueueAttributes": ("work_queue",),  # health
    "sqs:SendMessage": ("work_queue",),  # inserts
}
"""The IAM actions of a function that recalls, inserts, exports and reports health."""

FUNCTIONS: tuple[FunctionSpec, ...] = (
    FunctionSpec(
        "ingest",
        memory=1024,
        timeout=29,
        needs=frozenset({"database", "blobs", "work_queue", "job_queue"}),
        actions={
            "s3:PutObject": ("bucket/*",),  # payloads; the URLs of uploads are signed by this role
            "s3:GetObject": ("bucket/*",),  # checks an upload and copies it
            "s3:DeleteObject": ("bucket/_uploads/*",),  # it never removes a payload
            "s3:ListBucket": ("bucket",),  # without it a missing upload is a 403, not a 404
            "sqs:SendMessage": ("work_queue",),
        },
        reserved_concurrency=100,
        routes=(
            "POST /api/v1/events",
            "POST /api/v1/events/batch",
            "POST /api/v1/uploads",
            "POST /api/v1/sessions",
            "POST /api/v1/sessions/{session_id}/interactions",
            "POST /api/v1/sessions/{session_id}/events",
        ),
    ),
    FunctionSpec(
        "query",
        memory=1769,
        timeout=29,
        needs=frozenset({"database", "blobs", "work_queue", "job_queue", "model"}),
        # uploads that inserts cite; it never removes a payload
        actions={**QUERY_ACTIONS, "s3:DeleteObject": ("bucket/_uploads/*",)},
        reserved_concurrency=100,
        waits=True,
        layers=MODEL_LAYERS,
        routes=QUERY_ROUTE_KEYS,
    ),
    FunctionSpec(
        "worker",
        memory=1769,
        timeout=120,
        needs=frozenset({"database", "blobs", "work_queue", "job_queue", "model"}),
        actions={
            "s3:GetObject": ("bucket/*",),
            "s3:ListBucket": ("bucket",),  # without it a missing payload is a 403, not a 404
            "sqs:SendMessage": ("work_queue",),  # delayed messages, for scopes that must wait
            "sqs:ChangeMessageVisibility": ("work_queue",),  # messages that return early
        },
        reserved_concurrency=20,
        connections_per_instance=4,
        layers=MODEL_LAYERS,
        queue="work_queue",
    ),
    FunctionSpec(
        "admin",
        memory=1024,
        timeout=29,
        needs=frozenset({"database", "job_queue"}),
        reserved_concurrency=10,
        routes=(
            "POST /api/v1/admin/tenants",
            "GET /api/v1/admin/tenants",
            "GET /api/v1/admin/tenants/{tenant}",
            "PATCH /api/v1/admin/tenants/{tenant}",
            "POST /api/v1/admin/tenants/{tenant}/keys",
            "GET /api/v1/admin/tenants/{tenant}/keys",
            "GET /api/v1/admin/tenants/{tenant}/keys/{key_id}",
            "POST /api/v1/admin/tenants/{tenant}/keys/{key_id}/rotate",
            "DELETE /api/v1/admin/tenants/{tenant}/keys/{key_id}",
            "GET /api/v1/admin/tenants/{tenant}/audit",
            "POST /api/v1/admin/tenants/{tenant}/certificates",
            "GET /api/v1/admin/tenants/{tenant}/certificates",
            "GET /api/v1/admin/tenants/{tenant}/certificates/{certificate_id}",
            "DELETE /api/v1/admin/tenants/{tenant}/certificates/{certificate_id}",
            "GET /api/v1/admin/jobs",
            "GET /api/v1/admin/jobs/{job}",
            "POST /api/v1/admin/jobs/{job}",
            "POST /api/v1/admin/jobs/{job}/retry",
            "GET /api/v1/admin/topics",
            "GET /api/v1/admin/snapshots",
            "GET /api/v1/admin/snapshots/{version}",
            "GET /api/v1/admin/snapshots/{version}/difference",
            "POST /api/v1/admin/snapshots/{version}/activate",
            "POST /api/v1/admin/analytics/trigger",
            "GET /api/v1/admin/communities",
            "GET /api/v1/admin/communities/{community_id}",
            *("GET /openapi.json", "GET /", "GET /docs", "GET /docs/{file}"),
        ),
    ),
    FunctionSpec(
        "mcp",
        memory=1769,
        timeout=29,
        needs=frozenset({"database", "blobs", "work_queue", "job_queue", "model"}),
        actions=QUERY_ACTIONS,
        reserved_concurrency=20,
        waits=True,
        layers=MODEL_LAYERS,
        protocol="MCP",
        routes=(
            *("POST /mcp", "GET /mcp", "DELETE /mcp"),
            "GET /.well-known/oauth-protected-resource/mcp",
        ),
    ),
    *JOBS,
    FunctionSpec(
        "scheduler", 512, 30, frozenset({"state_machine", "schedules"}), queue="job_queue"
    ),
    MIGRATE,
)


HEAD_PATHS = (
    *("/ipfs/{cid}", "/ipfs/{cid}/{path+}"),
    *("/console", "/console/{release}/{file}"),
)
"""The resources that have HEAD, too: those whose specification demands it, and the files of a page.
It is served as GET."""


def route_table(
    functions: Iterable[FunctionSpec] = FUNCTIONS, *, preflights: bool = False
) -> dict[str, str]:
    """Every route with those of HEAD, and the name of its function. With `preflights` every
    resource has OPTIONS too, served by the first function that has routes, because all give the
    same answer."""
    table = {route: fn.name for fn in functions for route in fn.routes}
    table |= {f"HEAD {p}": table[f"GET {p}"] for p in HEAD_PATHS if f"GET {p}" in table}
    if preflights:
        first = next(iter(table.values()))
        table |= {f"OPTIONS {route.partition(' ')[2]}": first for route in [*table]}
    return table
