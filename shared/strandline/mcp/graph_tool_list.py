"""The tools of the toolset `graph`, for the model: what is stated and known about people, projects
and things."""

from strandline.graph.nodes.node_types import NODE_TYPES
from strandline.mcp.argument_schemas import (
    Schema,
    any_json_schema,
    boolean_schema,
    choice_schema,
    integer_schema,
    number_schema,
    object_list_schema,
    text_list_schema,
    text_schema,
)
from strandline.mcp.tool_types import Tool
from strandline.mcp.tools_graph import (
    analyze_text_before_storing,
    export_graph,
    find_conflicts,
    get_graph_status,
    get_topic_fields,
    list_nodes,
    relate_two_nodes,
    search_or_traverse_graph,
    set_topic_field,
    store_node,
    store_nodes_with_edges,
    update_node,
)
from strandline.mcp.tools_memory import AUTHORS, FORMAT, PARTICIPANTS, SPEAKER

_KINDS = NODE_TYPES["entity"].categories or ()
_STATUS = choice_schema("Of a decision.", "active", "superseded", "reversed")
_WHO: dict[str, Schema] = {"participants": PARTICIPANTS}
_AUTHOR: dict[str, Schema] = {"participants": AUTHORS, "speaker": SPEAKER}
*_FIRST_TYPES, _LAST_TYPE = (
    f"{name} ({', '.join((spec.name_field, *spec.main_fields))})"
    for name, spec in NODE_TYPES.items()
)
_DESCRIBED_TYPES = f"{', '.join(_FIRST_TYPES)} or {_LAST_TYPE}"
_TOPIC_ID = text_schema("The topic's id, as in topic:018f….")


def _join_node_types_with_field(field: str) -> str:
    """The types of nodes that have a field."""
    types = [n for n, spec in NODE_TYPES.items() if field in (spec.name_field, *spec.fields)]
    return ", ".join(types)


TOOLS = (
    Tool(
        "mie_analyze",
        "Knowledge graph, before storing: what is known about a text, what contradicts it, and "
        "what to weigh.",
        ("read",),
        analyze_text_before_storing,
        {
            "content": text_schema("The text."),
            "content_type": choice_schema(
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
        store_node,
        {
            "type": choice_schema("What it is.", *NODE_TYPES),
            "content": text_schema("fact: one sentence that stands by itself."),
            "category": text_schema(
                "fact: personal, professional, preference, technical, relationship or general; "
                "topic: any word."
            ),
            "confidence": number_schema("0 to 1: how sure you are."),
            "title": text_schema(f"{_join_node_types_with_field('title')}: what, in a few words."),
            "rationale": text_schema("decision: why."),
            "alternatives": text_list_schema("decision: what else was weighed."),
            "status": _STATUS,
            "name": text_schema(f"{_join_node_types_with_field('name')}: its name."),
            "kind": choice_schema("entity: what it is.", *_KINDS),
            "description": text_schema(
                f"{_join_node_types_with_field('description')}: what else is known of it."
            ),
            "event_date": text_schema("event: when, as in 2026-05-08T00:00:00Z."),
            "relationships": object_list_schema(
                'Edges to nodes that are there, as in [{"edge": "fact_entity", "target_id": '
                '"ent:…", "role": "…"}].'
            ),
            "invalidates": text_schema("fact: the id of the fact that it replaces."),
            "reason": text_schema("With invalidates: why the older one does not hold."),
            **_AUTHOR,
        },
        ("type",),
        is_read_only=False,
        field_names={"nodes.0": ""},
    ),
    Tool(
        "mie_bulk_store",
        "Knowledge graph: store up to 50 nodes with edges between them, all or none.",
        ("write",),
        store_nodes_with_edges,
        {
            "nodes": object_list_schema(
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
        "joined to that node, and the events behind it. For what was said use memory_recall.",
        ("read",),
        search_or_traverse_graph,
        {
            "query": text_schema("A question, a part of a text (exact), or names (graph)."),
            "mode": choice_schema(
                "semantic (default): by meaning; exact: a part of a text; graph: what `query` "
                "names and what lies around it.",
                *("semantic", "exact", "graph"),
            ),
            "node_types": text_list_schema(f"Only these: {', '.join(NODE_TYPES)}."),
            "node_id": text_schema("Instead of `query`: the node to begin at."),
            "traversal": choice_schema(
                "With node_id: what to follow (default neighbours).",
                *("related_entities", "related_facts", "facts_about_entity", "decision_entities"),
                *("entity_decisions", "invalidation_chain", "topic_contents", "neighbours"),
            ),
            "limit": integer_schema("The most nodes, 1 to 50."),
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
            "node_type": choice_schema("Which.", *NODE_TYPES),
            "category": text_schema("Only facts or topics of this category."),
            "kind": choice_schema("Only entities of this kind.", *_KINDS),
            "status": _STATUS,
            "valid_only": boolean_schema("false: also facts that do not hold any more."),
            "sort_by": choice_schema(
                "Default updated_at.", "updated_at", "created_at", "name", "weight", "confidence"
            ),
            "sort_order": choice_schema("Default desc.", "asc", "desc"),
            "limit": integer_schema("Nodes of a page, 1 to 100 (default 20)."),
            "cursor": text_schema("From the page before."),
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
        update_node,
        {
            "node_id": text_schema("The node's id."),
            "action": choice_schema(
                "What to do.",
                *("invalidate", "update_description", "update_status", "archive", "restore"),
            ),
            "reason": text_schema("invalidate: why it does not hold any more."),
            "replacement_id": text_schema("invalidate: the id of the fact that holds instead."),
            "new_value": text_schema("The new description or status."),
            **_AUTHOR,
        },
        ("node_id", "action"),
        is_read_only=False,
        is_additive=False,
        field_names={"description": "new_value", "status": "new_value"},
    ),
    Tool(
        "mie_conflicts",
        "Knowledge graph: facts that contradict a content, one fact (node_id), or each other.",
        ("read",),
        find_conflicts,
        {
            "content": text_schema("The text to compare with what is known."),
            "node_id": text_schema("The fact to compare with others."),
            "category": text_schema("Only facts of this category."),
            "threshold": number_schema("0 to 1: how similar they must be."),
            "limit": integer_schema("The most pairs."),
            **_WHO,
        },
    ),
    Tool(
        "mie_export",
        "Knowledge graph: export all in view to a file; gives its address.",
        ("read",),
        export_graph,
        {"include_embeddings": boolean_schema("true: with the vectors."), **_WHO},
        field_names={"vectors": "include_embeddings"},
    ),
    Tool(
        "mie_status",
        "Knowledge graph: how much it has, and how it is doing.",
        ("read",),
        get_graph_status,
        {**_WHO},
    ),
    Tool(
        "memory_relate",
        "Knowledge graph: state how two nodes that are there are related, such as two topics.",
        ("write",),
        relate_two_nodes,
        {
            "from_id": text_schema("The node's id."),
            "to_id": text_schema("The other node's id."),
            "edge": text_schema(
                "related (default), or USES, WORKS_ON, fact_entity, entity_topic, …"
            ),
            "role": text_schema("related: how, in a word or two, as in depends on."),
            "nuance": text_schema("More about it."),
            "confidence": number_schema("0 to 1: how sure you are."),
            **_AUTHOR,
        },
        ("from_id", "to_id"),
        is_read_only=False,
        field_names={"edges.0": ""},
    ),
    Tool(
        "memory_topic_fields",
        "A topic's named fields with their current values; with `field` all revisions of one, "
        "newest first, and why each changed.",
        ("read",),
        get_topic_fields,
        {
            "topic_id": _TOPIC_ID,
            "field": text_schema("One field: its history."),
            "as_of": text_schema("As it was known at this time, as in 2026-05-08T00:00:00Z."),
            "limit": integer_schema("The most entries of a page."),
            "cursor": text_schema("From the page before."),
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
        set_topic_field,
        {
            "topic_id": _TOPIC_ID,
            "field": text_schema("The field's name; a new one is made."),
            "value": any_json_schema("Any JSON; null: it has no value any more."),
            "valid_from": text_schema("Since when, if not now, as in 2026-05-08T00:00:00Z."),
            "why_changed": text_schema("Why it changed."),
            "impact_expected": text_schema("What follows from it."),
            "field_type": text_schema("Of the value, as in text, number or date."),
            "ref_topic_id": text_schema("Another topic that the field refers to."),
            **_AUTHOR,
        },
        ("topic_id", "field", "value"),
        is_read_only=False,
    ),
)
