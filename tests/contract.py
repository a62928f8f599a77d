"""What the document promises, checked on every answer that a test sees."""

import functools
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from jsonschema_rs import Draft202012Validator

from functions.admin import handler as admin
from functions.ingest import handler as ingest
from functions.query import handler as query
from strandline.apidocs import examples, openapi
from strandline.local.proxy_event import PathRouter
from tests.support import Reply

HANDLERS = (ingest, query, admin)


@functools.cache
def document() -> dict[str, Any]:
    """The document of all that is served."""
    routes = {name: route for handler in HANDLERS for name, route in handler.ROUTES.items()}
    return openapi.build_openapi_document(routes, examples.load_examples())


@functools.cache
def operations() -> dict[str, Any]:
    """Every operation of the document, as the routes name it."""
    names = (name for handler in HANDLERS for name in handler.ROUTES)
    name_of = {openapi.to_openapi_path(name): name for name in names}
    return {
        name_of[f"{method.upper()} {path}"]: operation
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    }


def check(method: str, path: str, reply: Reply) -> None:
    """Raises AssertionError for an answer whose status, type, headers or body the document does
    not promise."""
    match = _table().find(path)
    assert match is not None, f"{path} is in no document"
    name = f"{'GET' if method == 'HEAD' else method} {match.resource.path}"
    declared = operations()[name]["responses"].get(str(reply.status))
    assert declared is not None, f"{name} does not say that it answers {reply.status}"
    declared = _resolve(declared)
    headers = {"Content-Type", *declared.get("headers", {})}
    assert set(reply.headers) <= headers, f"{name} {reply.status}: {set(reply.headers) - headers}"
    media = reply.headers["Content-Type"]
    plain = "text/*" if "text/*" in declared["content"] else media
    assert plain in declared["content"], f"{name} {reply.status}: {media}"
    schema = declared["content"][plain].get("schema")
    if schema is not None:
        error = next(_validator(schema["$ref"]).iter_errors(reply.body), None)
        assert error is None, f"{name} {reply.status}: {error}"


def takes(method: str, path: str, parameter: str) -> bool:
    """Whether the operation that serves a path has a parameter in its query string."""
    match = _table().find(path)
    operation: dict[str, Any] = {}
    if match is not None:
        operation = operations().get(f"{method} {match.resource.path}", {})
    parameters: list[dict[str, Any]] = operation.get("parameters", [])
    return any((p["in"], p["name"]) == ("query", parameter) for p in parameters)


def fill_path(path: str, values: Mapping[str, str | int]) -> str:
    """A route's path with these values; of several segments where it takes them."""
    for name, value in values.items():
        segment = quote(str(value))
        path = path.replace(f"{{{name}}}", segment).replace(f"{{{name}+}}", segment)
    return path


def _resolve(node: dict[str, Any]) -> dict[str, Any]:
    """A response, or the component that it refers to."""
    if "$ref" not in node:
        return node
    *_, kind, name = node["$ref"].split("/")
    return document()["components"][kind][name]


@functools.cache
def _validator(reference: str) -> Draft202012Validator:
    schema = {"$ref": reference, "components": document()["components"]}
    return Draft202012Validator(schema, validate_formats=True)


@functools.cache
def _table() -> PathRouter:
    return PathRouter(dict.fromkeys(operations(), _nobody))


def _nobody(event: object, context: object) -> dict[str, Any]:
    raise AssertionError(event, context)
