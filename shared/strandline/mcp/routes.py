"""The HTTP routes of MCP: one endpoint for messages, stateless and with answers in JSON, and the
metadata by which a client finds who issues its tokens (RFC 9728)."""

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, cast
from urllib.parse import urlsplit

from aws_lambda_powertools.utilities.typing import LambdaContext
from pydantic import Field, field_validator

from strandline.auth.principals import Principal
from strandline.config import McpToolset, get_settings
from strandline.errors import (
    Forbidden,
    Invalid,
    Malformed,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from strandline.http.app import STATUS, serve
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.mcp.dispatch import LISTING, McpRequestContext, answer_method
from strandline.mcp.operations import Operations, Perform
from strandline.mcp.protocol import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    MessageId,
    ProtocolError,
    find_message_id,
    is_without_handshake,
    make_error_message,
    make_result_message,
    parse_message,
)
from strandline.mcp.tool_types import ToolContext
from strandline.resources import Resources
from strandline.schemas import ParticipantsQuery, RequestModel

ENDPOINT = "/mcp"
_LISTING_SECONDS = 6.0
"""How long a method of `LISTING` waits for the database: clients give a server ten seconds to say
what it offers, and leave it out of the conversation otherwise."""
METADATA = "/.well-known/oauth-protected-resource/mcp"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_STATUS = {
    **dict.fromkeys((PARSE_ERROR, INVALID_REQUEST), 400),
    **dict.fromkeys((HEADER_MISMATCH, UNSUPPORTED_VERSION), 400),
}
_MODERN_STATUS = {**_STATUS, INVALID_PARAMS: 400, METHOD_NOT_FOUND: 404}
"""The HTTP status of a protocol error; 200 for others."""


class McpQuery(ParticipantsQuery):
    """Query string of the endpoint: the toolsets and participants of a connection, as part of its
    address."""

    toolsets: Annotated[tuple[McpToolset, ...], Field(min_length=1)] = ("memory",)
    """The toolsets of this connection, separated by commas: `memory`, `graph`,
    `personas`, `admin`."""

    @field_validator("toolsets", mode="before")
    @classmethod
    def _split_toolsets_at_commas(cls, value: object) -> object:
        return value.split(",") if isinstance(value, str) else value


class OpaqueMcpMessage(RequestModel):
    """A JSON-RPC message, whose fields `protocol` checks: here it has none."""


def post_message(request: Request, perform: Perform) -> Response:
    """Answer one message of the Model Context Protocol."""
    _refuse_foreign_origin(request)
    is_listing = _find_message_method(request) in LISTING
    principal, is_away = _authenticate_or_last_known(request, is_listing=is_listing)
    query = request.parse_query(McpQuery)
    toolsets = get_settings().mcp_toolsets
    if unavailable := [name for name in query.toolsets if name not in toolsets]:
        raise Invalid(
            f"toolsets: this deployment does not offer {unavailable[0]}; it offers "
            f"{', '.join(toolsets)}",
            field="toolsets",
        )
    operations = Operations(request, perform)
    context = ToolContext(
        operations, principal, query.participants or (), everybody=query.everybody
    )
    toolsets = tuple(dict.fromkeys(query.toolsets))
    if is_away:
        return _answer_message(request, context, toolsets, is_away=True)
    response = _answer_message(request, context, toolsets, is_away=False)
    if operations.performed_count:  # each operation spends the quota itself
        return response
    try:
        request.spend_quota("requests", 1)
    except Unavailable:
        if not is_listing:
            raise
        return _answer_message(request, context, toolsets, is_away=True)
    return response


_READER = Principal("", None, frozenset({"read"}))
"""Who asks what there is before its rights could be looked up."""


def _authenticate_or_last_known(request: Request, *, is_listing: bool) -> tuple[Principal, bool]:
    """The caller, and whether the database is away, so that it is the one last known, or may read.
    Only who asks what there is gets in while it is away. Raises as `Request.authenticate`."""
    if not is_listing:
        return request.authenticate(), False
    request.deadline = min(request.deadline, time.monotonic() + _LISTING_SECONDS)
    try:
        return request.authenticate(), False
    except Unavailable:
        return request.find_last_known_principal() or _READER, True


def _find_message_method(request: Request) -> str | None:
    """The method of a request's message; None if its body is none."""
    try:
        return parse_message(request.parse_json()).method
    except (Malformed, Invalid, TooLarge, ProtocolError):
        return None


def _answer_message(
    request: Request, context: ToolContext, toolsets: Sequence[McpToolset], *, is_away: bool
) -> Response:
    body, modern = None, True
    try:
        try:
            body = request.parse_json()
        except (Malformed, Invalid) as error:
            raise ProtocolError(PARSE_ERROR, str(error)) from None
        message = parse_message(body)
        modern = is_without_handshake(message, request.headers)
        if message.id is None:
            return json_response({}, 202) | {"body": ""}
        result = answer_method(
            message, McpRequestContext(context, toolsets, modern, is_away=is_away)
        )
    except ProtocolError as error:
        status = (_MODERN_STATUS if modern else _STATUS).get(error.code, 200)
        return json_response(make_error_message(error, find_message_id(body)), status)
    if message.method == "tools/call":
        request.metrics |= {"ToolCalls": 1, "ToolErrors": int(result["isError"])}
    return json_response(make_result_message(message, result, modern=modern))


def _refuse_foreign_origin(request: Request) -> None:
    """Raise Forbidden for a page that may not call: of another origin than those in the settings
    and this machine's own. It keeps a page that rebinds its name to this service from calling."""
    origin = request.headers.get("origin")
    allowed = get_settings().cors_origins
    if origin is None or "*" in allowed or origin in allowed:
        return
    try:
        host = urlsplit(origin).hostname
    except ValueError:
        host = None
    if host not in _LOOPBACK:
        raise Forbidden("Pages of this origin may not call. An operator can allow it.")


def get_protected_resource_metadata(request: Request) -> Response:
    """Describe the endpoint as an OAuth 2.0 protected resource (RFC 9728): with JWTs, who issues
    them, and their scopes. What is empty is left out."""
    settings = get_settings()
    scopes = [scope for scope, right in settings.jwt_scope_rights.items() if right != "operator"]
    document: dict[str, object] = {
        "resource": f"{request.base_address}{ENDPOINT}",
        "resource_name": "Strandline",
        "bearer_methods_supported": ["header"],
    }
    if settings.jwt_enabled:
        document["scopes_supported"] = scopes
        if settings.jwt_issuer.startswith("https://"):
            document["authorization_servers"] = [settings.jwt_issuer]
    return json_response(document, 200, {"Cache-Control": "public, max-age=300"})


def refuse_get_and_delete(request: Request) -> Response:
    """There is no stream to open and no session to end. A route, because API Gateway answers an
    unknown method with 404, after which a client looks for another transport."""
    del request
    return json_response({}, 405, {"Allow": "POST"}) | {"body": ""}


def make_mcp_routes(perform: Perform) -> dict[str, Route]:
    """The routes of MCP, whose tools perform operations by `perform`."""
    return {
        f"POST {ENDPOINT}": Route(
            partial(post_message, perform=perform),
            "issued",
            {},
            query=McpQuery,
            body=OpaqueMcpMessage,
        ),
        f"GET {ENDPOINT}": Route(refuse_get_and_delete, None, {}),
        f"DELETE {ENDPOINT}": Route(refuse_get_and_delete, None, {}),
        f"GET {METADATA}": Route(get_protected_resource_metadata, None, {}),
    }


def serve_mcp(
    operations: Mapping[str, Route],
    resources: Resources,
    event: Mapping[str, Any],
    context: LambdaContext,
) -> Response:
    """Serve one event of MCP. `operations` are the routes that tools perform. A refusal for lack of
    a credential names the metadata. Nothing is raised but by a ping."""
    if event.get("ping"):
        return resources.check_version(context.function_name)

    def perform(event: Mapping[str, Any]) -> Response:
        return serve(operations, resources, event, context)

    response = serve(make_mcp_routes(perform), resources, event, context)
    request = Request(resources, event, 0.0)
    if response["statusCode"] == STATUS[Unauthorized]:
        challenge = response["headers"]["WWW-Authenticate"]
        response["headers"]["WWW-Authenticate"] = _add_metadata_to_challenge(challenge, request)
    return _to_json_rpc_error(response, request)


def _to_json_rpc_error(response: Response, request: Request) -> Response:
    """A refusal of the service as a JSON-RPC error, whose message clients show, with the id of the
    request where it has one; `data` is the refusal itself. Any other answer as it is."""
    status: int = response["statusCode"]
    if status < 400 or not response["body"]:
        return response
    refusal: object = json.loads(response["body"]).get("error")
    if not isinstance(refusal, dict) or "request_id" not in refusal:
        return response
    error = cast("dict[str, Any]", refusal)
    code = INTERNAL_ERROR if status >= 500 else INVALID_REQUEST
    body = make_error_message(
        ProtocolError(code, error["message"], error), _find_id_in_body(request)
    )
    return response | {"body": json.dumps(body)}


def _find_id_in_body(request: Request) -> MessageId:
    """The id of a request's message; None if its body is not a message."""
    try:
        return find_message_id(request.parse_json())
    except (Malformed, Invalid, TooLarge):
        return None


def _add_metadata_to_challenge(challenge: str, request: Request) -> str:
    """A challenge that names the metadata, and the scopes of a token."""
    rights = get_settings().jwt_scope_rights
    scopes = " ".join(scope for scope, right in rights.items() if right in ("read", "write"))
    metadata = f'resource_metadata="{request.base_address}{METADATA}", scope="{scopes}"'
    schemes = challenge.split(", ")
    return ", ".join(f"{name} {metadata}" if name == "Bearer" else name for name in schemes)
