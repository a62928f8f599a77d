"""Structured logs and metrics: one line per request and per job, which carries its metrics too. All
lines of one request or job share its trace id. Lines hold ids, counts and sizes, never memory."""

import logging
import re
import secrets
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal

from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter
from pydantic_core import to_json

_SERVICE = "strandline"
_STANDARD_ATTRIBUTES = logging.makeLogRecord({}).__dict__.keys()


class JsonLineFormatter(LambdaPowertoolsFormatter):
    """Writes Powertools' log line in a fraction of its time, which was a tenth of an append."""

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object: the record's own members, the thread's, and the `extra` ones."""
        if record.exc_info or record.stack_info:
            return super().format(record)
        line: dict[str, object] = {
            "level": record.levelname,
            "location": f"{record.funcName}:{record.lineno}",
            "message": record.getMessage(),
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(
                timespec="milliseconds"
            ),
            "service": _SERVICE,
            **self.thread_safe_get_current_keys(),
        }
        line |= {n: v for n, v in record.__dict__.items() if n not in _STANDARD_ATTRIBUTES}
        return to_json(line, fallback=str).decode()


# Fields that no line shows are not looked up (Logging HOWTO, "Optimization").
logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False

logger = Logger(service=_SERVICE, use_rfc3339=True, logger_formatter=JsonLineFormatter())

METRIC_NAMESPACE = "Strandline"
"""The namespace of the metrics in CloudWatch."""

METRICS: Mapping[str, Literal["Count", "Milliseconds", "Seconds", "None"]] = {
    "Requests": "Count",
    "DurationMilliseconds": "Milliseconds",
    "EventsAppended": "Count",
    "SearchHits": "Count",
    "RecallsDegraded": "Count",
    "RecallsNotRecorded": "Count",
    "LinksFound": "Count",
    "AnswersGiven": "Count",
    "AnswersDeferred": "Count",
    "AnswersFailed": "Count",
    "NodesWritten": "Count",
    "EdgesWritten": "Count",
    "EdgesCorrected": "Count",
    "FactsEnded": "Count",
    "GraphNodesRead": "Count",
    "GraphEdgesRead": "Count",
    "GraphReadsEmpty": "Count",
    "ExportedBytes": "Count",
    "StatementsImported": "Count",
    "ConflictsFound": "Count",
    "QuotaRejections": "Count",
    "ToolCalls": "Count",
    "ToolErrors": "Count",
    "EventsEmbedded": "Count",
    "NodesEmbedded": "Count",
    "EmbeddingMilliseconds": "Milliseconds",
    "EventsFolded": "Count",
    "FoldMilliseconds": "Milliseconds",
    "EchoesFound": "Count",
    "ChainsFormed": "Count",
    "ChainsMerged": "Count",
    "ChainsRejected": "Count",
    "SnapshotsPublished": "Count",
    "TreesGrown": "Count",
    "TreesFailed": "Count",
    "TreeSummaries": "Count",
    "EventsErased": "Count",
    "PayloadsErased": "Count",
    "ChainsRenewed": "Count",
    "ErasuresCompleted": "Count",
    "VacuumsFailed": "Count",
    "VacuumsGivenUp": "Count",
    "ChainsEvaluated": "Count",
    "ChainsPromoted": "Count",
    "ChainHeat": "None",
    "ExtractionMilliseconds": "Milliseconds",
    "ExtractionFailures": "Count",
    "StatementsDropped": "Count",
    "GraphWriteMilliseconds": "Milliseconds",
    "CommunitiesFound": "Count",
    "BridgesFound": "Count",
    "GraphsRefused": "Count",
    "LabelPropagationMilliseconds": "Milliseconds",
    "BridgeScoreMilliseconds": "Milliseconds",
    "SimilarityCosine": "None",
    "TopicBreaks": "Count",
    "TopicUndecided": "Count",
    "TopicContinuations": "Count",
    "ModelCalls": "Count",
    "ModelFailures": "Count",
    "ModelTokensIn": "Count",
    "ModelTokensOut": "Count",
    "ModelFallbacks": "Count",
    "ModelCostMicroUsd": "Count",
    "HeuristicFailures": "Count",
    "ModelBreakerRejections": "Count",
    "WorkFailures": "Count",
    "ScopesDue": "Count",
    "ScopesStuck": "Count",
    "OldestDueSeconds": "Seconds",
    "OldestUnembeddedSeconds": "Seconds",
    "OldestUnfoldedSeconds": "Seconds",
    "OldestErasureSeconds": "Seconds",
}
"""Every metric and its unit; docs/metrics.md says what each counts."""
PER_FUNCTION_METRICS = frozenset({"ModelCostMicroUsd", "ModelBreakerRejections"})
"""Metrics that are also recorded per function, whichever route or job called a model: an alarm can
add up functions, but cannot search for routes."""

_MAX_VALUES = 100
"""The most values of one metric that EMF accepts in a line."""
_TRACE_ROOT = re.compile(r"(?:^|;)\s*Root=(1-[0-9a-f]{8}-[0-9a-f]{24})\s*(?:;|$)")


def make_emf_fields(
    dimensions: Mapping[str, str], values: Mapping[str, float | Sequence[float]]
) -> dict[str, object]:
    """Metrics as members of a log line, in CloudWatch's embedded metric format (Amazon CloudWatch
    User Guide, "Specification: Embedded metric format"). `_aws` names the members that are metrics
    and those that are dimensions.

    Every combination of dimensions is a metric of its own, so dimensions have few, bounded values:
    no tenant, no user, no id. A metric without a value is left out. (Powertools' provider is not
    used: it reads further dimensions from the environment and prints by itself.)
    """
    metrics = {
        name: list(value)[:_MAX_VALUES] if isinstance(value, Sequence) else value
        for name, value in values.items()
        if value != []
    }
    directives = [_make_emf_directive(dimensions, metrics)]
    per_function = metrics.keys() & PER_FUNCTION_METRICS
    if per_function:
        directives.append(_make_emf_directive(("function",), sorted(per_function)))
    metadata = {"Timestamp": time.time_ns() // 1_000_000, "CloudWatchMetrics": directives}
    return {"_aws": metadata, **dimensions, **metrics}


def downsample_to_quantiles(values: Sequence[float]) -> list[float]:
    """At most as many values as a line accepts, with the same distribution: their quantiles, with
    the least and the greatest value."""
    by_size, last = sorted(values), _MAX_VALUES - 1
    if len(by_size) <= _MAX_VALUES:
        return by_size
    return [by_size[round(index * (len(by_size) - 1) / last)] for index in range(_MAX_VALUES)]


def _make_emf_directive(dimensions: Iterable[str], names: Iterable[str]) -> dict[str, object]:
    metrics = [{"Name": name, "Unit": METRICS[name]} for name in names]
    return {"Namespace": METRIC_NAMESPACE, "Dimensions": [list(dimensions)], "Metrics": metrics}


def ensure_trace_id(header: str | None) -> str:
    """The trace id in an X-Amzn-Trace-Id header, or a new one if there is none. Nothing else that a
    caller writes there is used."""
    match = _TRACE_ROOT.search(header or "")
    return match[1] if match else f"1-{int(time.time()):08x}-{secrets.token_hex(12)}"


@contextmanager
def trace_context(trace: str) -> Generator[None]:
    """Add `trace` to every line that this thread logs in the block; after it, that of the block
    around it."""
    outer = logger.thread_safe_get_current_keys().get("trace")
    logger.thread_safe_append_keys(trace=trace)
    try:
        yield
    finally:
        logger.thread_safe_remove_keys(["trace"])
        if outer is not None:
            logger.thread_safe_append_keys(trace=outer)


def make_trace_header() -> str:
    """This thread's trace as an X-Amzn-Trace-Id header, to pass on; empty outside of a trace."""
    trace = logger.thread_safe_get_current_keys().get("trace")
    return f"Root={trace}" if trace else ""
