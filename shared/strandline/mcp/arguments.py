"""The arguments of a call, read by their schemas: what models and clients send instead, too."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from strandline.context.fence import sanitize_label, sanitize_to_one_line
from strandline.errors import Invalid
from strandline.mcp.argument_schemas import Schema
from strandline.schemas import check_storable

type Arguments = dict[str, Any]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_NOUNS = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
}
_MAX_NAMES, _NAME_CHARS = 5, 40
_WHOLE = re.compile(r"-?\d{1,15}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,15})?", re.ASCII)


class WrongArgument(Exception):
    """An argument that a tool does not accept. The text names it and the way out."""


def parse_tool_arguments(
    tool: str,
    properties: Mapping[str, Schema],
    required: Sequence[str],
    arguments: Arguments,
    unlisted: Mapping[str, Schema] | None = None,
) -> Arguments:
    """The arguments without those that are null, each of its schema's type. A value of another type
    is taken where `_convert_lenient_value` finds its meaning plain. Limits and formats are checked
    by the operation. Those of `unlisted` are taken too, and not named. Raises WrongArgument for one
    that is unknown, missing, of another type, or that cannot be stored."""
    try:
        check_storable(arguments)
    except Invalid as error:
        raise WrongArgument(sanitize_to_one_line(str(error))) from None
    given = {
        name: value
        for name, value in arguments.items()
        # where any JSON may stand, null is a value
        if value is not None or (name in properties and "type" not in properties[name])
    }
    schemas = {**properties, **(unlisted or {})}
    _require_valid_names(
        tool, properties, required, [name for name in given if name not in schemas], given
    )
    return {
        name: _parse_value_by_schema(name, schemas[name], value) for name, value in given.items()
    }


def _require_valid_names(
    tool: str,
    properties: Mapping[str, Schema],
    required: Sequence[str],
    unknown: Sequence[str],
    arguments: Arguments,
) -> None:
    names = [sanitize_label(name, _NAME_CHARS) for name in unknown]
    faults = [f"{_join_names(names)} unknown"] if names else []
    missing = [name for name in required if name not in arguments]
    if missing:
        faults.append(f"{_join_names(missing)} missing")
    if faults:
        takes = ", ".join(properties) or "no arguments"
        raise WrongArgument(f"{'; '.join(faults)}; {tool} takes: {takes}")


def _join_names(names: Sequence[str]) -> str:
    first_names = list(names[:_MAX_NAMES])
    if more := len(names) - len(first_names):
        first_names.append(f"{more} more")
    return f"{', '.join(first_names)} {'is' if len(names) == 1 else 'are'}"


def _parse_value_by_schema(name: str, schema: Schema, value: object) -> object:
    if "type" not in schema:
        return value
    kind: str = schema["type"]
    converted = _convert_lenient_value(schema, value)
    is_of_type = isinstance(converted, _TYPES[kind]) and (
        kind == "boolean" or not isinstance(converted, bool)
    )
    if not is_of_type:
        raise WrongArgument(f"{name}: must be {_NOUNS[kind]}")
    if "enum" in schema and converted not in schema["enum"]:
        raise WrongArgument(f"{name}: must be one of {', '.join(schema['enum'])}")
    if kind == "array":
        items = cast("list[object]", converted)
        return [
            _parse_value_by_schema(f"{name}[{n}]", schema["items"], item)
            for n, item in enumerate(items)
        ]
    return converted


def _convert_lenient_value(schema: Schema, value: object) -> object:
    """A value as its schema has it, where its meaning is plain: a number in a text, a whole number
    with a point, `true` or `false` in a text, one text or a JSON list in a text for several, one
    object for several. Any other value as it is."""
    match schema["type"], value:
        case "integer", str() if _WHOLE.fullmatch(value):
            return int(value)
        case "integer", float() if value.is_integer():
            return int(value)
        case "number", str() if _NUMBER.fullmatch(value):
            return float(value)
        case "boolean", "true" | "false":
            return value == "true"
        case "array", str() if value.lstrip().startswith("["):
            return _parse_list_if_json_array(value)
        case "array", str() if schema["items"]["type"] == "string":
            return [value]
        case "array", dict() if schema["items"]["type"] == "object":
            return [cast("object", value)]
        case _:
            return value


def _parse_list_if_json_array(value: str) -> object:
    try:
        parsed: object = check_storable(json.loads(value))
    except (ValueError, RecursionError, Invalid):
        return value
    return cast("list[object]", parsed) if isinstance(parsed, list) else value


def drop_nulls(value: object) -> Any:
    """JSON without the members of objects that are null, which clients send for what is left
    out."""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value).items()
        return {name: drop_nulls(member) for name, member in members if member is not None}
    if isinstance(value, list):
        return [drop_nulls(item) for item in cast("list[object]", value)]
    return value


def pick_arguments(arguments: Arguments, *names: str, **aliases: str) -> dict[str, Any]:
    """The arguments that are given of `names`, and of `aliases` under the name of a field:
    `pick(arguments, "limit", types="node_types")`."""
    fields = {name: name for name in names} | aliases
    return {f: arguments[a] for f, a in fields.items() if arguments.get(a) is not None}
