"""Resources: events, blocks and payloads by their content ids, sonas, and the newest memory."""

import base64
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from strandline.aws.payload_texts import is_text_type
from strandline.config import McpToolset
from strandline.mcp.answer_size import MAX_TOKENS, count_fitting_chars, shorten_json_to_fit
from strandline.mcp.event_texts import read_payload_text
from strandline.mcp.rendering import dump_escaped_json
from strandline.mcp.tool_types import ToolContext
from strandline.mcp.tools_memory import get_context_text

_RECENT = "mie://context/recent"
_NOTE_TOKENS = 400
"""Left free for the note on where a text goes on."""
type ResourceContents = list[dict[str, Any]]
"""The contents, and what is said about them where they are cut."""


def read_recent_context(context: ToolContext, cid: str, start: int) -> ResourceContents:
    """The newest events and topics, as the block for a prompt."""
    del cid, start
    return [{"mimeType": "text/plain", "text": get_context_text(context, {})}]


def read_block_bytes(context: ToolContext, cid: str, start: int) -> ResourceContents:
    """The bytes of the block with this CID: the whole, whatever its size, as they are hashed."""
    del start
    data = context.operations.call_for_bytes(
        "GET /ipfs/{cid}", path={"cid": cid}, query=_make_participants_query(context)
    )
    blob = base64.b64encode(data).decode()
    return [{"mimeType": "application/vnd.ipld.raw", "blob": blob}]


def read_event_as_json(context: ToolContext, cid: str, start: int) -> ResourceContents:
    """An event as JSON."""
    del start
    event = context.operations.call(
        "GET /memory/{cid}", path={"cid": cid}, query=_make_participants_query(context)
    )
    return _make_json_contents(
        event, f"memory_read with event_id {event['event_id']} gives its text."
    )


def read_payload_text_or_address(context: ToolContext, cid: str, start: int) -> ResourceContents:
    """The text of a payload from a character on, as much as an answer may have; of one that is not
    text, the address to download it from."""
    readers = _make_participants_query(context)
    file = context.operations.call("GET /file/{cid}", path={"cid": cid}, query=readers)
    if not is_text_type(file["mime_type"]):
        return _make_json_contents(file, "")
    text, address = read_payload_text(context, file)
    rest = text[start:]
    length = count_fitting_chars(rest, MAX_TOKENS - _NOTE_TOKENS)
    contents = [{"mimeType": file["mime_type"], "text": rest[:length]}]
    notes = address.strip()
    if length < len(rest):
        more = f"memoria://file/{cid}?from={start + length}"
        notes = f"More, of {len(text)} characters: {more}\n{notes}".strip()
    return contents + ([{"mimeType": "text/plain", "text": notes}] if notes else [])


def read_sona_as_json(context: ToolContext, uuid: str, start: int) -> ResourceContents:
    """A sona as JSON."""
    del start
    sona = context.operations.call(
        "GET /sona/{uuid}", path={"uuid": uuid}, query=_make_participants_query(context)
    )
    return _make_json_contents(sona, "")


def _make_json_contents(value: object, rest: str) -> ResourceContents:
    text, note = shorten_json_to_fit(value, dump_escaped_json)
    contents = [{"mimeType": "application/json", "text": text}]
    return contents + ([{"mimeType": "text/plain", "text": f"Cut: {note}. {rest}"}] * bool(note))


def _make_participants_query(context: ToolContext) -> dict[str, list[str]]:
    return context.make_read_participants({})


@dataclass(frozen=True)
class ResourceTemplate:
    """Resources of one kind, by CID or id."""

    uri: str
    name: str
    description: str
    media: str
    read: Callable[[ToolContext, str, int], ResourceContents]
    toolset: McpToolset = "memory"
    """The toolset that enables it."""

    @property
    def list_entry(self) -> dict[str, Any]:
        """Its entry in `resources/templates/list`."""
        return {
            "uriTemplate": self.uri,
            "name": self.name,
            "description": self.description,
            "mimeType": self.media,
        }


TEMPLATES = (
    ResourceTemplate(
        "ipfs://{cid}",
        "block",
        "A memory's raw DAG-CBOR block, the bytes that its CID hashes.",
        "application/vnd.ipld.raw",
        read_block_bytes,
    ),
    ResourceTemplate(
        "memoria://memory/{cid}",
        "memory",
        "An event by its CID.",
        "application/json",
        read_event_as_json,
    ),
    ResourceTemplate(
        "memoria://file/{cid}{?from}",
        "file",
        "A payload by its CID: its text, from a character on, or where to download it.",
        "*/*",
        read_payload_text_or_address,
    ),
    ResourceTemplate(
        "memoria://sona/{uuid}",
        "sona",
        "A persona: its names, and how many memories in view it was active in.",
        "application/json",
        read_sona_as_json,
        "personas",
    ),
)
RESOURCES = (
    {
        "uri": _RECENT,
        "name": "recent memory",
        "description": "The newest events and topics, as a block for a prompt.",
        "mimeType": "text/plain",
    },
)
_TEMPLATES = {template.uri.partition("{")[0]: template for template in TEMPLATES}
_URI = re.compile(
    r"(ipfs://|memoria://(?:memory|file|sona)/)([a-zA-Z0-9-]{1,128})(?:\?from=(\d{1,9}))?"
)


def find_resource_reader(
    uri: str, toolsets: Collection[McpToolset]
) -> Callable[[ToolContext], ResourceContents] | None:
    """The reader for a resource of these toolsets; None if the URI is not the address of one."""
    if uri == _RECENT and "memory" in toolsets:
        return lambda context: read_recent_context(context, "", 0)
    match = _URI.fullmatch(uri)
    if match is None:
        return None
    template, name, start = _TEMPLATES[match[1]], match[2], match[3]
    if start is not None and template.read is not read_payload_text_or_address:
        return None
    if template.toolset not in toolsets:
        return None
    return lambda context: template.read(context, name, int(start or 0))
