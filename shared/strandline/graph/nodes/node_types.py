"""The types of nodes, one row each. A node of a new type needs a row here, a model in `schemas` and
the check of its type in the database."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from typing_extensions import TypeAliasType

NodeType = TypeAliasType("NodeType", Literal["fact", "decision", "entity", "event", "topic"])
FactCategory = TypeAliasType(
    "FactCategory",
    Literal["personal", "professional", "preference", "technical", "relationship", "general"],
)
EntityKind = TypeAliasType(
    "EntityKind", Literal["person", "company", "project", "product", "technology", "place", "other"]
)


class EdgeTypeSpec(NamedTuple):
    """What holds for all edges of a type that joins nodes of two types only."""

    end: NodeType
    """The type of the nodes that they lead to."""
    words: str
    """What a sentence has between the names of both nodes."""


class NodeTypeSpec(NamedTuple):
    """What holds for all nodes of one type."""

    prefix: str
    """The prefix of their ids."""
    name_field: str
    """The field that identifies a node, and cannot change."""
    fields: frozenset[str]
    """Their other fields, by their names in the API."""
    store_as: str
    """What a caller is told about storing one."""
    main_fields: Sequence[str] = ()
    """The fields that nearly every one has besides its name."""
    defaults: Mapping[str, str] = {}
    """Values of fields that no observation sets."""
    category_field: str | None = "category"
    """The name in the API of what is stored as `category`; None where there is none."""
    categories: Sequence[str] | None = None
    """The values that it may have; None: any text."""
    edges: Mapping[str, EdgeTypeSpec] = {}
    """The edges that only these nodes begin."""
    is_invalidable: bool = False
    """Whether a node ends by being invalidated: it is neither overwritten nor merged, and another
    of its name may begin after it."""


NODE_TYPES: Mapping[NodeType, NodeTypeSpec] = {
    "fact": NodeTypeSpec(
        prefix="fact",
        name_field="content",
        fields=frozenset({"category"}),
        store_as="content, category (personal, professional, preference, technical, relationship,"
        " general), confidence 0 to 1; what it replaces as `invalidates`, with a `reason`",
        defaults={"category": "general"},
        categories=get_args(FactCategory.__value__),
        edges={
            "fact_entity": EdgeTypeSpec("entity", "is about"),
            "fact_topic": EdgeTypeSpec("topic", "belongs to"),
            "invalidates": EdgeTypeSpec("fact", "invalidates"),
        },
        is_invalidable=True,
    ),
    "decision": NodeTypeSpec(
        prefix="dec",
        name_field="title",
        fields=frozenset({"rationale", "alternatives", "status"}),
        store_as="title, rationale, alternatives; relationships decision_entity with a role",
        main_fields=("rationale",),
        defaults={"status": "active"},
        category_field=None,
        edges={
            "decision_entity": EdgeTypeSpec("entity", "concerns"),
            "decision_topic": EdgeTypeSpec("topic", "belongs to"),
        },
    ),
    "entity": NodeTypeSpec(
        prefix="ent",
        name_field="name",
        fields=frozenset({"kind", "description"}),
        store_as="name, kind (person, company, project, product, technology, place, other),"
        " description",
        main_fields=("kind",),
        defaults={"kind": "other"},
        category_field="kind",
        categories=get_args(EntityKind.__value__),
        edges={"entity_topic": EdgeTypeSpec("topic", "belongs to")},
    ),
    "event": NodeTypeSpec(
        prefix="evt",
        name_field="title",
        fields=frozenset({"description", "event_date"}),
        store_as="title, description, event_date",
        main_fields=("event_date",),
        category_field=None,
        edges={"event_decision": EdgeTypeSpec("decision", "led to")},
    ),
    "topic": NodeTypeSpec(
        prefix="topic",
        name_field="name",
        fields=frozenset({"description", "category"}),
        store_as="name, description; relationships fact_topic, decision_topic, entity_topic lead to"
        " it",
    ),
}
NAME_FIELDS = frozenset(spec.name_field for spec in NODE_TYPES.values())
"""The fields that identify a node of some type."""


def to_stored_field_names(node_type: NodeType, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by the names under which they are stored, from those of the API."""
    category_field = NODE_TYPES[node_type].category_field
    return {"category" if name == category_field else name: v for name, v in fields.items()}


def to_api_field_names(node_type: NodeType, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by their names in the API, from those under which they are stored."""
    category_field = NODE_TYPES[node_type].category_field or "category"
    return {category_field if name == "category" else name: v for name, v in fields.items()}
