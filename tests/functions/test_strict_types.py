"""No request's number or truth value is guessed from a value of another JSON type."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, cast

import pytest
from pydantic import BaseModel, Field

from strandline.context.schemas import ChainSearchRequest, ContextTextRequest, SessionContextQuery
from strandline.errors import Invalid
from strandline.http.routes_and_responses import Route
from strandline.log.schemas_append import AppendRequest, EdgeIn
from strandline.recall.schemas import RecallRequest
from strandline.schemas import PARSE_NUMBER, Count, RequestModel, Switch, validate
from tests.contract import HANDLERS

ROUTES: list[Route] = [route for handler in HANDLERS for route in handler.ROUTES.values()]


def _sort(models: Iterable[type[BaseModel] | None]) -> list[type[BaseModel]]:
    return sorted({model for model in models if model}, key=lambda model: model.__name__)


BODIES = _sort(route.body for route in ROUTES)
TEXTS = _sort(model for route in ROUTES for model in (route.query, route.headers))
"""Query strings and headers: every value is text."""


def lax_fields(model: type[BaseModel], *, is_text: bool) -> list[str]:
    """The fields with a number or a truth value that pydantic converts by its own rules: in a body
    where it is not strict, in text where no parser of ours reads it first."""
    model.model_rebuild()
    schema = cast("Mapping[str, Any]", model.__pydantic_core_schema__)
    return sorted(set(_walk(schema, model.__name__, is_text=is_text, is_safe=False)))


def _walk(node: object, path: str, *, is_text: bool, is_safe: bool) -> Iterator[str]:
    if isinstance(node, list):
        for part in cast("list[object]", node):
            yield from _walk(part, path, is_text=is_text, is_safe=is_safe)
    if not isinstance(node, dict):
        return
    schema = cast("dict[str, Any]", node)
    kind = schema.get("type")
    if kind in ("bool", "int", "float") and not (is_safe or (schema.get("strict") and not is_text)):
        yield f"{path}: {kind}"
    if kind == "model":
        path, is_safe = schema["cls"].__name__, False
        is_safe = not is_text and bool(schema.get("config", {}).get("strict"))
    is_safe = is_safe or (is_text and kind == "function-before")
    for name, part in schema.items():
        inner = f"{path}.{name}" if _is_field(part) else path
        yield from _walk(part, inner, is_text=is_text, is_safe=is_safe)


def _is_field(part: object) -> bool:
    return isinstance(part, dict) and cast("dict[str, Any]", part).get("type") == "model-field"


@pytest.mark.parametrize("body", BODIES)
def test_strict_types_hold_in_request_body(body: type[BaseModel]) -> None:
    assert lax_fields(body, is_text=False) == []


@pytest.mark.parametrize("model", TEXTS)
def test_strict_types_parse_text_by_own_parser(model: type[BaseModel]) -> None:
    assert lax_fields(model, is_text=True) == []


@pytest.mark.parametrize("value", ["0", "1", "0.25", "5e-1", "-0.0"])
def test_strict_types_read_number_from_text(value: str) -> None:
    assert validate(SessionContextQuery, {"min_relevance": value}).min_relevance == float(value)


@pytest.mark.parametrize("value", ["", "0_1", " 0.5", "nan", "Infinity", "0x0", "\u0661", "true"])
def test_strict_types_refuse_other_text_as_number(value: str) -> None:
    with pytest.raises(Invalid, match="min_relevance: must be a number"):
        validate(SessionContextQuery, {"min_relevance": value})


@pytest.mark.parametrize("value", ["1.01", "-1", "1e999"])
def test_strict_types_limit_number_range(value: str) -> None:
    with pytest.raises(Invalid, match="min_relevance: Input should be"):
        validate(SessionContextQuery, {"min_relevance": value})


@pytest.mark.parametrize("value", [0, 1, "true", 0.0])
def test_strict_types_refuse_other_values_as_boolean(value: object) -> None:
    with pytest.raises(Invalid, match="explain: Input should be a valid boolean"):
        validate(RecallRequest, {"query": "x", "explain": value})


@pytest.mark.parametrize("value", ["0.5", True])
def test_strict_types_refuse_other_values_as_number(value: object) -> None:
    for body in (RecallRequest, ChainSearchRequest, ContextTextRequest):
        with pytest.raises(Invalid, match="min_relevance: Input should be a valid number"):
            validate(body, {"query": "x", "min_relevance": value})
    assert validate(RecallRequest, {"query": "x", "min_relevance": 1}).min_relevance == 1


def test_strict_types_cover_every_request_type() -> None:
    assert {AppendRequest, RecallRequest} <= {*BODIES}
    assert SessionContextQuery in TEXTS


class _Inner(RequestModel):
    ratio: float = 0.5
    weight: float = Field(default=1.0, ge=0, strict=True)


class _Faulty(RequestModel):
    explain: bool = False
    limit: int | None = Field(default=None, ge=1)
    count: Count = 0
    parts: list[_Inner] = Field(default_factory=list[_Inner])
    atomic: bool = Field(default=False, strict=True)
    edge: EdgeIn | None = None


class _FaultyQuery(RequestModel):
    explain: bool = Field(default=False, strict=True)
    limit: int = 1
    count: Count = 0
    only: Switch = False
    share: Annotated[float, Field(le=1), PARSE_NUMBER] | None = None


def test_strict_types_detect_lax_field() -> None:
    assert lax_fields(_Faulty, is_text=False) == [
        "_Faulty.count: int",
        "_Faulty.explain: bool",
        "_Faulty.limit: int",
        "_Inner.ratio: float",
    ]
    assert lax_fields(_FaultyQuery, is_text=True) == [
        "_FaultyQuery.explain: bool",
        "_FaultyQuery.limit: int",
    ]
