"""The OpenAPI 3.1 document: what every route accepts and answers, derived from the routes' types.

Nothing is stated twice: a route's description is its handler's docstring, its schemas are
pydantic's, and its general errors follow from its credential, path, query and body. The functions
are pure: the arguments decide the document and its order.
"""

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from strandline.apidocs.error_responses import (
    ERROR_HEADERS,
    JSON,
    choose_response_name,
    describe_errors,
    find_path_parameters,
    list_error_statuses,
)
from strandline.apidocs.examples import ExampleCall
from strandline.apidocs.json_schemas import build_schemas_and_components
from strandline.apidocs.security import (
    ALL_SCHEMES,
    SECURITY_SCHEMES,
    SecurityAlternatives,
    describe_credential,
    list_security_requirements,
)
from strandline.graph.fields.schemas import FIELD_PATTERN, MAX_FIELD_CHARS
from strandline.http.routes_and_responses import AnswerMediaType, Route
from strandline.log.schemas_fields import CID_PATTERN
from strandline.schemas import TENANT_PATTERN

VERSION = "0.1.0"
_DESCRIPTION = """\
Agents append **events** to a log; **recall** answers questions from the log and cites its events.

- **Credential**: an API key (`X-API-Key`, or `Authorization: Bearer`), a JWT (`Authorization: \
Bearer`, or `X-JWT-Token`) or a client certificate (mutual TLS), as this deployment accepts. \
It determines the tenant.
- **Who sees what**: a read asks on behalf of `participants`, and sees an event if all of them \
took part in it. A credential bound to a user adds that user automatically. An admin's that is \
bound to nobody reads all of its tenant with `?everybody=true`. Where an operator set \
`agents_share` for the tenant, agents beside users do not count.
- **Exactly once**: the same `Idempotency-Key`, or the same (`channel`, `source_event_key`), gives \
the first answer again, with `Idempotent-Replayed`; with another request it is a 409.
- **Pages**: send `next_cursor` back as `cursor`; further pages show the list as it was at \
the first.
- **Errors** have one shape: `{"error": {"code", "message", "details", "request_id", \
"retryable"}}`; `details` names the `field` at fault. A `retryable` request may be sent again \
after `Retry-After` seconds.
- **Times** are RFC 3339 or Unix seconds in, RFC 3339 out.
- **MCP**: the Model Context Protocol at `/mcp` has most of these operations as tools for agents."""
_TAGS = {
    "events": "Append to the log, and read it back.",
    "recall": "Search memory; every answer cites its events.",
    "context": "Memory for a prompt, as one block of text.",
    "query": "Answers of the language model from memory, which are not stored.",
    "chat": "Messages, and replies of the language model from memory.",
    "turns": "Answers that took longer than a request.",
    "topics": "The topic index as a tree, level by level.",
    "references": "Questions to the topic index: from topics down to the events they rest on.",
    "provenance": "The rows derived from an event, and the events that a row is derived from.",
    "graph": "Facts, decisions, entities, events and topics, with edges between them.",
    "scopes": "A scope is one exact set of participants, and its gapless sequence of events.",
    "sonas": "Personas: their names, their memories, and their threads of acts.",
    "memories": "Events and payloads by content: a CID is the hash of what it names.",
    "erasures": "Erase events and everything derived from them, with a receipt.",
    "sessions": "One conversation of a scope, with its short-term memory and its chains.",
    "uploads": "Large payloads, uploaded by the caller.",
    "usage": "The tenant's usage and quotas.",
    "model-calls": "Calls of language models, and their cost.",
    "health": "Whether the service is up, and its state.",
    "admin": "Tenants, keys and certificates, for operators.",
    "docs": "This document, a page to read and try it, and the console.",
}
_ROOT_TAGS = {
    "": "docs",
    "memory": "memories",
    "ipfs": "memories",
    "file": "memories",
    "sona": "sonas",
    "metrics": "health",
    "insert": "events",
    "openapi.json": "docs",
    "console": "docs",
}
_PATH_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "cid": {
        "description": "A CIDv1 with sha2-256, in base32.",
        "schema": {"type": "string", "pattern": CID_PATTERN},
    },
    "node_id": {
        "description": "A node's type and id, as `fact:018f\u2026`.",
        "schema": {
            "type": "string",
            "pattern": "^(fact|dec|ent|evt|topic):[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        },
    },
    "topic_id": {
        "description": "The id of a node that is a topic, as `topic:018f\u2026`.",
        "schema": {
            "type": "string",
            "pattern": "^topic:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        },
    },
    "field": {
        "description": "A field's name.",
        "schema": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_FIELD_CHARS,
            "pattern": FIELD_PATTERN,
        },
    },
    "uuid": {
        "description": "A sona's id.",
        "schema": {"type": "string", "format": "uuid"},
    },
    "key_id": {
        "description": "A key's public id.",
        "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    },
    "job": {
        "description": "A job's id; to start one, its name.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 64},
    },
    "version": {
        "description": "A snapshot's version.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "tenant": {
        "description": "A tenant's name.",
        "schema": {"type": "string", "pattern": TENANT_PATTERN},
    },
    "session_id": {
        "description": "The caller's own name for the session.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 128},
    },
    "file": {"description": "A file of the page.", "schema": {"type": "string"}},
    "release": {"description": "A release of the page's files.", "schema": {"type": "string"}},
    "path": {
        "description": "Names and list positions that lead from link to link, with slashes between "
        "them, as `edges/0/target`.",
        "schema": {"type": "string", "minLength": 1},
    },
}


def build_openapi_document(
    routes: Mapping[str, Route],
    examples: Sequence[ExampleCall] = (),
    security: SecurityAlternatives = ALL_SCHEMES,
) -> dict[str, Any]:
    """The document of these routes, with the first example of each."""
    schemas, components = build_schemas_and_components(routes)
    examples_by_operation = {example.operation: example for example in reversed(examples)}
    paths: dict[str, dict[str, Any]] = {}
    for name, route in routes.items():
        method, _, path = name.partition(" ")
        operation = _describe_operation(name, route, schemas, examples_by_operation.get(name))
        operation["security"] = list_security_requirements(route, security)
        paths.setdefault(to_openapi_path(path), {})[method.lower()] = operation
    operation_tags = {op["tags"][0] for methods in paths.values() for op in methods.values()}
    known_tags = [tag for tag in _TAGS if tag in operation_tags]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Strandline",
            "version": VERSION,
            "summary": "Memory for AI agents, in your own AWS account.",
            "description": _DESCRIPTION,
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": ".", "description": "Where this document was fetched from."}],
        "tags": [
            {"name": tag, "description": _TAGS.get(tag, f"About {tag}.")}
            for tag in [*known_tags, *sorted(operation_tags - set(known_tags))]
        ],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": describe_errors(routes),
            "securitySchemes": {
                name: scheme
                for name, scheme in SECURITY_SCHEMES.items()
                if any(name in alternative for alternative in security)
            },
        },
    }


def to_openapi_path(path: str) -> str:
    """A route's path as OpenAPI writes it, which has no mark for a parameter of several
    segments."""
    return path.replace("+}", "}")


def _describe_operation(
    name: str, route: Route, schemas: Mapping[Any, Any], example: ExampleCall | None
) -> dict[str, Any]:
    text = re.sub(r"\s+", " ", inspect.getdoc(route.handler) or "")
    for placeholder, value in route.placeholders.items():
        text = text.replace(f"{{{placeholder}}}", value)
    summary, _, rest = re.sub(r"(?<=\?) |[.:;] ", "\n", text, count=1).partition("\n")
    operation: dict[str, Any] = {
        "tags": [_choose_tag(name)],
        "summary": summary.rstrip("."),
        "description": " ".join(
            filter(None, [rest[:1].upper() + rest[1:], describe_credential(route)])
        ),
        "operationId": route.handler.__name__,
    }
    parameters = list(_describe_parameters(name, route, schemas, example))
    if parameters:
        operation["parameters"] = parameters
    if route.body:
        content: dict[str, Any] = {"schema": schemas[route.body]}
        if example:
            content["example"] = example.body
        operation["requestBody"] = {"required": True, "content": {JSON: content}}
    operation["responses"] = _describe_responses(name, route, schemas, example)
    return operation


def _choose_tag(name: str) -> str:
    first = name.partition(" ")[2].removeprefix("/api/v1").split("/")[1]
    return _ROOT_TAGS.get(first, first)


def _describe_parameters(
    name: str, route: Route, schemas: Mapping[Any, Any], example: ExampleCall | None
) -> Iterable[dict[str, Any]]:
    for parameter in find_path_parameters(name):
        entry = {
            "name": parameter,
            "in": "path",
            "required": True,
            **_describe_path_parameter(parameter),
        }
        yield _add_example_to_parameter(entry, example and example.path)
    sources = (("query", route.query, "query"), ("header", route.headers, "headers"))
    for location, model, part in sources:
        properties: Mapping[str, Any] = schemas[model]["properties"] if model else {}
        for field_name, schema in properties.items():
            required = field_name in schemas[model].get("required", ())
            plain = _drop_null_from_schema(schema)
            description = plain.pop("description", "").replace("\n", " ")
            entry = {
                "name": field_name,
                "in": location,
                "required": required,
                "description": description,
                "schema": plain,
            }
            yield _add_example_to_parameter(entry, example and getattr(example, part))


def _describe_path_parameter(parameter: str) -> Mapping[str, Any]:
    if parameter in _PATH_PARAMETERS:
        return _PATH_PARAMETERS[parameter]
    if not parameter.endswith("_id"):
        raise ValueError(f"describe in openapi._PATH_PARAMETERS the path's {parameter}")
    subject = parameter.removesuffix("_id").replace("_", " ")
    return {
        "description": f"The id of the {subject}.",
        "schema": {"type": "string", "format": "uuid"},
    }


def _add_example_to_parameter(
    parameter: dict[str, Any], values: Mapping[str, Any] | None
) -> dict[str, Any]:
    name = parameter["name"]
    return {**parameter, "example": values[name]} if values and name in values else parameter


def _drop_null_from_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter is absent or has a value, so drop the null from an optional field's schema."""
    plain = dict(schema)
    kinds = [kind for kind in plain.pop("anyOf", []) if kind != {"type": "null"}]
    if len(kinds) == 1:
        return {**kinds[0], **plain}
    return {**plain, "anyOf": kinds} if kinds else plain


def _describe_responses(
    name: str, route: Route, schemas: Mapping[Any, Any], example: ExampleCall | None
) -> dict[str, Any]:
    responses: dict[int, Any] = {}
    for status, model in route.responses.items():
        if isinstance(model, AnswerMediaType):
            content: dict[str, dict[str, Any]] = {kind: {} for kind in model.content_types}
            description = "As its type says."
        else:
            content = {JSON: {"schema": schemas[model]}}
            description = inspect.getdoc(model) or ""
            if example and example.status == status:
                content[JSON]["example"] = example.answer
        responses[status] = {"description": description.replace("\n", " "), "content": content}
        headers = {
            n: {"description": d, "schema": {"type": "string"}}
            for n, d in route.response_headers.items()
        }
        if status == 503:
            headers = {"Retry-After": ERROR_HEADERS["Retry-After"]}
        if headers:
            responses[status]["headers"] = headers
    for status in sorted(list_error_statuses(name, route) - responses.keys()):
        responses[status] = {"$ref": f"#/components/responses/{choose_response_name(status)}"}
    return {str(status): responses[status] for status in sorted(responses)}
