"""The names of namespaces and keys in the knowledge graph. A topic's name is compared without case,
and a field's name has neither `/` nor control characters and at most 100 characters; so what would
not come back as it was is escaped, as in an address."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from urllib.parse import quote, unquote

_MAX_TOPIC_CHARS = 500
_MAX_FIELD_CHARS = 100
_PLAIN = re.compile(r"[a-z0-9_-]")
_LONG = "~"
"""Marks a field whose key stands beside the value: it is too long, or empty."""


def encode_namespace(kind: str, namespace: tuple[str, ...]) -> str:
    """The name of a namespace's topic, such as `langgraph:memories/u1`. Raises ValueError for one
    that is too long."""
    name = f"{kind}:{'/'.join(map(_escape_label, namespace))}"
    if len(name) > _MAX_TOPIC_CHARS:
        raise ValueError(f"a namespace has at most {_MAX_TOPIC_CHARS} characters: {name[:80]}…")
    return name


def decode_namespace(kind: str, topic_name: str) -> tuple[str, ...] | None:
    """The namespace of a topic's name; None for that of another topic."""
    start, _, path = topic_name.partition(":")
    return tuple(map(unquote, path.split("/"))) if start == kind and path else None


def encode_key(key: str) -> str:
    """The name of a key's field."""
    is_composed = unicodedata.normalize("NFC", key) == key
    field = "".join(
        char if is_composed or char.isascii() else quote(char) for char in map(_escape_char, key)
    )
    if field[:1].isspace():
        field = quote(field[0]) + field[1:]
    if field[-1:].isspace():
        field = field[:-1] + quote(field[-1])
    if set(field) == {"."}:  # a path would lose it
        field = field.replace(".", "%2E")
    if 1 <= len(field) <= _MAX_FIELD_CHARS:
        return field
    return f"{field[:40].rstrip('%')}{_LONG}{hashlib.sha256(key.encode()).hexdigest()[:40]}"


def is_key_in_value(field: str) -> bool:
    """Whether the key of a field stands beside its value."""
    return _LONG in field


def decode_key(field: str) -> str:
    """The key of a field, unless it stands beside the value."""
    return unquote(field)


def _escape_label(label: str) -> str:
    """A part of a namespace, without anything that a comparison of names would overlook."""
    return "".join(
        char if _PLAIN.fullmatch(char) else "".join(f"%{byte:02x}" for byte in char.encode())
        for char in label
    )


def _escape_char(char: str) -> str:
    """A character of a key, escaped where a field's name may not have it."""
    if char in "%/~" or unicodedata.category(char) == "Cc":
        return "".join(f"%{byte:02X}" for byte in char.encode())
    return char
