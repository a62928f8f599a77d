"""Lambda's side of a function: its runtime API on the loopback interface, and a process that sees
what was built and nothing else, started by Lambda's own runtime client.

Shapes after the AWS Lambda Developer Guide, "Using the Lambda runtime API for custom runtimes".
"""

import importlib.util
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self

from layers import build
from strandline.function_specs import FUNCTIONS

ARCH: build.Arch = "x86_64"
_CLIENT = ("awslambdaric", "runtime_client", "simplejson", "snapshot_restore_py")
_START = """
import sys
sys.path[:0] = {path!r}
from awslambdaric.__main__ import main
main(["awslambdaric", {handler!r}])
"""


class Answer(NamedTuple):
    """What a function said to one event."""

    failed: bool
    payload: Any


class _Waiting(NamedTuple):
    done: threading.Event
    answers: list[Answer]


class LambdaFunction:
    """One execution environment of a function of the table; a context manager.

    Its process has the interpreter's standard library, the layers, the asset and the runtime
    client; of this environment it has nothing but what is given.
    """

    def __init__(self, name: str, environment: Mapping[str, str], *, flags: str = "") -> None:
        self.name = name
        self._row = next(fn for fn in FUNCTIONS if fn.name == name)
        self._environment = environment
        self._flags = flags.split()
        self._events: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self._waiting: dict[str, _Waiting] = {}
        self._ready = threading.Event()
        self.init_error: Any = None
        """What it said instead of asking for its first event."""

    @property
    def path(self) -> list[str]:
        """Where it looks for modules: /var/task, and /opt/python of its layers."""
        return self.path_of(*self._row.layers)

    def path_of(self, *layers: str) -> list[str]:
        """Its own module and those of these layers."""
        results = [
            build.layer_directory(ARCH, name) / "python" for name in build.LAYERS if name in layers
        ]
        return [str(build.function_directory(self.name)), *map(str, results)]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._server = _server(self)
            stack.callback(self._server.server_close)
            stack.callback(self._server.shutdown)
            client = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self.log = stack.enter_context(tempfile.TemporaryFile("w+"))
            for module in _CLIENT:
                _link(module, client)
            self.process = self._start(client)
            stack.callback(self._stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, client: Path) -> subprocess.Popen[bytes]:
        """-I and -S: it finds nothing else; -B: it writes no bytecode, as on a read-only disk."""
        start = _START.format(path=[*self.path, str(client)], handler=build.HANDLER)
        interpreter = Path(sys.base_prefix) / "bin" / "python3.13"
        return subprocess.Popen(
            [interpreter, "-I", "-S", "-B", *self._flags, "-c", start],
            cwd=build.function_directory(self.name),
            env=self._variables(),
            stdout=self.log,
            stderr=self.log,
        )

    def _variables(self) -> dict[str, str]:
        host, port = self._server.server_address[:2]
        return {
            "AWS_LAMBDA_RUNTIME_API": f"{host!s}:{port}",
            "AWS_LAMBDA_FUNCTION_NAME": self.name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self._row.memory),
            "AWS_LAMBDA_FUNCTION_VERSION": "1",
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{self.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": "local",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "LAMBDA_TASK_ROOT": str(build.function_directory(self.name)),
            "LAMBDA_RUNTIME_DIR": "/var/runtime",
            "PATH": "/usr/bin:/bin",
            "LANG": "en_US.UTF-8",
            "TZ": ":UTC",
            "_HANDLER": build.HANDLER,
            **self._environment,
        }

    def _stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def wait_until_ready(self, seconds: float = 30) -> None:
        """Return when its init phase is done: it has asked for an event."""
        self._within(self._ready, seconds)

    def invoke(self, event: object, seconds: float = 60) -> Answer:
        """Hand it one event, and give its answer."""
        request, waiting = str(uuid.uuid4()), _Waiting(threading.Event(), [])
        self._waiting[request] = waiting
        self._events.put((request, json.dumps(event).encode()))
        self._within(waiting.done, seconds)
        return waiting.answers[0]

    def _within(self, start_signal: threading.Event, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while not start_signal.wait(0.05):
            has_ended = self.process.poll() is not None
            assert not has_ended, f"{self.name} ended: {self.init_error}\n{self.output()}"
            assert time.monotonic() < ends, f"{self.name} took too long\n{self.output()}"

    def output(self) -> str:
        """What it has written so far: its log lines."""
        return os.pread(self.log.fileno(), 10**7, 0).decode()

    def cpu_seconds(self) -> float:
        """User and system time of its process so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    # What its runtime client asks of Lambda.

    def take(self) -> tuple[str, bytes, float]:
        """The next event, its id, and the time by which it has to be answered."""
        self._ready.set()
        request, event = self._events.get()
        return request, event, time.time() + self._row.timeout

    def told(self, request: str | None, failed: bool, payload: bytes) -> None:
        """An answer; of no request: why it does not start."""
        document = json.loads(payload)
        if request is None:
            self.init_error = document
        else:
            waiting = self._waiting.pop(request)
            waiting.answers.append(Answer(failed, document))
            waiting.done.set()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A process that was ended hangs up: no news."""


def _server(function: LambdaFunction) -> ThreadingHTTPServer:
    class Api(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement
        wbufsize = -1

        def log_message(self, format: str, *args: object) -> None:
            """Not of interest."""

        def do_GET(self) -> None:
            request, event, deadline = function.take()
            arn = f"arn:aws:lambda:us-east-1:123456789012:function:{function.name}:live"
            self._answer(200, event, {
                "Content-Type": "application/json",
                "Lambda-Runtime-Aws-Request-Id": request,
                "Lambda-Runtime-Deadline-Ms": str(int(deadline * 1000)),
                "Lambda-Runtime-Invoked-Function-Arn": arn,
                "Lambda-Runtime-Trace-Id": "Root=1-691f3a2b-5c7d9e0f1a2b3c4d5e6f7081;Sampled=0",
            })  # fmt: skip

        def do_POST(self) -> None:
            payload = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(202, b"{}", {"Content-Type": "application/json"})
            match self.path.split("/")[3:]:
                case ["invocation", request, outcome]:
                    function.told(request, outcome == "error", payload)
                case _:
                    function.told(None, True, payload)

        def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = _Server(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


def _link(module: str, into: Path) -> None:
    """Lend one installed module, and nothing that lies beside it."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, f"{module} is not installed"
    assert spec.origin is not None
    origin = Path(spec.origin)
    lent = origin.parent if origin.name == "__init__.py" else origin
    (into / lent.name).symlink_to(lent)
