"""The OpenAPI 3.1 document: what every route takes and may answer, made from the routes' types.

Nothing here is told twice: a route's description is its docstring, its shapes are pydantic's, and
what it may answer besides its own follows from its credential, path, query and body. Pure: what is
given decides the document, in this order.
"""

import inspect
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import (
    GenerateJsonSchema,
    JsonSchemaMode,
    JsonSchemaValue,
    models_json_schema,
)
from pydantic_core import core_schema

from strandline.config_auth import AuthSettings
from strandline.errors import (
    Forbidden,
    Invalid,
    Malformed,
    NotFound,
    QuotaExceeded,
    StrandlineError,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from strandline.http.app import STATUS, Media, Route
from strandline.log.schemas import CID_PATTERN
from strandline.schemas import TENANT_PATTERN, Error

VERSION = "0.1.0"
_HERE = Path(__file__).parent
JSON = "application/json"
_ABOUT = """\
Agents append every **event**; **recall** answers what is known, and cites the events it comes from.

- **Credential**: an API key (`X-API-Key`, or `Authorization: Bearer`), a JWT (`Authorization: \
Bearer`, or `X-JWT-Token`) or a client certificate (mutual TLS), whichever this deployment takes. \
It names the tenant.
- **Who sees what**: a read asks on behalf of `participants`, and sees an event if all of them \
took part in it. A credential bound to a user adds that user by itself.
- **Exactly once**: the same `Idempotency-Key`, or the same (`channel`, `source_event_key`), gives \
the first answer again, with `Idempotent-Replayed`; with another request it is a 409.
- **Pages**: send `next_cursor` back as `cursor`; further pages show the list as it was at \
the first.
- **Errors** have one shape: `{"error": {"code", "message", "details", "request_id", \
"retryable"}}`; `details` names the `field` that is meant. What is `retryable` may be sent again \
after `Retry-After` seconds.
- **Times** are RFC 3339 or Unix seconds in, RFC 3339 out."""
_TAGS = {
    "events": "Append to the log, and read it back.",
    "recall": "Ask, and get back memories that cite their events.",
    "scopes": "A scope is one exact set of participants, and its gapless sequence of events.",
    "memories": "Events and payloads by content: a CID is the hash of what it names.",
    "sessions": "One conversation of a scope, with its short-term memory and its chains.",
    "uploads": "Large payloads, put into the store by the caller.",
    "usage": "What the tenant uses.",
    "model-calls": "What language models were asked, and what it cost.",
    "health": "Is it up, and how is it?",
    "admin": "Tenants, keys and certificates, for operators.",
    "docs": "This document, and a page to read and try it.",
}
_ROOT_TAGS = {
    "": "docs",
    "memory": "memories",
    "ipfs": "memories",
    "file": "memories",
    "metrics": "health",
    "openapi.json": "docs",
}
_PATHS: Mapping[str, Mapping[str, Any]] = {
    "cid": {
        "description": "A CIDv1 with sha2-256, in base32.",
        "schema": {"type": "string", "pattern": CID_PATTERN},
    },
    "key_id": {
        "description": "A key's public id.",
        "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    },
    "job": {
        "description": "A job's id; to start one, its name.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 64},
    },
    "tenant": {
        "description": "A tenant's name.",
        "schema": {"type": "string", "pattern": TENANT_PATTERN},
    },
    "session_id": {
        "description": "The caller's own name of the session.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 128},
    },
    "file": {"description": "A file of the page at `/docs`.", "schema": {"type": "string"}},
}
_SCHEMES: Mapping[str, Mapping[str, str]] = {
    "ApiKey": {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "The whole key, as it was shown when it was made.",
    },
    "Bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key or a JWT, as `Authorization: Bearer`.",
    },
    "Jwt": {
        "type": "apiKey",
        "in": "header",
        "name": "X-JWT-Token",
        "description": "A JWT of the issuer, and for the audience, that the deployment names.",
    },
    "ClientCertificate": {
        "type": "mutualTLS",
        "description": "A certificate whose subject an operator entered, shown in the handshake.",
    },
}
type Schemes = Sequence[tuple[str, ...]]
"""Alternatives: the security schemes that a request meets together."""
EVERY_SCHEME: Schemes = [(name,) for name in _SCHEMES]
_GATEWAY = {
    429: ("TooManyRequests", "More requests than may be served now."),
    500: ("InternalError", "`internal_error`: something failed on our side."),
    502: ("BadGateway", "The function gave no usable answer. From the gateway."),
    504: ("GatewayTimeout", "No answer within 29 seconds. From the gateway; may be tried again."),
}
_HEADERS = {
    "Retry-After": {
        "description": "After so many seconds it may be tried again.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "WWW-Authenticate": {
        "description": "How to authenticate.",
        "schema": {"type": "string"},
    },
}


@dataclass(frozen=True)
class Example:
    """One call that works, and what it answered."""

    operation: str
    """As the routes name it."""
    status: int
    by: Literal["nobody", "member", "admin", "operator"] = "member"
    """Whose key is sent: a user's own, an unbound admin's, the operator's."""
    path: Mapping[str, str] = field(default_factory=dict[str, str])
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None
    answer: Any = None
    """The answer's body where it is JSON."""


def schemes(settings: AuthSettings) -> Schemes:
    """What a request must meet where these ways in are on."""
    ways = [
        ("ApiKey", "Bearer") if settings.key_secret else (),
        ("Jwt", "Bearer") if settings.takes_jwts else (),
        ("ClientCertificate",) if settings.client_certificates else (),
    ]
    on = [way for way in ways if way]
    if not settings.auth_require_all:
        return [(name,) for name in dict.fromkeys(itertools.chain(*on))]
    # One Authorization header carries one word.
    return [every for every in itertools.product(*on) if len(set(every)) == len(every)]


def document(
    routes: Mapping[str, Route],
    examples: Sequence[Example] = (),
    asked: Schemes = EVERY_SCHEME,
) -> dict[str, Any]:
    """The document of these routes; the first example of each is shown."""
    schemas, components = _schemas(routes)
    shown = {example.operation: example for example in reversed(examples)}
    paths: dict[str, dict[str, Any]] = {}
    for name, route in routes.items():
        method, _, path = name.partition(" ")
        operation = _operation(name, route, schemas, shown.get(name))
        operation["security"] = _security(route, asked)
        paths.setdefault(path, {})[method.lower()] = operation
    used = {op["tags"][0] for methods in paths.values() for op in methods.values()}
    known = [tag for tag in _TAGS if tag in used]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Strandline",
            "version": VERSION,
            "summary": "Memory for AI agents, in your own AWS account.",
            "description": _ABOUT,
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "./", "description": "Where this document was fetched from."}],
        "tags": [
            {"name": tag, "description": _TAGS.get(tag, f"About {tag}.")}
            for tag in [*known, *sorted(used - set(known))]
        ],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": _refusals(routes),
            "securitySchemes": {
                name: said for name, said in _SCHEMES.items() if any(name in way for way in asked)
            },
        },
    }


def examples() -> list[Example]:
    """The calls that are shown, in an order in which they work: `examples.json`."""
    return [Example(**entry) for entry in json.loads((_HERE / "examples.json").read_text())]


def refusals(name: str, route: Route) -> frozenset[type[StrandlineError]]:
    """The errors that a route may raise: its own, and what follows from its credential, path, query
    and body."""
    raised: set[type[StrandlineError]] = set(route.errors)
    if route.right is not None:
        raised |= {Unauthorized, Invalid}  # a query parameter that it does not know
    if route.right not in (None, "issued"):
        raised |= {Forbidden, Unavailable, QuotaExceeded}
    parameters = path_parameters(name)
    if parameters:
        raised.add(NotFound)
    if route.query or route.headers or "cid" in parameters:
        raised.add(Invalid)
    takes_none = route.right is None or name.startswith("GET ")
    if route.body or not takes_none:  # of those without a body, a body that says something
        raised |= {Malformed, Invalid, TooLarge}
    shapes = [shape for shape in (route.query, route.body) if shape]
    if any("cursor" in shape.model_fields for shape in shapes):
        raised.add(Malformed)
    return frozenset(raised)


def path_parameters(name: str) -> list[str]:
    """The names of the parameters in a route's path."""
    return re.findall(r"{(\w+)\+?}", name)


def _operation(
    name: str, route: Route, schemas: Mapping[Any, Any], example: Example | None
) -> dict[str, Any]:
    words = re.sub(r"\s+", " ", inspect.getdoc(route.serve) or "")
    summary, _, rest = re.sub(r"(?<=\?) |[.:;] ", "\n", words, count=1).partition("\n")
    made: dict[str, Any] = {
        "tags": [_tag(name)],
        "summary": summary.rstrip("."),
        "description": " ".join(filter(None, [rest[:1].upper() + rest[1:], _needs(route)])),
        "operationId": route.serve.__name__,
    }
    parameters = list(_parameters(name, route, schemas, example))
    if parameters:
        made["parameters"] = parameters
    if route.body:
        content: dict[str, Any] = {"schema": schemas[route.body]}
        if example:
            content["example"] = example.body
        made["requestBody"] = {"required": True, "content": {JSON: content}}
    made["responses"] = _responses(name, route, schemas, example)
    return made


def _tag(name: str) -> str:
    first = name.partition(" ")[2].removeprefix("/api/v1").split("/")[1]
    return _ROOT_TAGS.get(first, first)


def _needs(route: Route) -> str:
    if route.right is None:
        return "Needs no credential."
    if route.right == "issued":
        return "Needs any credential of this deployment, which is not looked up."
    return f"Needs a credential with the right `{route.right}`."


def _security(route: Route, asked: Schemes) -> list[dict[str, list[str]]]:
    if route.right is None:
        return []
    rights = [] if route.right == "issued" else [str(route.right)]
    return [dict.fromkeys(names, rights) for names in asked]


def _parameters(
    name: str, route: Route, schemas: Mapping[Any, Any], example: Example | None
) -> Iterable[dict[str, Any]]:
    for parameter in path_parameters(name):
        made = {"name": parameter, "in": "path", "required": True, **_path_schema(parameter)}
        yield _with_example(made, example and example.path)
    places = (("query", route.query, "query"), ("header", route.headers, "headers"))
    for place, shape, part in places:
        properties: Mapping[str, Any] = schemas[shape]["properties"] if shape else {}
        for field_name, schema in properties.items():
            required = field_name in schemas[shape].get("required", ())
            plain = _not_null(schema)
            words = plain.pop("description", "").replace("\n", " ")
            made = {
                "name": field_name,
                "in": place,
                "required": required,
                "description": words,
                "schema": plain,
            }
            yield _with_example(made, example and getattr(example, part))


def _path_schema(parameter: str) -> Mapping[str, Any]:
    if parameter in _PATHS:
        return _PATHS[parameter]
    if not parameter.endswith("_id"):
        raise ValueError(f"say in openapi._PATHS what the path's {parameter} is")
    what = parameter.removesuffix("_id").replace("_", " ")
    return {
        "description": f"The id of the {what}.",
        "schema": {"type": "string", "format": "uuid"},
    }


def _with_example(made: dict[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    name = made["name"]
    return {**made, "example": given[name]} if given and name in given else made


def _not_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter is absent or has a value: its type without the null of an optional field."""
    plain = dict(schema)
    kinds = [kind for kind in plain.pop("anyOf", []) if kind != {"type": "null"}]
    if len(kinds) == 1:
        return {**kinds[0], **plain}
    return {**plain, "anyOf": kinds} if kinds else plain


def _responses(
    name: str, route: Route, schemas: Mapping[Any, Any], example: Example | None
) -> dict[str, Any]:
    made: dict[int, Any] = {}
    for status, shape in route.answers.items():
        if isinstance(shape, Media):
            content: dict[str, dict[str, Any]] = {shape.type: {}}
            said = "As its type says."
        else:
            content = {JSON: {"schema": schemas[shape]}}
            said = inspect.getdoc(shape) or ""
            if example and example.status == status:
                content[JSON]["example"] = example.answer
        made[status] = {"description": said.replace("\n", " "), "content": content}
        headers = {
            n: {"description": d, "schema": {"type": "string"}} for n, d in route.gives.items()
        }
        if status == 503:
            headers = {"Retry-After": _HEADERS["Retry-After"]}
        if headers:
            made[status]["headers"] = headers
    own = {_status(kind) for kind in refusals(name, route)} | _GATEWAY.keys()
    for status in sorted(own - made.keys()):
        made[status] = {"$ref": f"#/components/responses/{_refusal_name(status)}"}
    return {str(status): made[status] for status in sorted(made)}


def _status(kind: type[StrandlineError]) -> int:
    return next(status for known, status in STATUS.items() if issubclass(kind, known))


def _refusal_name(status: int) -> str:
    by_status = {status: kind.__name__ for kind, status in STATUS.items()}
    return _GATEWAY[status][0] if status in _GATEWAY else by_status[status]


def _refusals(routes: Mapping[str, Route]) -> dict[str, Any]:
    """Every answer that is an error, by its name: its status's own code first, then those that
    routes of theirs raise."""
    raised = {kind for name, route in routes.items() for kind in refusals(name, route)}
    narrower = sorted(raised - STATUS.keys(), key=lambda kind: kind.code)
    said: dict[int, str] = {}
    for kind in (*STATUS, *narrower):
        words = f"`{kind.code}`: {inspect.getdoc(kind)}"
        said[_status(kind)] = " ".join(filter(None, [said.get(_status(kind)), words]))
    said |= {status: words for status, (_, words) in _GATEWAY.items()}
    made: dict[str, Any] = {}
    for status in sorted(said):
        answer: dict[str, Any] = {
            "description": said[status],
            "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
        names = {401: ["WWW-Authenticate"], **{n: ["Retry-After"] for n in (429, 503, 504)}}
        if status in names:
            answer["headers"] = {name: _HEADERS[name] for name in names[status]}
        made[_refusal_name(status)] = answer
    return made


class _Plain(GenerateJsonSchema):
    """Without what says nothing: a title that repeats a field's name, a default that is null."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        made = super().default_schema(schema)
        if made.get("default", ...) is None:
            del made["default"]
        return made


def _schemas(routes: Mapping[str, Route]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """The schema of each type that a route names: its reference, or for a query or headers its
    properties; and the components that all of them refer to."""
    parts = {shape for route in routes.values() for shape in (route.query, route.headers) if shape}
    bodies = {route.body for route in routes.values() if route.body}
    answers = {
        shape
        for route in routes.values()
        for shape in route.answers.values()
        if not isinstance(shape, Media)
    }
    modes: list[tuple[set[type[BaseModel]], JsonSchemaMode]] = [
        (parts | bodies, "validation"),
        (answers | {Error}, "serialization"),
    ]
    wanted: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (shape, mode)
        for shapes, mode in modes
        for shape in sorted(shapes, key=lambda shape: shape.__name__)
    ]
    by_shape, found = models_json_schema(
        wanted, ref_template="#/components/schemas/{model}", schema_generator=_Plain
    )
    components: dict[str, Any] = found["$defs"]
    schemas: dict[Any, Any] = {shape: schema for (shape, _), schema in by_shape.items()}
    for shape in sorted(parts, key=lambda shape: shape.__name__):
        schemas[shape] = components.pop(schemas[shape]["$ref"].rpartition("/")[2])
    return schemas, components
