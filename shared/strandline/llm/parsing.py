"""A model's answer: the schema it is asked by, and what of its text may be believed."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from strandline.llm.types import Entities, Entity

_KEPT = frozenset({"type", "enum", "const", "anyOf", "$ref", "description"})
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_IDS = re.compile(
    r"\b(?:user|agent):[^\s,;()\"']+"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\bbafy[a-z2-7]{20,}",
    re.IGNORECASE,
)
_FAULTS = 3


def schema(result: type[BaseModel]) -> dict[str, Any]:
    """The strict subset of JSON Schema that structured outputs take (OpenAI, "Structured Outputs",
    supported schemas): objects closed, all members required, no bounds; those are checked here."""
    return _strict(result.model_json_schema())


def _strict(node: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {name: value for name, value in node.items() if name in _KEPT}
    for name in ("properties", "$defs"):
        if name in node:
            kept[name] = {key: _strict(value) for key, value in node[name].items()}
    if "items" in node:
        kept["items"] = _strict(node["items"])
    if "properties" in node:
        kept |= {"required": list(node["properties"]), "additionalProperties": False}
    return kept


class Unfit(Exception):
    """An answer that cannot be used; says why, in words that a model may be told."""


def parse[Value: BaseModel](text: str, result: type[Value], shown: str) -> Value:
    """The value in a model's text, if it can be used. What stands around the JSON object (a fence,
    what it thought first) is passed over.

    An id that is not in what the model was `shown` makes an answer unfit; an entity that is not
    named there is left out. Raises Unfit.
    """
    written = text.rpartition("</think>")[2]
    start, end = written.find("{"), written.rfind("}")
    try:
        data = _cleaned(from_json(written[start : end + 1] if 0 <= start < end else written))
        value = result.model_validate(data)
    except ValidationError as error:
        raise Unfit(_told(error)) from None
    except ValueError:
        raise Unfit("it is not a JSON object") from None
    known = shown.casefold()
    if any(found.casefold().rstrip(".:!?") not in known for found in _IDS.findall(str(data))):
        raise Unfit("it names an id that is not in the data")
    if isinstance(value, Entities):
        _keep_named(value, shown)
    return value


def _keep_named(entities: Entities, shown: str) -> None:
    """Leave out what the text does not name, and what was named before."""
    words, first = _plain(shown), dict[str, Entity]()
    for entity in entities.entities:
        first.setdefault(_plain(entity.name), entity)
    entities.entities = [entity for name, entity in first.items() if name in words]


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _cleaned(data: Any) -> Any:
    """Strings without blanks around them; from_json bounds how deep this goes. Raises Unfit for
    characters that no text has, and that the database would not take."""
    if isinstance(data, str):
        if _CONTROLS.search(data):
            raise Unfit("it holds control characters")
        return data.strip()
    if isinstance(data, list):
        return [_cleaned(one) for one in cast("list[Any]", data)]
    if isinstance(data, Mapping):
        return {name: _cleaned(one) for name, one in cast("Mapping[str, Any]", data).items()}
    return data


def _told(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    said = [f"{'.'.join(map(str, f['loc'])) or 'the object'}: {f['msg']}" for f in faults]
    return "; ".join(said[:_FAULTS])[:300]
