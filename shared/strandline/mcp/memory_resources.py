"""Resources: events, blocks and payloads by their content ids, sonas, and the newest memory."""

import base64
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from strandline.aws.blobs import is_text
from strandline.config import McpToolset
from strandline.mcp.rendering import escape_json
from strandline.mcp.tool_types import ToolContext
from strandline.mcp.tools_memory import get_context

_RECENT = "mie://context/recent"
_MAX_TEXT_BYTES = 1024 * 1024
"""For a longer text the answer is its address."""
type ResourceContents = dict[str, Any]


def read_recent_context(context: ToolContext, cid: str) -> ResourceContents:
    """The newest events and topics, as the block for a prompt."""
    del cid
    return {"mimeType": "text/plain", "text": get_context(context, {})}


def read_block(context: ToolContext, cid: str) -> ResourceContents:
    """The bytes of the block with this CID."""
    data = context.operations.read(
        "GET /ipfs/{cid}", path={"cid": cid}, query=_participants_query(context)
    )
    return {"mimeType": "application/vnd.ipld.raw", "blob": base64.b64encode(data).decode()}


def read_memory(context: ToolContext, cid: str) -> ResourceContents:
    """An event as JSON."""
    event = context.operations.call(
        "GET /memory/{cid}", path={"cid": cid}, query=_participants_query(context)
    )
    return {"mimeType": "application/json", "text": escape_json(event)}


def read_file(context: ToolContext, cid: str) -> ResourceContents:
    """The text of a payload; of one that is large or not text, the address to download it from."""
    file = context.operations.call(
        "GET /file/{cid}", path={"cid": cid}, query=_participants_query(context)
    )
    if not is_text(file["mime_type"]) or file["size"] > _MAX_TEXT_BYTES:
        return {"mimeType": "application/json", "text": escape_json(file)}
    blobs = context.operations.request.resources.blobs
    text = blobs.read_text_prefix(context.principal.tenant, cid, _MAX_TEXT_BYTES)
    return {"mimeType": file["mime_type"], "text": text}


def read_sona(context: ToolContext, uuid: str) -> ResourceContents:
    """A sona as JSON."""
    sona = context.operations.call(
        "GET /sona/{uuid}", path={"uuid": uuid}, query=_participants_query(context)
    )
    return {"mimeType": "application/json", "text": escape_json(sona)}


def _participants_query(context: ToolContext) -> dict[str, list[str]]:
    return context.get_read_participants({})


@dataclass(frozen=True)
class Template:
    """Resources of one kind, by CID or id."""

    uri: str
    name: str
    description: str
    media: str
    read: Callable[[ToolContext, str], ResourceContents]
    toolset: McpToolset = "memory"
    """The toolset that enables it."""

    @property
    def definition(self) -> dict[str, Any]:
        """Its entry in `resources/templates/list`."""
        return {
            "uriTemplate": self.uri,
            "name": self.name,
            "description": self.description,
            "mimeType": self.media,
        }


TEMPLATES = (
    Template(
        "ipfs://{cid}",
        "block",
        "A memory's raw DAG-CBOR block, the bytes that its CID hashes.",
        "application/vnd.ipld.raw",
        read_block,
    ),
    Template(
        "memoria://memory/{cid}", "memory", "An event by its CID.", "application/json", read_memory
    ),
    Template(
        "memoria://file/{cid}",
        "file",
        "A payload by its CID: its text, or where to download it.",
        "*/*",
        read_file,
    ),
    Template(
        "memoria://sona/{uuid}",
        "sona",
        "A persona: its names, and how many memories in view it was active in.",
        "application/json",
        read_sona,
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
_URI = re.compile(r"(ipfs://|memoria://(?:memory|file|sona)/)([a-zA-Z0-9-]{1,128})")


def find_reader(
    uri: str, toolsets: Collection[McpToolset]
) -> Callable[[ToolContext], ResourceContents] | None:
    """The reader for a resource of these toolsets; None if the URI is not the address of one."""
    if uri == _RECENT and "memory" in toolsets:
        return lambda context: read_recent_context(context, "")
    match = _URI.fullmatch(uri)
    if match is None:
        return None
    template, name = _TEMPLATES[match[1]], match[2]
    if template.toolset not in toolsets:
        return None
    return lambda context: template.read(context, name)
