"""Alarms, each with an entry in docs/runbook.md, a dashboard and a budget.

Missing data raises no alarm, because an idle stage sends none. If a stage is idle that should not
be, messages stay in its queues, whose metrics SQS sends itself. The missing daily sweep is the one
case in which missing data is an alarm.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import cast

from aws_cdk import Duration, Stack
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_rds as rds
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.settings import StackSettings
from strandline.deployment import FUNCTIONS, JOBS
from strandline.observability import METRIC_NAMESPACE, METRICS

RUNBOOK = "docs/runbook.md"
PERIOD_MINUTES = 5
"""Period of every metric except the daily ones."""
_MODEL_FUNCTIONS = tuple(fn.name for fn in FUNCTIONS if "model" in fn.needs)
"""Functions that call language models."""
_MIN_ERRORS = 5
"""Fewer 5xx answers in five minutes raise no alarm: a resuming database causes a few 503."""
_SHARD_ATTEMPTS = 3
"""How often a shard of a job is tried. So many failures mean that one shard finally failed."""
_SWEEP_HOURS = 26
"""Hours without a successful run before the alarm: a day, and two for the daily sweep itself."""
_AT_LEAST = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
_BELOW = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD
_BREACHING = cloudwatch.TreatMissingData.BREACHING
_NOT_BREACHING = cloudwatch.TreatMissingData.NOT_BREACHING


@dataclass(frozen=True)
class MonitoredResources:
    """The resources whose metrics are used."""

    api: Mapping[str, str]
    """Dimensions of the API's metrics."""
    queues: Mapping[str, tuple[sqs.IQueue, sqs.IQueue]]
    """By name ("work-queue"): the queue and its dead-letter queue."""
    cluster: rds.IDatabaseCluster
    machine: str
    """ARN of the state machine."""
    schedules: str
    """Name of the group of its schedules."""
    prefix: str
    """Prefix of the functions' names; the name in the table of functions follows."""


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
    few_samples: bool = True
    """For a percentile: whether few values are enough to evaluate it."""


class Monitoring(Construct):
    """Alarms by the thresholds of `settings.alarms`, sent to its topic or address."""

    def __init__(
        self, scope: Construct, id: str, settings: StackSettings, resources: MonitoredResources
    ) -> None:
        super().__init__(scope, id)
        self._settings = settings
        self._topic = self._alarm_topic()
        alarms = [self._alarm(alarm) for alarm in build_alarms(settings, resources)]
        self._dashboard(resources, alarms)
        if settings.alarms.usd_per_month:
            self._budget(settings.alarms.usd_per_month)

    def _alarm_topic(self) -> sns.ITopic | None:
        alarm_settings = self._settings.alarms
        if alarm_settings.topic_arn:
            return sns.Topic.from_topic_arn(self, "Topic", alarm_settings.topic_arn)
        if not alarm_settings.email:
            return None
        topic = sns.Topic(self, "Topic", enforce_ssl=True)
        # This policy replaces the default one, which lets the account's alarms publish.
        alarms = iam.ServicePrincipal(
            "cloudwatch.amazonaws.com",
            conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
        )
        topic.grant_publish(cast(iam.IGrantable, alarms))
        topic.add_subscription(
            cast(sns.ITopicSubscription, subscriptions.EmailSubscription(alarm_settings.email))
        )
        return cast(sns.ITopic, topic)

    def _alarm(self, alarm: AlarmSpec) -> cloudwatch.Alarm:
        construct = cloudwatch.Alarm(
            self,
            "".join(word.title() for word in alarm.name.split("-")),
            alarm_name=f"{self._settings.stack_name}-{alarm.name}",
            alarm_description=f"{alarm.description} {RUNBOOK}#{alarm.name}",
            metric=alarm.metric,
            threshold=alarm.threshold,
            evaluation_periods=alarm.periods,
            comparison_operator=_BELOW if alarm.expects_data else _AT_LEAST,
            treat_missing_data=_BREACHING if alarm.expects_data else _NOT_BREACHING,
            evaluate_low_sample_count_percentile=None if alarm.few_samples else "ignore",
        )
        if self._topic:
            action = cast(cloudwatch.IAlarmAction, actions.SnsAction(self._topic))
            construct.add_alarm_action(action)
            construct.add_ok_action(action)
        return construct

    def _dashboard(self, resources: MonitoredResources, alarms: Sequence[cloudwatch.Alarm]) -> None:
        status_widget = cloudwatch.AlarmStatusWidget(
            alarms=[cast(cloudwatch.IAlarm, alarm) for alarm in alarms], width=24
        )
        graphs = [_graph(*graph) for graph in _graphs(resources)]
        rows = [graphs[at : at + 3] for at in range(0, len(graphs), 3)]
        cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=self._settings.stack_name,
            widgets=[[cast(cloudwatch.IWidget, status_widget)], *rows],
        )

    def _budget(self, usd: float) -> None:
        """Notifies at 80 % of actual cost and at 100 % of forecast cost. It counts what has the
        stack's tag, once that is a cost allocation tag of the account."""
        alarm_settings = self._settings.alarms
        subscriber = budgets.CfnBudget.SubscriberProperty(
            subscription_type="EMAIL" if alarm_settings.email else "SNS",
            address=alarm_settings.email or alarm_settings.topic_arn or "",
        )
        thresholds = (("ACTUAL", 80), ("FORECASTED", 100))
        budgets.CfnBudget(
            self,
            "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_name=self._settings.stack_name,
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=usd, unit="USD"),
                cost_filters={
                    "TagKeyValue": [f"user:strandline:stack${self._settings.stack_name}"]
                },
            ),
            notifications_with_subscribers=[
                budgets.CfnBudget.NotificationWithSubscribersProperty(
                    notification=budgets.CfnBudget.NotificationProperty(
                        notification_type=kind,
                        comparison_operator="GREATER_THAN",
                        threshold=percent,
                    ),
                    subscribers=[subscriber],
                )
                for kind, percent in thresholds
                if subscriber.address
            ],
        )


def build_alarms(settings: StackSettings, resources: MonitoredResources) -> list[AlarmSpec]:
    """Every alarm; those about language models only if one is configured."""
    alarms = [
        *_queue_alarms(settings, resources),
        *_work_alarms(settings, resources),
        *_job_alarms(settings, resources),
    ]
    alarms += [*_api_alarms(settings, resources), *_database_alarms(settings, resources)]
    return (
        [*alarms, *_model_alarms(settings, resources)]
        if settings.service_settings.llm_provider != "none"
        else alarms
    )


def _queue_alarms(settings: StackSettings, resources: MonitoredResources) -> Iterable[AlarmSpec]:
    oldest = settings.alarms.unembedded_seconds
    for name, (queue, dead_letters) in resources.queues.items():
        message_count = _sqs_metric(dead_letters, "ApproximateNumberOfMessagesVisible")
        says = f"The {name} has dead letters: messages that failed too often."
        yield AlarmSpec(f"{name}-dead-letters", says, message_count, 1)
        age = _sqs_metric(queue, "ApproximateAgeOfOldestMessage")
        yield AlarmSpec(f"{name}-age", f"A message of the {name} waits too long.", age, oldest)


def _work_alarms(settings: StackSettings, resources: MonitoredResources) -> Iterable[AlarmSpec]:
    alarm_settings, says = settings.alarms, "Sweeps find events that are not"
    yield AlarmSpec(
        "unembedded",
        f"{says} embedded yet.",
        _job_metric(resources, "OldestUnembeddedSeconds", "sweeper", "Maximum"),
        alarm_settings.unembedded_seconds,
    )
    yield AlarmSpec(
        "stuck-scopes",
        "The work of a scope was postponed five times in a row.",
        _job_metric(resources, "ScopesStuck", "sweeper", "Maximum"),
        1,
    )
    yield AlarmSpec(
        "unbuilt",
        f"{says} folded into chains yet.",
        _job_metric(resources, "OldestUnfoldedSeconds", "sweeper", "Maximum"),
        alarm_settings.unbuilt_seconds,
    )


def _job_alarms(settings: StackSettings, resources: MonitoredResources) -> Iterable[AlarmSpec]:
    machine = {"StateMachineArn": resources.machine}
    runs = [_metric("AWS/States", n, machine) for n in ("ExecutionsFailed", "ExecutionsTimedOut")]
    yield AlarmSpec(
        "failed-runs", "Runs of a job failed.", _sum_metrics(runs), settings.alarms.failed_builds
    )
    succeeded_runs = _metric("AWS/States", "ExecutionsSucceeded", machine, minutes=60)
    says = "No job has succeeded for a day, not even the daily sweep."
    yield AlarmSpec("no-sweep", says, succeeded_runs, 1, periods=_SWEEP_HOURS, expects_data=True)
    parts = [_job_metric(resources, "Failures", job.name, "Sum") for job in JOBS]
    yield AlarmSpec(
        "failed-parts", "Shards of a job failed finally.", _sum_metrics(parts), _SHARD_ATTEMPTS
    )
    group = {"ScheduleGroup": resources.schedules}
    names = ("TargetErrorCount", "InvocationDroppedCount")
    failed_starts = [_metric("AWS/Scheduler", name, group) for name in names]
    yield AlarmSpec(
        "wake-ups", "A job was due and could not be started.", _sum_metrics(failed_starts), 1
    )


def _api_alarms(settings: StackSettings, resources: MonitoredResources) -> Iterable[AlarmSpec]:
    alarm_settings = settings.alarms
    errors, requests = (_api_metric(resources, name, "Sum") for name in ("5XXError", "Count"))
    share = cloudwatch.MathExpression(
        expression=f"IF(errors >= {_MIN_ERRORS}, 100 * errors / requests, 0)",
        using_metrics={"errors": errors, "requests": requests},
        period=Duration.minutes(PERIOD_MINUTES),
        label="% of answers that are 5xx",
    )
    yield AlarmSpec("errors", "Answers are 5xx.", share, alarm_settings.errors_percent, periods=2)
    latency = _api_metric(resources, "Latency", "p95")
    says = "Answers are slow."
    yield AlarmSpec(
        "slow", says, latency, alarm_settings.p95_milliseconds, periods=3, few_samples=False
    )


def _database_alarms(settings: StackSettings, resources: MonitoredResources) -> Iterable[AlarmSpec]:
    alarm_settings = settings.alarms
    yield AlarmSpec(
        "connections",
        "The database is running out of connections.",
        _rds_metric(resources, "DatabaseConnections", "Maximum"),
        int(settings.database_connections * alarm_settings.connections_percent / 100),
        periods=2,
    )
    yield AlarmSpec(
        "capacity",
        "The database is at its maximum capacity.",
        _rds_metric(resources, "ACUUtilization", "Average"),
        95,
        periods=ceil(alarm_settings.capacity_minutes / PERIOD_MINUTES),
    )


def _model_alarms(settings: StackSettings, resources: MonitoredResources) -> Iterable[AlarmSpec]:
    breaker_metric = _sum_metrics(
        [
            _function_metric(resources, "BreakerOpen", name, PERIOD_MINUTES)
            for name in _MODEL_FUNCTIONS
        ]
    )
    says = "A language model fails and gets no requests for a while."
    yield AlarmSpec("breaker-open", says, breaker_metric, 1, periods=2)
    day = 24 * 60
    spend_metric = _sum_metrics(
        [_function_metric(resources, "ModelMicroUsd", name, day) for name in _MODEL_FUNCTIONS], day
    )
    limit = settings.alarms.model_usd_per_day * 1e6
    yield AlarmSpec("model-spend", "Language models cost more than planned.", spend_metric, limit)


def _graphs(resources: MonitoredResources) -> Iterable[tuple[str, Sequence[cloudwatch.IMetric]]]:
    """The dashboard's graphs, shown three in a row."""
    names = ("Count", "4XXError", "5XXError")
    yield "Requests", [_api_metric(resources, name, "Sum") for name in names]
    yield (
        "Milliseconds",
        [_api_metric(resources, "Latency", point) for point in ("p50", "p95", "p99")],
    )
    embed_metric = _job_metric(resources, "EventsEmbedded", "worker", "Sum", job="hint")
    fold_metric = _job_metric(resources, "EventsFolded", "worker", "Sum", job="hint")
    yield "Events embedded and folded", [embed_metric, fold_metric]
    oldest = ("OldestUnembeddedSeconds", "OldestUnfoldedSeconds", "OldestDueSeconds")
    yield "Oldest work", [_job_metric(resources, name, "sweeper", "Maximum") for name in oldest]
    ages = [
        _sqs_metric(queue, "ApproximateAgeOfOldestMessage")
        for queue, _ in resources.queues.values()
    ]
    yield "Oldest message", ages
    message_count = "ApproximateNumberOfMessagesVisible"
    yield (
        "Dead letters",
        [_sqs_metric(dead_letters, message_count) for _, dead_letters in resources.queues.values()],
    )
    yield "Capacity units", [_rds_metric(resources, "ServerlessDatabaseCapacity", "Average")]
    yield "Connections", [_rds_metric(resources, "DatabaseConnections", "Maximum")]
    spend_metrics = [
        _function_metric(resources, "ModelMicroUsd", name, PERIOD_MINUTES)
        for name in _MODEL_FUNCTIONS
    ]
    yield "Models, millionths of a USD", spend_metrics


def _graph(title: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.IWidget:
    return cast(cloudwatch.IWidget, cloudwatch.GraphWidget(title=title, left=metrics, width=8))


# metrics -----------------------------------------------------------------------------------------


def _metric(
    namespace: str,
    name: str,
    dimensions: Mapping[str, str],
    statistic: str = "Sum",
    minutes: int = PERIOD_MINUTES,
) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=namespace,
        metric_name=name,
        dimensions_map=dimensions,
        statistic=statistic,
        period=Duration.minutes(minutes),
    )


def _service_metric(
    name: str, dimensions: Mapping[str, str], statistic: str, minutes: int = PERIOD_MINUTES
) -> cloudwatch.Metric:
    """A metric that the functions print (strandline.observability)."""
    assert name in METRICS
    return _metric(METRIC_NAMESPACE, name, dimensions, statistic, minutes)


def _job_metric(
    resources: MonitoredResources, name: str, function: str, statistic: str, *, job: str = ""
) -> cloudwatch.Metric:
    """A metric of a function's job; the job has the function's name unless `job` names another."""
    dimensions = {"function": resources.prefix + function, "job": job or function}
    return _service_metric(name, dimensions, statistic)


def _function_metric(
    resources: MonitoredResources, name: str, function: str, minutes: int
) -> cloudwatch.Metric:
    return _service_metric(name, {"function": resources.prefix + function}, "Sum", minutes)


def _api_metric(resources: MonitoredResources, name: str, statistic: str) -> cloudwatch.Metric:
    return _metric("AWS/ApiGateway", name, resources.api, statistic)


def _rds_metric(resources: MonitoredResources, name: str, statistic: str) -> cloudwatch.Metric:
    cluster = {"DBClusterIdentifier": resources.cluster.cluster_identifier}
    return _metric("AWS/RDS", name, cluster, statistic)


def _sqs_metric(queue: sqs.IQueue, name: str) -> cloudwatch.Metric:
    return _metric("AWS/SQS", name, {"QueueName": queue.queue_name}, "Maximum")


def _sum_metrics(
    metrics: Sequence[cloudwatch.IMetric], minutes: int = PERIOD_MINUTES
) -> cloudwatch.MathExpression:
    """The sum of all metrics; missing data count as zero."""
    metrics_by_id = {f"m{number}": metric for number, metric in enumerate(metrics)}
    return cloudwatch.MathExpression(
        expression=f"SUM([{', '.join(f'FILL({name}, 0)' for name in metrics_by_id)}])",
        using_metrics=metrics_by_id,
        period=Duration.minutes(minutes),
    )
