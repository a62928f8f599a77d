"""The OpenAPI document: valid, whole, and the same at every start."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from jsonschema_rs import Draft202012Validator
from openapi_spec_validator import validate
from pydantic import BaseModel

from strandline import __version__
from strandline.apidocs import openapi
from strandline.errors import Conflict, OutcomeUnknown, QuotaExceeded
from strandline.function_specs import FUNCTIONS
from strandline.http.app import STATUS
from strandline.http.gateway_generated_responses import FOREIGN_HOST, RESPONSES, TIMEOUT
from strandline.http.request import Request
from strandline.http.routes_and_responses import AnswerMediaType, Route, json_response
from strandline.http.schemas_idempotency import IdempotencyHeaders
from strandline.mcp.protocol import SERVER_VERSION
from strandline.schemas import PagedReadQuery, ParticipantsQuery
from strandline.status.schemas import Liveness
from tests.contract import document, operations
from tests.support import KEY_SECRET


def test_openapi_document_is_version_3_1() -> None:
    validate(document())
    assert document()["openapi"] == "3.1.0"


def test_openapi_lists_exactly_served_routes() -> None:
    assert set(operations()) == {
        route for fn in FUNCTIONS if fn.protocol == "REST" for route in fn.routes
    }


def test_openapi_parameter_limits_use_json_schema() -> None:
    for name, operation in operations().items():
        for parameter in operation.get("parameters", []):
            foreign = parameter["schema"].keys() & {"ge", "gt", "le", "lt"}
            assert not foreign, f"{name}: {parameter['name']}"
    (path,) = (path for path in document()["paths"] if path.endswith("/{session_id}/context"))
    parameters = {p["name"]: p["schema"] for p in document()["paths"][path]["get"]["parameters"]}
    assert parameters["budget"] == {"type": "integer", "minimum": 100, "maximum": 8000}
    assert parameters["min_relevance"] == {"type": "number", "minimum": 0, "maximum": 1}


def test_openapi_operations_are_described() -> None:
    result = operations()
    ids = [operation["operationId"] for operation in result.values()]
    assert len(set(ids)) == len(ids)
    tags = {tag["name"]: tag["description"] for tag in document()["tags"]}
    for name, operation in result.items():
        assert 5 <= len(operation["summary"]) <= 80, name
        assert operation["description"].endswith("."), name
        assert not tags[operation["tags"][0]].startswith("About "), f"{name}: say it in _TAGS"
        for parameter in operation.get("parameters", []):
            assert parameter["description"], f"{name}: {parameter['name']}"


def test_openapi_operations_list_security_and_errors() -> None:
    for name, operation in operations().items():
        statuses = set(operation["responses"])
        assert {"429", "500", "502", "504"} <= statuses, name
        if operation["security"]:
            assert "401" in statuses, name
            assert [list(way) for way in operation["security"]] == [
                ["ApiKey"],
                ["Bearer"],
                ["Jwt"],
                ["ClientCertificate"],
            ]
        if "{" in name:
            assert "404" in statuses, name
        if "requestBody" in operation:
            assert {"400", "413", "422"} <= statuses, name


def test_openapi_errors_share_one_schema() -> None:
    for name, response in document()["components"]["responses"].items():
        schema = response["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/Error"}, name
    uses = set(_references(document()))
    for kind in ("schemas", "responses"):
        unused = {
            n for n in document()["components"][kind] if f"#/components/{kind}/{n}" not in uses
        }
        assert not unused


def _references(node: Any) -> Iterator[str]:
    return _values(node, "$ref")


def _values(node: Any, member: str) -> Iterator[str]:
    """The strings that a member of this name has, anywhere below."""
    if isinstance(node, dict):
        for name, value in cast("dict[str, Any]", node).items():
            if name == member and isinstance(value, str):
                yield value
            yield from _values(value, member)
    elif isinstance(node, list):
        for value in cast("list[Any]", node):
            yield from _values(value, member)


def test_openapi_lists_every_error_with_status() -> None:
    names = {r.rpartition("/")[2] for r in _references(document()["paths"])}
    for kind, status in STATUS.items():
        if status not in (424, 429, 503):
            assert kind.__name__ in names


def test_openapi_response_lists_error_codes() -> None:
    description = document()["components"]["responses"]["Conflict"]["description"]
    assert description.startswith(f"`key_conflict`: {Conflict.__doc__} `state_conflict`: ")
    own = openapi.build_openapi_document(
        {"POST /x": Route(_serve, None, {201: AnswerMediaType("a/b")})}
    )
    assert "state_conflict" not in str(own)


def test_openapi_and_docs_name_every_error_code(repository: Path) -> None:
    text = (repository / "docs" / "api.md").read_text()
    gateway = {answer.code for answer in (*RESPONSES.values(), FOREIGN_HOST, TIMEOUT)}
    for code in {kind.code for kind in STATUS} | gateway | {OutcomeUnknown.code}:
        assert f"`{code}`" in text, code
    responses = document()["components"]["responses"]
    for name, code in (
        ("TooManyRequests", QuotaExceeded.code),
        ("TooManyRequests", RESPONSES["THROTTLED"].code),
        ("BadGateway", RESPONSES["DEFAULT_5XX"].code),
        ("GatewayTimeout", TIMEOUT.code),
        ("Unavailable", OutcomeUnknown.code),
    ):
        assert f"`{code}`" in responses[name]["description"], (name, code)


def test_openapi_server_url_is_relative() -> None:
    """So that a stage's or a custom domain's base path needs no setting."""
    assert [server["url"] for server in document()["servers"]] == ["."]


def test_openapi_patterns_are_ecmascript() -> None:
    """With the flag `u`, as JSON Schema asks: it allows no needless escape."""
    for pattern in _values(document(), "pattern"):
        for escaped in re.findall(r"\\(.)", pattern):
            assert escaped in r"^$\.*+?()[]{}|/-dDsSwWbBfnrtvxu", pattern


def test_openapi_examples_conform_to_their_schemas() -> None:
    components = document()["components"]
    for name, operation in operations().items():
        responses = (r.get("content", {}) for r in operation["responses"].values())
        bodies = [operation.get("requestBody", {}).get("content", {}), *responses]
        media = [kind for content in bodies for kind in content.values()]
        for described in (*operation.get("parameters", []), *media):
            if "example" in described:
                schema = {**described["schema"], "components": components}
                validator = Draft202012Validator(schema, validate_formats=True)
                error = next(validator.iter_errors(described["example"]), None)
                assert error is None, f"{name} {described.get('name', '')}: {error}"


def test_openapi_document_is_same_at_every_start(repository: Path) -> None:
    code = (
        "import functions.admin.handler as h; from types import SimpleNamespace as S;"
        "print(h.ROUTES['GET /openapi.json'].handler(S())['body'])"
    )
    every_way = {
        "DATABASE_URL": "x",
        "BUCKET": "x",
        "KEY_SECRET": KEY_SECRET,
        "JWT_SECRET": KEY_SECRET,
        "JWT_ISSUER": "x",
        "JWT_AUDIENCE": "x",
        "CLIENT_CERTIFICATES": "true",
    }
    environment = {f"STRANDLINE_{name}": value for name, value in every_way.items()}
    environment |= {"PYTHONPATH": "shared:.", "PATH": "/usr/bin:/bin"}
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=repository,
            env=environment | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert json.loads(outputs.pop()) == document()


def test_openapi_version_equals_versions_of_distributions(repository: Path) -> None:
    client, service = (
        tomllib.loads((repository / path).read_text())["project"]
        for path in ("pyproject.toml", "shared/pyproject.toml")
    )
    versions = (client["version"], service["version"], openapi.VERSION, SERVER_VERSION)
    assert versions == (__version__,) * 4
    assert f"strandline=={__version__}" in service["dependencies"]
    assert f"strandline-service[all]=={__version__}" in client["optional-dependencies"]["service"]


class _Body(BaseModel):
    cursor: str = ""


def _serve(request: Request) -> Any:
    """Do it: now, and well."""
    return json_response({}, 200)


@pytest.mark.parametrize(
    ("name", "route", "statuses"),
    [
        ("GET /x", Route(_serve, None, {200: Liveness}), ""),
        ("GET /x", Route(_serve, "issued", {200: Liveness}), "401 422"),
        ("GET /x", Route(_serve, "read", {200: Liveness}), "401 403 422 503"),
        ("GET /x/{x_id}", Route(_serve, None, {200: Liveness}), "404"),
        ("GET /x/{cid}", Route(_serve, None, {200: Liveness}), "404 422"),
        ("GET /x", Route(_serve, None, {200: Liveness}, query=ParticipantsQuery), "422"),
        ("GET /x", Route(_serve, None, {200: Liveness}, query=PagedReadQuery), "400 422"),
        (
            "GET /x",
            Route(_serve, None, {200: AnswerMediaType("a/b")}, headers=IdempotencyHeaders),
            "422",
        ),
        ("POST /x", Route(_serve, None, {200: AnswerMediaType("a/b")}, body=_Body), "400 413 422"),
        (
            "POST /x",
            Route(_serve, None, {201: AnswerMediaType("a/b")}, errors=(Conflict,)),
            "409",
        ),
    ],
)
def test_openapi_statuses_follow_from_route_inputs(name: str, route: Route, statuses: str) -> None:
    ((_, methods),) = openapi.build_openapi_document({name: route})["paths"].items()
    (operation,) = methods.values()
    always = {*map(str, route.responses), "429", "500", "502", "504"}
    assert set(operation["responses"]) == always | set(statuses.split())
    assert (operation["summary"], operation["description"][:14]) == ("Do it", "Now, and well.")


def test_openapi_refuses_unknown_path_parameter() -> None:
    with pytest.raises(ValueError, match="_PATH_PARAMETERS"):
        openapi.build_openapi_document({"GET /x/{colour}": Route(_serve, None, {200: Liveness})})
