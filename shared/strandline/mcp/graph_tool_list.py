"""The tools of the toolset `graph`, for the model: what is stated and known about people, projects
and things."""

from strandline.graph.nodes.node_types import NODE_TYPES
from strandline.mcp.argument_schemas import (
    Schema,
    any_json,
    choice,
    number,
    objects,
    switch,
    text,
    texts,
    whole,
)
from strandline.mcp.tool_types import Tool
from strandline.mcp.tools_graph import (
    analyze,
    bulk_store,
    export,
    find_conflicts,
    get_fields,
    get_status,
    list_nodes,
    query,
    relate,
    set_field,
    store,
    update,
)
from strandline.mcp.tools_memory import AUTHORS, FORMAT, PARTICIPANTS, SPEAKER

_KINDS = NODE_TYPES["entity"].categories or ()
_STATUS = choice("Of a decision.", "active", "superseded", "reversed")
_WHO: dict[str, Schema] = {"participants": PARTICIPANTS}
_AUTHOR: dict[str, Schema] = {"participants": AUTHORS, "speaker": SPEAKER}
*_FIRST_TYPES, _LAST_TYPE = (
    f"{name} ({', '.join((spec.name_field, *spec.main_fields))})"
    for name, spec in NODE_TYPES.items()
)
_DESCRIBED_TYPES = f"{', '.join(_FIRST_TYPES)} or {_LAST_TYPE}"
_TOPIC_ID = text("The topic's id, as in topic:018f….")


def _types_with(field: str) -> str:
    """The types of nodes that have a field."""
    types = [n for n, spec in NODE_TYPES.items() if field in (spec.name_field, *spec.fields)]
    return ", ".join(types)


TOOLS = (
    Tool(
        "mie_analyze",
        "Knowledge graph, before storing: what is known about a text, what contradicts it, and "
        "what to weigh.",
        ("read",),
        analyze,
        {
            "content": text("The text."),
            "content_type": choice(
                "What it is; a statement or a decision is compared with what is known.",
                *("conversation", "statement", "decision", "event"),
            ),
            **_WHO,
        },
        ("content",),
    ),
    Tool(
        "mie_store",
        f"Knowledge graph: store one {_DESCRIBED_TYPES}, with its edges.",
        ("write",),
        store,
        {
            "type": choice("What it is.", *NODE_TYPES),
            "content": text("fact: one sentence that stands by itself."),
            "category": text(
                "fact: personal, professional, preference, technical, relationship or general; "
                "topic: any word."
            ),
            "confidence": number("0 to 1: how sure you are."),
            "title": text(f"{_types_with('title')}: what, in a few words."),
            "rationale": text("decision: why."),
            "alternatives": texts("decision: what else was weighed."),
            "status": _STATUS,
            "name": text(f"{_types_with('name')}: its name."),
            "kind": choice("entity: what it is.", *_KINDS),
            "description": text(f"{_types_with('description')}: what else is known of it."),
            "event_date": text("event: when, as in 2026-05-08T00:00:00Z."),
            "relationships": objects(
                'Edges to nodes that are there, as in [{"edge": "fact_entity", "target_id": '
                '"ent:…", "role": "…"}].'
            ),
            "invalidates": text("fact: the id of the fact that it replaces."),
            "reason": text("With invalidates: why the older one does not hold."),
            **_AUTHOR,
        },
        ("type",),
        is_read_only=False,
    ),
    Tool(
        "mie_bulk_store",
        "Knowledge graph: store up to 50 nodes with edges between them, all or none.",
        ("write",),
        bulk_store,
        {
            "nodes": objects(
                "Each with the arguments of mie_store; `ref` names one, as the target_id of edges "
                "of the same call."
            ),
            **_AUTHOR,
        },
        ("nodes",),
        is_read_only=False,
    ),
    Tool(
        "mie_query",
        "Knowledge graph: facts, decisions, people and things about `query`; with node_id what is "
        "joined to that node. For what was said use memory_recall.",
        ("read",),
        query,
        {
            "query": text("A question, a part of a text (exact), or names (graph)."),
            "mode": choice(
                "semantic (default): by meaning; exact: a part of a text; graph: what `query` "
                "names and what lies around it.",
                *("semantic", "exact", "graph"),
            ),
            "node_types": texts(f"Only these: {', '.join(NODE_TYPES)}."),
            "node_id": text("Instead of `query`: the node to begin at."),
            "traversal": choice(
                "With node_id: what to follow (default neighbours).",
                *("related_entities", "related_facts", "facts_about_entity", "decision_entities"),
                *("entity_decisions", "invalidation_chain", "topic_contents", "neighbours"),
            ),
            "limit": whole("The most nodes, 1 to 50."),
            **_WHO,
            "format": FORMAT,
        },
        field_names={"types": "node_types"},
    ),
    Tool(
        "mie_list",
        "Knowledge graph: all nodes of a type, filtered, sorted, in pages.",
        ("read",),
        list_nodes,
        {
            "node_type": choice("Which.", *NODE_TYPES),
            "category": text("Only facts or topics of this category."),
            "kind": text("Only entities of this kind."),
            "status": _STATUS,
            "valid_only": switch("false: also facts that do not hold any more."),
            "sort_by": choice(
                "Default updated_at.", "updated_at", "created_at", "name", "weight", "confidence"
            ),
            "sort_order": choice("Default desc.", "asc", "desc"),
            "limit": whole("Nodes of a page, 1 to 100 (default 20)."),
            "cursor": text("From the page before."),
            **_WHO,
        },
        ("node_type",),
        field_names={"type": "node_type", "sort": "sort_by", "order": "sort_order"},
    ),
    Tool(
        "mie_update",
        "Knowledge graph: end a fact (invalidate, with a reason), change a node's description or "
        "status (new_value), archive it or restore it.",
        ("write",),
        update,
        {
            "node_id": text("The node's id."),
            "action": choice(
                "What to do.",
                *("invalidate", "update_description", "update_status", "archive", "restore"),
            ),
            "reason": text("invalidate: why it does not hold any more."),
            "replacement_id": text("invalidate: the id of the fact that holds instead."),
            "new_value": text("The new description or status."),
            **_AUTHOR,
        },
        ("node_id", "action"),
        is_read_only=False,
        field_names={"description": "new_value", "status": "new_value"},
    ),
    Tool(
        "mie_conflicts",
        "Knowledge graph: facts that contradict a content, one fact (node_id), or each other.",
        ("read",),
        find_conflicts,
        {
            "content": text("The text to compare with what is known."),
            "node_id": text("The fact to compare with others."),
            "category": text("Only facts of this category."),
            "threshold": number("0 to 1: how similar they must be."),
            "limit": whole("The most pairs."),
            **_WHO,
        },
    ),
    Tool(
        "mie_export",
        "Knowledge graph: export all in view to a file; gives its address.",
        ("read",),
        export,
        {"include_embeddings": switch("true: with the vectors."), **_WHO},
        field_names={"vectors": "include_embeddings"},
    ),
    Tool(
        "mie_status",
        "Knowledge graph: how much it has, and how it is doing.",
        ("read",),
        get_status,
        {**_WHO},
    ),
    Tool(
        "memory_relate",
        "Knowledge graph: state how two nodes that are there are related, such as two topics.",
        ("write",),
        relate,
        {
            "from_id": text("The node's id."),
            "to_id": text("The other node's id."),
            "edge": text("related (default), or USES, WORKS_ON, fact_entity, entity_topic, …"),
            "role": text("related: how, in a word or two, as in depends on."),
            "nuance": text("More about it."),
            "confidence": number("0 to 1: how sure you are."),
            **_AUTHOR,
        },
        ("from_id", "to_id"),
        is_read_only=False,
    ),
    Tool(
        "memory_topic_fields",
        "A topic's named fields with their current values; with `field` all revisions of one, "
        "newest first, and why each changed.",
        ("read",),
        get_fields,
        {
            "topic_id": _TOPIC_ID,
            "field": text("One field: its history."),
            "as_of": text("As it was known at this time, as in 2026-05-08T00:00:00Z."),
            "limit": whole("The most entries of a page."),
            "cursor": text("From the page before."),
            **_WHO,
        },
        ("topic_id",),
        field_names={"after_field": "cursor"},
    ),
    Tool(
        "memory_topic_set_field",
        "State the value of a topic's field, such as the phase of a project. Earlier values stay "
        "in its history.",
        ("write",),
        set_field,
        {
            "topic_id": _TOPIC_ID,
            "field": text("The field's name; a new one is made."),
            "value": any_json("Any JSON; null: it has no value any more."),
            "valid_from": text("Since when, if not now, as in 2026-05-08T00:00:00Z."),
            "why_changed": text("Why it changed."),
            "impact_expected": text("What follows from it."),
            "field_type": text("Of the value, as in text, number or date."),
            "ref_topic_id": text("Another topic that the field refers to."),
            **_AUTHOR,
        },
        ("topic_id", "field", "value"),
        is_read_only=False,
    ),
)
