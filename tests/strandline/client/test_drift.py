"""The client and the OpenAPI document say the same: every call has a verb, every verb sends what
its call takes, and answers have the fields of the document."""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_type_hints

import httpx2
import pytest
from pydantic import BaseModel

from strandline.client import answers, errors
from strandline.client.admin import Admin, AsyncAdmin
from strandline.client.clients import AsyncStrandline, Strandline
from strandline.client.graph import AsyncGraph, Graph
from strandline.client.memory import MemoryVerbs
from strandline.client.request_building import KEEP
from strandline.client.sessions import AsyncSession, Session
from strandline.client.verb_declarations import Pages, Verb
from strandline.client.writer import Writer
from strandline.client.writer_async import AsyncWriter
from strandline.errors import StrandlineError
from strandline.http import gateway_generated_responses
from strandline.http.app import STATUS
from strandline.http.routes_and_responses import AnswerMediaType
from tests.contract import HANDLERS, document, operations
from tests.strandline.client.scripted_transport import RECEIPT, Script

type AnyVerb = Verb[..., Any] | Pages[..., Any]

PAGES_FOR_PEOPLE = {
    *("GET /", "GET /docs", "GET /docs/{file}"),
    *("GET /console", "GET /console/{release}/{file}"),
}
REPEATS = {"tenant_id", "user_id", "agent_id", "timestamp"}
"""What a body may repeat of the credential, and other names of what the client sends."""
HERE_ONLY = {"user", "agent", "idempotency_key"}
"""Parameters that become others: `participants`, and a header."""


def declared_verbs(owner: type) -> dict[str, AnyVerb]:
    """The verbs of a class, by name."""
    return {
        name: value
        for name, value in inspect.getmembers_static(owner)
        if isinstance(value, Verb | Pages)
    }


VERBS: dict[str, AnyVerb] = {
    f"{owner.__name__}.{name}": verb
    for owner in (Strandline, Session, Graph, Admin)
    for name, verb in declared_verbs(owner).items()
}


def resolve(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema, or the component that it refers to."""
    if "$ref" not in schema:
        return schema
    return document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]


def taken_parameters(operation: Mapping[str, Any]) -> dict[str, bool]:
    """What an operation takes in path, query and body, and whether it must be there."""
    fields = {
        p["name"]: p.get("required", False)
        for p in operation.get("parameters", [])
        if p["in"] != "header"
    }
    if "requestBody" in operation:
        body = resolve(operation["requestBody"]["content"]["application/json"]["schema"])
        required = body.get("required", [])
        fields |= {name: name in required for name in body.get("properties", {})}
    return {name: must for name, must in fields.items() if must or name not in REPEATS}


def sent_parameters(verb: AnyVerb) -> dict[str, bool]:
    """What a verb can send, and whether it always does."""
    operation = verb.declaration.operation
    parameters = verb.declaration.parameter_defaults
    here_only = HERE_ONLY if "participants" in parameters else {"idempotency_key"}
    fields = {
        operation.names.get(name, name): default is not None and default is not KEEP
        for name, default in parameters.items()
        if name not in here_only
    }
    fields |= dict.fromkeys(operation.constants, True)
    if operation.constants.get("format") == "json":
        fields["budget"] = False  # which limits a text
    if "{session_id}" in operation.name:
        fields |= {"session_id": True, "scope_id": True}
    return fields


def differences(verb: AnyVerb, operation: Mapping[str, Any]) -> list[str]:
    """What a verb and its operation do not agree on."""
    target, arguments = taken_parameters(operation), sent_parameters(verb)
    texts = [f"cannot send {name}" for name in sorted(target.keys() - arguments.keys())]
    texts += [f"sends {name}" for name in sorted(arguments.keys() - target.keys())]
    joins = {"participants"}  # user, agent or participants: one of the three
    texts += [
        f"may leave out {name}"
        for name, must in target.items()
        if must and not arguments.get(name, True) and name not in joins
    ]
    keyed = any(p["name"] == "Idempotency-Key" for p in operation.get("parameters", []))
    keyed = keyed and not verb.declaration.operation.constants.get(
        "dry_run"
    )  # which stores nothing
    has_key = "idempotency_key" in verb.declaration.parameter_defaults
    if keyed != has_key and verb is not declared_verbs(Strandline)["post_batch"]:
        texts.append("disagrees about the idempotency key")
    return texts


def test_client_has_one_verb_per_openapi_operation() -> None:
    reached = {verb.declaration.operation.name for verb in VERBS.values()}
    assert reached == operations().keys() - PAGES_FOR_PEOPLE


def test_client_sync_and_async_have_same_verbs() -> None:
    for one, other in (
        (Strandline, AsyncStrandline),
        (Session, AsyncSession),
        (Graph, AsyncGraph),
        (Admin, AsyncAdmin),
    ):
        assert declared_verbs(one) == declared_verbs(other)

        def public(owner: type) -> set[str]:
            return {name for name in dir(owner) if not name.startswith("_")}

        assert public(one) == public(other)


@pytest.mark.parametrize("name", VERBS)
def test_client_verb_sends_parameters_of_operation(name: str) -> None:
    verb = VERBS[name]
    assert differences(verb, operations()[verb.declaration.operation.name]) == []


def test_client_acts_takes_parameters_of_one_request() -> None:
    """`acts` asks again where the service lets no more requests wait."""
    one_request = VERBS["Strandline._fetch_acts_page"].declaration.parameter_defaults
    acts: Any = Strandline.acts
    assert inspect.signature(acts).parameters.keys() >= one_request.keys()
    assert "everybody" in one_request


def test_client_missing_parameter_is_noticed() -> None:
    """Planted: a body with another field, one that must be there, and a key that is not taken."""
    verb = VERBS["Strandline.recall"]
    operation = operations()[verb.declaration.operation.name]
    query = {"name": "colour", "in": "query", "required": True}
    more = {**operation, "parameters": [*operation.get("parameters", []), query]}
    assert differences(verb, more) == ["cannot send colour"]
    key = {"name": "Idempotency-Key", "in": "header"}
    new_operation = {**operation, "parameters": [*operation.get("parameters", []), key]}
    assert differences(verb, new_operation) == ["disagrees about the idempotency key"]
    del new_operation["requestBody"]
    assert "sends query" in differences(verb, new_operation)


def answer_types(verb: AnyVerb) -> set[Any]:
    """The types that a verb's answers are read as."""
    if isinstance(verb, Pages):
        return {getattr(answers, verb.page_type)}
    answer = verb.declaration.answer_type
    return set(get_args(answer)) if get_args(answer) and answer is not dict else {answer}


@pytest.mark.parametrize("name", VERBS)
def test_client_answer_type_equals_route_response(name: str) -> None:
    verb = VERBS[name]
    routes = {n: route for handler in HANDLERS for n, route in handler.ROUTES.items()}
    promised = set(routes[verb.declaration.operation.name].responses.values())
    media = {shape.type for shape in promised if isinstance(shape, AnswerMediaType)}
    if media:
        is_binary = any(name.startswith("application/vnd.ipld.") for name in media)
        kind = bytes if is_binary else str
        kind = dict[str, Any] if media == {"application/json"} else kind
        assert verb.declaration.answer_type == kind
    elif verb.declaration.operation.constants and len(promised) > 1:  # one of two statuses
        assert answer_types(verb) < promised
    elif verb.declaration.operation.constants:  # one of two formats
        (both,) = promised
        assert isinstance(both, type)
        union = both.model_fields["root"].annotation  # type: ignore[union-attr]
        assert answer_types(verb) < set(get_args(union))
    else:
        assert answer_types(verb) == promised


@pytest.mark.parametrize("name", [name for name, verb in VERBS.items() if isinstance(verb, Pages)])
def test_client_list_item_type_equals_page_member(name: str) -> None:
    verb = VERBS[name]
    assert isinstance(verb, Pages)
    page = getattr(answers, verb.page_type)
    assert get_type_hints(page)[verb.member] == list[verb.declaration.answer_type]
    assert "next_cursor" in page.model_fields


def models_within(shape: Any) -> Iterator[type[BaseModel]]:
    """A model and those of its fields."""
    if isinstance(shape, type) and issubclass(shape, BaseModel):
        yield shape
        for field in shape.model_fields.values():
            if field.annotation is not shape:
                yield from models_within(field.annotation)
    for argument in get_args(shape):
        if "ReferenceTopic" not in str(argument):  # it holds itself
            yield from models_within(argument)


def test_client_types_have_fields_of_schemas() -> None:
    compared = 0
    schemas = document()["components"]["schemas"]
    for shape in {
        m for verb in VERBS.values() for t in answer_types(verb) for m in models_within(t)
    }:
        if shape.__name__ in schemas:
            compared += 1
            schema = schemas[shape.__name__]
            aliases = {field.alias or name for name, field in shape.model_fields.items()}
            assert aliases == schema["properties"].keys(), shape
    assert compared > 80


def test_client_answer_table_equals_typed_imports() -> None:
    tree = ast.parse(inspect.getsource(answers))
    visible = {
        alias.name: str(node.module).removeprefix("strandline.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if str(node.module).startswith("strandline.")
    }
    assert visible == answers.MODULE_OF
    for name in answers.MODULE_OF:
        assert getattr(answers, name).__name__ == name
    with pytest.raises(AttributeError, match="Colour"):
        answers.Colour  # type: ignore[attr-defined] # noqa: B018


def test_client_writer_takes_parameters_of_append() -> None:
    parameters = inspect.signature(MemoryVerbs.add.declaration.function).parameters.keys()
    for writer in (Writer, AsyncWriter):
        taken_by_writer = inspect.signature(writer.add).parameters.keys() - {"timeout"}
        assert taken_by_writer == parameters - {"idempotency_key"}


def test_client_has_exception_for_every_error_code() -> None:
    """Of errors that reach a caller: those with a status, and the gateway's own."""

    def below(kind: type[StrandlineError]) -> Iterator[type[StrandlineError]]:
        yield kind
        for narrower in kind.__subclasses__():
            yield from below(narrower)

    codes = {kind.code for base in STATUS for kind in below(base)} | {StrandlineError.code}
    codes |= {answer.code for answer in gateway_generated_responses.RESPONSES.values()}
    assert errors.BY_CODE.keys() == codes | {"connection_failed", "unexpected_answer"}
    for code, kind in errors.BY_CODE.items():
        assert kind.code == code
        words = "".join(part.title() for part in re.split("_", code))
        assert kind.__name__.removesuffix("Error").lower() in f"gateway{words}".lower()


@pytest.mark.parametrize("kind", ["INTEGRATION_FAILURE", "INTEGRATION_TIMEOUT", "DEFAULT_5XX"])
def test_client_repeats_request_that_lambda_refused(kind: str) -> None:
    """Under its key; one that would be done twice, not."""
    answer = gateway_generated_responses.RESPONSES[kind]
    refused = httpx2.Response(answer.status or 500, text=answer.make_json_body("r-1"))
    script = Script(refused, httpx2.Response(201, json=RECEIPT))
    assert script.client().add("x", user="alice").seq == 1
    assert len({request.headers["Idempotency-Key"] for request in script.requests}) == 1
    unsafe = Script(refused)
    with pytest.raises(errors.ServiceError):
        unsafe.client().admin.create_key("acme")
    assert len(unsafe.requests) == 1


def test_client_sends_null_only_if_schema_allows() -> None:
    """A parameter with the default KEEP is one whose field the document lets be null."""
    for name, verb in VERBS.items():
        operation = operations()[verb.declaration.operation.name]
        if "requestBody" not in operation:
            continue
        body = resolve(operation["requestBody"]["content"]["application/json"]["schema"])
        for parameter, default in verb.declaration.parameter_defaults.items():
            if default is KEEP:
                kinds = body["properties"][parameter].get("anyOf", [])
                assert {"type": "null"} in kinds, f"{name}: {parameter}"
