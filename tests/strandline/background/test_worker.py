"""The worker, called as SQS calls it: what fails goes back alone."""

import copy
import importlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.aws.work_queue import WorkQueue
from strandline.db.database import Database
from strandline.errors import Unavailable
from strandline.local.aws import LocalAws, make_local_client
from strandline.local.lambda_context import LambdaContext
from strandline.resources import Resources
from tests.strandline.embeddings.fake_embedders import WordEmbedder, fail_texts
from tests.support import EVENTS, Gateway, ScratchDatabase, Tell

ALICE = "user:alice"


@pytest.fixture
def words(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> WordEmbedder:
    """The worker's embedder, in this test."""
    del gateway  # which wired the handlers before
    embedder = WordEmbedder()
    service: Resources = importlib.import_module("functions.worker.handler").resources
    monkeypatch.setitem(service.__dict__, "embedder", embedder)
    return embedder


def batch(*bodies: str) -> dict[str, Any]:
    """The recorded event with these bodies; message ids are m0, m1, ..."""
    (first, *_) = json.loads((EVENTS / "worker.json").read_text())["Records"]
    records = [copy.deepcopy(first) for _ in bodies]
    for n, body in enumerate(bodies):
        records[n] |= {"messageId": f"m{n}", "body": body}
    return {"Records": records}


def work_message(scope: str, tenant: str = "acme") -> str:
    return json.dumps({"tenant": tenant, "scopes": [scope]})


def work(event: dict[str, Any], seconds: float = 120) -> list[str]:
    """The messages that the worker gives back."""
    handler = importlib.import_module("functions.worker.handler").lambda_handler
    answer = handler(event, LambdaContext("worker", seconds))
    assert set(answer) == {"batchItemFailures"}
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def count_unembedded(base: ScratchDatabase) -> int:
    return base.rows(
        "select count(*) from events e left join event_vectors v using (tenant_id, event_id)"
        " where v.event_id is null"
    )[0][0]


def test_worker_processes_recorded_batch(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, words: WordEmbedder
) -> None:
    event = json.loads((EVENTS / "worker.json").read_text())
    assert work(event) == [], "a scope that nobody knows is no failure"
    receipt = tell(gateway.key(), "The buoy is out.")
    for record in event["Records"]:  # the same message twice, as a standard queue may deliver it
        record["body"] = work_message(receipt["scope_id"])
    assert work(event) == []
    assert count_unembedded(scratch_db) == 0
    assert len(words.embedded_texts) == 1
    assert work(event) == []
    assert len(words.embedded_texts) == 1


MALFORMED = [
    "",
    "no JSON",
    "null",
    "7",
    "[]",
    '"text"',
    "{}",
    '{"tenant": "acme"}',
    '{"tenant": "acme", "scopes": 7}',
    '{"tenant": "acme", "scopes": [7]}',
    '{"tenant": "acme", "scopes": ["not an id"]}',
    '{"tenant": "\\u0000", "scopes": ["8f14e45f-ceea-867a-9a36-dedd4bea2543"]}',
    '{"tenant": "\\ud800", "scopes": ["8f14e45f-ceea-867a-9a36-dedd4bea2543"]}',
    "[" * 100_000,
    "9" * 5000,
]


def test_worker_fails_malformed_message_alone(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, words: WordEmbedder
) -> None:
    key = gateway.key()
    for n, body in enumerate(MALFORMED):
        first = work_message(tell(key, f"one {n}", ALICE)["scope_id"])
        last = work_message(tell(key, f"two {n}", ALICE, "agent:helper")["scope_id"])
        assert work(batch(first, body, last)) == ["m1"], body[:40]
        assert count_unembedded(scratch_db) == 0, body[:40]
    assert len(words.embedded_texts) == 2 * len(MALFORMED)


def test_worker_fails_record_without_body_alone(gateway: Gateway, words: WordEmbedder) -> None:
    event = batch("", work_message("8f14e45f-ceea-867a-9a36-dedd4bea2543"))
    del event["Records"][0]["body"]
    assert work(event) == ["m0"]
    assert words.embedded_texts == []


def test_worker_returns_only_scope_without_model(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, words: WordEmbedder
) -> None:
    key = gateway.key()
    bodies = [
        work_message(tell(key, f"of {w}", ALICE, w)["scope_id"]) for w in ("agent:a", "agent:lost")
    ]
    words.before_embed = fail_texts("agent:lost")
    assert work(batch(bodies[1], bodies[0])) == ["m0"]
    query = "select attempts, last_error, due_at > now() from scope_work"
    error = "embedding_unavailable: the endpoint does not answer"
    assert scratch_db.rows(query) == [(1, error, True)]
    assert count_unembedded(scratch_db) == 1


def test_worker_fault_fails_its_message_alone(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, words: WordEmbedder
) -> None:
    """What no error of ours describes is a fault: it may not take nine other messages with it."""
    key = gateway.key()
    bodies = [
        work_message(tell(key, f"of {w}", ALICE, w)["scope_id"]) for w in ("agent:a", "agent:b")
    ]

    def fault(texts: Any) -> None:
        if "agent:a" in texts[0]:
            raise MemoryError

    words.before_embed = fault
    assert work(batch(*bodies)) == ["m0"]
    assert count_unembedded(scratch_db) == 1


def test_worker_empty_batch_does_no_sweep(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, words: WordEmbedder
) -> None:
    tell(gateway.key(), "due", ALICE)
    empty: list[dict[str, Any]] = [{"Records": []}, {}]
    for event in empty:
        assert work(event) == []
    assert (count_unembedded(scratch_db), words.embedded_texts) == (1, [])


def test_worker_returns_all_messages_without_database(
    gateway: Gateway, tell: Tell, words: WordEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = tell(gateway.key(), "The buoy is out.")
    service: Resources = importlib.import_module("functions.worker.handler").resources
    away = Database("postgresql://strandline_app@127.0.0.1:1/none")
    monkeypatch.setitem(service.__dict__, "database", away)
    assert work(batch(work_message(receipt["scope_id"]), work_message(receipt["scope_id"]))) == [
        "m0",
        "m1",
    ]
    assert words.embedded_texts == []


# --- what is away is back within seconds


@pytest.fixture
def send_message(aws: LocalAws) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Sends a message and receives it, as the queue's poller does."""
    with closing(make_local_client("sqs")) as sqs:

        def receive() -> dict[str, Any] | None:
            query = {"QueueUrl": aws.work_queue_url, "MessageSystemAttributeNames": ["All"]}
            (message,) = sqs.receive_message(**query).get("Messages", [None])
            return message

        def send(body: str) -> dict[str, Any]:
            while stray := receive():  # of the appends before
                sqs.delete_message(
                    QueueUrl=aws.work_queue_url, ReceiptHandle=stray["ReceiptHandle"]
                )
            sqs.send_message(QueueUrl=aws.work_queue_url, MessageBody=body)
            message = receive()
            assert message is not None
            event = batch(body)
            event["Records"][0] |= {
                "receiptHandle": message["ReceiptHandle"],
                "attributes": message["Attributes"],
            }
            return event

        yield send


def test_worker_returns_message_soon_without_database(
    gateway: Gateway,
    aws: LocalAws,
    send_message: Callable[[str], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not after the queue's visibility timeout, which is that of the slowest work."""
    del gateway
    service: Resources = importlib.import_module("functions.worker.handler").resources
    event = send_message(work_message("8f14e45f-ceea-867a-9a36-dedd4bea2543"))

    def away(*_: object) -> None:
        raise Unavailable("The database is unreachable or still starting. Try again.")

    with monkeypatch.context() as patch:
        patch.setattr(service.database, "connection", away)
        assert work(event) == ["m0"]
    with closing(make_local_client("sqs")) as sqs:
        query = {"QueueUrl": aws.work_queue_url, "MessageSystemAttributeNames": ["All"]}
        begin = time.monotonic()
        while not (result := sqs.receive_message(**query, WaitTimeSeconds=2).get("Messages")):
            assert time.monotonic() < begin + 10, "still invisible"
        assert result[0]["Attributes"]["ApproximateReceiveCount"] == "2"


def test_worker_return_delay_grows(aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that an outage of some minutes makes no dead letters."""
    queue = WorkQueue(aws.work_queue_url)
    requests: list[int] = []

    def change(**options: Any) -> None:
        requests.append(options["VisibilityTimeout"])

    monkeypatch.setattr(queue, "_sqs", SimpleNamespace(change_message_visibility=change))
    for count in range(6):
        queue.return_soon("receipt", count)
    assert requests == [5, 30, 120]


def test_worker_waits_once_per_batch_for_database(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    del gateway
    service: Resources = importlib.import_module("functions.worker.handler").resources
    tries: list[int] = []

    def away(*_: object) -> None:
        tries.append(1)
        raise Unavailable

    monkeypatch.setattr(service.database, "connection", away)
    bodies = [work_message("8f14e45f-ceea-867a-9a36-dedd4bea2543")] * 10
    assert work(batch(*bodies)) == [f"m{n}" for n in range(10)]
    assert len(tries) == 2, "once for the messages, and once for what is due next"
