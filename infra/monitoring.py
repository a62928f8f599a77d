"""A stage's alarms with where they are sent, its dashboard and its budget."""

import zlib
from collections.abc import Iterable, Sequence
from typing import cast

from aws_cdk import Stack
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.alarms import AlarmSpec, build_alarms
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
)
from infra.settings import StackSettings
from strandline.function_specs import FUNCTIONS

RUNBOOK = "docs/runbook.md"
_AT_LEAST = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
_BELOW = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD


_TENANT_QUERY = """filter message in ["request", "job"] and ispresent(tenant)
| filter not ispresent(ToolCalls)
| stats count(*) as lines, sum(DurationMilliseconds) / 1000 as seconds,
  sum(EventsAppended) as events by tenant, function
| sort seconds desc"""
"""What each tenant took of each function. A call of a tool has a second line, for its operation."""


class Monitoring(Construct):
    """Alarms by the thresholds of `settings.alarms`, sent to its topic or address."""

    def __init__(
        self, scope: Construct, id: str, settings: StackSettings, resources: MonitoredResources
    ) -> None:
        super().__init__(scope, id)
        self._settings = settings
        self._topic = self._find_or_create_alarm_topic()
        alarms = [self._create_alarm(alarm) for alarm in build_alarms(settings, resources)]
        self._create_dashboard(resources, alarms)
        self._create_tenant_query(resources)
        if settings.alarms.usd_per_month:
            self._create_budget(settings.alarms.usd_per_month)

    @property
    def _make_name_with_region(self) -> str:
        """A name for what belongs to the account, not to a Region of it: a stack of the same name
        in another Region has another."""
        return f"{self._settings.stack_name}-{Stack.of(self).region}"

    def _find_or_create_alarm_topic(self) -> sns.ITopic | None:
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

    def _create_alarm(self, alarm: AlarmSpec) -> cloudwatch.Alarm:
        construct = cloudwatch.Alarm(
            self,
            "".join(word.title() for word in alarm.name.split("-")),
            alarm_name=f"{self._settings.stack_name}-{alarm.name}",
            alarm_description=f"{alarm.description} {RUNBOOK}#{alarm.name}",
            metric=alarm.metric,
            threshold=alarm.threshold,
            evaluation_periods=alarm.periods,
            comparison_operator=_BELOW if alarm.expects_data else _AT_LEAST,
            treat_missing_data=_choose_missing_data_treatment(alarm),
        )
        if self._topic:
            action = cast(cloudwatch.IAlarmAction, actions.SnsAction(self._topic))
            construct.add_alarm_action(action)
            construct.add_ok_action(action)
        return construct

    def _create_dashboard(
        self, resources: MonitoredResources, alarms: Sequence[cloudwatch.Alarm]
    ) -> None:
        status_widget = cloudwatch.AlarmStatusWidget(
            alarms=[cast(cloudwatch.IAlarm, alarm) for alarm in alarms], width=24
        )
        graphs = [_make_graph_widget(*graph) for graph in _list_dashboard_graphs(resources)]
        rows = [graphs[at : at + 3] for at in range(0, len(graphs), 3)]
        cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=self._make_name_with_region,
            widgets=[[cast(cloudwatch.IWidget, status_widget)], *rows],
        )

    def _create_tenant_query(self, resources: MonitoredResources) -> None:
        """A saved query of Logs Insights. It costs nothing until somebody runs it."""
        logs.CfnQueryDefinition(
            self,
            "TenantQuery",
            name=f"{self._settings.stack_name}/tenants",
            query_string=_TENANT_QUERY,
            log_group_names=[
                f"/aws/lambda/{resources.prefix}{fn.name}"
                for fn in FUNCTIONS
                if "database" in fn.needs
            ],
        )

    def _create_budget(self, usd: float) -> None:
        """Notifies at 80 % of actual cost and at 100 % of forecast cost, or stands in the console
        only where nobody is to be notified. It counts what has the stack's tag, once that is a cost
        allocation tag of the account."""
        alarm_settings = self._settings.alarms
        address = alarm_settings.email or alarm_settings.topic_arn or ""
        # Whom it notifies cannot change: CloudFormation makes another budget, before the first is
        # gone, so that the name has to change too.
        suffix = f"-{zlib.crc32(address.encode()):08x}" if address else ""
        subscriber = budgets.CfnBudget.SubscriberProperty(
            subscription_type="EMAIL" if alarm_settings.email else "SNS",
            address=address,
        )
        thresholds = (("ACTUAL", 80), ("FORECASTED", 100))
        budgets.CfnBudget(
            self,
            "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_name=f"{self._make_name_with_region}{suffix}",
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
            ]
            if address
            else None,
        )


def _choose_missing_data_treatment(alarm: AlarmSpec) -> cloudwatch.TreatMissingData:
    if alarm.expects_data:
        return cloudwatch.TreatMissingData.BREACHING
    if alarm.is_measured_by_sweeps:
        return cloudwatch.TreatMissingData.IGNORE
    return cloudwatch.TreatMissingData.NOT_BREACHING


def _list_dashboard_graphs(
    resources: MonitoredResources,
) -> Iterable[tuple[str, Sequence[cloudwatch.IMetric]]]:
    """The dashboard's graphs, shown three in a row."""
    names = ("Count", "4XXError", "5XXError")
    yield "Requests", [api_metric(resources, name, "Sum") for name in names]
    yield (
        "Milliseconds",
        [api_metric(resources, "Latency", point) for point in ("p50", "p95", "p99")],
    )
    embed_metric = job_metric(resources, "EventsEmbedded", "worker", "Sum", job="work_message")
    fold_metric = job_metric(resources, "EventsFolded", "worker", "Sum", job="work_message")
    yield "Events embedded and folded", [embed_metric, fold_metric]
    oldest = ("OldestUnembeddedSeconds", "OldestUnfoldedSeconds", "OldestDueSeconds")
    yield "Oldest work", [job_metric(resources, name, "sweeper", "Maximum") for name in oldest]
    ages = [
        sqs_maximum_metric(queue, "ApproximateAgeOfOldestMessage")
        for queue, _ in resources.queues.values()
    ]
    yield "Oldest message", ages
    message_count = "ApproximateNumberOfMessagesVisible"
    yield (
        "Dead letters",
        [
            sqs_maximum_metric(dead_letters, message_count)
            for _, dead_letters in resources.queues.values()
        ],
    )
    yield "Capacity units", [rds_metric(resources, "ServerlessDatabaseCapacity", "Average")]
    yield "Connections", [rds_metric(resources, "DatabaseConnections", "Maximum")]
    spend_metrics = [
        function_service_metric(resources, "ModelCostMicroUsd", name, PERIOD_MINUTES)
        for name in MODEL_FUNCTIONS
    ]
    yield "Models, millionths of a USD", spend_metrics
    for name in ("Invocations", "Errors", "Throttles"):
        yield (
            f"Functions: {name.lower()}",
            [lambda_sum_metric(resources, name, fn.name) for fn in FUNCTIONS],
        )
    machine = {"StateMachineArn": resources.machine}
    runs = ("ExecutionsStarted", "ExecutionsSucceeded", "ExecutionsFailed", "ExecutionsTimedOut")
    yield "Runs of jobs", [aws_metric("AWS/States", name, machine) for name in runs]


def _make_graph_widget(title: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.IWidget:
    return cast(cloudwatch.IWidget, cloudwatch.GraphWidget(title=title, left=metrics, width=8))
