"""The toolset `memory`: store events, and ask what is known."""

from typing import Any

from strandline.mcp.rendering import (
    citations_note,
    event_line,
    fence_json,
    fence_lines,
    hit_line,
    limits_note,
    sanitize_name,
)
from strandline.mcp.tool_types import (
    TEXT,
    TEXTS,
    WHOLE,
    Arguments,
    Schema,
    Tool,
    ToolContext,
    choice,
    pick,
)

FORMAT = choice("text", "json")
_ROLE = choice("user", "agent", "system")
_OWN_ROLE = choice("user", "agent")
_FILTERS = ("session_id", "role", "since", "until")
_EVENT_FIELDS = ("content", "type", "session_id", "occurred_at")
_NOTHING = "Nothing is known about this. Try other words, a longer time or other participants."


def recall(context: ToolContext, arguments: Arguments) -> str:
    """Search events by meaning and words."""
    body = pick(arguments, "query", "limit", *_FILTERS) | context.get_read_participants(arguments)
    answer = context.operations.call("POST /api/v1/recall", body)
    if arguments.get("format") == "json":
        return fence_json(answer)
    lines = [hit_line(hit) for hit in answer["hits"]]
    return (fence_lines(lines) if lines else _NOTHING) + limits_note(answer["degraded"])


def get_context(context: ToolContext, arguments: Arguments) -> str:
    """Memory for a prompt, as one block of text."""
    body = pick(arguments, "query", "budget", "session_id") | context.get_read_participants(
        arguments
    )
    answer = context.operations.call("POST /api/v1/context", body)
    if arguments.get("format") == "json":
        return fence_json(answer)
    return answer["text"] + citations_note(answer["citations"]) + limits_note(answer["degraded"])


def _post_event(operation: str, context: ToolContext, arguments: Arguments) -> dict[str, Any]:
    event = pick(arguments, *_EVENT_FIELDS, source_event_key="event_key")
    return context.operations.call(operation, event | context.get_author(arguments))


def add(context: ToolContext, arguments: Arguments) -> str:
    """Append an event."""
    receipt = _post_event("POST /api/v1/events", context, arguments)
    return f"Stored as event {receipt['event_id']}, cid {receipt['cid']}."


def insert(context: ToolContext, arguments: Arguments) -> str:
    """Append an event that is linked to what is known."""
    receipt = _post_event("POST /api/v1/insert", context, arguments)
    links = ", ".join(edge["event_id"] for edge in receipt["edges"]) or "no event"
    return (
        f"Stored as event {receipt['event_id']}, cid {receipt['cid']}. Linked to {links}."
        f"{limits_note(receipt['degraded'])}"
    )


def query_event_nodes(context: ToolContext, arguments: Arguments) -> str:
    """Read raw events."""
    body = {"limit": 20, **pick(arguments, "text", "mode", "limit", "cursor", *_FILTERS)}
    answer = context.operations.call(
        "POST /api/v1/events/query", body | context.get_read_participants(arguments)
    )
    if arguments.get("format") == "json":
        return fence_json(answer)
    lines = list[str]()
    for scope in answer["scopes"]:
        lines.append(f"Among {', '.join(sanitize_name(name) for name in scope['participants'])}:")
        lines += [event_line(event) for event in scope["events"]]
    cursor = answer["next_cursor"]
    return (fence_lines(lines) if lines else _NOTHING) + (f"\nMore: cursor={cursor}" * bool(cursor))


def query_references(context: ToolContext, arguments: Arguments) -> str:
    """Walk the topic index."""
    body = pick(arguments, "query", "budget", "limit") | context.get_read_participants(arguments)
    is_json = arguments.get("format") == "json"
    answer = context.operations.call(
        "POST /api/v1/references/query", {**body, "format": "json" if is_json else "text"}
    )
    if is_json:
        return fence_json(answer)
    return answer["text"] + citations_note(answer["citations"]) + limits_note(answer["degraded"])


_READ: dict[str, Schema] = {"participants": TEXTS, "format": FORMAT}
_EVENT: dict[str, Schema] = {
    "content": TEXT,
    "role": _OWN_ROLE,
    "type": choice("message", "thought", "action", "observation"),
    "participants": TEXTS,
    "speaker": TEXT,
    "session_id": TEXT,
    "occurred_at": TEXT,
    "event_key": TEXT,
}
_TIMES: dict[str, Schema] = {"session_id": TEXT, "role": _ROLE, "since": TEXT, "until": TEXT}

TOOLS = (
    Tool(
        "context",
        "What memory holds for the task at hand, as one block: recent events, facts, topics, and "
        "events that answer `query`. Call it first; `budget` is in tokens.",
        ("read",),
        get_context,
        {"query": TEXT, "budget": WHOLE, "session_id": TEXT, **_READ},
    ),
    Tool(
        "recall",
        "Past events that answer one concrete question, best first. Times are RFC 3339.",
        ("read",),
        recall,
        {"query": TEXT, "limit": WHOLE, **_TIMES, **_READ},
        ("query",),
    ),
    Tool(
        "add",
        "Store what was said, done or noticed, word for word, as yours; with speaker user:NAME as "
        "what that user said. The same `event_key` is stored once.",
        ("write",),
        add,
        _EVENT,
        ("content",),
        is_read_only=False,
    ),
    Tool(
        "insert",
        "As `add`, and link the event to what is known about it. For what builds on earlier "
        "memory.",
        ("write", "read"),
        insert,
        _EVENT,
        ("content",),
        is_read_only=False,
    ),
    Tool(
        "query_event_nodes",
        "Raw events, newest pages first, by words or an exact part of `text`, time, role or "
        "session. For the exact wording, or a whole session.",
        ("read",),
        query_event_nodes,
        {
            "text": TEXT,
            "mode": choice("words", "exact"),
            **_TIMES,
            "limit": WHOLE,
            "cursor": TEXT,
            **_READ,
        },
    ),
    Tool(
        "query_references",
        "An outline from topics down to the events they rest on. For an overview, or a question "
        "over a long time.",
        ("read",),
        query_references,
        {"query": TEXT, "budget": WHOLE, "limit": WHOLE, **_READ},
    ),
)
