"""The metrics of a stage, as CloudWatch knows them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_rds as rds
from aws_cdk import aws_sqs as sqs

from strandline.function_specs import FUNCTIONS
from strandline.observability import METRIC_NAMESPACE, METRICS

PERIOD_MINUTES = 5
"""Period of every metric except the daily ones."""
MODEL_FUNCTIONS = tuple(fn.name for fn in FUNCTIONS if "model" in fn.needs)
"""Functions that call language models."""


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
    shards: str
    """ARN under which the executions of its map are counted, one for each shard."""
    schedules: str
    """Name of the group of its schedules."""
    prefix: str
    """Prefix of the functions' names; the name in the table of functions follows."""


def aws_metric(
    namespace: str,
    name: str,
    dimensions: Mapping[str, str],
    statistic: str = "Sum",
    minutes: int = PERIOD_MINUTES,
) -> cloudwatch.Metric:
    """A metric of a namespace, in periods of this many minutes."""
    return cloudwatch.Metric(
        namespace=namespace,
        metric_name=name,
        dimensions_map=dimensions,
        statistic=statistic,
        period=Duration.minutes(minutes),
    )


def service_metric(
    name: str, dimensions: Mapping[str, str], statistic: str, minutes: int = PERIOD_MINUTES
) -> cloudwatch.Metric:
    """A metric that the functions print (strandline.observability)."""
    assert name in METRICS
    return aws_metric(METRIC_NAMESPACE, name, dimensions, statistic, minutes)


def job_metric(
    resources: MonitoredResources, name: str, function: str, statistic: str, *, job: str = ""
) -> cloudwatch.Metric:
    """A metric of a function's job; the job has the function's name unless `job` names another."""
    dimensions = {"function": resources.prefix + function, "job": job or function}
    return service_metric(name, dimensions, statistic)


def function_service_metric(
    resources: MonitoredResources, name: str, function: str, minutes: int
) -> cloudwatch.Metric:
    """A metric of a function, summed over all its jobs and routes."""
    return service_metric(name, {"function": resources.prefix + function}, "Sum", minutes)


def api_metric(resources: MonitoredResources, name: str, statistic: str) -> cloudwatch.Metric:
    """A metric of the API."""
    return aws_metric("AWS/ApiGateway", name, resources.api, statistic)


def lambda_sum_metric(
    resources: MonitoredResources, name: str, function: str, minutes: int = PERIOD_MINUTES
) -> cloudwatch.Metric:
    """The sum of a metric that Lambda keeps of a function."""
    dimensions = {"FunctionName": resources.prefix + function}
    return aws_metric("AWS/Lambda", name, dimensions, minutes=minutes)


def rds_metric(resources: MonitoredResources, name: str, statistic: str) -> cloudwatch.Metric:
    """A metric of the database."""
    cluster = {"DBClusterIdentifier": resources.cluster.cluster_identifier}
    return aws_metric("AWS/RDS", name, cluster, statistic)


def sqs_maximum_metric(queue: sqs.IQueue, name: str) -> cloudwatch.Metric:
    """The maximum of a queue's metric."""
    return aws_metric("AWS/SQS", name, {"QueueName": queue.queue_name}, "Maximum")


def sum_metrics(
    metrics: Sequence[cloudwatch.IMetric], minutes: int = PERIOD_MINUTES
) -> cloudwatch.MathExpression:
    """The sum of all metrics; missing data count as zero."""
    metrics_by_id = {f"m{number}": metric for number, metric in enumerate(metrics)}
    return cloudwatch.MathExpression(
        expression=f"SUM([{', '.join(f'FILL({name}, 0)' for name in metrics_by_id)}])",
        using_metrics=metrics_by_id,
        period=Duration.minutes(minutes),
    )
