"""API Gateway on one machine: real sockets, and events as a REST API makes them."""

import asyncio
import base64
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from strandline.local.http_server import GatewayApp, Message
from strandline.local.lambda_context import Event, Handler, LambdaContext, derive_function_name
from strandline.local.ports import HOST, open_listening_socket
from strandline.tenants import waits
from tests.strandline.local.gateway_server import Answer, call, serving_app

MIB = 1024 * 1024


def echo(event: Event, context: LambdaContext) -> Event:
    """Answers with the event and what the context says."""
    message = {
        "event": event,
        "remaining": context.get_remaining_time_in_millis(),
        "function": context.function_name,
        "request_id": context.aws_request_id,
        "arn": context.invoked_function_arn,
        "memory": context.memory_limit_in_mb,
    }
    return {"statusCode": 200, "body": json.dumps(message)}


def make_handler(name: str) -> Handler:
    return lambda event, context: {"statusCode": 200, "body": name}


def answering(answer: object) -> Handler:
    return lambda event, context: answer


def failing(event: Event, context: LambdaContext) -> Event:
    raise TimeoutError("the handler's own")


def slow(event: Event, context: LambdaContext) -> Event:
    time.sleep(1.5)
    return {"statusCode": 200}


MANY = {
    "statusCode": 201,
    "headers": {"X-One": "1", "Set-Cookie": "lost=1", "Content-Length": "999"},
    "multiValueHeaders": {"Set-Cookie": ["a=1", "b=2"]},
    "body": base64.b64encode(b"\xff\x00").decode(),
    "isBase64Encoded": True,
}
ROUTES = {
    "ANY /echo": echo,
    "ANY /echo/{id}": echo,
    "GET /api/v1/events/{id}": echo,
    "POST /api/v1/events": echo,
    "GET /api/v1/events/count": make_handler("count"),
    "GET /files/{proxy+}": echo,
    "GET /files/{id}/meta": make_handler("meta"),
    "GET /": make_handler("root"),
    "GET /many": answering(MANY),
    "GET /empty": answering({"statusCode": 204}),
    "GET /fails": failing,
    "GET /slow": slow,
    "GET /large": answering({"statusCode": 200, "body": "x" * (6 * MIB + 1)}),
    "GET /quotes": answering({"statusCode": 200, "body": '"' * (3 * MIB)}),
    "GET /fits": answering({"statusCode": 200, "body": "x" * (6 * MIB - 100)}),
    "GET /none": answering(None),
    "GET /statusless": answering({"body": "x"}),
    "GET /splitting": answering({"statusCode": 200, "headers": {"X": "a\r\nSet-Cookie: b=1"}}),
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving_app(GatewayApp(ROUTES, seconds=1.0)) as number:
        yield number


def event_of(port: int, method: str, path: str, *more: Any) -> Event:
    answer = call(port, method, path, *more)
    assert answer.status == 200
    return answer.json()["event"]


def assert_error(answer: Answer, status: int, code: str) -> None:
    error = answer.json()["error"]
    assert (answer.status, error["code"]) == (status, code)
    assert set(error) == {"code", "message", "details", "request_id", "retryable"}
    assert error["request_id"] == answer.headers["x-amzn-requestid"]
    assert answer.headers["content-type"] == "application/json"


def test_http_server_event_has_all_of_payload_format_1(port: int) -> None:
    event = event_of(port, "GET", "/api/v1/events/7?a=1&a=2&b=", None, {"X-Api-Key": "k"})
    assert event["resource"] == "/api/v1/events/{id}"
    assert event["path"] == "/api/v1/events/7"
    assert event["httpMethod"] == "GET"
    assert event["pathParameters"] == {"id": "7"}
    assert event["queryStringParameters"] == {"a": "2", "b": ""}
    assert event["multiValueQueryStringParameters"] == {"a": ["1", "2"], "b": [""]}
    assert event["headers"]["X-Api-Key"] == "k"
    assert event["multiValueHeaders"]["X-Api-Key"] == ["k"]
    assert event["headers"]["X-Forwarded-For"] == "127.0.0.1"
    assert event["stageVariables"] is event["body"] is None
    assert event["isBase64Encoded"] is False
    assert "version" not in event


def test_http_server_request_context_is_complete(port: int) -> None:
    context = event_of(port, "GET", "/api/v1/events/7")["requestContext"]
    assert context["stage"] == context["apiId"] == "local"
    assert context["resourcePath"] == "/api/v1/events/{id}"
    assert context["path"] == "/api/v1/events/7", "as on a domain of its own, without a base path"
    assert context["httpMethod"] == "GET"
    assert context["protocol"] == "HTTP/1.1"
    assert context["identity"]["sourceIp"] == "127.0.0.1"
    assert context["identity"]["userAgent"] is None
    assert abs(context["requestTimeEpoch"] / 1000 - time.time()) < 5
    assert time.strptime(context["requestTime"], "%d/%b/%Y:%H:%M:%S +0000")
    assert len(context["accountId"]) == 12
    assert context["requestId"]
    assert context["extendedRequestId"]


def test_http_server_absent_event_parts_are_null(port: int) -> None:
    event = event_of(port, "GET", "/echo")
    assert event["queryStringParameters"] is None
    assert event["multiValueQueryStringParameters"] is None
    assert event["pathParameters"] is None


def test_http_server_lambda_context_counts_down(port: int) -> None:
    answer = call(port, "GET", "/echo")
    message = answer.json()
    assert 0 < message["remaining"] <= 1000
    assert message["function"] == "echo"
    assert message["arn"].endswith(":function:echo")
    assert message["memory"] == 1024
    assert message["request_id"] == message["event"]["requestContext"]["requestId"]
    assert message["request_id"] == answer.headers["x-amzn-requestid"]


def test_http_server_names_handler_by_its_folder() -> None:
    def lambda_handler(event: Event, context: LambdaContext) -> None: ...

    lambda_handler.__module__ = "functions.ingest.handler"
    assert derive_function_name(lambda_handler) == "ingest"
    assert derive_function_name(echo) == "echo"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/v1/events/count", "count"),
        ("/api/v1/events/count/", "count"),
        ("/files/7/meta", "meta"),
        ("/", "root"),
    ],
)
def test_http_server_picks_most_specific_resource(port: int, path: str, name: str) -> None:
    assert call(port, "GET", path).body == name.encode()


def test_http_server_greedy_resource_takes_rest_of_path(port: int) -> None:
    event = event_of(port, "GET", "/files/a/b/c.txt")
    assert event["resource"] == "/files/{proxy+}"
    assert event["pathParameters"] == {"proxy": "a/b/c.txt"}


def test_http_server_keeps_paths_encoded_and_decodes_queries(port: int) -> None:
    event = event_of(port, "GET", "/echo/a%2Fb%20%C3%A9?q=a%2Fb+c%C3%A9")
    assert event["resource"] == "/echo/{id}"
    assert event["path"] == "/echo/a%2Fb%20%C3%A9"
    assert event["pathParameters"] == {"id": "a%2Fb%20%C3%A9"}
    assert event["queryStringParameters"] == {"q": "a/b cé"}
    event = event_of(port, "GET", "/echo/a?q=%FF&q=a%C3%A9%C3")
    assert event["multiValueQueryStringParameters"] == {"q": ["\udcff", "aé\udcc3"]}


def test_http_server_repeated_headers_keep_all_values(port: int) -> None:
    request = b"GET /echo HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nX-A: 2\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    event = json.loads(answer.partition(b"\r\n\r\n")[2])["event"]
    assert event["multiValueHeaders"]["X-A"] == ["1", "2"]
    assert event["headers"]["X-A"] == "2"


@pytest.mark.parametrize("data", ["é{}".encode(), b"\xff\x00"])
def test_http_server_passes_bodies_as_base64(port: int, data: bytes) -> None:
    event = event_of(port, "POST", "/echo", data)
    assert base64.b64decode(event["body"]) == data
    assert event["isBase64Encoded"] is True


def test_http_server_sends_headers_and_binary_body(port: int) -> None:
    answer = call(port, "GET", "/many")
    assert answer.status == 201
    assert answer.body == b"\xff\x00"
    assert answer.headers["x-one"] == "1"
    assert answer.headers.get_all("set-cookie") == ["a=1", "b=2"]
    assert answer.headers.get_all("content-length") == ["2"]


def test_http_server_head_has_length_and_no_body(port: int) -> None:
    answer = call(port, "HEAD", "/echo")
    assert answer.status == 200
    assert answer.body == b""
    assert int(answer.headers["content-length"]) > 100


def test_http_server_no_content_has_no_length(port: int) -> None:
    answer = call(port, "GET", "/empty")
    assert (answer.status, answer.body) == (204, b"")
    assert "content-length" not in answer.headers


def test_http_server_unknown_path_is_404_and_known_is_405(port: int) -> None:
    assert_error(call(port, "GET", "/api/v2/events"), 404, "route_not_found")
    assert_error(call(port, "GET", "/api/v1/events//"), 405, "method_not_allowed")
    refusal = call(port, "DELETE", "/api/v1/events/7")
    assert_error(refusal, 405, "method_not_allowed")
    assert refusal.headers["allow"] == "GET"


@pytest.mark.parametrize("is_chunked", [False, True])
def test_http_server_refuses_body_over_10_mib(port: int, is_chunked: bool) -> None:
    def send(size: int) -> Answer:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
            body: Any = iter([b"x" * MIB] * (size // MIB) + [b"x" * (size % MIB)])
            headers = {} if is_chunked else {"Content-Length": str(size)}
            connection.request("POST", "/echo/7", body, headers, encode_chunked=is_chunked)
            return Answer(connection.getresponse())

    assert_error(send(10 * MIB + 1), 413, "too_large")
    # What is let through comes back in the echo, which is over the limit of an answer.
    assert_error(send(10 * MIB), 500, "internal_error")


def test_http_server_refuses_huge_body_unread(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("length", [b"[5", b"-5", b"+5", b"", b"\xd9\xa5"])
def test_http_server_refuses_invalid_content_length(length: bytes) -> None:
    answer = list[Message]()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        answer.append(message)

    headers = [(b"content-length", length)]
    scope: Message = {"type": "http", "method": "POST", "raw_path": b"/echo/7", "headers": headers}
    asyncio.run(GatewayApp({"POST /echo/{id}": echo})(scope, receive, send))
    start, body = answer
    assert (start["status"], json.loads(body["body"])["error"]["code"]) == (
        400,
        "malformed_request",
    )


def test_http_server_answer_over_6_mib_fails(port: int) -> None:
    assert_error(call(port, "GET", "/large"), 500, "internal_error")
    assert_error(call(port, "GET", "/quotes"), 500, "internal_error")  # in JSON twice as long
    assert len(call(port, "GET", "/fits").body) == 6 * MIB - 100


def test_http_server_raising_handler_is_502(port: int, caplog: pytest.LogCaptureFixture) -> None:
    answer = call(port, "GET", "/fails")
    assert_error(answer, 502, "internal_error")
    assert b"own" not in answer.body
    assert "failed: TimeoutError" in caplog.text
    assert "the handler's own" not in caplog.text, "an error may quote memory"
    assert answer.headers["x-amzn-requestid"] in caplog.text


@pytest.mark.parametrize("path", ["/none", "/statusless", "/splitting"])
def test_http_server_unusable_answer_is_502(port: int, path: str) -> None:
    answer = call(port, "GET", path)
    assert_error(answer, 502, "internal_error")
    assert "set-cookie" not in answer.headers


def test_http_server_slow_handler_is_504(port: int) -> None:
    answer = call(port, "GET", "/slow")
    assert_error(answer, 504, "timeout")
    assert answer.json()["error"]["retryable"] is True


def test_http_server_runs_handlers_in_parallel() -> None:
    both = threading.Barrier(2, timeout=5)

    def meet(event: Event, context: LambdaContext) -> Event:
        both.wait()
        return {"statusCode": 200}

    statuses: list[int] = []
    with serving_app(GatewayApp({"GET /meet": meet}, workers=2)) as port:
        threads = [
            threading.Thread(target=lambda: statuses.append(call(port, "GET", "/meet").status))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert statuses == [200, 200]


def test_http_server_refuses_invalid_route_table() -> None:
    with pytest.raises(ValueError, match="not a route"):
        GatewayApp({"/api": echo})


def test_http_server_waiting_request_frees_its_place() -> None:
    is_asleep, may_end = threading.Event(), threading.Event()

    def wait(event: Event, context: LambdaContext) -> Event:
        with waits.leave_worker.get()():
            is_asleep.set()
            assert may_end.wait(10)
        return {"statusCode": 200}

    routes = {"GET /wait": wait, "GET /now": make_handler("now")}
    with (
        serving_app(GatewayApp(routes, workers=1, waiting=1)) as port,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(call, port, "GET", "/wait")
        assert is_asleep.wait(10)
        assert call(port, "GET", "/now").status == 200, "another one has its place meanwhile"
        may_end.set()
        assert waiting.result().status == 200
        assert call(port, "GET", "/now").status == 200, "the place is free again"


HOSTS = ("localhost", "127.0.0.1", "::1", "memory.example", "*.lan.example")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((name, 200) for name in ("localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:80")),
        *(
            (name, 200)
            for name in ("[::1]:8080", "localhost.", "memory.example:1", "a.lan.example")
        ),
        *((name, 421) for name in ("evil.example", "evil.example:8080", "localhost.evil.example")),
        *((name, 421) for name in ("127.0.0.1.evil.example", "a.b.lan.example", "lan.example", "")),
        ("[::2]", 421),
    ],
)
def test_http_server_refuses_foreign_host(host: str, status: int) -> None:
    with serving_app(GatewayApp(ROUTES, hosts=HOSTS)) as port:
        for path in ("/echo", "/no-such-path"):
            answer = call(port, "GET", path, None, {"Host": host})
            if status == 421:
                assert_error(answer, 421, "foreign_host")
                assert "evil" not in answer.body.decode()
            else:
                assert answer.status == (200 if path == "/echo" else 404)


def test_http_server_answers_without_delay_on_a_kept_connection() -> None:
    """Nagle's algorithm would hold the body back until the headers are acknowledged."""

    async def read_option() -> int:
        accepted: asyncio.Queue[asyncio.BaseTransport] = asyncio.Queue()

        class Accepting(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.put_nowait(transport)

        with closing(open_listening_socket(0)) as listener:
            port: int = listener.getsockname()[1]
            server = await asyncio.get_running_loop().create_server(Accepting, sock=listener)
            async with server:
                _, writer = await asyncio.open_connection(HOST, port)
                transport = await accepted.get()
                connection: socket.socket = transport.get_extra_info("socket")
                option = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                writer.close()
                transport.close()
        return option

    assert asyncio.run(read_option())
