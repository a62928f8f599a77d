"""A provider of language models on loopback, in OpenAI's protocol: says what it is told."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

RIGHT: dict[str, dict[str, Any]] = {
    "continues": {"continues": True},
    "summarise": {"summary": "Mara moved the launch to Friday.", "importance": 0.7},
    "merge": {"summary": "The launch moved twice.", "importance": 0.8},
    "topic": {"topic": "The launch"},
    "entities": {"entities": [{"name": "Mara", "kind": "person"}]},
    "walk": {"numbers": [1]},
    "overview": {"summary": "The launch, and who moved it.", "topic": "The launch"},
    "contradicts": {"contradicts": True},
    "extract": {
        "entities": [{"name": "Mara", "kind": "person"}],
        "facts": [],
        "decisions": [
            {
                "title": "Mara moves the launch",
                "rationale": None,
                "about": ["Mara"],
                "confidence": 0.9,
                "events": [1],
            }
        ],
        "relations": [],
    },
}
ANSWERS: dict[str, dict[str, Any]] = {
    "answer": {"text": "On Friday.", "remembers": True, "citations": [1]},
    "reply": {"text": "On Friday, I think.", "remembers": True, "citations": []},
}
_TASKS = {
    "answer a question from what is recalled": "answer",
    "reply to a message in a conversation": "reply",
    "whether a conversation's topic goes on": "continues",
    "write down a finished part": "summarise",
    "join two summaries": "merge",
    "name the topic": "topic",
    "list who and what is named": "entities",
    "describe a group of related topics": "overview",
    "choose where to look": "walk",
    "whether two statements contradict": "contradicts",
    "what a knowledge graph should hold": "extract",
}


@dataclass(frozen=True)
class Says:
    """One answer. `body` is sent as it is where it is bytes, else as JSON."""

    body: object
    status: int = 200
    hold: Callable[["Handler"], None] = field(default=lambda _: None)
    headers: dict[str, str] = field(default_factory=dict[str, str])


def completion(text: str, tokens: tuple[int, int] | None = (100, 20), **message: Any) -> Says:
    """A chat completion with this text."""
    answer: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text, **message}}],
    }
    if tokens:
        answer["usage"] = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    return Says(answer)


def error(status: int, message: str = "no") -> Says:
    """An error in the protocol's shape."""
    return Says({"error": {"message": message, "type": "invalid_request_error"}}, status)


def task_of(request: dict[str, Any]) -> str:
    """Which task a request is about, by its system prompt."""
    system = request["messages"][0]["content"]
    return next(task for words, task in _TASKS.items() if words in system)


def right(request: dict[str, Any]) -> Says:
    """What a model that is up to it answers."""
    return completion(json.dumps({**RIGHT, **ANSWERS}[task_of(request)]))


class ModelServer(ThreadingHTTPServer):
    """Answers with what lies in `script`, first come first served, and then rightly."""

    request_queue_size = 128
    """Connections that wait to be accepted: more at once than the five of the base are refused."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.daemon_threads = False  # closing it waits for its threads: nothing outlives a test
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.script: list[Says | Callable[[dict[str, Any]], Says]] = []
        self.otherwise: Callable[[dict[str, Any]], Says] = right
        self.let_go = threading.Event()

    def prompt_text(self, place: int = -1) -> str:
        """What a request told the model after its system prompt."""
        return self.requests[place]["messages"][1]["content"]

    def ways(self) -> list[str]:
        """How structure was asked for, request by request."""
        formats = [request.get("response_format", {}) for request in self.requests]
        return [one.get("type", "text") + ("_schema" if "schema" in one else "") for one in formats]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = cast("ModelServer", self.server)
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.requests.append(request)
        server.paths.append(self.path)
        server.headers.append({name.lower(): value for name, value in self.headers.items()})
        statement = server.script.pop(0) if server.script else server.otherwise
        says = statement if isinstance(statement, Says) else statement(request)
        body = says.body if isinstance(says.body, bytes) else json.dumps(says.body).encode()
        with suppress(ConnectionError):  # clients that have waited long enough hang up
            says.hold(self)
            self.send_response(says.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for name, value in says.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def stay_silent(handler: Handler) -> None:
    """Until the test lets go."""
    cast("ModelServer", handler.server).let_go.wait(30)


def drip(handler: Handler) -> None:
    """Start a body and add to it forever: no single wait is long, the whole never ends."""
    handler.send_response(200)
    handler.end_headers()
    while not cast("ModelServer", handler.server).let_go.wait(0.02):
        handler.wfile.write(b" ")


def drip_headers(handler: Handler) -> None:
    """Start a header and add to it forever."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Drip: ")
    while not cast("ModelServer", handler.server).let_go.wait(0.02):
        handler.wfile.write(b"x")


def pour(status: int) -> Callable[[Handler], None]:
    """A body without an end, as fast as it is taken."""

    def hold(handler: Handler) -> None:
        handler.send_response(status)
        handler.end_headers()
        while not cast("ModelServer", handler.server).let_go.is_set():
            handler.wfile.write(b" " * 65536)

    return hold


@contextmanager
def serving(port: int = 0) -> Generator[ModelServer]:
    """A server while the block lasts; at an earlier port it is that one come back."""
    with ModelServer(port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.let_go.set()
            server.shutdown()
            thread.join()
