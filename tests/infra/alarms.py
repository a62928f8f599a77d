"""The stack's monitoring, as it is synthesized, and the metrics that functions print for it."""

import functools
import json
from collections.abc import Mapping
from typing import Any

from tests.infra.kept_templates import keep

PREFIX = "strandline-dev-"
type Watching = tuple[str, frozenset[tuple[str, str]]]
"""A metric of ours, and its dimensions."""


@functools.cache
def _synthesize(props: str) -> Mapping[str, Any]:
    def make() -> str:
        from tests.infra import synthesis

        return synthesis.make_monitoring(json.loads(props), PREFIX)

    return json.loads(keep("monitoring", f"{PREFIX} {props}", make))


def of(kind: str, **options: object) -> list[dict[str, Any]]:
    """The properties of all resources of a kind."""
    result = _synthesize(json.dumps(options, sort_keys=True)).values()
    return [r["Properties"] for r in result if r["Type"] == f"AWS::{kind}"]


def alarms(**options: object) -> dict[str, dict[str, Any]]:
    """By name, without the stack's."""
    result = of("CloudWatch::Alarm", **options)
    return {alarm["AlarmName"].removeprefix(PREFIX): alarm for alarm in result}


def stats(alarm: dict[str, Any]) -> list[dict[str, Any]]:
    """The metrics that an alarm looks at."""
    queries = [q["MetricStat"] for q in alarm.get("Metrics", ()) if "MetricStat" in q]
    return [query["Metric"] for query in queries] or [alarm]


def emitted_metrics(output: str) -> set[Watching]:
    """Every metric in these lines, as CloudWatch would know it."""
    results: set[Watching] = set()
    for line in map(json.loads, output.splitlines()):
        for directive in line.get("_aws", {}).get("CloudWatchMetrics", ()):
            for names in directive["Dimensions"]:
                at = frozenset((n, PREFIX + line[n] if n == "function" else line[n]) for n in names)
                results |= {(metric["Name"], at) for metric in directive["Metrics"]}
    return results
