"""Every alarm watches what is printed, and has its line in the runbook; every line its alarm."""

import io
import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from strandline.config import get_settings
from strandline.erasure import eraser
from strandline.function_specs import FUNCTIONS
from strandline.local.lambda_context import LambdaContext
from strandline.observability import METRIC_NAMESPACE, METRICS, logger
from tests import support
from tests.infra.alarms import PREFIX, Watching, alarms, emitted_metrics, of, stats
from tests.infra.stacks import template
from tests.model_server import ModelServer, error, serving
from tests.strandline.llm.model_path import deliver, talk
from tests.support import Gateway, Tell

MODEL: Mapping[str, object] = {"settings": {"llm_provider": "bedrock", "llm_model": "m.v1:0"}}
RUNBOOK = "docs/runbook.md"


def watching(results: Mapping[str, dict[str, Any]]) -> set[Watching]:
    """The metrics of ours that alarms look at."""
    return {
        (
            metric["MetricName"],
            frozenset((d["Name"], d["Value"]) for d in metric["Dimensions"]),
        )
        for alarm in results.values()
        for metric in stats(alarm)
        if metric["Namespace"] == METRIC_NAMESPACE
    }


# what the functions print ------------------------------------------------------------------------


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A language model that is left alone after its first failure, and has its price."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as provider:
        for name, value in {
            "PROVIDER": "openai",
            "BASE_URL": provider.url,
            "MODEL": "tiny",
            "BREAKER_FAILURES": "1",
            "USD_PER_MILLION_IN": "10",
        }.items():
            monkeypatch.setenv(f"STRANDLINE_LLM_{name}", value)
        yield provider


@pytest.fixture
def log_output(provider: ModelServer, gateway: Gateway) -> Iterator[io.StringIO]:
    """What the very handler that prints in Lambda prints from here on."""
    del provider, gateway
    get_settings.cache_clear()
    stream, handler = io.StringIO(), cast(Any, logger.registered_handler)
    before = handler.setStream(stream)
    yield stream
    handler.setStream(before)


def give_up_a_vacuum(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Complete an erasure without one."""
    monkeypatch.setattr(eraser, "_MAX_VACUUMS", 0)
    monkeypatch.setattr(eraser, "_REQUEST_WAIT", timedelta(0))
    key = gateway.key(rights=["erase"])
    assert gateway.call("POST", "/api/v1/erasures", {"tenant": True}, key=key).status == 202
    assert gateway.run_job("eraser", "acme")["vacuums_given_up"] == 1


def test_monitoring_alarms_watch_printed_metrics(
    gateway: Gateway,
    tell: Tell,
    log_output: io.StringIO,
    provider: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def as_query(name: str, seconds: float) -> LambdaContext:
        del name
        return LambdaContext("query", seconds)

    def ask() -> None:
        """A function that asks a model for a request."""
        with monkeypatch.context() as patch:
            patch.setattr(support, "LambdaContext", as_query)
            reply = gateway.call("GET", "/api/v1/sessions/s-1/analysis/topics", key=key)
        assert reply.status == 200, reply.text

    key = gateway.key(user="user:alice")
    scope = talk(tell, key)
    ask()
    provider.script = [error(500)] * 20
    deliver(scope)  # the worker, which leaves the model alone after the first
    ask()
    gateway.run_job("sweeper", "acme")
    gateway.run_job("archiver", "acme")
    gateway.run_job("analytics", "acme")
    gateway.run_job("builder", "acme")
    gateway.run_job("promoter", "acme")
    give_up_a_vacuum(gateway, monkeypatch)
    metrics = emitted_metrics(log_output.getvalue())
    looked_at = watching(alarms(**MODEL))
    # A sweeper asks a model where it folds, a builder where it summarises, a promoter and an
    # archiver where they promote, an eraser where it forms chains again, mcp where it judges
    # contradictions; their lines are made as the worker's is.
    names = ("sweeper", "builder", "promoter", "archiver", "eraser", "mcp")
    callers = {frozenset({("function", f"{PREFIX}{name}")}) for name in names}
    missing = {(name, at) for name, at in looked_at - metrics if at not in callers}
    assert not missing
    for caller in callers:
        assert {name for name, at in looked_at if at == caller} == {
            "ModelBreakerRejections",
            "ModelCostMicroUsd",
        }
    assert re.search(r'"ModelBreakerRejections":[1-9]', log_output.getvalue()), (
        "left alone, and not counted"
    )
    assert re.search(r'"ModelCostMicroUsd":[1-9]', log_output.getvalue()), (
        "asked, and no price counted"
    )
    # Planted: a metric that nobody prints, a dimension that nobody has.
    assert ("OldestDueSecond", next(iter(metrics))[1]) not in metrics
    assert ("WorkFailures", frozenset({("function", f"{PREFIX}sweeper")})) not in metrics


# alarms and their lines --------------------------------------------------------------------------


def lines_of(runbook: str) -> set[str]:
    """The names of alarms that have a line."""
    part = runbook.partition("## Alarms\n")[2].partition("\n## ")[0]
    return {name for name, text in re.findall(r"^### (\S+)\n(.+)$", part, re.MULTILINE) if text}


def find_unanswered(results: Mapping[str, dict[str, Any]], runbook: str) -> set[str]:
    """Alarms without a line, and lines without an alarm."""
    names = {
        name
        for name, alarm in results.items()
        if alarm["AlarmDescription"].endswith(f" {RUNBOOK}#{name}")
    }
    assert names == set(results)
    return names ^ (lines_of(runbook) - {"budget"})


def test_monitoring_alarms_match_runbook_lines(repository: Path) -> None:
    runbook = (repository / RUNBOOK).read_text()
    alarm_resources = alarms(**MODEL)
    assert find_unanswered(alarm_resources, runbook) == set()
    assert "budget" in lines_of(runbook)
    # Planted: an alarm taken away, a line taken away.
    assert find_unanswered({n: a for n, a in alarm_resources.items() if n != "slow"}, runbook) == {
        "slow"
    }
    assert find_unanswered(alarm_resources, runbook.replace("### capacity", "### capacities")) == {
        "capacity",
        "capacities",
    }


def test_monitoring_runbook_links_resolve(repository: Path) -> None:
    runbook = (repository / RUNBOOK).read_text()
    headings = re.findall(r"^#+ (.+)$", runbook, re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", runbook)) <= anchors


def test_monitoring_runbook_messages_are_logged(repository: Path) -> None:
    runbook = " ".join((repository / "docs" / "runbook.md").read_text().split())
    messages = re.findall(r"`([a-z_ ]+)` in the (?:[\w-]+'s )?log\b", runbook)
    assert len(messages) >= 6
    files = (repository / "shared" / "strandline").rglob("*.py")
    source = "".join(file.read_text() for file in files)
    assert [message for message in messages if f'"{message}"' not in source] == []


BY_SWEEPS = {"unembedded", "unfolded", "stuck-scopes", "late-erasures"}


def test_monitoring_alarms_are_silent_at_rest() -> None:
    """What sweeps alone measure stays between them: without data nothing is mended."""
    alarm_resources = alarms(**MODEL)
    del alarm_resources["missing-sweep"]
    for name, alarm in alarm_resources.items():
        missing = "ignore" if name in BY_SWEEPS else "notBreaching"
        assert alarm["TreatMissingData"] == missing, name
        assert alarm["Threshold"] > 0, f"{name}: at rest everything is 0"
        assert alarm["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
        if name in BY_SWEEPS:
            assert stats(alarm) == [alarm], "one metric: another's zero would end the alarm"
            assert alarm["Statistic"] == "Minimum", "as a sweep begins and ends, in one period"


def test_monitoring_alarm_reports_missing_sweep() -> None:
    """26 hours without a run that ended well or a deployment: one is enough to be quiet."""
    alarm = alarms()["missing-sweep"]
    runs, deployments = stats(alarm)
    assert (runs["MetricName"], runs["Dimensions"][0]["Name"]) == (
        "ExecutionsSucceeded",
        "StateMachineArn",
    )
    assert (deployments["MetricName"], deployments["Dimensions"]) == (
        "Invocations",
        [{"Name": "FunctionName", "Value": f"{PREFIX}migrate"}],
    )
    periods = [query["MetricStat"]["Period"] for query in alarm["Metrics"] if "MetricStat" in query]
    assert (periods, alarm["EvaluationPeriods"]) == ([3600, 3600], 26)
    assert "DatapointsToAlarm" not in alarm
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 1)
    assert alarm["TreatMissingData"] == "breaching"


def test_monitoring_alarms_cover_required_signals() -> None:
    alarm_resources = alarms(**MODEL)
    names = {"work-queue-dead-letters", "job-queue-dead-letters", "unembedded", "unfolded"}
    names |= {"failed-runs", "errors", "slow", "failed-vacuums", "late-erasures"}
    names |= {"throttles", "function-errors", "transaction-age", "reads"}
    assert names | {"connections", "capacity", "breaker-open", "model-spend"} <= set(
        alarm_resources
    )
    assert set(alarm_resources) - set(alarms()) == {"breaker-open", "model-spend"}, (
        "without a model: none"
    )


def test_monitoring_shards_alarm_counts_executions_of_the_map() -> None:
    """Also of a function that was killed, which prints no metric."""
    label = json.loads(Path("infra/job.asl.json").read_text())["States"]["map"]["Label"]
    metrics_of_alarm = {
        (one["MetricName"], one["Dimensions"][0]["Value"])
        for one in stats(alarms()["failed-shards"])
    }
    machine = f"arn:aws:states:eu-west-1:1:stateMachine:jobs/{label}"
    assert metrics_of_alarm == {("ExecutionsFailed", machine), ("ExecutionsTimedOut", machine)}
    ((alarm,),) = [
        [r["Properties"] for r in template()["Resources"].values() if is_shards_alarm(r)]
    ]
    assert f":stateMachine:strandline-dev-jobs/{label}" in json.dumps(alarm)


def is_shards_alarm(resource: Mapping[str, Any]) -> bool:
    return resource.get("Properties", {}).get("AlarmName") == f"{PREFIX}failed-shards"


def test_monitoring_queue_age_allows_for_delayed_messages() -> None:
    """A message that is delayed by a quarter of an hour, the most that SQS allows, is that old when
    it is first received."""
    thresholds = {n: alarms()[n]["Threshold"] for n in ("work-queue-age", "job-queue-age")}
    assert thresholds == {"work-queue-age": 900 + 900, "job-queue-age": 900}


def test_monitoring_reads_alarm_has_price_of_storage() -> None:
    """10 USD a day are 50 million reads at 0.20 a million: 173,611 in each five minutes of an hour.
    Where reads have no price there is no alarm."""
    alarm = alarms()["reads"]
    (metric,) = stats(alarm)
    assert metric["MetricName"] == "VolumeReadIOPs"
    assert (alarm["Threshold"], alarm["EvaluationPeriods"]) == (173_611, 12)
    assert "reads" not in alarms(storage_type="aurora-iopt1")


def test_monitoring_slow_alarm_sees_few_calls() -> None:
    """A percentile that few calls cannot have would be blind, or stay as it was."""
    slow = alarms()["slow"]
    assert (slow["ExtendedStatistic"], slow["EvaluationPeriods"]) == ("p90", 3)
    assert slow.get("EvaluateLowSampleCountPercentile", "evaluate") == "evaluate"


def test_monitoring_alarms_watch_functions_that_lambda_calls() -> None:
    """What the state machine calls is tried again, and recorded where it fails."""
    for name, metric, expected in (
        ("throttles", "Throttles", {fn.name for fn in FUNCTIONS if fn.routes}),
        ("function-errors", "Errors", {fn.name for fn in FUNCTIONS if fn.routes or fn.queue}),
    ):
        metrics_of_alarm = stats(alarms()[name])
        assert {one["MetricName"] for one in metrics_of_alarm} == {metric}
        functions = {one["Dimensions"][0]["Value"] for one in metrics_of_alarm}
        assert functions == {PREFIX + function for function in expected}
        assert len(metrics_of_alarm) <= 10, "CloudWatch takes ten in an alarm"


def test_monitoring_alarms_notify_topic_address_or_nobody() -> None:
    assert not any("AlarmActions" in alarm for alarm in alarms().values())
    for alarm in alarms(alarms={"topic_arn": TOPIC}).values():
        assert alarm["AlarmActions"] == alarm["OKActions"] == [TOPIC]
    mail = {"email": "ops@example.com"}
    assert all("AlarmActions" in alarm for alarm in alarms(alarms=mail).values())
    (subscription,) = of("SNS::Subscription", alarms=mail)
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", mail["email"])


def test_monitoring_budget_covers_resources_with_stack_tag() -> None:
    assert of("Budgets::Budget") == []
    settings = {"usd_per_month": 50, "email": "ops@example.com"}
    (budget,) = of("Budgets::Budget", alarms=settings)
    assert budget["Budget"]["BudgetName"] != REGIONAL_NAME
    assert budget["Budget"]["BudgetLimit"] == {"Amount": 50, "Unit": "USD"}
    tag = ["user:strandline:stack$strandline-dev"]
    assert budget["Budget"]["CostFilters"] == {"TagKeyValue": tag}
    assert len(budget["NotificationsWithSubscribers"]) == 2
    (unheard,) = of("Budgets::Budget", alarms={"usd_per_month": 50})
    assert unheard["Budget"]["BudgetName"] == REGIONAL_NAME
    assert "NotificationsWithSubscribers" not in unheard


def test_monitoring_budget_of_other_recipient_has_other_name() -> None:
    """A changed recipient makes another budget, while the first is still there."""
    mails = [{"email": f"{name}@example.com"} for name in ("ann", "ben")]
    budgets = [
        of("Budgets::Budget", alarms={"usd_per_month": 50, **recipient})[0]
        for recipient in ({}, *mails, {"topic_arn": TOPIC})
    ]
    assert len({json.dumps(one["Budget"]["BudgetName"]) for one in budgets}) == 4


TOPIC = "arn:aws:sns:eu-west-1:1:ops"
REGIONAL_NAME = {"Fn::Join": ["", ["strandline-dev-", {"Ref": "AWS::Region"}]]}
"""Dashboards and budgets are the account's: a stack of this name in another Region has others."""


def test_monitoring_query_sums_each_tenants_time() -> None:
    """Over the groups of all functions whose lines name a tenant."""
    (query,) = of("Logs::QueryDefinition")
    assert query["Name"] == "strandline-dev/tenants"
    groups = {f"/aws/lambda/{PREFIX}{fn.name}" for fn in FUNCTIONS if "database" in fn.needs}
    assert set(query["LogGroupNames"]) == groups
    names = set(re.findall(r"\b(?:[A-Z]\w+)\b", query["QueryString"]))
    assert names == {"DurationMilliseconds", "EventsAppended", "ToolCalls"} <= set(METRICS)


def test_monitoring_dashboard_is_of_this_stack() -> None:
    (dashboard,) = of("CloudWatch::Dashboard")
    assert dashboard["DashboardName"] == REGIONAL_NAME


def test_monitoring_dashboard_shows_functions_and_state_machine() -> None:
    body = json.dumps(of("CloudWatch::Dashboard")[0]["DashboardBody"])
    for fn in FUNCTIONS:
        for metric in ("Invocations", "Errors", "Throttles"):
            assert re.search(rf"{metric}[^a-z]+FunctionName[^a-z]+{PREFIX}{fn.name}\W", body), (
                fn.name
            )
    for metric in ("ExecutionsStarted", "ExecutionsSucceeded", "ExecutionsFailed"):
        assert metric in body


def test_monitoring_docs_map_every_source_metric(repository: Path) -> None:
    """Every metric of Athena's (A-59 to A-62) has its row."""
    document = (repository / "docs" / "metrics.md").read_text()
    table = document.partition("## Names in the systems")[2]
    for name in SOURCES.split():
        assert f"`{name}`" in table, name


SOURCES = """
stm_cache_ops_total embedding_latency_seconds milvus_op_latency_seconds
cosine_similarity_distribution cosine_gate_decisions_total llm_fallback_calls_total
dialogue_chain_decision_latency_seconds memos_promoter_chains_evaluated_total
memos_promoter_chains_promoted_total memos_heat_score_distribution
memos_extractor_llm_duration_seconds memos_extractor_schema_failures_total
memos_ltm_arango_upsert_duration_seconds memos_ltm_nodes_written_total
memos_ltm_edges_written_total memos_ltm_edge_interceptions_total memos_ltm_fetch_duration_seconds
memos_ltm_nodes_read_total memos_ltm_edges_read_total memos_ltm_fetch_errors_total
memos_ltm_fetch_no_results_total memos_analytics_pregel_duration_seconds
memos_analytics_bridge_calc_duration_seconds memos_analytics_bridges_found_total
BlobStorageOps BlobPayloadBytes
"""
