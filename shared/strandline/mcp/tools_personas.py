"""The toolset `personas`: answers of the service's own language model, and the threads of sonas."""

from typing import Any

from strandline.context.fence import sanitize
from strandline.mcp.rendering import act_line, citations_note, event_line, fence_lines, limits_note
from strandline.mcp.tool_types import (
    NUMBER,
    TEXT,
    TEXTS,
    WHOLE,
    Arguments,
    Tool,
    ToolContext,
    WrongArgument,
    pick,
)

_ACTS = "/api/v1/sonas/{uuid}/acts"


def query(context: ToolContext, arguments: Arguments) -> str:
    """Answer a question from memory, or show the answer that a turn has by now."""
    readers = context.get_read_participants(arguments)
    if "turn_id" in arguments:
        path = {"turn_id": arguments["turn_id"]}
        return _show(
            context.operations.call("GET /api/v1/turns/{turn_id}", path=path, query=readers)
        )
    if "query" not in arguments:
        raise WrongArgument("query: is required, or turn_id")
    body = pick(arguments, "query", "sona") | _weights(arguments)
    return _show(context.operations.call("POST /api/v1/query", body | readers))


def chat(context: ToolContext, arguments: Arguments) -> str:
    """Store a message, and the model's reply to it."""
    body = pick(arguments, "message", "session_id", "sona", "speaker")
    body |= context.get_write_participants(arguments) | _weights(arguments)
    return _show(context.operations.call("POST /api/v1/chat", body, key=arguments.get("event_key")))


def _weights(arguments: Arguments) -> dict[str, Any]:
    """The field of the weight that a sona has in what is recalled."""
    weight = arguments.get("sona_weight")
    return {} if weight is None else {"weights": {"sona": weight}}


def _show(turn: dict[str, Any]) -> str:
    """A turn as text: what the model says is data too, since it rests on stored text."""
    events = "".join(
        f"\n{name} is event {turn[part]}."
        for name, part in (("The message", "input_id"), ("The answer", "answer_id"))
        if turn[part]
    )
    if turn["state"] == "waiting":
        return f"It takes longer. Call `query` with turn_id={turn['turn_id']} in a while.{events}"
    if turn["state"] == "failed":
        return f"The language model gave no answer ({turn['reason']}).{events}"
    text = fence_lines([sanitize(line) for line in turn["text"].splitlines() if line.strip()])
    return text + citations_note(turn["citations"]) + events + limits_note(turn["degraded"])


def push_act(context: ToolContext, arguments: Arguments) -> str:
    """Continue a sona's thread."""
    body = pick(arguments, "event_id", "after")
    act = context.operations.call(f"POST {_ACTS}", body, path={"uuid": arguments["sona"]})
    return f"Pushed as act {act['act_id']}."


def next_act(context: ToolContext, arguments: Arguments) -> str:
    """The act after another one, with its event."""
    readers = context.get_read_participants(arguments)
    after = {"after": [arguments["after"]]} if "after" in arguments else {}
    path = {"uuid": arguments["sona"]}
    answer = context.operations.call(f"GET {_ACTS}/next", path=path, query=readers | after)
    act = answer["act"]
    if act is None:
        return f"No act follows in view. Head: {answer['head']}."
    event = context.operations.call(
        "GET /api/v1/events/{event_id}", path={"event_id": act["event_id"]}, query=readers
    )
    return fence_lines([act_line(act), event_line(event)])


def stream_acts(context: ToolContext, arguments: Arguments) -> str:
    """The acts after a cursor."""
    fields = pick(arguments, "cursor", "wait", "limit")
    path, options = {"uuid": arguments["sona"]}, {name: [str(fields[name])] for name in fields}
    page = context.operations.call(
        f"GET {_ACTS}", path=path, query=context.get_read_participants(arguments) | options
    )
    lines = [act_line(act) for act in page["acts"]]
    text = fence_lines(lines) if lines else "No further act."
    if seconds := page["retry_after"]:
        text = f"{text} Too many requests wait already: call again in {seconds} s."
    return f"{text}\nHead: {page['head']}. Go on with cursor={page['cursor']}"


_SONA = {"sona": TEXT}
_WEIGHED_SONA = {**_SONA, "sona_weight": NUMBER}

TOOLS = (
    Tool(
        "query",
        "Have the service's model answer from memory. `turn_id`: fetch a late answer.",
        ("read",),
        query,
        {"query": TEXT, **_WEIGHED_SONA, "turn_id": TEXT, "participants": TEXTS},
    ),
    Tool(
        "chat",
        "Store a message and the reply of the service's model.",
        ("write", "read"),
        chat,
        {
            "message": TEXT,
            "participants": TEXTS,
            **_WEIGHED_SONA,
            "session_id": TEXT,
            "speaker": TEXT,
            "event_key": TEXT,
        },
        ("message",),
        is_read_only=False,
    ),
    Tool(
        "act_push",
        "Continue a sona's thread after its head, by an event.",
        ("write",),
        push_act,
        {**_SONA, "event_id": TEXT, "after": TEXT},
        ("sona", "event_id"),
        is_read_only=False,
    ),
    Tool(
        "act_next",
        "The act after another, or the first.",
        ("read",),
        next_act,
        {**_SONA, "after": TEXT, "participants": TEXTS},
        ("sona",),
    ),
    Tool(
        "act_stream",
        "The acts after `cursor`; waits `wait` seconds for one.",
        ("read",),
        stream_acts,
        {**_SONA, "cursor": TEXT, "wait": WHOLE, "limit": WHOLE, "participants": TEXTS},
        ("sona",),
    ),
)
