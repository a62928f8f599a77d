"""MCP over standard input and output: each line is a message, which the service answers at `/mcp`.
So a tool is the same over both transports, whatever version the client speaks."""

from __future__ import annotations

import json
import os
import sys
import threading
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, cast

import click

from strandline.client.clients import Strandline
from strandline.client.errors import ServiceError, UnavailableError
from strandline.client.request_building import Call, join_participants
from strandline.commands.invocation import Invocation, ReaderArguments, add_reader_options
from strandline.commands.output import print_text
from strandline.mcp.protocol import (
    INTERNAL_ERROR,
    METHOD_HEADER,
    NAME_HEADER,
    NAME_PARAMETERS,
    PARSE_ERROR,
    VERSION_HEADER,
    JsonRpcMessage,
    MessageId,
    ProtocolError,
    encode_header_value,
    find_message_id,
    make_error_message,
    make_result_message,
    parse_message,
)

_THREADS = 8
"""Requests that are answered at once."""
_EXIT_INTERRUPTED = 130
_PROTOCOL_STATUSES = (400, 404)
"""Statuses of answers that are protocol errors."""


class StdioBridge:
    """Passes messages of one client on to a service, and its answers back."""

    def __init__(
        self, client: Strandline, query: Iterable[tuple[str, str]], output: BinaryIO
    ) -> None:
        self._client, self._query, self._output = client, [*query], output
        self._lock = threading.Lock()
        self._pending: dict[MessageId, Future[None]] = {}
        self._cancellations: set[MessageId] = set()
        self._was_away = False

    def answer_lines(self, lines: Iterable[bytes]) -> None:
        """Answer every line until there are no more, then wait for the last answers."""
        pool = ThreadPoolExecutor(_THREADS, "mcp")
        try:
            for line in lines:
                if line.strip():
                    self._receive_line(line, pool)
            pool.shutdown()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise

    def _receive_line(self, line: bytes, pool: ThreadPoolExecutor) -> None:
        try:
            body: object = json.loads(line)
        except (ValueError, RecursionError):
            failure = ProtocolError(PARSE_ERROR, "This line is not JSON.")
            self._write_line(_encode_json(make_error_message(failure, None)))
            return
        if _is_rpc_answer(body):
            return  # to nothing: the service asks its clients for nothing
        try:
            message = parse_message(body)
        except ProtocolError as error:
            self._write_line(_encode_json(make_error_message(error, find_message_id(body))))
            return
        if message.method == "notifications/cancelled":
            self._cancel_request(message.params.get("requestId"))
        elif (
            message.method == "ping" and message.id is not None and message.version_in_meta is None
        ):
            self._write_line(
                _encode_json(make_result_message(message, {}, modern=False))
            )  # behind no slow call
        elif message.id is not None:
            with self._lock:
                self._pending[message.id] = pool.submit(self._forward_and_answer, message, line)

    def _cancel_request(self, id: object) -> None:
        """Do not begin a cancelled request, or withhold its answer: what the service has begun
        cannot be stopped."""
        with self._lock:
            future = (
                self._pending.get(cast("MessageId", id))
                if isinstance(id, str | int | float)
                else None
            )
            if future is None:
                return  # it is answered
            if future.cancel():
                self._pending.pop(cast("MessageId", id))
            else:
                self._cancellations.add(cast("MessageId", id))

    def _forward_and_answer(self, message: JsonRpcMessage, line: bytes) -> None:
        try:
            answer = self._client.perform(self._make_mcp_call(message, line))
            data = _encode_json(
                {**answer, "id": message.id}
            )  # a service that fails may not know the id
        except ServiceError as error:
            self._print_first_unavailability(error)
            details = {"code": error.code, "status": error.status, "retryable": error.retryable}
            failure = ProtocolError(INTERNAL_ERROR, str(error), details)
            data = _encode_json(make_error_message(failure, message.id))
        except Exception as error:  # whatever it was, the client waits for an answer
            failure = ProtocolError(INTERNAL_ERROR, f"strandline mcp failed: {error!r}")
            data = _encode_json(make_error_message(failure, message.id))
        with self._lock:
            self._pending.pop(message.id, None)
            is_cancelled = message.id in self._cancellations
            self._cancellations.discard(message.id)
        if not is_cancelled:
            self._write_line(data)

    def _print_first_unavailability(self, error: ServiceError) -> None:
        """One line for readers of the client's log, the first time that no service answers."""
        if isinstance(error, UnavailableError) and not self._was_away:
            self._was_away = True
            print_text(f"strandline mcp: {error}", err=True)

    def _make_mcp_call(self, message: JsonRpcMessage, line: bytes) -> Call[Any]:
        # One key for all attempts: what a tool stores is stored once.
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        version = message.version_in_meta
        if isinstance(version, str):
            headers |= {
                VERSION_HEADER: encode_header_value(version),
                METHOD_HEADER: encode_header_value(message.method),
            }
            name: object = message.params.get(NAME_PARAMETERS.get(message.method, ""))
            headers |= {NAME_HEADER: encode_header_value(name)} if isinstance(name, str) else {}
        return Call(
            "POST",
            "/mcp",
            _parse_rpc_answer,
            self._query,
            line,
            headers,
            also=_PROTOCOL_STATUSES,
        )

    def _write_line(self, data: bytes) -> None:
        with self._lock:
            self._output.write(data + b"\n")
            self._output.flush()


def _encode_json(answer: Mapping[str, Any]) -> bytes:
    return json.dumps(answer, ensure_ascii=False).encode(errors="backslashreplace")


def _parse_rpc_answer(content: bytes) -> Mapping[str, Any]:
    """Raises ValueError for what is no answer of JSON-RPC."""
    answer: object = json.loads(content)
    if not _is_rpc_answer(answer):
        raise ValueError("not an answer")
    return cast("Mapping[str, Any]", answer)


def _is_rpc_answer(body: object) -> bool:
    if not isinstance(body, dict):
        return False
    message = cast("dict[str, object]", body)
    outcomes = [message[name] for name in ("result", "error") if name in message]
    is_answer = message.get("jsonrpc") == "2.0" and "method" not in message
    return is_answer and len(outcomes) == 1 and isinstance(outcomes[0], dict)


def _answer_all_with_error(reason: str, lines: Iterable[bytes], output: BinaryIO) -> None:
    """Answer every request by an error: a client shows that, and seldom what a process prints."""
    for line in lines:
        try:
            id = find_message_id(json.loads(line))
        except (ValueError, RecursionError):
            continue
        if id is not None:
            output.write(
                _encode_json(make_error_message(ProtocolError(INTERNAL_ERROR, reason), id)) + b"\n"
            )
            output.flush()


@click.command("mcp")
@add_reader_options
@click.option(
    "--toolsets",
    default="memory",
    show_default=True,
    help="What to switch on: memory, graph, personas, admin, separated by commas.",
)
@click.pass_obj
def serve_mcp_over_stdio(
    run: Invocation,
    people: ReaderArguments,
    toolsets: str,
) -> None:
    """Serve MCP over standard input and output, for an agent's configuration.

    The participants are those of every call that names none. The user is by default
    STRANDLINE_USER, unless other participants are named.
    """
    names = join_participants(people["user"], people["agent"], people["participants"])
    if names is None and not people["everybody"]:
        names = join_participants(os.environ.get("STRANDLINE_USER"), None, None)
    names = names or []
    query = [("toolsets", toolsets), *(("participants", name) for name in names)]
    if people["everybody"]:
        query.append(("everybody", "true"))
    try:
        client = run.client
    except click.UsageError as error:
        print_text(f"strandline mcp: {error.message}", err=True)
        _answer_all_with_error(error.message, sys.stdin.buffer, sys.stdout.buffer)
        raise SystemExit(error.exit_code) from None
    try:
        StdioBridge(client, query, sys.stdout.buffer).answer_lines(sys.stdin.buffer)
    except KeyboardInterrupt:
        print_text("strandline: interrupted", err=True)
        os._exit(_EXIT_INTERRUPTED)  # the interpreter would wait for what the threads ask


COMMANDS = (serve_mcp_over_stdio,)
