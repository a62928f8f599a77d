"""The toolset `graph`: facts, decisions, entities, events and topics, under MIE's names."""

from typing import Any, cast

from strandline.mcp.rendering import (
    conflict_line,
    edge_line,
    fence_json,
    fence_lines,
    limits_note,
    node_line,
    sanitize_name,
)
from strandline.mcp.tool_types import (
    NUMBER,
    OBJECTS,
    SWITCH,
    TEXT,
    TEXTS,
    WHOLE,
    Arguments,
    Schema,
    Tool,
    ToolContext,
    WrongArgument,
    choice,
    pick,
)

_NODES = "/api/v1/graph/nodes"
_NOTHING = "Nothing of it is in the graph. Try other words, mode=exact, or mie_list."


def analyze(context: ToolContext, arguments: Arguments) -> str:
    """Find stored facts and events that concern a text."""
    body = pick(arguments, "content", "content_type") | context.get_read_participants(arguments)
    answer = context.operations.call("POST /api/v1/graph/analyze", body)
    lines = [node_line(node) for node in answer["related"]]
    lines += [conflict_line(conflict) for conflict in answer["conflicts"]]
    lines += [
        f"Weigh: {advice['text']} {', '.join(advice['node_ids'])}" for advice in answer["weigh"]
    ]
    hints = "\n".join(answer["store_as"])
    return f"{fence_lines(lines)}\nStore what is worth it with mie_store:\n{hints}" + limits_note(
        answer["degraded"]
    )


def store(context: ToolContext, arguments: Arguments) -> str:
    """Store one node."""
    return _create(context, arguments, [arguments])


def bulk_store(context: ToolContext, arguments: Arguments) -> str:
    """Store several nodes with edges between them."""
    return _create(context, arguments, arguments["nodes"])


def _create(context: ToolContext, arguments: Arguments, nodes: list[Arguments]) -> str:
    body = context.get_author(arguments) | {"nodes": [_to_node(node) for node in nodes]}
    answer = context.operations.call(f"POST {_NODES}", body)
    entries = [f"{node['id']} (event {node['event_id']})" for node in answer["nodes"]]
    notes = [
        f" An edge that is not known was stored as {edge['type']}."
        for edge in answer["edges"]
        if edge["corrected_from"]
    ]
    return f"Stored {', '.join(entries)}.{''.join(notes)}"


def _to_node(arguments: Arguments) -> dict[str, Any]:
    """A node in the form of the graph's own operation, from MIE's arguments. That operation refuses
    unknown fields."""
    others = ("participants", "relationships", "speaker")
    node = {name: value for name, value in arguments.items() if name not in others}
    if "invalidates" in node:
        node.setdefault("reason", "Replaced by a newer fact.")
    edges: object = arguments.get("relationships")
    if isinstance(edges, list):
        node["relationships"] = [_to_edge(edge) for edge in cast("list[object]", edges)]
    return node


def _to_edge(edge: object) -> object:
    if not isinstance(edge, dict):
        raise WrongArgument('relationships: as in [{"edge": "fact_entity", "target_id": "ent:…"}]')
    fields = cast("dict[str, Any]", edge)
    target = {"target": fields["target_id"]} if "target_id" in fields else {}
    return {name: value for name, value in fields.items() if name != "target_id"} | target


def query(context: ToolContext, arguments: Arguments) -> str:
    """Search the graph, or walk it from a node."""
    readers = context.get_read_participants(arguments)
    if "node_id" in arguments:
        body = pick(arguments, "node_id", "traversal", "limit") | readers
        answer = context.operations.call("POST /api/v1/graph/traverse", body)
    else:
        body = pick(arguments, "query", "mode", "limit", types="node_types") | readers
        answer = context.operations.call("POST /api/v1/graph/search", body)
    if arguments.get("format") == "json":
        return fence_json(answer)
    lines = [node_line(node) for node in answer["nodes"]]
    lines += [edge_line(edge) for edge in answer["edges"]]
    return (fence_lines(lines) if lines else _NOTHING) + limits_note(answer["degraded"])


def list_nodes(context: ToolContext, arguments: Arguments) -> str:
    """List nodes."""
    fields = pick(arguments, "status", "cursor", type="node_type", sort="sort_by")
    fields |= pick(arguments, order="sort_order", category="category") | pick(
        arguments, category="kind"
    )
    query = {name: [str(value)] for name, value in fields.items()}
    query["limit"] = [str(arguments.get("limit", 20))]
    query["valid_only"] = ["false" if arguments.get("valid_only") is False else "true"]
    page = context.operations.call(
        f"GET {_NODES}", query=query | context.get_read_participants(arguments)
    )
    lines = [node_line(node) for node in page["nodes"]]
    more = f"\nMore: cursor={page['next_cursor']}" if page["next_cursor"] else ""
    return (fence_lines(lines) if lines else _NOTHING) + more


def update(context: ToolContext, arguments: Arguments) -> str:
    """End a fact, or change a field of a node."""
    path, body = (
        {"node_id": arguments["node_id"]},
        context.get_author(arguments),
    )
    if arguments["action"] == "invalidate":
        if "reason" not in arguments:
            raise WrongArgument("reason: say why the fact does not hold any more")
        body |= pick(arguments, "reason", "replacement_id")
        invalidation = context.operations.call(
            f"POST {_NODES}/{{node_id}}/invalidate", body, path=path
        )
        instead = (
            f" {invalidation['replacement']} holds instead." if invalidation["replacement"] else ""
        )
        return f"{invalidation['id']} does not hold since {invalidation['valid_to']}.{instead}"
    if "new_value" not in arguments:
        raise WrongArgument("new_value: give the new description or status")
    field = arguments["action"].removeprefix("update_")
    body[field] = arguments["new_value"]
    change = context.operations.call(f"PATCH {_NODES}/{{node_id}}", body, path=path)
    return f"{change['id']} has a new {field} (event {change['event_id']})."


def find_conflicts(context: ToolContext, arguments: Arguments) -> str:
    """Facts that contradict each other."""
    body = pick(arguments, "content", "node_id", "category", "threshold", "limit")
    answer = context.operations.call(
        "POST /api/v1/graph/conflicts", body | context.get_read_participants(arguments)
    )
    lines = [conflict_line(conflict) for conflict in answer["conflicts"]]
    if not lines:
        text = f"No contradiction among {answer['compared']} similar pairs."
        return text + limits_note(answer["degraded"])
    return fence_lines(lines) + limits_note(answer["degraded"])


def export(context: ToolContext, arguments: Arguments) -> str:
    """Export the graph in view."""
    body = pick(arguments, vectors="include_embeddings") | context.get_read_participants(arguments)
    file = context.operations.call("POST /api/v1/graph/exports", body)
    counts = ", ".join(f"{count} {name}" for name, count in file["counts"].items())
    return (
        f"JSON Lines, {file['bytes']} bytes, {counts}, SHA-256 {file['sha256']}, until "
        f"{file['expires_at']} at {file['url']}"
    )


def get_status(context: ToolContext, arguments: Arguments) -> str:
    """The graph's counts, and the progress of background work."""
    state = context.operations.call(
        "GET /api/v1/graph/status", query=context.get_read_participants(arguments)
    )
    lines = [
        f"{sanitize_name(kind)}: {counts['current']} of {counts['total']} hold"
        for kind, counts in [*state["nodes"].items(), *state["edges"].items()]
        if counts["total"]
    ]
    health, use = state["health"], state["use"]
    lines += [
        f"scopes {state['scopes']}, fields {state['fields']}, communities {state['communities']}",
        f"chains due {health['chains_due']}, promotions failed {health['promotions_failed']}, "
        f"nodes without a vector {health['nodes_without_vector']}",
        f"statements {use['statements']}, answers in 30 days {use['answers']}",
    ]
    return "\n".join(lines)


_TYPE = choice("fact", "decision", "entity", "event", "topic")
_KIND = choice("person", "company", "project", "product", "technology", "place", "other")
_STATUS = choice("active", "superseded", "reversed")
_WHO: dict[str, Schema] = {"participants": TEXTS}
_AUTHOR: dict[str, Schema] = {**_WHO, "speaker": TEXT}

TOOLS = (
    Tool(
        "mie_analyze",
        "Before storing: what is known about a text, what contradicts it, and what to weigh.",
        ("read",),
        analyze,
        {
            "content": TEXT,
            "content_type": choice("conversation", "statement", "decision", "event"),
            **_WHO,
        },
        ("content",),
    ),
    Tool(
        "mie_store",
        "Store one node: fact (content), decision (title, rationale), entity (name, kind), event "
        '(title, event_date) or topic (name). relationships: [{"edge": "fact_entity", '
        '"target_id": "ent:…", "role"}]. invalidates: the fact that it replaces.',
        ("write",),
        store,
        {
            "type": _TYPE,
            "content": TEXT,
            "category": TEXT,
            "confidence": NUMBER,
            "title": TEXT,
            "rationale": TEXT,
            "alternatives": TEXTS,
            "status": _STATUS,
            "name": TEXT,
            "kind": _KIND,
            "description": TEXT,
            "event_date": TEXT,
            "relationships": OBJECTS,
            "invalidates": TEXT,
            "reason": TEXT,
            **_AUTHOR,
        },
        ("type",),
        is_read_only=False,
    ),
    Tool(
        "mie_bulk_store",
        "Store up to 50 nodes, all or none, each with the arguments of mie_store; `ref` names one "
        "for edges of the same call.",
        ("write",),
        bulk_store,
        {"nodes": OBJECTS, **_AUTHOR},
        ("nodes",),
        is_read_only=False,
    ),
    Tool(
        "mie_query",
        "Search the graph by meaning, exact part of a text, or mode=graph: what `query` names and "
        "what lies around it. With node_id walk from that node.",
        ("read",),
        query,
        {
            "query": TEXT,
            "mode": choice("semantic", "exact", "graph"),
            "node_types": TEXTS,
            "node_id": TEXT,
            "traversal": choice(
                *("related_entities", "related_facts", "facts_about_entity", "decision_entities"),
                *("entity_decisions", "invalidation_chain", "topic_contents", "neighbours"),
            ),
            "limit": WHOLE,
            **_WHO,
            "format": choice("text", "json"),
        },
    ),
    Tool(
        "mie_list",
        "List nodes of a type, filtered, sorted, in pages.",
        ("read",),
        list_nodes,
        {
            "node_type": _TYPE,
            "category": TEXT,
            "kind": TEXT,
            "status": _STATUS,
            "valid_only": SWITCH,
            "sort_by": choice("updated_at", "created_at", "name", "weight", "confidence"),
            "sort_order": choice("asc", "desc"),
            "limit": WHOLE,
            "cursor": TEXT,
            **_WHO,
        },
        ("node_type",),
    ),
    Tool(
        "mie_update",
        "Change a node among exactly its participants. invalidate ends a fact (reason, "
        "replacement_id); the others set new_value.",
        ("write",),
        update,
        {
            "node_id": TEXT,
            "action": choice("invalidate", "update_description", "update_status"),
            "reason": TEXT,
            "replacement_id": TEXT,
            "new_value": TEXT,
            **_AUTHOR,
        },
        ("node_id", "action"),
        is_read_only=False,
    ),
    Tool(
        "mie_conflicts",
        "Facts that contradict a content, one fact (node_id), or each other.",
        ("read",),
        find_conflicts,
        {
            "content": TEXT,
            "node_id": TEXT,
            "category": TEXT,
            "threshold": NUMBER,
            "limit": WHOLE,
            **_WHO,
        },
    ),
    Tool(
        "mie_export",
        "Export the graph in view to a file; gives its address.",
        ("read",),
        export,
        {"include_embeddings": SWITCH, **_WHO},
    ),
    Tool(
        "mie_status",
        "How much the graph has, and how it is doing.",
        ("read",),
        get_status,
        {**_WHO},
    ),
)
