"""Who is woken, and by what: alarms with a line each in docs/runbook.md, a dashboard, and a budget.

Missing data breaches nothing: a stage that rests sends none, and nobody is woken for that. One that
should not rest shows it by what lies in its queues, which count by themselves; and one whose daily
sweep does not come, by that alone.
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
from strandline.deployment import FUNCTIONS
from strandline.observability import METRICS, NAMESPACE

RUNBOOK = "docs/runbook.md"
MINUTES = 5
"""Of every figure but a day's."""
_MODEL = tuple(fn.name for fn in FUNCTIONS if "model" in fn.needs)
"""Functions that ask language models."""
_LEAST_ERRORS = 5
"""Fewer 5xx in five minutes wake nobody: a database that wakes up answers a few with 503."""
_PARTS_TRIED = 3
"""How often a part of a job is tried: so many failures are one that was given up."""
_SWEEP_HOURS = 26
"""Without a run that ended well: the daily sweep has two for itself."""
_MORE = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
_LESS = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD
_BREACHING = cloudwatch.TreatMissingData.BREACHING
_NOT_BREACHING = cloudwatch.TreatMissingData.NOT_BREACHING


@dataclass(frozen=True)
class Watched:
    """What is watched."""

    api: Mapping[str, str]
    """Dimensions of the API's metrics."""
    queues: Mapping[str, tuple[sqs.IQueue, sqs.IQueue]]
    """By name ("hints"): the queue and its dead letters."""
    cluster: rds.IDatabaseCluster
    machine: str
    """ARN of the state machine."""
    schedules: str
    """The group of its schedules."""
    prefix: str
    """What the functions' names begin with; each goes on as the table has it."""


@dataclass(frozen=True)
class Alarm:
    """One reason to wake somebody."""

    name: str
    """Of its line in the runbook, too."""
    says: str
    metric: cloudwatch.IMetric
    at: float
    """From here on it is one; of what should come by itself, below it."""
    periods: int = 1
    """In a row."""
    comes: bool = False
    """It should come by itself: less is an alarm, and no data are none of it."""
    few_samples: bool = True
    """Of a percentile: whether few values are enough for it."""


class Watch(Construct):
    """Alarms to `settings.alarms`, told to its topic or address."""

    def __init__(
        self, scope: Construct, id: str, settings: StackSettings, watched: Watched
    ) -> None:
        super().__init__(scope, id)
        self._settings = settings
        self._topic = self._told()
        alarms = [self._alarm(alarm) for alarm in alarms_of(settings, watched)]
        self._dashboard(watched, alarms)
        if settings.alarms.usd_per_month:
            self._budget(settings.alarms.usd_per_month)

    def _told(self) -> sns.ITopic | None:
        ours = self._settings.alarms
        if ours.topic_arn:
            return sns.Topic.from_topic_arn(self, "Topic", ours.topic_arn)
        if not ours.email:
            return None
        topic = sns.Topic(self, "Topic", enforce_ssl=True)
        # A policy of its own replaces the one that lets the account's alarms in.
        alarms = iam.ServicePrincipal(
            "cloudwatch.amazonaws.com",
            conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
        )
        topic.grant_publish(cast(iam.IGrantable, alarms))
        topic.add_subscription(
            cast(sns.ITopicSubscription, subscriptions.EmailSubscription(ours.email))
        )
        return cast(sns.ITopic, topic)

    def _alarm(self, alarm: Alarm) -> cloudwatch.Alarm:
        made = cloudwatch.Alarm(
            self,
            "".join(word.title() for word in alarm.name.split("-")),
            alarm_name=f"{self._settings.stack_name}-{alarm.name}",
            alarm_description=f"{alarm.says} {RUNBOOK}#{alarm.name}",
            metric=alarm.metric,
            threshold=alarm.at,
            evaluation_periods=alarm.periods,
            comparison_operator=_LESS if alarm.comes else _MORE,
            treat_missing_data=_BREACHING if alarm.comes else _NOT_BREACHING,
            evaluate_low_sample_count_percentile=None if alarm.few_samples else "ignore",
        )
        if self._topic:
            action = cast(cloudwatch.IAlarmAction, actions.SnsAction(self._topic))
            made.add_alarm_action(action)
            made.add_ok_action(action)
        return made

    def _dashboard(self, watched: Watched, alarms: Sequence[cloudwatch.Alarm]) -> None:
        states = cloudwatch.AlarmStatusWidget(
            alarms=[cast(cloudwatch.IAlarm, alarm) for alarm in alarms], width=24
        )
        graphs = [_graph(*shown) for shown in _graphs(watched)]
        rows = [graphs[at : at + 3] for at in range(0, len(graphs), 3)]
        cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=self._settings.stack_name,
            widgets=[[cast(cloudwatch.IWidget, states)], *rows],
        )

    def _budget(self, usd: float) -> None:
        """Told at 80 % of what was spent and at what is forecast to be. It sees what bears the
        stack's tag, once that is a cost allocation tag of the account."""
        ours = self._settings.alarms
        to = budgets.CfnBudget.SubscriberProperty(
            subscription_type="EMAIL" if ours.email else "SNS",
            address=ours.email or ours.topic_arn or "",
        )
        at = (("ACTUAL", 80), ("FORECASTED", 100))
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
                    subscribers=[to],
                )
                for kind, percent in at
                if to.address
            ],
        )


def alarms_of(settings: StackSettings, watched: Watched) -> list[Alarm]:
    """Every alarm; those about language models where there is one."""
    found = [*_queues(settings, watched), *_work(settings, watched), *_jobs(settings, watched)]
    found += [*_service(settings, watched), *_database(settings, watched)]
    return (
        [*found, *_models(settings, watched)] if settings.service.llm_provider != "none" else found
    )


def _queues(settings: StackSettings, watched: Watched) -> Iterable[Alarm]:
    oldest = settings.alarms.unembedded_seconds
    for name, (queue, dead) in watched.queues.items():
        letters = _sqs(dead, "ApproximateNumberOfMessagesVisible")
        yield Alarm(f"dead-{name}", f"Messages of {name} were given up.", letters, 1)
        age = _sqs(queue, "ApproximateAgeOfOldestMessage")
        yield Alarm(f"waiting-{name}", f"A message of {name} waits too long.", age, oldest)


def _work(settings: StackSettings, watched: Watched) -> Iterable[Alarm]:
    ours, says = settings.alarms, "Sweeps find events that nobody"
    yield Alarm(
        "unembedded",
        f"{says} gave a vector to.",
        _of_job(watched, "OldestUnembeddedSeconds", "sweeper", "Maximum"),
        ours.unembedded_seconds,
    )
    yield Alarm(
        "stuck-scopes",
        "The work of scopes was put off five times in a row.",
        _of_job(watched, "ScopesStuck", "sweeper", "Maximum"),
        1,
    )
    yield Alarm(
        "unbuilt",
        f"{says} went through for chains.",
        _of_job(watched, "OldestUnfoldedSeconds", "sweeper", "Maximum"),
        ours.unbuilt_seconds,
    )


def _jobs(settings: StackSettings, watched: Watched) -> Iterable[Alarm]:
    machine = {"StateMachineArn": watched.machine}
    runs = [_metric("AWS/States", n, machine) for n in ("ExecutionsFailed", "ExecutionsTimedOut")]
    yield Alarm("failed-runs", "Runs of a job failed.", _sum(runs), settings.alarms.failed_builds)
    ended = _metric("AWS/States", "ExecutionsSucceeded", machine, minutes=60)
    says = "No job has ended well for a day, not even the daily sweep."
    yield Alarm("no-sweep", says, ended, 1, periods=_SWEEP_HOURS, comes=True)
    parts = [_of_job(watched, "Failures", fn.name, "Sum") for fn in FUNCTIONS if fn.every_minutes]
    yield Alarm("failed-parts", "Parts of a job were given up.", _sum(parts), _PARTS_TRIED)
    group = {"ScheduleGroup": watched.schedules}
    names = ("TargetErrorCount", "InvocationDroppedCount")
    lost = [_metric("AWS/Scheduler", name, group) for name in names]
    yield Alarm("wake-ups", "A job was due and could not be started.", _sum(lost), 1)


def _service(settings: StackSettings, watched: Watched) -> Iterable[Alarm]:
    ours = settings.alarms
    errors, requests = (_api(watched, name, "Sum") for name in ("5XXError", "Count"))
    share = cloudwatch.MathExpression(
        expression=f"IF(errors >= {_LEAST_ERRORS}, 100 * errors / requests, 0)",
        using_metrics={"errors": errors, "requests": requests},
        period=Duration.minutes(MINUTES),
        label="% of answers that are 5xx",
    )
    yield Alarm("errors", "Answers are 5xx.", share, ours.errors_percent, periods=2)
    latency = _api(watched, "Latency", "p95")
    says = "Answers are slow."
    yield Alarm("slow", says, latency, ours.p95_milliseconds, periods=3, few_samples=False)


def _database(settings: StackSettings, watched: Watched) -> Iterable[Alarm]:
    ours = settings.alarms
    yield Alarm(
        "connections",
        "The database's connections run out.",
        _rds(watched, "DatabaseConnections", "Maximum"),
        int(settings.database_connections * ours.connections_percent / 100),
        periods=2,
    )
    yield Alarm(
        "capacity",
        "The database is at its maximum capacity.",
        _rds(watched, "ACUUtilization", "Average"),
        95,
        periods=ceil(ours.capacity_minutes / MINUTES),
    )


def _models(settings: StackSettings, watched: Watched) -> Iterable[Alarm]:
    opened = _sum([_of_function(watched, "BreakerOpen", name, MINUTES) for name in _MODEL])
    says = "A language model fails, and is left alone."
    yield Alarm("breaker-open", says, opened, 1, periods=2)
    day = 24 * 60
    spent = _sum([_of_function(watched, "ModelMicroUsd", name, day) for name in _MODEL], day)
    most = settings.alarms.model_usd_per_day * 1e6
    yield Alarm("model-spend", "Language models cost more than planned.", spent, most)


def _graphs(watched: Watched) -> Iterable[tuple[str, Sequence[cloudwatch.IMetric]]]:
    """The dashboard's, three in a row."""
    names = ("Count", "4XXError", "5XXError")
    yield "Requests", [_api(watched, name, "Sum") for name in names]
    yield "Milliseconds", [_api(watched, "Latency", point) for point in ("p50", "p95", "p99")]
    embedded = _of_job(watched, "EventsEmbedded", "worker", "Sum", job="hint")
    folded = _of_job(watched, "EventsFolded", "worker", "Sum", job="hint")
    yield "Events worked through", [embedded, folded]
    oldest = ("OldestUnembeddedSeconds", "OldestUnfoldedSeconds", "OldestDueSeconds")
    yield "Oldest work", [_of_job(watched, name, "sweeper", "Maximum") for name in oldest]
    ages = [_sqs(queue, "ApproximateAgeOfOldestMessage") for queue, _ in watched.queues.values()]
    yield "Oldest message", ages
    letters = "ApproximateNumberOfMessagesVisible"
    yield "Dead letters", [_sqs(dead, letters) for _, dead in watched.queues.values()]
    yield "Capacity units", [_rds(watched, "ServerlessDatabaseCapacity", "Average")]
    yield "Connections", [_rds(watched, "DatabaseConnections", "Maximum")]
    spent = [_of_function(watched, "ModelMicroUsd", name, MINUTES) for name in _MODEL]
    yield "Models, millionths of a USD", spent


def _graph(title: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.IWidget:
    return cast(cloudwatch.IWidget, cloudwatch.GraphWidget(title=title, left=metrics, width=8))


# metrics -----------------------------------------------------------------------------------------


def _metric(
    namespace: str,
    name: str,
    dimensions: Mapping[str, str],
    statistic: str = "Sum",
    minutes: int = MINUTES,
) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=namespace,
        metric_name=name,
        dimensions_map=dimensions,
        statistic=statistic,
        period=Duration.minutes(minutes),
    )


def _ours(
    name: str, dimensions: Mapping[str, str], statistic: str, minutes: int = MINUTES
) -> cloudwatch.Metric:
    """One that the functions print (strandline.observability)."""
    assert name in METRICS
    return _metric(NAMESPACE, name, dimensions, statistic, minutes)


def _of_job(
    watched: Watched, name: str, function: str, statistic: str, *, job: str = ""
) -> cloudwatch.Metric:
    """Of a function's job, which is called as the function is unless it says otherwise."""
    dimensions = {"function": watched.prefix + function, "job": job or function}
    return _ours(name, dimensions, statistic)


def _of_function(watched: Watched, name: str, function: str, minutes: int) -> cloudwatch.Metric:
    return _ours(name, {"function": watched.prefix + function}, "Sum", minutes)


def _api(watched: Watched, name: str, statistic: str) -> cloudwatch.Metric:
    return _metric("AWS/ApiGateway", name, watched.api, statistic)


def _rds(watched: Watched, name: str, statistic: str) -> cloudwatch.Metric:
    cluster = {"DBClusterIdentifier": watched.cluster.cluster_identifier}
    return _metric("AWS/RDS", name, cluster, statistic)


def _sqs(queue: sqs.IQueue, name: str) -> cloudwatch.Metric:
    return _metric("AWS/SQS", name, {"QueueName": queue.queue_name}, "Maximum")


def _sum(
    metrics: Sequence[cloudwatch.IMetric], minutes: int = MINUTES
) -> cloudwatch.MathExpression:
    """All of them together; one that sends nothing counts nothing."""
    named = {f"m{number}": metric for number, metric in enumerate(metrics)}
    return cloudwatch.MathExpression(
        expression=f"SUM([{', '.join(f'FILL({name}, 0)' for name in named)}])",
        using_metrics=named,
        period=Duration.minutes(minutes),
    )
