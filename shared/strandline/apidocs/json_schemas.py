"""The JSON schemas of the OpenAPI document, from the routes' types."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import (
    GenerateJsonSchema,
    JsonSchemaMode,
    JsonSchemaValue,
    models_json_schema,
)
from pydantic_core import core_schema

from strandline.http.routes_and_responses import AnswerMediaType, Route
from strandline.schemas import Error


class _MinimalJsonSchemaGenerator(GenerateJsonSchema):
    """Leaves out members without information: a title that repeats a field's name, a default that
    is null."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        result = super().default_schema(schema)
        if result.get("default", ...) is None:
            del result["default"]
        return result


def build_schemas_and_components(
    routes: Mapping[str, Route],
) -> tuple[dict[Any, Any], dict[str, Any]]:
    """The schema of each type that a route names, and the components that they refer to. A body or
    answer is given as a reference; a query or headers type as its properties."""
    parameter_models = {
        shape for route in routes.values() for shape in (route.query, route.headers) if shape
    }
    bodies = {route.body for route in routes.values() if route.body}
    response_models = {
        shape
        for route in routes.values()
        for shape in route.responses.values()
        if not isinstance(shape, AnswerMediaType)
    }
    modes: list[tuple[set[type[BaseModel]], JsonSchemaMode]] = [
        (parameter_models | bodies, "validation"),
        (response_models | {Error}, "serialization"),
    ]
    schema_requests: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (shape, mode)
        for shapes, mode in modes
        for shape in sorted(shapes, key=lambda shape: shape.__name__)
    ]
    by_model, definitions = models_json_schema(
        schema_requests,
        ref_template="#/components/schemas/{model}",
        schema_generator=_MinimalJsonSchemaGenerator,
    )
    components: dict[str, Any] = definitions["$defs"]
    schemas: dict[Any, Any] = {shape: schema for (shape, _), schema in by_model.items()}
    for shape in sorted(parameter_models, key=lambda shape: shape.__name__):
        schemas[shape] = components.pop(schemas[shape]["$ref"].rpartition("/")[2])
    return schemas, components
