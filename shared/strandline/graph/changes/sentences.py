"""Sentences that state nodes. A sentence is the content of its statement, which recall finds."""

import json

from strandline.graph.nodes.schemas import (
    DecisionIn,
    EntityIn,
    EventIn,
    FactIn,
    NodeIn,
    TopicIn,
)


def name_of(node: NodeIn) -> str:
    """The text that identifies a node of its type: a fact's content, a title or a name."""
    match node:
        case FactIn():
            return node.content.strip()
        case DecisionIn() | EventIn():
            return node.title.strip()
        case EntityIn() | TopicIn():
            return node.name.strip()


def write_sentence(node: NodeIn) -> str:
    """The sentence that states a node."""
    name = name_of(node)
    match node:
        case FactIn():
            return _add_full_stop(name)
        case DecisionIn():
            others = f" Instead of: {'; '.join(node.alternatives)}." if node.alternatives else ""
            return f"Decided: {_add_full_stop(name)} {_add_full_stop(node.rationale)}{others}"
        case EntityIn():
            kind = "" if node.kind == "other" else f" ({node.kind})"
            return (
                f"{name}{kind}: {_add_full_stop(node.description)}"
                if node.description
                else name + kind
            )
        case EventIn():
            date = f", {node.event_date:%Y-%m-%d}" if node.event_date else ""
            rest = f" {_add_full_stop(node.description)}" if node.description else ""
            return f"{name}{date}.{rest}"
        case TopicIn():
            return f"{name}: {_add_full_stop(node.description)}" if node.description else name


def _add_full_stop(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?", "…", "。")) else f"{text}."


_MAX_VALUE_CHARS = 4000
"""The maximum length of a field's value in its sentence. The statement's operation has the whole
value."""


def write_field_sentence(
    topic: str, field: str, value: object, why: str | None, impact: str | None
) -> str:
    """The sentence that states the value of a topic's field."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if value is None or not text.strip():
        text = "none"
    if len(text) > _MAX_VALUE_CHARS:
        text = f"{text[: _MAX_VALUE_CHARS - 1]}…"
    reasons = f" Because: {_add_full_stop(why)}" if why else ""
    effects = f" Expected: {_add_full_stop(impact)}" if impact else ""
    return f"{topic}, {field}: {_add_full_stop(text)}{reasons}{effects}"
