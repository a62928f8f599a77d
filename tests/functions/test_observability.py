"""What can be seen of the service: one id from request through queue to job, and its metrics."""

import importlib
import io
import json
import logging
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TextIO, cast

import pytest

from strandline.aws import work_queue
from strandline.errors import QuotaExceeded
from strandline.http.app import find_http_status
from strandline.local import event_sources
from strandline.local.aws import LocalAws, make_local_client
from strandline.local.event_sources import QueuePoller
from strandline.local.lambda_context import LambdaContext
from strandline.observability import (
    METRIC_NAMESPACE,
    METRICS,
    downsample_to_quantiles,
    ensure_trace_id,
    logger,
    make_emf_fields,
    trace_context,
)
from strandline.resources import Resources
from tests.strandline.embeddings.fake_embedders import KnownEmbedders, WordEmbedder, fail_texts
from tests.support import EVENTS as EVENT_FILES
from tests.support import Gateway, ScratchDatabase, Tell, user_message

PATH, ALICE = "/api/v1/events", "user:alice"
TRACE = "1-691f3a2b-5c7d9e0f1a2b3c4d5e6f7081"
HEADERS = {"X-Amzn-Trace-Id": f"Self=1-2-3;Root={TRACE};Parent=9e0f1a2b3c4d5e6f;Sampled=0"}


type _Printer = logging.StreamHandler[TextIO]


class Lines:
    """What the functions print, as CloudWatch would get it."""

    def __init__(self, stream: io.StringIO) -> None:
        self._stream = stream

    def all(self) -> list[dict[str, Any]]:
        """Every line so far: each is a JSON object."""
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]

    def of(self, message: str) -> list[dict[str, Any]]:
        """The lines with this message."""
        return [line for line in self.all() if line["message"] == message]


@pytest.fixture
def lines(gateway: Gateway) -> Iterator[Lines]:
    """From here on, the very handler that prints in Lambda prints into our hands."""
    del gateway
    stream, handler = io.StringIO(), cast(_Printer, logger.registered_handler)
    before = handler.setStream(stream)
    yield Lines(stream)
    if before is not None:
        handler.setStream(before)


@pytest.fixture
def words(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> WordEmbedder:
    """The embedder of all who embed, in this test."""
    del gateway  # which wired the handlers before
    embedder = WordEmbedder()
    for name in ("worker", "query", "sweeper"):
        service: Resources = importlib.import_module(f"functions.{name}.handler").resources
        monkeypatch.setitem(service.__dict__, "embedder", embedder)
    return embedder


def through_the_queue(aws: LocalAws, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the event source take what is queued to the worker, until a job was done."""
    monkeypatch.setattr(event_sources, "POLL_SECONDS", 0)
    worker = importlib.import_module("functions.worker.handler").lambda_handler
    poller = QueuePoller(aws.work_queue_url, worker)
    poller.start()
    until = time.monotonic() + 10
    while not lines.of("job") and time.monotonic() < until:
        time.sleep(0.01)
    poller.stop()


@pytest.fixture
def queue(aws: LocalAws) -> LocalAws:
    """The queue, empty of what other tests sent."""
    with closing(make_local_client("sqs")) as sqs:
        while sqs.receive_message(QueueUrl=aws.work_queue_url, MaxNumberOfMessages=10).get(
            "Messages"
        ):
            pass  # who received a message has it to itself for minutes
    return aws


# one id ------------------------------------------------------------------------------------------


def follow(
    gateway: Gateway, queue: LocalAws, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], str]:
    """Append one event under TRACE, let queue and worker do theirs; gives what the lines with this
    id say, in order, and the scope."""
    reply = gateway.call("POST", PATH, user_message("Out."), key=gateway.key(), headers=HEADERS)
    assert reply.status == 201
    through_the_queue(queue, lines, monkeypatch)
    mine = [line for line in lines.all() if line.get("trace") == TRACE]
    return [line["message"] for line in mine], reply.body["scope_id"]


def test_observability_trace_spans_request_queue_and_job(
    gateway: Gateway,
    queue: LocalAws,
    lines: Lines,
    words: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result, scope = follow(gateway, queue, lines, monkeypatch)
    assert result == ["request", "embedding space measured", "events embedded", "job"]
    assert len(words.embedded_texts) == 1
    (embedding,) = lines.of("events embedded")
    assert (embedding["scopes"], embedding["events"]) == ([scope], 1)
    (job,) = lines.of("job")
    assert (job["job"], job["EventsEmbedded"], job["WorkFailures"]) == ("work_message", 1, 0)
    (request,) = lines.of("request")
    assert request["tenant"] == job["tenant"] == "acme", "whose time it was"


def test_observability_trace_breaks_without_message_id(
    gateway: Gateway,
    queue: LocalAws,
    lines: Lines,
    words: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted fault of the test above."""
    monkeypatch.setattr(work_queue, "make_trace_header", str)
    assert follow(gateway, queue, lines, monkeypatch)[0] == ["request"]
    assert len(words.embedded_texts) == 1


def test_observability_lines_name_tenant_and_no_dimension_does(
    gateway: Gateway, lines: Lines
) -> None:
    """A request without a valid credential is nobody's."""
    assert gateway.call("POST", PATH, user_message("Out."), key=gateway.key()).status == 201
    assert gateway.call("POST", PATH, user_message("Out."), key="made up").status == 401
    gateway.run_job("sweeper", "acme")
    tenants = [line.get("tenant") for line in lines.of("request")]
    assert tenants == ["acme", None]
    assert {line["tenant"] for line in lines.of("job")} == {"acme"}
    for line in [*lines.of("request"), *lines.of("job")]:
        directives = line["_aws"]["CloudWatchMetrics"]
        assert "tenant" not in [
            name for d in directives for names in d["Dimensions"] for name in names
        ]


def test_observability_sweep_has_own_trace_and_scope(
    gateway: Gateway, tell: Tell, lines: Lines, words: WordEmbedder
) -> None:
    scope = tell(gateway.key(), "The buoy is out.")["scope_id"]
    gateway.sweep()
    (request,), (embedding,), (job,) = map(lines.of, ("request", "events embedded", "job"))
    assert embedding["scopes"] == [scope]
    assert embedding["trace"] == job["trace"] != request["trace"]
    assert re.fullmatch(r"1-[0-9a-f]{8}-[0-9a-f]{24}", job["trace"])


@pytest.mark.parametrize(
    "header",
    [
        "",
        "a word of the caller's",
        "Root=1-691f3a2b-5c7d9e0f1a2b3c4d5e6f708",
        "Root=1-691f3a2b-5c7d9e0f1a2b3c4d5e6f70811",
        "Root=1-691F3A2B-5C7D9E0F1A2B3C4D5E6F7081",
        "NotRoot=1-691f3a2b-5c7d9e0f1a2b3c4d5e6f7081",
        'Root=1-691f3a2b-5c7d9e0f1a2b3c4d5e6f7081", "level": "ERROR',
        "Root=1-691f3a2b-5c7d9e0f1a2b3c4d5e6f7081\n;Root=x",
    ],
)
def test_observability_trace_header_is_validated(header: str) -> None:
    trace_id = ensure_trace_id(header)
    assert re.fullmatch(r"1-[0-9a-f]{8}-[0-9a-f]{24}", trace_id)
    assert trace_id not in (TRACE, ensure_trace_id(header)) or "\n" in header
    assert ensure_trace_id(f"Root={TRACE}") == ensure_trace_id(HEADERS["X-Amzn-Trace-Id"]) == TRACE


def test_observability_trace_stays_within_request(
    gateway: Gateway, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests in eight threads, each of which fails and so writes two lines."""

    def fault(*_: object, **__: object) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("strandline.log.routes_write.append", fault)
    key = gateway.key()
    ids = [f"1-{n:08x}-{n:024x}" for n in range(40)]

    def send(trace: str) -> tuple[str, str]:
        headers = {"X-Amzn-Trace-Id": f"Root={trace}"}
        reply = gateway.call("POST", PATH, user_message("x"), key=key, headers=headers)
        return reply.error["request_id"], trace

    with ThreadPoolExecutor(8) as pool:
        bodies = set(pool.map(send, ids))
    for message in ("request", "request failed"):
        results = [(line["request_id"], line["trace"]) for line in lines.of(message)]
        assert len(results) == 40
        assert set(results) == bodies


# metrics -----------------------------------------------------------------------------------------


def as_cloudwatch_reads(line: dict[str, Any]) -> dict[str, Any]:
    """The metrics in a line, by CloudWatch's specification of EMF."""
    assert time.time() * 1000 - line["_aws"]["Timestamp"] < 60_000
    results: dict[str, Any] = {}
    for directive in line["_aws"]["CloudWatchMetrics"]:
        assert directive["Namespace"] == METRIC_NAMESPACE
        for names in directive["Dimensions"]:
            assert 1 <= len(names) <= 30
            assert all(isinstance(line[name], str) and line[name] for name in names)
        for metric in directive["Metrics"]:
            value = line[metric["Name"]]
            values = cast("list[Any]", value) if isinstance(value, list) else [value]
            assert 1 <= len(values) <= 100
            assert all(type(number) in (int, float) for number in values)
            assert METRICS[metric["Name"]] == metric["Unit"]
            results[metric["Name"]] = value
    return results


def test_observability_metrics_come_in_request_line(
    gateway: Gateway, tell: Tell, lines: Lines, words: WordEmbedder
) -> None:
    key = gateway.key()
    tell(key, "The buoy is out.")
    gateway.call(
        "POST", f"{PATH}/batch", {"events": [user_message("a"), user_message("b"), {}]}, key=key
    )
    query = {"query": "buoy", "participants": [ALICE]}
    gateway.call("POST", "/api/v1/recall", query, key=key)
    gateway.call("GET", f"/memory/{ALICE}", key=None)
    one, batch, recall, refusal = map(as_cloudwatch_reads, lines.of("request"))
    for metrics in (one, batch, recall, refusal):
        assert metrics["Requests"] == 1
        assert metrics["DurationMilliseconds"] > 0
    assert (one["EventsAppended"], batch["EventsAppended"]) == (1, 2)
    assert (recall["SearchHits"], recall["RecallsDegraded"]) == (3, 0)
    names = [(x["route"], x["status_class"]) for x in lines.of("request")]
    assert names[2:] == [("POST /api/v1/recall", "2xx"), ("GET /memory/{cid}", "4xx")]


def test_observability_replay_counts_no_append(gateway: Gateway, lines: Lines) -> None:
    key, headers = gateway.key(), {"Idempotency-Key": "k"}
    for _ in range(2):
        gateway.call("POST", PATH, user_message("Out."), key=key, headers=headers)
    assert [line["EventsAppended"] for line in lines.of("request")] == [1, 0]


def test_observability_counts_quota_and_degraded_recall(
    gateway: Gateway, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = gateway.key(user=ALICE)
    service: Resources = importlib.import_module("functions.query.handler").resources
    word_embedder = WordEmbedder()
    word_embedder.before_embed = fail_texts()
    monkeypatch.setitem(service.__dict__, "embedder", word_embedder)
    monkeypatch.setitem(service.__dict__, "embedders", KnownEmbedders())
    assert gateway.call("POST", "/api/v1/recall", {"query": "x"}, key=key).status == 200

    def refuse(*_: object, **__: object) -> Any:
        raise QuotaExceeded("Enough.", quota="requests", retry_after=1)

    monkeypatch.setattr("strandline.log.routes_write.append", refuse)
    reply = gateway.call("POST", PATH, user_message("x"), key=key)
    assert reply.status == find_http_status(QuotaExceeded("", quota="", retry_after=1)) == 429
    recall, refusal = map(as_cloudwatch_reads, lines.of("request"))
    assert (recall["RecallsDegraded"], refusal["QuotaRejections"]) == (1, 1)


def test_observability_sweep_counts_due_and_failed(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, lines: Lines, words: WordEmbedder
) -> None:
    key = gateway.key()
    tell(key, "one", ALICE)
    tell(key, "lost", ALICE, "agent:helper")
    scratch_db.rows("update scope_work set due_at = now() - interval '90 seconds' returning 1")
    words.before_embed = fail_texts("lost")
    gateway.sweep()
    (first,) = map(as_cloudwatch_reads, lines.of("job"))
    assert (first["ScopesDue"], first["EventsEmbedded"], first["WorkFailures"]) == (2, 1, 1)
    assert 90 <= first["OldestDueSeconds"] < 120
    assert len(first["EmbeddingMilliseconds"]) == 1
    later = (
        "update scope_work set due_at = due_at + interval '1 hour' where due_at > now() returning 1"
    )
    assert scratch_db.rows(later) == [(1,)]  # what was put off; a slow test would find it due
    gateway.sweep()
    assert len(lines.of("job")) == 1


def test_observability_dimensions_are_bounded(
    gateway: Gateway, tell: Tell, lines: Lines, words: WordEmbedder
) -> None:
    for tenant in ("acme", "globex"):
        key = gateway.key(tenant)
        tell(key, "one", ALICE)
        gateway.call("GET", f"/memory/{tenant}", key=key, query={"participants": ALICE})
    gateway.sweep()
    allowed = {"function", "route", "status_class", "job"}
    for line in [*lines.of("request"), *lines.of("job")]:
        for directive in line["_aws"]["CloudWatchMetrics"]:
            for names in directive["Dimensions"]:
                assert set(names) <= allowed
                text = " ".join(line[name] for name in names)
                assert not re.search("acme|globex|alice", text)


def test_observability_metric_takes_100_values_per_line() -> None:
    line = make_emf_fields({"function": "worker"}, {"EmbeddingMilliseconds": [1.0] * 101})
    assert line["EmbeddingMilliseconds"] == [1.0] * 100


def test_observability_downsampling_keeps_distribution() -> None:
    """A hundred quantiles; CloudWatch's percentiles are those of the thousands."""
    few = [0.3, 0.1, 0.2]
    assert downsample_to_quantiles(few) == sorted(few)
    many = [(n * 7919 % 10_000) / 10_000 for n in range(10_000)]
    quantiles = downsample_to_quantiles(many)
    assert (len(quantiles), quantiles[0], quantiles[-1]) == (100, 0.0, 0.9999)
    assert quantiles == sorted(quantiles)
    for place in (10, 50, 90):
        assert quantiles[place] == pytest.approx(place / 99, abs=0.001)
    rare = [0.5] * 9_000 + [0.9] * 1_000
    assert downsample_to_quantiles(rare).count(0.9) == 10


def test_observability_fold_reports_cosines(gateway: Gateway, tell: Tell, lines: Lines) -> None:
    key = gateway.key()
    for text in ("the harbour crane", "the harbour crane", "sourdough", "oven"):
        tell(key, text, ALICE, session_id="s-1")
    for _ in range(3):  # a message is judged when three later ones are known
        tell(key, "hm", ALICE, session_id="s-1")
    gateway.sweep()
    (job,) = map(as_cloudwatch_reads, lines.of("job"))
    gates = sum(
        job.get(name, 0) for name in ("TopicBreaks", "TopicUndecided", "TopicContinuations")
    )
    cosines = job["SimilarityCosine"]
    assert len(cosines) == gates >= 3
    assert max(cosines) == 1.0
    assert all(-1 <= one <= 1 for one in cosines)


def test_observability_cost_per_line_is_printed(lines: Lines) -> None:
    """Printed, never asserted: a line with its metrics and trace, against one without."""
    dimensions = {"function": "query", "route": "POST /api/v1/recall", "status_class": "2xx"}
    metrics = {"Requests": 1, "DurationMilliseconds": 3.2, "EventsAppended": 1}

    def plain() -> None:
        logger.info("request", extra={"status": 200, **dimensions, **metrics})

    def measuring() -> None:
        with trace_context(ensure_trace_id(HEADERS["X-Amzn-Trace-Id"])):
            logger.info("request", extra={"status": 200, **make_emf_fields(dimensions, metrics)})

    best = {plain: 1.0, measuring: 1.0}
    for _ in range(50):
        for line in best:
            started = time.perf_counter()
            for _ in range(20):
                line()
            best[line] = min(best[line], (time.perf_counter() - started) / 20)
    texts = [f"{line.__name__} {seconds * 1e6:.0f}" for line, seconds in best.items()]
    print(f"\nmicroseconds a line, at best: {', '.join(texts)}")
    assert len(lines.all()) == 2000


# GET /metrics ------------------------------------------------------------------------------------

SAMPLE = re.compile(r"^(strandline_[a-z_]+) (-?[0-9.e+-]+)$", re.MULTILINE)


def scrape(gateway: Gateway, key: str) -> dict[str, float]:
    """The samples of a scrape; each has its help and its type."""
    reply = gateway.call("GET", "/metrics", key=key)
    assert (reply.status, reply.headers["Content-Type"]) == (200, "text/plain; version=0.0.4")
    results = {name: float(value) for name, value in SAMPLE.findall(reply.text)}
    for name in results:
        assert f"# HELP {name} " in reply.text
        kind = "counter" if name.endswith("_total") else "gauge"
        assert f"# TYPE {name} {kind}\n" in reply.text
    assert reply.text.endswith("\n")
    assert len(reply.text.splitlines()) == 3 * len(results)
    return results


def test_observability_counters_are_scraped_by_admin(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell
) -> None:
    admin, key = gateway.key(rights=["admin"]), gateway.key()
    empty = scrape(gateway, admin)
    assert set(empty.values()) == {0.0}
    for n in range(3):
        tell(key, f"one {n}", ALICE)
    tell(key, "two", ALICE, "agent:helper")
    tell(gateway.key("globex"), "not theirs", ALICE)
    scratch_db.rows("update scope_work set due_at = now() - interval '90 seconds' returning 1")
    full = scrape(gateway, admin)
    assert full["strandline_events_total"] == full["strandline_events_not_embedded"] == 4
    assert full["strandline_stored_bytes"] >= len("one 0one 1one 2two")
    assert full["strandline_scopes"] == full["strandline_scopes_due"] == 2
    assert 90 <= full["strandline_oldest_due_age_seconds"] < 120
    gateway.sweep()
    after = scrape(gateway, gateway.key(rights=["admin"], user="user:nobody-in-these-scopes"))
    assert after["strandline_events_total"] == 4
    assert after["strandline_events_not_embedded"] == after["strandline_scopes_due"] == 0


def test_observability_serves_recorded_scrape(gateway: Gateway) -> None:
    event = json.loads((EVENT_FILES / "query_metrics.json").read_text())
    event["headers"]["Authorization"] = f"Bearer {gateway.key(rights=['admin'])}"
    handler = importlib.import_module("functions.query.handler").lambda_handler
    answer = handler(event, LambdaContext("query", 29))
    assert (answer["statusCode"], answer["isBase64Encoded"]) == (200, False)
    assert "strandline_events_total 0\n" in answer["body"]


def test_observability_counters_need_admin(gateway: Gateway) -> None:
    assert gateway.call("GET", "/metrics", key=gateway.key()).status == 403
    assert gateway.call("GET", "/metrics").status == 401


def test_observability_scrape_is_audited_only_if_refused(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    admin, other = gateway.key(rights=["admin"]), gateway.key()
    for _ in range(3):
        scrape(gateway, admin)
    trail = "select outcome from audit_log where route = 'GET /metrics'"
    assert scratch_db.rows(trail) == []
    gateway.call("GET", "/metrics", key=other)
    assert scratch_db.rows(trail) == [("forbidden",)]


# the document ------------------------------------------------------------------------------------


def test_observability_document_lists_every_metric(gateway: Gateway, repository: Path) -> None:
    document = (repository / "docs" / "metrics.md").read_text()
    for name, unit in METRICS.items():
        assert re.search(rf"^\| `{name}` \| {unit} \|", document, re.MULTILINE), name
    for name in scrape(gateway, gateway.key(rights=["admin"])):
        assert f"| `{name}` |" in document, name


def test_observability_docs_page_redirects_trailing_slash(gateway: Gateway) -> None:
    reply = gateway.call("GET", "/docs/")
    assert (reply.status, reply.headers["Location"]) == (308, "../docs")
    assert gateway.call("GET", "/docs").status == 200
