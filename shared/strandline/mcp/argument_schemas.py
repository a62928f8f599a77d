"""JSON Schemas of the arguments of tools, made from their descriptions for the model."""

from collections.abc import Mapping
from typing import Any

type Schema = Mapping[str, Any]
"""JSON Schema, in the few words that `parse_tool_arguments` knows."""


def text_schema(description: str) -> Schema:
    """A text."""
    return {"type": "string", "description": description}


def choice_schema(description: str, *names: str) -> Schema:
    """One of some words."""
    return {"type": "string", "enum": list(names), "description": description}


def integer_schema(description: str) -> Schema:
    """A whole number."""
    return {"type": "integer", "description": description}


def number_schema(description: str) -> Schema:
    """A number."""
    return {"type": "number", "description": description}


def boolean_schema(description: str) -> Schema:
    """Yes or no."""
    return {"type": "boolean", "description": description}


def text_list_schema(description: str) -> Schema:
    """Several texts."""
    return {"type": "array", "items": {"type": "string"}, "description": description}


def object_list_schema(description: str) -> Schema:
    """Several objects."""
    return {"type": "array", "items": {"type": "object"}, "description": description}


def any_json_schema(description: str) -> Schema:
    """Any JSON, null too."""
    return {"description": description}
