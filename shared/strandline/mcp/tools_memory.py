"""The toolset `memory`: store events, and ask what is known."""

from typing import Any

from strandline.mcp.answer_size import (
    MAX_TOKENS,
    TEXT_CHARS,
    count_tokens,
    cut_texts_in_json,
    fetch_page_that_fits,
    fits_token_limit,
)
from strandline.mcp.argument_schemas import (
    Schema,
    boolean_schema,
    choice_schema,
    integer_schema,
    number_schema,
    text_list_schema,
    text_schema,
)
from strandline.mcp.arguments import Arguments, pick_arguments
from strandline.mcp.event_texts import read_event_text
from strandline.mcp.rendering import (
    citations_note,
    dump_escaped_json,
    event_line,
    fence_json,
    fence_lines,
    hit_line,
    limits_note,
    pending_note,
    sanitize_name,
)
from strandline.mcp.tool_types import Tool, ToolContext

_DEFAULT_BUDGET, _MIN_BUDGET = 1000, 100
_FILTERS = ("session_id", "role", "since", "until")
_EVENT_FIELDS = ("content", "type", "session_id", "occurred_at")
_WEIGHTS = {"sona": "sona_weight", "recency": "recency_weight", "importance": "importance_weight"}
_NOTHING = "Nothing is known about this. Try other words, a longer time or other participants."
_WHOLE_TEXT = (
    "A smaller `limit` cuts less; memory_read with an event_id gives the whole text of one event."
)
_WEAKER = (
    "They answer less well. To see others, narrow the question, or set since, until or session_id."
)


def recall_events(context: ToolContext, arguments: Arguments) -> str:
    """Search events by meaning and words."""
    body = pick_arguments(arguments, "query", "limit", "sona", *_ASKED, *_FILTERS)
    body |= make_ranking_weights(arguments) | context.make_read_participants(arguments)
    answer = context.operations.call("POST /api/v1/recall", body)
    if arguments.get("format") == "json":
        return fence_json(answer, _WHOLE_TEXT)
    lines = [hit_line(hit) for hit in answer["hits"]]
    return (
        (fence_lines(lines, _WEAKER) if lines else _NOTHING)
        + limits_note(answer["degraded"])
        + pending_note(answer["not_yet_embedded"])
    )


def make_ranking_weights(arguments: Arguments) -> dict[str, Any]:
    """The field with the weights of what else may order the events; none where none is given."""
    weights = pick_arguments(arguments, **_WEIGHTS)
    return {"weights": weights} if weights else {}


def get_context_text(context: ToolContext, arguments: Arguments) -> str:
    """Memory for a prompt, as one block of text."""
    body = pick_arguments(arguments, "query", "budget", "session_id", *_ASKED)
    return _get_block_within_tokens(
        context,
        "POST /api/v1/context",
        body | context.make_read_participants(arguments),
        is_json=arguments.get("format") == "json",
    )


def _get_block_within_tokens(
    context: ToolContext, operation: str, body: dict[str, Any], *, is_json: bool
) -> str:
    """A block with a budget, in JSON or as text; a second time with a smaller budget where the
    first answer is too long."""
    answer = context.operations.call(operation, body)
    if is_json:
        return fence_json(answer, "A smaller `budget` gives a whole answer.")
    block = _write_block_with_notes(answer)
    tokens, note = count_tokens(block), ""
    if tokens > MAX_TOKENS:
        budget = int(body.get("budget", _DEFAULT_BUDGET) * 0.9 * MAX_TOKENS / tokens)
        budget = max(_MIN_BUDGET, budget)
        block = _write_block_with_notes(
            context.operations.call(operation, {**body, "budget": budget})
        )
        note = f"\nCut to a budget of {budget:,}. Ask about a part to see more of it."
    return block + note


def _write_block_with_notes(answer: dict[str, Any]) -> str:
    return answer["text"] + citations_note(answer["citations"]) + limits_note(answer["degraded"])


def _post_event(operation: str, context: ToolContext, arguments: Arguments) -> dict[str, Any]:
    event = pick_arguments(arguments, *_EVENT_FIELDS, source_event_key="event_key")
    return context.operations.call(
        operation, event | context.make_participants_and_speaker(arguments)
    )


def append_event(context: ToolContext, arguments: Arguments) -> str:
    """Append an event."""
    receipt = _post_event("POST /api/v1/events", context, arguments)
    return f"Stored as event {receipt['event_id']}, cid {receipt['cid']}."


def insert_linked_event(context: ToolContext, arguments: Arguments) -> str:
    """Append an event that is linked to what is known."""
    receipt = _post_event("POST /api/v1/insert", context, arguments)
    links = ", ".join(edge["event_id"] for edge in receipt["edges"]) or "no event"
    return (
        f"Stored as event {receipt['event_id']}, cid {receipt['cid']}. Linked to {links}."
        f"{limits_note(receipt['degraded'])}"
    )


def list_matching_events(context: ToolContext, arguments: Arguments) -> str:
    """Read raw events."""
    body = pick_arguments(arguments, "text", "mode", "cursor", *_FILTERS)
    body |= context.make_read_participants(arguments)

    def ask(limit: int) -> Any:
        return context.operations.call("POST /api/v1/events/query", {**body, "limit": limit})

    is_json = arguments.get("format") == "json"
    page, lines = fetch_page_that_fits(
        ask, _write_page_as_json if is_json else _write_event_lines, arguments.get("limit", 20)
    )
    more = f"\nMore: cursor={page['next_cursor']}" if page["next_cursor"] else ""
    if is_json:
        return fence_json(page, _WHOLE_TEXT) + more
    return (fence_lines(lines, _WHOLE_TEXT) if lines else _NOTHING) + more


def _write_page_as_json(page: Any) -> list[str]:
    """The page with its texts cut to a length that is worth a page of its own."""
    line = dump_escaped_json(page)
    return [
        line
        if fits_token_limit(line)
        else dump_escaped_json(cut_texts_in_json(page, TEXT_CHARS[0]))
    ]


def _write_event_lines(page: Any) -> list[str]:
    lines = list[str]()
    for scope in page["scopes"]:
        names = ", ".join(sanitize_name(name) for name in scope["participants"])
        lines.append(f"Among {names}, oldest first:")
        lines += [event_line(event) for event in scope["events"]]
    return lines


def walk_topic_index(context: ToolContext, arguments: Arguments) -> str:
    """Walk the topic index."""
    body = pick_arguments(arguments, "query", "budget", "limit")
    body |= context.make_read_participants(arguments)
    is_json = arguments.get("format") == "json"
    body["format"] = "json" if is_json else "text"
    return _get_block_within_tokens(context, "POST /api/v1/references/query", body, is_json=is_json)


PARTICIPANTS = text_list_schema('Whose memory, as in ["user:alice"].')
AUTHORS = text_list_schema('Who took part, as in ["user:alice", "agent:helper"].')
SPEAKER = text_schema(
    "Whose words these are, as in user:alice. Leave it out for your own, and what you concluded."
)
FORMAT = choice_schema("text (default), or json: the whole answer of the API.", "text", "json")
SESSION = text_schema("The id of one conversation.")
SONA = text_schema("A persona's id or name.")
WEIGHTS: dict[str, Schema] = {
    "sona": SONA,
    "sona_weight": number_schema("0 to 1: prefer what belongs to `sona`."),
}
_READ: dict[str, Schema] = {"participants": PARTICIPANTS, "format": FORMAT}
_TIMES: dict[str, Schema] = {
    "session_id": SESSION,
    "role": choice_schema("Only what was said in this role.", "user", "agent", "system"),
    "since": text_schema("From this time on, as in 2026-05-08T00:00:00Z."),
    "until": text_schema("Before this time."),
}
_ASKED: dict[str, Schema] = {
    "expand": integer_schema("0 to 50: also so many events that the best are linked to."),
    "as_of": text_schema("As of this time, as in 2026-05-08T00:00:00Z."),
    "breadth": boolean_schema("For lists, orders, summaries."),
}
_BUDGET = integer_schema("Tokens of the answer, 100 to 8000.")
EVENT_KEY = text_schema("Your own key: the same key is stored once, however often it is sent.")
_EVENT: dict[str, Schema] = {
    "content": text_schema("The text, word for word."),
    "speaker": SPEAKER,
    "type": choice_schema(
        "message (default), or what you thought, did, or got from a tool.",
        *("message", "thought", "action", "observation"),
    ),
    "participants": AUTHORS,
    "session_id": SESSION,
    "occurred_at": text_schema("When it happened, if not now, as in 2026-05-08T13:56:00Z."),
    "event_key": EVENT_KEY,
}
_ROLE = {"role": choice_schema("Follows from `speaker`.", "user", "agent")}
_FIELD_NAMES = {"source_event_key": "event_key"} | {f"weights.{n}": a for n, a in _WEIGHTS.items()}

TOOLS = (
    Tool(
        "memory_context",
        "Call it first. What memory holds for the task at hand, as one block: recent events, known "
        "facts, topics, and events that answer `query`.",
        ("read",),
        get_context_text,
        {
            "query": text_schema("The task or the question, in a sentence."),
            "budget": _BUDGET,
            "session_id": SESSION,
            **_ASKED,
            **_READ,
        },
    ),
    Tool(
        "memory_recall",
        "For one concrete question: the past events that answer it, best first, with their ids. "
        "Before you say that something is not known.",
        ("read",),
        recall_events,
        {
            "query": text_schema("The question, in a sentence."),
            "limit": integer_schema("How many events, 1 to 100 (default 10)."),
            **_ASKED,
            **_TIMES,
            **WEIGHTS,
            "recency_weight": number_schema("0 to 1: prefer what is new."),
            "importance_weight": number_schema("0 to 1: prefer what is used often."),
            **_READ,
        },
        ("query",),
        field_names=_FIELD_NAMES,
    ),
    Tool(
        "memory_add",
        "Store what will matter later, word for word. It counts as yours; with speaker user:NAME "
        "as what that user said.",
        ("write",),
        append_event,
        _EVENT,
        ("content",),
        is_read_only=False,
        unlisted=_ROLE,
        field_names=_FIELD_NAMES,
    ),
    Tool(
        "memory_insert",
        "As memory_add, for what builds on or corrects earlier memory: it is linked to what is "
        "known about it.",
        ("write", "read"),
        insert_linked_event,
        _EVENT,
        ("content",),
        is_read_only=False,
        unlisted=_ROLE,
        field_names=_FIELD_NAMES,
    ),
    Tool(
        "memory_read",
        "The whole text of one event or its file, in pieces: where another tool cut it (…).",
        ("read",),
        read_event_text,
        {
            "event_id": text_schema("The event's id, from another tool's answer."),
            "from": integer_schema("The character to begin at (default 0)."),
            "participants": PARTICIPANTS,
        },
        ("event_id",),
    ),
    Tool(
        "memory_query_event_nodes",
        "Raw events, newest page first: for exact wording, a time, or a whole session. To answer a "
        "question use memory_recall.",
        ("read",),
        list_matching_events,
        {
            "text": text_schema("Words that occur, or with mode=exact a part of the text."),
            "mode": choice_schema("words (default), or exact.", "words", "exact"),
            **_TIMES,
            "limit": integer_schema("Events of a page (default 20)."),
            "cursor": text_schema("From the page before."),
            **_READ,
        },
    ),
    Tool(
        "memory_query_references",
        "An outline from topics down to the events they rest on: for an overview, or a question "
        "over a long time.",
        ("read",),
        walk_topic_index,
        {
            "query": text_schema("The question; without it an outline of all."),
            "budget": _BUDGET,
            "limit": integer_schema("The most events, 1 to 100."),
            **_READ,
        },
    ),
)
