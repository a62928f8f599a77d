"""The OpenAPI definition that API Gateway imports: one operation for each route, with the function
behind it, and the gateway's own responses. The document that callers read is another one, which the
service gives itself (`strandline.apidocs`).

The version is 2.0: there the settings of the endpoint stand at the top of the definition. In 3.0
they belong to a server, whose address is not known yet. No operation has `security`: its
authorization type is NONE, because the functions authenticate, in one place for every kind of
credential."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from strandline.http import gateway_generated_responses

MAX_INTEGRATION_SECONDS = 29
"""How long API Gateway waits for a function."""
BINARY_MEDIA_TYPES = ("*/*",)
"""All: a block in DAG-CBOR is sent as bytes whatever a client accepts, and a request arrives as
base64, exactly a third longer (see local/proxy_event.py)."""
MODERN_TLS: Mapping[str, str] = {
    "x-amazon-apigateway-security-policy": "SecurityPolicy_TLS13_1_2_2021_06",
    # Needed beside such a policy. STRICT would also compare names in the handshake, which callers
    # behind a proxy of their own may not send.
    "x-amazon-apigateway-endpoint-access-mode": "BASIC",
}
"""TLS 1.2 and later, where a regional API takes 1.0 by default (API Gateway Developer Guide,
"Supported security policies")."""
_RESPONSES = {"200": {"description": "The function's response, whatever its status."}}
"""OpenAPI requires one. A proxy integration ignores it."""


def build_gateway_definition(
    name: str,
    description: str,
    routes: Mapping[str, str],
    *,
    origins: Sequence[str],
    endpoint: Mapping[str, Any],
    tls: Mapping[str, str],
    policy: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole definition of an API. An import overwrites what the definition does not contain, so
    `endpoint` (disableExecuteApiEndpoint, vpcEndpointIds), `tls` (MODERN_TLS, or nothing for API
    Gateway's default) and `policy` are part of it. `routes` has
    the URI of the integration by route ("GET /path/{id}"), `origins` the permitted ones of CORS."""
    definition = {
        "swagger": "2.0",
        # Not the release's version: an unchanged API keeps its deployment.
        "info": {"title": name, "description": description, "version": "1"},
        "paths": _build_paths(routes),
        "x-amazon-apigateway-gateway-responses": _build_gateway_responses(origins),
        "x-amazon-apigateway-binary-media-types": [*BINARY_MEDIA_TYPES],
        "x-amazon-apigateway-endpoint-configuration": dict(endpoint),
        **tls,
    }
    return definition | ({"x-amazon-apigateway-policy": policy} if policy else {})


def _build_paths(routes: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    paths: dict[str, dict[str, Any]] = {}
    # Sorted, so that the order of the table changes nothing.
    for route, uri in sorted(routes.items()):
        method, _, path = route.partition(" ")
        paths.setdefault(path, {})[method.lower()] = _build_lambda_operation(path, uri)
    return paths


def _build_lambda_operation(path: str, uri: str) -> dict[str, Any]:
    integration = {
        "type": "aws_proxy",
        "httpMethod": "POST",  # of the call to Lambda
        "uri": uri,
        "timeoutInMillis": MAX_INTEGRATION_SECONDS * 1000,
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "type": "string"}
        for name in re.findall(r"{(\w+)\+?}", path)
    ]
    return {
        **({"parameters": parameters} if parameters else {}),
        "responses": _RESPONSES,
        "x-amazon-apigateway-integration": integration,
    }


def _build_gateway_responses(origins: Sequence[str]) -> dict[str, dict[str, Any]]:
    cors_headers = gateway_generated_responses.make_gateway_cors_headers(origins)
    definitions: dict[str, dict[str, Any]] = {}
    for kind, response in sorted(gateway_generated_responses.RESPONSES.items()):
        body = response.make_json_body(gateway_generated_responses.REQUEST_ID)
        definition: dict[str, Any] = {"responseTemplates": {"application/json": body}}
        if response.status:
            definition["statusCode"] = str(response.status)
        if headers := response.retry_after_header | cors_headers:
            definition["responseParameters"] = {
                f"gatewayresponse.header.{name}": f"'{value}'" for name, value in headers.items()
            }
        definitions[kind] = definition
    return definitions
