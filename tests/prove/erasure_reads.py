"""What every read, tool and export shows after an erasure."""

from typing import Any

from tests.graph_files import export
from tests.mcp_calls import EVERYTHING, call_tool, post
from tests.prove.erasure_kinds import Kinds
from tests.prove.erasure_stores import ERASED_WORD, WHO

RIGHTS = ["read", "write", "admin", "operator", "erase"]
CIDS = """
    select distinct unnest(array_remove(array[cid, blob_cid], null)) from events
    where event_id = any (%s::uuid[])
"""


def bears(text: str) -> bool:
    """Whether the word is in a text of lower case, also in bytes that are shown in hex."""
    return ERASED_WORD in text or ERASED_WORD.encode().hex() in text


READS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("POST", "/api/v1/recall", {"query": "sister"}),
    ("POST", "/api/v1/events/query", {"text": "sister"}),
    ("POST", "/api/v1/events/query", {"text": "sister", "mode": "exact"}),
    ("POST", "/api/v1/references/query", {"query": "sister"}),
    ("POST", "/api/v1/context", {"query": "sister"}),
    ("POST", "/api/v1/graph/search", {"query": "topic", "mode": "exact"}),
    ("POST", "/api/v1/graph/conflicts", {}),
    ("GET", "/api/v1/graph/nodes", {}),
    ("GET", "/api/v1/graph/communities", {}),
    ("GET", "/api/v1/graph/merges/proposals", {}),
    ("GET", "/api/v1/graph/status", {}),
    ("GET", "/api/v1/topics", {}),
    ("GET", "/memories/list", {}),
    ("GET", "/sonas/list", {}),
    ("GET", "/api/v1/sessions", {}),
    ("GET", "/api/v1/sessions/s0/context", {}),
    ("GET", "/api/v1/sessions/s0/segments", {}),
    ("GET", "/api/v1/scopes", {}),
    ("GET", "/api/v1/model-calls", {}),
    ("GET", "/api/v1/usage", {}),
    ("GET", "/api/v1/admin/topics", {}),
    ("GET", "/api/v1/admin/snapshots", {}),
    ("GET", "/api/v1/admin/jobs", {}),
    ("GET", "/api/v1/admin/tenants/acme/audit", {}),
    ("GET", "/metrics", {}),
)
UNSCOPED = ("/metrics", "/admin/", "/sessions/", "/model-calls", "/usage", "/sonas")
"""Reads that name nobody."""
TOOLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("recall", {"query": "sister"}),
    ("context", {"query": "sister"}),
    ("query_event_nodes", {"text": "sister"}),
    ("query_references", {"query": "sister"}),
    ("mie_query", {"query": "topic", "mode": "exact"}),
    *(("mie_list", {"node_type": kind}) for kind in ("fact", "decision", "entity", "topic")),
    ("mie_conflicts", {"content": "My sister sails."}),
    ("mie_export", {}),
    ("mie_status", {}),
    *((name, {}) for name in ("status", "jobs", "snapshots", "usage")),
)
RESOURCES = ("mie://context/recent",)


def asked_of_tools(kinds: Kinds, cids: list[str]) -> dict[str, str]:
    """What MCP answers, by tool or resource, in lower case. Raises AssertionError where a tool
    fails."""
    caller: dict[str, Any] = {"key": kinds.key, "participants": [WHO[0]]}
    results: dict[str, str] = {}
    for name, arguments in TOOLS:
        text, is_error = call_tool(kinds.gateway, name, arguments, **caller)
        assert not is_error, (name, text)
        results[" ".join([name, *arguments.get("node_type", "").split()])] = text.lower()
    blocks = [f"{scheme}{cid}" for cid in cids for scheme in ("ipfs://", "memoria://memory/")]
    for uri in (*RESOURCES, *blocks):
        settings: dict[str, Any] = {"toolsets": EVERYTHING, **caller}
        results[uri] = post(kinds.gateway, "resources/read", {"uri": uri}, **settings).text.lower()
    return results


def find_visible(kinds: Kinds, ids: list[str], cids: list[str]) -> list[str]:
    """The answers that still hold the word, or are none."""
    results: list[str] = []
    who = {"participants": WHO[0]}
    for method, path, fields in READS:
        body = {**fields, "participants": [WHO[0]]} if method == "POST" else None
        query = who if method == "GET" and not any(part in path for part in UNSCOPED) else None
        reply = kinds.gateway.call(method, path, body, key=kinds.key, query=query)
        if reply.status != 200 or bears(reply.text.lower()):
            results.append(f"{path}: {reply.status} {reply.text[:300]}")
    removed_ids = [(f"/api/v1/events/{one}", 410) for one in ids]
    removed_ids += [
        (f"{path}/{cid}", 404) for cid in cids for path in ("/ipfs", "/memory", "/file")
    ]
    for path, status in removed_ids:
        reply = kinds.gateway.call("GET", path, key=kinds.key, query=who)
        if reply.status != status or bears(reply.text.lower()):
            results.append(f"{path}: {reply.status} {reply.text[:300]}")
    answer = asked_of_tools(kinds, cids)
    results += [
        f"mcp {name}: {text[:300]}"
        for name, text in answer.items()
        if bears(text) or (name.startswith(("ipfs:", "memoria:")) and '"error"' not in text)
    ]
    _, exported = export(kinds.gateway, kinds.key, *WHO)
    return [*results, "export"] if bears(exported.decode().lower()) else results
