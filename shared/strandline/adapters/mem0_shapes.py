"""What mem0's memories, filters and arguments look like."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timezone
from typing import Any, TypeAlias, cast

Filters: TypeAlias = Mapping[str, Any]
"""As `{"user_id": "alice", "kind": {"ne": "draft"}}`: fields with values or operators, joined by
AND, OR and NOT."""

ENTITIES = ("user_id", "agent_id", "run_id")
IDENTITIES = (*ENTITIES, "actor_id")
FIELDS_BESIDE_TEXT = (*IDENTITIES, "role", "attributed_to", "expiration_date")
"""Fields of a memory that stand beside its text, and not in its metadata."""
_IN_PLACE_OF_CONTENT = frozenset({"tool_calls", "function_call", "audio", "refusal"})
"""Fields of messages that need no content: an assistant's that calls tools, speaks or refuses."""
_PARTS_WITHOUT_TEXT = (
    *("image_url", "input_image", "image", "audio", "input_audio", "video", "video_url"),
    *("file", "input_file", "document", "mdx_url", "pdf_url", "refusal"),
    *("thinking", "redacted_thinking", "reasoning"),
    *("tool_use", "tool_call", "tool_result", "server_tool_use", "web_search_tool_result"),
)
"""Types of parts that messages of mem0, OpenAI and Anthropic have beside those of text."""
_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


# Arguments ----------------------------------------------------------------------------------------


def clean_entity(value: object, name: str) -> str | None:
    """An id as text, without space around it. Raises ValueError for one that is empty or has white
    space."""
    if value is None:
        return None
    text = str(value).strip()
    if not text or any(char.isspace() for char in text):
        raise ValueError(
            f"Invalid {name}: {text!r}. It has at least a character and no white space."
        )
    return text


def clean_date(value: object) -> str | None:
    """A day as YYYY-MM-DD. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.date().isoformat()
    if isinstance(value, date):
        return value.isoformat()
    try:
        return date.fromisoformat(str(value)).isoformat()
    except ValueError:
        raise ValueError("expiration_date must be a valid date in YYYY-MM-DD format.") from None


def require_top_k(top_k: object) -> int:
    """A number of results. Raises ValueError."""
    if not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 0:
        raise ValueError(f"Invalid top_k: {top_k}. Must be a non-negative integer.")
    return top_k


def require_threshold(threshold: object) -> float:
    """A score from 0 to 1; None is mem0's default. Raises ValueError."""
    if threshold is None:
        return 0.1
    if not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise ValueError(f"Invalid threshold: {threshold}. Must be between 0 and 1 (inclusive).")
    return float(threshold)


def require_no_more(more: Mapping[str, Any], verb: str) -> None:
    """Raises ValueError for ids, which belong into `filters`, and TypeError for others."""
    entities = sorted({*more} & {*ENTITIES})
    if entities:
        raise ValueError(
            f"Top-level entity parameters {entities} are not supported in {verb}()."
            " Use filters={'user_id': '...'} instead."
        )
    if more:
        raise TypeError(f"{verb}() got an unexpected keyword argument {min(more)!r}")


def list_messages(messages: object) -> list[tuple[str, str, str | None]]:
    """Messages as roles, texts and names of speakers. As in mem0, those of a system are left out,
    and those without a text, as calls of tools and pictures. Raises ValueError, which names the
    message."""
    if isinstance(messages, str):
        return [("user", messages, None)]
    if isinstance(messages, Mapping):
        return list_messages([cast("Mapping[str, Any]", messages)])
    if not isinstance(messages, list | tuple):
        raise ValueError("messages must be str, dict, or list[dict]")
    turns: list[tuple[str, str, str | None]] = []
    for place, message in enumerate(cast("Sequence[Any]", messages)):
        fields = dict(cast("Mapping[str, Any]", message)) if isinstance(message, Mapping) else {}
        role, name = fields.get("role"), f"messages[{place}]"
        if not isinstance(role, str) or not _has_content(fields):
            raise ValueError(
                f"{name}: give a role and a text, as in"
                " {'role': 'user', 'content': 'I like tea.'}"
            )
        text = _join_text(fields.get("content"), f"{name}.content")
        if role != "system" and text.strip():
            turns.append((role, text, fields.get("name")))
    return turns


def _has_content(fields: Mapping[str, Any]) -> bool:
    """Whether a message has a content, or what stands in place of one."""
    content = fields.get("content")
    if content is None:
        return "content" in fields or not _IN_PLACE_OF_CONTENT.isdisjoint(fields)
    if isinstance(content, Mapping):  # mem0's form of a picture or a document
        return cast("Mapping[str, Any]", content).get("type") in _PARTS_WITHOUT_TEXT
    return isinstance(content, str | list)


def _join_text(content: object, name: str) -> str:
    """A message's text, also where it is in parts. Raises ValueError for a part that
    has no text and is of no kind that has none; it has the name of the content."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for place, part in enumerate(
        cast("list[object]", content) if isinstance(content, list) else []
    ):
        fields = dict(cast("Mapping[str, Any]", part)) if isinstance(part, Mapping) else {}
        text = fields.get("text")
        if isinstance(text, str):
            texts.append(text)
        elif fields.get("type") not in _PARTS_WITHOUT_TEXT:
            raise ValueError(
                f"{name}[{place}]: give a part with a text, as in"
                " {'type': 'text', 'text': 'I like tea.'}; parts without one are left out where"
                f" their type is of {', '.join(_PARTS_WITHOUT_TEXT)}"
            )
    return "\n".join(texts)


# Memories -----------------------------------------------------------------------------------------


def make_item(note: Mapping[str, Any], text: str, moment: datetime) -> dict[str, Any]:
    """A memory as mem0 gives it, of an event's note, its text and its time."""
    time = moment.astimezone(timezone.utc).isoformat()
    item: dict[str, Any] = {
        "id": note["id"],
        "memory": text,
        "hash": hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
        "metadata": note.get("metadata") or None,
        "created_at": note.get("created_at") or time,
        "updated_at": note.get("updated_at") or time,
    }
    return item | {name: note[name] for name in FIELDS_BESIDE_TEXT if note.get(name) is not None}


def is_expired(item: Mapping[str, Any], today: date | None = None) -> bool:
    """Whether a memory's last day is over."""
    last = item.get("expiration_date")
    return bool(last) and str(last) < (today or datetime.now(timezone.utc).date()).isoformat()


# Filters ------------------------------------------------------------------------------------------


def matches_filters(item: Mapping[str, Any], filters: Filters) -> bool:
    """Whether a memory is one that the filters ask for. Raises ValueError for an unknown
    operator."""
    return all(_matches_one(item, name, condition) for name, condition in filters.items())


def _matches_one(item: Mapping[str, Any], name: str, condition: Any) -> bool:
    if name in ("AND", "OR", "NOT"):
        results = [matches_filters(item, one) for one in _list_conditions(name, condition)]
        if name == "AND":
            return all(results)
        return any(results) if name == "OR" else not any(results)
    metadata: Mapping[str, Any] = item.get("metadata") or {}
    value = item[name] if name in item else metadata.get(name)
    if isinstance(condition, Mapping):
        operators = cast("Mapping[str, Any]", condition)
        return all(_compare(value, sign, operand) for sign, operand in operators.items())
    if condition == "*":
        return value is not None
    return bool(value == condition)


def _list_conditions(name: str, condition: object) -> Iterable[Filters]:
    conditions = cast("list[Any]", condition) if isinstance(condition, list) else []
    if not conditions or not all(isinstance(one, Mapping) for one in conditions):
        raise ValueError(f"{name} operator requires a non-empty list of conditions")
    return conditions


def _compare(value: Any, sign: str, operand: Any) -> bool:
    if sign in ("eq", "ne"):
        return bool(value == operand) is (sign == "eq")
    if sign in ("in", "nin"):
        return (value in operand) is (sign == "in")
    if sign in ("contains", "icontains"):
        if not isinstance(value, str):
            return isinstance(value, list) and operand in cast("list[Any]", value)
        if sign == "icontains":
            return str(operand).casefold() in value.casefold()
        return str(operand) in value
    if sign not in _ORDER:
        raise ValueError(f"Unsupported metadata filter operator: {sign}")
    try:
        return value is not None and bool(_ORDER[sign](value, operand))
    except TypeError:
        return False
