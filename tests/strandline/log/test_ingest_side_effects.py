"""Around an append: one message when a scope turns dirty, and a log without memory."""

import io
import json
import logging
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError
from moto.sqs.models import sqs_backends

from strandline.aws import client_factory
from strandline.aws.run_requests import JobQueue
from strandline.aws.work_queue import WorkQueue
from strandline.local.aws import LocalAws, make_local_client
from strandline.local.lambda_context import ACCOUNT_ID, REGION
from strandline.log import store as log_store
from strandline.observability import logger
from tests.support import Gateway, NullJobQueue, user_message

PATH, BATCH = "/api/v1/events", "/api/v1/events/batch"
CANARY = "kanarienvogel"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that any logger of this process writes, as our formatter writes it."""
    stream = io.StringIO()
    handlers = [logging.StreamHandler(stream), logging.StreamHandler(stream)]
    handlers[0].setFormatter(logger.registered_formatter)
    ours, everybody = logging.getLogger("strandline"), logging.getLogger()
    level = ours.level
    ours.addHandler(handlers[0])
    everybody.addHandler(handlers[1])
    ours.setLevel(logging.DEBUG)
    yield stream
    ours.setLevel(level)
    ours.removeHandler(handlers[0])
    everybody.removeHandler(handlers[1])


# messages ----------------------------------------------------------------------------------------


def receive_messages(aws: LocalAws) -> list[tuple[str, str]]:
    """The (tenant, scope) pairs that wait in the queue; it is empty afterwards."""
    results: list[tuple[str, str]] = []
    with closing(make_local_client("sqs")) as sqs:
        query: dict[str, Any] = {"QueueUrl": aws.work_queue_url, "MaxNumberOfMessages": 10}
        while got := sqs.receive_message(**query).get("Messages"):
            for message in got:
                body = json.loads(message["Body"])
                results += [(body["tenant"], scope) for scope in body["scopes"]]
                handle = message["ReceiptHandle"]
                sqs.delete_message(QueueUrl=aws.work_queue_url, ReceiptHandle=handle)
    return results


def test_ingest_sends_one_message_per_dirty_scope(gateway: Gateway, aws: LocalAws) -> None:
    receive_messages(aws)
    key = gateway.key("hinted")
    scope = gateway.call("POST", PATH, user_message("one"), key=key).body["scope_id"]
    assert receive_messages(aws) == [("hinted", scope)]
    for text in ("two", "three"):
        gateway.call("POST", PATH, user_message(text), key=key)
    assert (
        gateway.call("POST", PATH, user_message("x", "user:b", role="tool"), key=key).status == 422
    )
    assert receive_messages(aws) == []
    gateway.sweep()
    gateway.call("POST", PATH, user_message("four"), key=key)
    assert receive_messages(aws) == [("hinted", scope)]


def test_ingest_batch_sends_one_message_per_scope(gateway: Gateway, aws: LocalAws) -> None:
    receive_messages(aws)
    key = gateway.key()
    batch = {"events": [user_message("x", f"user:{n % 12}") for n in range(24)]}
    headers = {"Idempotency-Key": "k"}
    reply = gateway.call("POST", BATCH, batch, key=key, headers=headers)
    scopes = {item["event"]["scope_id"] for item in reply.body["results"]}
    messages = receive_messages(aws)
    assert (len(messages), set(messages)) == (12, {("acme", scope) for scope in scopes})
    gateway.call("POST", BATCH, batch, key=key, headers=headers)
    assert receive_messages(aws) == []


@pytest.mark.parametrize("death", ["nobody listens", "nobody answers", "no such queue", "no URL"])
def test_ingest_survives_dead_queue_without_delay(
    gateway: Gateway,
    aws: LocalAws,
    log: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
    death: str,
) -> None:
    from functions.ingest import handler

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = {"nobody listens": 1, "nobody answers": silent.getsockname()[1]}.get(death)
        url = {"no such queue": f"{aws.endpoint}/123456789012/none", "no URL": "nonsense"}.get(
            death
        )
        if port:
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        handler.resources.__dict__["work_queue"] = WorkQueue(url or aws.work_queue_url)
        key = gateway.key()
        started = time.monotonic()
        reply = gateway.call("POST", PATH, user_message(CANARY), key=key)
        assert time.monotonic() - started < 4
    assert reply.status == 201
    lines = log.getvalue()
    assert "work queue message not sent" in lines
    assert CANARY not in lines
    read = gateway.call(
        "GET", f"{PATH}/{reply.body['event_id']}", key=gateway.key(user="user:alice")
    )
    assert read.body["content"] == CANARY


def test_ingest_work_queue_delays_later_message(aws: LocalAws) -> None:
    receive_messages(aws)
    waits = {uuid.uuid4(): seconds for seconds in (0.2, 59.0, 3600.0, *range(1, 20))}
    WorkQueue(aws.work_queue_url).send_later("acme", waits)
    assert receive_messages(aws) == []
    queue: Any = sqs_backends[ACCOUNT_ID][REGION].queues["strandline"]
    messages: list[Any] = queue._messages
    delays = sorted(int(m.delayed_until - m.sent_timestamp) // 1000 for m in messages)
    assert delays == [2, 2, *range(3, 21), 60, 900]
    for message in messages:
        message.delayed_until = 0
    assert sorted(scope for _, scope in receive_messages(aws)) == sorted(
        str(scope) for scope in waits
    )
    WorkQueue("").send_later("acme", waits)
    turn = uuid.uuid4()
    WorkQueue(aws.work_queue_url).send_later("acme", {turn: 0.0})
    assert receive_messages(aws) == [("acme", str(turn))], "a next turn is not waited for"


# logs --------------------------------------------------------------------------------------------


def telling(**more: object) -> dict[str, Any]:
    """An event that holds the canary wherever a caller's words can stand."""
    body = user_message(f"{CANARY} sang", f"user:{CANARY}", f"agent:{CANARY}")
    event: dict[str, object] = {
        "metadata": {CANARY: CANARY},
        "name": f"{CANARY}.txt",
        "session_id": CANARY,
        "channel": CANARY,
        "source_event_key": CANARY,
        "mime_type": f"text/{CANARY}",
    }
    return {**body, **event, **more}


def test_ingest_logs_no_memory_text(
    gateway: Gateway,
    log: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    key = gateway.key(user=f"user:{CANARY}", label=CANARY)
    headers = {"Idempotency-Key": CANARY, "User-Agent": CANARY}
    statuses: list[int] = []

    def send(body: object, path: str = PATH, **more: Any) -> None:
        statuses.append(gateway.call("POST", path, body, key=key, **more).status)

    send(telling())
    send(telling())
    send(telling(content=f"{CANARY} again"))
    send(telling(content=CANARY * 7000, source_event_key=f"{CANARY}2"))
    send(telling(), headers=headers)
    send(telling(role=CANARY))
    send(telling(participants=[CANARY]))
    send(telling(session_id=CANARY, participants=[f"user:{CANARY}"], source_event_key="3"))
    send({"events": [telling(), telling(role=CANARY)]}, BATCH)
    send({"events": [telling(), telling(content=CANARY)], "atomic": True}, BATCH)
    send(None, raw=b'{"' + CANARY.encode() + b'": ')
    send(None, raw=b'{"' + CANARY.encode() + b'": 1, "' + CANARY.encode() + b'": 2}')
    gateway.call("POST", PATH, telling(), key=CANARY)
    query = {"participants": f"user:{CANARY}"}
    params = {"query": CANARY, "participants": [f"user:{CANARY}"]}
    assert gateway.call("POST", "/api/v1/recall", params, key=key).body["hits"]
    gateway.call("GET", "/memories/list", key=key, query=query)
    gateway.call("GET", f"/memory/{CANARY}", key=key, query=query)
    gateway.sweep()
    assert statuses == [201, 201, 409, 201, 422, 422, 422, 422, 200, 422, 400, 400]

    def fail(*_: object) -> Any:
        raise RuntimeError(f"the row holds {CANARY}") from ValueError(CANARY)

    monkeypatch.setattr(log_store, "append_events", fail)
    reply = gateway.call("POST", PATH, telling(source_event_key="4"), key=key)
    assert (reply.status, reply.error["code"]) == (500, "internal_error")
    assert CANARY not in reply.text
    lines = log.getvalue()
    assert "request failed" in lines
    assert "RuntimeError" in lines
    assert lines.count('"request"') >= 15
    output = capfd.readouterr()
    for text in (lines, output.out, output.err):
        assert CANARY not in text.lower()
        assert key not in text


def test_ingest_logs_database_error_without_row(
    gateway: Gateway, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real one: a database error quotes the row that it is about."""
    from strandline.log import event_draft

    def wrong(*_: object, **__: object) -> str:
        return "no-such-origin"

    monkeypatch.setattr(event_draft, "_derive_origin", wrong)
    reply = gateway.call("POST", PATH, telling(), key=gateway.key())
    assert reply.status == 500
    lines = log.getvalue()
    assert "23514" in lines
    assert CANARY not in lines + reply.text


def test_ingest_logs_one_line_per_request(gateway: Gateway, log: io.StringIO) -> None:
    reply = gateway.call("POST", PATH, {}, key=gateway.key())
    lines = [json.loads(line) for line in log.getvalue().splitlines() if line.startswith("{")]
    (line,) = [line for line in lines if line["message"] == "request"]
    assert (line["route"], line["status"]) == (f"POST {PATH}", 422)
    assert line["request_id"] == reply.error["request_id"]
    assert line["DurationMilliseconds"] > 0


class Refusing:
    """SQS that takes nothing so many times; `partly`: it answers, and says so."""

    def __init__(self, sqs: Any, times: int, *, partly: bool) -> None:
        self.sqs, self.times, self.partly = sqs, times, partly

    def send_message_batch(self, **request: Any) -> Any:
        if not self.times:
            return self.sqs.send_message_batch(**request)
        self.times -= 1
        if not self.partly:
            raise ReadTimeoutError(endpoint_url="sqs")
        first, *rest = request["Entries"]
        failed = {"Id": first["Id"], "SenderFault": False, "Code": "InternalError"}
        if rest:
            self.sqs.send_message_batch(**request | {"Entries": rest})
        return {"Failed": [failed]}


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., WorkQueue]:
    """The append's messages, which SQS does not take so many times."""
    from functions.ingest import handler

    def refuse_times(times: int, *, partly: bool = False) -> WorkQueue:
        queue = handler.resources.work_queue
        monkeypatch.setattr(
            queue,
            "_sqs",
            Refusing(client_factory.make_best_effort_sqs_client(), times, partly=partly),
        )
        return queue

    return refuse_times


@pytest.mark.parametrize("partly", [True, False])
def test_ingest_resends_message_not_taken(
    gateway: Gateway,
    aws: LocalAws,
    log: io.StringIO,
    refusing: Callable[..., WorkQueue],
    partly: bool,
) -> None:
    receive_messages(aws)
    refusing(1, partly=partly)
    batch = {"events": [user_message("x", f"user:{n}") for n in range(12)]}
    assert gateway.call("POST", BATCH, batch, key=gateway.key()).status == 200
    messages = receive_messages(aws)
    assert (len(messages), len(set(messages))) == (12, 12)
    assert "work queue message not sent" not in log.getvalue()


@pytest.mark.parametrize("partly", [True, False])
def test_ingest_requests_sweep_when_queue_refuses(
    gateway: Gateway,
    aws: LocalAws,
    log: io.StringIO,
    refusing: Callable[..., WorkQueue],
    monkeypatch: pytest.MonkeyPatch,
    partly: bool,
) -> None:
    from functions.ingest import handler

    requests: list[str] = []

    class Listening(NullJobQueue):
        def request_run(self, job: str, due: datetime, now: datetime) -> bool:
            requests.append(job)
            return due == now

    monkeypatch.setitem(handler.resources.__dict__, "job_queue", Listening())
    receive_messages(aws)
    refusing(2, partly=partly)
    key = gateway.key()
    gateway.call("POST", PATH, user_message("one"), key=key)
    assert requests == ["sweeper"]
    assert "work queue message not sent" in log.getvalue()
    gateway.call("POST", PATH, user_message("two"), key=key)
    assert (requests, receive_messages(aws)) == (["sweeper"], [])


def test_ingest_next_append_sends_unsent_message(
    gateway: Gateway,
    aws: LocalAws,
    refusing: Callable[..., WorkQueue],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also one that has nothing to send itself; and what is owed does not grow without end."""
    from functions.ingest import handler

    monkeypatch.setitem(
        handler.resources.__dict__, "job_queue", JobQueue(aws.job_queue_url + "-gone")
    )
    receive_messages(aws)
    queue = refusing(2)
    key = gateway.key()
    scope = gateway.call("POST", PATH, user_message("one"), key=key).body["scope_id"]
    assert receive_messages(aws) == []
    gateway.call("POST", PATH, user_message("two"), key=key)
    assert receive_messages(aws) == [("acme", scope)]
    gateway.call("POST", PATH, user_message("three"), key=key)
    assert receive_messages(aws) == []
    refusing(100)
    for _ in range(30):
        queue.send("acme", [uuid.uuid4()])
    refusing(0)
    queue.send("acme", [uuid.uuid4()])
    assert len(receive_messages(aws)) == 11
