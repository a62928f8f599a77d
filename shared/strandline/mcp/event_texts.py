"""The text of an event or of its payload, in pieces."""

from collections.abc import Mapping
from typing import Any

from strandline.aws.payload_texts import is_text_type
from strandline.context.fence import sanitize_to_one_line
from strandline.mcp.answer_size import MAX_TOKENS, count_fitting_chars
from strandline.mcp.arguments import Arguments, WrongArgument
from strandline.mcp.rendering import event_line, fence_lines
from strandline.mcp.tool_types import ToolContext

MAX_TEXT_BYTES = 1024 * 1024
"""Of a payload, what of its text is shown; the whole is downloaded."""
_LINE_TOKENS = 400
"""Left free for what stands around a piece of a text."""


def read_event_text(context: ToolContext, arguments: Arguments) -> str:
    """The text of one event or of its payload, from a character on. Raises WrongArgument."""
    readers = context.make_read_participants(arguments)
    path = {"event_id": arguments["event_id"]}
    event = context.operations.call("GET /api/v1/events/{event_id}", path=path, query=readers)
    whole_text, note = event["content"] or "", ""
    if event["blob"]:
        path = {"cid": event["blob"]["cid"]}
        file = context.operations.call("GET /file/{cid}", path=path, query=readers)
        whole_text, note = read_payload_text(context, file)
    start = max(0, arguments.get("from", 0))
    if start and start >= len(whole_text):
        raise WrongArgument(f"from: the text ends at {len(whole_text)}; give a smaller number")
    rest = whole_text[start:]
    length = count_fitting_chars(rest, MAX_TOKENS - _LINE_TOKENS)
    lines = [_sanitize_indented_line(line) for line in rest[:length].splitlines()]
    head = event_line({**event, "content": ""})
    more = f"\nMore: from={start + length} of {len(whole_text)}" if length < len(rest) else ""
    return fence_lines([head, *lines]) + more + note


def _sanitize_indented_line(line: str) -> str:
    """A line with its indentation: code and lists mean something else without it."""
    indentation = line[: len(line) - len(line.lstrip(" \t"))]
    return (indentation + sanitize_to_one_line(line)).rstrip()


def read_payload_text(context: ToolContext, file: Mapping[str, Any]) -> tuple[str, str]:
    """The text of a payload, up to 1 MiB, and a note with the address of the whole where that is
    not all of it."""
    address = f"\nThe whole file, {file['size']} bytes: {file['url']}"
    if not is_text_type(file["mime_type"]):
        return "", address
    blobs = context.operations.request.resources.blobs
    content = blobs.read_text_prefix(
        context.principal.tenant, file["cid"], MAX_TEXT_BYTES, file["mime_type"]
    )
    return content, address if file["size"] > MAX_TEXT_BYTES else ""
