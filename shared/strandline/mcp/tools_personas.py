"""The toolset `personas`: answers of the service's own language model, and the threads of sonas."""

from typing import Any

from strandline.context.fence import sanitize_to_one_line
from strandline.mcp.answer_size import fetch_page_that_fits
from strandline.mcp.argument_schemas import integer_schema, text_schema
from strandline.mcp.arguments import Arguments, WrongArgument, pick_arguments
from strandline.mcp.rendering import act_line, citations_note, event_line, fence_lines, limits_note
from strandline.mcp.tool_types import Tool, ToolContext
from strandline.mcp.tools_memory import (
    AUTHORS,
    EVENT_KEY,
    PARTICIPANTS,
    SESSION,
    WEIGHTS,
    make_ranking_weights,
)

_ACTS = "/api/v1/sonas/{uuid}/acts"


def answer_query_or_show_turn(context: ToolContext, arguments: Arguments) -> str:
    """Answer a question from memory, or show the answer that a turn has by now."""
    readers = context.make_read_participants(arguments)
    if "turn_id" in arguments:
        path = {"turn_id": arguments["turn_id"]}
        return _write_turn_as_text(
            context.operations.call("GET /api/v1/turns/{turn_id}", path=path, query=readers)
        )
    if "query" not in arguments:
        raise WrongArgument("query is missing, or turn_id")
    body = pick_arguments(arguments, "query", "sona") | make_ranking_weights(arguments)
    return _write_turn_as_text(context.operations.call("POST /api/v1/query", body | readers))


def store_message_and_reply(context: ToolContext, arguments: Arguments) -> str:
    """Store a message, and the model's reply to it."""
    body = pick_arguments(arguments, "message", "session_id", "sona", "speaker", "reply_as")
    body |= context.require_write_participants(arguments) | make_ranking_weights(arguments)
    return _write_turn_as_text(
        context.operations.call("POST /api/v1/chat", body, key=arguments.get("event_key"))
    )


def _write_turn_as_text(turn: dict[str, Any]) -> str:
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
    block = fence_lines(
        [sanitize_to_one_line(line) for line in turn["text"].splitlines() if line.strip()]
    )
    return block + citations_note(turn["citations"]) + events + limits_note(turn["degraded"])


def continue_sona_thread(context: ToolContext, arguments: Arguments) -> str:
    """Continue a sona's thread."""
    body = pick_arguments(arguments, "event_id", "after")
    act = context.operations.call(f"POST {_ACTS}", body, path={"uuid": arguments["sona"]})
    return f"Pushed as act {act['act_id']}."


def get_next_act(context: ToolContext, arguments: Arguments) -> str:
    """The act after another one, with its event."""
    readers = context.make_read_participants(arguments)
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


def list_acts_after_cursor(context: ToolContext, arguments: Arguments) -> str:
    """The acts after a cursor."""
    path, fields = {"uuid": arguments["sona"]}, pick_arguments(arguments, "cursor", "wait")
    query = {name: [str(fields[name])] for name in fields}
    query |= context.make_read_participants(arguments)

    def ask(limit: int) -> Any:
        return context.operations.call(
            f"GET {_ACTS}", path=path, query={**query, "limit": [str(limit)]}
        )

    page, lines = fetch_page_that_fits(
        ask, lambda page: [act_line(act) for act in page["acts"]], arguments.get("limit", 50)
    )
    block = fence_lines(lines) if lines else "No further act."
    if seconds := page["retry_after"]:
        block = f"{block} Too many requests wait already: call again in {seconds} s."
    return f"{block}\nHead: {page['head']}. Go on with cursor={page['cursor']}"


_THREAD = {"sona": text_schema("The persona's id.")}
_FIELD_NAMES = {"weights.sona": "sona_weight"}

TOOLS = (
    Tool(
        "memory_query",
        "Have the service's own model answer a question from memory. To read memory yourself use "
        "memory_recall.",
        ("read",),
        answer_query_or_show_turn,
        {
            "query": text_schema("The question, in a sentence."),
            **WEIGHTS,
            "turn_id": text_schema("Instead of `query`: fetch an answer that came late."),
            "participants": PARTICIPANTS,
        },
        field_names=_FIELD_NAMES,
    ),
    Tool(
        "memory_chat",
        "Store what a user says, and have the service's own model reply to it from memory.",
        ("write", "read"),
        store_message_and_reply,
        {
            "message": text_schema("What the user says."),
            "participants": AUTHORS,
            "reply_as": text_schema("The agent that replies, where several take part."),
            "speaker": text_schema("The user who says it, where several take part."),
            **WEIGHTS,
            "session_id": SESSION,
            "event_key": EVENT_KEY,
        },
        ("message",),
        is_read_only=False,
        field_names=_FIELD_NAMES,
    ),
    Tool(
        "memory_act_push",
        "Continue a persona's thread after its head, by an event.",
        ("write",),
        continue_sona_thread,
        {
            **_THREAD,
            "event_id": text_schema("The event that is the next step."),
            "after": text_schema("The head's act id; leave it out for the first."),
        },
        ("sona", "event_id"),
        is_read_only=False,
    ),
    Tool(
        "memory_act_next",
        "The step of a persona's thread after another one, or the first.",
        ("read",),
        get_next_act,
        {
            **_THREAD,
            "after": text_schema("The act id of the step before."),
            "participants": PARTICIPANTS,
        },
        ("sona",),
    ),
    Tool(
        "memory_act_stream",
        "The steps of a persona's thread after `cursor`; waits for one.",
        ("read",),
        list_acts_after_cursor,
        {
            **_THREAD,
            "cursor": text_schema("From the answer before."),
            "wait": integer_schema("Seconds to wait for a step, 0 to 20."),
            "limit": integer_schema("The most steps (default 50)."),
            "participants": PARTICIPANTS,
        },
        ("sona",),
    ),
)
