"""The toolset `memory`: store events, and ask what is known."""

from collections.abc import Mapping
from typing import Any

from strandline.aws.blobs import is_text
from strandline.context.fence import sanitize_to_one_line
from strandline.mcp.answer_size import (
    MAX_TOKENS,
    TEXT_CHARS,
    ask_for_fitting_page,
    count_fitting_chars,
    count_tokens,
    cut_texts,
    fits,
)
from strandline.mcp.argument_schemas import Schema, choice, number, text, texts, whole
from strandline.mcp.arguments import Arguments, pick
from strandline.mcp.rendering import (
    citations_note,
    escape_json,
    event_line,
    fence_json,
    fence_lines,
    hit_line,
    limits_note,
    pending_note,
    sanitize_name,
)
from strandline.mcp.tool_types import Tool, ToolContext

MAX_TEXT_BYTES = 1024 * 1024
"""Of a payload, what of its text is shown; the whole is downloaded."""
_DEFAULT_BUDGET, _MIN_BUDGET = 1000, 100
_LINE_TOKENS = 400
"""Left free for what stands around a piece of a text."""
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


def recall(context: ToolContext, arguments: Arguments) -> str:
    """Search events by meaning and words."""
    body = pick(arguments, "query", "limit", "expand", "as_of", "sona", *_FILTERS)
    body |= weights_of(arguments) | context.get_read_participants(arguments)
    answer = context.operations.call("POST /api/v1/recall", body)
    if arguments.get("format") == "json":
        return fence_json(answer, _WHOLE_TEXT)
    lines = [hit_line(hit) for hit in answer["hits"]]
    return (
        (fence_lines(lines, _WEAKER) if lines else _NOTHING)
        + limits_note(answer["degraded"])
        + pending_note(answer["not_yet_embedded"])
    )


def weights_of(arguments: Arguments) -> dict[str, Any]:
    """The field with the weights of what else may order the events; none where none is given."""
    weights = pick(arguments, **_WEIGHTS)
    return {"weights": weights} if weights else {}


def get_context(context: ToolContext, arguments: Arguments) -> str:
    """Memory for a prompt, as one block of text."""
    body = pick(arguments, "query", "budget", "session_id", "expand", "as_of")
    return _ask_for_block(
        context,
        "POST /api/v1/context",
        body | context.get_read_participants(arguments),
        is_json=arguments.get("format") == "json",
    )


def _ask_for_block(
    context: ToolContext, operation: str, body: dict[str, Any], *, is_json: bool
) -> str:
    """A block with a budget, in JSON or as text; a second time with a smaller budget where the
    first answer is too long."""
    answer = context.operations.call(operation, body)
    if is_json:
        return fence_json(answer, "A smaller `budget` gives a whole answer.")
    block = _write_block(answer)
    tokens, note = count_tokens(block), ""
    if tokens > MAX_TOKENS:
        budget = int(body.get("budget", _DEFAULT_BUDGET) * 0.9 * MAX_TOKENS / tokens)
        budget = max(_MIN_BUDGET, budget)
        block = _write_block(context.operations.call(operation, {**body, "budget": budget}))
        note = f"\nCut to a budget of {budget:,}. Ask about a part to see more of it."
    return block + note


def _write_block(answer: dict[str, Any]) -> str:
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


def read_event(context: ToolContext, arguments: Arguments) -> str:
    """The text of one event or of its payload, from a character on."""
    readers = context.get_read_participants(arguments)
    path = {"event_id": arguments["event_id"]}
    event = context.operations.call("GET /api/v1/events/{event_id}", path=path, query=readers)
    whole_text, note = event["content"] or "", ""
    if event["blob"]:
        path = {"cid": event["blob"]["cid"]}
        file = context.operations.call("GET /file/{cid}", path=path, query=readers)
        whole_text, note = read_payload(context, file)
    start = max(0, arguments.get("from", 0))
    rest = whole_text[start:]
    length = count_fitting_chars(rest, MAX_TOKENS - _LINE_TOKENS)
    lines = [sanitize_to_one_line(line) for line in rest[:length].splitlines()]
    head = event_line({**event, "content": ""})
    more = f"\nMore: from={start + length} of {len(whole_text)}" if length < len(rest) else ""
    return fence_lines([head, *(line for line in lines if line)]) + more + note


def read_payload(context: ToolContext, file: Mapping[str, Any]) -> tuple[str, str]:
    """The text of a payload, up to 1 MiB, and a note with the address of the whole where that is
    not all of it."""
    address = f"\nThe whole file, {file['size']} bytes: {file['url']}"
    if not is_text(file["mime_type"]):
        return "", address
    blobs = context.operations.request.resources.blobs
    content = blobs.read_text_prefix(context.principal.tenant, file["cid"], MAX_TEXT_BYTES)
    return content, address if file["size"] > MAX_TEXT_BYTES else ""


def query_event_nodes(context: ToolContext, arguments: Arguments) -> str:
    """Read raw events."""
    body = pick(arguments, "text", "mode", "cursor", *_FILTERS)
    body |= context.get_read_participants(arguments)

    def ask(limit: int) -> Any:
        return context.operations.call("POST /api/v1/events/query", {**body, "limit": limit})

    is_json = arguments.get("format") == "json"
    page, lines = ask_for_fitting_page(
        ask, _write_as_json if is_json else _write_event_lines, arguments.get("limit", 20)
    )
    more = f"\nMore: cursor={page['next_cursor']}" if page["next_cursor"] else ""
    if is_json:
        return fence_json(page, _WHOLE_TEXT) + more
    return (fence_lines(lines, _WHOLE_TEXT) if lines else _NOTHING) + more


def _write_as_json(page: Any) -> list[str]:
    """The page with its texts cut to a length that is worth a page of its own."""
    line = escape_json(page)
    return [line if fits(line) else escape_json(cut_texts(page, TEXT_CHARS[0]))]


def _write_event_lines(page: Any) -> list[str]:
    lines = list[str]()
    for scope in page["scopes"]:
        lines.append(f"Among {', '.join(sanitize_name(name) for name in scope['participants'])}:")
        lines += [event_line(event) for event in scope["events"]]
    return lines


def query_references(context: ToolContext, arguments: Arguments) -> str:
    """Walk the topic index."""
    body = pick(arguments, "query", "budget", "limit") | context.get_read_participants(arguments)
    is_json = arguments.get("format") == "json"
    body["format"] = "json" if is_json else "text"
    return _ask_for_block(context, "POST /api/v1/references/query", body, is_json=is_json)


PARTICIPANTS = texts('Whose memory, as in ["user:alice"]. Default: the connection\'s.')
AUTHORS = texts('Who took part, as in ["user:alice", "agent:helper"]. Default: the connection\'s.')
SPEAKER = text(
    "Whose words these are, as in user:alice. Leave it out for your own, and what you concluded."
)
FORMAT = choice("text (default), or json: the whole answer of the API.", "text", "json")
SESSION = text("The id of one conversation.")
SONA = text("A persona's id or name.")
WEIGHTS: dict[str, Schema] = {
    "sona": SONA,
    "sona_weight": number("0 to 1: prefer what belongs to `sona`."),
}
_READ: dict[str, Schema] = {"participants": PARTICIPANTS, "format": FORMAT}
_EXPAND = whole("0 to 50: also this many events that the best ones are linked to.")
_TIMES: dict[str, Schema] = {
    "session_id": SESSION,
    "role": choice("Only what was said in this role.", "user", "agent", "system"),
    "since": text("From this time on, as in 2026-05-08T00:00:00Z."),
    "until": text("Before this time."),
}
_AS_OF = text("Answer as of this time, without what came later, as in 2026-05-08T00:00:00Z.")
_BUDGET = whole("Tokens of the answer, 100 to 8000.")
EVENT_KEY = text("Your own key: the same key is stored once, however often it is sent.")
_EVENT: dict[str, Schema] = {
    "content": text("The text, word for word."),
    "speaker": SPEAKER,
    "role": choice("Follows from `speaker`; leave it out.", "user", "agent"),
    "type": choice(
        "message (default), or what you thought, did, or got from a tool.",
        *("message", "thought", "action", "observation"),
    ),
    "participants": AUTHORS,
    "session_id": SESSION,
    "occurred_at": text("When it happened, if not now, as in 2026-05-08T13:56:00Z."),
    "event_key": EVENT_KEY,
}
_FIELD_NAMES = {"source_event_key": "event_key"} | {f"weights.{n}": a for n, a in _WEIGHTS.items()}

TOOLS = (
    Tool(
        "memory_context",
        "Call it first. What memory holds for the task at hand, as one block: recent events, known "
        "facts, topics, and events that answer `query`.",
        ("read",),
        get_context,
        {
            "query": text("The task or the question, in a sentence."),
            "budget": _BUDGET,
            "session_id": SESSION,
            "expand": _EXPAND,
            "as_of": _AS_OF,
            **_READ,
        },
    ),
    Tool(
        "memory_recall",
        "For one concrete question: the past events that answer it, best first, with their ids. "
        "Before you say that something is not known.",
        ("read",),
        recall,
        {
            "query": text("The question, in a sentence."),
            "limit": whole("How many events, 1 to 100 (default 10)."),
            "expand": _EXPAND,
            "as_of": _AS_OF,
            **_TIMES,
            **WEIGHTS,
            "recency_weight": number("0 to 1: prefer what is new."),
            "importance_weight": number("0 to 1: prefer what is used often."),
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
        add,
        _EVENT,
        ("content",),
        is_read_only=False,
        field_names=_FIELD_NAMES,
    ),
    Tool(
        "memory_insert",
        "As memory_add, for what builds on or corrects earlier memory: it is linked to what is "
        "known about it.",
        ("write", "read"),
        insert,
        _EVENT,
        ("content",),
        is_read_only=False,
        field_names=_FIELD_NAMES,
    ),
    Tool(
        "memory_read",
        "The whole text of one event or its file, in pieces: where another tool cut it (…).",
        ("read",),
        read_event,
        {
            "event_id": text("The event's id, from another tool's answer."),
            "from": whole("The character to begin at (default 0)."),
            "participants": PARTICIPANTS,
        },
        ("event_id",),
    ),
    Tool(
        "memory_query_event_nodes",
        "Raw events in pages, newest first: for exact wording, a time, or a whole session. To "
        "answer a question use memory_recall.",
        ("read",),
        query_event_nodes,
        {
            "text": text("Words that occur, or with mode=exact a part of the text."),
            "mode": choice("words (default), or exact.", "words", "exact"),
            **_TIMES,
            "limit": whole("Events of a page (default 20)."),
            "cursor": text("From the page before."),
            **_READ,
        },
    ),
    Tool(
        "memory_query_references",
        "An outline from topics down to the events they rest on: for an overview, or a question "
        "over a long time.",
        ("read",),
        query_references,
        {
            "query": text("The question; without it an outline of all."),
            "budget": _BUDGET,
            "limit": whole("The most events, 1 to 100."),
            **_READ,
        },
    ),
)
