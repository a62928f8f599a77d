"""MCP's messages: JSON-RPC 2.0, the protocol's versions, and what each requires of a request.

Versions up to 2025-11-25 begin with `initialize`. The newest has no handshake: every request names
its version in `_meta`, and headers repeat what the body says. Nothing is kept between requests.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

SERVER_VERSION = "0.1.0"
SERVER = {"name": "strandline", "title": "Strandline", "version": SERVER_VERSION}
MODERN = "2026-07-28"
"""The version without a handshake."""
HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Newest first. Batches, which 2025-03-26 alone has, are refused."""
UNTITLED_VERSIONS = ("2025-03-26", "2024-11-05")
"""Those in which a server has a name and a version alone."""
SUPPORTED_VERSIONS = (MODERN, *HANDSHAKE_VERSIONS)

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601
INVALID_PARAMS, INTERNAL_ERROR = -32602, -32603
RESOURCE_NOT_FOUND = -32002
"""Of the versions with a handshake; the newest has INVALID_PARAMS for it."""
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022

_META = "io.modelcontextprotocol/"
VERSION_KEY, _CAPABILITIES_KEY = f"{_META}protocolVersion", f"{_META}clientCapabilities"
_SERVER_KEY = f"{_META}serverInfo"
VERSION_HEADER, METHOD_HEADER, NAME_HEADER = "mcp-protocol-version", "mcp-method", "mcp-name"
NAME_PARAMETERS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that the header Mcp-Name repeats, by method."""
_ENCODED_START, _ENCODED_END = "=?base64?", "?="

MessageId: TypeAlias = str | int | float | None
Object: TypeAlias = Mapping[str, Any]


class ProtocolError(Exception):
    """A message that the protocol does not allow, or a request that cannot be answered."""

    def __init__(self, code: int, message: str, data: Object | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


@dataclass(frozen=True)
class JsonRpcMessage:
    """A request or a notification."""

    id: MessageId
    """None: a notification."""
    method: str
    params: Object

    @property
    def version_in_meta(self) -> object:
        """The version that the request itself names; None with a handshake."""
        return _get_meta(self.params).get(VERSION_KEY)


def find_message_id(value: object) -> MessageId:
    """The id of a body that may be a message, for the answer to it; None if it has no valid id."""
    identifier = cast("Object", value).get("id") if isinstance(value, dict) else None
    if isinstance(identifier, float):
        return identifier if identifier.is_integer() else None  # 1.0, as some languages write 1
    is_id = isinstance(identifier, str | int) and not isinstance(identifier, bool)
    return identifier if is_id else None


def parse_message(value: object) -> JsonRpcMessage:
    """A parsed body as a message. Raises ProtocolError."""
    if isinstance(value, list):
        raise ProtocolError(
            INVALID_REQUEST, "Batches are not served: send each message in a body of its own."
        )
    if not isinstance(value, dict):
        raise ProtocolError(INVALID_REQUEST, "Send one JSON-RPC message, an object, in each body.")
    body = cast("dict[str, Any]", value)
    method: object = body.get("method")
    params: object = body.get("params") if body.get("params") is not None else {}
    if body.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise ProtocolError(INVALID_REQUEST, 'A message has "jsonrpc": "2.0" and a method.')
    if "id" in body and find_message_id(body) is None:
        raise ProtocolError(INVALID_REQUEST, "id: must be a string or a whole number")
    if not isinstance(params, dict):
        raise ProtocolError(INVALID_PARAMS, "params: must be an object")
    return JsonRpcMessage(find_message_id(body), method, cast("Object", params))


def is_without_handshake(message: JsonRpcMessage, headers: Mapping[str, str]) -> bool:
    """Whether the request is of the version without a handshake. `headers` are by lower-case name.
    Raises ProtocolError for a version that is not supported, and for headers that differ from the
    body."""
    header = headers.get(VERSION_HEADER)
    version = message.version_in_meta
    if version is None and header != MODERN and message.method != "server/discover":
        if header is not None and header not in HANDSHAKE_VERSIONS:
            raise _make_version_error(header)
        return False
    if message.id is None:
        return True  # headers of notifications are not defined
    missing = [k for k in (VERSION_KEY, _CAPABILITIES_KEY) if k not in _get_meta(message.params)]
    if missing:
        raise ProtocolError(INVALID_PARAMS, f"params._meta: lacks {' and '.join(missing)}")
    _require_headers_as_body(message, headers)
    if version != MODERN:
        raise _make_version_error(version)
    return True


def _require_headers_as_body(message: JsonRpcMessage, headers: Mapping[str, str]) -> None:
    expected = {VERSION_HEADER: message.version_in_meta, METHOD_HEADER: message.method}
    parameter = NAME_PARAMETERS.get(message.method)
    if parameter is not None and parameter in message.params:
        expected[NAME_HEADER] = message.params[parameter]
    for name, value in expected.items():
        actual = headers.get(name)
        if name == NAME_HEADER and actual is not None:
            actual = _decode_header_value(actual)
        if actual != value:
            raise ProtocolError(HEADER_MISMATCH, f"The header {name} is not what the body says.")


def _make_version_error(version: object) -> ProtocolError:
    return ProtocolError(
        UNSUPPORTED_VERSION,
        "Unsupported protocol version",
        {"supported": list(SUPPORTED_VERSIONS), "requested": str(version)[:40]},
    )


def encode_header_value(value: str) -> str:
    """A value for a header: as it is, or in the protocol's base64 form."""
    plain = value.isascii() and value.isprintable() and value == value.strip()
    if plain and not value.startswith(_ENCODED_START):
        return value
    return f"{_ENCODED_START}{base64.b64encode(value.encode()).decode()}{_ENCODED_END}"


def _decode_header_value(value: str) -> str | None:
    """The value of a header; None where its base64 cannot be read."""
    if not (value.startswith(_ENCODED_START) and value.endswith(_ENCODED_END)):
        return value
    payload = value[len(_ENCODED_START) : -len(_ENCODED_END)]
    try:
        return base64.b64decode(payload, validate=True).decode()
    except (ValueError, binascii.Error):
        return None


def choose_handshake_version(params: Object) -> str:
    """The version of an `initialize`: the one that is asked for, else the newest with a
    handshake."""
    version = params.get("protocolVersion")
    return version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[0]


def make_result_message(message: JsonRpcMessage, result: Object, *, modern: bool) -> dict[str, Any]:
    """The answer to a request."""
    more = {"resultType": "complete", "_meta": {_SERVER_KEY: SERVER}} if modern else {}
    return {"jsonrpc": "2.0", "id": message.id, "result": {**result, **more}}


def make_error_message(error: ProtocolError, id: MessageId) -> dict[str, Any]:
    """An error as the answer to a message; without an id if the message has none."""
    details: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        details["data"] = dict(error.data)
    return {"jsonrpc": "2.0", "id": id, "error": details}


def _get_meta(params: Object) -> Object:
    meta: object = params.get("_meta")
    return cast("Object", meta) if isinstance(meta, dict) else {}
