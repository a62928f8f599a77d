"""Sentences that state changes of nodes, edges and the fields of topics. A sentence is the content
of its statement, which recall finds."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from strandline.graph.nodes.node_types import NODE_TYPES
from strandline.graph.nodes.schemas import add_full_stop

_MAX_NAME = 2000
"""The maximum length of a name in a sentence. More does not help to identify a node."""
_MAX_VALUE_CHARS = 4000
"""The maximum length of a field's value in its sentence. The statement's operation has the whole
value."""
_EDGE_WORDS: Mapping[str, str] = {
    name: edge.words for spec in NODE_TYPES.values() for name, edge in spec.edges.items()
} | {"BUILT_FOR_CLIENT": "was built for"}


def write_update_sentence(name: str, fields: Mapping[str, Any]) -> str:
    """The sentence of a change of a node's fields."""
    clauses = [_write_field_clause(field, value) for field, value in fields.items()]
    return f"{_shorten(name)}: {'; '.join(clauses)}."


def _write_field_clause(field: str, value: object) -> str:
    words = field.replace("_", " ")
    if field == "archived":
        return "archived" if value else "archived no more"
    if value is None:
        return f"{words} is not known"
    if isinstance(value, list):
        return f"{words} are {', '.join(cast('Sequence[str]', value)) or 'none'}"
    return f"{words} is {str(value).rstrip('.')}"


def write_invalidation_sentence(name: str, reason: str, replacement: str | None) -> str:
    """The sentence of a fact's end."""
    if replacement is None:
        return f"No longer so: {_quote(name)}. {add_full_stop(reason)}"
    return f"{add_full_stop(replacement)} No longer so: {_quote(name)}. {add_full_stop(reason)}"


def write_edge_sentence(from_name: str, verb: str, role: str | None, to_name: str) -> str:
    """The sentence of an edge. `verb` is the one the caller sent, even if the edge is stored with
    another type."""
    words = _EDGE_WORDS.get(verb) or (role if verb == "related" else None)
    words = words or verb.replace("_", " ").lower()
    suffix = f" ({role})" if role and verb != "related" else ""
    return f"{_shorten(from_name)} {words} {_shorten(to_name)}{suffix}."


def write_edge_ending_sentence(
    from_name: str, verb: str, role: str | None, to_name: str, reason: str | None
) -> str:
    """The sentence of an edge's end."""
    relation = write_edge_sentence(from_name, verb, role, to_name)
    return (
        f"No longer so: {relation} {add_full_stop(reason)}"
        if reason
        else f"No longer so: {relation}"
    )


def write_merge_sentence(from_name: str, into_name: str, reason: str | None) -> str:
    """The sentence of a merge."""
    sentence = f"{_quote(from_name)} and {_quote(into_name)} are the same."
    return f"{sentence} {add_full_stop(reason)}" if reason else sentence


def write_merge_refusal_sentence(from_name: str, into_name: str, reason: str | None) -> str:
    """The sentence of a refused merge."""
    sentence = f"{_quote(from_name)} and {_quote(into_name)} are not the same."
    return f"{sentence} {add_full_stop(reason)}" if reason else sentence


def write_merge_undo_sentence(names: Sequence[str], reason: str | None) -> str:
    """The sentence of an undone merge."""
    listing = ", ".join(_quote(name) for name in names[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    sentence = f"{listing}{more}: not the same as what they were merged into."
    return f"{sentence} {add_full_stop(reason)}" if reason else sentence


def write_field_sentence(
    topic: str, field: str, value: object, why: str | None, impact: str | None
) -> str:
    """The sentence that states the value of a topic's field."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if value is None or not text.strip():
        text = "none"
    if len(text) > _MAX_VALUE_CHARS:
        text = f"{text[: _MAX_VALUE_CHARS - 1]}…"
    reasons = f" Because: {add_full_stop(why)}" if why else ""
    effects = f" Expected: {add_full_stop(impact)}" if impact else ""
    return f"{topic}, {field}: {add_full_stop(text)}{reasons}{effects}"


def _quote(name: str) -> str:
    return f"\u201c{_shorten(name)}\u201d"


def _shorten(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
