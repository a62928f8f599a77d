"""Parse a model's answer: the schema it is asked for, and which parts of its answer are
accepted."""

import contextlib
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from strandline.llm.types import Entities, Entity

_SCHEMA_KEYWORDS = frozenset({"type", "enum", "const", "anyOf", "$ref", "description"})
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_IDS = re.compile(
    r"\b(?:user|agent):[^\s,;()\"']+"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\bbafy[a-z2-7]{20,}",
    re.IGNORECASE,
)
_MAX_FAULTS = 3
_MAX_CHARACTERS = 1024 * 1024
"""Of an answer: a longer one is not parsed."""


def make_strict_schema(result: type[BaseModel]) -> dict[str, Any]:
    """The result type's schema in the strict subset of JSON Schema that structured outputs accept
    (OpenAI, "Structured Outputs", supported schemas): objects are closed and all members required.
    It has no bounds; those are checked when the answer is parsed."""
    return _to_strict_schema_node(result.model_json_schema())


def _to_strict_schema_node(node: dict[str, Any]) -> dict[str, Any]:
    strict: dict[str, Any] = {
        name: value for name, value in node.items() if name in _SCHEMA_KEYWORDS
    }
    for name in ("properties", "$defs"):
        if name in node:
            strict[name] = {key: _to_strict_schema_node(value) for key, value in node[name].items()}
    if "items" in node:
        strict["items"] = _to_strict_schema_node(node["items"])
    if "anyOf" in node:
        strict["anyOf"] = [_to_strict_schema_node(option) for option in node["anyOf"]]
    if "properties" in node:
        strict |= {"required": list(node["properties"]), "additionalProperties": False}
    return strict


class UnusableOutput(Exception):
    """An answer that cannot be used. The message says why, in words that may be sent to the
    model."""


def parse_model_output[Value: BaseModel](
    text: str, result_type: type[Value], prompt_text: str
) -> Value:
    """Parse the JSON object in a model's answer. Text around it (a code fence, a thinking block) is
    ignored.

    An answer with an id that `prompt_text`, the text that the model was given, does not contain is
    unusable; an entity that `prompt_text` does not name is left out. Raises UnusableOutput.
    """
    if len(text) > _MAX_CHARACTERS:
        raise UnusableOutput("it is too long")
    try:
        data = _strip_strings_and_check_characters(_read_json_after_thinking(text))
        value = result_type.model_validate(data)
    except ValidationError as error:
        raise UnusableOutput(_describe_validation_errors(error)) from None
    except ValueError:
        raise UnusableOutput("it is not a JSON object") from None
    folded_prompt = prompt_text.casefold()
    if any(
        id_text.casefold().rstrip(".:!?") not in folded_prompt
        for id_text in _IDS.findall(str(data))
    ):
        raise UnusableOutput("it names an id that is not in the data")
    if isinstance(value, Entities):
        _drop_unmentioned_entities(value, prompt_text)
    return value


def _read_json_after_thinking(text: str) -> Any:
    """The JSON in a text: what follows a thinking block, unless that stands in the JSON's own
    strings, as a quotation. Raises ValueError."""
    _, mark, rest = text.rpartition("</think>")
    if mark:
        with contextlib.suppress(ValueError):
            return _parse_json_between_braces(rest)
    return _parse_json_between_braces(text)


def _parse_json_between_braces(text: str) -> Any:
    start, end = text.find("{"), text.rfind("}")
    return from_json(text[start : end + 1] if 0 <= start < end else text)


def _drop_unmentioned_entities(entities: Entities, prompt_text: str) -> None:
    """Drop entities that the text does not name, and repeated ones."""
    prompt_words, entity_by_name = _normalize_text(prompt_text), dict[str, Entity]()
    for entity in entities.entities:
        entity_by_name.setdefault(_normalize_text(entity.name), entity)
    entities.entities = [entity for name, entity in entity_by_name.items() if name in prompt_words]


def _normalize_text(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _strip_strings_and_check_characters(data: Any) -> Any:
    """Strip all strings; `from_json` bounds the nesting. Raises UnusableOutput for control
    characters and surrogates, which the database would not store."""
    if isinstance(data, str):
        if _CONTROL_CHARACTERS.search(data):
            raise UnusableOutput("it holds control characters")
        return data.strip()
    if isinstance(data, list):
        return [_strip_strings_and_check_characters(item) for item in cast("list[Any]", data)]
    if isinstance(data, Mapping):
        return {
            name: _strip_strings_and_check_characters(item)
            for name, item in cast("Mapping[str, Any]", data).items()
        }
    return data


def _describe_validation_errors(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    messages = [f"{'.'.join(map(str, f['loc'])) or 'the object'}: {f['msg']}" for f in faults]
    return "; ".join(messages[:_MAX_FAULTS])[:300]
