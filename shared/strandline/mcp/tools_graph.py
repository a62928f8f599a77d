"""What the tools of the toolset `graph` do, under MIE's names: facts, decisions, entities, events
and topics with their fields."""

from collections.abc import Mapping
from typing import Any, cast

from strandline.mcp.answer_size import fetch_page_that_fits
from strandline.mcp.arguments import Arguments, WrongArgument, drop_nulls, pick_arguments
from strandline.mcp.rendering import (
    conflict_line,
    edge_line,
    fence_json,
    fence_lines,
    field_line,
    limits_note,
    node_line,
    revision_line,
    sanitize_name,
)
from strandline.mcp.tool_types import ToolContext

_NODES = "/api/v1/graph/nodes"
_ARCHIVING = {"archive": True, "restore": False}
_SOURCES = 10
NOTHING = "Nothing of it is in the graph. Try other words, mode=exact, or mie_list."


def analyze_text_before_storing(context: ToolContext, arguments: Arguments) -> str:
    """Find stored facts and events that concern a text."""
    body = pick_arguments(arguments, "content", "content_type") | context.make_read_participants(
        arguments
    )
    answer = context.operations.call("POST /api/v1/graph/analyze", body)
    lines = [node_line(node) for node in answer["related"]]
    lines += _write_conflict_lines(answer)
    lines += [
        f"Weigh: {advice['text']} {', '.join(advice['node_ids'])}" for advice in answer["weigh"]
    ]
    hints = "\n".join(answer["store_as"])
    return f"{fence_lines(lines)}\nStore what is worth it with mie_store:\n{hints}" + limits_note(
        answer["degraded"]
    )


def store_node(context: ToolContext, arguments: Arguments) -> str:
    """Store one node."""
    return _store_nodes(context, arguments, [arguments])


def store_nodes_with_edges(context: ToolContext, arguments: Arguments) -> str:
    """Store several nodes with edges between them."""
    return _store_nodes(context, arguments, arguments["nodes"])


def _store_nodes(context: ToolContext, arguments: Arguments, nodes: list[Arguments]) -> str:
    body = context.make_participants_and_speaker(arguments) | {
        "nodes": [_convert_arguments_to_node(node) for node in nodes]
    }
    answer = context.operations.call(f"POST {_NODES}", body)
    entries = [f"{node['id']} (event {node['event_id']})" for node in answer["nodes"]]
    notes = [
        f" An edge that is not known was stored as {edge['type']}."
        for edge in answer["edges"]
        if edge["corrected_from"]
    ]
    return f"Stored {', '.join(entries)}.{''.join(notes)}"


def _convert_arguments_to_node(arguments: Arguments) -> dict[str, Any]:
    """A node in the form of the graph's own operation, from MIE's arguments. That operation refuses
    unknown fields."""
    others = ("participants", "relationships", "speaker")
    fields: dict[str, Any] = drop_nulls(arguments)
    node = {name: value for name, value in fields.items() if name not in others}
    if "invalidates" in node:
        node.setdefault("reason", "Replaced by a newer fact.")
    edges: object = fields.get("relationships")
    if isinstance(edges, list):
        node["relationships"] = [
            _convert_relationship_to_edge(edge) for edge in cast("list[object]", edges)
        ]
    return node


def _convert_relationship_to_edge(edge: object) -> object:
    if not isinstance(edge, dict):
        raise WrongArgument('relationships: as in [{"edge": "fact_entity", "target_id": "ent:…"}]')
    fields = cast("dict[str, Any]", edge)
    target = {"target": fields["target_id"]} if "target_id" in fields else {}
    return {name: value for name, value in fields.items() if name != "target_id"} | target


def search_or_traverse_graph(context: ToolContext, arguments: Arguments) -> str:
    """Search the graph, or walk it from a node."""
    readers = context.make_read_participants(arguments)
    if "node_id" in arguments:
        body = pick_arguments(arguments, "node_id", "traversal", "limit") | readers
        answer = context.operations.call("POST /api/v1/graph/traverse", body)
    else:
        body = pick_arguments(arguments, "query", "mode", "limit", types="node_types") | readers
        answer = context.operations.call("POST /api/v1/graph/search", body)
    if arguments.get("format") == "json":
        return fence_json(answer)
    lines = [node_line(node) for node in answer["nodes"]]
    lines += [edge_line(edge) for edge in answer["edges"]]
    block = fence_lines(lines) if lines else NOTHING
    return block + _write_sources(context, arguments) + limits_note(answer["degraded"])


def _write_sources(context: ToolContext, arguments: Arguments) -> str:
    """The events that the node of a call rests on; empty where it names none."""
    if "node_id" not in arguments:
        return ""
    query = context.make_read_participants(arguments) | {"limit": [str(_SOURCES)]}
    path = {"row_id": arguments["node_id"]}
    sources = context.operations.call("GET /api/v1/provenance/{row_id}", path=path, query=query)
    ids = ", ".join(event["event_id"] for event in sources["events"])
    more = " and more" if sources["next_cursor"] else ""
    return f"\nThe node rests on events {ids}{more}; memory_read shows one."


def list_nodes(context: ToolContext, arguments: Arguments) -> str:
    """List nodes. Raises WrongArgument."""
    if "kind" in arguments and arguments["node_type"] != "entity":
        raise WrongArgument("kind: is an entity's; leave it out, or give node_type=entity")
    fields = pick_arguments(arguments, "status", "cursor", type="node_type", sort="sort_by")
    fields |= pick_arguments(arguments, order="sort_order", category="category") | pick_arguments(
        arguments, category="kind"
    )
    query = {name: [str(value)] for name, value in fields.items()}
    query["valid_only"] = ["false" if arguments.get("valid_only") is False else "true"]
    query |= context.make_read_participants(arguments)

    def ask(limit: int) -> Any:
        return context.operations.call(f"GET {_NODES}", query={**query, "limit": [str(limit)]})

    page, lines = fetch_page_that_fits(
        ask, lambda page: [node_line(node) for node in page["nodes"]], arguments.get("limit", 20)
    )
    more = f"\nMore: cursor={page['next_cursor']}" if page["next_cursor"] else ""
    return (fence_lines(lines) if lines else NOTHING) + more


def update_node(context: ToolContext, arguments: Arguments) -> str:
    """End a fact, change a field of a node, or archive it."""
    path, body = {"node_id": arguments["node_id"]}, context.make_participants_and_speaker(arguments)
    action: str = arguments["action"]
    if action == "invalidate":
        if "reason" not in arguments:
            raise WrongArgument("reason: say why the fact does not hold any more")
        body |= pick_arguments(arguments, "reason", "replacement_id")
        invalidation = context.operations.call(
            f"POST {_NODES}/{{node_id}}/invalidate", body, path=path
        )
        instead = (
            f" {invalidation['replacement']} holds instead." if invalidation["replacement"] else ""
        )
        return f"{invalidation['id']} does not hold since {invalidation['valid_to']}.{instead}"
    if action in _ARCHIVING:
        field, outcome = "archived", f"is {action}d"
        body[field] = _ARCHIVING[action]
    else:
        field = action.removeprefix("update_")
        outcome = f"has a new {field}"
        if "new_value" not in arguments:
            raise WrongArgument("new_value: give the new description or status")
        body[field] = arguments["new_value"]
    change = context.operations.call(f"PATCH {_NODES}/{{node_id}}", body, path=path)
    return f"{change['id']} {outcome} (event {change['event_id']})."


def relate_two_nodes(context: ToolContext, arguments: Arguments) -> str:
    """State an edge between two nodes that are there."""
    edge = pick_arguments(arguments, "from_id", "to_id", "edge", "role", "nuance", "confidence")
    body = context.make_participants_and_speaker(arguments) | {
        "edges": [{"edge": "related", **edge}]
    }
    (stored_edge,) = context.operations.call("POST /api/v1/graph/edges", body)["edges"]
    corrected = (
        " The edge that was asked for is not known." if stored_edge["corrected_from"] else ""
    )
    return (
        f"{stored_edge['from_id']} {stored_edge['type']} {stored_edge['to_id']} "
        f"(event {stored_edge['event_id']}).{corrected}"
    )


def _write_conflict_lines(answer: Mapping[str, Any]) -> list[str]:
    """Contradictions, and the similar pairs that the reader judges."""
    lines = [conflict_line(conflict) for conflict in answer["conflicts"]]
    return lines + [
        conflict_line(pair, "is similar to, and may contradict,") for pair in answer["candidates"]
    ]


def find_conflicts(context: ToolContext, arguments: Arguments) -> str:
    """Facts that contradict each other."""
    body = pick_arguments(arguments, "content", "node_id", "category", "threshold", "limit")
    answer = context.operations.call(
        "POST /api/v1/graph/conflicts", body | context.make_read_participants(arguments)
    )
    lines = _write_conflict_lines(answer)
    if not lines:
        text = f"No contradiction among {answer['compared']} similar pairs."
        return text + limits_note(answer["degraded"])
    return fence_lines(lines) + limits_note(answer["degraded"])


def export_graph(context: ToolContext, arguments: Arguments) -> str:
    """Export the graph in view."""
    body = pick_arguments(arguments, vectors="include_embeddings") | context.make_read_participants(
        arguments
    )
    file = context.operations.call("POST /api/v1/graph/exports", body)
    counts = ", ".join(f"{count} {name}" for name, count in file["counts"].items())
    return (
        f"JSON Lines, {file['bytes']} bytes, {counts}, SHA-256 {file['sha256']}, until "
        f"{file['expires_at']} at {file['url']}"
    )


def get_graph_status(context: ToolContext, arguments: Arguments) -> str:
    """The graph's counts, and the progress of background work."""
    state = context.operations.call(
        "GET /api/v1/graph/status", query=context.make_read_participants(arguments)
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


_FIELDS = "/api/v1/graph/topics/{topic_id}/fields"


def get_topic_fields(context: ToolContext, arguments: Arguments) -> str:
    """The fields of a topic with their values, or the revisions of one field."""
    if "field" in arguments:
        return _get_field_history(context, arguments)
    path = {"topic_id": arguments["topic_id"]}
    options = pick_arguments(arguments, "as_of", after_field="cursor")
    query = {name: [str(value)] for name, value in options.items()}
    query |= context.make_read_participants(arguments)

    def ask(limit: int) -> Any:
        return context.operations.call(
            f"GET {_FIELDS}", path=path, query={**query, "limit": [str(limit)]}
        )

    page, lines = fetch_page_that_fits(
        ask, lambda page: [field_line(f) for f in page["fields"]], arguments.get("limit", 50)
    )
    if not lines:
        return "This topic has no fields."
    after = page["next_after_field"]
    # the name of a field is stored text, so it stands in the block
    return fence_lines([*lines, *([f"More: cursor={after}"] if after else [])])


def _get_field_history(context: ToolContext, arguments: Arguments) -> str:
    path = {"topic_id": arguments["topic_id"], "field": arguments["field"]}
    options = pick_arguments(arguments, "as_of", "cursor")
    query = {name: [str(value)] for name, value in options.items()}
    query |= context.make_read_participants(arguments)

    def ask(limit: int) -> Any:
        return context.operations.call(
            f"GET {_FIELDS}/{{field}}", path=path, query={**query, "limit": [str(limit)]}
        )

    page, lines = fetch_page_that_fits(
        ask, lambda page: [revision_line(r) for r in page["history"]], arguments.get("limit", 20)
    )
    more = f"\nMore: cursor={page['next_cursor']}" if page["next_cursor"] else ""
    return fence_lines([field_line(page), *lines]) + more


def set_topic_field(context: ToolContext, arguments: Arguments) -> str:
    """State the value of a topic's field."""
    names = ("valid_from", "why_changed", "impact_expected", "field_type", "ref_topic_id")
    body = (
        context.make_participants_and_speaker(arguments)
        | pick_arguments(arguments, *names)
        | {"value": arguments["value"]}
    )
    path = {"topic_id": arguments["topic_id"], "field": arguments["field"]}
    revision = context.operations.call(f"POST {_FIELDS}/{{field}}", body, path=path)
    return (
        f"Revision {revision['revision']} of {revision['topic_id']} holds from "
        f"{revision['valid_from']} (event {revision['event_id']})."
    )
