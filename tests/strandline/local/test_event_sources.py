"""The queue's event source and the schedule, against a real queue."""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from strandline.local import event_sources
from strandline.local.aws import LocalAws, make_local_client
from strandline.local.event_sources import QueuePoller
from strandline.local.lambda_context import Event, LambdaContext


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    with LocalAws(tmp_path_factory.mktemp("aws")) as running:
        yield running


@pytest.fixture(scope="module")
def sqs(aws: LocalAws) -> Iterator[Any]:
    with closing(make_local_client("sqs")) as result:
        yield result


@pytest.fixture(autouse=True)
def short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop waits for the poll under way, which is no test's subject but one."""
    monkeypatch.setattr(event_sources, "POLL_SECONDS", 0)


class Recorder:
    """A handler that keeps its events and answers as told."""

    def __init__(self, answer: Callable[[Event], Any] = lambda event: None) -> None:
        self.events: list[Event] = []
        self.contexts: list[LambdaContext] = []
        self._answer = answer

    def __call__(self, event: Event, context: LambdaContext) -> Any:
        self.events.append(event)
        self.contexts.append(context)
        return self._answer(event)

    def bodies(self) -> list[str]:
        return [record["body"] for event in self.events for record in event["Records"]]


@contextmanager
def polling(aws: LocalAws, handler: Recorder) -> Generator[None]:
    poller = QueuePoller(aws.work_queue_url, handler)
    poller.start()
    yield
    poller.stop()


def until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def messages_left(sqs: Any, url: str) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    queue_attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)
    return sum(int(queue_attributes["Attributes"][name]) for name in names)


def dead(aws: LocalAws, sqs: Any) -> list[str]:
    """The bodies in the dead-letter queue, which is emptied."""
    messages = sqs.receive_message(QueueUrl=aws.work_dead_letter_url, MaxNumberOfMessages=10)
    for message in messages.get("Messages", []):
        handle = message["ReceiptHandle"]
        sqs.delete_message(QueueUrl=aws.work_dead_letter_url, ReceiptHandle=handle)
    return [message["Body"] for message in messages.get("Messages", [])]


def raising(event: Event) -> None:
    raise RuntimeError("the handler's own")


def test_event_source_event_matches_lambda(aws: LocalAws, sqs: Any) -> None:
    attributes = {"kind": {"DataType": "String", "StringValue": "hint"}}
    response = sqs.send_message(
        QueueUrl=aws.work_queue_url, MessageBody='{"a":1}', MessageAttributes=attributes
    )
    handler = Recorder()
    with polling(aws, handler):
        until(lambda: handler.events)
        until(lambda: messages_left(sqs, aws.work_queue_url) == 0)
    record = handler.events[0]["Records"][0]
    assert record["messageId"] == response["MessageId"]
    assert record["body"] == '{"a":1}'
    assert record["md5OfBody"] == response["MD5OfMessageBody"]
    assert record["eventSource"] == "aws:sqs"
    assert record["eventSourceARN"] == "arn:aws:sqs:us-east-1:123456789012:strandline"
    assert record["awsRegion"] == "us-east-1"
    assert record["receiptHandle"]
    assert record["attributes"]["ApproximateReceiveCount"] == "1"
    assert record["attributes"]["SentTimestamp"].isdigit()
    kind = {"dataType": "String", "stringValue": "hint"}
    assert record["messageAttributes"]["kind"].items() >= kind.items()
    assert handler.contexts[0].get_remaining_time_in_millis() > 100_000


def test_event_source_takes_batches_of_ten(aws: LocalAws, sqs: Any) -> None:
    entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(10)]
    sqs.send_message_batch(QueueUrl=aws.work_queue_url, Entries=entries)
    sqs.send_message(QueueUrl=aws.work_queue_url, MessageBody="10")
    handler = Recorder(lambda event: {"batchItemFailures": []})
    with polling(aws, handler):
        until(lambda: messages_left(sqs, aws.work_queue_url) == 0)
    assert sorted(map(int, handler.bodies())) == list(range(11))
    assert [len(event["Records"]) for event in handler.events] == [10, 1]


def test_event_source_returns_only_reported_failures(
    aws: LocalAws, sqs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_sources, "RETRY_SECONDS", 0)

    def refuse_bad_once(event: Event) -> Event:
        failed = [
            {"itemIdentifier": record["messageId"]}
            for record in event["Records"]
            if record["body"] == "bad" and record["attributes"]["ApproximateReceiveCount"] == "1"
        ]
        return {"batchItemFailures": failed}

    handler = Recorder(refuse_bad_once)
    entries = [{"Id": name, "MessageBody": name} for name in ("good", "bad")]
    sqs.send_message_batch(QueueUrl=aws.work_queue_url, Entries=entries)
    with polling(aws, handler):
        until(lambda: messages_left(sqs, aws.work_queue_url) == 0)
    assert sorted(handler.bodies()) == ["bad", "bad", "good"]
    assert dead(aws, sqs) == []


@pytest.mark.parametrize(
    "failure",
    [
        None,
        {"itemIdentifier": ""},
        {"itemIdentifier": None},
        {"itemIdentifer": "misspelt"},
        {"itemIdentifier": "not of this batch"},
    ],
    ids=["raises", "empty", "null", "misspelt", "unknown"],
)
def test_event_source_batch_is_dead_after_three_tries(
    aws: LocalAws, sqs: Any, failure: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_sources, "RETRY_SECONDS", 0)
    handler = Recorder(lambda _: {"batchItemFailures": [failure]}) if failure else Recorder(raising)
    sqs.send_message(QueueUrl=aws.work_queue_url, MessageBody="poison")
    with polling(aws, handler):
        until(lambda: messages_left(sqs, aws.work_dead_letter_url) == 1)
    assert handler.bodies() == ["poison"] * 3
    assert dead(aws, sqs) == ["poison"]
    assert messages_left(sqs, aws.work_queue_url) == 0


def test_event_source_failed_message_waits_before_retry(aws: LocalAws, sqs: Any) -> None:
    times: list[float] = []

    def fail_once(event: Event) -> None:
        times.append(time.monotonic())
        if len(times) == 1:
            raise RuntimeError

    sqs.send_message(QueueUrl=aws.work_queue_url, MessageBody="again")
    with polling(aws, Recorder(fail_once)):
        until(lambda: len(times) == 2)
        until(lambda: messages_left(sqs, aws.work_queue_url) == 0)
    assert 0.8 < times[1] - times[0] < 5


def test_event_source_retries_unavailable_queue(
    aws: LocalAws, sqs: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_sources, "BACKOFF_SECONDS", 0.05)
    handler = Recorder()
    poller = QueuePoller(aws.work_queue_url, handler)
    monkeypatch.setattr(poller, "_url", aws.endpoint + "/123456789012/absent")
    poller.start()
    until(lambda: "does not answer" in caplog.text)
    monkeypatch.setattr(poller, "_url", aws.work_queue_url)
    sqs.send_message(QueueUrl=aws.work_queue_url, MessageBody="still here")
    until(lambda: handler.bodies() == ["still here"])
    poller.stop()
    assert "does not answer" in caplog.text
    assert handler.bodies() == ["still here"]


def test_event_source_stops_within_two_seconds(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_sources, "POLL_SECONDS", 1)
    poller = QueuePoller(aws.work_queue_url, Recorder())
    poller.start()
    time.sleep(0.2)
    running = threading.active_count()
    began = time.monotonic()
    poller.stop()
    assert time.monotonic() - began < 2
    assert threading.active_count() <= running - 1
