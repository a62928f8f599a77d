"""A call of every tool of MCP, and what they need to be there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strandline.mcp.protocol import MODERN, NAME_PARAMETERS
from tests.support import Gateway, Reply

ALICE, HELPER = "user:alice", "agent:helper"
EVERYTHING = "memory,graph,personas,admin"
_META = "io.modelcontextprotocol/"


@dataclass(frozen=True)
class Samples:
    """What is there before the calls."""

    event_id: str
    cid: str
    file_cid: str
    fact: str
    entity: str
    sona: str
    topic: str
    job_id: str = "00000000-0000-4000-8000-000000000000"


def prepare(gateway: Gateway, key: str, tenant: str = "acme") -> Samples:
    """Store an event, a payload, two nodes of alice's, and a sona."""
    texts = ("The harbour buoy gets its new battery on Friday.", "a line of the log\n" * 5000)
    events = [
        gateway.call(
            "POST",
            "/api/v1/events",
            {"participants": [ALICE, HELPER], "role": "user", "content": text},
            key=key,
        ).body
        for text in texts
    ]
    nodes = [
        {"type": "entity", "name": "Nils Berg", "kind": "person", "ref": "nils"},
        {
            "type": "fact",
            "content": "Nils Berg skippers the Petrel",
            "relationships": [{"edge": "fact_entity", "target": "nils"}],
        },
        {"type": "topic", "name": "Harbour works"},
    ]
    body = {"participants": [ALICE, HELPER], "nodes": nodes}
    node_rows = gateway.call("POST", "/api/v1/graph/nodes", body, key=key).body["nodes"]
    event, file = events
    fields = {"name": "Harbour master"}
    sona = gateway.call("POST", "/api/v1/sonas", fields, key=key).body["uuid"]
    return Samples(
        *(event["event_id"], event["cid"], file["blob"]["cid"]),
        *(node_rows[1]["id"], node_rows[0]["id"], sona, node_rows[2]["id"]),
    )


def calls_of(samples: Samples) -> Mapping[str, list[tuple[dict[str, Any], str]]]:
    """By tool: arguments, and what the answer holds."""
    text = "battery"
    return {
        "memory_recall": [
            ({"query": "When does the buoy get its battery?"}, samples.event_id),
            ({"query": text, "limit": 3, "role": "user", "format": "json"}, '"hits"'),
        ],
        "memory_context": [({"query": "the buoy's battery", "budget": 300}, "battery on Friday")],
        "memory_add": [({"content": "The buoy is red.", "event_key": "k-1"}, "Stored as event")],
        "memory_insert": [({"content": "The buoy's battery is from Ekholm."}, "Linked to")],
        "memory_query_event_nodes": [
            ({"text": text}, samples.cid),
            ({"text": "NEW BATTERY", "mode": "exact", "limit": 1}, samples.event_id),
        ],
        "memory_read": [
            ({"event_id": samples.event_id}, "battery on Friday"),
            ({"event_id": samples.event_id, "from": "12"}, "buoy gets its"),
        ],
        "memory_query_references": [({"query": "battery"}, "battery on Friday"), ({}, "battery")],
        "mie_analyze": [
            (
                {"content": "Nils Berg skippers the Petrel", "content_type": "statement"},
                samples.fact,
            )
        ],
        "mie_store": [
            (
                {
                    "type": "fact",
                    "content": "Nils Berg lives in Ekholm",
                    "category": "personal",
                    "relationships": [{"edge": "fact_entity", "target_id": samples.entity}],
                },
                "Stored fact:",
            ),
            (
                {"type": "decision", "title": "Lithium", "rationale": "It lasts.", "reason": None},
                "Stored dec:",
            ),
        ],
        "mie_bulk_store": [
            (
                {
                    "nodes": [
                        {"type": "topic", "name": "Boats", "ref": "boats"},
                        {
                            "type": "entity",
                            "name": "Petrel",
                            "kind": "product",
                            "relationships": [{"edge": "entity_topic", "target_id": "boats"}],
                        },
                    ]
                },
                "ent:",
            )
        ],
        "mie_query": [
            ({"query": "Who is Nils Berg?"}, samples.entity),
            ({"query": "skippers", "mode": "exact", "node_types": ["fact"]}, samples.fact),
            ({"node_id": samples.entity, "traversal": "related_facts"}, samples.fact),
            ({"query": "Nils Berg", "mode": "graph", "format": "json"}, '"edges"'),
        ],
        "mie_list": [
            ({"node_type": "fact", "sort_by": "name", "sort_order": "asc"}, samples.fact),
            ({"node_type": "entity", "kind": "person", "valid_only": False}, samples.entity),
        ],
        "mie_conflicts": [({"content": "Nils Berg skippers the Gull"}, "")],
        "mie_export": [({}, "JSON Lines")],
        "mie_status": [({}, "scopes 1")],
        "memory_relate": [
            (
                {"from_id": samples.topic, "to_id": samples.entity, "role": "led by"},
                f"{samples.topic} related {samples.entity}",
            ),
        ],
        "memory_topic_set_field": [
            (
                {
                    "topic_id": samples.topic,
                    "field": "phase",
                    "value": "dredging",
                    "why_changed": "The dredger came.",
                },
                "Revision 1 of",
            ),
            ({"topic_id": samples.topic, "field": "phase", "value": None}, "Revision 2 of"),
        ],
        "memory_topic_fields": [
            ({"topic_id": samples.topic}, "phase (text, salience"),
            ({"topic_id": samples.topic, "field": "phase"}, "dredging - The dredger came."),
        ],
        "mie_update": [
            (
                {
                    "node_id": samples.entity,
                    "action": "update_description",
                    "new_value": "a skipper",
                },
                "new description",
            ),
            (
                {"node_id": samples.fact, "action": "invalidate", "reason": "He sold it."},
                "does not hold",
            ),
            ({"node_id": samples.topic, "action": "archive"}, "is archived"),
            ({"node_id": samples.topic, "action": "restore"}, "is restored"),
        ],
        # without a model the block is told that it would have been shown
        "memory_query": [
            ({"query": "When does the buoy get its battery?"}, "LLM_PROVIDER"),
            ({"sona": samples.sona}, "query is missing"),
        ],
        "memory_chat": [
            ({"message": "What of the battery?"}, "Answer from this yourself:\n<memory-")
        ],
        "memory_act_push": [
            ({"sona": samples.sona, "event_id": samples.event_id}, "Pushed as act"),
        ],
        "memory_act_next": [({"sona": samples.sona}, samples.event_id)],
        "memory_act_stream": [
            ({"sona": samples.sona, "wait": 0, "limit": 3}, samples.event_id),
        ],
        "memory_status": [({}, '"dependencies"')],
        "memory_jobs": [({}, '"jobs"'), ({"action": "start", "job": "archiver"}, '"queued"')],
        "memory_snapshots": [({}, '"snapshots"')],
        "memory_usage": [({}, '"quotas"')],
    }


FAILS = ("must be", "is missing", "LLM_PROVIDER", "Answer from this")
"""What an answer of `calls_of` holds that is an error, also for want of a language model."""


def post(
    gateway: Gateway,
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    key: str | None,
    toolsets: str | None = None,
    participants: list[str] | None = None,
    everybody: bool = False,
    modern: bool = False,
    headers: Mapping[str, str] | None = None,
    id: object = 1,
    certificate: bytes | None = None,
) -> Reply:
    """One message to /mcp, with the headers that its version wants."""
    body: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": id,
        "method": method,
        "params": {**(params or {})},
    }
    own: dict[str, str] = {}
    if modern:
        body["params"]["_meta"] = {
            f"{_META}protocolVersion": MODERN,
            f"{_META}clientCapabilities": {},
        }
        own = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        if method in NAME_PARAMETERS:
            own["Mcp-Name"] = body["params"][NAME_PARAMETERS[method]]
    query: dict[str, object] = {}
    if toolsets is not None:
        query["toolsets"] = toolsets
    if participants is not None:
        query["participants"] = participants
    if everybody:
        query["everybody"] = "true"
    return gateway.call(
        "POST",
        "/mcp",
        query=query,
        raw=json.dumps(body).encode(),
        key=key,
        headers={**own, **(headers or {})},
        certificate=certificate,
    )


def call_tool(
    gateway: Gateway, name: str, arguments: Mapping[str, Any] | None = None, **options: Any
) -> tuple[str, bool]:
    """The text of a tool's answer, and whether it is an error."""
    params = {"name": name, "arguments": dict(arguments or {})}
    all_options: dict[str, Any] = {"toolsets": EVERYTHING, **options}
    reply = post(gateway, "tools/call", params, **all_options)
    assert reply.status == 200, reply.text
    result = reply.body["result"]
    (content,) = result["content"]
    assert content["type"] == "text"
    return content["text"], result["isError"]
