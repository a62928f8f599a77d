"""The table of alarms, each with an entry in docs/runbook.md.

Missing data raises no alarm, because an idle stage sends none. If a stage is idle that should not
be, messages stay in its queues, whose metrics SQS sends itself. The missing daily sweep is the one
case in which missing data is an alarm. What sweeps alone measure stays as the last one found it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.metrics import (
    MODEL_FUNCTIONS,
    PERIOD_MINUTES,
    MonitoredResources,
    api_metric,
    aws_metric,
    function_service_metric,
    job_metric,
    lambda_sum_metric,
    rds_metric,
    sqs_maximum_metric,
    sum_metrics,
)
from infra.price_list import PRICES
from infra.settings import StackSettings
from strandline.aws.work_queue import MAX_DELAY_SECONDS
from strandline.function_specs import FUNCTIONS

_MIN_ERRORS = 5
"""Fewer 5xx answers, or requests that Lambda refuses, in five minutes raise no alarm: a resuming
database causes a few 503."""
_SWEEP_HOURS = 26
"""Hours without a successful run before the alarm: a day, and two for the daily sweep itself."""

_OLD_TRANSACTIONS = 1_000_000_000
"""Autovacuum freezes rows from 200 million transactions on; at two billion writes stop."""


@dataclass(frozen=True)
class AlarmSpec:
    """One alarm."""

    name: str
    """Also the heading of its entry in the runbook."""
    description: str
    metric: cloudwatch.IMetric
    threshold: float
    """The alarm is raised at or above it; with `expects_data`, below it."""
    periods: int = 1
    """Number of consecutive periods."""
    expects_data: bool = False
    """The data should arrive regularly: less is an alarm, and missing data count as zero."""
    is_measured_by_sweeps: bool = False
    """Between two sweeps there is no data, and the alarm stays as it is."""


def build_alarms(settings: StackSettings, resources: MonitoredResources) -> list[AlarmSpec]:
    """Every alarm; those about language models only if one is configured."""
    alarms = [
        *_queue_alarms(settings, resources),
        *_backlog_alarms(settings, resources),
        *_job_alarms(settings, resources),
    ]
    alarms += [*_api_alarms(settings, resources), *_function_alarms(resources)]
    alarms += _database_alarms(settings, resources)
    return (
        [*alarms, *_model_alarms(settings, resources)]
        if settings.service_settings.llm_provider != "none"
        else alarms
    )


def _queue_alarms(settings: StackSettings, resources: MonitoredResources) -> Iterable[AlarmSpec]:
    # SQS counts a message's age from its sending, its delay included.
    delays = {"work-queue": MAX_DELAY_SECONDS}
    for name, (queue, dead_letters) in resources.queues.items():
        message_count = sqs_maximum_metric(dead_letters, "ApproximateNumberOfMessagesVisible")
        says = f"The {name} has dead letters: messages that failed too often."
        yield AlarmSpec(f"{name}-dead-letters", says, message_count, 1)
        age = sqs_maximum_metric(queue, "ApproximateAgeOfOldestMessage")
        oldest = settings.alarms.unembedded_seconds + delays.get(name, 0)
        yield AlarmSpec(f"{name}-age", f"A message of the {name} waits too long.", age, oldest)


def _backlog_alarms(settings: StackSettings, resources: MonitoredResources) -> Iterable[AlarmSpec]:
    """Alarms of what each sweep measures in the whole stage, as it begins and as it ends: the less
    of the two, so that an alarm ends with the sweep that does the work."""
    limits, says = settings.alarms, "Sweeps find events that are not"
    rows = (
        (
            "unembedded",
            f"{says} embedded yet.",
            "OldestUnembeddedSeconds",
            limits.unembedded_seconds,
        ),
        (
            "stuck-scopes",
            "The work of a scope was postponed five times in a row.",
            "ScopesStuck",
            1,
        ),
        (
            "unfolded",
            f"{says} folded into chains yet.",
            "OldestUnfoldedSeconds",
            limits.unfolded_seconds,
        ),
        (
            "late-erasures",
            "Erasures are not complete.",
            "OldestErasureSeconds",
            limits.erasure_seconds,
        ),
    )
    for name, description, metric, threshold in rows:
        gauge = job_metric(resources, metric, "sweeper", "Minimum")
        yield AlarmSpec(name, description, gauge, threshold, is_measured_by_sweeps=True)


def _job_alarms(settings: StackSettings, resources: MonitoredResources) -> Iterable[AlarmSpec]:
    machine = {"StateMachineArn": resources.machine}
    says = "Runs of a job failed."
    yield AlarmSpec("failed-runs", says, _sum_failures(machine), settings.alarms.failed_runs)
    # Each shard is an execution of its own, which ends as failed after the last attempt, also of a
    # function that was killed or never began.
    shards = {"StateMachineArn": resources.shards}
    yield AlarmSpec("failed-shards", "Shards of a job failed finally.", _sum_failures(shards), 1)
    succeeded_runs = aws_metric("AWS/States", "ExecutionsSucceeded", machine, minutes=60)
    # A new stack has had no sweep, and every deployment calls `migrate`.
    deployments = lambda_sum_metric(resources, "Invocations", "migrate", minutes=60)
    says = "No job has succeeded for a day, not even the daily sweep."
    yield AlarmSpec(
        "missing-sweep",
        says,
        sum_metrics([succeeded_runs, deployments], 60),
        1,
        periods=_SWEEP_HOURS,
        expects_data=True,
    )
    given_up = job_metric(resources, "VacuumsGivenUp", "eraser", "Sum")
    says = "Erasures were completed without a vacuum."
    yield AlarmSpec("failed-vacuums", says, given_up, 1)
    failed_trees = job_metric(resources, "TreesFailed", "builder", "Sum")
    yield AlarmSpec("failed-trees", "Topic trees could not be grown.", failed_trees, 1)
    group = {"ScheduleGroup": resources.schedules}
    names = ("TargetErrorCount", "InvocationDroppedCount")
    failed_starts = [aws_metric("AWS/Scheduler", name, group) for name in names]
    yield AlarmSpec(
        "failed-starts", "A job was due and could not be started.", sum_metrics(failed_starts), 1
    )


def _sum_failures(dimensions: Mapping[str, str]) -> cloudwatch.IMetric:
    """Executions of the state machine that failed or took too long."""
    names = ("ExecutionsFailed", "ExecutionsTimedOut")
    return sum_metrics([aws_metric("AWS/States", name, dimensions) for name in names])


def _api_alarms(settings: StackSettings, resources: MonitoredResources) -> Iterable[AlarmSpec]:
    alarm_settings = settings.alarms
    errors, requests = (api_metric(resources, name, "Sum") for name in ("5XXError", "Count"))
    share = cloudwatch.MathExpression(
        expression=f"IF(errors >= {_MIN_ERRORS}, 100 * errors / requests, 0)",
        using_metrics={"errors": errors, "requests": requests},
        period=Duration.minutes(PERIOD_MINUTES),
        label="% of answers that are 5xx",
    )
    yield AlarmSpec("errors", "Answers are 5xx.", share, alarm_settings.errors_percent, periods=2)
    # CloudWatch evaluates a percentile of few calls as well: of fewer than ten it is the slowest.
    latency = api_metric(resources, "Latency", "p90")
    says = "Answers are slow."
    yield AlarmSpec("slow", says, latency, alarm_settings.p90_milliseconds, periods=3)


def _function_alarms(resources: MonitoredResources) -> Iterable[AlarmSpec]:
    throttles = [
        lambda_sum_metric(resources, "Throttles", fn.name) for fn in FUNCTIONS if fn.routes
    ]
    says = "Lambda refuses requests, because all instances of a function are busy."
    yield AlarmSpec("throttles", says, sum_metrics(throttles), _MIN_ERRORS)
    # The state machine tries jobs again and records what fails, and a deployment sees `migrate`.
    errors = [
        lambda_sum_metric(resources, "Errors", fn.name) for fn in FUNCTIONS if fn.routes or fn.queue
    ]
    says = "Functions fail or are killed."
    yield AlarmSpec("function-errors", says, sum_metrics(errors), _MIN_ERRORS)


def _database_alarms(settings: StackSettings, resources: MonitoredResources) -> Iterable[AlarmSpec]:
    alarm_settings = settings.alarms
    yield AlarmSpec(
        "connections",
        "The database is running out of connections.",
        rds_metric(resources, "DatabaseConnections", "Maximum"),
        int(settings.max_database_connections * alarm_settings.connections_percent / 100),
        periods=2,
    )
    yield AlarmSpec(
        "capacity",
        "The database is at its maximum capacity.",
        rds_metric(resources, "ACUUtilization", "Average"),
        95,
        periods=ceil(alarm_settings.capacity_minutes / PERIOD_MINUTES),
    )
    yield AlarmSpec(
        "transaction-age",
        "The database's oldest transaction ids are not frozen.",
        rds_metric(resources, "MaximumUsedTransactionIDs", "Maximum"),
        _OLD_TRANSACTIONS,
    )
    if settings.storage_type == "aurora":
        daily_reads = alarm_settings.read_usd_per_day / PRICES["io"].usd
        yield AlarmSpec(
            "reads",
            "The database reads many pages from storage: what is asked for does not fit its cache.",
            rds_metric(resources, "VolumeReadIOPs", "Average"),
            int(daily_reads * PERIOD_MINUTES / (24 * 60)),
            periods=60 // PERIOD_MINUTES,
        )


def _model_alarms(settings: StackSettings, resources: MonitoredResources) -> Iterable[AlarmSpec]:
    breaker_metric = sum_metrics(
        [
            function_service_metric(resources, "ModelBreakerRejections", name, PERIOD_MINUTES)
            for name in MODEL_FUNCTIONS
        ]
    )
    says = "A language model fails and gets no requests for a while."
    yield AlarmSpec("breaker-open", says, breaker_metric, 1, periods=2)
    day = 24 * 60
    spend_metric = sum_metrics(
        [
            function_service_metric(resources, "ModelCostMicroUsd", name, day)
            for name in MODEL_FUNCTIONS
        ],
        day,
    )
    limit = settings.alarms.model_usd_per_day * 1e6
    yield AlarmSpec("model-spend", "Language models cost more than planned.", spend_metric, limit)
