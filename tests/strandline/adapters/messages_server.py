"""A server on this machine that plays Anthropic's Messages API by a script."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


class MessagesServer:
    """Answers each request with what the script makes of the conversation, of which a request may
    have the newest messages alone. Its address is `url`, and `requests` are the bodies that it
    got."""

    def __init__(self, answer: Callable[[list[Any]], dict[str, Any]]) -> None:
        self.requests: list[dict[str, Any]] = []
        requests = self.requests
        conversations: dict[str, list[Any]] = {}

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                request: dict[str, Any] = json.loads(self.rfile.read(size))
                requests.append(request)
                before = request.get("thread", {}).get("previous_message_id", "")
                messages = [*conversations.get(before, []), *request["messages"]]
                message: dict[str, Any] = {
                    "id": f"msg_{len(requests)}",
                    "type": "message",
                    "role": "assistant",
                }
                message |= {"model": request["model"], "usage": {}, **answer(messages)}
                said = {"role": "assistant", "content": message["content"]}
                conversations[str(message["id"])] = [*messages, said]
                body = json.dumps(message)
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *args: Any) -> None:
                """Tests say what went wrong."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> "MessagesServer":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
