"""One request without the client's imports: it asks as the client does, and believes no answer that
is broken."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from strandline.client import errors
from strandline.client.quick_requests import needs_full_client, post_quickly
from strandline.client.service_addresses import normalize_service_url, split_service_url
from tests.strandline.client.hostile_server import (
    Answer,
    HostileServer,
    broken_gzip,
    drip,
    endless,
    refusal,
    serve_hostile,
    whole,
)

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with serve_hostile() as server:
        yield server


def ask(url: str, seconds: float = 20.0) -> dict[str, Any]:
    address = split_service_url(normalize_service_url(url))
    return post_quickly(address, "key", "/api/v1/context", {}, connect_seconds=5.0, seconds=seconds)


def send_chunks(*chunks: bytes) -> Callable[[], Answer]:
    return lambda: (200, {"transfer-encoding": "chunked"}, iter(chunks))


def test_quick_request_reads_whole_answers(server: HostileServer) -> None:
    for play in (
        whole(b'{"text": "a"}'),
        whole(b'{"text": "a"}', server="of a proxy"),
        send_chunks(b'7\r\n{"text"\r\n', b'6;x=1\r\n: "a"}\r\n', b"0\r\n\r\n"),
    ):
        server.play = play
        assert ask(server.url) == {"text": "a"}
    server.play = whole(b"{}")
    assert ask(f"{server.url}/base/") == {}


HALF_ANSWERS = {
    "short": whole(b"{}", content_length="100"),
    "short chunk": send_chunks(b"64\r\n{}"),
    "no chunk": send_chunks(b"zz\r\n{}\r\n"),
    "endless": endless,
}


@pytest.mark.parametrize("play", HALF_ANSWERS.values(), ids=HALF_ANSWERS)
def test_quick_request_refuses_half_answers(
    server: HostileServer, play: Callable[[], Answer]
) -> None:
    server.play = play
    with pytest.raises(errors.ConnectionFailedError, match="cannot be reached"):
        ask(server.url)


OTHERS_ANSWERS = {
    "page": whole(b"<html>"),
    "list": whole(b"[]"),
    "gzip": broken_gzip,
    "redirect": whole(b"{}", 302),
}


@pytest.mark.parametrize("play", OTHERS_ANSWERS.values(), ids=OTHERS_ANSWERS)
def test_quick_request_refuses_answers_of_others(
    server: HostileServer, play: Callable[[], Answer]
) -> None:
    server.play = play
    with pytest.raises(errors.UnexpectedAnswerError):
        ask(server.url)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "unauthorized", errors.UnauthorizedError),
        (403, "forbidden", errors.ForbiddenError),
        (429, "throttled", errors.ThrottledError),
        (503, "unavailable", errors.UnavailableError),
    ],
)
def test_quick_request_raises_errors_of_client(
    server: HostileServer, status: int, code: str, kind: type[errors.ServiceError]
) -> None:
    server.play = refusal(status=status, code=code, message="A reason.")
    with pytest.raises(kind, match=r"A reason\."):
        ask(server.url)
    server.play = whole(json.dumps({"message": "of a proxy"}).encode(), status)
    with pytest.raises(errors.ServiceError) as caught:
        ask(server.url)
    assert isinstance(caught.value, kind)


def test_quick_request_ends_in_time(server: HostileServer) -> None:
    server.play = drip
    start = time.monotonic()
    with pytest.raises(errors.ConnectionFailedError):
        ask(server.url, seconds=0.3)
    print(f"after {time.monotonic() - start:.2f} s")
    with pytest.raises(errors.ConnectionFailedError, match="cannot be reached"):
        ask(NOBODY)


def test_quick_request_leaves_proxies_to_client(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert not needs_full_client(split_service_url("https://memory.example"))
    assert needs_full_client(split_service_url("https://ann:secret@memory.example"))
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert needs_full_client(split_service_url("https://memory.example"))
    assert not needs_full_client(split_service_url("http://memory.example"))
    monkeypatch.setenv("all_proxy", "http://proxy:3128")
    assert needs_full_client(split_service_url("http://memory.example"))


@pytest.mark.parametrize(
    ("excepted", "is_excepted"),
    [
        ("127.0.0.1,localhost, memory.example", True), ("Example", True), (".example", True),
        ("*", True), ("", False), (",", False), ("localhost", False), ("ory.example", False),
        ("memory.example.org", False), ("10.0.0.0/8", False),
    ],
)  # fmt: skip
def test_quick_request_knows_what_no_proxy_is_for(
    monkeypatch: pytest.MonkeyPatch, excepted: str, is_excepted: bool
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("NO_PROXY", excepted)
    assert needs_full_client(split_service_url("https://memory.example")) is not is_excepted


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://127.0.0.1:8080", ("http", "127.0.0.1", 8080, "", False)),
        ("https://memory.example/base", ("https", "memory.example", 443, "/base", False)),
        ("http://[::1]:80", ("http", "::1", 80, "", False)),
        ("https://a:b@h:1/", ("https", "h", 1, "", True)),
    ],
)
def test_quick_request_splits_address(url: str, parts: tuple[object, ...]) -> None:
    assert split_service_url(normalize_service_url(url)) == parts
